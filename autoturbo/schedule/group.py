"""Grouping layers into sub-graphs: GraphTurbo, OSDI '23, section 3.2, Algorithm 2.

Straight, diamond and branch patterns are merged, each followed by fresh splits, until a round
merges nothing. Rule (i), straight and branch merges of a producer P into a consumer Q: ``f(Q) >=
a * f(P)`` (a large factor must not leak to what follows a down-sampling) and ``f(merged) <= b *
f(Q)``. Rule (ii), diamonds: ``f(merged) <= b * max(f)`` over what is merged. The paper has
``a = b = 1``; here they are knobs.

Readings of ours: the sides of a diamond may be chains of sub-graphs that straight merges could not
join (a down-sampling block, whose first convolution needs a larger factor than its second); a
merge whose result no split makes fit is refused, although infinity <= infinity; a sub-graph whose
output leaves the model counts the outside as one more consumer. Printed, rounds end when no
pattern's count of sub-graphs falls, which is when a round merges nothing; the best split of a
merged sub-graph is computed when it is asked for, not after each pass.

Up-sampling networks need another rule (i), says section 3.6 without giving it: what follows an
up-sampling has the larger factor, and as printed it would leak back to what precedes. Here a
producer P that is merged with what up-samples its output is never split more than it was before:
all merges, then and later, also ask ``f(merged) <= b * f(P)`` (docs/decisions/0006-upsampling.md).
Networks that do not up-sample are grouped as published.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from autoturbo.graph.layers import Layer
from autoturbo.graph.operators import Operator
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.split import Split, SplitRules, best_split, splits_of

OUTSIDE = -1
"""The consumer that a model's outputs have."""


@dataclass(frozen=True, slots=True)
class SubGraph:
    """Layers that form one kernel per instance.

    Attributes:
        index: position in topological order.
        layers: indices into :attr:`Problem.layers`, in topological order; the last makes the
            output.
        split: how it is cut into instances.
    """

    index: int
    layers: tuple[int, ...]
    split: Split


@dataclass(frozen=True, slots=True)
class GroupRules:
    """The knobs that Algorithm 2 reads."""

    splits: SplitRules
    producer_ratio: float = 1.0
    merged_ratio: float = 1.0
    max_layers: int = 1 << 30
    order: str = "sdb"
    cuts: frozenset[str] = frozenset()
    merges: frozenset[str] = frozenset()

    @staticmethod
    def of(knobs: Knobs) -> GroupRules:
        """Read them from a setting."""
        return GroupRules(
            splits=SplitRules.of(knobs),
            producer_ratio=_number(knobs.producer_factor_ratio, 1.0),
            merged_ratio=_number(knobs.merged_factor_ratio, 1.0),
            max_layers=int(_number(knobs.max_layers, 1 << 30)),
            order="sdb" if knobs.merge_order == AUTO else knobs.merge_order,
            cuts=frozenset(o.layer for o in knobs.overrides if o.boundary == "cut"),
            merges=frozenset(o.layer for o in knobs.overrides if o.boundary == "merge"),
        )


def _number(value: str | float, default: float) -> float:
    return default if value == AUTO else float(value)


def group(problem: Problem, rules: GroupRules) -> tuple[SubGraph, ...]:
    """Algorithm 2: sub-graphs in topological order, remembered."""
    key = ("group", rules)
    found = problem.memory.get(key)
    if not isinstance(found, tuple):
        found = _group(problem, rules)
        problem.memory[key] = found
    return found


def _group(problem: Problem, rules: GroupRules) -> tuple[SubGraph, ...]:
    merger = _Merger(problem, rules)
    passes: dict[str, Callable[[], int]] = {
        "s": merger.straight_merge,
        "d": merger.diamond_merge,
        "b": merger.branch_merge,
    }
    while sum(passes[letter]() for letter in rules.order):
        pass
    parts = sorted(merger.members.values(), key=lambda layers: layers[-1])
    return tuple(
        SubGraph(index, layers, best_split(problem, layers, rules.splits))
        for index, layers in enumerate(parts)
    )


def upsamples(problem: Problem, layer: Layer) -> bool:
    """Whether a layer makes several output positions out of one input position.

    A layer is a straight line, so what it reads passes all of its operators.
    """
    return any(_enlarges(problem, problem.graph.operators[index]) for index in layer.operators)


def _enlarges(problem: Problem, operator: Operator) -> bool:
    """Along a dimension other than channels the output advances faster than an input, and grows.

    A reshape or a pixel shuffle also advances faster, but has as many elements as before; where the
    whole of a dimension is read (a resize by a fraction), its extents are compared.
    """
    if operator.opaque or not operator.outputs:
        return False
    return any(
        not problem.graph.tensors[tensor].constant and _stretches(problem, operator, position)
        for position, tensor in enumerate(operator.inputs)
    )


def _stretches(problem: Problem, operator: Operator, position: int) -> bool:
    source = problem.graph.tensors[operator.inputs[position]]
    made = problem.graph.tensors[operator.outputs[0]]
    if made.elements <= source.elements or len(made.shape) != len(source.shape):
        return False
    read, written = operator.input_maps[position].dims, operator.output_maps[0].dims
    steps = {axis: abs(step) for dim in read for axis, step in dim.terms}
    for dim in problem.loop_order[operator.outputs[0]][:-1]:
        faster = any(abs(step) > steps.get(axis, abs(step)) for axis, step in written[dim].terms)
        if faster or (read[dim].whole and made.shape[dim] > source.shape[dim]):
            return True
    return False


def _enlarging(problem: Problem) -> frozenset[int]:
    """The layers that up-sample, remembered."""
    found = problem.memory.get("enlarging")
    if not isinstance(found, frozenset):
        found = frozenset(layer.index for layer in problem.layers if upsamples(problem, layer))
        problem.memory["enlarging"] = found
    return found


def _opaque(problem: Problem) -> frozenset[int]:
    """The layers with an opaque operator, remembered."""
    found = problem.memory.get("opaque")
    if not isinstance(found, frozenset):
        operators = problem.graph.operators
        layers = (
            x.index for x in problem.layers if any(operators[op].opaque for op in x.operators)
        )
        found = frozenset(layers)
        problem.memory["opaque"] = found
    return found


@dataclass
class _Merger:
    """Sub-graphs while they grow; a node's number is its first layer when it was made."""

    problem: Problem
    rules: GroupRules
    members: dict[int, tuple[int, ...]] = field(default_factory=dict)
    producers: dict[int, set[int]] = field(default_factory=dict)
    consumers: dict[int, set[int]] = field(default_factory=dict)
    refused: set[tuple[int, ...]] = field(default_factory=set)
    enlarging: frozenset[int] = field(init=False)
    opaque: frozenset[int] = field(init=False)
    splits: dict[tuple[int, ...], Split] = field(init=False)
    ceiling: dict[int, float] = field(default_factory=dict)
    """Factors of producers inside a node before it up-sampled their outputs, the smallest."""

    def __post_init__(self) -> None:
        outputs = set(self.problem.graph.outputs)
        self.enlarging = _enlarging(self.problem)
        self.opaque = _opaque(self.problem)
        self.splits = splits_of(self.problem, self.rules.splits)
        for layer in self.problem.layers:
            number = layer.index
            self.members[number] = (number,)
            made_by = {self.problem.producer[t] for t in layer.inputs} - {-1}
            self.producers[number] = made_by
            self.consumers[number] = {r for t in layer.outputs for r in self.problem.consumers[t]}
            if outputs & set(layer.outputs):
                self.consumers[number].add(OUTSIDE)

    def straight_merge(self) -> int:
        """P is the unique producer of Q and Q the unique consumer of P: merge {P, Q}."""
        merged = 0
        for number in sorted(self.members):
            while number in self.members and self._straight(number):
                merged += 1
        return merged

    def _straight(self, producer: int) -> bool:
        readers = self.consumers[producer]
        if len(readers) != 1 or OUTSIDE in readers:
            return False
        consumer = next(iter(readers))
        return self.producers[consumer] == {producer} and self._merge_pair(producer, consumer)

    def branch_merge(self) -> int:
        """Q has several producers and is the unique consumer of one, P: merge {P, Q}."""
        merged = 0
        for consumer in sorted(self.members):
            if consumer in self.members and len(self.producers[consumer]) > 1:
                merged += self._branch(consumer)
        return merged

    def _branch(self, consumer: int) -> bool:
        """One producer, the latest that may; what then is straight is left to straight merges."""
        return any(
            self.consumers[producer] == {consumer} and self._merge_pair(producer, consumer)
            for producer in sorted(self.producers[consumer], reverse=True)
        )

    def diamond_merge(self) -> int:
        """Two or more paths from an entry to an exit: merge what lies on them and the exit."""
        merged = 0
        for exit_node in sorted(self.members):
            if exit_node in self.members and len(self.producers[exit_node]) > 1:
                merged += self._diamond(exit_node)
        return merged

    def _diamond(self, exit_node: int) -> bool:
        by_entry: dict[int, list[int]] = {}
        for producer in sorted(self.producers[exit_node]):
            path, entry = self._walk_back(producer, exit_node)
            if path and entry is not None:
                by_entry.setdefault(entry, []).extend(path)
        for nodes in by_entry.values():
            if sum(exit_node in self.consumers[n] for n in nodes) > 1:
                return self._merge_diamond([*nodes, exit_node])
        return False

    def _walk_back(self, node: int, reader: int) -> tuple[list[int], int | None]:
        """Sub-graphs with one producer and one consumer, up to the entry."""
        path: list[int] = []
        while self.consumers[node] == {reader} and len(self.producers[node]) == 1:
            path.append(node)
            reader, node = node, next(iter(self.producers[node]))
        return path, node if path else None

    def _merge_diamond(self, nodes: list[int]) -> bool:
        """Rule (ii)."""
        return self._try(nodes, self._bound(nodes, max(self._factor(n) for n in nodes)))

    def _merge_pair(self, producer: int, consumer: int) -> bool:
        """Rule (i)."""
        nodes = [producer, consumer]
        if self._last_name(producer) in self.rules.merges:
            return self._try(nodes, math.inf)
        after = self._factor(consumer)
        if after < self.rules.producer_ratio * self._factor(producer):
            return False
        return self._try(nodes, self._bound(nodes, after))

    def _bound(self, nodes: Sequence[int], factor: float) -> float:
        """The largest factor that merged nodes may have."""
        return self.rules.merged_ratio * min(factor, self._ceiling(nodes))

    def _ceiling(self, nodes: Sequence[int]) -> float:
        """The smallest factor that a producer had which the merged nodes up-sample."""
        if not self.enlarging:
            return math.inf
        before = (self.ceiling.get(node, math.inf) for node in nodes)
        now = (self._factor(node) for node in nodes if self._is_upsampled(node, nodes))
        return min((*before, *now))

    def _is_upsampled(self, node: int, nodes: Iterable[int]) -> bool:
        """Whether one of some nodes up-samples another's output."""
        made = self.problem.layers[self.members[node][-1]].outputs
        readers = {r for t in made for r in self.problem.consumers[t]} & self.enlarging
        return any(reader in self.members[n] for reader in readers for n in nodes)

    def _try(self, nodes: list[int], bound: float) -> bool:
        """Merge if size, cuts and the rule allow it."""
        layers = tuple(sorted(x for n in nodes for x in self.members[n]))
        if layers in self.refused:
            return False
        if not self._may_join(nodes, layers) or not self._fits(layers, bound):
            self.refused.add(layers)
            return False
        self._join(nodes, layers)
        return True

    def _may_join(self, nodes: list[int], layers: tuple[int, ...]) -> bool:
        cut = any(self._last_name(n) in self.rules.cuts for n in nodes[:-1])
        opaque = self.opaque and not self.opaque.isdisjoint(layers)
        return len(layers) <= self.rules.max_layers and not cut and not opaque

    def _fits(self, layers: tuple[int, ...], bound: float) -> bool:
        factor = self._split(layers).factor
        return not math.isinf(factor) and factor <= bound

    def _join(self, nodes: list[int], layers: tuple[int, ...]) -> None:
        """Replace nodes by their union, kept under the last one's number."""
        kept, gone = nodes[-1], set(nodes)
        ceiling = self._ceiling(nodes)
        made_by = set().union(*(self.producers[n] for n in nodes)) - gone
        for node in nodes[:-1]:
            del self.members[node], self.consumers[node], self.producers[node]
        self.members[kept], self.producers[kept], self.ceiling[kept] = layers, made_by, ceiling
        for node in made_by:
            self.consumers[node] = _replaced(self.consumers[node], gone, kept)

    def _factor(self, node: int) -> float:
        return self._split(self.members[node]).factor

    def _split(self, layers: tuple[int, ...]) -> Split:
        found = self.splits.get(layers)
        return best_split(self.problem, layers, self.rules.splits) if found is None else found

    def _last_name(self, node: int) -> str:
        return self.problem.layers[self.members[node][-1]].name


def _replaced(nodes: Iterable[int], gone: set[int], kept: int) -> set[int]:
    return {kept if node in gone else node for node in nodes}
