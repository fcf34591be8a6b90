"""Which overrides hold for which sub-graph, and how each is cut in the end.

Grouping is over: a sub-graph gets more parts, parts of its own choice, or parts for clusters, and
no other sub-graph's split matters.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from autoturbo.errors import KnobsError, Location
from autoturbo.schedule.knobs import AUTO, Knobs, Stage, SubGraphKnobs, Value, knob_names
from autoturbo.schedule.partition.clusters import PARTS, cluster_axis
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.split import Split, box_cost, sink, split_axes
from autoturbo.schedule.place.instances import boxes_of
from autoturbo.schedule.problem import Problem
from autoturbo.stores import remembered

Cut = tuple[int, int]
"""An axis and its parts."""

_HALVINGS: Final = 6
"""How often parts for clusters that do not fit are halved."""


def resolve(
    problem: Problem, subgraphs: Iterable[SubGraph], knobs: Knobs
) -> dict[int, SubGraphKnobs]:
    """The override of each sub-graph that has one, by :attr:`SubGraph.index`.

    An override names a layer because cuts move with other knobs. Where several such layers share
    a sub-graph, each field is that of the last of them, in topological order, that sets it; the
    result carries that layer's name.

    Args:
        problem: the model.
        subgraphs: all of them.
        knobs: the setting.

    Raises:
        KnobsError: an override names a layer that the model has not.
    """
    if not knobs.overrides:
        return {}
    layers = problem.layer_index
    for override in knobs.overrides:
        if override.layer not in layers:
            at = Location(field="overrides")
            raise KnobsError(f"the model has no layer {override.layer!r}", at)
    named = {layers[override.layer] for override in knobs.overrides}
    owner = {layer: s.index for s in subgraphs for layer in named.intersection(s.layers)}
    found: dict[int, SubGraphKnobs] = {}
    for override in sorted(knobs.overrides, key=lambda o: layers[o.layer]):
        index = owner[layers[override.layer]]
        found[index] = override.over(found[index]) if index in found else override
    return found


def settled(
    problem: Problem,
    subgraph: SubGraph,
    scale: int,
    override: SubGraphKnobs | None,
    kind: str,
    room: int,
) -> SubGraph:
    """Return a sub-graph with its final split.

    Args:
        problem: where it comes from.
        subgraph: as it was grouped.
        scale: instances over the smallest number that fits.
        override: its own knobs; its factors count the parts of a cluster.
        kind: how clusters share out the work; where it is one of
            :data:`autoturbo.schedule.partition.clusters.PARTS` each has parts of its own.
        room: bytes of local buffers that a part may take.

    Raises:
        KnobsError: a split of its own that is impossible.
    """
    if scale == 1 and override is None and kind not in PARTS:
        return subgraph
    axis = cluster_axis(problem, subgraph.layers, kind) if kind in PARTS else -1
    if override is None or {override.dim, override.factor, override.inner_factor} == {AUTO}:
        shared = subgraph if axis < 0 else _divided(problem, subgraph, axis, room)
        return _scaled(problem, shared, scale)
    splits = tuple(split_fields(override).items())
    found = _overridden(problem, subgraph, scale, override.layer, splits)
    return found if axis < 0 else _on_each_cluster(problem, found, axis)


UNSPLIT: Final = SubGraphKnobs("")
"""Leaves all to the rules."""


def split_fields(own: SubGraphKnobs) -> dict[str, Any]:
    """Return the four knobs of a sub-graph that split it."""
    return {name: getattr(own, name) for name in knob_names("subgraph", upto=Stage.PARTITION)}


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
        room: bytes of local buffers that a part may take.
    """
    axes = dict(split_axes(problem, subgraph.layers))

    def fewer(depth: Value, parts: Value) -> Value:
        if AUTO in (depth, parts) or int(depth) not in axes:
            return parts
        extent = _extent(problem, subgraph, axes[int(depth)])
        return next(n for n in range(min(int(parts), extent), 0, -1) if extent % n == 0)

    once = {"factor": fewer(own.dim, own.factor)}
    twice = {**once, "inner_factor": fewer(own.inner_dim, own.inner_factor)}
    whole = {**once, **dict.fromkeys(knob_names("subgraph", group="inner"), AUTO)}
    tries: tuple[dict[str, Any], ...] = ({}, twice, whole, split_fields(UNSPLIT))
    for changes in tries:
        tried = dataclasses.replace(own, **changes)
        with suppress(KnobsError):
            settled(problem, subgraph, scale, tried, kind, room)
            return tried
    return dataclasses.replace(own, **split_fields(UNSPLIT))


def _extent(problem: Problem, subgraph: SubGraph, axis: int) -> int:
    return sink(problem, subgraph.layers).axes[axis].extent


def _recut(problem: Problem, subgraph: SubGraph, *cuts: Cut) -> SubGraph:
    """Return a sub-graph cut along one axis or two; what its split was chosen for stays noted."""
    axis, parts = cuts[0]
    depth = {axis: depth for depth, axis in split_axes(problem, subgraph.layers)}[axis]
    own, inner = subgraph.split, itertools.chain.from_iterable(cuts[1:])
    return subgraph.recut(Split(axis, parts, depth, own.operators, own.footprint, *inner))


def _error(problem: Problem, subgraph: SubGraph, reason: str) -> KnobsError:
    name = problem.layers[subgraph.layers[-1]].name
    return KnobsError(f"{name} cannot be split {reason}", Location(field="overrides"))


def _scaled(problem: Problem, subgraph: SubGraph, scale: int) -> SubGraph:
    """Return more instances than needed, where the innermost axis that is cut divides."""
    cuts = (
        subgraph.split.axes or [(axis, 1) for _, axis in split_axes(problem, subgraph.layers)][:1]
    )
    if scale == 1 or not cuts:
        return subgraph
    *outer, (axis, parts) = cuts
    if _extent(problem, subgraph, axis) % (parts * scale):
        return subgraph
    return _recut(problem, subgraph, *outer, (axis, parts * scale))


@remembered(1 << 14)
def _overridden(
    problem: Problem, grouped: SubGraph, scale: int, layer: str, splits: tuple[tuple[str, Any], ...]
) -> SubGraph:
    """Return a sub-graph cut as the knobs of a layer that split it say, remembered.

    A split that is impossible because other knobs moved the cuts, so that another layer makes the
    sub-graph's output, is left to the heuristic.

    Raises:
        KnobsError: it is impossible, and the knobs name the layer that makes the output.
    """
    own, subgraph = SubGraphKnobs(layer, **dict(splits)), _scaled(problem, grouped, scale)
    found = subgraph
    try:
        if own.dim != AUTO or own.factor != AUTO:
            found = _forced(problem, found, own)
        if own.inner_factor != AUTO:
            found = _cut_inside(problem, found, own)
    except KnobsError:
        if problem.layers[subgraph.layers[-1]].name == own.layer:
            raise
    return found


def _forced(problem: Problem, subgraph: SubGraph, own: SubGraphKnobs) -> SubGraph:
    """Return a sub-graph cut along the axis and into the parts that are said."""
    ways, split = dict(split_axes(problem, subgraph.layers)), subgraph.split
    depth = split.depth if split.axis >= 0 else min(ways, default=0)
    if own.dim != AUTO:
        depth = int(own.dim)
    parts = split.instances if own.factor == AUTO else max(int(own.factor), 1)
    axis = _axis_for(problem, subgraph, depth, parts)
    return subgraph.recut(Split(axis if parts > 1 else -1, parts, depth, 0, split.footprint))


def _cut_inside(problem: Problem, subgraph: SubGraph, own: SubGraphKnobs) -> SubGraph:
    """Return a sub-graph with every part cut along a second axis; the outermost if none is said."""
    split, parts = subgraph.split, int(own.inner_factor)
    others = [d for d, axis in split_axes(problem, subgraph.layers) if axis != split.axis]
    depth = min(others, default=0) if own.inner_dim == AUTO else int(own.inner_dim)
    axis = _axis_for(problem, subgraph, depth, parts)
    if parts == 1 or axis == split.axis:
        return subgraph
    return _recut(problem, subgraph, *split.axes[:1], (axis, parts))


def _axis_for(problem: Problem, subgraph: SubGraph, depth: int, parts: int) -> int:
    """Return the axis of a dimension of the output, -1 for none.

    Raises:
        KnobsError: it cannot be cut into so many parts.
    """
    axis = dict(split_axes(problem, subgraph.layers)).get(depth, -1)
    if parts > 1 and (axis < 0 or parts > _extent(problem, subgraph, axis)):
        raise _error(problem, subgraph, f"into {parts} along dimension {depth}")
    return axis


def _on_each_cluster(problem: Problem, subgraph: SubGraph, axis: int) -> SubGraph:
    """Return a sub-graph cut into a part for every cluster, each with the parts that are said."""
    others = [pair for pair in subgraph.split.axes if pair[0] != axis]
    own = dict(subgraph.split.axes).get(axis, 1)
    if len(others) > 1:
        raise _error(problem, subgraph, "along two axes more than its clusters")
    parts = own * problem.target.clusters
    if parts > _extent(problem, subgraph, axis):
        raise _error(problem, subgraph, f"into {own} on each of its clusters")
    return _needing(problem, subgraph, (axis, parts), *others)


def _divided(problem: Problem, subgraph: SubGraph, axis: int, room: int) -> SubGraph:
    """Return a sub-graph cut into parts for clusters, and those as it was cut before.

    Factors count parts of the whole, and are divided among the clusters as far as the parts then
    fit: the fewest parts that do, none larger than a part was before.
    """
    clusters, extent = problem.target.clusters, _extent(problem, subgraph, axis)
    others = [pair for pair in subgraph.split.axes if pair[0] != axis]
    tried: list[tuple[Cut, ...]]
    if others:
        inner, parts = others[0]
        along = _extent(problem, subgraph, inner)
        counts = [n for n in range(math.ceil(parts / clusters), parts) if along % n == 0]
        tried = [((axis, clusters), (inner, n)) for n in (*counts, parts)]
    else:
        parts, most = dict(subgraph.split.axes).get(axis, 1), extent // clusters
        least = min(math.ceil(parts / clusters), most)
        doubled = [least << n for n in range(_HALVINGS)]
        tried = [((axis, clusters * n),) for n in doubled if n == least or n <= most]
    found = (_needing(problem, subgraph, *cuts) for cuts in tried)
    last = tried[-1] if others else tried[0]
    fitting = (one for one in found if one.split.footprint <= room)
    return next(fitting, None) or _needing(problem, subgraph, *last)


def _needing(problem: Problem, subgraph: SubGraph, *cuts: Cut) -> SubGraph:
    """Return a sub-graph cut along one axis or two, with what its middle part needs."""
    outer, *inner = cuts
    found = _recut(problem, subgraph, outer, *(pair for pair in inner if pair[1] > 1))
    footprint = _middle_bytes(problem, found)
    return found.recut(dataclasses.replace(found.split, footprint=footprint))


@remembered(1 << 14)
def _middle_bytes(problem: Problem, subgraph: SubGraph) -> int:
    """Return the bytes of local buffers that the middle part needs, remembered."""
    layers, split = subgraph.layers, subgraph.split
    inner, parts = split.inner_factor, math.prod(factor for _, factor in split.axes)
    middle = boxes_of(problem, layers, split)[parts // inner // 2 * inner + inner // 2]
    return box_cost(problem, layers, middle.axes, middle.bounds).footprint
