"""A better machine never makes the best schedule slower.

A fixed schedule never gets slower (``tests/simulator/test_simulate_monotone.py``); here everything
is decided anew for the better machine, and the best of a fixed set of settings is compared: the
heuristics alone may lose, since a larger buffer changes groups, splits and tiles.

Two things are left out, because they hold for what is computed and not for how it is cut: an
operator that changes from one engine to the other (the choice compares cycles of the whole operator
without start-up), and a larger array of the same rate per element (its tiles are larger, so there
are fewer to overlap, and a buffer may be too small for them).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.work import engine_code
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement
from tests.schedule.schedule_samples import STCP920, networks, scheduler_of, target

if TYPE_CHECKING:
    from collections.abc import Callable

    from autoturbo.graph.operators import Graph
    from autoturbo.hardware import Target

BASES: tuple[dict[str, Any], ...] = (
    {},
    {"max_layers": 1},
    {"lb_occupancy_limit": 0.25},
    {"lb_occupancy_limit": 0.05},
)
EXTRA: tuple[dict[str, Any], ...] = (
    {"output_scope": "GB"},
    {"weight_residency": "GB"},
    {"batches_per_cluster": 1},
    {"batches_per_cluster": 1, "tile_subdivision": 2},
)
SETTINGS = tuple(
    Knobs.from_dict(values)
    for values in (
        *(
            {**base, "prefetch_depth": ahead, "tile_subdivision": tiles}
            for base, ahead, tiles in itertools.product(BASES, (1, 2, 4), (1, 2, 4))
        ),
        *EXTRA,
    )
)
"""Forty settings: how much is merged and split, by how deep a prefetch and how many tiles."""


def changed(machine: Target, path: str, change: Callable[[Any], Any]) -> Target:
    owner, _, name = path.rpartition(".")
    if not owner:
        return dataclasses.replace(machine, **{name: change(getattr(machine, name))})
    part = getattr(machine, owner)
    part = dataclasses.replace(part, **{name: change(getattr(part, name))})
    return dataclasses.replace(machine, **{owner: part})


def better(machine: Target, path: str, factor: int) -> Target:
    def times(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple((dtype, rate * factor) for dtype, rate in value)
        return value * factor

    return changed(machine, path, times)


def nimble(machine: Target) -> Target:
    """Launches, latencies and engines so small that they do not hide a small network."""
    for path in ("ddr.latency", "gb.latency", "transfer.latency", "dma.latency"):
        machine = changed(machine, path, lambda _: 2e-8)
    machine = changed(machine, "overheads.kernel_launch", lambda _: 1e-7)
    machine = changed(machine, "overheads.barrier", lambda _: 2e-8)
    machine = changed(machine, "vector.lanes", lambda old: tuple((dtype, 8) for dtype, _ in old))
    for path, value in (
        ("matrix.rows", 8), ("matrix.columns", 8), ("matrix.startup_cycles", 16),
        ("vector.startup_cycles", 4), ("vector.special_lanes", 2.0),
    ):  # fmt: skip
        machine = changed(machine, path, functools.partial(lambda _, new: new, new=value))
    return machine


@st.composite
def machines(draw: st.DrawFn) -> Target:
    return nimble(
        target(
            cores=draw(st.sampled_from((1, 2, 4, 8))),
            lb=draw(st.sampled_from((1 << 11, 1 << 12, 1 << 13, 1 << 15))),
            gb=draw(st.sampled_from((0, 1 << 12, 1 << 14, 1 << 17))),
            weights=draw(st.sampled_from((256, 1024))),
        )
    )


def best(graph: Graph, machine: Target) -> float:
    """Seconds of the best of the settings."""
    evaluator = Evaluator(graph, machine, "float16")
    found = (evaluator.evaluate(knobs) for knobs in SETTINGS)
    return min(m.latency for m in found if isinstance(m, Measurement))


def engines(graph: Graph, machine: Target) -> list[int]:
    return [engine_code(operator, machine, "float16") for operator in graph.operators]


SPEEDS = (
    "ddr.bandwidth", "gb.bandwidth", "lb.bandwidth", "transfer.bandwidth", "dma.bandwidth",
    "matrix.rate", "vector.lanes", "vector.special_lanes", "clock",
)  # fmt: skip
ROOMS = ("gb.capacity", "lb.weight_capacity", "ddr.capacity")

EXAMPLES = settings(
    max_examples=40, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)  # fmt: skip


def check(graph: Graph, machine: Target, path: str, factor: int, slack: float) -> None:
    improved = better(machine, path, factor)
    assume(engines(graph, machine) == engines(graph, improved))
    assert best(graph, improved) <= best(graph, machine) * (1 + slack)


@settings(EXAMPLES, max_examples=6)
@given(
    graph=networks(most=4), machine=machines(), path=st.sampled_from(SPEEDS),
    factor=st.sampled_from((2, 3, 8)),
)  # fmt: skip
def test_a_faster_part(graph: Graph, machine: Target, path: str, factor: int) -> None:
    """More bandwidth anywhere, more multiply-accumulates or lanes a cycle, more cycles."""
    check(graph, machine, path, factor, 1e-9)


@settings(EXAMPLES, max_examples=5)
@given(
    graph=networks(most=4), machine=machines(), path=st.sampled_from(ROOMS),
    factor=st.sampled_from((2, 4, 16)),
)  # fmt: skip
def test_more_room_in_gb_or_for_weights(
    graph: Graph, machine: Target, path: str, factor: int
) -> None:
    assume(machine.gb.capacity)
    check(graph, machine, path, factor, 1e-9)


TILES_OF_LB = 0.01
"""Streams and results get a sixteenth of LB each, so tiles grow with it, by whole numbers of tiles
and for all layers alike: up to this much slower, 0.4 % on real networks."""


@pytest.mark.full
@EXAMPLES
@given(graph=networks(most=6), machine=machines(), factor=st.sampled_from((2, 4)))
def test_more_room_in_lb(graph: Graph, machine: Target, factor: int) -> None:
    check(graph, machine, "lb.capacity", factor, TILES_OF_LB)


@pytest.mark.full
@settings(EXAMPLES, max_examples=90)
@given(
    graph=networks(most=8), machine=machines(), path=st.sampled_from((*SPEEDS, *ROOMS)),
    factor=st.sampled_from((2, 3, 4, 8)),
)  # fmt: skip
def test_many_networks(graph: Graph, machine: Target, path: str, factor: int) -> None:
    assume(machine.gb.capacity or not path.startswith("gb."))
    check(graph, machine, path, factor, 1e-9)


@pytest.mark.full
@pytest.mark.parametrize("path", ["ddr.bandwidth", "vector.lanes", "gb.capacity", "lb.capacity"])
def test_a_real_network(path: str) -> None:
    graph = scheduler_of("squeezenet1_1").model
    improved = better(STCP920, path, 2)
    assert engines(graph, STCP920) == engines(graph, improved)
    slack = TILES_OF_LB if path == "lb.capacity" else 1e-9
    assert best(graph, improved) <= on_stcp920() * (1 + slack)


@functools.cache
def on_stcp920() -> float:
    return best(scheduler_of("squeezenet1_1").model, STCP920)


@pytest.mark.full
@pytest.mark.parametrize("path", ["ddr.bandwidth", "lb.capacity"])
def test_what_matters_makes_the_best_faster(path: str) -> None:
    graph = scheduler_of("squeezenet1_1").model
    starved = changed(STCP920, "lb.capacity", lambda old: old // 16)
    assert best(graph, better(starved, path, 4)) < best(graph, starved)
