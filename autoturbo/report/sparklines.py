"""The course of a run by its latencies alone: counts, the best so far, and small drawings of both.

No schedule is built and nothing is simulated, so that a page of a hundred runs takes a moment, and
one of a run that goes on can be made twice a second. Drawings are paths of SVG in a box of fixed
size, which the page stretches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from autoturbo.report.filling import evenly

SPARK: Final = (100.0, 24.0)
"""Width and height of a sparkline's box."""

CURVE: Final = (1000.0, 240.0)
"""Width and height of a curve's box."""

MOST_DOTS: Final = 500
"""Trials that a curve draws; of more, an even share."""

_EDGE: Final = 1.5
"""Times the first latency, or the heuristic's, at which the axis of a curve ends."""

_TICK: Final = 10.0
"""Height of the mark of a failed trial."""

_FLAT: Final = 0.02
"""Share of the latency that an axis shows at the least."""


@dataclass(frozen=True, slots=True)
class Course:
    """The latencies of a run's trials.

    Attributes:
        trials: Number and seconds of each, by number; None for one that failed.
        steps: Number and seconds of the trials that were better than all before, but for those
            whose schedules failed a check.
    """

    trials: tuple[tuple[int, float | None], ...] = ()
    steps: tuple[tuple[int, float], ...] = ()

    @staticmethod
    def of(trials: Sequence[tuple[int, float | None]], refused: Iterable[int] = ()) -> Course:
        """Return the course of trials, of which some were refused."""
        steps: list[tuple[int, float]] = []
        left_out = set(refused)
        for number, latency in trials:
            if latency is None or number in left_out:
                continue
            if not steps or latency < steps[-1][1]:
                steps.append((number, latency))
        return Course(tuple(trials), tuple(steps))

    @property
    def failed(self) -> int:
        """Return how many trials failed."""
        return sum(latency is None for _, latency in self.trials)

    @property
    def measured(self) -> int:
        """Return how many trials have a latency."""
        return len(self.trials) - self.failed

    @property
    def spark(self) -> str:
        """Return a small path of the best so far, in shares of the first; zero is at the bottom."""
        if not self.steps:
            return ""
        width, height = SPARK
        first = self.steps[0][1]
        end = max(1, self.trials[-1][0])
        places = [(width * n / end, 1 + (height - 2) * (1 - s / first)) for n, s in self.steps]
        return _stairs(places, width)

    def curve(self, base: float | None = None, end: int = 0) -> Curve | None:
        """Return a drawing of all trials and the best so far; None where nothing was measured.

        Args:
            base: Seconds of the heuristic; None where they are not known.
            end: Trials that are asked for: the axis ends there at the earliest.
        """
        if not self.steps:
            return None
        scale = _Scale.of(self, base, end)
        measured = [(n, s) for n, s in self.trials if s is not None]
        dots = (measured[at] for at in evenly(len(measured), MOST_DOTS))
        failed = [n for n, s in self.trials if s is None]
        marks = (failed[at] for at in evenly(len(failed), MOST_DOTS))
        return Curve(
            line=_stairs([(scale.x(n), scale.y(s)) for n, s in self.steps],
                         scale.x(self.trials[-1][0])),
            dots="".join(f"M{scale.x(n):.1f} {scale.y(s):.1f}h0" for n, s in dots),
            failed="".join(f"M{scale.x(n):.1f} {CURVE[1]:.1f}v-{_TICK}" for n in marks),
            base="" if base is None else f"M0 {scale.y(base):.1f}H{CURVE[0]:.0f}",
            low=scale.low, high=scale.high, end=scale.end,
            beyond=sum(s > scale.high for _, s in measured), drawn=min(len(measured), MOST_DOTS),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Curve:
    """A drawing of a run's trials.

    Attributes:
        line: Path of the best so far.
        dots: Path of a dot per trial.
        failed: Path of a mark per failed trial.
        base: Path of the heuristic's latency; empty where that is not known.
        low: Seconds at the lower edge.
        high: Seconds at the upper edge.
        end: Trial at the right edge.
        beyond: Trials that are slower than the upper edge, and drawn there.
        drawn: Measured trials that are drawn.
    """

    line: str
    dots: str
    failed: str
    base: str
    low: float
    high: float
    end: int
    beyond: int
    drawn: int


@dataclass(frozen=True, slots=True)
class _Scale:
    """The axes of a curve: what is at its edges."""

    low: float
    high: float
    end: int

    @staticmethod
    def of(course: Course, base: float | None, end: int) -> _Scale:
        """Return axes on which the best so far and the heuristic stand, and most trials."""
        best = course.steps[-1][1]
        slow = max(course.steps[0][1], base or 0.0)
        worst = max(s for _, s in course.trials if s is not None)
        # one very slow trial must not press all others to the bottom
        high = max(min(worst, _EDGE * slow), slow, best * (1 + _FLAT))
        margin = 0.05 * (high - best)
        return _Scale(best - margin, high + margin, max(1, end - 1, course.trials[-1][0]))

    def x(self, number: int) -> float:
        """Return where a trial stands."""
        return CURVE[0] * number / self.end

    def y(self, seconds: float) -> float:
        """Return where a latency stands, no higher than the edge."""
        share = (self.high - seconds) / (self.high - self.low)
        return CURVE[1] * min(max(share, 0.0), 1.0)


def _stairs(places: Sequence[tuple[float, float]], end: float) -> str:
    """Return a path that goes on level from each place to the next, and to the end."""
    (x, y), *rest = places
    return f"M{x:.1f} {y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in rest) + f"H{end:.1f}"
