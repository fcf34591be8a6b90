"""Overrides of sub-graphs, and the final split of each.

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

from autoturbo.caches import remembered
from autoturbo.errors import KnobsError, Location
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.knobs import AUTO, Knobs, Stage, SubGraphKnobs, Value, knob_names
from autoturbo.schedule.partition.boxes import boxes_of
from autoturbo.schedule.partition.clusters import PARTS, cluster_axis
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.split import Split, box_cost, extent_of, split_axes

Cut = tuple[int, int]
"""An axis and its parts."""

_HALVINGS: Final = 6
"""How often parts for clusters that do not fit are halved."""


def resolve(
    context: SchedulingContext, subgraphs: Iterable[SubGraph], knobs: Knobs
) -> dict[int, SubGraphKnobs]:
    """Return the override of each sub-graph that has one, by :attr:`SubGraph.index`.

    An override names a layer because partitions change with other knobs. Where several such layers
    share a sub-graph, each field is that of the last of them, in topological order, that sets it;
    the result carries that layer's name.

    Raises:
        KnobsError: An override names a layer that the model does not have.
    """
    if not knobs.overrides:
        return {}
    layers, named = context.layer_index, set[int]()
    for override in knobs.overrides:
        if override.layer not in layers:
            place = Location(field="overrides")
            raise KnobsError(f"the model has no layer {override.layer!r}", place)
        named.add(layers[override.layer])
    owner = {layer: s.index for s in subgraphs for layer in named.intersection(s.layers)}
    by_subgraph: dict[int, SubGraphKnobs] = {}
    for override in sorted(knobs.overrides, key=lambda o: layers[o.layer]):
        index = owner[layers[override.layer]]
        by_subgraph[index] = override.over(by_subgraph[index]) if index in by_subgraph else override
    return by_subgraph


def settled(
    context: SchedulingContext,
    subgraph: SubGraph,
    scale: int,
    override: SubGraphKnobs | None,
    kind: str,
    room: int,
) -> SubGraph:
    """Return a sub-graph with its final split.

    Args:
        context: The context that the sub-graph comes from.
        subgraph: The sub-graph as it was grouped.
        scale: Instances over the smallest number that fits.
        override: Its own knobs; its factors count the parts of a cluster.
        kind: Way in which clusters divide the work; each has parts of its own if it is one of
            :data:`autoturbo.schedule.partition.clusters.PARTS`.
        room: Bytes of local buffers that a part may take.

    Raises:
        KnobsError: A split of its own that is impossible.
    """
    if scale == 1 and override is None and kind not in PARTS:
        return subgraph
    axis = cluster_axis(context, subgraph.layers, kind) if kind in PARTS else -1
    if override is None or {override.dim, override.factor, override.inner_factor} == {AUTO}:
        shared = subgraph if axis < 0 else _divided(context, subgraph, axis, room)
        return _scaled(context, shared, scale)
    requested = override.dim, override.factor, override.inner_dim, override.inner_factor
    settled_subgraph = _overridden(context, subgraph, scale, override.layer, requested)
    return settled_subgraph if axis < 0 else _on_each_cluster(context, settled_subgraph, axis)


UNSPLIT: Final = SubGraphKnobs("")
"""Leaves all to the rules."""


def split_fields(own: SubGraphKnobs) -> dict[str, Any]:
    """Return the four knobs of a sub-graph that split it."""
    return {name: getattr(own, name) for name in knob_names("subgraph", upto=Stage.PARTITION)}


def possible_split(
    context: SchedulingContext,
    subgraph: SubGraph,
    scale: int,
    own: SubGraphKnobs,
    kind: str,
    room: int,
) -> SubGraphKnobs:
    """Return the knobs of a sub-graph with the possible split nearest to the requested one.

    Args:
        context: The context that the sub-graph comes from.
        subgraph: The sub-graph as it was grouped.
        scale: Instances over the smallest number that fits.
        own: The sub-graph's knobs, which may ask for an impossible split.
        kind: The way in which clusters divide the work.
        room: Bytes of local buffers that a part may take.
    """
    axes = dict(split_axes(context, subgraph.layers))

    def fewer(depth: Value, parts: Value) -> Value:
        if AUTO in (depth, parts) or int(depth) not in axes:
            return parts
        extent = extent_of(context, subgraph.layers, axes[int(depth)])
        return next(n for n in range(min(int(parts), extent), 0, -1) if extent % n == 0)

    once: dict[str, Any] = {"factor": fewer(own.dim, own.factor)}
    twice = {**once, "inner_factor": fewer(own.inner_dim, own.inner_factor)}
    whole = {**once, **dict.fromkeys(knob_names("subgraph", group="inner"), AUTO)}
    # As asked, else in fewer parts, else without the inner split: the least change first.
    for changes in ({}, twice, whole):
        tried = dataclasses.replace(own, **changes)
        with suppress(KnobsError):
            settled(context, subgraph, scale, tried, kind, room)
            return tried
    return dataclasses.replace(own, **split_fields(UNSPLIT))


def _recut(context: SchedulingContext, subgraph: SubGraph, *cuts: Cut) -> SubGraph:
    """Return a sub-graph split along one axis or two; it keeps the reason of its split."""
    axis, parts = cuts[0]
    depth = {axis: depth for depth, axis in split_axes(context, subgraph.layers)}[axis]
    before, inner = subgraph.split, itertools.chain.from_iterable(cuts[1:])
    return subgraph.recut(Split(axis, parts, depth, before.operators, before.footprint, *inner))


def _error(context: SchedulingContext, subgraph: SubGraph, reason: str) -> KnobsError:
    name = context.layers[subgraph.layers[-1]].name
    return KnobsError(f"{name} cannot be split {reason}", Location(field="overrides"))


def _scaled(context: SchedulingContext, subgraph: SubGraph, scale: int) -> SubGraph:
    """Return a sub-graph with ``scale`` times the instances, along its innermost split axis."""
    ways = split_axes(context, subgraph.layers)
    cuts = subgraph.split.axes or tuple((axis, 1) for _, axis in ways[:1])
    if scale == 1 or not cuts:
        return subgraph
    *outer, (axis, parts) = cuts
    # Parts of unequal size would be another split, not this one at a larger scale.
    if extent_of(context, subgraph.layers, axis) % (parts * scale):
        return subgraph
    return _recut(context, subgraph, *outer, (axis, parts * scale))


@remembered(1 << 14)
def _overridden(
    context: SchedulingContext, grouped: SubGraph, scale: int, layer: str, said: tuple[Value, ...]
) -> SubGraph:
    """Return a sub-graph split as the knobs of its layer say; cached.

    A split is left to the heuristic if it is impossible because other knobs changed the partition,
    so that another layer makes the sub-graph's output.

    Args:
        context: The context that the sub-graph comes from.
        grouped: The sub-graph as it was grouped.
        scale: Instances over the smallest number that fits.
        layer: The layer that the knobs name.
        said: Their dimension and factor, then the inner ones; ``"auto"`` for what they leave open.

    Raises:
        KnobsError: It is impossible, and the knobs name the layer that makes the output.
    """
    dim, factor, inner_dim, inner_factor = said
    ways, subgraph = split_axes(context, grouped.layers), _scaled(context, grouped, scale)
    try:
        if (dim, factor) != (AUTO, AUTO):
            split = subgraph.split
            depth = split.depth if split.axis >= 0 else min(dict(ways), default=0)
            depth = depth if dim == AUTO else int(dim)
            parts = split.instances if factor == AUTO else max(int(factor), 1)
            axis = _axis_for(context, subgraph, depth, parts)
            subgraph = subgraph.recut(
                Split(axis if parts > 1 else -1, parts, depth, 0, split.footprint)
            )
        if inner_factor != AUTO:
            # inside every part, along the outermost of the other axes if none is said
            split, parts = subgraph.split, int(inner_factor)
            other_depths = (depth for depth, axis in ways if axis != split.axis)
            depth = min(other_depths, default=0) if inner_dim == AUTO else int(inner_dim)
            axis = _axis_for(context, subgraph, depth, parts)
            if parts > 1 and axis != split.axis:
                subgraph = _recut(context, subgraph, *split.axes[:1], (axis, parts))
    except KnobsError:
        if context.layers[grouped.layers[-1]].name == layer:
            raise
    return subgraph


def _axis_for(context: SchedulingContext, subgraph: SubGraph, depth: int, parts: int) -> int:
    """Return the axis of a dimension of the output, -1 for none.

    Args:
        context: The context that the sub-graph comes from.
        subgraph: The sub-graph.
        depth: The dimension.
        parts: Into how many parts it is to be split.

    Raises:
        KnobsError: It cannot be split into so many parts.
    """  # noqa: DOC501  _error() makes the error
    axis = dict(split_axes(context, subgraph.layers)).get(depth, -1)
    if parts > 1 and (axis < 0 or parts > extent_of(context, subgraph.layers, axis)):
        raise _error(context, subgraph, f"into {parts} along dimension {depth}")
    return axis


def _on_each_cluster(context: SchedulingContext, subgraph: SubGraph, axis: int) -> SubGraph:
    """Return a sub-graph with a part for every cluster, each split again as requested."""
    other_axes = [pair for pair in subgraph.split.axes if pair[0] != axis]
    per_cluster = dict(subgraph.split.axes).get(axis, 1)
    if len(other_axes) > 1:
        raise _error(context, subgraph, "along two axes more than its clusters")
    parts = per_cluster * context.target.clusters
    if parts > extent_of(context, subgraph.layers, axis):
        raise _error(context, subgraph, f"into {per_cluster} on each of its clusters")
    return with_need(context, subgraph, (axis, parts), *other_axes)


def _divided(context: SchedulingContext, subgraph: SubGraph, axis: int, room: int) -> SubGraph:
    """Return a sub-graph split into parts for clusters, and those as it was split before.

    Factors count parts of the whole, and are divided among the clusters as far as the parts then
    fit: the fewest parts that do, none larger than a part was before.

    Args:
        context: The context that the sub-graph comes from.
        subgraph: The sub-graph as it was split before.
        axis: The axis that clusters divide.
        room: Bytes of local buffers that a part may take.
    """
    clusters, before = context.target.clusters, dict(subgraph.split.axes)
    most, parts_along = extent_of(context, subgraph.layers, axis) // clusters, before.pop(axis, 1)
    least, tried = min(math.ceil(parts_along / clusters), most), list[tuple[Cut, ...]]()
    for inner, parts in before.items():
        along = extent_of(context, subgraph.layers, inner)
        counts = [n for n in range(math.ceil(parts / clusters), parts) if along % n == 0]
        tried = [((axis, clusters), (inner, n)) for n in (*counts, parts)]
    if not before:
        doubled = (least << n for n in range(_HALVINGS))
        tried = [((axis, clusters * n),) for n in doubled if n <= most]
    for cuts in tried:
        candidate = with_need(context, subgraph, *cuts)
        if candidate.split.footprint <= room:
            return candidate
    # It spills in any case: as it was split before, or in the fewest parts.
    return with_need(context, subgraph, *tried[-1 if before else 0])


@remembered(1 << 14)
def with_need(context: SchedulingContext, subgraph: SubGraph, *cuts: Cut) -> SubGraph:
    """Return a sub-graph split along one axis or two, with the footprint of its middle part."""
    outer, *inner = cuts
    recut = _recut(context, subgraph, outer, *(pair for pair in inner if pair[1] > 1))
    layers, split = recut.layers, recut.split
    parts, within = split.instances // split.inner_factor, split.inner_factor
    middle = boxes_of(context, layers, split)[parts // 2 * within + within // 2]
    footprint = box_cost(context, layers, middle.axes, middle.bounds).footprint
    return recut.recut(dataclasses.replace(split, footprint=footprint))
