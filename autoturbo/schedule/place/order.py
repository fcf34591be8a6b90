"""Ordering instances: GraphTurbo, OSDI '23, section 3.3, Algorithm 3.

Two candidates, breadth-first and depth-first, of which the one that needs less memory is taken; a
third by footprint, which the paper names as another heuristic; a fourth by priorities given.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.place.instances import InstanceGraph

Edges = Sequence[Sequence[int]]


def depth_first(
    producers: Edges, consumers: Edges, visit: Iterable[int] | None = None
) -> list[int]:
    """Return the order of Algorithm 3 as printed.

    ``ready`` starts with the instances that wait for nothing, in the order of ``visit``. Its last
    element that waits for nothing comes next; its consumers then wait for one less and go to the
    end of ``ready``, once each, whether they still wait or not. (``ready`` is kept as a heap by
    place in the list, which gives the same order without scanning it.) The paper's Fig. 7f is this
    order of Fig. 6 with ``visit`` a1 ... a8, b1 ....

    Args:
        producers: Per instance, the instances that it waits for.
        consumers: Per instance, the instances that wait for it.
        visit: Order in which instances are looked at first; ascending by default.
    """
    place: dict[int, int] = {}
    first = range(len(producers)) if visit is None else visit
    return _by_rank(producers, consumers, first, lambda i: place.setdefault(i, len(place)))


def _by_rank(
    producers: Edges, consumers: Edges, visit: Iterable[int], rank: Callable[[int], int]
) -> list[int]:
    """Return the order that always takes the ready instance of highest rank.

    Args:
        producers: Producers of each instance.
        consumers: Consumers of each instance.
        visit: All instances; ranks of those that are ready first are asked for in this order.
        rank: Returns the rank of an instance; asked for as instances are met.
    """
    waits, order = list(map(len, producers)), []
    ready = [(-rank(instance), instance) for instance in visit if not waits[instance]]
    heapq.heapify(ready)
    while ready:
        order.append(heapq.heappop(ready)[1])
        for reader in consumers[order[-1]]:
            waits[reader] -= 1
            entry = (-rank(reader), reader)
            if not waits[reader]:
                heapq.heappush(ready, entry)
    return order


def breadth_first(producers: Edges, consumers: Edges) -> list[int]:
    """Return the first-come, first-served order of ready instances."""
    waits = list(map(len, producers))
    order = [instance for instance, wait in enumerate(waits) if not wait]
    for instance in order:  # which grows at its end
        for reader in consumers[instance]:
            waits[reader] -= 1
            if not waits[reader]:
                order.append(reader)
    return order


def footprint_first(producers: Edges, consumers: Edges, footprints: Sequence[int]) -> list[int]:
    """Return the order that always takes the ready instance with the largest footprint."""
    return _by_rank(producers, consumers, range(len(producers)), footprints.__getitem__)


def live_peak(order: Sequence[int], consumers: Edges, sizes: Sequence[int]) -> int:
    """Return the most bytes of outputs alive at once, each until its last reader has run."""
    place = {instance: position for position, instance in enumerate(order)}
    freed = [0] * len(order)
    for instance in order:
        freed[max(place[i] for i in (instance, *consumers[instance]))] += sizes[instance]
    live = peak = 0
    for instance, gone in zip(order, freed, strict=True):
        live += sizes[instance]
        peak = max(peak, live)
        live -= gone
    return peak


def order_instances(
    graph: InstanceGraph, rule: str, priority: Ints | None = None
) -> tuple[int, ...]:
    """Return the order of execution.

    Args:
        graph: Instances and their edges.
        rule: ``"bfs"``, ``"dfs"``, ``"footprint"``, ``"priority"``, or ``"auto"`` for the better of
            the first two with regard to memory.
        priority: Per sub-graph, for ``"priority"``: the highest first; all alike if None.
    """
    edges = graph.producers, graph.consumers
    if rule == "footprint":
        priority = np.asarray([s.split.footprint for s in graph.subgraphs], np.int64)
    if rule in ("priority", "footprint"):
        weights = np.zeros(len(graph.subgraphs), np.int64) if priority is None else priority
        order = footprint_first(*edges, weights[graph.subgraph].tolist())
    elif rule == "bfs":
        order = breadth_first(*edges)
    else:
        order = depth_first(*edges)
        if rule == "auto":
            broad, sizes = breadth_first(*edges), output_sizes(graph)
            # Of equal peaks depth first, as Algorithm 3 is printed.
            order = min(order, broad, key=lambda one: live_peak(one, edges[1], sizes))
    return tuple(order)


def output_sizes(graph: InstanceGraph) -> list[int]:
    """Return the bytes of each instance's outputs."""
    return [size for parts in graph.parts for size in parts.output_bytes.tolist()]
