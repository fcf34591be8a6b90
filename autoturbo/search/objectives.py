"""The objectives of a search, and its stopping rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from autoturbo.errors import UsageError, did_you_mean
from autoturbo.simulator.measurement import Measurement, Outcome


@dataclass(frozen=True, slots=True)
class Objective:
    """A figure of a measurement to minimise or maximise.

    Attributes:
        name: On the command line.
        direction: Which way is better.
        value: The figure, in SI units; None where the target or the measurer does not give it.
    """

    name: str
    direction: Literal["minimize", "maximize"]
    value: Callable[[Measurement], float | None]

    def score(self, outcome: Outcome) -> float | None:
        """Return the figure so that lower is better; None for a failure."""
        value = self.value(outcome) if isinstance(outcome, Measurement) else None
        if value is None:
            return None
        return value if self.direction == "minimize" else -value


OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("latency", "minimize", lambda m: m.latency),
        Objective("throughput", "maximize", lambda m: m.throughput or 1 / m.latency),
        Objective("energy", "minimize", lambda m: m.energy),
        Objective("ddr-bytes", "minimize", lambda m: float(m.ddr_bytes) or None),
    )
}
"""Every objective by name."""

OF_KERNELS = ("latency", "throughput")
"""Objectives that a sum of kernel times predicts."""

REPORTED = {"energy": "energy", "ddr-bytes": "bytes"}
"""What a measurer has to report for the others (:data:`autoturbo.simulator.measurers.REPORTS`)."""


def figures(objectives: Iterable[Objective], outcome: Outcome) -> tuple[float, ...]:
    """Return an outcome's scores, lower is better; infinite where there is none."""
    scores = (objective.score(outcome) for objective in objectives)
    return tuple(float("inf") if score is None else score for score in scores)


def find_objectives(names: str | Sequence[str]) -> tuple[Objective, ...]:
    """Return objectives by name, one or several (``"latency,energy"`` or a sequence).

    Raises:
        UsageError: None, one that is not known, or the same twice.
    """
    parts = names.split(",") if isinstance(names, str) else list(names)
    objectives = tuple(_find(part.strip()) for part in parts)
    if len({o.name for o in objectives}) < len(objectives) or not objectives:
        raise UsageError("objectives must be given, each once", hint=f"one of {_known()}")
    return objectives


def _find(name: str) -> Objective:
    if name not in OBJECTIVES:
        hint = did_you_mean(name, OBJECTIVES)
        raise UsageError(f"no objective is called {name!r}", hint=hint)
    return OBJECTIVES[name]


def _known() -> str:
    return ", ".join(OBJECTIVES)


def pareto(scores: Sequence[Sequence[float]]) -> list[int]:
    """Return the indices of the Pareto front, of equal scores the first."""
    kept: list[int] = []
    for index, mine in enumerate(scores):
        beaten = any(
            all(o <= m for o, m in zip(other, mine, strict=True))
            and (any(o < m for o, m in zip(other, mine, strict=True)) or position < index)
            for position, other in enumerate(scores)
            if position != index
        )
        if not beaten:
            kept.append(index)
    return kept


# Why a search stops.
#
# What the rules look at follows from the trials, but for the time: the same seed stops at the same
# trial, on any number of workers and after any number of resumptions.


class Stop(StrEnum):
    """The reason why a search stopped."""

    TRIALS = "trials"
    """All trials that were asked for are made."""
    TIME = "time"
    """Its time is up."""
    SPACE = "space"
    """Every candidate of the space is tried."""
    NO_PROGRESS = "no-progress"
    """Nothing better was found for a while."""
    BOUND = "bound"
    """The best is near enough to the lower bound."""
    HOPELESS = "hopeless"
    """The measurer fails on everything."""
    INTERRUPTED = "interrupted"
    """Ctrl-C."""


@dataclass(eq=False)
class EarlyStopping:
    """A count of the trials since the last improvement.

    With several objectives a trial is better that none before it equals or beats in all of them.

    Attributes:
        length: Trials since then.
        noise: Relative difference below which a score is no better.
    """

    length: int = 0
    noise: float = 0.0
    _front: list[tuple[float, ...]] = field(default_factory=list)

    def enter(self, scores: Sequence[float] | None) -> None:
        """Count a trial.

        Args:
            scores: One per objective, lower is better; None for a trial that failed.
        """
        new = None if scores is None else tuple(scores)
        worse = new and tuple(score + self.noise * abs(score) for score in new)
        if new is None or worse is None or any(_covers(old, worse) for old in self._front):
            self.length += 1
            return
        self._front = [*(old for old in self._front if not _covers(new, old)), new]
        self.length = 0


@dataclass(eq=False)
class OutcomeIntervals:
    """Seconds between outcomes of one round, without the time between rounds.

    Attributes:
        seconds: From one outcome to the next, in the middle; of the last round where this one has
            too few, 0 before that: the first one may have had to compile.
        first: Seconds that the first outcome of this round has taken.
    """

    seconds: float = 0.0
    first: float = 0.0
    _began: float = 0.0
    _count: int = 0

    def begin(self, now: float) -> None:
        """Begin a round."""
        self._began, self._count = now, 0

    def note(self, now: float) -> None:
        """Note that an outcome has come."""
        if not self._count:
            self.first, self._began = now - self._began, now
        else:
            self.seconds = (now - self._began) / self._count
        self._count += 1


def _covers(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Return whether one front member is at least as good as another in every objective."""
    return all(a <= b for a, b in zip(one, other, strict=True))
