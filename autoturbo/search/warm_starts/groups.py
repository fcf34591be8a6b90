"""Sets of layers that can be one sub-graph, and which of them are alike.

A sub-graph has one layer whose output others see, its *end*; every other layer of it is read by
layers of the sub-graph alone. Such sets can be put together in any way that covers each layer
once: no two of them can wait for each other, since what leaves a set leaves it by its end.
"""

from __future__ import annotations

import dataclasses
import hashlib
from array import array
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from autoturbo.graph.layers import Layer
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.partition.split import SplitRules, best_split

Layers = tuple[int, ...]
"""Indices of layers, ascending; the last is the end."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The limits of the sets that are considered.

    Attributes:
        layers: Most layers of one.
        sets: Most of them with the same end, those with fewer layers first.
    """

    layers: int = 64
    sets: int = 256


def groups_of(
    context: SchedulingContext,
    limits: GroupLimits,
    rules: SplitRules,
    likeness: IsomorphismKeys | None = None,
) -> tuple[list[list[Layers]], bool]:
    """Return per layer the sets that end in it, and whether these are all within ``limits.layers``.

    A set of several layers that no split makes fit the local buffers is left out, as Algorithm 2
    refuses it whatever the knobs.

    Args:
        context: The model on the target.
        limits: Of the sets.
        rules: Of splits.
        likeness: Of sets of the context; what is alike fits alike.
    """
    likeness = likeness or IsomorphismKeys(context)
    wiring, rows, complete = _Wiring.of(context), [], True
    fits: dict[bytes, bool] = {}
    for end in range(len(context.layers)):
        sets, all_of_them = _ending_in(wiring, end, limits)
        complete = complete and all_of_them
        usable = sets[:1]
        for layers in sets[1:]:
            kind = likeness.of(layers)
            if kind not in fits:
                fits[kind] = _fits(context, layers, rules)
            if fits[kind]:
                usable.append(layers)
        rows.append(usable)
    return rows, complete


_SEEN = -1
"""The reader that a model's outputs have."""


@dataclass(frozen=True, slots=True)
class _Wiring:
    """Per layer, the layers that read it, those that it reads from, and whether it is opaque."""

    readers: list[frozenset[int]]
    makers: list[frozenset[int]]
    opaque: list[bool]

    @staticmethod
    def of(context: SchedulingContext) -> _Wiring:
        outputs, operators = set(context.graph.outputs), context.graph.operators
        return _Wiring(
            [
                frozenset({r for t in layer.outputs for r in context.consumers[t]})
                | ({_SEEN} if outputs & set(layer.outputs) else set())
                for layer in context.layers
            ],
            [frozenset({context.producer[t] for t in x.inputs} - {-1}) for x in context.layers],
            [any(operators[op].opaque for op in layer.operators) for layer in context.layers],
        )  # fmt: skip


def _ending_in(wiring: _Wiring, end: int, limits: GroupLimits) -> tuple[list[Layers], bool]:
    """Return the sets that end in a layer, grown by layers that nothing outside them reads."""
    alone = frozenset({end})
    if wiring.opaque[end]:
        return [(end,)], True
    grown_sets, queue, full = {alone: None}, deque([alone]), True
    while queue:
        members = queue.popleft()
        if len(members) == limits.layers:
            continue
        makers = frozenset().union(*(wiring.makers[layer] for layer in members)) - members
        for layer in sorted(makers, reverse=True):
            grown = members | {layer}
            if not wiring.readers[layer] <= members or grown in grown_sets or wiring.opaque[layer]:
                continue
            if len(grown_sets) == limits.sets:
                full = False
                break
            grown_sets[grown] = None
            queue.append(grown)
    return [tuple(sorted(s)) for s in grown_sets], full


def _fits(context: SchedulingContext, layers: Layers, rules: SplitRules) -> bool:
    return best_split(context, layers, rules).factor != float("inf")


@dataclass(eq=False)
class IsomorphismKeys:
    """Keys of sets of layers that cost the same under all choices.

    Attributes:
        context: Where the layers come from.
    """

    context: SchedulingContext
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _layers: list[tuple[int, tuple[int, ...]]] = field(init=False)
    _outside: list[int] = field(init=False)
    _inside: list[int] = field(init=False)
    _known: dict[Layers, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._layers = [self._layer(layer) for layer in self.context.layers]
        outputs = frozenset(self.context.graph.outputs)
        tensors = range(len(self.context.graph.tensors))
        self._outside = [self._tensor(t, outputs, made=False) for t in tensors]
        self._inside = [self._tensor(t, outputs, made=True) for t in tensors]

    def of(self, layers: Layers) -> bytes:
        """Return a key that is equal for sets with equal operators, extents, wires and readers."""
        digest = self._known.get(layers)
        if digest is None:
            digest = self._known[layers] = self._of(layers)
        return digest

    def _of(self, layers: Layers) -> bytes:
        """Return a digest of a set: sets are many, and a full description takes some kilobytes."""
        names: dict[int, int] = {}
        wires = [names.setdefault(t, len(names)) for x in layers for t in self._layers[x][1]]
        outputs = {t for x in layers for t in self.context.layers[x].outputs}
        numbers = array("q", [len(layers)])
        numbers.extend(self._layers[x][0] for x in layers)
        numbers.extend(wires)
        numbers.extend(self._inside[t] if t in outputs else self._outside[t] for t in names)
        return hashlib.blake2b(numbers.tobytes(), digest_size=16).digest()

    def _layer(self, layer: Layer) -> tuple[int, tuple[int, ...]]:
        """Return a number for a layer without its wires, and its tensors operator by operator."""
        operators = [self.context.graph.operators[op] for op in layer.operators]
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
        """Return a number for a tensor's extents, its source and its readers."""
        context, found = self.context, self.context.graph.tensors[tensor]
        source = "made" if made else "read" if context.producer[tensor] >= 0 else "given"
        return self._number((
            found.shape, found.dtype, found.integer_bytes, found.stored, found.constant,
            context.loop_order[tensor], source, bool(context.consumers[tensor]), tensor in outputs,
        ))  # fmt: skip

    def _number(self, kind: Hashable) -> int:
        return self._numbers.setdefault(kind, len(self._numbers))
