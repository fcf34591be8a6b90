"""The page of a sweep: one HTML file with latency over the varied fields, as lines or a heat map.

Its style, its scripts and what it may do are those of the report of a run. Axes of figures begin at
zero; one that cannot, since its values lie far apart, is logarithmic and says so in its title.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from autoturbo.hardware.grid import Axis, Cost, Value, field_in_words
from autoturbo.report.filling import Chart, Columns
from autoturbo.report.page import MOST_UNFOLDED, drawn
from autoturbo.report.sweep import Sweep, SweepPoint, front_sentences, is_wide, shown
from autoturbo.report.units import counted, duration, gain, percent

TUNED: Final = "tuned"
HEURISTIC: Final = "published heuristic"

_COLOURS: Final = {TUNED: "var(--g0)", HEURISTIC: "var(--g1)"}

_LATENCY: Final = "latency, ms"

_MOST_TICKS: Final = 12
"""Values of a field that an axis names one by one."""

_MOST_MAPS: Final = 4
"""Heat maps that are not folded away."""

_COLUMN_WORDS: Final = {
    "latency_s": "latency, s", "default_s": "latency of the heuristic, s",
    "throughput_per_s": "samples per second", "lower_bound_s": "lower bound of the latency, s",
    "bound_fraction": "lower bound as a share of the latency",
    "matrix_utilization": "share of the matrix engines in use",
    "ddr_bytes": "traffic of DDR, bytes", "gb_bytes": "traffic of the global buffers, bytes",
    "peak_lb_bytes": "most in use of a local buffer, bytes",
    "peak_gb_bytes": "most in use of a global buffer, bytes", "kernels": "kernels",
    "energy_j": "energy, J",
}  # fmt: skip


def sweep_page(sweep: Sweep, how: str = "simulated") -> str:
    """Return a sweep as one HTML document that loads nothing.

    Args:
        sweep: What is shown.
        how: How its figures are known, as the command line says it.

    Raises:
        UsageError: The plotting library is not installed.
    """
    maps = {"latency": (_lines(sweep), "")} if len(sweep.axes) == 1 else _heat_maps(sweep)
    charts = {name: chart for name, (chart, _) in maps.items()}
    if sweep.cost is not None:
        charts["front"] = _front(sweep, sweep.cost)
    batch = next((p.best.batch for p in sweep.points if p.best is not None), None)
    values = {
        "sweep": sweep, "how": how, "charts": charts, "batch": batch,
        "axes": [(a.words, a.path, ", ".join(map(shown, a.values))) for a in sweep.axes],
        "maps": {name: where for name, (_, where) in maps.items()}, "most_maps": _MOST_MAPS,
        "answer": _answer(sweep),
        "sentences": [said.removeprefix("*: ") for said in front_sentences(sweep)],
        "terms": [] if sweep.cost is None else _terms(sweep.cost),
        "headers": _headers(sweep), "rows": _rows(sweep), "most_unfolded": MOST_UNFOLDED,
        "failed": [(p.target, p.failure) for p in sweep.points if p.failure],
        "banded": "latency" in charts and len(charts["latency"].data["bands"]) > 0,
    }  # fmt: skip
    return drawn("sweep.html", values)


def _answer(sweep: Sweep) -> str:
    """Return between what the tuned latency lies, in a sentence."""
    known = [p for p in sweep.points if p.best is not None]
    if not known:
        return f"The model fits none of {len(sweep.points)} targets."
    slow, fast = max(known, key=_ms), min(known, key=_ms)
    times = [duration(_ms(point) / 1e3) for point in (slow, fast)]
    if times[0] == times[1]:
        return f"The tuned latency is {times[0]} on {counted(len(known), 'target')}."
    ends = [
        f"{time} ({_said(sweep.axes, point.values)})"
        for time, point in zip(times, (slow, fast), strict=True)
    ]
    return f"The tuned latency goes from {ends[0]} to {ends[1]}."


def _said(axes: Sequence[Axis], values: Sequence[Value]) -> str:
    named = zip(axes, values, strict=True)
    return "; ".join(f"{axis.words}: {shown(value)}" for axis, value in named)


def _terms(cost: Cost) -> list[str]:
    """Return what the cost is made of, in words."""
    if cost.column:
        return [_COLUMN_WORDS[cost.column]]
    return [f"{weight:g} times {field_in_words(name)}" for name, weight in cost.weights.items()]


def _ms(point: SweepPoint) -> float:
    return float("nan") if point.best is None else 1e3 * point.best.latency


def _lines(sweep: Sweep) -> Chart:
    """Return the chart of tuned and heuristic latency over the only varied field."""
    axis, *_ = sweep.axes
    order = sorted(sweep.points, key=lambda p: p.values[0]) if axis.is_numeric else sweep.points
    place = (lambda v: v) if axis.is_numeric else shown
    rows, bands = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for point in order:
        at = place(point.values[0])
        if point.best is not None:
            rows.append((at, TUNED, _ms(point), point.target))
            course = point.course
            if course is not None and point.source is None and 0 < course.late_gain < 1:
                bands.append((at, _ms(point), _ms(point) / (1 - course.late_gain)))
        if point.default is not None:
            rows.append((at, HEURISTIC, 1e3 * point.default, point.target))
    data = {"rows": Columns.of("at who ms target", rows), "bands": Columns.of("at low high", bands)}
    given = {"parts": list(_COLOURS), "colours": list(_COLOURS.values()), "y_title": _LATENCY}
    return Chart("sweep", data, {**given, **_across(axis)})


def _across(axis: Axis) -> dict[str, Any]:
    """Return type, title, scale and ticks of a field's axis."""
    if not axis.is_numeric:
        scale = {"domain": [shown(v) for v in axis.values], "padding": 0.5}
        return {"x_type": "ordinal", "x_title": axis.words, "x_scale": scale, "x_axis": {}}
    values = sorted(float(value) for value in axis.values)
    ticks = {"values": values} if len(values) <= _MOST_TICKS else {}
    numeric = {"x_type": "quantitative", "x_axis": {"format": ",.4~g", **ticks}}
    if is_wide(values):
        title, scale = f"{axis.words} (logarithmic, without zero)", {"type": "log", "nice": False}
        return {**numeric, "x_title": title, "x_scale": {**scale, "padding": 14}}
    return {**numeric, "x_title": axis.words, "x_scale": {"zero": True}}


def _heat_maps(sweep: Sweep) -> dict[str, tuple[Chart, str]]:
    """Return charts of latency over the first two fields, and in words where the others stand."""
    first, second, *others = sweep.axes
    front, rows = set(map(id, sweep.front)), dict[str, list[tuple[Any, ...]]]()
    for point in sweep.points:
        best = point.best
        cell = (
            shown(point.values[0]), shown(point.values[1]), None if best is None else _ms(point),
            "does not fit" if best is None else duration(best.latency), point.target,
            None if point.default is None else 1e3 * point.default, int(id(point) in front),
        )  # fmt: skip
        rows.setdefault(_said(others, point.values[2:]), []).append(cell)
    known = [_ms(point) for point in sweep.points if point.best is not None]
    given = {
        "x_title": first.words, "y_title": second.words,
        "xs": [shown(value) for value in first.values],
        "ys": [shown(value) for value in second.values],
        "ends": [min(known, default=0.0), max(known, default=1.0)],
    }  # fmt: skip
    return {
        f"latency-{number}": (
            Chart("heat", {"rows": Columns.of("x y ms text target heuristic front", cells)}, given),
            where,
        )
        for number, (where, cells) in enumerate(rows.items(), 1)
    }


def _front(sweep: Sweep, cost: Cost) -> Chart:
    """Return the chart of latency over the stated cost, with the Pareto front."""
    title = _COLUMN_WORDS[cost.column] if cost.column else "cost as stated"
    priced = [(p.target, p.cost, _ms(p)) for p in sweep.points if p.best and p.cost is not None]
    members = sorted((p.target, p.cost, _ms(p)) for p in sweep.front if p.cost is not None)
    members.sort(key=lambda row: row[1])
    number = {"type": "quantitative", "format": ",.4~g"}
    tooltip = [
        {"field": "target", "title": "target", "type": "nominal"},
        {"field": "x", "title": title, **number}, {"field": "y", "title": _LATENCY, **number},
    ]  # fmt: skip
    data = {name: Columns.of("target x y", rows) for name, rows in
            {"points": priced, "front": members}.items()}  # fmt: skip
    zero = {"zero": True}
    return Chart("front", data, {
        "x_title": title, "y_title": _LATENCY, "x_scale": zero, "y_scale": zero, "tooltip": tooltip,
    })  # fmt: skip


def _headers(sweep: Sweep) -> list[str]:
    cost = [] if sweep.cost is None else ["cost"]
    return [*(axis.words for axis in sweep.axes), *cost, "tuned", "heuristic", "gain",
            "of the bound", "late gain", "idle trials", "Pareto front", "run"]  # fmt: skip


def _rows(sweep: Sweep) -> list[list[str]]:
    """Return the cells of each point."""
    rows = []
    for point, in_front, slower in sweep.told:
        best, course = point.best, point.course
        cost = ["-" if point.cost is None else f"{point.cost:.4g}"]
        rows.append([
            *map(shown, point.values),
            *cost[: int(sweep.cost is not None)],
            "does not fit" if best is None else duration(best.latency),
            "-" if point.default is None else duration(point.default),
            "-" if best is None else gain(best.latency, point.default),
            "-" if best is None else percent(best.bound_fraction),
            "-" if course is None else percent(course.late_gain),
            "-" if course is None else str(course.idle),
            "slower than a lesser target" if slower else "yes" if in_front else "no",
            point.run or "-",
        ])  # fmt: skip
    return rows


__all__ = ["sweep_page"]
