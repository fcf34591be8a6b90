"""A fixed schedule never gets slower when a part of the machine gets faster."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.hardware import Target
from autoturbo.schedule.by_name import candidates
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.sequence import simulate
from tests.simulator.simulate_samples import changed, evaluator, settings_of_knobs, with_target

UP = ("ddr.bandwidth", "ddr.efficiency", "gb.bandwidth", "lb.bandwidth", "transfer.bandwidth",
      "dma.bandwidth", "vector.special_lanes", "clock")  # fmt: skip
DOWN = ("ddr.latency", "gb.latency", "transfer.latency", "dma.latency", "overheads.kernel_launch",
        "overheads.barrier", "matrix.startup_cycles", "vector.startup_cycles",
        "dram.row_cycle", "dram.four_activates", "dram.turnaround")  # fmt: skip
PER_DTYPE = ("vector.lanes", "matrix.rate")


def value(target: Target, path: str) -> float:
    for name in path.split("."):
        target = getattr(target, name)
    return float(target)  # type: ignore[arg-type]


def better(target: Target, path: str, factor: float) -> Target:
    """The target with one figure improved by a factor of at least 1."""
    if path in PER_DTYPE:
        owner, _, name = path.partition(".")
        rates = getattr(getattr(target, owner), name)
        return changed(target, path, tuple((dtype, rate * factor) for dtype, rate in rates))
    if path == "ddr.efficiency":
        return changed(target, path, min(1.0, target.ddr.efficiency * factor))
    now = value(target, path)
    return changed(target, path, now * factor if path in UP else now / factor)


@functools.cache
def named(workload: str, scheduler: str) -> Schedule:
    return next(iter(candidates(scheduler, evaluator(workload).model_scheduler)))


@pytest.mark.parametrize(
    ("workload", "scheduler"),
    [
        ("shufflenet_v2", "graphturbo"),
        pytest.param("resnet18", "tvm", marks=pytest.mark.full),
        pytest.param("resnet18", "graphturbo", marks=pytest.mark.full),
        pytest.param("llama_decode", "tvm", marks=pytest.mark.full),
        pytest.param("llama_decode", "graphturbo", marks=pytest.mark.full),
    ],
)
def test_each_figure(workload: str, scheduler: str) -> None:
    schedule = named(workload, scheduler)
    whole = simulate(schedule).latency
    for path in (*UP, *DOWN, *PER_DTYPE):
        latency = whole
        for factor in (1.3, 4.0, 1000.0):
            target = better(schedule.context.target, path, factor)
            faster = simulate(with_target(schedule, target)).latency
            assert faster <= latency * (1 + 1e-12), path
            latency = faster


@pytest.mark.full
@settings(max_examples=25, deadline=None)
@given(
    workload=st.sampled_from(["squeezenet1_1", "resnet18", "llama_decode", "dlrm"]),
    knobs=settings_of_knobs(),
    steps=st.lists(
        st.tuples(st.sampled_from([*UP, *DOWN, *PER_DTYPE]), st.floats(1.0, 50.0)), min_size=1
    ),
)
def test_any_settings_and_any_improvements(
    workload: str, knobs: Knobs, steps: list[tuple[str, float]]
) -> None:
    schedule = build_schedule(evaluator(workload).model_scheduler, knobs)
    target, latency = schedule.context.target, simulate(schedule).latency
    for path, factor in steps[:5]:
        target = better(target, path, factor)
    assert simulate(with_target(schedule, target)).latency <= latency * (1 + 1e-12)


@pytest.mark.parametrize("path", ["ddr.bandwidth", "clock"])
def test_a_figure_that_matters_does_matter(path: str) -> None:
    schedule = named("resnet18", "graphturbo")
    target = better(schedule.context.target, path, 4.0)
    assert simulate(with_target(schedule, target)).latency < simulate(schedule).latency
