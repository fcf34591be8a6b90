from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.cost_models.numbering import (
    Numbering,
    RowNumbering,
    digests,
    firsts,
    joined_digests,
    mark,
    present,
)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(-(2**62), 2**62) | st.integers(0, 9)), max_size=4))
def test_keys_are_numbered_in_order_of_appearance(batches: list[list[int]]) -> None:
    numbering, known = Numbering(), dict[int, int]()
    for keys in batches:
        expected = [known.setdefault(key, len(known)) for key in keys]
        assert numbering.of(np.asarray(keys, np.int64)).tolist() == expected
        assert numbering.count == len(known)


def test_more_keys_than_there_is_room_for_at_first() -> None:
    keys = np.random.default_rng(0).permutation(np.arange(20_000) * 4096)
    numbering = Numbering()
    assert (numbering.of(keys) == np.arange(len(keys))).all()
    assert (numbering.of(keys[::-1]) == np.arange(len(keys))[::-1]).all()


@pytest.mark.parametrize("widths", [[3], [5] * 30, [2, 1 << 30, 7], []])
def test_rows_are_equal_where_their_numbers_are(widths: list[int]) -> None:
    rng = np.random.default_rng(1)
    rows = rng.integers(0, widths, (50, len(widths)))
    rows = np.concatenate([rows, rows[::-1]])
    numbering = RowNumbering(len(widths))
    seen: dict[tuple[int, ...], int] = {}
    expected = [seen.setdefault(tuple(row), len(seen)) for row in rows.tolist()]
    assert numbering.of(rows).tolist() == expected
    assert numbering.count == len(seen)


def test_more_rows_than_there_is_room_for_at_first() -> None:
    keys = np.random.default_rng(0).permutation(np.arange(20_000) * 4096)
    rows = np.column_stack((keys % 8192, keys))
    numbering = RowNumbering(2)
    assert (numbering.of(rows) == np.arange(len(keys))).all()
    assert (numbering.of(rows[::-1]) == np.arange(len(keys))[::-1]).all()


def test_new_numbers_are_found_once_each_in_their_order() -> None:
    assert firsts(np.asarray([4, 2, 5, 4, 3, 5]), 3, 6).tolist() == [4, 0, 2]
    assert firsts(np.asarray([1, 0]), 2, 2).tolist() == []


def test_numbers_that_are_there_are_found_once_each() -> None:
    assert present(np.asarray([3, 0, 3, 5])) == [0, 3, 5]
    assert present(np.zeros(0, np.int64)) == []


def test_what_has_no_mark_gets_one_and_is_found_once() -> None:
    marks = np.asarray([False, True, False, False])
    assert mark(np.asarray([2, 1, 3, 2, 1, 3]), marks).tolist() == [2, 3]
    assert marks.tolist() == [False, True, True, True]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, 1e9])), min_size=1))
def test_digests_are_equal_where_rows_are(rows: list[tuple[int, float]]) -> None:
    found = digests(np.asarray(rows, np.float64)).tolist()
    assert len(set(zip(rows, found, strict=True))) == len(set(rows)) == len(set(found))


def test_digests_of_several_follow_their_order_and_their_owner() -> None:
    one, two = digests(np.asarray([[1.0, 2.0], [2.0, 1.0]])).tolist()
    each = np.asarray([one, two, two, one, one], np.int64)
    first, second, third, none = joined_digests(each, np.asarray([0, 0, 1, 1, 2]), 4).tolist()
    assert len({first, second, third, none}) == 4
    assert joined_digests(each[2:4], np.asarray([0, 0]), 1).tolist() == [second]
