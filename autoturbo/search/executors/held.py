"""Evaluators that a worker holds: built once for each pair, the least used one let go."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

HELD = 8
"""Pairs of which a worker keeps the evaluator: models with their memories of kernels, of which the
larger ones take 100 MB. A pair that comes back after eight others is built anew."""

Value = TypeVar("Value")


class Held(Generic[Value]):
    """The values of the pairs that were asked for last.

    The tuner keeps one of these for each of its workers, so that it knows without asking what a
    worker still has: both sides see the same pairs in the same order.

    Args:
        most: values kept.
    """

    def __init__(self, most: int = HELD) -> None:
        self._most = most
        self._values: OrderedDict[str, Value] = OrderedDict()

    def __contains__(self, pair: str) -> bool:
        return pair in self._values

    def get(self, pair: str, make: Callable[[], Value]) -> Value:
        """The value of a pair, made where it is not held."""
        if pair in self._values:
            self._values.move_to_end(pair)
        else:
            while len(self._values) >= self._most:
                self._values.popitem(last=False)
            self._values[pair] = make()
        return self._values[pair]

    def lacks(self, pair: str) -> bool:
        """Whether a pair is new, which it is not from now on."""
        new = pair not in self._values
        self.get(pair, lambda: None)  # type: ignore[arg-type, return-value]
        return new
