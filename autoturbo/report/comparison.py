"""Schedulers side by side: what the tuned schedule saves, and charts of time, speed and traffic."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from autoturbo.report.facts import (
    LEAST,
    PART_COLOURS,
    PART_TITLES,
    TITLES,
    WORKERS,
    Facts,
    Measured,
)
from autoturbo.report.filling import Chart, Columns
from autoturbo.report.graph_view import SubGraphFacts
from autoturbo.report.units import duration

LEVELS = {
    "ddr_read": "DDR read", "ddr_written": "DDR written", "gb_read": "GB read",
    "gb_written": "GB written", "core_to_core": "core to core", "lb": "LB",
}  # fmt: skip
"""Titles of the levels of a measurement's traffic."""


def side_by_side(facts: Facts) -> dict[str, Measured]:
    """Return every schedule that fits by the title that readers see, the tuned one last."""
    rows = {TITLES.get(n, n): m for n, m in facts.others.items() if isinstance(m, Measured)}
    own = rows.get(TITLES["graphturbo"])
    default = facts.default
    if default is not None and not (own and own.measurement.latency == default.measurement.latency):
        rows[TITLES["default"]] = default
    return {**rows, TITLES["tuned"]: facts.best}


def reference(facts: Facts) -> tuple[str, Measured] | None:
    """Return what the gain refers to: TVM's kernels, or the first other schedule that fits."""
    others = ((TITLES.get(n, n), m) for n, m in facts.others.items() if isinstance(m, Measured))
    default = () if facts.default is None else ((TITLES["default"], facts.default),)
    return next(iter((*others, *default)), None)


def saved(name: str, other: Measured, best: Measured) -> str:
    """Return how much time is saved against another schedule, in words."""
    gone = other.measurement.latency - best.measurement.latency
    if gone <= 0:
        return f"{duration(-gone)} more than {name}"
    return f"Of {duration(other.measurement.latency)} ({name}), {duration(gone)} are saved"


def parts_saved(other: Measured, best: Measured, named: int = 3) -> list[str]:
    """Return what time was saved and added, the largest first; parts add up to the difference."""
    gone = {
        part: other.use.exposed[part] * other.measurement.latency
        - best.use.exposed[part] * best.measurement.latency
        for part in PART_TITLES
    }
    least = LEAST * other.measurement.latency
    hidden = set(WORKERS) - {best.use.busiest}
    return [
        f"{duration(abs(gone[part]))} {'less' if gone[part] > 0 else 'more'} in "
        f"{PART_TITLES[part]}{' that nothing hid' if part in hidden else ''}"
        for part in sorted(gone, key=lambda part: -abs(gone[part]))[:named]
        if abs(gone[part]) > least
    ]


def side_charts(facts: Facts, rows: Mapping[str, Measured]) -> dict[str, Chart]:
    """Return charts of schedules side by side: their speed, their time and their traffic."""
    tuned, best = TITLES["tuned"], facts.best.measurement
    speeds = ((n, r.measurement.throughput, "tuned" if n == tuned else "other")
              for n, r in rows.items())  # fmt: skip
    bound = Columns.of("speed", [(best.batch / best.bound.seconds,)])
    moved = (
        (title, name, row.measurement.bytes.get(level, 0) / 1e6)
        for level, title in LEVELS.items()
        if level != "lb"  # far larger: it is in the table
        for name, row in rows.items()
    )
    palette = itertools.cycle(("g1", "g3", "g2", "g4", "g5", "g6"))
    shades = dict(zip(rows, palette, strict=False)) | {tuned: "g0"}
    return {
        "speed": Chart("speed", {"rows": Columns.of("who speed kind", speeds), "bound": bound}),
        "time": _time_chart(rows),
        "traffic": Chart("traffic", {"rows": Columns.of("level who mb", moved)},
                         {"schedules": list(rows), "colours": _named(shades.values())}),
    }  # fmt: skip


def _named(colours: Iterable[str]) -> list[str]:
    return [f"var(--{colour})" for colour in colours]


def _time_chart(rows: Mapping[str, Measured]) -> Chart:
    """Return a chart of what each schedule's time went into, in shares of its own time."""
    parts = next(iter(rows.values())).use.parts
    bars = []
    for name, row in rows.items():
        shares = [row.use.exposed[part] for part in parts]
        ends = itertools.pairwise(itertools.accumulate(shares, initial=0.0))
        for part, share, (begin, end) in zip(parts, shares, ends, strict=True):
            bars.append((name, part, begin, end, share, share * row.measurement.latency * 1e3))
    colours = _named(PART_COLOURS[part] for part in parts)
    given = {"parts": list(parts), "colours": colours}
    return Chart("time", {"rows": Columns.of("who part from to share ms", bars)}, given)


def roofline_chart(
    facts: Facts, rows: Mapping[str, Measured], groups: Sequence[SubGraphFacts]
) -> Chart:
    """Return a roofline: arithmetic against traffic of schedules and sub-graphs."""
    problem, clusters = facts.best.schedule.problem, len(facts.best.schedule.timelines)
    points = [
        (name, "schedule", macs / moved, macs / row.measurement.latency / 1e12, 0.1)
        for name, row in rows.items()
        if (macs := row.schedule.model.macs) and (moved := row.measurement.ddr_bytes)
    ]
    points += [
        (g.title, "sub-graph", g.macs / g.ddr_bytes, g.macs * clusters / g.seconds / 1e12, g.share)
        for g in groups
        if g.macs and g.ddr_bytes and g.seconds
    ]
    peak = problem.target.matrix_macs_per_second(problem.dtype)
    bandwidth = problem.target.ddr.bandwidth
    knee = peak / bandwidth
    across = [knee, *(point[2] for point in points)]
    low, high = min(across) / 3, max(across) * 3
    roof = ((at, min(peak, bandwidth * at) / 1e12) for at in (low, knee, high))
    data = {
        "roof": Columns.of("intensity rate", roof),
        "points": Columns.of("name kind intensity rate share", points),
    }
    lowest = min((point[3] for point in points), default=peak / 1e12) / 2
    given = {"intensities": [low, high], "rates": [lowest, peak / 1e12 * 1.6]}
    return Chart("roofline", data, given)
