"""A layered drawing of a graph: boxes in ranks from top to bottom, edges in lanes between them.

Every box lies below those that it reads. A rank has few boxes, so that a picture is narrow; an edge
over several ranks has a narrow lane in each of them, which all readers of one box share, so that
edges run beside boxes and not behind them. Ranks follow the longest path; the order inside follows
the mean place of neighbours; places across are as near to the neighbours' as the order allows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Edge = tuple[int, int]
"""Maker and reader."""

MOST_ABREAST: Final = 4
"""Boxes of a rank."""

LANE: Final = 0.03
"""Width of a lane, in widths of a box."""

_APART, _LANES_APART = 0.08, 0.04
"""Between neighbours of a rank, likewise, and between two lanes."""

_SWEEPS: Final = 8
"""Times that orders and places are brought nearer to neighbours', down and up."""

_FIRM: Final = 1000.0
"""How much more a box weighs than a lane: chains of boxes stay straight, lanes go round them."""


_INWARDS: Final = 0.8
"""How far from the middle a rank of several boxes wants to be, by what its neighbours are."""


@dataclass(frozen=True, slots=True)
class Place:
    """A box or a lane of a rank.

    Attributes:
        node: The node, or for a lane the node whose readers it leads to.
        rank: Number of the rank, counted from above.
        is_lane: Whether it is a lane.
    """

    node: int
    rank: int
    is_lane: bool = False

    @property
    def width(self) -> float:
        """Return its width, in widths of a box."""
        return LANE if self.is_lane else 1.0


@dataclass(frozen=True, slots=True)
class Drawing:
    """Positions of the boxes and lanes of a graph.

    Attributes:
        centres: Distance of each place from the left edge, in widths of a box.
        steps: Places one rank below that each place is joined to.
        ranks: Number of ranks.
        width: Width of the drawing, in widths of a box.
    """

    centres: Mapping[Place, float]
    steps: Mapping[Place, Sequence[Place]]
    ranks: int
    width: float


def drawing_of(count: int, edges: Sequence[Edge]) -> Drawing:
    """Return a graph laid out.

    Args:
        count: Nodes, numbered in topological order.
        edges: Between them, each once.
    """
    ranks = _ranks(count, edges)
    steps = _steps(ranks, edges)
    rows: list[list[Place]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for place in steps:
        rows[place.rank].append(place)
    above = _above(steps)
    rows = _ordered(rows, above, steps)
    centres = _centred(rows, above, steps)
    left = min((x - place.width / 2 for place, x in centres.items()), default=0.0)
    right = max((x + place.width / 2 for place, x in centres.items()), default=0.0)
    return Drawing({p: x - left for p, x in centres.items()}, steps, len(rows), right - left)


def _ranks(count: int, edges: Iterable[Edge]) -> list[int]:
    """Return each node's rank: below all that it reads, where there is room, near its readers."""
    makers: list[list[int]] = [[] for _ in range(count)]
    readers: list[list[int]] = [[] for _ in range(count)]
    for maker, reader in edges:
        makers[reader].append(maker)
        readers[maker].append(reader)
    held: dict[int, int] = {}
    ranks: list[int] = []
    for own in makers:
        rank = 1 + max((ranks[maker] for maker in own), default=-1)
        while held.get(rank, 0) == MOST_ABREAST:
            rank += 1
        held[rank] = held.get(rank, 0) + 1
        ranks.append(rank)
    # from below, so that a node's readers have their final ranks
    for node in reversed(range(count)):  # what reads little waits until it is needed
        if not readers[node] or len(makers[node]) > len(readers[node]):
            continue
        lowest = min(ranks[reader] for reader in readers[node]) - 1
        free = (r for r in range(lowest, ranks[node], -1) if held.get(r, 0) < MOST_ABREAST)
        rank = next(free, ranks[node])
        held[ranks[node]] -= 1
        held[rank] = held.get(rank, 0) + 1
        ranks[node] = rank
    used = {rank: number for number, rank in enumerate(sorted(set(ranks)))}
    return [used[rank] for rank in ranks]


def _steps(ranks: Sequence[int], edges: Iterable[Edge]) -> dict[Place, list[Place]]:
    """Return every place with those that it leads to, one lane per node down to its last reader."""
    steps: dict[Place, list[Place]] = {Place(n, rank): [] for n, rank in enumerate(ranks)}
    ways = {node: [Place(node, rank)] for node, rank in enumerate(ranks)}
    # nearer readers first: the lane then goes on from them to farther ones
    for maker, reader in sorted(edges, key=lambda edge: ranks[edge[1]]):
        way = ways[maker]
        while way[-1].rank < ranks[reader] - 1:
            lane = Place(maker, way[-1].rank + 1, is_lane=True)
            steps[way[-1]].append(lane)
            steps[lane] = []
            way.append(lane)
        steps[way[ranks[reader] - 1 - ranks[maker]]].append(Place(reader, ranks[reader]))
    return steps


def _above(steps: Mapping[Place, Sequence[Place]]) -> dict[Place, list[Place]]:
    above: dict[Place, list[Place]] = {place: [] for place in steps}
    for place, below in steps.items():
        for reached in below:
            above[reached].append(place)
    return above


_Neighbours = Mapping[Place, Sequence[Place]]


def _ordered(rows: list[list[Place]], above: _Neighbours, below: _Neighbours) -> list[list[Place]]:
    """Return the rows, each in the order of the mean places of neighbours."""
    at = {place: (i + 0.5) / len(row) for row in rows for i, place in enumerate(row)}
    for sweep in range(_SWEEPS + 1):  # the last one goes down
        down = sweep % 2 == 0
        for row in rows if down else rows[::-1]:
            means = {p: _mean([at[n] for n in (above if down else below)[p]], at[p]) for p in row}
            row.sort(key=lambda place: (means[place], place.node))
            at |= {place: (i + 0.5) / len(row) for i, place in enumerate(row)}
    return rows


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _centred(
    rows: Sequence[Sequence[Place]], above: _Neighbours, below: _Neighbours
) -> dict[Place, float]:
    """Return the centre of every place across, near those of its neighbours."""
    centres: dict[Place, float] = {}
    for row in rows:
        offsets = _offsets(row)
        middle = (offsets[-1] + row[-1].width / 2) / 2
        centres |= {p: x - middle for p, x in zip(row, offsets, strict=True)}
    for sweep in range(_SWEEPS + 1):
        down = sweep % 2 == 0
        for row in rows if down else rows[::-1]:
            wanted = _wanted(row, above if down else below, centres)
            centres |= dict(zip(row, _spread(row, wanted), strict=True))
    return centres


def _wanted(row: Sequence[Place], near: _Neighbours, centres: Mapping[Place, float]) -> list[float]:
    """Return where the places of a row would like to be: below or above their neighbours.

    The only box of a rank wants to be in the middle, and several a little nearer to it: without
    that, blocks whose lanes are on one side move a picture to the other, a little each.
    """
    alone = sum(not place.is_lane for place in row) == 1
    means = [_mean([centres[n] for n in _firm(near[place])], centres[place]) for place in row]
    if alone:
        return [m if place.is_lane else 0.0 for place, m in zip(row, means, strict=True)]
    return [_INWARDS * mean for mean in means]


def _firm(neighbours: Sequence[Place]) -> Sequence[Place]:
    """Return those neighbours that a place lies below or above: boxes, lanes if there are none."""
    return [place for place in neighbours if not place.is_lane] or neighbours


def _offsets(row: Sequence[Place]) -> list[float]:
    """Return the centres of a row whose places stand as close as they may."""
    gaps = (
        (one.width + two.width) / 2 + (_LANES_APART if one.is_lane and two.is_lane else _APART)
        for one, two in itertools.pairwise(row)
    )
    return list(itertools.accumulate(gaps, initial=row[0].width / 2))


def _spread(row: Sequence[Place], wanted: Sequence[float]) -> list[float]:
    """Return centres nearest to those wanted, by weighted squares, that do not overlap.

    Less the offsets of a tight row the centres only have to ascend, which is an isotonic
    regression: neighbours that would descend are pooled at their mean.
    """
    offsets = _offsets(row)
    pools: list[list[float]] = []  # weight, mean, places
    for place, want, offset in zip(row, wanted, offsets, strict=True):
        weight = 1.0 if place.is_lane else _FIRM
        pools.append([weight, want - offset, 1])
        while len(pools) > 1 and pools[-2][1] > pools[-1][1]:
            weight, mean, number = pools.pop()
            last = pools[-1]
            total = last[0] + weight
            pools[-1] = [total, (last[0] * last[1] + weight * mean) / total, last[2] + number]
    shifts = (mean for _, mean, number in pools for _ in range(int(number)))
    return [offset + shift for offset, shift in zip(offsets, shifts, strict=True)]
