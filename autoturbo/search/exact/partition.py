"""The cheapest way to cover a model's layers with sets, where each set has a cost of its own.

Dynamic programming over what is not covered yet. Of the uncovered layers the last, in topological
order, must end its set: all that read it are covered by other sets. So a state has as many
continuations as sets end in that layer, and on a chain the states are the prefixes: O(n) states
and O(n^2) segments. Between a fork and a join they are products of prefixes of the branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cover:
    """A way to cover all layers.

    Attributes:
        sets: indices of the chosen sets, by end: ``(end, index among those that end there)``.
        cost: sum of their costs.
        states: how many different remainders were looked at.
        exact: whether it is the cheapest of all; False where states were dropped.
    """

    sets: tuple[tuple[int, int], ...]
    cost: float
    states: int
    exact: bool


def cheapest_cover(
    masks: Sequence[Sequence[int]], costs: Sequence[Sequence[float]], most_states: int = 20_000
) -> Cover | None:
    """The cheapest cover; None where the sets cover nothing whole.

    Args:
        masks: per layer, the sets that end in it as bits, the layer's own the highest.
        costs: of the same, at least 0.
        most_states: remainders kept that end in the same layer, the cheapest so far.
    """
    waiting: list[dict[int, float]] = [{} for _ in range(len(masks) + 1)]
    came: dict[int, tuple[int, int, int]] = {}
    waiting[len(masks)][(1 << len(masks)) - 1] = 0.0
    states, exact = 0, True
    for end in range(len(masks), 0, -1):
        here = waiting[end]
        if len(here) > most_states:
            here = dict(sorted(here.items(), key=lambda item: item[1])[:most_states])
            exact = False
        states += len(here)
        for left, spent in here.items():
            for index, (mask, cost) in enumerate(zip(masks[end - 1], costs[end - 1], strict=True)):
                if mask & left != mask:
                    continue
                rest, total = left ^ mask, spent + cost
                later = waiting[rest.bit_length()]
                if total < later.get(rest, float("inf")):
                    later[rest] = total
                    came[rest] = (left, end - 1, index)
        waiting[end] = {}
    if 0 not in waiting[0]:
        return None
    chosen, at = [], 0
    while at in came:
        at, end, index = came[at]
        chosen.append((end, index))
    return Cover(tuple(chosen[::-1]), waiting[0][0], states, exact)
