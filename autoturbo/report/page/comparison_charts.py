"""Charts of schedulers side by side: speed, time, traffic, roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoturbo.hardware.target import Target
from autoturbo.report.page.chart import Chart
from autoturbo.report.page.columns import Columns
from autoturbo.report.page.facts import TITLES, Facts, Measured
from autoturbo.report.page.subgraphs import SubGraphFacts
from autoturbo.report.page.timeuse import PARTS
from autoturbo.report.page.vega import colours, quantity, tips, words

PART_COLOURS = {
    "matrix": "g0", "vector": "g2", "DDR": "g1", "transfer": "g3", "latency": "g5",
    "movements": "g4", "launch": "g6", "other clusters": "g7",
}  # fmt: skip
"""Of the parts of the time."""


def time_chart(rows: Mapping[str, Measured]) -> Chart:
    """What the time of each schedule went into, shares of its own time."""
    found: dict[str, list[object]] = {n: [] for n in ("who", "part", "from", "to", "share", "ms")}
    parts = [*next(iter(rows.values())).use.order, *(p for p in PARTS if p not in _workers(rows))]
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


def _workers(rows: Mapping[str, Measured]) -> tuple[str, ...]:
    return next(iter(rows.values())).use.order


def roofline_chart(facts: Facts, groups: Sequence[SubGraphFacts]) -> Chart:
    """Arithmetic against traffic, for schedules and for sub-graphs of the tuned one."""
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
    """Every schedule that fits, by the title that readers see, the tuned one last."""
    rows = {TITLES.get(n, n): m for n, m in facts.others.items() if isinstance(m, Measured)}
    own = rows.get(TITLES["graphturbo"])
    default = facts.default
    if default is not None and not (own and own.measurement.latency == default.measurement.latency):
        rows[TITLES["default"]] = default
    return {**rows, TITLES["tuned"]: facts.best}


def speed_chart(facts: Facts) -> Chart:
    """Samples per second, scheduler by scheduler."""
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
    """Megabytes per level; LB, which is far larger, is in the table."""
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
