"""How a sub-graph is cut in the end: more parts, parts of its own choice, parts for clusters.

Everything here is about one sub-graph: grouping is over, and no other sub-graph's split matters.
:func:`settle` cuts many at once, :func:`settled` one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numba import njit

from autoturbo.compiled import borrowing
from autoturbo.errors import KnobsError, Location
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.cluster_parts import depth_of, extent_of, middle_bytes, shared_out
from autoturbo.schedule.clusters import PARTS, cluster_axis
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.knobs import AUTO, SubGraphKnobs, Value
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.split import (
    AxisTable,
    Split,
    SplitColumn,
    axis_table,
    sink,
    split_axes,
    ways_of,
)

UNSAID: Final = -1
"""Stands for ``"auto"`` in rows of :class:`Own`."""

_UNKNOWN: Final = -1
"""Footprint of a split that compiled code does not find out."""


class Own(IntEnum):
    """What is said of a sub-graph's split; factors count the parts of a cluster.

    The scale is instances over the smallest number that fits; ``NAMED`` is 1 where the layer named
    makes the output.
    """

    SCALE = 0
    DIM = 1
    FACTOR = 2
    INNER_DIM = 3
    INNER_FACTOR = 4
    NAMED = 5


class Wrong(IntEnum):
    """Why a sub-graph cannot be cut as is said of it."""

    NOTHING = 0
    SPLIT = 1
    AXES = 2
    CLUSTERS = 3


def room_for_parts(problem: Problem, lb_fill: float) -> int:
    """Bytes of a cluster's local buffers that the parts that clusters share out may take."""
    return int(problem.cluster_lb_bytes * lb_fill)


def own_row(scale: int, override: SubGraphKnobs | None, *, named: bool) -> list[int]:
    """What is said of a sub-graph's split, a row of :class:`Own`."""
    if override is None:
        return [scale, UNSAID, UNSAID, UNSAID, UNSAID, 0]
    said = (override.dim, override.factor, override.inner_dim, override.inner_factor)
    return [scale, *(_number(value) for value in said), int(named)]


def _number(value: Value) -> int:
    return UNSAID if value == AUTO else int(value)


def settled(
    problem: Problem,
    subgraph: SubGraph,
    scale: int,
    override: SubGraphKnobs | None,
    kind: str,
    room: int,
) -> SubGraph:
    """A sub-graph with its final split.

    Args:
        problem: where it comes from.
        subgraph: as it was grouped.
        scale: instances over the smallest number that fits.
        override: its own knobs; its factors count the parts of a cluster.
        kind: how clusters share out the work; where it is one of
            :data:`autoturbo.schedule.clusters.PARTS` each has parts of its own.
        room: of :func:`room_for_parts`.

    Raises:
        KnobsError: a split of its own that is impossible.
    """
    if scale == 1 and override is None and kind not in PARTS:
        return subgraph
    name, over = problem.layers[subgraph.layers[-1]].name, -1
    splits = shared = np.asarray([subgraph.split.row])
    if kind in PARTS:
        over = cluster_axis(problem, subgraph.layers, kind)
        shared = shared_out(problem, [subgraph], kind, [room])
    own = own_row(scale, override, named=override is not None and override.layer == name)
    found, wrong = settle(
        axis_table(problem), splits, shared,
        np.asarray(subgraph.layers[-1:]), np.asarray([over]), np.asarray([own]),
        problem.target.clusters,
    )  # fmt: skip
    if wrong[0, 0]:
        raise split_error(name, wrong[0].tolist())
    split = Split.of_row(found[0].tolist())
    if split.footprint == _UNKNOWN:
        split = split.needing(middle_bytes(problem, subgraph.layers, split))
    return subgraph.recut(split)


UNSPLIT: Final = SubGraphKnobs("")
"""Leaves all to the rules."""


def split_fields(own: SubGraphKnobs) -> dict[str, Any]:
    """Return the four knobs of a sub-graph that split it."""
    return {name: getattr(own, name) for name in ("dim", "factor", "inner_dim", "inner_factor")}


def possible_split(
    problem: Problem, subgraph: SubGraph, scale: int, own: SubGraphKnobs, kind: str, room: int
) -> SubGraphKnobs:
    """Return the knobs of a sub-graph with a split that it can have, the nearest to what they say.

    Args:
        problem: where it comes from.
        subgraph: as it was grouped.
        scale: instances over the smallest number that fits.
        own: its knobs.
        kind: how clusters share out the work.
        room: of :func:`room_for_parts`.
    """
    axes = dict(split_axes(problem, subgraph.layers))
    extents = sink(problem, subgraph.layers).axes

    def fewer(depth: Value, parts: Value) -> Value:
        if AUTO in (depth, parts) or int(depth) not in axes:
            return parts
        extent = extents[axes[int(depth)]].extent
        return next(n for n in range(min(int(parts), extent), 0, -1) if extent % n == 0)

    once = {"factor": fewer(own.dim, own.factor)}
    twice = {**once, "inner_factor": fewer(own.inner_dim, own.inner_factor)}
    whole = {**once, "inner_dim": AUTO, "inner_factor": AUTO}
    tries: tuple[dict[str, Any], ...] = ({}, twice, whole, split_fields(UNSPLIT))
    for changes in tries:
        tried = dataclasses.replace(own, **changes)
        with suppress(KnobsError):
            settled(problem, subgraph, scale, tried, kind, room)
            return tried
    return dataclasses.replace(own, **split_fields(UNSPLIT))


def split_error(name: str, wrong: Sequence[int]) -> KnobsError:
    """Return the error of a sub-graph that cannot be cut as is said of it.

    Args:
        name: of the layer that makes its output.
        wrong: of :func:`settle`.
    """
    message = f"{name} cannot be split {_reason(*wrong)}"
    return KnobsError(message, Location(field="overrides"))


def _reason(wrong: int, parts: int, depth: int) -> str:
    if wrong == Wrong.AXES:
        return "along two axes more than its clusters"
    if wrong == Wrong.CLUSTERS:
        return f"into {parts} on each of its clusters"
    return f"into {parts} along dimension {depth}"


@njit(cache=True)
def settle(
    table: AxisTable, splits: Ints, shared: Ints, lasts: Ints, over: Ints, own: Ints, clusters: int
) -> tuple[Ints, Ints]:
    """Final splits of sub-graphs.

    A split of its own that is impossible because other knobs moved the cuts, so that another layer
    makes the sub-graph's output, is left to the heuristic.

    Args:
        table: of the problem.
        splits: as they were grouped, rows of :class:`SplitColumn`.
        shared: the same of :func:`autoturbo.schedule.cluster_parts.shared_out`.
        lasts: last layers.
        over: axes along which clusters share out the output, -1 where they do not.
        own: what is said, rows of :class:`Own`.
        clusters: how many share.

    Returns:
        Rows of :class:`SplitColumn` (footprint -1: it is that of the middle part), and for each of
        :class:`Wrong` with the number of parts and the dimension that are impossible.
    """
    found, wrong = splits.copy(), np.zeros((len(splits), 3), np.int64)
    for at in range(len(splits)):
        last, row, said = lasts[at], found[at], own[at]
        decides = (
            said[Own.DIM] != UNSAID or said[Own.FACTOR] != UNSAID
            or said[Own.INNER_FACTOR] != UNSAID
        )  # fmt: skip
        if over[at] >= 0 and not decides:
            row[:] = shared[at]
        _scale(table, last, row, said[Own.SCALE])
        if decides:
            possible = _force(table, last, row, said, wrong[at])
            possible = possible and _cut_inside(table, last, row, said, wrong[at])
            if possible or not said[Own.NAMED]:
                wrong[at] = 0
                if over[at] >= 0:
                    _share(table, last, row, over[at], clusters, wrong[at])
    return found, wrong


@borrowing
def _axis_at(t: AxisTable, last: int, depth: int) -> int:
    """The axis of a dimension of a layer's output, -1 for none."""
    for way in ways_of(t, 0, last):
        if t.ways[way, 0] == depth:
            return int(t.ways[way, 1])
    return -1


@borrowing
def _outermost(t: AxisTable, last: int, besides: int) -> int:
    """The least depth along which an output can be cut, but for an axis; 0 for none."""
    found = -1
    for way in ways_of(t, 0, last):
        if t.ways[way, 1] != besides and (found < 0 or t.ways[way, 0] < found):
            found = t.ways[way, 0]
    return max(found, 0)


@borrowing
def _instances(row: Ints) -> int:
    return int(max(row[SplitColumn.FACTOR], 1) * row[SplitColumn.INNER_FACTOR])


@borrowing
def _scale(t: AxisTable, last: int, row: Ints, scale: int) -> None:
    """More instances than needed, where the innermost axis that is cut divides."""
    if scale == 1:
        return
    if row[SplitColumn.INNER_AXIS] >= 0:
        extent, factor = (
            extent_of(t, last, row[SplitColumn.INNER_AXIS]),
            row[SplitColumn.INNER_FACTOR] * scale,
        )
        if factor <= extent and extent % factor == 0:
            row[SplitColumn.INNER_FACTOR] = factor
        return
    axis, depth = row[SplitColumn.AXIS], row[SplitColumn.DEPTH]
    if axis < 0:
        first = t.start[last]
        if first == t.start[last + 1] or _instances(row) != 1:
            return
        axis, depth = t.ways[first, 1], t.ways[first, 0]
    extent, factor = extent_of(t, last, axis), _instances(row) * scale
    if factor <= extent and extent % factor == 0:
        row[SplitColumn.AXIS], row[SplitColumn.FACTOR], row[SplitColumn.DEPTH] = axis, factor, depth


@borrowing
def _fits(t: AxisTable, last: int, axis: int, parts: int, depth: int, wrong: Ints) -> bool:
    """Whether an output can be cut into so many parts; notes what is wrong if not."""
    if parts > 1 and (axis < 0 or parts > extent_of(t, last, axis)):
        wrong[0], wrong[1], wrong[2] = Wrong.SPLIT, parts, depth
        return False
    return True


@borrowing
def _force(t: AxisTable, last: int, row: Ints, said: Ints, wrong: Ints) -> bool:
    """Cut along the axis and into the parts that are said; False where that is impossible."""
    if said[Own.DIM] == UNSAID and said[Own.FACTOR] == UNSAID:
        return True
    depth = said[Own.DIM]
    if depth == UNSAID:
        depth = row[SplitColumn.DEPTH] if row[SplitColumn.AXIS] >= 0 else _outermost(t, last, -1)
    parts = _instances(row) if said[Own.FACTOR] == UNSAID else max(said[Own.FACTOR], 1)
    axis = _axis_at(t, last, depth)
    if not _fits(t, last, axis, parts, depth, wrong):
        return False
    row[SplitColumn.AXIS], row[SplitColumn.FACTOR], row[SplitColumn.DEPTH] = (
        axis if parts > 1 else -1,
        parts,
        depth,
    )
    row[SplitColumn.OPERATORS], row[SplitColumn.INNER_AXIS], row[SplitColumn.INNER_FACTOR] = (
        0,
        -1,
        1,
    )
    return True


@borrowing
def _cut_inside(t: AxisTable, last: int, row: Ints, said: Ints, wrong: Ints) -> bool:
    """Cut a second axis inside every part; the outermost other one if none is said."""
    parts, depth = said[Own.INNER_FACTOR], said[Own.INNER_DIM]
    if parts == UNSAID:
        return True
    if depth == UNSAID:
        depth = _outermost(t, last, row[SplitColumn.AXIS])
    axis = _axis_at(t, last, depth)
    if not _fits(t, last, axis, parts, depth, wrong):
        return False
    if parts <= 1 or axis == row[SplitColumn.AXIS]:
        return True
    if row[SplitColumn.AXIS] < 0:
        row[SplitColumn.AXIS], row[SplitColumn.FACTOR], row[SplitColumn.DEPTH] = axis, parts, depth
    else:
        row[SplitColumn.INNER_AXIS], row[SplitColumn.INNER_FACTOR] = axis, parts
    return True


@borrowing
def _share(t: AxisTable, last: int, row: Ints, axis: int, clusters: int, wrong: Ints) -> None:
    """Cut into parts for clusters, each with the parts that are said."""
    own, inner_axis, inner_factor, others = 1, -1, 1, 0
    outer = _instances(row) // row[SplitColumn.INNER_FACTOR]
    for cut, parts in (
        (row[SplitColumn.AXIS], outer),
        (row[SplitColumn.INNER_AXIS], row[SplitColumn.INNER_FACTOR]),
    ):
        if cut == axis:
            own = parts
        elif cut >= 0:
            inner_axis, inner_factor, others = cut, parts, others + 1
    if others > 1:
        wrong[0] = Wrong.AXES
        return
    if own * clusters > extent_of(t, last, axis):
        wrong[0], wrong[1] = Wrong.CLUSTERS, own
        return
    if inner_factor <= 1:
        inner_axis, inner_factor = -1, 1
    row[SplitColumn.AXIS], row[SplitColumn.FACTOR], row[SplitColumn.DEPTH] = (
        axis,
        own * clusters,
        depth_of(t, last, axis),
    )
    row[SplitColumn.INNER_AXIS], row[SplitColumn.INNER_FACTOR] = inner_axis, inner_factor
    row[SplitColumn.FOOTPRINT] = _UNKNOWN
