"""Ordering instances: GraphTurbo, OSDI '23, section 3.3, Algorithm 3.

Two candidates, breadth-first and depth-first, of which the one that needs less memory is taken; a
third by footprint, which the paper names as another heuristic; a fourth by priorities given.

Edges are arrays: ``target[start[i]:start[i + 1]]`` are the neighbours of instance ``i``.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numba import njit

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.instances import InstanceGraph

Edges = Sequence[Sequence[int]]


def flat(edges: Edges) -> tuple[Ints, Ints]:
    """Neighbours per instance as a pair of arrays."""
    start = np.concatenate(([0], np.cumsum([len(e) for e in edges]))).astype(np.int64)
    return start, np.asarray([x for e in edges for x in e], np.int64)


def depth_first(
    producers: Edges, consumers: Edges, visit: Sequence[int] | None = None
) -> list[int]:
    """Algorithm 3 as printed.

    ``ready`` starts with the instances that wait for nothing, in the order of ``visit``. Its last
    element that waits for nothing comes next; its consumers then wait for one less and go to the
    end of ``ready``, once each, whether they still wait or not. (``ready`` is kept as a heap by
    place in the list, which gives the same order without scanning it.) The paper's Fig. 7f comes
    out of Fig. 6 with ``visit`` a1 ... a8, b1 ....

    Args:
        producers: per instance, what it waits for.
        consumers: per instance, what waits for it.
        visit: order in which instances are looked at first; ascending by default.
    """
    first = np.arange(len(producers)) if visit is None else np.asarray(visit, np.int64)
    order: list[int] = _depth_first(flat(producers)[0], *flat(consumers), first).tolist()
    return order


@njit(cache=True)
def _depth_first(needs: Ints, start: Ints, target: Ints, visit: Ints) -> Ints:
    count = len(needs) - 1
    waits, place = needs[1:] - needs[:-1], np.full(count, -1, np.int64)
    order, done, placed = np.empty(count, np.int64), 0, 0
    free = [(np.int64(0), np.int64(0)) for _ in range(0)]
    for instance in visit:
        if not waits[instance]:
            place[instance] = placed
            heapq.heappush(free, (-place[instance], instance))
            placed += 1
    while free:
        instance = heapq.heappop(free)[1]
        order[done] = instance
        done += 1
        for reader in target[start[instance] : start[instance + 1]]:
            waits[reader] -= 1
            if place[reader] < 0:
                place[reader] = placed
                placed += 1
            if not waits[reader]:
                heapq.heappush(free, (-place[reader], reader))
    return order[:done]


def breadth_first(producers: Edges, consumers: Edges) -> list[int]:
    """First come, first served among the instances that wait for nothing."""
    order: list[int] = _breadth_first(flat(producers)[0], *flat(consumers)).tolist()
    return order


@njit(cache=True)
def _breadth_first(needs: Ints, start: Ints, target: Ints) -> Ints:
    count = len(needs) - 1
    waits = needs[1:] - needs[:-1]
    order, ready = np.empty(count, np.int64), 0
    for instance in range(count):
        if not waits[instance]:
            order[ready] = instance
            ready += 1
    done = 0
    while done < ready:
        instance = order[done]
        done += 1
        for reader in target[start[instance] : start[instance + 1]]:
            waits[reader] -= 1
            if not waits[reader]:
                order[ready] = reader
                ready += 1
    return order[:ready]


def footprint_first(producers: Edges, consumers: Edges, footprints: Sequence[int]) -> list[int]:
    """Among the instances that wait for nothing, the one with the largest footprint."""
    weights = np.asarray(footprints, np.int64)
    order: list[int] = _heaviest_first(flat(producers)[0], *flat(consumers), weights).tolist()
    return order


@njit(cache=True)
def _heaviest_first(needs: Ints, start: Ints, target: Ints, weights: Ints) -> Ints:
    count = len(needs) - 1
    waits = needs[1:] - needs[:-1]
    order, done = np.empty(count, np.int64), 0
    ready = [(np.int64(0), np.int64(0)) for _ in range(0)]
    for instance in np.flatnonzero(waits == 0):
        heapq.heappush(ready, (-weights[instance], instance))
    while ready:
        instance = heapq.heappop(ready)[1]
        order[done] = instance
        done += 1
        for reader in target[start[instance] : start[instance + 1]]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, (-weights[reader], reader))
    return order[:done]


def live_peak(order: Sequence[int], consumers: Edges, sizes: Sequence[int]) -> int:
    """Most bytes of instance outputs alive at once, each until its last reader has run."""
    start, target = flat(consumers)
    return int(_live_peak(np.asarray(order, np.int64), start, target, np.asarray(sizes, np.int64)))


@njit(cache=True)
def _live_peak(order: Ints, start: Ints, target: Ints, sizes: Ints) -> int:
    count = len(start) - 1
    place = np.empty(count, np.int64)
    for at in range(len(order)):
        place[order[at]] = at
    freed = np.zeros(count + 1, np.int64)
    for instance in range(count):
        last = place[instance]
        for reader in target[start[instance] : start[instance + 1]]:
            last = max(last, place[reader])
        freed[last] += sizes[instance]
    live = peak = 0
    for at in range(len(order)):
        live += sizes[order[at]]
        peak = max(peak, live)
        live -= freed[at]
    return peak


def order_instances(
    graph: InstanceGraph, rule: str, priority: Ints | None = None
) -> tuple[int, ...]:
    """The order of execution.

    Args:
        graph: instances and their edges.
        rule: ``"bfs"``, ``"dfs"``, ``"footprint"``, ``"priority"``, or ``"auto"`` for the better of
            the first two with regard to memory.
        priority: per sub-graph, for ``"priority"``: the highest first; all alike if None.
    """
    needs, start, target = graph.producer_start, graph.consumer_start, graph.consumer
    if rule in ("priority", "footprint"):
        weights = priority
        if weights is None or rule == "footprint":
            footprints = [s.split.footprint for s in graph.subgraphs]
            weights = np.asarray(footprints, np.int64) * (rule == "footprint")
        order = _heaviest_first(needs, start, target, weights[graph.subgraph])
    elif rule == "bfs":
        order = _breadth_first(needs, start, target)
    else:
        order = _depth_first(needs, start, target, np.arange(graph.count))
        broad = _breadth_first(needs, start, target) if rule == "auto" else order
        sizes = graph.output_bytes
        if _live_peak(broad, start, target, sizes) < _live_peak(order, start, target, sizes):
            order = broad
    return tuple(order.tolist())


def output_sizes(graph: InstanceGraph) -> list[int]:
    """Bytes of each instance's outputs."""
    sizes: list[int] = graph.output_bytes.tolist()
    return sizes
