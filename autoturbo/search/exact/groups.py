"""Sets of layers that can be one sub-graph, and which of them are alike.

A sub-graph has one layer whose output others see, its *end*; every other layer of it is read by
layers of the sub-graph alone. Such sets can be put together in any way that covers each layer once:
no two of them can wait for each other, since what leaves a set leaves it by its end.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from autoturbo.schedule.problem import Problem
from autoturbo.schedule.split import SplitRules, best_split

Layers = tuple[int, ...]
"""Indices of layers, ascending; the last is the end."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Which sets are looked at.

    Attributes:
        layers: most layers of one.
        sets: most of them with the same end, those with fewer layers first.
    """

    layers: int = 64
    sets: int = 256


def groups_of(
    problem: Problem, limits: GroupLimits, rules: SplitRules
) -> tuple[list[list[Layers]], bool]:
    """Per layer, the sets that end in it, and whether these are all within ``limits.layers``.

    A set of several layers that no split makes fit the local buffers is left out, as Algorithm 2
    refuses it whatever the knobs.
    """
    readers, found, complete = _readers(problem), [], True
    for end in range(len(problem.layers)):
        sets, all_of_them = _ending_in(problem, readers, end, limits)
        complete = complete and all_of_them
        found.append([s for s in sets if len(s) == 1 or _fits(problem, s, rules)])
    return found, complete


_SEEN = -1
"""The reader that a model's outputs have."""


def _readers(problem: Problem) -> list[frozenset[int]]:
    """Per layer, the layers that read it."""
    outputs = set(problem.graph.outputs)
    return [
        frozenset({r for t in layer.outputs for r in problem.consumers[t]})
        | ({_SEEN} if outputs & set(layer.outputs) else set())
        for layer in problem.layers
    ]


def _ending_in(
    problem: Problem, readers: list[frozenset[int]], end: int, limits: GroupLimits
) -> tuple[list[Layers], bool]:
    """Sets grown from their end by layers that nothing outside them reads."""
    alone = frozenset({end})
    if _opaque(problem, end):
        return [(end,)], True
    found, queue, full = {alone: None}, deque([alone]), True
    while queue:
        one = queue.popleft()
        if len(one) == limits.layers:
            continue
        for layer in _producers(problem, one):
            grown = one | {layer}
            if not readers[layer] <= one or grown in found or _opaque(problem, layer):
                continue
            if len(found) == limits.sets:
                full = False
                break
            found[grown] = None
            queue.append(grown)
    return [tuple(sorted(s)) for s in found], full


def _producers(problem: Problem, layers: Iterable[int]) -> list[int]:
    """Layers that a set reads from, the latest first."""
    own = set(layers)
    made_by = {problem.producer[t] for layer in own for t in problem.layers[layer].inputs}
    return sorted(made_by - own - {-1}, reverse=True)


def _opaque(problem: Problem, layer: int) -> bool:
    return any(problem.graph.operators[op].opaque for op in problem.layers[layer].operators)


def _fits(problem: Problem, layers: Layers, rules: SplitRules) -> bool:
    return best_split(problem, layers, rules).factor != float("inf")


@dataclass(eq=False)
class Likeness:
    """Tells sets of layers that cost the same whatever is chosen for them.

    Attributes:
        problem: where the layers come from.
    """

    problem: Problem
    _operators: dict[Hashable, int] = dataclasses.field(default_factory=dict)
    _number: dict[int, int] = dataclasses.field(default_factory=dict)

    def of(self, layers: Layers) -> Hashable:
        """Equal for sets with the same operators on the same extents, wired and read alike."""
        names: dict[int, int] = {}
        wired = tuple(self._layer(layer, names) for layer in layers)
        made = {t for layer in layers for t in self.problem.layers[layer].outputs}
        return wired, tuple(self._tensor(t, made) for t in names)

    def _layer(self, layer: int, names: dict[int, int]) -> Hashable:
        found = self.problem.layers[layer]
        return found.in_place, tuple(self._operator(op, names) for op in found.operators)

    def _operator(self, index: int, names: dict[int, int]) -> Hashable:
        operator = self.problem.graph.operators[index]
        if index not in self._number:
            plain = dataclasses.replace(operator, name="", inputs=(), outputs=())
            self._number[index] = self._operators.setdefault(plain, len(self._operators))
        tensors = (*operator.inputs, *operator.outputs)
        wires = tuple(names.setdefault(t, len(names)) for t in tensors)
        return self._number[index], len(operator.inputs), wires

    def _tensor(self, tensor: int, made: set[int]) -> Hashable:
        """What of a tensor matters: its extents and where it comes from and goes."""
        problem, found = self.problem, self.problem.graph.tensors[tensor]
        source = "made" if tensor in made else "read" if problem.producer[tensor] >= 0 else "given"
        read = bool(problem.consumers[tensor]), tensor in problem.graph.outputs
        return found.shape, found.dtype, found.constant, problem.loop_order[tensor], source, read
