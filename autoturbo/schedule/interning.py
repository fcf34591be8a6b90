"""Numbers for rows of whole numbers, millions a second, so that equal rows are computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.stores import Store, mix
from autoturbo.schedule.work import Floats

_ROOM = 1 << 10
"""Slots of the hash table to begin with, a power of two; half of them are used at most."""


class Interner:
    """Numbers rows of whole numbers from 0 in the order of their first appearance.

    Args:
        columns: how many.

    Attributes:
        count: different rows seen.
    """

    def __init__(self, columns: int) -> None:
        self.count = 0
        self._rows = np.zeros((_ROOM // 2, columns), np.int64)
        self._slots = np.full(_ROOM, -1, np.int64)

    def of(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the number of each row, and where rows that were not seen before are first."""
        own, numbers = np.ascontiguousarray(rows, np.int64), np.empty(len(rows), np.int64)
        done, before = 0, self.count
        new = np.empty(len(rows), np.int64)
        while True:
            done, self.count = _intern(
                own, done, self._rows, self._slots, self.count, numbers, new, before
            )
            if done == len(own):
                return numbers, new[: self.count - before]
            self._grow()

    def _grow(self) -> None:
        known, room = self._rows[: self.count], 4 * len(self._slots)
        self._rows = np.zeros((room // 2, known.shape[1]), np.int64)
        self._slots = np.full(room, -1, np.int64)
        none = np.empty(len(known), np.int64)
        _intern(known, 0, self._rows, self._slots, 0, none, none.copy(), 0)


class Memo:
    """Values of whole-number keys, computed once for each different key.

    Args:
        columns: of a key.
        shape: of a key's value.
        dtype: of the values.
    """

    def __init__(
        self, columns: int, shape: tuple[int, ...] = (), dtype: type[Any] = np.int64
    ) -> None:
        self._interner, self._values = Interner(columns), Store(shape, dtype)

    def numbers(self, keys: Ints, make: Callable[[Ints], NDArray[Any]]) -> Ints:
        """Return the number of each key, ``(keys,)``.

        Args:
            keys: one row each.
            make: returns the values of new keys, given where among the keys they are.
        """
        numbers, new = self._interner.of(keys)
        if len(new):
            self._values.add(make(new))
        return numbers

    def of(self, keys: Ints, make: Callable[[Ints], NDArray[Any]]) -> NDArray[Any]:
        """Return the value of each key; the arguments are those of :meth:`numbers`."""
        numbers = self.numbers(keys, make)
        return self._values.rows[numbers]

    @property
    def values(self) -> NDArray[Any]:
        """Values by number."""
        return self._values.rows

    @property
    def count(self) -> int:
        """How many different keys were seen."""
        return self._interner.count


def whole_numbers(rows: Floats) -> Ints:
    """Return the bits of floating-point numbers as whole numbers, for keys."""
    found: Ints = np.ascontiguousarray(rows, np.float64).view(np.int64)
    return found


def row_bytes(rows: NDArray[Any]) -> NDArray[np.void]:
    """Return rows as one key each, ``(n,)``: NumPy sorts keys much faster than rows of numbers.

    Args:
        rows: ``(n, columns)``, with at least one column.
    """
    plain = np.ascontiguousarray(rows)
    keys: NDArray[np.void] = plain.view(np.dtype((np.void, plain.itemsize * plain.shape[1])))
    return keys.ravel()


@njit(cache=True)
def digests(rows: Ints) -> Ints:
    """Return a hash of each row, ``(rows,)``, the same in every process."""
    found = np.ones(len(rows), np.int64)
    for row in range(len(rows)):
        for column in range(rows.shape[1]):
            found[row] = mix(found[row], rows[row, column])
    return found


@njit(cache=True)
def _intern(
    rows: Ints,
    start: int,
    stored: Ints,
    slots: Ints,
    count: int,
    numbers: Ints,
    new: Ints,
    before: int,
) -> tuple[int, int]:
    """Number rows from ``start`` on while half of the slots are free.

    Returns:
        Where it ended, and how many different rows are stored by then.
    """
    mask, columns = len(slots) - 1, rows.shape[1]
    for at in range(start, len(rows)):
        state = 1
        for column in range(columns):
            state = mix(state, rows[at, column])
        slot = mix(state, state >> 32) & mask
        while slots[slot] >= 0:
            other, same = slots[slot], True
            for column in range(columns):
                same &= stored[other, column] == rows[at, column]
            if same:
                break
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            if count == len(stored):
                return at, count
            stored[count], slots[slot] = rows[at], count
            new[count - before] = at
            count += 1
        numbers[at] = slots[slot]
    return len(rows), count
