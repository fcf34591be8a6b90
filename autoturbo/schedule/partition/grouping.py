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

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import or_
from typing import Any, Final, NamedTuple

from autoturbo.graph.layers import Layer
from autoturbo.graph.operators import Operator
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.schedule.partition.split import Asked, Split, SplitRules, best_split
from autoturbo.schedule.problem import Problem
from autoturbo.stores import Recent, remembered

_GROUPINGS, _SUBGRAPHS, _RUNS = 4096, 1 << 16, 1024
"""Groupings that a problem remembers at most, their sub-graphs together, and runs."""


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

    def recut(self, split: Split) -> SubGraph:
        """The same layers, cut otherwise."""
        return SubGraph(self.index, self.layers, split)


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
        said: dict[str, Any] = {
            "producer_ratio": knobs.producer_factor_ratio,
            "merged_ratio": knobs.merged_factor_ratio,
            "max_layers": knobs.max_layers,
            "order": knobs.merge_order,
        }
        return GroupRules(
            SplitRules.of(knobs),
            **{name: value for name, value in said.items() if value != AUTO},
            cuts=frozenset(o.layer for o in knobs.overrides if o.boundary == "cut"),
            merges=frozenset(o.layer for o in knobs.overrides if o.boundary == "merge"),
        )


class Run(NamedTuple):
    """A run of Algorithm 2: its rules, what was asked of them, and what it gave."""

    rules: GroupRules
    asked: Asked
    subgraphs: tuple[SubGraph, ...]

    def holds(self, rules: GroupRules, room: int) -> bool:
        """Return whether other rules, with room for so many bytes, answer all that was asked alike.

        Where sub-graphs had to be split, all that the search for splits reads has to be the same.
        """
        asked, own = self.asked, self.rules
        return (
            asked.room <= room
            and asked.has("recompute_limit", rules.splits.recompute_limit)
            and asked.has("producer_ratio", rules.producer_ratio)
            and asked.has("merged_ratio", rules.merged_ratio)
            and asked.has("max_layers", rules.max_layers)
            and (not asked.split or rules.splits.searched == own.splits.searched)
            and (not asked.keyed or rules.splits.key == own.splits.key)
            and asked.cuts.isdisjoint(rules.cuts ^ own.cuts)
            and asked.merges.isdisjoint(rules.merges ^ own.merges)
        )


@dataclass(eq=False)
class Groupings:
    """What is remembered of a problem's groupings.

    A grouping holds for all rules that would have answered alike what was asked of its own
    (:class:`autoturbo.schedule.partition.split.Asked`); most rules of a search fall into the bounds
    of others.

    Attributes:
        known: sub-graphs by rules.
        runs: of Algorithm 2.
    """

    known: Recent[GroupRules, tuple[SubGraph, ...]] = field(
        default_factory=lambda: Recent(_GROUPINGS, _SUBGRAPHS, len)
    )
    runs: list[Run] = field(default_factory=list)

    def of(self, problem: Problem, rules: GroupRules) -> tuple[SubGraph, ...]:
        """Return the sub-graphs of some rules."""
        return self.known.get(rules, lambda: self._found_or_made(problem, rules))

    def _found_or_made(self, problem: Problem, rules: GroupRules) -> tuple[SubGraph, ...]:
        if not _facts(problem).branching:  # all patterns but the straight one match nothing
            rules = dataclasses.replace(rules, order="s")
        room = rules.splits.room(problem)
        for run in self.runs:
            if run.rules.order == rules.order and run.holds(rules, room):
                return run.subgraphs
        merging = Merging(problem, rules)
        found = merging.subgraphs()
        if len(self.runs) >= _RUNS:
            self.runs.clear()
        self.runs.append(Run(rules, merging.asked, found))
        return found

    def forget(self) -> None:
        """Drop all groupings."""
        self.known.forget()
        self.runs.clear()


@remembered(1)
def groupings(problem: Problem) -> Groupings:
    """Return what is remembered of a problem's groupings."""
    del problem
    return Groupings()


def group(problem: Problem, rules: GroupRules) -> tuple[SubGraph, ...]:
    """Return the sub-graphs of Algorithm 2, in topological order; remembered."""
    return groupings(problem).of(problem, rules)


class Need(NamedTuple):
    """Bytes that a sub-graph may need as a whole: a bound that adds up layer by layer.

    Attributes:
        peak: at once, at most.
        given: of what no layer makes.
        unread: of what nobody reads, which stays to the end.
    """

    peak: int
    given: int
    unread: int

    def then(self, reader: Need) -> Need:
        """Return the bound of a sub-graph and the one after it that alone reads all of it."""
        peak = max(self.peak + reader.given, self.unread + reader.peak)
        return Need(peak, self.given + reader.given, self.unread + reader.unread)


@dataclass(slots=True, eq=False)
class Node:
    """A sub-graph while it grows.

    Attributes:
        layers: ascending.
        bits: the layers again, a bit for each.
        producers: the nodes that it reads from.
        consumers: the nodes that read from it, and :data:`OUTSIDE` where it leaves the model.
        need: whole; None where there is no bound.
        ceiling: the smallest factor that a producer inside had before its output was up-sampled.
        split: how it is cut; None while nobody asked.
    """

    layers: list[int]
    bits: int
    producers: set[int]
    consumers: set[int]
    need: Need | None
    ceiling: float = math.inf
    split: Split | None = None

    def copy(self) -> Node:
        """Return a node that grows on its own."""
        producers, consumers = self.producers.copy(), self.consumers.copy()
        return Node(self.layers.copy(), self.bits, producers, consumers, self.need)


OUTSIDE: Final = -1
"""The consumer that a model's outputs have."""


class _Facts(NamedTuple):
    """What all runs read of a model.

    Attributes:
        opaque: the layers with an opaque operator.
        enlarging: the layers that up-sample.
        alone: a sub-graph of each layer, to copy.
        branching: whether any layer reads from several.
    """

    opaque: frozenset[int]
    enlarging: frozenset[int]
    alone: list[Node]
    branching: bool


@remembered(1)
def _facts(problem: Problem) -> _Facts:
    operators, alone = problem.graph.operators, _alone(problem)
    opaque = (x.index for x in problem.layers if any(operators[op].opaque for op in x.operators))
    enlarging = (x.index for x in problem.layers if upsamples(problem, x))
    branching = any(len(node.producers) > 1 for node in alone)
    return _Facts(frozenset(opaque), frozenset(enlarging), alone, branching)


def _alone(problem: Problem) -> list[Node]:
    """Return a node of each layer."""
    found, outputs, tensors = [], set(problem.graph.outputs), problem.graph.tensors
    element = problem.arrays.element.tolist()
    sizes = [tensor.elements * size for tensor, size in zip(tensors, element, strict=True)]
    for layer in problem.layers:
        consumers = {r for t in layer.outputs for r in problem.consumers[t]}
        if outputs & set(layer.outputs):
            consumers.add(OUTSIDE)
        producers = {problem.producer[t] for t in layer.inputs} - {-1}
        need = Need(
            sum(sizes[t] for t in (*layer.inputs, *layer.outputs)),
            sum(sizes[t] for t in layer.inputs if problem.producer[t] < 0),
            sum(sizes[t] for t in layer.outputs if not problem.consumers[t]),
        )
        found.append(Node([layer.index], 1 << layer.index, producers, consumers, need))
    return found


class Merging:
    """One run of Algorithm 2.

    Attributes:
        nodes: sub-graphs while they grow, by their last layer, which makes the output.
        asked: what was asked of the rules.
    """

    def __init__(self, problem: Problem, rules: GroupRules) -> None:
        self._problem, self._rules, self._model = problem, rules, _facts(problem)
        self._room = rules.splits.room(problem)
        self._refused: set[int] = set()
        self.asked = Asked()
        self.nodes = {index: node.copy() for index, node in enumerate(self._model.alone)}

    def subgraphs(self) -> tuple[SubGraph, ...]:
        """Return the sub-graphs: rounds of patterns in some order until one merges nothing."""
        while sum(map(self.merge, self._rules.order)):
            pass
        return tuple(
            SubGraph(index, tuple(node.layers), self._split(node))
            for index, (number, node) in enumerate(sorted(self.nodes.items()))
        )

    def merge(self, letter: str) -> int:
        """Merge by the straight, diamond or branch pattern and return how often."""
        pattern = {"s": self._straight, "d": self._diamond, "b": self._branch}[letter]
        return sum(number in self.nodes and pattern(number) for number in sorted(self.nodes))

    def _straight(self, producer: int) -> bool:
        """P is the unique producer of Q and Q the unique consumer of P: merge {P, Q}."""
        consumers = self.nodes[producer].consumers
        if len(consumers) != 1 or OUTSIDE in consumers:
            return False
        (consumer,) = consumers
        alone = self.nodes[consumer].producers == {producer}
        return alone and self._merge_pair(producer, consumer)

    def _branch(self, consumer: int) -> bool:
        """Q has several producers and is the unique consumer of one, P: merge {P, Q}.

        The latest that may; what then is straight is left to straight merges.
        """
        producers = self.nodes[consumer].producers
        return len(producers) > 1 and any(
            self.nodes[producer].consumers == {consumer} and self._merge_pair(producer, consumer)
            for producer in sorted(producers, reverse=True)
        )

    def _diamond(self, end: int) -> bool:
        """Two or more paths lead from an entry to an exit: merge what lies on them and the exit."""
        producers = self.nodes[end].producers
        if len(producers) < 2:  # noqa: PLR2004
            return False
        paths: dict[int, list[int]] = {}
        for producer in sorted(producers):
            path, entry = self._walk_back(producer, end)
            if path:
                paths.setdefault(entry, []).extend(path)
        for nodes in paths.values():
            if sum(end in self.nodes[node].consumers for node in nodes) > 1:
                return self._merge_diamond([*nodes, end])
        return False

    def _walk_back(self, node: int, reader: int) -> tuple[list[int], int]:
        """Return the nodes with one producer and one consumer before a reader, and their entry."""
        path: list[int] = []
        while self.nodes[node].consumers == {reader} and len(self.nodes[node].producers) == 1:
            path.append(node)
            reader, (node,) = node, self.nodes[node].producers
        return path, node

    def _merge_diamond(self, nodes: list[int]) -> bool:
        """Merge by rule (ii)."""
        ceiling = self._ceiling(nodes)
        return self._try(nodes, min(max(map(self._factor, nodes)), ceiling), ceiling)

    def _merge_pair(self, producer: int, consumer: int) -> bool:
        """Merge by rule (i)."""
        nodes, name = [producer, consumer], self._problem.layers[producer].name
        forced, ceiling = name in self._rules.merges, self._ceiling(nodes)
        if forced:
            merged = self._try(nodes, math.inf, ceiling)
        elif self._is_smaller(consumer, producer):
            merged = False
        else:
            merged = self._try(nodes, min(self._factor(consumer), ceiling), ceiling)
        if forced or not merged:
            self.asked.merges.add(name)
        return merged

    def _is_smaller(self, consumer: int, producer: int) -> bool:
        """Return whether a consumer's factor is too small for its producer's."""
        before, after = self._factor(producer), self._factor(consumer)
        # infinity is below every multiple of infinity but that by 0, which is no number
        threshold = _NEVER if math.isinf(before) or math.isinf(after) else after / before
        ratio = self._rules.producer_ratio
        self.asked.side("producer_ratio", ratio, threshold)
        return after < ratio * before

    def _ceiling(self, nodes: Sequence[int]) -> float:
        """Return the smallest factor that a producer had which the merged nodes up-sample."""
        if not self._model.enlarging:
            return math.inf
        now = (self._factor(node) for node in nodes if self._is_upsampled(node, nodes))
        return min((*(self.nodes[node].ceiling for node in nodes), *now))

    def _is_upsampled(self, node: int, nodes: Iterable[int]) -> bool:
        """Return whether one of some nodes up-samples another's output."""
        made = self._problem.layers[node].outputs
        readers = {r for t in made for r in self._problem.consumers[t]} & self._model.enlarging
        return any(not readers.isdisjoint(self.nodes[n].layers) for n in nodes)

    def _try(self, nodes: list[int], before: float, ceiling: float) -> bool:
        """Merge nodes if size, cuts and the rule allow it: a factor of at most `before`."""
        merged = [self.nodes[node] for node in nodes]
        bits = functools.reduce(or_, (node.bits for node in merged))
        if bits in self._refused:
            return False
        size = sum(len(node.layers) for node in merged)
        self.asked.side("max_layers", self._rules.max_layers, size - 0.5)
        if size <= self._rules.max_layers and self._model.opaque.isdisjoint(nodes):
            need = self._need(merged)
            union = Node([], bits, set(), set(), need, ceiling)
            if need is None:
                union.layers = sorted(x for node in merged for x in node.layers)
            if self._may_have(self._factor_of(union), before) and not self._is_cut(nodes):
                self._join(nodes, union)
                return True
        self._refused.add(bits)
        return False

    def _need(self, nodes: Sequence[Node]) -> Need | None:
        """Return what merged nodes need, if that is bounded and fits."""
        producer, consumer = nodes[0], nodes[-1]
        if producer.need is None or consumer.need is None or len(nodes) > 2:  # noqa: PLR2004
            return None
        if producer.layers[-1] > consumer.layers[0] or len(consumer.producers) > 1:
            return None
        need = producer.need.then(consumer.need)
        return need if need.peak <= self._room else None

    def _may_have(self, factor: float, before: float) -> bool:
        """Return whether merged nodes may have a factor, given the one before."""
        if math.isinf(factor) or math.isinf(before):
            return not math.isinf(factor)
        ratio = self._rules.merged_ratio
        self.asked.side("merged_ratio", ratio, factor / before)
        return factor <= ratio * before

    def _is_cut(self, nodes: list[int]) -> bool:
        """Return whether one of some nodes but the last must not be merged with its consumers."""
        names = {self._problem.layers[node].name for node in nodes[:-1]}
        self.asked.cuts |= names
        return not names.isdisjoint(self._rules.cuts)

    def _join(self, nodes: list[int], union: Node) -> None:
        """Replace nodes by their union, kept under the last one's number."""
        kept, gone = nodes[-1], set(nodes)
        union.producers = set().union(*(self.nodes[n].producers for n in nodes)) - gone
        union.consumers = self.nodes[kept].consumers
        if not union.layers:  # in order, or there was no bound
            union.layers = self.nodes[nodes[0]].layers
            union.layers += self.nodes[kept].layers
        for node in nodes[:-1]:
            del self.nodes[node]
        self.nodes[kept] = union
        for node in union.producers:
            consumers = self.nodes[node].consumers
            consumers -= gone
            consumers.add(kept)

    def _factor(self, number: int) -> float:
        return self._factor_of(self.nodes[number])

    def _factor_of(self, node: Node) -> float:
        """Return a node's factor, without its split where it is bound to fit."""
        if node.split is None and node.need is not None and node.need.peak <= self._room:
            self.asked.room = max(self.asked.room, node.need.peak)
            return 1
        return self._split(node).factor

    def _split(self, node: Node) -> Split:
        if node.split is None:
            layers, rules = tuple(node.layers), self._rules.splits
            node.split = best_split(self._problem, layers, rules, self.asked)
        return node.split


_NEVER: Final = 1e-300
"""Below every ratio but 0."""


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
