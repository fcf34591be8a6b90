"""How a sub-graph is cut in the end, decision by decision: compiled code is held against it."""

from __future__ import annotations

import math

from autoturbo.errors import KnobsError
from autoturbo.schedule.cluster_parts import middle_bytes
from autoturbo.schedule.clusters import PARTS, cluster_axis
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.knobs import AUTO, SubGraphKnobs
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.split import Split, sink, split_axes

Cut = tuple[int, int]
"""An axis and its parts."""


def plainly_settled(
    problem: Problem,
    subgraph: SubGraph,
    scale: int,
    own: SubGraphKnobs | None,
    kind: str,
    room: int,
) -> SubGraph:
    """What :func:`autoturbo.schedule.own_splits.settled` says."""
    found = _scaled(problem, subgraph, scale)
    if own is not None:
        found = _overridden(problem, found, own)
    axis = cluster_axis(problem, subgraph.layers, kind) if kind in PARTS else -1
    if axis < 0:
        return found
    if own is not None and {own.dim, own.factor, own.inner_factor} != {AUTO}:
        return _exact(problem, found, axis)
    return _scaled(problem, _divided(problem, subgraph, axis, room), scale)


def _extent(problem: Problem, subgraph: SubGraph, axis: int) -> int:
    return sink(problem, subgraph.layers).axes[axis].extent


def _scaled(problem: Problem, subgraph: SubGraph, scale: int) -> SubGraph:
    split, ways = subgraph.split, split_axes(problem, subgraph.layers)
    if scale == 1:
        return subgraph
    if split.inner_axis >= 0:
        parts = split.inner_factor * scale
        if _extent(problem, subgraph, split.inner_axis) % parts:
            return subgraph
        return _recut(subgraph, split.axis, split.factor, split.depth, (split.inner_axis, parts))
    depth, axis = split.depth, split.axis
    if axis < 0:
        if not ways or split.instances > 1:
            return subgraph
        depth, axis = ways[0]
    parts = split.instances * scale
    if _extent(problem, subgraph, axis) % parts:
        return subgraph
    return _recut(subgraph, axis, parts, depth)


def _recut(
    subgraph: SubGraph, axis: int, factor: float, depth: int, inner: Cut = (-1, 1)
) -> SubGraph:
    own = subgraph.split
    return subgraph.recut(Split(axis, factor, depth, own.operators, own.footprint, *inner))


def _overridden(problem: Problem, subgraph: SubGraph, own: SubGraphKnobs) -> SubGraph:
    found = subgraph
    try:
        if own.dim != AUTO or own.factor != AUTO:
            found = _forced(problem, found, own)
        if own.inner_factor != AUTO:
            found = _inner(problem, found, own)
    except KnobsError:
        if problem.layers[subgraph.layers[-1]].name == own.layer:
            raise
    return found


def _forced(problem: Problem, subgraph: SubGraph, own: SubGraphKnobs) -> SubGraph:
    ways, split = dict(split_axes(problem, subgraph.layers)), subgraph.split
    depth = split.depth if split.axis >= 0 else min(ways, default=0)
    if own.dim != AUTO:
        depth = int(own.dim)
    parts = split.instances if own.factor == AUTO else max(int(own.factor), 1)
    axis = _splittable(problem, subgraph, depth, parts)
    return subgraph.recut(Split(axis if parts > 1 else -1, parts, depth, 0, split.footprint))


def _inner(problem: Problem, subgraph: SubGraph, own: SubGraphKnobs) -> SubGraph:
    split, parts = subgraph.split, int(own.inner_factor)
    others = [d for d, a in split_axes(problem, subgraph.layers) if a != split.axis]
    depth = min(others, default=0) if own.inner_dim == AUTO else int(own.inner_dim)
    axis = _splittable(problem, subgraph, depth, parts)
    if parts == 1 or axis == split.axis:
        return subgraph
    if split.axis < 0:
        return _recut(subgraph, axis, parts, depth, (split.inner_axis, split.inner_factor))
    return _recut(subgraph, split.axis, split.factor, split.depth, (axis, parts))


def _splittable(problem: Problem, subgraph: SubGraph, depth: int, parts: int) -> int:
    axis = dict(split_axes(problem, subgraph.layers)).get(depth, -1)
    if parts > 1 and (axis < 0 or parts > _extent(problem, subgraph, axis)):
        name = problem.layers[subgraph.layers[-1]].name
        raise KnobsError(f"{name} cannot be split into {parts} along dimension {depth}")
    return axis


def _exact(problem: Problem, subgraph: SubGraph, axis: int) -> SubGraph:
    name = problem.layers[subgraph.layers[-1]].name
    others = [pair for pair in subgraph.split.axes if pair[0] != axis]
    own = dict(subgraph.split.axes).get(axis, 1)
    if len(others) > 1:
        raise KnobsError(f"{name} cannot be split along two axes more than its clusters")
    parts = own * problem.target.clusters
    if parts > _extent(problem, subgraph, axis):
        raise KnobsError(f"{name} cannot be split into {own} on each of its clusters")
    return _cut(problem, subgraph, (axis, parts), others[0] if others else (-1, 1))


def _divided(problem: Problem, subgraph: SubGraph, axis: int, room: int) -> SubGraph:
    clusters, extent = problem.target.clusters, _extent(problem, subgraph, axis)
    others = [pair for pair in subgraph.split.axes if pair[0] != axis]
    if others:
        inner, parts = others[0]
        along = _extent(problem, subgraph, inner)
        counts = [n for n in range(math.ceil(parts / clusters), parts) if along % n == 0]
        tried = [((axis, clusters), (inner, n)) for n in (*counts, parts)]
    else:
        parts, most = dict(subgraph.split.axes).get(axis, 1), extent // clusters
        least = min(math.ceil(parts / clusters), most)
        counts = [least << n for n in range(6) if n == 0 or least << n <= most]
        tried = [((axis, clusters * n), (-1, 1)) for n in counts]
    found = [_cut(problem, subgraph, *cuts) for cuts in tried]
    fitting = [s for s in found if s.split.footprint <= room]
    return fitting[0] if fitting else found[-1 if others else 0]


def _cut(problem: Problem, subgraph: SubGraph, outer: Cut, inner: Cut) -> SubGraph:
    depth = {axis: depth for depth, axis in split_axes(problem, subgraph.layers)}[outer[0]]
    found = _recut(subgraph, *outer, depth, inner if inner[1] > 1 else (-1, 1))
    needed = middle_bytes(problem, subgraph.layers, found.split)
    return found.recut(found.split.needing(needed))
