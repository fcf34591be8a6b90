from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.interning import Interner, Memo, digests, whole_numbers

NUMBERS = st.integers(-(2**62), 2**62) | st.integers(0, 9)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.tuples(NUMBERS, NUMBERS)), max_size=4))
def test_rows_are_numbered_in_order_of_appearance(batches: list[list[tuple[int, int]]]) -> None:
    interner, known = Interner(2), dict[tuple[int, int], int]()
    for rows in batches:
        before = len(known)
        expected = [known.setdefault(row, len(known)) for row in rows]
        numbers, new = interner.of(np.asarray(rows, np.int64).reshape(-1, 2))
        assert numbers.tolist() == expected
        assert [rows[at] for at in new.tolist()] == [*known][before:]
        assert interner.count == len(known)


@pytest.mark.full
@pytest.mark.parametrize("widths", [[5] * 30, []])
def test_rows_are_equal_where_their_numbers_are(widths: list[int]) -> None:
    rows = np.random.default_rng(1).integers(0, widths, (50, len(widths)))
    rows = np.concatenate([rows, rows[::-1]])
    seen: dict[tuple[int, ...], int] = {}
    expected = [seen.setdefault(tuple(row), len(seen)) for row in rows.tolist()]
    assert Interner(len(widths)).of(rows)[0].tolist() == expected


@pytest.mark.full
def test_more_rows_than_there_is_room_for_at_first() -> None:
    keys = np.random.default_rng(0).permutation(np.arange(20_000) * 4096)
    rows = np.column_stack((keys % 8192, keys))
    interner = Interner(2)
    numbers, new = interner.of(rows)
    assert (numbers == np.arange(len(keys))).all()
    assert (new == np.arange(len(keys))).all()
    assert (interner.of(rows[::-1])[0] == np.arange(len(keys))[::-1]).all()


def test_values_are_made_once_of_each_key() -> None:
    memo, made = Memo(1, (2,), np.float64), list[int]()

    def make(new: Ints) -> np.ndarray:
        made.extend(keys[new, 0].tolist())
        return np.column_stack((keys[new, 0] / 2, keys[new, 0]))

    for batch in ([3, 5, 3], [5, 7], []):
        keys = np.asarray(batch, np.int64).reshape(-1, 1)
        assert memo.of(keys, make).tolist() == [[key / 2, key] for key in batch]
    assert made == [3, 5, 7]
    assert memo.count == 3


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, 1e9])), min_size=1))
def test_digests_are_equal_where_rows_are(rows: list[tuple[int, float]]) -> None:
    found = digests(whole_numbers(np.asarray(rows, np.float64))).tolist()
    assert len(set(zip(rows, found, strict=True))) == len(set(rows)) == len(set(found))
