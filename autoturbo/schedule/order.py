"""Ordering instances: GraphTurbo, OSDI '23, section 3.3, Algorithm 3.

Two candidates, breadth-first and depth-first, of which the one that needs less memory is taken; a
third by footprint, which the paper names as another heuristic.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

from autoturbo.schedule.instances import InstanceGraph
from autoturbo.schedule.problem import Problem

Edges = Sequence[Sequence[int]]


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
    waits = [len(p) for p in producers]
    place: dict[int, int] = {}
    free: list[tuple[int, int]] = []
    for instance in range(len(waits)) if visit is None else visit:
        if not waits[instance]:
            place[instance] = len(place)
            heapq.heappush(free, (-place[instance], instance))
    order: list[int] = []
    while free:
        instance = heapq.heappop(free)[1]
        order.append(instance)
        for reader in consumers[instance]:
            waits[reader] -= 1
            place.setdefault(reader, len(place))
            if not waits[reader]:
                heapq.heappush(free, (-place[reader], reader))
    return order


def breadth_first(producers: Edges, consumers: Edges) -> list[int]:
    """First come, first served among the instances that wait for nothing."""
    waits = [len(p) for p in producers]
    ready = deque(i for i, w in enumerate(waits) if not w)
    order: list[int] = []
    while ready:
        instance = ready.popleft()
        order.append(instance)
        for reader in consumers[instance]:
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    return order


def footprint_first(producers: Edges, consumers: Edges, footprints: Sequence[int]) -> list[int]:
    """Among the instances that wait for nothing, the one with the largest footprint."""
    waits = [len(p) for p in producers]
    ready = [(-footprints[i], i) for i, w in enumerate(waits) if not w]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, instance = heapq.heappop(ready)
        order.append(instance)
        for reader in consumers[instance]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, (-footprints[reader], reader))
    return order


def live_peak(order: Sequence[int], consumers: Edges, sizes: Sequence[int]) -> int:
    """Most bytes of instance outputs alive at once, each until its last reader has run."""
    remaining = [len(c) for c in consumers]
    made_by: list[list[int]] = [[] for _ in consumers]
    for instance, readers in enumerate(consumers):
        for reader in readers:
            made_by[reader].append(instance)
    live = peak = 0
    for instance in order:
        live += sizes[instance]
        peak = max(peak, live)
        for before in made_by[instance]:
            remaining[before] -= 1
            live -= sizes[before] if not remaining[before] else 0
        live -= sizes[instance] if not consumers[instance] else 0
    return peak


def order_instances(problem: Problem, graph: InstanceGraph, rule: str) -> tuple[int, ...]:
    """The order of execution.

    Args:
        problem: where the instances come from.
        graph: instances and their edges.
        rule: ``"bfs"``, ``"dfs"``, ``"footprint"``, or ``"auto"`` for the better of the first two.
    """
    producers, consumers = graph.producers, graph.consumers
    if rule == "bfs":
        return tuple(breadth_first(producers, consumers))
    if rule == "dfs":
        return tuple(depth_first(producers, consumers))
    if rule == "footprint":
        weights = [graph.subgraphs[i.subgraph].split.footprint for i in graph.instances]
        return tuple(footprint_first(producers, consumers, weights))
    sizes = output_sizes(problem, graph)
    candidates = (depth_first(producers, consumers), breadth_first(producers, consumers))
    peaks = [live_peak(order, consumers, sizes) for order in candidates]
    return tuple(candidates[peaks.index(min(peaks))])


def output_sizes(problem: Problem, graph: InstanceGraph) -> list[int]:
    """Bytes of each instance's outputs."""
    element = problem.arrays.element
    return [
        sum(
            int((region[:, 1] - region[:, 0]).prod()) * int(element[tensor])
            for tensor, region in instance.outputs.items()
        )
        for instance in graph.instances
    ]
