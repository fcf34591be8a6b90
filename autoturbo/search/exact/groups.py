"""Sets of layers that can be one sub-graph, and which of them are alike.

A sub-graph has one layer whose output others see, its *end*; every other layer of it is read by
layers of the sub-graph alone. Such sets can be put together in any way that covers each layer once:
no two of them can wait for each other, since what leaves a set leaves it by its end.
"""

from __future__ import annotations

import dataclasses
import hashlib
from array import array
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from autoturbo.graph.layers import Layer
from autoturbo.schedule.partition.split import SplitRules, best_split
from autoturbo.schedule.problem import Problem

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
    problem: Problem, limits: GroupLimits, rules: SplitRules, likeness: Likeness | None = None
) -> tuple[list[list[Layers]], bool]:
    """Return per layer the sets that end in it, and whether these are all within ``limits.layers``.

    A set of several layers that no split makes fit the local buffers is left out, as Algorithm 2
    refuses it whatever the knobs.

    Args:
        problem: whose layers.
        limits: of the sets.
        rules: of splits.
        likeness: of sets of the problem; what is alike fits alike.
    """
    likeness = likeness or Likeness(problem)
    wiring, found, complete = _Wiring.of(problem), [], True
    fits: dict[bytes, bool] = {}
    for end in range(len(problem.layers)):
        sets, all_of_them = _ending_in(wiring, end, limits)
        complete = complete and all_of_them
        usable = sets[:1]
        for layers in sets[1:]:
            kind = likeness.of(layers)
            if kind not in fits:
                fits[kind] = _fits(problem, layers, rules)
            if fits[kind]:
                usable.append(layers)
        found.append(usable)
    return found, complete


_SEEN = -1
"""The reader that a model's outputs have."""


@dataclass(frozen=True, slots=True)
class _Wiring:
    """Per layer, the layers that read it, those that it reads from, and whether it is opaque."""

    readers: list[frozenset[int]]
    makers: list[frozenset[int]]
    opaque: list[bool]

    @staticmethod
    def of(problem: Problem) -> _Wiring:
        outputs, operators = set(problem.graph.outputs), problem.graph.operators
        return _Wiring(
            [
                frozenset({r for t in layer.outputs for r in problem.consumers[t]})
                | ({_SEEN} if outputs & set(layer.outputs) else set())
                for layer in problem.layers
            ],
            [frozenset({problem.producer[t] for t in x.inputs} - {-1}) for x in problem.layers],
            [any(operators[op].opaque for op in layer.operators) for layer in problem.layers],
        )  # fmt: skip


def _ending_in(wiring: _Wiring, end: int, limits: GroupLimits) -> tuple[list[Layers], bool]:
    """Sets grown from their end, which comes first, by layers that nothing outside them reads."""
    alone = frozenset({end})
    if wiring.opaque[end]:
        return [(end,)], True
    found, queue, full = {alone: None}, deque([alone]), True
    while queue:
        one = queue.popleft()
        if len(one) == limits.layers:
            continue
        makers = frozenset().union(*(wiring.makers[layer] for layer in one)) - one
        for layer in sorted(makers, reverse=True):
            grown = one | {layer}
            if not wiring.readers[layer] <= one or grown in found or wiring.opaque[layer]:
                continue
            if len(found) == limits.sets:
                full = False
                break
            found[grown] = None
            queue.append(grown)
    return [tuple(sorted(s)) for s in found], full


def _fits(problem: Problem, layers: Layers, rules: SplitRules) -> bool:
    return best_split(problem, layers, rules).factor != float("inf")


@dataclass(eq=False)
class Likeness:
    """Tells sets of layers that cost the same whatever is chosen for them.

    Attributes:
        problem: where the layers come from.
    """

    problem: Problem
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _layers: list[tuple[int, tuple[int, ...]]] = field(init=False)
    _outside: list[int] = field(init=False)
    _inside: list[int] = field(init=False)
    _known: dict[Layers, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._layers = [self._layer(layer) for layer in self.problem.layers]
        outputs = frozenset(self.problem.graph.outputs)
        tensors = range(len(self.problem.graph.tensors))
        self._outside = [self._tensor(t, outputs, made=False) for t in tensors]
        self._inside = [self._tensor(t, outputs, made=True) for t in tensors]

    def of(self, layers: Layers) -> bytes:
        """Return what is equal for sets with the same operators, extents, wires and readers."""
        found = self._known.get(layers)
        if found is None:
            found = self._known[layers] = self._of(layers)
        return found

    def _of(self, layers: Layers) -> bytes:
        """A digest: sets are many, and what there is to say of one takes some kilobytes."""
        names: dict[int, int] = {}
        wires = [names.setdefault(t, len(names)) for x in layers for t in self._layers[x][1]]
        made = {t for x in layers for t in self.problem.layers[x].outputs}
        numbers = array("q", [len(layers)])
        numbers.extend(self._layers[x][0] for x in layers)
        numbers.extend(wires)
        numbers.extend(self._inside[t] if t in made else self._outside[t] for t in names)
        return hashlib.blake2b(numbers.tobytes(), digest_size=16).digest()

    def _layer(self, layer: Layer) -> tuple[int, tuple[int, ...]]:
        """A number of what a layer is besides its wires, and its tensors operator by operator."""
        operators = [self.problem.graph.operators[op] for op in layer.operators]
        kinds = tuple(
            (
                self._number(dataclasses.replace(o, name="", inputs=(), outputs=())),
                len(o.inputs), len(o.outputs),
            )
            for o in operators
        )  # fmt: skip
        wires = tuple(t for o in operators for t in (*o.inputs, *o.outputs))
        return self._number((layer.in_place, kinds)), wires

    def _tensor(self, tensor: int, outputs: frozenset[int], *, made: bool) -> int:
        """What of a tensor matters: its extents and where it comes from and goes."""
        problem, found = self.problem, self.problem.graph.tensors[tensor]
        source = "made" if made else "read" if problem.producer[tensor] >= 0 else "given"
        return self._number((
            found.shape, found.dtype, found.integer_bytes, found.stored, found.constant,
            problem.loop_order[tensor], source, bool(problem.consumers[tensor]), tensor in outputs,
        ))  # fmt: skip

    def _number(self, kind: Hashable) -> int:
        return self._numbers.setdefault(kind, len(self._numbers))
