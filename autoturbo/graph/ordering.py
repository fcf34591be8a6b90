"""Topological order of numbered things: nodes of a file, layers of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush


def in_topological_order(needs: Sequence[Iterable[int]]) -> tuple[list[int], list[int]]:
    """Return numbers in topological order, the smallest first among those that are ready.

    Returns:
        The order, without the numbers on and behind a cycle; and those along one, the first twice.
    """
    cycle: list[int] = []
    sorter = TopologicalSorter(dict(enumerate(needs)))
    try:
        sorter.prepare()
    except CycleError as error:  # numbers that need none of the cycle are handed out all the same
        cycle = error.args[1]
    ready = list(sorter.get_ready())
    heapify(ready)
    order = []
    while ready:
        order.append(heappop(ready))
        sorter.done(order[-1])
        for number in sorter.get_ready():
            heappush(ready, number)
    return order, cycle
