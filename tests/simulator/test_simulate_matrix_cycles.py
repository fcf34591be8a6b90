"""Cycles of the matrix engine against closed forms for each dataflow."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.hardware import MatrixEngine
from autoturbo.hardware.parts import DATAFLOWS
from autoturbo.schedule.work import array_of, matrix_cycles

OUTPUT, WEIGHT, INPUT, IDEAL = (
    DATAFLOWS.index(name)
    for name in ("output_stationary", "weight_stationary", "input_stationary", "ideal")
)


def cycles(
    dataflow: int,
    m: float,
    n: float,
    k: float,
    *,
    count: float = 1,
    depth: int = 1,
    overlap: bool = True,
    swap: bool | None = None,
) -> float:
    """On an array of 16 rows and 8 columns; sums alone may be transposed unless said otherwise."""
    swap = dataflow == OUTPUT if swap is None else swap
    engine = MatrixEngine(16, 8, DATAFLOWS[dataflow], depth, (("float16", 1.0),), 0, overlap, swap)
    return float(matrix_cycles(count, m, n, k, array_of(engine)))


def test_closed_forms() -> None:
    cases = (
        (OUTPUT, 16, 8, 100, 100),  # one fold
        (OUTPUT, 8, 16, 100, 100),  # transposed
        (OUTPUT, 17, 8, 100, 200),
        (OUTPUT, 32, 32, 10, 2 * 4 * 10),
        (OUTPUT, 1, 32, 10, 2 * 10),  # a vector times a matrix: columns on the rows of the array
        (WEIGHT, 100, 8, 16, 100),
        (WEIGHT, 100, 9, 17, 4 * 100),
        (WEIGHT, 1, 64, 64, 4 * 8 * 16),  # the next weights take 16 cycles to come in
        (INPUT, 8, 100, 16, 100),
        (INPUT, 9, 100, 17, 4 * 100),
        (INPUT, 64, 1, 64, 4 * 8 * 16),
        (IDEAL, 16, 8, 100, 100),
        (IDEAL, 1, 1, 128, 1),
    )
    for dataflow, m, n, k, expected in cases:
        assert cycles(dataflow, m, n, k) == expected


@pytest.mark.full
def test_products_of_a_batch_follow_each_other() -> None:
    for dataflow in (OUTPUT, WEIGHT, INPUT, IDEAL):
        assert cycles(dataflow, 20, 20, 20, count=7) == 7 * cycles(dataflow, 20, 20, 20)


def test_a_cube_takes_several_elements_of_the_reduction_at_once() -> None:
    assert cycles(OUTPUT, 16, 8, 100, depth=16) == math.ceil(100 / 16)


EXTENT = st.integers(1, 300)


@settings(max_examples=50)
@given(dataflow=st.sampled_from([OUTPUT, WEIGHT, INPUT, IDEAL]), m=EXTENT, n=EXTENT, k=EXTENT)
def test_never_faster_than_the_peak(dataflow: int, m: int, n: int, k: int) -> None:
    assert cycles(dataflow, m, n, k) >= m * n * k / (16 * 8) * (1 - 1e-12)


@settings(max_examples=50)
@given(dataflow=st.sampled_from([OUTPUT, WEIGHT, INPUT, IDEAL]), m=EXTENT, n=EXTENT, k=EXTENT)
def test_more_work_takes_no_less(dataflow: int, m: int, n: int, k: int) -> None:
    least = cycles(dataflow, m, n, k)
    assert cycles(dataflow, m + 1, n, k) >= least
    assert cycles(dataflow, m, n + 1, k) >= least
    assert cycles(dataflow, m, n, k + 1) >= least


@pytest.mark.full
@settings(max_examples=50)
@given(m=EXTENT, n=EXTENT, k=EXTENT)
def test_output_stationary_does_not_care_which_operand_is_which(m: int, n: int, k: int) -> None:
    assert cycles(OUTPUT, m, n, k) == cycles(OUTPUT, n, m, k)


@pytest.mark.full
@settings(max_examples=50)
@given(m=EXTENT, n=EXTENT, k=EXTENT)
def test_stationary_weights_transposed_are_stationary_inputs(m: int, n: int, k: int) -> None:
    both = min(cycles(WEIGHT, m, n, k), cycles(INPUT, m, n, k))
    assert cycles(WEIGHT, m, n, k, swap=True) == both
    assert cycles(INPUT, m, n, k, swap=True) == both


@settings(max_examples=50)
@given(dataflow=st.sampled_from([OUTPUT, WEIGHT, INPUT]), m=EXTENT, n=EXTENT, k=EXTENT)
def test_folds_that_wait_for_each_other_pay_for_filling(
    dataflow: int, m: int, n: int, k: int
) -> None:
    """Every fold pays its steps and its fill."""
    fill = 16 + 8 - 2 + (0 if dataflow == OUTPUT else 16)
    steps = {OUTPUT: k, WEIGHT: m, INPUT: n}[dataflow]
    down, across = {OUTPUT: (m, n), WEIGHT: (k, n), INPUT: (k, m)}[dataflow]
    folds = math.ceil(down / 16) * math.ceil(across / 8)
    assert cycles(dataflow, m, n, k, overlap=False, swap=False) == folds * (steps + fill) - 1
    load = 0 if dataflow == OUTPUT else 16
    assert cycles(dataflow, m, n, k, swap=False) == folds * max(steps, load)


@pytest.mark.parametrize("swap", [False, True])
def test_a_fixed_product_keeps_its_sides(*, swap: bool) -> None:
    assert cycles(OUTPUT, 8, 16, 100, swap=swap) == (100 if swap else 200)
