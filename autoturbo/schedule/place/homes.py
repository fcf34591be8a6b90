"""The clusters that run each sub-graph, and each of its instances."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.context import BATCH, SchedulingContext
from autoturbo.schedule.partition.boxes import external_inputs
from autoturbo.schedule.partition.clusters import (
    BRANCHES,
    PIPELINE,
    cluster_axis,
    layer_seconds,
    whole_seconds,
)
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.place.instances import InstanceGraph

Home = tuple[int, int]
"""First cluster of a sub-graph, and the number of clusters that it is divided over."""


def homes_of(
    context: SchedulingContext, subgraphs: Sequence[SubGraph], split: str
) -> tuple[Home, ...]:
    """Return the clusters that run each sub-graph's instances; none where clusters work alike.

    A sub-graph that is split for clusters is on all of them, another on the first. In a pipeline
    clusters have contiguous runs of sub-graphs, the longest as short as possible, and the fewest
    runs that reach it: each run more hands tensors over through DDR. Of branches each sub-graph is
    where it ends first. There are also none where a single cluster would have it all.
    """
    if split == BATCH:
        return ()
    clusters = context.target.clusters
    if split == PIPELINE:
        seconds = layer_seconds(context)
        work = [float(seconds[list(s.layers)].sum()) for s in subgraphs]
        homes = tuple((stage, 1) for stage in shortest_runs(work, clusters))
    elif split == BRANCHES:
        homes = tuple((cluster, 1) for cluster in _earliest(context, subgraphs))
    else:
        cut = (cluster_axis(context, s.layers, split) >= 0 for s in subgraphs)
        homes = tuple((0, clusters if own else 1) for own in cut)
    return homes if clusters_at_work(homes) > 1 else ()


def _earliest(context: SchedulingContext, subgraphs: Sequence[SubGraph]) -> list[int]:
    """Return the cluster on which each sub-graph ends first, by a list schedule in their order.

    What another cluster makes comes through DDR, after a barrier. Of equal clusters a sub-graph is
    on the one that has ended last, so that what follows it need not wait.
    """
    target, owner = context.target, dict[int, int]()
    free, ends, found = [0.0] * target.clusters, list[float](), list[int]()
    for number, subgraph in enumerate(subgraphs):
        inputs = external_inputs(context, subgraph.layers)
        makers = {owner[context.producer[t]]: _bytes(context, t) for t in inputs
                  if context.producer[t] >= 0}  # fmt: skip
        begins = [
            max(
                [free[cluster]] + [
                    ends[maker] + (found[maker] != cluster) * _handed_over_seconds(context, size)
                    for maker, size in makers.items()
                ]
            )
            for cluster in range(target.clusters)
        ]  # fmt: skip
        best = min(range(target.clusters), key=lambda cluster: (begins[cluster], -free[cluster]))
        free[best] = begins[best] + whole_seconds(context, subgraph.layers)
        ends.append(free[best])
        found.append(best)
        owner |= dict.fromkeys(subgraph.layers, number)
    return found


def _bytes(context: SchedulingContext, tensor: int) -> int:
    return context.graph.tensors[tensor].elements * int(context.arrays.element[tensor])


def _handed_over_seconds(context: SchedulingContext, size: int) -> float:
    """Return the seconds until another cluster has a tensor: written to DDR and read again."""
    target = context.target
    return target.overheads.barrier + 2 * size / target.ddr_bandwidth_per_cluster


def clusters_at_work(homes: Sequence[Home]) -> int:
    """Return the number of clusters that have instances."""
    return max((first + number for first, number in homes), default=1)


def shortest_runs(work: Sequence[float], most: int) -> list[int]:
    """Return each element's run; the longest of at most ``most`` runs is as short as possible.

    Runs are filled from the first on: that is exact for a given limit. The next limit to try is the
    least with which some run would hold one more element; below it, all runs stay as they are.
    """
    # Just below the mean: rounding must not begin above the best limit.
    longer = max([sum(work) / most * (1 - 1e-12), *work])
    while True:
        limit, longer = longer, math.inf
        runs, run, total = list[int](), 0, 0.0
        for element in work:
            if total + element > limit:
                longer = min(longer, total + element)
                run, total = run + 1, 0.0
            total += element
            runs.append(run)
        if run < most:
            return runs


def clusters_of(instances: InstanceGraph, homes: Sequence[Home]) -> Ints:
    """Return the cluster of each instance: neighbouring parts stay together; empty for no homes."""
    if not homes:
        return np.zeros(0, np.int64)
    first, number = np.asarray(homes, np.int64).T[:, instances.subgraph]
    parts = np.diff(instances.first)[instances.subgraph]
    place = np.arange(instances.count) - instances.first[instances.subgraph]
    return np.asarray(first + place * number // parts, np.int64)
