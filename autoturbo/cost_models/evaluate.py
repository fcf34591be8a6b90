"""Accuracy on models and targets that were held out whole, as searches meet them.

Every model, or target, is left out in turn; what is learned from the others ranks its pools. A
pool has the measured settings of one model at one batch size on one target. Figures are means over
pools.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from autoturbo.cost_models.methods import METHODS
from autoturbo.cost_models.metrics import Scores, scores_of
from autoturbo.cost_models.training import Mask, Table
from autoturbo.errors import UsageError
from autoturbo.schedule.codegen.work import Floats

KINDS: Final = ("model", "target")
"""What is held out whole."""


@dataclass(frozen=True, slots=True)
class Guesses:
    """The best predicted setting of each pool against the default schedule.

    Attributes:
        pools: how many.
        better: where the guess is faster than the default schedule.
        as_good: where it is no slower.
        speedup: geometric mean of the default's latency over the guess's.
    """

    pools: int
    better: int
    as_good: int
    speedup: float

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        return {
            "pools": self.pools, "better": self.better, "as_good": self.as_good,
            "speedup": round(self.speedup, 6),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Result:
    """One method with one kind of group held out.

    Attributes:
        method: its name.
        kind: ``"model"`` or ``"target"``.
        groups: means over the pools of each group held out.
        mean: over all pools.
        guesses: the method's best of each pool.
    """

    method: str
    kind: str
    groups: dict[str, Scores]
    mean: Scores
    guesses: Guesses

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "method": self.method, "held_out": self.kind, "mean": self.mean.as_dict(),
            "first_guess": self.guesses.as_dict(),
            "groups": {name: scores.as_dict() for name, scores in self.groups.items()},
        }  # fmt: skip


def evaluate(table: Table, methods: Sequence[str], kinds: Sequence[str]) -> Iterator[Result]:
    """Results, one per method and kind, as they are known.

    Raises:
        UsageError: the data set has a single group of a kind, so that nothing is left to learn.
    """
    for kind in kinds:
        names = table.groups[kind]
        if len(set(names[table.measured].tolist())) < 2:  # noqa: PLR2004
            message = f"the data set has one {kind}: without it nothing is left to learn from"
            raise UsageError(message, hint=f"collect more, or hold out another kind than {kind}")
        for method in methods:
            yield _result(table, method, kind)


def accuracy(table: Table, method: str) -> dict[str, Any]:
    """What a card says of a method: means and first guesses by kind of group held out.

    Raises:
        UsageError: see :func:`evaluate`.
    """
    return {
        result.kind: {**result.mean.as_dict(), "first_guess": result.guesses.as_dict()}
        for result in evaluate(table, [method], KINDS)
    }


def _result(table: Table, method: str, kind: str) -> Result:
    names = table.groups[kind]
    groups, guesses = {}, []
    everything: list[Scores] = []
    for name in dict.fromkeys(names[table.measured].tolist()):
        held = table.measured & (names == name)
        said = METHODS[method](table, table.measured & ~held)
        found = [scores_of(said[p], table.latency[p]) for p in _pools(table, held)]
        guesses += [_speedup(table, said, p) for p in _pools(table, held)]
        groups[name] = Scores.mean(found)
        everything += found
    gains = np.asarray([g for g in guesses if g is not None])
    first = Guesses(
        len(gains), int((gains > 1).sum()), int((gains >= 1).sum()),
        float(np.exp(np.log(gains).mean())) if len(gains) else 1.0,
    )  # fmt: skip
    return Result(method, kind, groups, Scores.mean(everything), first)


def _pools(table: Table, held: Mask) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """Settings of each pool that has at least two of those held out."""
    numbers = np.unique(table.pool[held])
    found = [np.flatnonzero(held & (table.pool == number)) for number in numbers.tolist()]
    return [own for own in found if len(own) > 1]


def _speedup(table: Table, said: Floats, pool: np.ndarray[Any, np.dtype[np.int64]]) -> float | None:
    """Latency of the default schedule over that of the best predicted; None without a default."""
    default = pool[table.default[pool]]
    if not len(default):
        return None
    guess = pool[said[pool].argmin()]
    return float(table.latency[default[0]] / table.latency[guess])
