"""Arrays that grow at their end, and results in bounded memory."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray


class GrowingArray:
    """Rows of one array, appended in blocks; there is four times the room when it runs out.

    Room that is not used yet takes no memory: the system gives pages when they are touched.

    Args:
        shape: Of one row; ``()`` for numbers.
        dtype: Of the elements.
    """

    def __init__(self, shape: tuple[int, ...] = (), dtype: type[Any] = np.int64) -> None:
        self._rows: NDArray[Any] = np.zeros((256, *shape), dtype)
        self.count = 0

    def add(self, rows: NDArray[Any] | list[Any]) -> int:
        """Append rows and return the index of the first."""
        block = np.asarray(rows, self._rows.dtype).reshape(-1, *self._rows.shape[1:])
        start, self.count = self.count, self.count + len(block)
        if self.count > len(self._rows):
            old, room = self._rows, max(self.count, 4 * len(self._rows))
            self._rows = np.zeros((room, *old.shape[1:]), old.dtype)
            self._rows[:start] = old[:start]
        self._rows[start : self.count] = block
        return start

    @property
    def rows(self) -> NDArray[Any]:
        """Return the whole array; rows from :attr:`count` on are not set yet."""
        return self._rows


def row_bytes(rows: NDArray[Any]) -> NDArray[np.void]:
    """Return rows as one key each, ``(n,)``: NumPy sorts keys much faster than rows of numbers.

    Args:
        rows: ``(n, columns)``, with at least one column.
    """
    plain = np.ascontiguousarray(rows)
    keys: NDArray[np.void] = plain.view(np.dtype((np.void, plain.itemsize * plain.shape[1])))
    return keys.ravel()


Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Results by what they follow from; what was not asked for longest is forgotten first.

    Args:
        room: Results to keep at most.
        capacity: Bytes that they may take together, where ``weigh`` is given; the newest is kept
            whatever it takes.
        weigh: Bytes of a result, about.

    Attributes:
        hits: Results that were remembered when they were asked for.
        misses: Results that had to be made.
    """

    def __init__(
        self, room: int, capacity: int = 0, weigh: Callable[[Value], int] | None = None
    ) -> None:
        self._room, self._capacity, self._weigh = room, capacity, weigh
        self._found: dict[Key, tuple[Value, int]] = {}
        self._bytes = self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, key: object) -> bool:
        return key in self._found

    @property
    def size(self) -> int:
        """Return the bytes that the results take, as weighed."""
        return self._bytes

    def forget(self) -> None:
        """Drop all results; hits and misses count on."""
        self._found.clear()
        self._bytes = 0

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the result for a key; make it if it is not cached."""
        found = self._found.pop(key, None)
        if found is None:
            self.misses += 1
            value = make()
            found = value, self._weigh(value) if self._weigh else 0
            self._bytes += found[1]
        else:
            self.hits += 1
        self._found[key] = found
        while len(self._found) > 1 and (
            len(self._found) > self._room or self._bytes > self._capacity
        ):
            self._bytes -= self._found.pop(next(iter(self._found)))[1]
        return found[0]


Owner = TypeVar("Owner")
Arguments = ParamSpec("Arguments")


def remembered(
    room: int,
) -> Callable[
    [Callable[Concatenate[Owner, Arguments], Value]], Callable[Concatenate[Owner, Arguments], Value]
]:
    """Cache a function's results, for each first argument apart and as long as that lives.

    Results must not refer to the first argument, or it would live as long as they do.

    Args:
        room: Results to keep for each at most; where there are more, it begins anew.

    Returns:
        A decorator for such functions.
    """

    def decorate(
        make: Callable[Concatenate[Owner, Arguments], Value],
    ) -> Callable[Concatenate[Owner, Arguments], Value]:
        owners: dict[int, dict[tuple[object, ...], Value]] = {}

        def ask(owner: Owner, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
            known = owners.get(id(owner))
            if known is None:
                known = owners[id(owner)] = {}
                weakref.finalize(owner, owners.pop, id(owner)).atexit = False
            key = (*args, *kwargs.items()) if kwargs else args
            if key not in known:
                value = make(owner, *args, **kwargs)
                if len(known) >= room:
                    known.clear()
                known[key] = value
            return known[key]

        functools.update_wrapper(ask, make)
        return ask

    return decorate
