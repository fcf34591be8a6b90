"""Layers of a kernel that must be over before another may write, though it reads nothing of them.

Space in LB is reused as if layers ran one after another. They do not: the matrix engine may be at a
layer while the vector engine still works on an earlier one of another branch. So a layer waits for
every earlier one that has to do with a tensor whose space may be its own by then.
"""

from __future__ import annotations

from collections.abc import Sequence

from autoturbo.schedule.problem import Problem
from autoturbo.stores import remembered


@remembered(1 << 14)
def clearances(problem: Problem, layers: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Per layer of a kernel, the positions of the layers that have to be over first, remembered.

    Those that it waits for anyway, directly or through others, are left out.
    """
    # sets of positions are the bits of integers: a kernel may have all layers
    maker = {t: at for at, layer in enumerate(layers) for t in problem.layers[layer].outputs}
    last, touching = _last_uses(problem, layers), _touching(problem, layers)
    over: list[int] = []
    found = []
    free = 0
    for at, layer in enumerate(layers):
        read = {t: maker[t] for t in problem.layers[layer].inputs if t in maker}
        before = 0
        for maker_at in read.values():
            before |= over[maker_at] | 1 << maker_at
        waiting = free
        if problem.layers[layer].in_place:
            for tensor in read:
                waiting |= touching[tensor] if last[tensor] == at else 0
        waiting &= (1 << at) - 1 & ~before
        own = []
        while waiting:
            latest = waiting.bit_length() - 1
            own.append(latest)
            before |= over[latest] | 1 << latest
            waiting &= ~before
        over.append(before)
        found.append(tuple(own))
        for tensor in _touched(problem, layer):
            free |= touching[tensor] if last[tensor] == at else 0
    return found


def _touching(problem: Problem, layers: Sequence[int]) -> dict[int, int]:
    """Per tensor, the positions of the layers that have to do with it."""
    found: dict[int, int] = {}
    for at, layer in enumerate(layers):
        for tensor in _touched(problem, layer):
            found[tensor] = found.get(tensor, 0) | 1 << at
    return found


def _touched(problem: Problem, layer: int) -> tuple[int, ...]:
    return problem.layers[layer].inputs + problem.layers[layer].outputs


def _last_uses(problem: Problem, layers: Sequence[int]) -> dict[int, int]:
    """Per tensor, the last layer that has to do with it."""
    return {t: at for at, layer in enumerate(layers) for t in _touched(problem, layer)}
