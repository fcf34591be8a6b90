"""Numbers for whole-number keys, millions a second: what makes candidates share what they share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.layer_sets import Flags
from autoturbo.schedule.stores import mix
from autoturbo.schedule.work import Floats

_ROOM = 1 << 10

_HALF = 31
"""Bits of each half of a pair."""

_NOWHERE = np.zeros(0, np.int64)


def row_bytes(rows: NDArray[Any]) -> NDArray[np.void]:
    """Rows as one key each, ``(n,)``, which NumPy sorts much faster than rows of numbers.

    Args:
        rows: ``(n, columns)``, with at least one column.
    """
    plain = np.ascontiguousarray(rows)
    keys: NDArray[np.void] = plain.view(np.dtype((np.void, plain.itemsize * plain.shape[1])))
    return keys.ravel()


def digests(rows: Floats) -> Ints:
    """A hash of each row's numbers, ``(rows,)``, the same in every process."""
    found: Ints = _digests(np.ascontiguousarray(rows, np.float64).view(np.int64))
    return found


@njit(cache=True)
def _digests(rows: Ints) -> Ints:
    found = np.ones(len(rows), np.int64)
    for row in range(len(rows)):
        for column in range(rows.shape[1]):
            found[row] = mix(found[row], rows[row, column])
    return found


@njit(cache=True)
def joined_digests(each: Ints, owner: Ints, count: int) -> Ints:
    """A hash of each owner's digests, in order, ``(count,)``.

    Args:
        each: of :func:`digests`.
        owner: of each, from 0.
        count: owners.
    """
    found = np.ones(count, np.int64)
    for at in range(len(each)):
        found[owner[at]] = mix(found[owner[at]], each[at])
    return found


class Numbering:
    """Numbers keys from 0 in the order of their first appearance.

    Args:
        room: keys to start with, a power of two.

    Attributes:
        count: different keys seen.
    """

    def __init__(self, room: int = _ROOM // 2) -> None:
        self.count = 0
        self._table = np.zeros((2 * room, 2), np.int64)

    def of(self, keys: Ints) -> Ints:
        """The numbers of keys, ``(keys,)``."""
        found = np.empty(len(keys), np.int64)
        done = 0
        while True:
            done, self.count = _find(keys, done, self._table, self.count, found)
            if done == len(keys):
                return found
            self._grow()

    def of_pairs(self, first: Ints, second: Ints) -> Ints:
        """The numbers of pairs of numbers from 0 and below ``2**31``."""
        return self.of(_pairs(first, second))

    def _grow(self) -> None:
        before, self._table = self._table, np.zeros((4 * len(self._table), 2), np.int64)
        _place(before, self._table)


class RowNumbering:
    """Numbers rows of whole numbers from 0 in the order of their first appearance.

    Args:
        columns: how many.

    Attributes:
        count: different rows seen.
    """

    def __init__(self, columns: int) -> None:
        self.count = 0
        self._rows = np.zeros((_ROOM // 2, columns), np.int64)
        self._numbers = np.full(_ROOM, -1, np.int64)

    def of(self, rows: Ints) -> Ints:
        """The numbers of rows, ``(rows,)``."""
        own, found = np.ascontiguousarray(rows, np.int64), np.empty(len(rows), np.int64)
        done = 0
        while True:
            done, self.count = _find_rows(own, done, self._rows, self._numbers, self.count, found)
            if done == len(own):
                return found
            self._grow()

    def _grow(self) -> None:
        known = self._rows[: self.count]
        room = 4 * len(self._numbers)
        self._rows = np.zeros((room // 2, known.shape[1]), np.int64)
        self._numbers = np.full(room, -1, np.int64)
        _find_rows(known, 0, self._rows, self._numbers, 0, np.empty(len(known), np.int64))


def firsts(numbers: Ints, known: int, count: int) -> Ints:
    """Where numbers from ``known`` on appear first, in their order.

    Args:
        numbers: each from ``known`` and below ``count`` among them.
        known: of numbers that are looked for, the first.
        count: what numbers are below.
    """
    if count == known:
        return _NOWHERE
    found: Ints = _firsts(numbers, known, count - known)
    return found


def present(numbers: Ints) -> list[int]:
    """Which small numbers from 0 on there are, ascending."""
    found: list[int] = np.flatnonzero(np.bincount(numbers)).tolist()
    return found


@njit(cache=True)
def mark(numbers: Ints, marks: Flags) -> Ints:
    """Mark numbers, and say which had no mark, each once."""
    found, count = np.empty(len(numbers), np.int64), 0
    for number in numbers:
        if not marks[number]:
            marks[number] = True
            found[count] = number
            count += 1
    return found[:count]


@njit(cache=True)
def _firsts(numbers: Ints, known: int, count: int) -> Ints:
    found = np.full(count, -1, np.int64)
    for at in range(len(numbers)):
        new = numbers[at] - known
        if new >= 0 and found[new] < 0:
            found[new] = at
    return found[found >= 0]


@njit(cache=True)
def _pairs(first: Ints, second: Ints) -> Ints:
    found = np.empty(len(first), np.int64)
    for at in range(len(first)):
        found[at] = first[at] << _HALF | second[at]
    return found


@njit(cache=True)
def _slot(key: int, room: int) -> int:
    """Where a key is looked for first: the upper bits of a product (Knuth's multiplier)."""
    mixed = (key ^ (key >> 32)) * 6364136223846793005
    return ((mixed ^ (mixed >> 29)) & 0x7FFFFFFFFFFFFFFF) & (room - 1)


@njit(cache=True)
def _find(keys: Ints, start: int, table: Ints, count: int, found: Ints) -> tuple[int, int]:
    """Number keys from ``start`` on while half of the room is free: where it ended, and the count.

    Rows of ``table`` are a key and its number from 1, 0 where there is none; ``found`` takes the
    numbers.
    """
    room = len(table)
    for index in range(start, len(keys)):
        key = keys[index]
        slot = _slot(key, room)
        while table[slot, 1] and table[slot, 0] != key:
            slot = (slot + 1) & (room - 1)
        if not table[slot, 1]:
            if 2 * count >= room:
                return index, count
            count += 1
            table[slot, 0], table[slot, 1] = key, count
        found[index] = table[slot, 1] - 1
    return len(keys), count


@njit(cache=True)
def _find_rows(
    rows: Ints, start: int, stored: Ints, numbers: Ints, count: int, found: Ints
) -> tuple[int, int]:
    """:func:`_find` of rows; ``stored`` has those that have numbers, in their order."""
    room, columns = len(numbers), rows.shape[1]
    for index in range(start, len(rows)):
        state = 1
        for column in range(columns):
            state = mix(state, rows[index, column])
        slot = _slot(state, room)
        while numbers[slot] >= 0:
            other, same = numbers[slot], True
            for column in range(columns):
                same &= stored[other, column] == rows[index, column]
            if same:
                break
            slot = (slot + 1) & (room - 1)
        if numbers[slot] < 0:
            if count == len(stored):
                return index, count
            stored[count], numbers[slot] = rows[index], count
            count += 1
        found[index] = numbers[slot]
    return len(rows), count


@njit(cache=True)
def _place(before: Ints, table: Ints) -> None:
    """Put the rows of one table into an empty one."""
    room = len(table)
    for row in before:
        if row[1]:
            slot = _slot(row[0], room)
            while table[slot, 1]:
                slot = (slot + 1) & (room - 1)
            table[slot] = row
