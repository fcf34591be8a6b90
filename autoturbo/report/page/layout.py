"""Places of layers and sub-graphs in the graph view: rows from inputs to outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


def layout(schedule: Schedule) -> Layout:
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
    """Rows of a sub-graph: a title, and its layers."""
    return 1.0 + (1 + max(ranks.values()) if ranks else 0) + 0.2


def _inner(layers: Sequence[int], edges: Sequence[Edge]) -> dict[int, int]:
    """The row of each layer of a sub-graph."""
    own = set(layers)
    return _ranks(layers, [(a, b) for a, b in edges if a in own and b in own])


def _ranks(nodes: Sequence[int], edges: Sequence[Edge]) -> dict[int, int]:
    """Longest way from a node that reads nothing; nodes come in topological order."""
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
    """Rows of nodes, each ordered by where what it reads from stands."""
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
    """The layers of a sub-graph inside its box, below its title."""
    width = group.right - group.left
    found = []
    for rank, row in enumerate(_rows(ranks)):
        for column, layer in enumerate(row):
            own = min(width / len(row), WIDEST)
            middle = group.left + width * (column + 0.5) / len(row)
            top = group.top + 1 + rank
            found.append(Box(layer, top, top + 1, middle - own / 2, middle + own / 2))
    return found
