"""Layers of a kernel that must be over before another may write, though it reads nothing of them.

Space in LB is reused as if layers ran one after another. They do not: the matrix engine may be at a
layer while the vector engine still works on an earlier one of another branch. So a layer waits for
every earlier one that has to do with a tensor whose space may be its own by then.
"""

from __future__ import annotations

from collections.abc import Sequence

from autoturbo.schedule.problem import Problem


def clearances(problem: Problem, layers: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Per layer of a kernel, the positions of the layers that have to be over first, remembered.

    Those that it waits for anyway, directly or through others, are left out.
    """
    key = ("clearances", layers)
    found = problem.memory.get(key)
    if not isinstance(found, list):
        found = _clearances(problem, layers)
        problem.memory[key] = found
    return found


def _clearances(problem: Problem, layers: Sequence[int]) -> list[tuple[int, ...]]:
    maker = {t: at for at, layer in enumerate(layers) for t in problem.layers[layer].outputs}
    last = _last_uses(problem, layers)
    over: list[set[int]] = []
    found = []
    for at, layer in enumerate(layers):
        read = {t: maker[t] for t in problem.layers[layer].inputs if t in maker}
        before = set(read.values()).union(*(over[p] for p in read.values()))
        taken = {t for t in read if last[t] == at} if problem.layers[layer].in_place else set()
        own = []
        for earlier in range(at - 1, -1, -1):
            used = _touched(problem, layers[earlier])
            if earlier not in before and any(last[t] < at or t in taken for t in used):
                own.append(earlier)
                before |= over[earlier] | {earlier}
        over.append(before)
        found.append(tuple(own))
    return found


def _touched(problem: Problem, layer: int) -> tuple[int, ...]:
    return problem.layers[layer].inputs + problem.layers[layer].outputs


def _last_uses(problem: Problem, layers: Sequence[int]) -> dict[int, int]:
    """Per tensor, the last layer that has to do with it."""
    return {t: at for at, layer in enumerate(layers) for t in _touched(problem, layer)}
