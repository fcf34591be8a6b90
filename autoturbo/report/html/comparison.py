"""Schedulers side by side: their time, speed, traffic and roofline, as charts and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoturbo.hardware.target import Target
from autoturbo.report.html.charts import (
    Chart,
    Columns,
    Figures,
    colours,
    quantity,
    tips,
    words,
)
from autoturbo.report.html.facts import TITLES, Facts, Measured
from autoturbo.report.html.markup import Markup, folded, paragraph, table, text
from autoturbo.report.html.subgraphs import SubGraphFacts, subgraph_facts
from autoturbo.report.html.time_use import PART_COLOURS, PART_TITLES, PARTS
from autoturbo.report.units import count, duration, joules, percent, ratio, size
from autoturbo.simulate.measurement import Failure


def time_chart(rows: Mapping[str, Measured]) -> Chart:
    """Return a chart of what each schedule's time went into, in shares of its own time."""
    found: dict[str, list[object]] = {n: [] for n in ("who", "part", "from", "to", "share", "ms")}
    order = next(iter(rows.values())).use.order
    parts = [*order, *(p for p in PARTS if p not in order)]
    for name, row in rows.items():
        at = 0.0
        for part in parts:
            share = row.use.exposed[part]
            values = (name, part, at, at + share, share, share * row.measurement.latency * 1e3)
            for column, value in zip(found.values(), values, strict=True):
                column.append(value)
            at += share
    scale = {part: PART_COLOURS[part] for part in parts}
    percent = {"format": ".0%", "grid": False}
    return Chart(
        {
            "height": {"step": 26},
            "data": {"name": "rows"},
            "mark": {"type": "bar", "height": 18},
            "encoding": {
                "y": words("who", None, axis={"ticks": False, "domain": False}),
                "x": quantity("from", "share of its own time", axis=percent,
                              scale={"domain": [0, 1]}),
                "x2": {"field": "to"},
                "color": words("part", None, scale=colours(scale)),
                "tooltip": [*tips(who="schedule", part="part"),
                            {"field": "share", "title": "share", "format": ".1%",
                             "type": "quantitative"},
                            *tips(ms="time (ms)")],
            },
        },
        {"rows": Columns(found)},
    )  # fmt: skip


def roofline_chart(facts: Facts, groups: Sequence[SubGraphFacts]) -> Chart:
    """Return a roofline: arithmetic against traffic of schedules and sub-graphs."""
    schedule = facts.best.schedule
    target, dtype = schedule.problem.target, schedule.problem.dtype
    points = _roof_points(facts, groups)
    finite = [i for i in points["intensity"] if isinstance(i, float)]
    low, high = min(finite, default=1.0) / 3, max(finite, default=1.0) * 3
    knee = target.matrix_macs_per_second(dtype) / target.ddr.bandwidth
    low, high = min(low, knee / 3), max(high, knee * 3)
    log = {"type": "log", "nice": False}
    few = {"grid": False, "tickCount": 5}
    wide = {**log, "domain": [low, high]}
    x = quantity("intensity", "multiply-accumulates per byte of DDR", scale=wide, axis=few)
    rates = [r for r in points["rate"] if isinstance(r, float)]
    peak = target.matrix_macs_per_second(dtype) / 1e12
    tall = {**log, "domain": [min(rates, default=peak) / 2, peak * 1.6]}
    y = quantity("rate", "TMAC/s of the chip", scale=tall, axis=few)
    spec = {
        "height": 300,
        "layer": [
            {"data": {"name": "roof"},
             "mark": {"type": "line", "stroke": "var(--soft)", "strokeWidth": 1.5, "clip": True},
             "encoding": {"x": x, "y": y}},
            {"data": {"name": "points"},
             "mark": {"type": "point", "filled": True, "opacity": 0.85},
             "encoding": {"x": x, "y": y,
                          "size": quantity("share", None, legend=None,
                                           scale={"domain": [0, 1], "range": [30, 600]}),
                          "shape": words("kind", None, scale={
                              "domain": ["schedule", "sub-graph"],
                              "range": ["diamond", "circle"]}),
                          "color": words("kind", None, scale=colours(
                              {"schedule": "g1", "sub-graph": "g0"})),
                          "tooltip": tips(name="name", intensity="MAC per byte (DDR)",
                                          rate="rate (TMAC/s)", share="share of time (of 1)")}},
            *({"data": {"name": "points"},
               "transform": [{"filter": f"datum.kind == 'schedule' && {chosen}"}],
               "mark": {"type": "text", "align": align, "dx": dx, "dy": dy},
               "encoding": {"x": x, "y": y, "text": {"field": "name"}}}
              for chosen, align, dx, dy in (
                  # the tuned schedule is often beside another one
                  ("datum.name == 'tuned'", "right", -4, -12),
                  ("datum.name != 'tuned'", "left", 6, 14))),
        ],
    }  # fmt: skip
    roof = _roof(target, dtype, (low, knee, high))
    return Chart(spec, {"roof": roof, "points": Columns(points)})


def _roof(target: Target, dtype: str, at: Sequence[float]) -> Columns:
    peak = target.matrix_macs_per_second(dtype)
    rates = [min(peak, target.ddr.bandwidth * one) / 1e12 for one in at]
    return Columns({"intensity": list(at), "rate": rates})


def _roof_points(facts: Facts, groups: Sequence[SubGraphFacts]) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {
        name: [] for name in ("name", "kind", "intensity", "rate", "share")
    }
    rows: list[tuple[object, ...]] = []
    for name, row in side_by_side(facts).items():
        macs, moved = row.schedule.model.macs, row.measurement.ddr_bytes
        if macs and moved:
            rows.append(
                (name, "schedule", macs / moved, macs / row.measurement.latency / 1e12, 0.1)
            )
    for group in groups:
        if group.macs and group.ddr_bytes and group.seconds:
            rate = group.macs * len(facts.best.schedule.timelines) / group.seconds / 1e12
            name = f"{group.index}: {group.name}"
            rows.append((name, "sub-graph", group.macs / group.ddr_bytes, rate, group.share))
    for row_ in rows:
        for column, value in zip(found.values(), row_, strict=True):
            column.append(value)
    return found


def side_by_side(facts: Facts) -> dict[str, Measured]:
    """Return every schedule that fits by the title that readers see, the tuned one last."""
    rows = {TITLES.get(n, n): m for n, m in facts.others.items() if isinstance(m, Measured)}
    own = rows.get(TITLES["graphturbo"])
    default = facts.default
    if default is not None and not (own and own.measurement.latency == default.measurement.latency):
        rows[TITLES["default"]] = default
    return {**rows, TITLES["tuned"]: facts.best}


def speed_chart(facts: Facts) -> Chart:
    """Return a chart of samples per second, scheduler by scheduler."""
    rows = side_by_side(facts)
    per_s = [row.measurement.throughput for row in rows.values()]
    kind = ["tuned" if name == TITLES["tuned"] else "other" for name in rows]
    most = facts.best.measurement.batch / facts.best.measurement.bound.seconds
    spec = {
        "height": {"step": 26},
        "layer": [
            {"data": {"name": "rows"}, "mark": {"type": "bar", "height": 18},
             "encoding": {"y": words("who", None, axis={"ticks": False, "domain": False}),
                          "x": quantity("speed", "samples per second; the line is what no schedule"
                                        " can pass", axis={"tickCount": 6, "format": "~s"}),
                          "color": words("kind", None, legend=None,
                                         scale=colours({"tuned": "g0", "other": "quiet"})),
                          "tooltip": tips(who="schedule", speed="samples (/s)")}},
            {"data": {"name": "bound"},
             "mark": {"type": "rule", "strokeDash": [5, 3], "stroke": "var(--bad)",
                      "strokeWidth": 1.5},
             "encoding": {"x": {"field": "speed", "type": "quantitative"}}},
        ],
    }  # fmt: skip
    data = {
        "rows": Columns({"who": list(rows), "speed": per_s, "kind": kind}),
        "bound": Columns({"speed": [most]}),
    }
    return Chart(spec, data)


LEVELS = {
    "ddr_read": "DDR read", "ddr_written": "DDR written", "gb_read": "GB read",
    "gb_written": "GB written", "core_to_core": "core to core", "lb": "LB",
}  # fmt: skip
"""Titles of the levels of a measurement's traffic."""


def traffic_chart(facts: Facts) -> Chart:
    """Return a chart of megabytes per level; LB, which is far larger, is in the table."""
    found: dict[str, list[object]] = {name: [] for name in ("level", "who", "mb")}
    rows = side_by_side(facts)
    for level, title in LEVELS.items():
        for name, row in rows.items() if level != "lb" else ():
            found["level"].append(title)
            found["who"].append(name)
            found["mb"].append(row.measurement.bytes.get(level, 0) / 1e6)
    palette = ["g1", "g3", "g2", "g4", "g5", "g6"]
    shades = {name: palette[at % len(palette)] for at, name in enumerate(rows)}
    shades[TITLES["tuned"]] = "g0"
    spec = {
        "height": {"step": 11},
        "data": {"name": "rows"},
        "mark": {"type": "bar"},
        "encoding": {
            "y": words("level", None, axis={"ticks": False, "domain": False},
                       scale={"paddingInner": 0.25}),
            "yOffset": words("who", None),
            "x": quantity("mb", "MB for the whole batch"),
            "color": words("who", None, scale=colours(shades)),
            "tooltip": tips(who="schedule", level="level", mb="moved (MB)"),
        },
    }  # fmt: skip
    return Chart(spec, {"rows": Columns(found)})


_NOTHING = 1e-9
"""Share of the time that is a rounding error."""


def side_section(facts: Facts, figures: Figures) -> list[Markup]:
    """Return the section of schedulers side by side, and where the time of each goes."""
    rows = side_by_side(facts)
    failed = [(n, o.message) for n, o in facts.others.items() if isinstance(o, Failure)]
    return [
        table(
            ("schedule", "latency", "samples/s", "speed-up", "DDR", "energy", "kernels",
             "matrix", "of bound"),
            [_figures(name, row, facts.best) for name, row in rows.items()],
            label="schedulers side by side",
        ),
        paragraph(
            text("Speed-up: the tuned schedule over each. matrix: multiply-accumulates over what"
                 " the matrix engines can do in that time."), class_="soft",
        ),
        *(paragraph(text(f"{name} does not fit: {message}")) for name, message in failed),
        figures.add("speed", speed_chart(facts), "Samples per second of each scheduler."),
        figures.add("time", time_chart(rows), _time_caption(facts)),
        folded("The time as a table", _time_table(rows)),
    ]  # fmt: skip


def _figures(name: str, row: Measured, best: Measured) -> tuple[str, ...]:
    own = row.measurement
    return (
        name,
        duration(own.latency),
        count(own.throughput),
        ratio(own.latency / best.measurement.latency),
        size(own.ddr_bytes),
        "-" if own.energy is None else joules(own.energy),
        str(own.kernels),
        percent(own.matrix_utilization),
        percent(own.bound_fraction),
    )


def _time_caption(facts: Facts) -> str:
    first = PART_TITLES[facts.best.use.order[0]]
    return (
        f"Where the time of each schedule goes: all work of {first}, and of every other engine"
        " what it does while those before it stand idle, so that the parts add up."
    )


def _time_table(rows: Mapping[str, Measured]) -> Markup:
    parts = [p for p in PART_TITLES if any(row.use.exposed[p] > _NOTHING for row in rows.values())]
    body = [(name, *(_part_time(r, p) for p in parts)) for name, r in rows.items()]
    return table(("schedule", *parts), body, label="time of each schedule by part")


def _part_time(row: Measured, part: str) -> str:
    share = row.use.exposed[part]
    return duration(share * row.measurement.latency) if share > _NOTHING else "-"


def roof_section(facts: Facts, figures: Figures) -> list[Markup]:
    """Return the section of roofline and traffic."""
    groups = subgraph_facts(facts.best.schedule, facts.best.kernels)
    target, dtype = facts.best.schedule.problem.target, facts.best.schedule.problem.dtype
    caption = (
        f"Roofline of the chip: {count(target.matrix_macs_per_second(dtype))}MAC/s of the matrix"
        f" engines, {size(target.ddr.bandwidth)}/s of DDR. Circles are the tuned schedule's"
        " sub-graphs, as large as their share of the time."
    )
    silent = [g for g in groups if not (g.macs and g.ddr_bytes)]
    if silent:
        caption += f" {len(silent)} without multiply-accumulates or without DDR are not in it."
    rows = side_by_side(facts)
    body = [
        (title, *(size(row.measurement.bytes.get(level, 0)) for row in rows.values()))
        for level, title in LEVELS.items()
    ]
    return [
        figures.add("roofline", roofline_chart(facts, groups), caption),
        figures.add("traffic", traffic_chart(facts), "Bytes moved per level, for the whole batch."),
        table(("level", *rows), body, label="bytes moved per level"),
    ]
