"""Fitting a target's figures to measured times."""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path

import pytest

from autoturbo.errors import RefusedError, UsageError
from autoturbo.hardware import Target, load_target
from autoturbo.simulate.single import KernelGrids, Residence, product_graph
from autoturbo.tuning.calibrated_file import calibrated_target
from autoturbo.tuning.calibration import (
    Parameter,
    calibrate,
    fit,
    folds_of,
    parameters_of,
    with_values,
)
from autoturbo.tuning.measured_table import MeasuredTable, ProductCase

EDGE = load_target("examples/targets/edge.yaml")
SHAPES = (
    *((512, 512, 512), (1024, 512, 1024), (1024, 1024, 256), (768, 768, 768)),
    *((16, 2048, 2048), (32, 1024, 4096), (8, 4096, 1024), (24, 2048, 1536)),
    *((8, 16, 16), (16, 16, 16), (16, 32, 16), (8, 32, 32)),
)


def named(name: str, target: Target = EDGE) -> Parameter:
    return parameters_of(target, (name,))[0]


def case(shape: tuple[int, int, int], seconds: float = 1.0) -> ProductCase:
    return ProductCase((1, *shape), seconds, "int8", Residence(), None, 1.0)


def measured(target: Target, noise: float = 0.02, seed: int = 1) -> list[ProductCase]:
    drawn = random.Random(seed)
    cases = [case(shape) for shape in SHAPES]
    for one in cases:
        one.seconds = one.simulated(target) * math.exp(drawn.gauss(0, noise))
    return cases


TRUE = {
    "engines[matrix].rate.int8": 0.7,
    "ddr.efficiency": 0.6,
    "overheads.kernel_launch_us": 12.0,
}


@pytest.fixture(scope="module")
def machine() -> Target:
    return with_values(EDGE, {named(name): value for name, value in TRUE.items()})


def test_a_machine_is_recovered_within_its_intervals(machine: Target) -> None:
    found = fit(EDGE, measured(machine), parameters_of(EDGE))
    fitted = {one.field: one for one in found.fitted}
    assert set(TRUE) <= set(fitted)
    for name, value in TRUE.items():
        assert fitted[name].interval.low <= value <= fitted[name].interval.high, fitted[name]
        assert fitted[name].after == pytest.approx(value, rel=0.15)
    reasons = {one.field: one.reason for one in found.untouched}
    assert reasons["engines[vector].special_lanes"] == "no row depends on it"
    assert found.target.vector == EDGE.vector
