"""Functions compiled without reference counts."""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import pytest
from numba import njit
from numba.core.errors import NumbaError

from autoturbo.compiled import arithmetic, borrowing


class Pair(NamedTuple):
    """Arrays as the passes hand them on."""

    first: np.ndarray
    second: np.ndarray


def add_rows(pair: Pair, out: np.ndarray) -> int:
    """Reads slices of both and writes into a third."""
    for row in range(len(out)):
        left, right = pair.first[row], pair.second[row]
        for column in range(len(left)):
            out[row] += left[column] * right[column]
    return len(out)


@pytest.fixture
def pair() -> Pair:
    values = np.arange(12.0).reshape(4, 3)
    return Pair(values, values + 1)


def test_slices_of_borrowed_arrays_are_read_and_written(pair: Pair) -> None:
    out = np.zeros(4)
    assert borrowing(add_rows)(pair, out) == 4
    np.testing.assert_array_equal(out, (pair.first * pair.second).sum(axis=1))


def test_arrays_outlive_the_functions_that_borrow_them(pair: Pair) -> None:
    """A thousand calls neither free an array that is in use nor keep one for ever."""
    compiled, out = borrowing(add_rows), np.zeros(4)
    compiled(pair, out)
    before = sys.getrefcount(pair.first)
    for _ in range(1000):
        compiled(pair, out)
    after = sys.getrefcount(pair.first)  # outside of the assertion, which holds one itself
    assert after == before
    np.testing.assert_array_equal(pair.first, np.arange(12.0).reshape(4, 3))


def test_a_function_that_allocates_is_refused() -> None:
    """Nobody would free what it makes."""

    def allocates(size: int) -> float:
        return float(np.zeros(size).sum())

    with pytest.raises(NumbaError, match="np_empty"):
        borrowing(allocates)(3)


def test_arithmetic_is_one_formula_for_numbers_and_columns() -> None:
    """To the last bit, in functions that borrow as well."""

    @arithmetic
    def formula(row: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.maximum(row[0], 1.0) / 3.0 * (row[1] > 0)
        return found

    @borrowing
    def number_by_number(rows: np.ndarray, out: np.ndarray) -> None:
        for row in range(len(rows)):
            out[row] = formula(rows[row])

    rows, out = np.random.default_rng(0).normal(0.5, 1, (50, 2)), np.zeros(50)
    number_by_number(rows, out)
    np.testing.assert_array_equal(out, formula(rows.T))


def test_callers_that_allocate_may_call_it(pair: Pair) -> None:
    inner = borrowing(add_rows)

    @njit
    def outer(both: Pair) -> np.ndarray:
        out = np.zeros(len(both.first))
        inner(both, out)
        return out

    np.testing.assert_array_equal(outer(pair), (pair.first * pair.second).sum(axis=1))
