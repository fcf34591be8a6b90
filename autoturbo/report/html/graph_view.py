"""The graph view: sub-graphs with their layers, what they read, and where outputs lie.

Layers and sub-graphs are placed in rows from inputs to outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoturbo.report.html.charts import (
    GROUPS,
    Chart,
    Columns,
    Figures,
    by_group,
    colours,
    quantity,
    tips,
    words,
)
from autoturbo.report.html.facts import Facts, Measured
from autoturbo.report.html.markup import Markup, folded, paragraph, table, text
from autoturbo.report.html.subgraphs import SubGraphFacts, layer_scopes, subgraph_facts
from autoturbo.report.units import duration, percent, size
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule

WIDEST = 0.34
"""Share of the width that a layer takes at most: what goes past it is drawn beside it."""

MOST_LAYERS = 400
"""Layers that are drawn one by one; larger models show their sub-graphs only."""

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Box:
    """Something at a place: rows count downwards, columns are shares of the width, 0 to 1.

    Attributes:
        number: of the layer or sub-graph.
        top: first row.
        bottom: one past the last.
        left: its left edge.
        right: its right edge.
    """

    number: int
    top: float
    bottom: float
    left: float
    right: float

    @property
    def middle(self) -> float:
        """Of its columns."""
        return (self.left + self.right) / 2


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is drawn.

    Attributes:
        groups: one box per sub-graph.
        layers: one per layer; empty where there are too many.
        edges: between layers, or between sub-graphs where there are no layers.
        rows: of all.
    """

    groups: tuple[Box, ...]
    layers: tuple[Box, ...]
    edges: tuple[Edge, ...]
    rows: float


def graph_layout(schedule: Schedule) -> Layout:
    """Place sub-graphs under those that they read from, and their layers inside likewise."""
    problem, subgraphs = schedule.problem, schedule.instances.subgraphs
    edges = [
        (maker, layer.index)
        for layer in problem.layers
        for maker in dict.fromkeys(problem.producer[tensor] for tensor in layer.inputs)
        if maker >= 0
    ]
    home = {layer: group.index for group in subgraphs for layer in group.layers}
    between = sorted({(home[a], home[b]) for a, b in edges if home[a] != home[b]})
    detailed = len(problem.layers) <= MOST_LAYERS
    inner = [_inner(group.layers, edges) if detailed else {} for group in subgraphs]
    heights = [_height(ranks) for ranks in inner]
    placed = _grid([group.index for group in subgraphs], between)
    groups, top = [], 0.0
    for row in placed:
        height = max(heights[group] for group in row)
        for column, group in enumerate(row):
            left, right = column / len(row), (column + 1) / len(row)
            groups.append(Box(group, top, top + heights[group], left, right))
        top += height + 0.6
    boxes = {box.number: box for box in groups}
    layers = [box for group in boxes.values() for box in _placed(group, inner[group.number])]
    return Layout(tuple(groups), tuple(layers), tuple(edges if detailed else between), top)


def _height(ranks: Mapping[int, int]) -> float:
    """Return the rows of a sub-graph: a title, and its layers."""
    return 1.0 + (1 + max(ranks.values()) if ranks else 0) + 0.2


def _inner(layers: Sequence[int], edges: Sequence[Edge]) -> dict[int, int]:
    """Return the row of each layer of a sub-graph."""
    own = set(layers)
    return _ranks(layers, [(a, b) for a, b in edges if a in own and b in own])


def _ranks(nodes: Sequence[int], edges: Sequence[Edge]) -> dict[int, int]:
    """Return each node's longest path from a node that reads nothing, in edges."""
    before: dict[int, list[int]] = {}
    for maker, reader in edges:
        before.setdefault(reader, []).append(maker)
    ranks: dict[int, int] = {}
    for node in nodes:
        ranks[node] = 1 + max((ranks.get(maker, -1) for maker in before.get(node, ())), default=-1)
    return ranks


def _rows(ranks: Mapping[int, int]) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(1 + max(ranks.values(), default=-1))]
    for node, rank in ranks.items():
        rows[rank].append(node)
    return rows


def _grid(nodes: Sequence[int], edges: Sequence[Edge]) -> list[list[int]]:
    """Return rows of nodes, each ordered by where what it reads from stands."""
    before: dict[int, list[int]] = {}
    for maker, reader in edges:
        before.setdefault(reader, []).append(maker)
    place: dict[int, float] = {}
    found = []
    for row in _rows(_ranks(nodes, edges)):
        row.sort(key=lambda node: (_mean([place[m] for m in before.get(node, ())]), node))
        place |= {node: (column + 0.5) / len(row) for column, node in enumerate(row)}
        found.append(row)
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.5


def _placed(group: Box, ranks: Mapping[int, int]) -> list[Box]:
    """Return the layers of a sub-graph inside its box, below its title."""
    width = group.right - group.left
    found = []
    for rank, row in enumerate(_rows(ranks)):
        for column, layer in enumerate(row):
            own = min(width / len(row), WIDEST)
            middle = group.left + width * (column + 0.5) / len(row)
            top = group.top + 1 + rank
            found.append(Box(layer, top, top + 1, middle - own / 2, middle + own / 2))
    return found


SCOPE_COLOURS = {"LB": "lb", "GB": "gb", "DDR": "ddr"}


def graph_chart(best: Measured, plan: Layout, facts: Sequence[SubGraphFacts],
                scopes: Mapping[int, Scope]) -> Chart:  # fmt: skip
    """Return a chart of sub-graphs, their layers, what they read, and where outputs lie."""
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
    """Return lines through up to four points, past others' rows at their side."""
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


_MOST_ROWS = 400
"""Rows of a table of sub-graphs."""


def graph_section(facts: Facts, figures: Figures) -> list[Markup]:
    """Return the section of sub-graphs, splits and scopes."""
    best = facts.best
    groups = subgraph_facts(best.schedule, best.kernels)
    plan = graph_layout(best.schedule)
    chart = graph_chart(best, plan, groups, layer_scopes(best.schedule))
    caption = (
        f"{len(best.schedule.problem.layers)} layers in {len(groups)} sub-graphs. A sub-graph is"
        " one kernel for each of its parts; layers are coloured by where their output is kept, the"
        " farthest place of any part."
    )
    if not plan.layers:
        caption += " There are too many layers to draw them one by one."
    rows = [_table_row(group) for group in groups[:_MOST_ROWS]]
    head = ("sub-graph", "cut into parts", "output in", "layers", "parts", "time", "share",
            "GMAC", "DDR", "bound by")  # fmt: skip
    shown = table(head, rows, words=3, label="sub-graphs")
    left = len(groups) - len(rows)
    more = [paragraph(text(f"{left} more sub-graphs are left out."))] if left else []
    return [
        figures.add("graph", chart, caption, tall=True),
        folded("Sub-graphs as a table", shown, *more),
        folded("Layers of each sub-graph", _layer_table(best, groups[:_MOST_ROWS])),
    ]


def _table_row(group: SubGraphFacts) -> tuple[str, ...]:
    return (
        f"{group.index}: {group.name}",
        group.cut,
        group.scope.name,
        str(len(group.layers)),
        str(group.parts),
        duration(group.seconds),
        percent(group.share),
        f"{group.macs / 1e9:.3g}",
        size(group.ddr_bytes),
        f"{group.bound} {percent(group.bound_share)}",
    )


def _layer_table(best: Measured, groups: Sequence[SubGraphFacts]) -> Markup:
    names = best.schedule.problem.layers
    rows = [
        (f"{g.index}: {g.name}", " \N{RIGHTWARDS ARROW} ".join(names[x].name for x in g.layers))
        for g in groups
    ]
    return table(("sub-graph", "layers"), rows, words=2, label="layers of each sub-graph")
