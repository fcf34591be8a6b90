"""Two schedules side by side, on one axis of time, as one HTML file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoturbo.report.facts import Measured
from autoturbo.report.page import drawn
from autoturbo.report.timeline import end_of_all, engine_charts, kernel_rows
from autoturbo.report.units import duration, ratio


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """One of two schedules that are laid side by side.

    Attributes:
        name: Name of the schedule, with its model, batch, target and type.
        model: Name of its model.
        measured: The schedule, built and measured again.
        how: How its figures are known: ``"simulated"``, or ``"measured by"`` what.
    """

    name: str
    model: str
    measured: Measured
    how: str

    @property
    def kernels(self) -> list[tuple[str, int, float, float]]:
        """Return its kernels as they begin: name, cluster, first and last second."""
        return kernel_rows(self.measured.schedule, self.measured.kernels)

    @property
    def end(self) -> float:
        """Return when its last pass ends, in seconds."""
        return end_of_all(self.measured) / 1e6


def difference(
    first: Compared,
    second: Compared,
    unlike: Sequence[str],
    figures: Iterable[Sequence[str]],
    knobs: Mapping[str, Sequence[Any]],
) -> str:
    """Return two schedules side by side, on one axis of time, as one HTML document.

    Args:
        first: Schedule A.
        second: Schedule B.
        unlike: What makes the comparison doubtful: ``"model"``, ``"batch"``, ...
        figures: Rows of a title, A's figure, B's figure, and the second over the first.
        knobs: Values of A and of B of the knobs that differ, by name.

    Raises:
        UsageError: the plotting library is not installed.
    """
    sides = {"A": first, "B": second}
    end = max(end_of_all(side.measured) for side in sides.values())
    charts = {
        name.replace("timeline", f"timeline-{letter}"): chart
        for letter, side in sides.items()
        for name, chart in engine_charts(side.measured, end, whole=True).items()
    }
    shown = {
        "sides": sides, "models": [side.model for side in sides.values()], "charts": charts,
        "answer": _faster(sides), "unlike": unlike, "figures_of_both": list(figures),
        "knobs": knobs,
    }  # fmt: skip
    return drawn("diff.html", shown)


def _faster(sides: Mapping[str, Compared]) -> str:
    """Return which of two schedules is how many times as fast, in a sentence."""
    seconds = {letter: side.measured.measurement.latency for letter, side in sides.items()}
    slow, fast = sorted(sides, key=lambda letter: -seconds[letter])
    took = " and ".join(f"{letter} takes {duration(seconds[letter])}" for letter in sides)
    known = " and ".join(dict.fromkeys(side.how for side in sides.values()))
    if seconds[slow] == seconds[fast]:
        return f"{took}: neither is faster ({known})."
    return (
        f"{took}: {fast} is {ratio(seconds[slow] / seconds[fast])} as fast as {slow} and saves"
        f" {duration(seconds[slow] - seconds[fast])} ({known})."
    )
