"""The closed form of kernels against the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from autoturbo.schedule.codegen.durations import rates_of
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.estimate import BUSY, Estimate
from autoturbo.simulator.kernels import BUSY as SIMULATED
from autoturbo.simulator.kernels import Quantity, run_kernel
from tests.schedule.steps import program_of, rules_at, steps_of
from tests.simulator.simulate_samples import (
    estimated,
    evaluator,
    rules_of,
    stage,
    streams,
    table,
    target_of,
    timed,
)

SETTINGS = (
    Knobs(),
    Knobs(max_layers=2, prefetch_depth=3, tile_subdivision=2),
    Knobs(instruction_scheduling="layer"),
    Knobs(instruction_scheduling="off", tile_subdivision=4),
    Knobs(output_scope="DDR", weight_residency="LB"),
)


def both(schedule: Schedule) -> tuple[np.ndarray, np.ndarray]:
    """Of every kernel, the estimate and what the simulator says."""
    rates = rates_of(schedule.context.target, schedule.context.dtype)
    estimates, simulated = [], []
    for step in steps_of(schedule.timeline)[:40]:
        rules = rules_at(schedule, step)
        own = step.template.stages, step.streams, rules, step.weights_resident
        estimates.append(estimated(*own, rates))
        simulated.append(run_kernel(program_of(schedule, step), rates).totals)
    return np.asarray(estimates), np.asarray(simulated)


@pytest.mark.parametrize(
    "preset", ["stcp920", *(pytest.param(p, marks=pytest.mark.full) for p in ("goya", "tpu-v4i"))]
)
def test_engines_are_as_busy_as_simulated(preset: str) -> None:
    model_scheduler = evaluator("squeezenet1_1", preset, target_of(preset).default_dtype)
    for knobs in SETTINGS:
        estimates, simulated = both(model_scheduler.schedule(knobs))
        assert estimates[:, BUSY] == pytest.approx(simulated[:, SIMULATED], rel=1e-6)
        read, written = estimates[:, Estimate.DDR_READ], estimates[:, Estimate.DDR_WRITTEN]
        assert read == pytest.approx(simulated[:, Quantity.DDR_READ])
        assert written == pytest.approx(simulated[:, Quantity.DDR_WRITTEN])


@pytest.mark.parametrize(
    "workload", ["resnet18", pytest.param("bert_base_s128", marks=pytest.mark.full)]
)
def test_seconds_are_near_those_simulated(workload: str) -> None:
    for knobs in SETTINGS:
        estimates, simulated = both(evaluator(workload).schedule(knobs))
        error = np.log(estimates[:, Estimate.SECONDS] / simulated[:, Quantity.SECONDS])
        assert abs(np.median(error)) < 0.15
        assert np.quantile(np.abs(error), 0.9) < 0.5


def test_a_product_alone_takes_its_matrix_time() -> None:
    rows = table(stage(rows=64, columns=64, depth=64, read=8192, written=8192))
    target = target_of()
    rules, rates = rules_of(target), rates_of(target, "float16")
    found = estimated(rows, streams(1), rules, 0, rates)
    assert found[Estimate.SECONDS] == pytest.approx(timed(rows).seconds)
    assert found[Estimate.SECONDS] == found[Estimate.BUSY_MATRIX]


def test_one_instruction_after_another_is_the_sum_of_all() -> None:
    rows = table(*[stage(rows=64, columns=64, depth=64, weights=8192, read=8192, written=8192)] * 2)
    moved = streams(2, IN_DDR=(0, 8192), OUT_DDR=(1, 8192))
    target = target_of()
    rules = rules_of(target, serial=True, ahead=0)
    found = estimated(rows, moved, rules, 0, rates_of(target, "float16"))
    serial = timed(rows, moved, serial=True, ahead=0)
    assert found[Estimate.SECONDS] == found[Estimate.SERIAL]
    assert found[Estimate.SECONDS] == pytest.approx(serial.seconds)
