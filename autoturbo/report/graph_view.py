"""The graph view: sub-graphs with their layers and inputs, and the scopes of outputs.

Layers and sub-graphs are placed in rows from inputs to outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autoturbo.hardware.parts import storage_ratio
from autoturbo.report.facts import Measured, kernel_use
from autoturbo.report.filling import GROUPS, Chart, Columns
from autoturbo.report.trace import tensor_scopes
from autoturbo.report.units import counted
from autoturbo.schedule.codegen.tiling import Amount
from autoturbo.schedule.partition.split import sink
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulate.breakdown.intervals import KernelInterval

WIDEST = 0.5
"""Share of the width that a layer takes at most: what goes past it is drawn beside it."""

_GAP, _MARGIN = 0.6, 0.2
"""Rows between sub-graphs, and below the layers of one."""

_NEXT = _MARGIN + _GAP + 1
"""Rows from a sub-graph's last layer to the first of the one below it, its title between them."""

MOST_LAYERS = 400
"""Layers that are drawn one by one; larger models show their sub-graphs only."""

_RIGHTMOST = 0.99
"""As far as an edge leans out: the frame ends at 1."""

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SubGraphFacts:
    """One sub-graph over a pass of the chip.

    Attributes:
        index: Its number.
        title: Number and name of its last layer.
        layers: Their indices.
        parts: Instances that it is cut into.
        cut: How, in words: ``"n (16) in 8"`` is an axis of 16 steps in 8 parts.
        scope: Where its output is declared.
        seconds: Of all its kernels in a pass, summed over clusters.
        share: Of the time of all kernels.
        macs: Multiply-accumulates in a pass of all clusters together.
        ddr_bytes: Likewise, moved from and to DDR.
        bound: What bounds its kernels, by most of their time.
        bound_share: Of their time that this takes.
    """

    index: int
    title: str
    layers: tuple[int, ...]
    parts: int
    cut: str
    scope: Scope
    seconds: float
    share: float
    macs: float
    ddr_bytes: float
    bound: str
    bound_share: float


def subgraph_facts(
    schedule: Schedule, kernels: Sequence[KernelInterval]
) -> tuple[SubGraphFacts, ...]:
    """Return the facts of all sub-graphs, in topological order."""
    total = sum(kernel.end - kernel.begin for kernel in kernels)
    kernels_of: list[list[KernelInterval]] = [[] for _ in schedule.instances.subgraphs]
    for kernel in kernels:
        kernels_of[int(schedule.instances.subgraph[kernel.instance])].append(kernel)
    copied = {  # bytes that movements bring from DDR before each instance's kernel
        int(instance): float(timeline.copied[kernel, 2])
        for timeline in schedule.timelines
        for kernel, instance in enumerate(timeline.order)
    }
    return tuple(
        _facts(schedule, index, subgraph_kernels, copied, total)
        for index, subgraph_kernels in enumerate(kernels_of)
    )


def _facts(
    schedule: Schedule,
    index: int,
    kernels: Sequence[KernelInterval],
    copied: Mapping[int, float],
    total: float,
) -> SubGraphFacts:
    subgraph, graph = schedule.instances.subgraphs[index], schedule.context.graph
    layers = [schedule.context.layers[layer] for layer in subgraph.layers]
    seconds = sum(kernel.end - kernel.begin for kernel in kernels)
    moved = sum(
        float(kernel.program.amounts[:, Amount.DDR].sum()) + copied.get(kernel.instance, 0.0)
        for kernel in kernels
    )
    copies = schedule.share.copies
    macs = float(sum(graph.operators[o].macs for layer in layers for o in layer.operators))
    return SubGraphFacts(
        index, f"{index}: {layers[-1].name}", subgraph.layers,
        schedule.instances.parts[index].count, _cut(schedule, index),
        schedule.placement.scopes[int(schedule.instances.first[index])], seconds,
        seconds / total if total else 0.0, macs * copies,
        moved * storage_ratio(schedule.context.dtype) * copies,
        *_bound(schedule, kernels, seconds),
    )  # fmt: skip


def _bound(
    schedule: Schedule, kernels: Iterable[KernelInterval], seconds: float
) -> tuple[str, float]:
    """Return the part that takes most of the time of kernels, and its share."""
    sums: dict[str, float] = {}
    for kernel in kernels:
        for name, spent in kernel_use(schedule, kernel).items():
            sums[name] = sums.get(name, 0.0) + spent
    if not sums or not seconds:
        return "nothing", 0.0
    bound = max(sums, key=lambda name: sums[name])
    return bound, sums[bound] / seconds


def _cut(schedule: Schedule, index: int) -> str:
    """Return the axes of the last operator that are cut, with their factors, in words."""
    subgraph = schedule.instances.subgraphs[index]
    axes = sink(schedule.context, subgraph.layers).axes if subgraph.split.axes else ()
    cuts = (f"{axes[axis].name} ({axes[axis].extent}) in {f}" for axis, f in subgraph.split.axes)
    return " x ".join(cuts) or "whole"


def scope_counts(schedule: Schedule) -> dict[str, int]:
    """Return how many layers keep their output in LB, GB and DDR, by the scope's name."""
    scopes = layer_scopes(schedule)
    kept = [scopes.get(layer.index, Scope.LB) for layer in schedule.context.layers]
    return {scope.name: kept.count(scope) for scope in Scope}


def layer_scopes(schedule: Schedule) -> dict[int, Scope]:
    """Return where the output of each layer is kept: the farthest scope of any of its parts."""
    farthest: dict[int, Scope] = {}
    for tensor, scopes in tensor_scopes(schedule).items():
        layer = schedule.context.producer[tensor]
        farthest[layer] = max(farthest.get(layer, Scope.LB), *scopes)
    return farthest


@dataclass(frozen=True, slots=True)
class Box:
    """A box: rows count downwards, columns are shares of the width, 0 to 1.

    Attributes:
        number: Of the layer or sub-graph.
        top: First row.
        bottom: One past the last.
        left: Its left edge.
        right: Its right edge.
    """

    number: int
    top: float
    bottom: float
    left: float
    right: float

    @property
    def middle(self) -> float:
        """Return the middle of its columns."""
        return (self.left + self.right) / 2


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of all boxes and edges.

    Attributes:
        groups: One box per sub-graph.
        layers: One per layer; empty where there are too many.
        edges: Between layers, or between sub-graphs where there are no layers.
        rows: Of all.
    """

    groups: tuple[Box, ...]
    layers: tuple[Box, ...]
    edges: tuple[Edge, ...]
    rows: float


def graph_layout(schedule: Schedule) -> Layout:
    """Place sub-graphs under those that they read from, and their layers inside likewise."""
    context, subgraphs = schedule.context, schedule.instances.subgraphs
    edges = [
        (maker, layer.index)
        for layer in context.layers
        for maker in dict.fromkeys(context.producer[tensor] for tensor in layer.inputs)
        if maker >= 0
    ]
    home = {layer: group.index for group in subgraphs for layer in group.layers}
    between = sorted({(home[a], home[b]) for a, b in edges if home[a] != home[b]})
    detailed = len(context.layers) <= MOST_LAYERS
    inner = [_rows(group.layers, edges) if detailed else [] for group in subgraphs]
    groups: list[Box] = []
    top = 0.0
    for row in _grid([group.index for group in subgraphs], between):
        heights = [1 + _MARGIN + len(inner[group]) for group in row]  # a title, and its layers
        for column, (group, height) in enumerate(zip(row, heights, strict=True)):
            left, right = column / len(row), (column + 1) / len(row)
            groups.append(Box(group, top, top + height, left, right))
        top += max(heights) + _GAP
    layers = tuple(box for group in groups for box in _placed(group, inner[group.number]))
    return Layout(tuple(groups), layers, tuple(edges if detailed else between), top)


def _rows(nodes: Iterable[int], edges: Iterable[Edge]) -> list[list[int]]:
    """Return nodes by their longest path from a node that reads nothing of the others."""
    ranks: dict[int, int] = {}
    rows: list[list[int]] = []
    before = _makers(edges)
    for node in nodes:
        makers = before.get(node, ())
        ranks[node] = 1 + max((ranks.get(maker, -1) for maker in makers), default=-1)
        rows += [[] for _ in range(len(rows), ranks[node] + 1)]
        rows[ranks[node]].append(node)
    return rows


def _makers(edges: Iterable[Edge]) -> dict[int, list[int]]:
    makers: dict[int, list[int]] = {}
    for maker, reader in edges:
        makers.setdefault(reader, []).append(maker)
    return makers


def _grid(nodes: Sequence[int], edges: Sequence[Edge]) -> list[list[int]]:
    """Return rows of nodes, each ordered by the positions of its inputs."""
    before, place, rows = _makers(edges), dict[int, float](), _rows(nodes, edges)
    for row in rows:
        means = {node: _mean([place[m] for m in before.get(node, ())]) for node in row}
        row.sort(key=lambda node: (means[node], node))
        place |= {node: (column + 0.5) / len(row) for column, node in enumerate(row)}
    return rows


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.5


def _placed(group: Box, rows: Sequence[Sequence[int]]) -> Iterator[Box]:
    """Yield the layers of a sub-graph inside its box, below its title."""
    width = group.right - group.left
    for top, row in enumerate(rows, 1):
        half = min(width / len(row), WIDEST) / 2
        for column, layer in enumerate(row):
            middle = group.left + width * (column + 0.5) / len(row)
            yield Box(layer, group.top + top, group.top + top + 1, middle - half, middle + half)


def graph_chart(best: Measured, plan: Layout, facts: Sequence[SubGraphFacts]) -> Chart:
    """Return a chart of sub-graphs, their layers and inputs, and the scopes of outputs."""
    data = {
        "groups": _group_rows(plan.groups, facts),
        "layers": _layer_rows(best, plan.layers, facts),
        "edges": Columns.of("edge point left top", _edge_rows(plan)),
    }
    return Chart("graph", data, {"height": max(120, round(plan.rows * 21)), "rows": plan.rows})


def _place(box: Box) -> tuple[float, ...]:
    return box.left, box.right, box.top, box.bottom


def _group_rows(boxes: Iterable[Box], facts: Sequence[SubGraphFacts]) -> Columns:
    rows = []
    for box in boxes:
        f = facts[box.number]
        cut = "whole" if f.parts == 1 else f"{counted(f.parts, 'part')}: {f.cut}"
        label = (
            f"{f.index}: {counted(len(f.layers), 'layer')}, {cut}, output in {f.scope.name},"
            f" {100 * f.share:.0f} % of the time, {f.bound}"
        )
        rows.append((*_place(box), label, f.title, len(f.layers), f.cut, f.scope.name,
                     f.seconds * 1e3, f.bound, f.index % GROUPS))  # fmt: skip
    names = "left right top bottom label title layers cut scope ms bound group"
    return Columns.of(names, rows)


def _layer_rows(best: Measured, boxes: Iterable[Box], facts: Iterable[SubGraphFacts]) -> Columns:
    scopes = layer_scopes(best.schedule)
    home = {layer: group.title for group in facts for layer in group.layers}
    rows = []
    for box in boxes:
        name = best.schedule.context.layers[box.number].name
        kept = scopes.get(box.number, Scope.LB)
        label = name if kept is Scope.LB else f"{name} ({kept.name})"
        centre = (box.top + box.bottom) / 2
        rows.append((*_place(box), box.middle, centre, name, label, kept.name, home[box.number]))
    return Columns.of("left right top bottom middle centre name label scope group", rows)


def _edge_rows(plan: Layout) -> Iterator[tuple[float, ...]]:
    """Yield points of lines through up to four of them, past others' rows at their side."""
    places = {box.number: box for box in plan.layers or plan.groups}
    for number, (maker, reader) in enumerate(plan.edges):
        for point, (left, top) in enumerate(_way(places[maker], places[reader])):
            yield number, point, left, top


def _way(maker: Box, reader: Box) -> list[tuple[float, float]]:
    begin, end = (maker.middle, maker.bottom - 0.1), (reader.middle, reader.top + 0.1)
    passed = reader.top - maker.bottom
    if math.isclose(passed, _NEXT):  # up to the sub-graph, not through its title
        return [begin, (reader.middle, reader.top - 1)]
    if passed < 1 or abs(maker.middle - reader.middle) > WIDEST / 2:
        return [begin, end]
    # those that go farther lean out farther, so that they do not lie on each other
    lean = min(0.03 + 0.012 * passed, 0.12)
    side = min(max(maker.right, reader.right) + lean, _RIGHTMOST)
    return [begin, (side, maker.bottom + 0.4), (side, reader.top - 0.4), end]
