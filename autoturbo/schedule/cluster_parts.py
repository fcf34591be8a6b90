"""Sub-graphs cut into a part for every cluster, and those as they were cut before."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numba import njit

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import GraphArrays, Ints
from autoturbo.schedule.clusters import cluster_axes
from autoturbo.schedule.cut_batch import CutBatch, cut_batch, regions_at
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.instances import box_at, box_regions
from autoturbo.schedule.problem import LayerArrays, Problem
from autoturbo.schedule.split import (
    AxisTable,
    Split,
    SplitColumn,
    Workspace,
    axis_table,
    note_operators,
    peak_bytes,
    peak_in,
    ways_of,
    whole_workspace,
)

_DOUBLINGS = 6
"""How often parts that do not fit are halved."""


def shared_out(
    problem: Problem, subgraphs: Sequence[SubGraph], kind: str, rooms: Sequence[int]
) -> Ints:
    """Cut sub-graphs into parts for clusters: rows of :class:`SplitColumn`.

    Their factors count parts of the whole, and are divided among the clusters as far as the parts
    then fit. What clusters cannot share out stays as it is.

    Args:
        problem: where they come from.
        subgraphs: with their splits for one cluster, along one axis at most.
        kind: one of :data:`autoturbo.schedule.clusters.PARTS`.
        rooms: bytes of the local buffers of a cluster that parts of each may take.
    """
    rows = np.asarray([s.split.row for s in subgraphs], np.int64).reshape(-1, len(SplitColumn))
    over = cluster_axes(problem, kind)[[s.layers[-1] for s in subgraphs]]
    batch = cut_batch(problem, [(s.layers, ()) for s in subgraphs])
    found: Ints = _shared_out(
        problem.arrays, problem.layer_arrays, axis_table(problem), batch, rows, over,
        np.asarray(rooms, np.int64), problem.target.clusters,
    )  # fmt: skip
    return found


def middle_bytes(problem: Problem, layers: tuple[int, ...], split: Split) -> int:
    """Bytes of local buffers that the middle part needs, remembered."""
    key = ("middle", layers, split.axes)
    found = problem.books.get(key)
    if not isinstance(found, int):
        found = _middle_bytes(problem, layers, split)
        problem.books[key] = found
    return found


def _middle_bytes(problem: Problem, layers: tuple[int, ...], split: Split) -> int:
    inner, parts = split.inner_factor, math.prod(factor for _, factor in split.axes)
    middle = box_at(problem, layers, split, parts // inner // 2 * inner + inner // 2)
    shape = box_regions(problem, layers, middle)
    return int(peak_bytes(
        problem.arrays, problem.layer_arrays, np.asarray(layers, np.int64), shape.low, shape.high,
        shape.seen,
    ))  # fmt: skip


@borrowing
def depth_of(t: AxisTable, last: int, axis: int) -> int:
    """Depth of an axis that a layer's output can be cut along, -1 for another."""
    for way in ways_of(t, 0, last):
        if t.ways[way, 1] == axis:
            return int(t.ways[way, 0])
    return -1


@borrowing
def extent_of(t: AxisTable, last: int, axis: int) -> int:
    """Extent of an axis that a layer's output can be cut along, 0 for another."""
    for way in ways_of(t, 0, last):
        if t.ways[way, 1] == axis:
            return int(t.ways[way, 2])
    return 0


@njit(cache=True)
def _shared_out(
    g: GraphArrays,
    a: LayerArrays,
    t: AxisTable,
    b: CutBatch,
    splits: Ints,
    over: Ints,
    rooms: Ints,
    clusters: int,
) -> Ints:
    """The fewest parts that fit, none larger than a part was before."""
    found, r = splits.copy(), whole_workspace(g, a)
    cut, bounds = np.empty((2, 2), np.int64), np.empty((2, 2), np.int64)
    for at in range(len(splits)):
        if over[at] < 0:
            continue
        row, layers = found[at], b.layers[b.layer_start[at] : b.layer_start[at + 1]]
        last, ops = layers[-1], r.ops[: note_operators(a, layers, r.ops)]
        factor, cut_before = max(row[SplitColumn.FACTOR], 1), row[SplitColumn.AXIS]
        row[SplitColumn.AXIS], row[SplitColumn.DEPTH] = over[at], depth_of(t, last, over[at])
        if cut_before < 0 or cut_before == over[at]:
            most = extent_of(t, last, over[at]) // clusters
            least = min(-(-factor // clusters), most) if cut_before >= 0 else 1
            _along_one(g, a, layers, ops, row, cut, bounds, r, least, most, clusters, rooms[at])
        else:
            extent = extent_of(t, last, cut_before)
            _along_two(
                g, a, layers, ops, row, cut, bounds, r, cut_before, extent, factor, clusters,
                rooms[at],
            )  # fmt: skip
    return found


@borrowing
def _along_one(
    g: GraphArrays,
    a: LayerArrays,
    layers: Ints,
    ops: Ints,
    row: Ints,
    cut: Ints,
    bounds: Ints,
    r: Workspace,
    least: int,
    most: int,
    clusters: int,
    room: int,
) -> None:
    """Cut into parts for clusters, and those along the same axis; into the least if none fit."""
    for doubling in range(_DOUBLINGS):
        if doubling and least << doubling > most:
            break
        _set(row, cut, clusters * (least << doubling), -1, 1)
        if _needed(g, a, layers, ops, row, cut, bounds, r) <= room:
            return
    _set(row, cut, clusters * least, -1, 1)
    _needed(g, a, layers, ops, row, cut, bounds, r)


@borrowing
def _along_two(
    g: GraphArrays,
    a: LayerArrays,
    layers: Ints,
    ops: Ints,
    row: Ints,
    cut: Ints,
    bounds: Ints,
    r: Workspace,
    inner_axis: int,
    extent: int,
    most: int,
    clusters: int,
    room: int,
) -> None:
    """Cut into a part for each cluster, and those along another axis; into the most if none fit."""
    for parts in range(-(-most // clusters), most + 1):
        if parts == most or extent % parts == 0:
            _set(row, cut, clusters, inner_axis, parts)
            if _needed(g, a, layers, ops, row, cut, bounds, r) <= room:
                return


@borrowing
def _set(row: Ints, cut: Ints, factor: int, inner_axis: int, inner: int) -> None:
    """Note a split, and the axes that it cuts with their parts."""
    if inner <= 1:
        inner_axis, inner = -1, 1
    row[SplitColumn.FACTOR] = factor
    row[SplitColumn.INNER_AXIS], row[SplitColumn.INNER_FACTOR] = inner_axis, inner
    cut[0, 0], cut[0, 1], cut[1, 0], cut[1, 1] = row[SplitColumn.AXIS], inner_axis, factor, inner


@borrowing
def _needed(
    g: GraphArrays,
    a: LayerArrays,
    layers: Ints,
    ops: Ints,
    row: Ints,
    cut: Ints,
    bounds: Ints,
    r: Workspace,
) -> int:
    """Bytes of local buffers that the middle part needs; notes them."""
    axes, inner = (2 if cut[0, 1] >= 0 else 1), cut[1, 1]
    middle = cut[1, 0] // 2 * inner + inner // 2
    regions_at(g, ops, cut[0, :axes], cut[1, :axes], middle, bounds, r)
    found: int = peak_in(g, a, layers, r.low, r.high, r.seen, r.last, r.made)
    row[SplitColumn.FOOTPRINT] = found
    return found
