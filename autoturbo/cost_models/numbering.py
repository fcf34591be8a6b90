"""Numbers for whole-number keys, millions a second: what makes candidates share what they share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.stores import mix
from autoturbo.schedule.work import Floats

_ROOM = 1 << 10

_HALF = 31
"""Bits of each half of a pair."""


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

    Attributes:
        count: different keys seen.
    """

    def __init__(self) -> None:
        self.count = 0
        self._keys = np.zeros(_ROOM, np.int64)
        self._numbers = np.full(_ROOM, -1, np.int64)

    def of(self, keys: Ints) -> Ints:
        """The numbers of keys, ``(keys,)``."""
        found = np.empty(len(keys), np.int64)
        done = 0
        while True:
            done, self.count = _find(keys, done, self._keys, self._numbers, self.count, found)
            if done == len(keys):
                return found
            self._grow()

    def of_pairs(self, first: Ints, second: Ints) -> Ints:
        """The numbers of pairs of numbers from 0 and below ``2**31``."""
        return self.of(first << _HALF | second)

    def _grow(self) -> None:
        there = self._numbers >= 0
        keys, numbers = self._keys[there], self._numbers[there]
        room = 4 * len(self._keys)
        self._keys, self._numbers = np.zeros(room, np.int64), np.full(room, -1, np.int64)
        _place(keys, numbers, self._keys, self._numbers)


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


def firsts(numbers: Ints, known: int) -> Ints:
    """Where numbers from ``known`` on appear first, in their order."""
    last = int(numbers.max(initial=-1))
    if last < known:
        return np.zeros(0, np.int64)
    found: Ints = _firsts(numbers, known, last + 1 - known)
    return found


@njit(cache=True)
def _firsts(numbers: Ints, known: int, count: int) -> Ints:
    found = np.full(count, -1, np.int64)
    for at in range(len(numbers)):
        new = numbers[at] - known
        if new >= 0 and found[new] < 0:
            found[new] = at
    return found[found >= 0]


@njit(cache=True)
def _slot(key: int, room: int) -> int:
    """Where a key is looked for first: the upper bits of a product (Knuth's multiplier)."""
    mixed = (key ^ (key >> 32)) * 6364136223846793005
    return ((mixed ^ (mixed >> 29)) & 0x7FFFFFFFFFFFFFFF) & (room - 1)


@njit(cache=True)
def _find(
    keys: Ints, start: int, stored: Ints, numbers: Ints, count: int, found: Ints
) -> tuple[int, int]:
    """Number keys from ``start`` on while half of the room is free: where it ended, and the count.

    ``found`` takes the numbers.
    """
    room = len(stored)
    for index in range(start, len(keys)):
        key = keys[index]
        slot = _slot(key, room)
        while numbers[slot] >= 0 and stored[slot] != key:
            slot = (slot + 1) & (room - 1)
        if numbers[slot] < 0:
            if 2 * count >= room:
                return index, count
            stored[slot], numbers[slot] = key, count
            count += 1
        found[index] = numbers[slot]
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
def _place(keys: Ints, known: Ints, stored: Ints, numbers: Ints) -> None:
    """Put keys and their numbers into an empty table."""
    room = len(stored)
    for index in range(len(keys)):
        slot = _slot(keys[index], room)
        while numbers[slot] >= 0:
            slot = (slot + 1) & (room - 1)
        stored[slot], numbers[slot] = keys[index], known[index]
