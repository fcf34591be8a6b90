"""Tuned latency over a grid of targets: the points, the Pareto front, tables and files of them."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoturbo.hardware.grid import Axis, Value
from autoturbo.report.tables import table
from autoturbo.report.units import duration, percent, ratio, size
from autoturbo.simulate.measurement import Measurement

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = (
    "latency_s", "default_s", "throughput_per_s", "lower_bound_s", "bound_fraction",
    "matrix_utilization", "ddr_bytes", "gb_bytes", "peak_lb_bytes", "peak_gb_bytes", "kernels",
    "energy_j",
)  # fmt: skip
"""Figures of a point in a file, after its values."""


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One target of the grid.

    Attributes:
        values: per axis.
        target: name of it.
        run: id of the run that tuned it, for ``show``, ``explain`` and the like.
        trials: that were made.
        best: what the tuned schedule measures; None where nothing fits.
        default: latency of the published heuristic in seconds; None where it does not fit.
        failure: why there is no schedule.
    """

    values: tuple[Value, ...]
    target: str
    run: str | None
    trials: int
    best: Measurement | None
    default: float | None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Sweep:
    """A grid of targets, tuned.

    Attributes:
        model: its name.
        target: name of what was varied.
        dtype: the compute type.
        axes: what was varied.
        points: in the order of the grid, the last axis fastest.
        known: points that had been tuned before.
    """

    model: str
    target: str
    dtype: str
    axes: tuple[Axis, ...]
    points: tuple[SweepPoint, ...]
    known: int = 0

    @property
    def front(self) -> tuple[SweepPoint, ...]:
        """Points that no other is at least as good as in every varied field and in latency.

        A field is better the less of it there is, but for delays and energies, where more is what
        a cheaper target has; fields that are no numbers have to be the same to be as good.
        """
        measured = [point for point in self.points if point.best is not None]
        return tuple(one for one in measured if not any(self._beats(two, one) for two in measured))

    def _beats(self, one: SweepPoint, other: SweepPoint) -> bool:
        """Whether a point is at least as good in everything, and not the same."""
        if one is other or one.best is None or other.best is None:
            return False
        cheap = all(
            axis.cost(a) <= axis.cost(b) if axis.is_numeric else a == b
            for axis, a, b in zip(self.axes, one.values, other.values, strict=True)
        )
        return cheap and one.best.latency <= other.best.latency

    def as_json(self) -> dict[str, Any]:
        """The object of ``sweep --json`` (docs/sweep.md)."""
        front = set(map(id, self.front))
        return {
            "model": self.model,
            "target": self.target,
            "dtype": self.dtype,
            "vary": {axis.path: list(axis.values) for axis in self.axes},
            "known": self.known,
            "points": [
                {
                    "values": self._named(point),
                    "target": point.target,
                    "run": point.run,
                    "trials": point.trials,
                    "default_s": point.default,
                    "best": None if point.best is None else point.best.as_json(),
                    "front": id(point) in front,
                    "failure": point.failure,
                }
                for point in self.points
            ],
        }

    def csv(self) -> str:
        """One line a point, with a header: values, figures, whether on the front, run."""
        text, front = io.StringIO(), set(map(id, self.front))
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*(a.path for a in self.axes), *COLUMNS, "trials", "front", "run"])
        for point in self.points:
            known = {} if point.best is None else point.best.as_json()
            figures = {**known, "default_s": point.default}
            row = ["" if figures.get(n) is None else figures[n] for n in COLUMNS]
            writer.writerow([*point.values, *row, point.trials, int(id(point) in front), point.run])
        return text.getvalue()

    def _named(self, point: SweepPoint) -> dict[str, Value]:
        return {axis.path: value for axis, value in zip(self.axes, point.values, strict=True)}


def points_table(sweep: Sweep) -> Table:
    """One row a point; points of the front are marked."""
    front = set(map(id, sweep.front))
    headers = (
        *(axis.short for axis in sweep.axes), "latency", "gain", "of bound", "DDR", "front",
    )  # fmt: skip
    rows = (_row(point, on_front=id(point) in front) for point in sweep.points)
    return table(headers, rows, words=0, close=True)


def _row(point: SweepPoint, *, on_front: bool) -> tuple[str, ...]:
    values = tuple(shown(value) for value in point.values)
    best = point.best
    if best is None:
        return (*values, "does not fit", "-", "-", "-", "")
    return (
        *values,
        duration(best.latency),
        "-" if point.default is None else ratio(point.default / best.latency),
        percent(best.bound_fraction),
        size(best.ddr_bytes),
        "*" if on_front else "",
    )


def shown(value: Value) -> str:
    """A value as a file would hold it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, int | float) else value


__all__ = ["COLUMNS", "Sweep", "SweepPoint", "points_table", "shown"]
