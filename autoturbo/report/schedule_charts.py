"""Charts of schedules side by side: their speed, their time, their traffic, and a roofline."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from autoturbo.report.facts import LEAST, LIMIT_TITLES, TITLES, Facts, Measured
from autoturbo.report.filling import Chart, Columns
from autoturbo.report.graph_view import SubGraphFacts
from autoturbo.report.side_by_side import gap_rows
from autoturbo.simulator.breakdown.attribution import Limit
from autoturbo.simulator.measurement import Measurement

LEVELS = {
    "ddr_read": "DDR read", "ddr_written": "DDR written", "gb_read": "GB read",
    "gb_written": "GB written", "core_to_core": "core to core", "lb": "LB",
}  # fmt: skip
"""Titles of the levels of a measurement's traffic."""


def side_charts(facts: Facts, rows: Mapping[str, Measured]) -> dict[str, Chart]:
    """Return charts of schedules side by side: their speed, their time and their traffic.

    Of a model whose inputs do not agree on a batch there is none of speed.
    """
    tuned, batch = facts.best.measurement, facts.best.measurement.batch
    measured = {name: row.measurement for name, row in rows.items()}
    moved = (
        (title, name, row.measurement.bytes.get(level, 0) / 1e6)
        for level, title in LEVELS.items()
        if level != "lb"  # far larger: it is in the table
        for name, row in rows.items()
    )
    return {
        **({} if batch is None else {"speed": speed_chart(measured, tuned, _interval(facts))}),
        "time": time_chart(rows),
        "traffic": Chart("traffic", {"rows": Columns.of("level who mb", moved)},
                         {"parts": list(rows), "colours": _named(schedule_colours(rows).values())}),
    }  # fmt: skip


def speed_chart(
    rows: Mapping[str, Measurement], tuned: Measurement, ends: tuple[float, float] | None = None
) -> Chart:
    """Return a chart of samples per second, with what no schedule can pass.

    Args:
        rows: Schedules by title, of a model with a batch.
        tuned: Measurement of the tuned schedule.
        ends: Both ends of its interval, where measurements vary.
    """
    speeds = (
        (name, row.throughput, "tuned" if row is tuned else "other",
         *(ends if row is tuned and ends else (row.throughput,) * 2))
        for name, row in rows.items()
    )  # fmt: skip
    fastest = (tuned.batch or 1) / tuned.bound.seconds
    return Chart("speed", {
        "rows": Columns.of("who speed kind low high", speeds),
        "bound": Columns.of("speed", [(fastest,)]),
    })  # fmt: skip


def _interval(facts: Facts) -> tuple[float, float] | None:
    """Return the interval of the tuned schedule's speed, by a race against the heuristic's."""
    race, base = facts.handed.race, facts.default and facts.default.measurement.throughput
    if race is None or race.high is None or not base or not race.demonstrated:
        return None
    return base * race.low, base * race.high


def _named(colours: Iterable[str]) -> list[str]:
    return [f"var(--{colour})" for colour in colours]


def time_chart(rows: Mapping[str, Measured]) -> Chart:
    """Return a chart of what bounds each schedule, in shares of its own time."""
    limits = [n for n in LIMIT_TITLES if any(row.share(n) > LEAST for row in rows.values())]
    bars = []
    for name, row in rows.items():
        shares = [row.share(limit) for limit in limits]
        ends = itertools.pairwise(itertools.accumulate(shares, initial=0.0))
        for limit, share, (begin, end) in zip(limits, shares, ends, strict=True):
            bars.append((name, limit.value, begin, end, share, 1e3 * row.seconds(limit)))
    data = {"rows": Columns.of("who part from to share ms", bars)}
    colours = _named(LIMIT_COLOURS[limit] for limit in limits)
    return Chart("time", data, {"parts": [limit.value for limit in limits], "colours": colours})


LIMIT_COLOURS: Final = {
    Limit.MATRIX: "g0", Limit.VECTOR: "g2", Limit.DDR: "g1", Limit.GB: "g4", Limit.TRANSFER: "g3",
    Limit.LB: "g7", Limit.LATENCY: "g5", Limit.LAUNCH: "g6",
}  # fmt: skip
"""Colours of the limits that bound the time."""


def gap_chart(facts: Facts) -> Chart:
    """Return a chart of the time that each cause of the gap takes."""
    rows = ((title, 1e3 * seconds, share) for title, seconds, share in gap_rows(facts))
    return Chart("gap", {"rows": Columns.of("cause ms share", rows)})


def roofline_chart(
    best: Measured, rows: Mapping[str, Measured], groups: Sequence[SubGraphFacts]
) -> Chart:
    """Return a roofline: arithmetic against traffic of schedules and sub-graphs."""
    context = best.schedule.context
    kinds = {**schedule_colours(rows), _PARTS: "quiet"}
    points = [
        (name, name, macs / moved, macs / row.measurement.latency / 1e12, 1.0)
        for name, row in rows.items()
        if (macs := row.schedule.model.macs) and (moved := row.measurement.moved["ddr_bytes"])
    ]
    points += [
        (g.title, _PARTS, g.macs / g.ddr_bytes, g.rate / 1e12, g.share)
        for g in groups
        if g.macs and g.ddr_bytes and g.rate
    ]
    peak = context.chip.matrix_macs_per_second(context.dtype)
    bandwidth = context.chip.ddr.bandwidth
    knee = peak / bandwidth
    across = [knee, *(point[2] for point in points)]
    low, high = min(across) / _BEYOND, max(across) * _BEYOND
    # a model without products has no points, and still a roof
    lowest = min((point[3] for point in points), default=peak / 1e12) / _BEYOND
    highest = peak / 1e12 * _BEYOND
    roof = ((at, min(peak, bandwidth * at) / 1e12) for at in (low, knee, high))
    data = {
        "roof": Columns.of("intensity rate", roof),
        "points": Columns.of("name kind intensity rate share", points[::-1]),  # schedules on top
    }
    given = {
        "parts": list(kinds), "colours": _named(kinds.values()),
        "intensities": [low, high], "intensity_ticks": ticks(low, high),
        "rates": [lowest, highest], "rate_ticks": ticks(lowest, highest),
    }  # fmt: skip
    return Chart("roofline", data, given)


_PARTS: Final = "sub-graphs of the tuned schedule"

_BEYOND: Final = 1.5
"""How far beyond its points a roofline reaches."""

_FEW_DECADES: Final = 2.5
"""Decades up to which a logarithmic axis also has ticks at two and five."""


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers for a logarithmic axis: powers of ten, and 2 and 5 where few are."""
    steps = (1, 2, 5) if math.log10(high / low) < _FEW_DECADES else (1,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    numbers = [float(f"{step}e{decade}") for decade in decades for step in steps]
    return [number for number in numbers if low <= number <= high]


def schedule_colours(rows: Iterable[str]) -> dict[str, str]:
    """Return a colour for each of several schedules: the tuned one's is always the same."""
    palette = dict(zip(rows, itertools.cycle(("g1", "g3", "g2", "g4", "g5", "g6")), strict=False))
    return palette | {TITLES["tuned"]: "g0"}
