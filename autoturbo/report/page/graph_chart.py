"""The graph view: sub-graphs with their layers, what they read, and where outputs lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoturbo.report.page.chart import Chart
from autoturbo.report.page.columns import Columns
from autoturbo.report.page.facts import Measured
from autoturbo.report.page.layout import WIDEST, Box, Layout
from autoturbo.report.page.subgraphs import SubGraphFacts
from autoturbo.report.page.vega import GROUPS, by_group, colours, quantity, tips, words
from autoturbo.schedule.bind import Scope

SCOPE_COLOURS = {"LB": "lb", "GB": "gb", "DDR": "ddr"}


def graph_chart(best: Measured, plan: Layout, facts: Sequence[SubGraphFacts],
                scopes: Mapping[int, Scope]) -> Chart:  # fmt: skip
    """Sub-graphs with their layers, what they read, and where their outputs lie."""
    layers = {box.number: box for box in plan.layers}
    places = layers or {box.number: box for box in plan.groups}
    share = {"scale": {"domain": [0, 1], "nice": False}, "axis": None}
    row = {
        "scale": {"domain": [0, plan.rows], "reverse": True, "nice": False, "zero": False},
        "axis": None,
    }
    x, y = quantity("left", None, **share), quantity("top", None, **row)
    box = {"x": x, "x2": {"field": "right"}, "y": y, "y2": {"field": "bottom"}}
    inset = {"xOffset": 4, "x2Offset": -4, "yOffset": 2, "y2Offset": -2}
    spec = {
        "height": max(120, round(plan.rows * 21)),
        "view": {"stroke": None},
        "layer": [
            {
                "data": {"name": "groups"},
                "mark": {"type": "rect", "fill": "var(--card)", "cornerRadius": 5, **inset,
                         "strokeWidth": 2},
                "encoding": {**box, "stroke": by_group(),
                             "tooltip": tips(title="sub-graph", layers="layers", cut="cut",
                                             scope="output in", ms="time (ms)",
                                             bound="bound by")},
            },
            {
                "data": {"name": "edges"},
                "mark": {"type": "line", "stroke": "var(--soft)", "strokeWidth": 1,
                         "interpolate": "monotone"},
                "encoding": {"x": x, "y": y, "detail": {"field": "edge", "type": "nominal"},
                             "order": {"field": "point", "type": "quantitative"}},
            },
            {
                "data": {"name": "groups"},
                "mark": {"type": "text", "align": "left", "dx": 12, "baseline": "top", "dy": 7,
                         "fontWeight": "bold", "fontSize": 11,
                         "limit": {"expr": "width * datum.right - width * datum.left - 24"}},
                "encoding": {"x": x, "y": y, "text": {"field": "label"}},
            },
            {
                "data": {"name": "layers"},
                "mark": {"type": "rect", "cornerRadius": 3, **inset, "xOffset": 10,
                         "x2Offset": -10, "fillOpacity": 0.85},
                "encoding": {**box, "fill": words("scope", None, scale=colours(SCOPE_COLOURS),
                                                  legend={"title": "output kept in"}),
                             "tooltip": tips(name="layer", scope="output in", group="sub-graph")},
            },
            {
                "data": {"name": "layers"},
                "mark": {"type": "text", "fontSize": 10, "baseline": "middle",
                         "fill": "var(--on)",
                         "limit": {"expr": "width * datum.right - width * datum.left - 28"}},
                "encoding": {"x": {**x, "field": "middle"}, "y": {**y, "field": "centre"},
                             "text": {"field": "label"}},
            },
        ],
    }  # fmt: skip
    data = {
        "groups": _group_rows(plan.groups, facts),
        "layers": _layer_rows(best, plan.layers, facts, scopes),
        "edges": _edge_rows(plan, places),
    }
    return Chart(spec, data)


def _group_rows(boxes: Sequence[Box], facts: Sequence[SubGraphFacts]) -> Columns:
    own = [facts[box.number] for box in boxes]
    return Columns(
        {
            **_places(boxes),
            "label": [
                f"{f.index}: {_many(len(f.layers), 'layer')}, {_cut(f)}, output in {f.scope.name},"
                f" {100 * f.share:.0f} % of the time, {f.bound}"
                for f in own
            ],
            "title": [f"{f.index}: {f.name}" for f in own],
            "layers": [len(f.layers) for f in own],
            "cut": [f.cut for f in own],
            "scope": [f.scope.name for f in own],
            "ms": [f.seconds * 1e3 for f in own],
            "bound": [f.bound for f in own],
            "group": [f.index % GROUPS for f in own],
        }
    )


def _layer_rows(
    best: Measured,
    boxes: Sequence[Box],
    facts: Sequence[SubGraphFacts],
    scopes: Mapping[int, Scope],
) -> Columns:
    names = [best.schedule.problem.layers[box.number].name for box in boxes]
    kept = [scopes[box.number].name if box.number in scopes else "LB" for box in boxes]
    home = {layer: f"{f.index}: {f.name}" for f in facts for layer in f.layers}
    return Columns(
        {
            **_places(boxes),
            "middle": [box.middle for box in boxes],
            "centre": [(box.top + box.bottom) / 2 for box in boxes],
            "name": names,
            "label": [n if k == "LB" else f"{n} ({k})" for n, k in zip(names, kept, strict=True)],
            "scope": kept,
            "group": [home[box.number] for box in boxes],
        }
    )


def _places(boxes: Sequence[Box]) -> dict[str, list[float]]:
    return {
        side: [getattr(box, side) for box in boxes] for side in ("left", "right", "top", "bottom")
    }


def _edge_rows(plan: Layout, places: Mapping[int, Box]) -> Columns:
    """Lines through up to four points; one that goes past others' rows does so at their side."""
    found: dict[str, list[float]] = {name: [] for name in ("edge", "point", "left", "top")}
    for number, (maker, reader) in enumerate(plan.edges):
        for point, (left, top) in enumerate(_way(places[maker], places[reader])):
            for column, value in zip(found.values(), (number, point, left, top), strict=True):
                column.append(value)
    return Columns(found)


def _way(maker: Box, reader: Box) -> list[tuple[float, float]]:
    begin, end = (maker.middle, maker.bottom - 0.1), (reader.middle, reader.top + 0.1)
    passed = reader.top - maker.bottom
    if passed < 1 or abs(maker.middle - reader.middle) > WIDEST / 2:
        return [begin, end]
    # those that go farther lean out farther, so that they do not lie on each other
    side = maker.middle + WIDEST / 2 + min(0.03 + 0.012 * passed, 0.12)
    return [begin, (side, maker.bottom + 0.4), (side, reader.top - 0.4), end]


def _cut(group: SubGraphFacts) -> str:
    return "whole" if group.parts == 1 else f"{_many(group.parts, 'part')}: {group.cut}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
