"""Why a search stops.

What the rules look at follows from the trials, but for the time: the same seed stops at the same
trial, on any number of workers and after any number of resumptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Stop(StrEnum):
    """Why a search stopped."""

    TRIALS = "trials"
    """All trials that were asked for are made."""
    TIME = "time"
    """Its time is up."""
    SPACE = "space"
    """Every setting of the space is tried."""
    NO_PROGRESS = "no-progress"
    """Nothing better was found for a while."""
    BOUND = "bound"
    """The best is near enough to the lower bound."""
    HOPELESS = "hopeless"
    """The measurer fails on everything."""
    INTERRUPTED = "interrupted"
    """Ctrl-C."""


@dataclass(eq=False)
class Drought:
    """Counts trials since the last one that was better than all before it.

    With several objectives a trial is better that none before it equals or beats in all of them.

    Attributes:
        length: trials since then.
    """

    length: int = 0
    _front: list[tuple[float, ...]] = field(default_factory=list)

    def enter(self, scores: Sequence[float] | None) -> None:
        """Take note of a trial.

        Args:
            scores: one per objective, lower is better; None for a trial that failed.
        """
        new = None if scores is None else tuple(scores)
        if new is None or any(_covers(old, new) for old in self._front):
            self.length += 1
            return
        self._front = [*(old for old in self._front if not _covers(new, old)), new]
        self.length = 0


@dataclass(eq=False)
class Gaps:
    """Seconds between outcomes of one round: what comes between rounds is no measuring.

    Attributes:
        seconds: from one outcome to the next, in the middle; of the last round where this one has
            too few, 0 before that: the first one may have had to compile.
        first: seconds that the first outcome of this round has taken.
    """

    seconds: float = 0.0
    first: float = 0.0
    _began: float = 0.0
    _count: int = 0

    def begin(self, now: float) -> None:
        """A round begins."""
        self._began, self._count = now, 0

    def note(self, now: float) -> None:
        """An outcome has come."""
        if not self._count:
            self.first, self._began = now - self._began, now
        else:
            self.seconds = (now - self._began) / self._count
        self._count += 1


def _covers(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether one is at least as good in everything."""
    return all(a <= b for a, b in zip(one, other, strict=True))
