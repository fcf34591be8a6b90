"""Sharing one pass out over clusters: the knob ``cluster_partitioning``.

As published, clusters share out samples and work alike. Here they work on the same samples: each on
a part of every sub-graph's output (``"spatial"``, ``"channel"``, ``"either"``: of each sub-graph
the one that looks faster), or each on some sub-graphs of its
own: one run of them after another (``"pipeline"``), or what can run side by side (``"branches"``).
What one cluster makes for another has a copy in DDR, which all of them reach.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from autoturbo.caches import remembered
from autoturbo.schedule.context import BATCH, SchedulingContext
from autoturbo.schedule.partition.grouping import GroupRules, SubGraph, group
from autoturbo.schedule.partition.isomorphism import first_alike
from autoturbo.schedule.partition.part_work import middle_part_work, operator_work
from autoturbo.schedule.partition.split import Split, sink, split_axes
from autoturbo.schedule.work import MATRIX, NONE, Floats

PIPELINE, BRANCHES = "pipeline", "branches"

EITHER = "either"

KINDS = ("spatial", "channel")
"""Kinds of axes of an output."""

PARTS = (*KINDS, EITHER)
"""Ways in which clusters divide every sub-graph's output."""


def cluster_axis(context: SchedulingContext, layers: tuple[int, ...], kind: str) -> int:
    """Return the outermost axis of a kind with a step for every cluster, -1 if there is none."""
    if kind == EITHER:
        kind = _faster_kind(context, layers)
    axes, clusters = sink(context, layers).axes, context.target.clusters
    ways = (axis for _, axis in split_axes(context, layers, kind) if axes[axis].extent >= clusters)
    return next(ways, -1)


def _is_divided(context: SchedulingContext, layers: tuple[int, ...], kind: str) -> bool:
    """Return whether clusters divide a sub-graph's output along an axis of a kind.

    Which of two kinds is faster does not matter where both have an axis or neither has: to ask it
    of every beginning of a sub-graph takes seconds where layers are many.
    """
    if kind == EITHER:
        spatial, channel = (cluster_axis(context, layers, each) >= 0 for each in KINDS)
        if spatial == channel:
            return spatial
    return cluster_axis(context, layers, kind) >= 0


@remembered(1 << 16)
def _faster_kind(context: SchedulingContext, layers: tuple[int, ...]) -> str:
    """Return the kind of axis along which clusters divide a sub-graph in less time; cached."""
    return min(KINDS, key=lambda kind: shared_seconds(context, layers, kind))


def group_for(context: SchedulingContext, rules: GroupRules, split: str) -> tuple[SubGraph, ...]:
    """Return the partition of Algorithm 2, refined for clusters that divide the work.

    A part of an output needs all the results of several layers before it, and a sub-graph is never
    on two stages: a sub-graph that was merged for one cluster may be too large for several. It is
    then split after the layer nearest to half of its work, until none is too large. Where branches
    run side by side, only layers in a row are merged.
    """
    if split == BRANCHES:
        # Diamonds and branches in one sub-graph could not run side by side.
        return group(context, dataclasses.replace(rules, merge_order="straight"))
    while True:
        subgraphs = group(context, rules)
        if split == BATCH:
            return subgraphs
        layers = (s.layers for s in subgraphs)
        after = [(own, _cut_after(context, first_alike(context, own), split)) for own in layers]
        ends = {context.layers[own[at]].name for own, at in after if at >= 0}
        if ends <= rules.cuts:
            return subgraphs
        # Cuts only grow, so this ends.
        rules = dataclasses.replace(rules, cuts=rules.cuts | ends)


@remembered(1 << 14)
def _cut_after(context: SchedulingContext, layers: tuple[int, ...], split: str) -> int:
    """Return the position of the layer to split after, -1 if a sub-graph is not too large.

    It is too large with more than a stage's work, or if it is slower than its halves or than its
    layers one by one.
    """
    narrow = narrow_places(context, layers)
    position = _middle(context, layers, split, narrow)
    if position < 0:
        return -1
    if split == PIPELINE:
        seconds = layer_seconds(context)
        large = seconds[list(layers)].sum() * context.target.clusters > seconds.sum()
        return position if large else -1
    parts = layers, layers[: position + 1], layers[position + 1 :]
    whole, *halves = (shared_seconds(context, part, split) for part in parts)
    single = sum(shared_seconds(context, (layer,), split) for layer in layers)
    return position if single < whole or (position in narrow and sum(halves) < whole) else -1


@remembered(1 << 16)
def shared_seconds(context: SchedulingContext, layers: tuple[int, ...], kind: str) -> float:
    """Return the roofline time of one cluster's part of a sub-graph, in seconds; cached.

    One kernel with all its inputs in DDR. It is rough on purpose: it only decides which layers are
    kept apart before anything is placed.
    """
    axis = cluster_axis(context, layers, kind)
    split = Split(axis, context.target.clusters if axis >= 0 else 1, 0, 0, 0)
    return _roofline_seconds(context, layers, split)


@remembered(1 << 16)
def whole_seconds(context: SchedulingContext, layers: tuple[int, ...]) -> float:
    """Return the roofline time of a sub-graph on one cluster, in seconds; cached."""
    return _roofline_seconds(context, layers, Split(-1, 1, 0, 0, 0))


def _roofline_seconds(context: SchedulingContext, layers: tuple[int, ...], split: Split) -> float:
    target, part = context.target, middle_part_work(context, layers, split)
    work = max(target.peak_seconds(context.dtype, part.macs, part.vector_ops, part.special_ops))
    moved = part.weight_bytes + part.input_bytes + part.output_bytes
    # A barrier ends the kernel; another one is before readers on other clusters.
    fixed = target.overheads.kernel_launch + 2 * target.overheads.barrier
    # Peak rates are the whole chip's, and this is one cluster.
    seconds = max(work * target.clusters, moved / target.ddr_bandwidth_per_cluster)
    return seconds + fixed + target.overheads.ramp(seconds)


def _middle(
    context: SchedulingContext, layers: tuple[int, ...], split: str, narrow: set[int]
) -> int:
    """Return the position of the layer nearest to half of the work, -1 if there is none.

    In a sub-graph whose end clusters cannot divide, it is the last layer that they can.

    Args:
        context: The model on the target.
        layers: Layers of the sub-graph, in topological order.
        split: Way in which clusters divide the work, one of ``SPLITS``.
        narrow: Positions of layers that all later ones depend on alone; preferred.
    """
    ends = list(range(len(layers) - 1))
    if split != PIPELINE:
        ends = [at for at in ends if _is_divided(context, layers[: at + 1], split)]
        if ends and not _is_divided(context, layers, split):
            return ends[-1]
    if not ends:
        return -1
    done = np.cumsum(layer_seconds(context)[list(layers)])
    # After a narrow place the halves hand over one tensor.
    chosen = np.asarray([position for position in ends if position in narrow] or ends, np.int64)
    return int(chosen[np.abs(2 * done[chosen] - done[-1]).argmin()])


def narrow_places(context: SchedulingContext, layers: tuple[int, ...]) -> set[int]:
    """Return the positions after which only the last output and inputs are read."""
    place = {layer: position for position, layer in enumerate(layers)}
    output_groups = (context.layers[layer].outputs for layer in layers)
    readers = (
        itertools.chain(*(context.consumers[t] for t in outputs)) for outputs in output_groups
    )
    last = (max((place.get(reader, 0) for reader in some), default=0) for some in readers)
    reached = itertools.accumulate(last, max, initial=0)
    return {
        position
        for position, reach in zip(range(len(layers)), reached, strict=False)
        if reach <= position
    }


@remembered(1)
def layer_seconds(context: SchedulingContext) -> Floats:
    """Return the seconds of each layer's work at the chip's peak rates; cached.

    An operator's engines work side by side, operators one after another.
    """
    work = operator_work(context, context.arrays.axis_extent)
    rows = zip(context.work.engine.tolist(), *(column.tolist() for column in work), strict=True)
    operator_seconds = [
        max(context.target.peak_seconds(context.dtype, macs * (code == MATRIX), plain, special))
        if code != NONE
        else 0.0
        for code, macs, plain, special in rows
    ]
    return np.asarray([sum(operator_seconds[i] for i in x.operators) for x in context.layers])
