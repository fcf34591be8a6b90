"""Tuned latency over a grid of targets: points, the Pareto front, tables, files and plots.

Plots are drawn with matplotlib (the extra ``plots``): it writes SVG, PNG and PDF without a browser,
and the same sweep gives the same bytes.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NotRequired

from rich.table import Table

from autoturbo.errors import UsageError
from autoturbo.extras import how_to_install
from autoturbo.hardware.fields import Dtype
from autoturbo.hardware.grid import Axis, Cost, Value
from autoturbo.hardware.target import Target
from autoturbo.report.tables import table
from autoturbo.report.units import duration, gain, percent, plain, traffic
from autoturbo.schema import Duration, Natural, TypedDict
from autoturbo.simulator.measurement import Measurement, MeasurementJson

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
        values: Value on each axis.
        target: Name of the target.
        run: Id of the run that tuned it, for ``show``, ``explain`` and the like.
        trials: Trials that were made, those of neighbours' candidates included.
        best: What the tuned schedule measures; None where nothing fits.
        default: Latency of the published heuristic in seconds; None where it does not fit.
        failure: Why there is no schedule.
        source: Name of the target of the grid whose best candidate it runs; None for its own.
        course: How its own search went; None where nothing fits.
        cost: Cost that the user states; None where none is stated, or the figure is not known.
    """

    values: tuple[Value, ...]
    target: str
    run: str | None
    trials: int
    best: Measurement | None
    default: float | None
    failure: str | None = None
    source: str | None = None
    course: Course | None = None
    cost: float | None = None

    @property
    def figures(self) -> dict[str, Any]:
        """Return the figures of :data:`COLUMNS` that are known, by name."""
        known = {} if self.best is None else dict(self.best.as_json())
        named = {**known, "default_s": self.default}
        return {name: named[name] for name in COLUMNS if named.get(name) is not None}

    def costing(self, cost: Cost, target: Target) -> SweepPoint:
        """Return the same point with what it costs."""
        found = self.figures.get(cost.column) if cost.column else cost.of(target)
        return dataclasses.replace(self, cost=None if found is None else float(found))


@dataclass(frozen=True, slots=True)
class Course:
    """How far a search has converged.

    Attributes:
        idle: Trials since the last that was better than all before.
        late_gain: Share of the latency that the second half of the trials took off.
    """

    idle: int
    late_gain: float

    @staticmethod
    def of(latencies: Sequence[float]) -> Course | None:
        """Return the course of trials in order, infinite where one failed; None if all did."""
        best = min(latencies, default=math.inf)
        if best == math.inf:
            return None
        half = min(latencies[: max(len(latencies) // 2, 1)])
        late_gain = 1.0 if half == math.inf else 1.0 - best / half
        return Course(len(latencies) - 1 - latencies.index(best), late_gain)


_Value = float | str | bool
_From = TypedDict("_From", {"from": str | None})


PointJson = TypedDict("PointJson", {
    "from": str | None, "values": dict[str, _Value], "target": str, "run": str | None,
    "trials": Natural, "cost": float | None, "default_s": Duration | None,
    "best": MeasurementJson | None, "front": bool, "slower_than": str | None, "failure": str | None,
    "idle_trials": Natural | None, "late_gain": float | None,
})  # fmt: skip
"""One target of the grid: what was varied, and what tuning found there."""

SweepJson = TypedDict("SweepJson", {
    "model": str, "target": str, "dtype": Dtype, "vary": dict[str, list[_Value]], "known": Natural,
    "cost": str | None, "points": list[PointJson],
})  # fmt: skip
"""A grid of targets, tuned."""


class SweepLine(SweepJson):
    """Tuned latency over a grid of targets.

    Points that no other beats in latency and in every field that was varied, or in the cost that
    the user states, are in the Pareto front.
    """

    files: list[str]
    notes: NotRequired[list[str]]


@dataclass(frozen=True, slots=True)
class Sweep:
    """A grid of targets, tuned.

    Attributes:
        model: Name of the model.
        target: Name of the target that was varied.
        dtype: The compute type.
        axes: Fields that were varied, with their values.
        points: Points in the order of the grid, the last axis fastest.
        known: Number of points that had been tuned before.
        cost: Cost that the user states; None for none.
    """

    model: str
    target: str
    dtype: str
    axes: tuple[Axis, ...]
    points: tuple[SweepPoint, ...]
    known: int = 0
    cost: Cost | None = None

    @property
    def front(self) -> tuple[SweepPoint, ...]:
        """Return the Pareto front over latency and the stated cost, or else every varied field.

        A field is better the less of it there is, but for delays and energies, where more is what
        a cheaper target has; fields that are no numbers have to be the same to be as good. A point
        of :attr:`faster_lesser` counts as just faster than the lesser target: it could be, and what
        the search missed strikes nothing. Over a cost that is stated, figures count as they are.
        """
        if self.cost is not None:
            priced = [(p, (_ms(p), p.cost)) for p in self._measured if p.cost is not None]
            return tuple(one for one, own in priced if not any(_beats(o, own) for _, o in priced))
        lesser = self.faster_lesser

        def beats(one: SweepPoint, other: SweepPoint) -> bool:
            known = lesser.get(id(other))
            fast = _ms(one) <= _ms(other) if known is None else _ms(one) < _ms(known)
            return fast and self._cheap(one, other)

        known = self._measured
        return tuple(one for one in known if not any(beats(two, one) for two in known))

    @property
    def faster_lesser(self) -> dict[int, SweepPoint]:
        """Return the fastest lesser target, by the id of each point that should not be slower.

        A lesser target has less of fields of which more only helps, and nothing else is different:
        a schedule that is as fast exists, and the search has not found it.
        """
        order, faster = sorted(self._measured, key=_ms), dict[int, SweepPoint]()
        for point in order:
            best = next(one for one in order if one is point or self._less(one, point))
            if _ms(best) < _ms(point):
                faster[id(point)] = best
        return faster

    @property
    def _measured(self) -> tuple[SweepPoint, ...]:
        return tuple(point for point in self.points if point.best is not None)

    def _cheap(self, one: SweepPoint, other: SweepPoint) -> bool:
        """Return whether a target is at least as good in everything, and not the same."""
        return one is not other and all(
            axis.cost(a) <= axis.cost(b) if axis.is_numeric else a == b
            for axis, a, b in zip(self.axes, one.values, other.values, strict=True)
        )

    def _less(self, one: SweepPoint, other: SweepPoint) -> bool:
        """Return whether a target differs from another in less of helpful fields alone."""
        return one is not other and all(
            a == b or (axis.only_helps and axis.only_helps * (float(b) - float(a)) > 0)
            for axis, a, b in zip(self.axes, one.values, other.values, strict=True)
        )

    @property
    def told(self) -> tuple[tuple[SweepPoint, bool, str | None], ...]:
        """Return each point, whether it is in the Pareto front, and a smaller target that wins."""
        front, lesser = set(map(id, self.front)), self.faster_lesser
        return tuple(
            (point, id(point) in front, lesser[id(point)].target if id(point) in lesser else None)
            for point in self.points
        )

    def as_json(self) -> SweepJson:
        """Return the object of ``sweep --json`` (docs/sweep.md)."""
        return {
            "model": self.model,
            "target": self.target,
            "dtype": self.dtype,
            "vary": {axis.path: list(axis.values) for axis in self.axes},
            "known": self.known,
            "cost": None if self.cost is None else str(self.cost),
            "points": [
                {
                    "values": {a.path: v for a, v in zip(self.axes, point.values, strict=True)},
                    "target": point.target,
                    "run": point.run,
                    "trials": point.trials,
                    "cost": point.cost,
                    "default_s": point.default,
                    "best": None if point.best is None else point.best.as_json(),
                    "front": on_front,
                    "from": point.source,
                    "slower_than": slower,
                    "failure": point.failure,
                    "idle_trials": None if point.course is None else point.course.idle,
                    "late_gain": None if point.course is None else point.course.late_gain,
                }
                for point, on_front, slower in self.told
            ],
        }

    def csv(self) -> str:
        """Return one line a point, with a header: values, figures, whether in the front, run."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        priced = () if self.cost is None else ("cost",)
        more = ("trials", "idle_trials", "late_gain", *priced, "front", "slower_than", "run")
        writer.writerow([*(a.path for a in self.axes), *COLUMNS, *more])
        for point, on_front, slower in self.told:
            figures = point.figures
            row = [figures.get(name, "") for name in COLUMNS]
            course = point.course
            converged = ("", "") if course is None else (course.idle, course.late_gain)
            cost = ["" if point.cost is None else point.cost][: len(priced)]
            said = (point.trials, *converged, *cost, int(on_front), slower or "", point.run)
            writer.writerow([*point.values, *row, *said])
        return text.getvalue()


_MARKED = "*: in the Pareto front: no other target"


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return whether latency and cost are nowhere worse, and not both the same."""
    return one != other and one[0] <= other[0] and one[1] <= other[1]


def front_sentences(sweep: Sweep) -> list[str]:
    """Return what the Pareto front is over, and that it says nothing where all points are in it."""
    cost, measured = sweep.cost, [point for point in sweep.points if point.best is not None]
    if cost is None:
        said = [f"{_MARKED} is as good in every varied field and latency"]
    else:
        said = [f"cost: {plain(str(cost))}"]
        said += [f"{_MARKED} is better in cost or latency and worse in neither"]
    missing = sum(point.cost is None for point in measured)
    if cost is not None and missing:
        said.append(
            f"{missing} of {len(measured)} points have no cost: {cost} is not known of them"
        )
    if len(measured) > 1 and len(sweep.front) == len(measured):
        points = f"all {len(measured)} points" + (
            "" if len(measured) == len(sweep.points) else " that fit"
        )
        but = ", but for those marked '?'" if sweep.faster_lesser else ""
        why = (
            f"none that offers less is as fast{but}; --cost says what a unit of a field costs"
            if cost is None
            else "each that costs less is slower"
        )
        said.append(f"{points} are in the Pareto front: {why}")
    return said


def points_table(sweep: Sweep) -> Table:
    """Return a table with one row a point; those of the front and out of order are marked."""
    priced = sweep.cost is not None
    axes = (axis.short.replace(".", ".\n", 1) for axis in sweep.axes)
    headers = (
        *axes,
        *(["cost"] if priced else []),
        "latency",
        "vs\nheuristic",
        "% of\nbound",
        "DDR\ntraffic",
        "late\ngain",
        "idle",
        "Pareto\nfront",
    )
    rows = (
        _row(point, "?" if slower else "*" if on_front else "", priced=priced)
        for point, on_front, slower in sweep.told
    )
    return table(headers, rows, words=0, close=True)


def _row(point: SweepPoint, mark: str, *, priced: bool) -> tuple[str, ...]:
    values = tuple(shown(value) for value in point.values)
    if priced:
        values = (*values, "-" if point.cost is None else f"{point.cost:.4g}")
    best = point.best
    if best is None:
        return (*values, "does not fit", "-", "-", "-", "-", "-", "")
    return (
        *values,
        duration(best.latency),
        gain(best.latency, point.default),
        percent(best.bound_fraction),
        traffic(best),
        *_converged(point),
        mark,
    )


def _converged(point: SweepPoint) -> tuple[str, str]:
    course = point.course
    return ("-", "-") if course is None else (percent(course.late_gain), str(course.idle))


def shown(value: Value) -> str:
    """Return a value as a file would hold it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, int | float) else value


FORMATS = ("svg", "png", "pdf")
"""What can be written, by the end of the file's name."""

SLOWER = "slower than a lesser target"
"""What the picture calls a point of :attr:`Sweep.faster_lesser`."""

_SALT = "autoturbo"  # ids in the SVG follow from it: the same picture is the same file
_SPREAD = 4.0
"""Ratio of the greatest to the least value from which an axis is logarithmic."""


def require_matplotlib() -> None:
    """Say before a long run that its picture cannot be drawn.

    Raises:
        UsageError: Matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        message = "plots need matplotlib, which is not installed"
        raise UsageError(message, hint=how_to_install("plots"))


def plot(sweep: Sweep, form: str = "svg") -> bytes:
    """Return the plot of a sweep as a file's content.

    Args:
        sweep: What is drawn; points that do not fit are left out.
        form: One of :data:`FORMATS`.

    Raises:
        UsageError: Matplotlib is not installed.
    """
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": _SALT, "svg.fonttype": "none"}):
        figure = Figure(figsize=(7.0, 4.5), layout="tight")
        _draw(figure.add_subplot(), sweep)
        out = io.BytesIO()
        figure.savefig(out, format=form, metadata=_METADATA[form])
    return out.getvalue()


_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None},
    "png": {},
    "pdf": {"CreationDate": None},
}


def _draw(axes: Any, sweep: Sweep) -> None:
    first, *others = sweep.axes
    numeric = first.is_numeric
    places = {value: float(value) if numeric else at for at, value in enumerate(first.values)}
    lines: dict[tuple[Value, ...], list[SweepPoint]] = {}
    for point in sweep.points:  # in the order of the first field
        if point.best is not None:
            lines.setdefault(point.values[1:], []).append(point)
    for rest, points in lines.items():
        named = zip(others, rest, strict=True)
        label = plain(", ".join(f"{axis.short} {shown(value)}" for axis, value in named))
        axes.plot(*_at(points, places), marker="o", label=label)
    front = [point for point, on_front, _ in sweep.told if on_front]
    slow = [point for point, _, slower in sweep.told if slower]
    for points, marker, label in ((front, "o", "Pareto front"), (slow, "x", SLOWER)):
        if points:
            axes.plot(
                *_at(points, places), linestyle="", marker=marker, markersize=12,
                markerfacecolor="none", markeredgecolor="black", label=label,
            )  # fmt: skip
    _label_axes(axes, sweep, list(places.values()))


def _at(
    points: Sequence[SweepPoint], places: Mapping[Value, float]
) -> tuple[list[float], list[float]]:
    return [places[point.values[0]] for point in points], [_ms(point) for point in points]


def _label_axes(axes: Any, sweep: Sweep, places: Sequence[float]) -> None:
    first = sweep.axes[0]
    latencies = [_ms(point) for point in sweep.points if point.best is not None]
    if first.is_numeric and is_wide(places):
        axes.set_xscale("log")
    if is_wide(latencies):
        axes.set_yscale("log")
    axes.set_xticks(places, [shown(value) for value in first.values])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(plain(first.short))
    axes.set_ylabel("tuned latency, ms")
    axes.set_title(plain(f"{sweep.model} @ {sweep.target}, {sweep.dtype}"))
    axes.grid(visible=True, alpha=0.3)
    texts = [axes.title, axes.xaxis.label, *axes.get_xticklabels()]
    if latencies:
        texts += axes.legend().get_texts()
    for text in texts:  # names come from files: a dollar sign in one is no formula
        text.set_parse_math(False)


def is_wide(values: Sequence[float]) -> bool:
    """Return whether an axis of these values is better logarithmic."""
    return bool(values) and min(values) > 0 and max(values) / min(values) >= _SPREAD


def _ms(point: SweepPoint) -> float:
    return 1e3 * point.best.latency if point.best is not None else float("nan")
