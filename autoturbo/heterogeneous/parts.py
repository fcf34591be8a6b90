"""Parts: layers that run as one on a unit, and how they depend on each other.

A part is convex: no way leads out of it and back in, so that it can run when all that it reads is
there. Parts of one unit are joined along the graph's edges as far as they stay convex, unless a cut
is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from autoturbo.graph.layers import Layer
from autoturbo.graph.operators import Engine, Graph, Operator
from autoturbo.hardware.machine import Machine, OperatorRule, Unit


@dataclass(frozen=True, slots=True)
class Part:
    """Layers that one unit runs as one.

    Attributes:
        unit: Index in the machine.
        layers: Indices, ascending.
    """

    unit: int
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The parts of a model, each with its unit.

    Attributes:
        parts: Every layer once, each part after those that it reads from.
        in_turn: One part or copy at a time, in this order; side by side where it is False.
    """

    parts: tuple[Part, ...]
    in_turn: bool = False

    @property
    def units(self) -> tuple[int, ...]:
        """Return the unit of each layer."""
        unit_of = {layer: part.unit for part in self.parts for layer in part.layers}
        return tuple(unit_of[layer] for layer in range(len(unit_of)))


def layer_producers(graph: Graph, layers: Sequence[Layer]) -> tuple[tuple[int, ...], ...]:
    """Return, per layer, the layers that it reads from, ascending."""
    owner = {operator: layer.index for layer in layers for operator in layer.operators}
    return tuple(
        tuple(sorted({owner[p] for t in layer.inputs if (p := graph.producer[t]) >= 0}))
        for layer in layers
    )


def assign(
    graph: Graph, layers: Sequence[Layer], units: Sequence[int], cuts: Collection[int] = ()
) -> Assignment:
    """Return the assignment of layers with known units, its parts as large as possible.

    Args:
        graph: The model.
        layers: Its layers, in topological order.
        units: Per layer, its unit.
        cuts: Layers that open a part: they join nothing that they read from.
    """
    return merge(layer_producers(graph, layers), units, cuts)


def merge(
    producers: Sequence[Sequence[int]], units: Sequence[int], cuts: Collection[int] = ()
) -> Assignment:
    """Return the assignment from each layer's producers, all before it; see :func:`assign`."""
    merger = _Merger(units)
    for layer, read in enumerate(producers):
        merger.add(layer, read, join=layer not in cuts)
    return merger.assignment()


def part_producers(
    graph: Graph, layers: Sequence[Layer], parts: Sequence[Part]
) -> tuple[tuple[int, ...], ...]:
    """Return, per part, the parts that it reads from, ascending."""
    owner = {layer: index for index, part in enumerate(parts) for layer in part.layers}
    reads = layer_producers(graph, layers)
    return tuple(
        tuple(sorted({owner[r] for layer in part.layers for r in reads[layer]} - {index}))
        for index, part in enumerate(parts)
    )


class _Merger:
    """Parts that grow layer by layer; sets of parts are bits of an integer."""

    def __init__(self, units: Sequence[int]) -> None:
        self.units = units
        self.members: dict[int, list[int]] = {}
        self.part_of: dict[int, int] = {}
        self.above: dict[int, int] = {}
        """Per part, all parts that it depends on, itself left out."""

    def add(self, layer: int, producers: Sequence[int], *, join: bool) -> None:
        """Add a layer as a part of its own, and join it with those it reads from."""
        self.members[layer], self.part_of[layer] = [layer], layer
        read = {self.part_of[p] for p in producers}
        self.above[layer] = self._closure(read)
        for part in sorted(read) if join else ():
            if self.units[part] == self.units[layer] and part in self.members:
                self._join(part, self.part_of[layer])

    def _closure(self, parts: Collection[int]) -> int:
        reached = 0
        for part in parts:
            reached |= 1 << part | self.above[part]
        return reached

    def _join(self, first: int, second: int) -> None:
        """Merge two parts, the second reading from the first, unless a third lies between them."""
        if first == second or self._goes_around(first, second):
            return
        for layer in self.members[first]:
            self.part_of[layer] = second
        self.members[second] = sorted(self.members.pop(first) + self.members[second])
        self.above[second] = (self.above[second] | self.above.pop(first)) & ~(1 << first)
        pair = 1 << first | 1 << second
        for part, above in self.above.items():
            if above & pair:
                self.above[part] = (above & ~(1 << first)) | 1 << second | self.above[second]

    def _goes_around(self, first: int, second: int) -> bool:
        """Return whether a path from one part to the other leads through a third."""
        return any(
            (self.above[second] >> part & 1 and self.above[part] >> first & 1)
            or (self.above[first] >> part & 1 and self.above[part] >> second & 1)
            for part in self.members
            if part not in (first, second)
        )

    def assignment(self) -> Assignment:
        """Return the parts in topological order."""
        order: list[int] = []
        waiting = dict(self.above)
        done = 0
        while waiting:
            ready = [part for part, above in waiting.items() if not above & ~done]
            part = min(ready, key=lambda p: self.members[p][0])
            order.append(part)
            done |= 1 << part
            del waiting[part]
        return Assignment(
            tuple(Part(self.units[part], tuple(self.members[part])) for part in order)
        )


@dataclass(frozen=True, slots=True)
class Branch:
    """A chain of layers.

    Attributes:
        layers: Indices, in order.
        beside: Branches that run beside it, itself among them, by index; alone where it is the
            only one.
    """

    layers: tuple[int, ...]
    beside: tuple[int, ...]


def branches_of(producers: Sequence[Sequence[int]]) -> tuple[Branch, ...]:
    """Return the branches of a network, each after those it reads from.

    Args:
        producers: Per layer the layers that it reads from, all before it.
    """
    readers: list[list[int]] = [[] for _ in producers]
    for layer, read in enumerate(producers):
        for before in read:
            readers[before].append(layer)
    chains: list[list[int]] = []
    chain_of: dict[int, int] = {}
    for layer, read in enumerate(producers):
        # a chain goes on only where nothing else joins it or leaves it
        if len(read) == 1 and len(readers[read[0]]) == 1:
            chain = chain_of[read[0]]
        else:
            chain = len(chains)
            chains.append([])
        chains[chain].append(layer)
        chain_of[layer] = chain
    beside = _beside(chains, producers, readers, chain_of)
    return tuple(
        Branch(tuple(chain), beside.get(index, (index,))) for index, chain in enumerate(chains)
    )


def _beside(
    chains: Sequence[Sequence[int]],
    producers: Sequence[Sequence[int]],
    readers: Sequence[Sequence[int]],
    chain_of: dict[int, int],
) -> dict[int, tuple[int, ...]]:
    """Return the parallel branches: those that end in one layer and read from one place."""
    beside: dict[int, tuple[int, ...]] = {}
    for read in producers:
        ends = [chain_of[before] for before in read if len(readers[before]) == 1]
        by_source: dict[tuple[int, ...], list[int]] = {}
        for chain in ends:
            by_source.setdefault(tuple(producers[chains[chain][0]]), []).append(chain)
        for group in by_source.values():
            if len(group) > 1:
                beside |= dict.fromkeys(group, tuple(sorted(group)))
    return beside


_CONVOLUTION_RANK = 3
"""Dimensions of the smallest convolution's tensors: samples, channels, one of space."""


def takes(unit: Unit, graph: Graph, layer: Layer) -> bool:
    """Return whether a unit can run a layer."""
    return not unit.takes or any(_fits(rule, graph, layer) for rule in unit.takes)


def units_of(
    machine: Machine, graph: Graph, layers: tuple[Layer, ...]
) -> tuple[tuple[int, ...], ...]:
    """Return, per layer, the units that can run it, by index, in the machine's order."""
    return tuple(
        tuple(index for index, unit in enumerate(machine.units) if takes(unit, graph, layer))
        for layer in layers
    )


def _fits(rule: OperatorRule, graph: Graph, layer: Layer) -> bool:
    anchor = graph.operators[layer.anchor]
    others = (graph.operators[i] for i in layer.operators if i != layer.anchor)
    if anchor.kind not in rule.kinds or anchor.opaque:
        return False
    if any(other.engine is not Engine.NONE and other.kind not in rule.fused for other in others):
        return False
    read, made, groups = channels(graph, anchor)
    whole = read % rule.channels_multiple == 0 and made % rule.channels_multiple == 0
    return whole and (rule.grouped or groups == 1)


def channels(graph: Graph, operator: Operator) -> tuple[int, int, int]:
    """Return the input channels, output channels and groups of an operator with weights.

    A product's are its inner and its last extent; what has no second operand has none: 1, 1, 1.
    """
    if len(operator.inputs) < 2:  # noqa: PLR2004  data and weights
        return 1, 1, 1
    data, weight = (graph.tensors[t].shape for t in operator.inputs[:2])
    shape = graph.tensors[operator.outputs[0]].shape
    if operator.engine is not Engine.MATRIX or not weight or not data or not shape:
        return 1, 1, 1
    if len(weight) >= _CONVOLUTION_RANK and len(data) == len(weight):
        read = data[1]
        return read, shape[1], max(read // max(weight[1], 1), 1)
    return data[-1], shape[-1], 1
