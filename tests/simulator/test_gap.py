"""What lies between the lower bound and a latency: causes that add up, and DDR that stands idle."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.hardware import load_target
from autoturbo.hardware.target import Target, timed_with
from autoturbo.schedule.knobs import Knobs, fitting
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.work import array_of, least_cycles, matrix_cycles
from autoturbo.simulator.gap import DDR, WAITS, gap_parts, idle_ddr_seconds
from autoturbo.simulator.sequence import simulate
from tests.simulator.simulate_samples import PRESETS, evaluator, settings_of_knobs, target_of

STCP920 = load_target("stcp920")


def schedule_of(
    workload: str, target: Target = STCP920, knobs: Knobs | None = None, dtype: str = "float16"
) -> Schedule:
    model = evaluator(workload).model_scheduler.model
    return build_schedule(ModelScheduler(model, target, dtype), knobs or Knobs())


@settings(max_examples=10, deadline=None)
@given(
    workload=st.sampled_from(["squeezenet1_1", "dlrm", "llama_decode"]),
    preset=st.sampled_from(PRESETS), knobs=settings_of_knobs(), ahead=st.sampled_from([0, 1024]),
)  # fmt: skip
def test_causes_add_up_to_the_gap(workload: str, preset: str, knobs: Knobs, ahead: int) -> None:
    target = target_of(preset)
    chosen = fitting(dataclasses.replace(knobs, fetch_ahead=ahead), target)
    schedule = schedule_of(workload, target, chosen, target.default_dtype)
    measured = simulate(schedule)
    parts = gap_parts(schedule, measured)
    assert all(seconds >= 0 for seconds in parts.values())
    gap = measured.latency - measured.bound.seconds
    assert sum(parts.values()) == pytest.approx(gap, rel=1e-9, abs=1e-12 * measured.latency)


def test_what_a_machine_has_not_costs_nothing() -> None:
    target = STCP920
    for path in WAITS:
        target = timed_with(target, path, 0)
    schedule = schedule_of("resnet18", target)
    assert gap_parts(schedule, simulate(schedule))["waits"] == 0.0
    for path in DDR:
        target = timed_with(target, path, 1e9)
    schedule = schedule_of("resnet18", target)
    parts = gap_parts(schedule, simulate(schedule))
    assert parts["ddr"] <= 1e-6 * sum(parts.values())
    assert parts["engines"] > 0
    assert parts["padding"] > 0


def test_ddr_idles_where_weights_could_come_and_less_once_they_may() -> None:
    waiting = schedule_of("resnet18")
    running = schedule_of("resnet18", knobs=Knobs(fetch_ahead=1024))
    idle = idle_ddr_seconds(waiting)
    assert 0 < idle < simulate(waiting).latency
    assert idle_ddr_seconds(running) < idle / 2
    dma = dataclasses.replace(STCP920.dma, prefetch_over_kernels=False)
    alone = dataclasses.replace(STCP920, dma=dma)
    assert idle_ddr_seconds(schedule_of("resnet18", alone)) == 0.0


def test_ddr_does_not_idle_for_want_of_room() -> None:
    idle = []
    for kib in (64, 512):
        gb = dataclasses.replace(STCP920.gb, capacity=kib << 10)
        idle.append(idle_ddr_seconds(schedule_of("resnet18", dataclasses.replace(STCP920, gb=gb))))
    assert 0 < idle[0] < idle[1]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_division_of_a_product_takes_fewer_cycles_than_the_least(data: st.DataObject) -> None:
    sizes, rng = st.integers(1, 90), np.random.default_rng(data.draw(st.integers(0, 99)))
    matrix = dataclasses.replace(
        STCP920.matrix,
        rows=data.draw(st.sampled_from([1, 8, 16, 32])),
        columns=data.draw(st.sampled_from([1, 8, 24, 32])),
        depth=data.draw(st.sampled_from([1, 4])),
        dataflow=data.draw(st.sampled_from([
            "output_stationary", "weight_stationary", "input_stationary", "channel_stationary",
            "ideal",
        ])),
        folds_overlap=data.draw(st.booleans()), swap_operands=data.draw(st.booleans()),
    )  # fmt: skip
    array, whole = array_of(matrix), [data.draw(sizes) for _ in range(3)]
    cuts = [
        np.diff([0, *sorted(rng.integers(0, extent + 1, 2).tolist()), extent]) for extent in whole
    ]
    parts = [
        matrix_cycles(1.0, float(m), float(n), float(k), array)
        for m in cuts[0] for n in cuts[1] for k in cuts[2] if m and n and k
    ]  # fmt: skip
    m, n, k = whole
    least = least_cycles(1.0, m, n, k, array)
    assert least <= sum(parts) * (1 + 1e-12)
    if matrix.folds_overlap:  # otherwise cycles are numbered from 0
        assert least >= m * n * k / (matrix.rows * matrix.columns * matrix.depth) * (1 - 1e-12)


def test_a_narrow_product_is_bound_by_the_padding_of_the_array() -> None:
    matrix = dataclasses.replace(STCP920.matrix, rows=32, columns=32)
    assert least_cycles(1.0, 100.0, 3.0, 64.0, array_of(matrix)) == 4 * 64
    assert matrix_cycles(1.0, 100.0, 3.0, 64.0, array_of(matrix)) == 4 * 64
