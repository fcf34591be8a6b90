"""Why a search stops.

What the rules look at follows from the trials, but for the time: the same seed stops at the same
trial, on any number of workers and after any number of resumptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


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
