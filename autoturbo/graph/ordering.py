"""Orders of numbered things, each after what it needs: nodes of a file, layers of a graph.

All depend on what needs what, on sizes, and on the numbers where these leave a choice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush

LEAST_BYTES, BRANCHES, LONGEST_PATH, AS_IN_FILE = "bytes", "branches", "path", "file"
"""Orders of layers: those first after which least is live, one branch after the other, those before
most work, as the file has them. The first is the usual one."""


def in_topological_order(
    needs: Sequence[Iterable[int]], places: Sequence[int] | None = None
) -> tuple[list[int], list[int]]:
    """Return numbers in topological order.

    Args:
        needs: By number, the numbers that go before it.
        places: By number, the smallest goes first among those that are ready; the number itself if
            None, and between equals.

    Returns:
        The order, without the numbers on and behind a cycle; and those along one, the first twice.
    """
    cycle: list[int] = []
    sorter = TopologicalSorter(dict(enumerate(needs)))
    try:
        sorter.prepare()
    except CycleError as error:  # numbers that need none of the cycle are handed out all the same
        cycle = error.args[1]
    place = range(len(needs)) if places is None else places
    ready = [(place[number], number) for number in sorter.get_ready()]
    heapify(ready)
    order = []
    while ready:
        order.append(heappop(ready)[1])
        sorter.done(order[-1])
        for number in sorter.get_ready():
            heappush(ready, (place[number], number))
    return order, cycle


def back_from(ends: Iterable[int], needs: Sequence[Iterable[int]]) -> list[int]:
    """Return the numbers that some ends need, in topological order: depth first, first needs first.

    Args:
        ends: Numbers in the order in which they are reached.
        needs: By number, those that go before it, in the order in which they are reached; without
            a cycle.
    """
    order: list[int] = []
    begun: set[int] = set()
    for end in ends:
        path = [] if end in begun else [(end, iter(needs[end]))]
        begun.add(end)
        while path:
            number, rest = path[-1]
            following = next((need for need in rest if need not in begun), None)
            if following is None:
                order.append(number)
                path.pop()
            else:
                begun.add(following)
                path.append((following, iter(needs[following])))
    return order


def longest_path_first(needs: Sequence[Iterable[int]], work: Sequence[int]) -> list[int]:
    """Return numbers in topological order, first those with most work on a path to an end."""
    ahead = list(work)
    for number in reversed(in_topological_order(needs)[0]):
        for need in needs[number]:
            ahead[need] = max(ahead[need], work[need] + ahead[number])
    return in_topological_order(needs, [-path for path in ahead])[0]


def least_live_first(needs: Sequence[Iterable[int]], sizes: Sequence[int]) -> list[int]:
    """Return numbers in topological order, first those after which least is still to be read.

    What a number makes is live until the last one that needs it.

    Args:
        needs: By number, the numbers that go before it, each once.
        sizes: By number, bytes of what it makes.
    """
    readers, missing = _readers(needs), [set(some) for some in needs]
    ready: list[tuple[int, int]] = []

    def push(number: int) -> None:
        if not missing[number]:
            freed = sum(sizes[need] for need in needs[number] if readers[need] == {number})
            # What becomes live less what dies; of equals the smaller number.
            heappush(ready, (sizes[number] - freed, number))

    for number in range(len(needs)):
        push(number)
    order: dict[int, None] = {}
    while ready:
        number = heappop(ready)[1]
        if number in order:
            continue  # it came to free more, and was pushed again
        order[number] = None
        for need in needs[number]:
            readers[need].remove(number)
        # Whoever now reads something alone frees it: it is pushed again with a better rank.
        last_readers = (readers[need] for need in needs[number] if len(readers[need]) == 1)
        for reader in readers[number]:
            missing[reader].remove(number)
        for reader in {*readers[number], *itertools.chain(*last_readers)}:
            push(reader)
    return list(order)


def _readers(needs: Sequence[Iterable[int]]) -> list[set[int]]:
    """Return, by number, those that need it."""
    readers: list[set[int]] = [set() for _ in needs]
    for number, some in enumerate(needs):
        for need in some:
            readers[need].add(number)
    return readers
