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
all merges, then and later, also ask ``f(merged) <= b * f(P)`` (docs/decisions/upsampling.md).
Networks that do not up-sample are grouped as published.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import deque
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import or_
from typing import Final, NamedTuple, Self

from autoturbo.caches import BoundedCache, remembered
from autoturbo.graph.arrays import whole_bytes
from autoturbo.graph.layers import Layer
from autoturbo.graph.operators import Operator
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.partition.split import RuleQueries, Split, SplitRules, best_split

_GROUPINGS, _SUBGRAPHS, _RUNS = 4096, 1 << 16, 1024
"""Groupings that a context remembers at most, their sub-graphs together, and runs."""


@dataclass(frozen=True, slots=True)
class SubGraph:
    """Layers that form one kernel per instance.

    Attributes:
        index: Position in topological order.
        layers: Indices into :attr:`SchedulingContext.layers`, in topological order; the last
            makes the output.
        split: Split into instances.
    """

    index: int
    layers: tuple[int, ...]
    split: Split

    def recut(self, split: Split) -> SubGraph:
        """Return the sub-graph of the same layers with another split."""
        return SubGraph(self.index, self.layers, split)


@dataclass(frozen=True, slots=True)
class GroupRules(SplitRules):
    """The knobs that Algorithm 2 reads, under their names, and the boundaries of overrides."""

    producer_factor_ratio: float = 1.0
    merged_factor_ratio: float = 1.0
    max_layers: int = 1 << 30
    merge_order: str = "straight-diamond-branch"
    cuts: frozenset[str] = frozenset()
    merges: frozenset[str] = frozenset()

    @classmethod
    def of(cls, knobs: Knobs) -> Self:
        """Return the rules of a candidate."""
        cuts = frozenset(o.layer for o in knobs.overrides if o.boundary == "cut")
        merges = frozenset(o.layer for o in knobs.overrides if o.boundary == "merge")
        return dataclasses.replace(super(GroupRules, cls).of(knobs), cuts=cuts, merges=merges)


def group(context: SchedulingContext, rules: GroupRules) -> tuple[SubGraph, ...]:
    """Return the partition of Algorithm 2: sub-graphs in topological order; cached.

    A partition is reused for all rules that give the same answers to the questions asked of its own
    (:class:`autoturbo.schedule.partition.split.RuleQueries`); most rules of a search fall into
    the bounds of others.
    """
    model = groupings(context)

    def make() -> tuple[SubGraph, ...]:
        # where no layer reads from several all patterns but the straight one match nothing
        branching = any(len(node.producers) > 1 for node in model.alone)
        fitting_rules = rules if branching else dataclasses.replace(rules, merge_order="straight")
        for asked, subgraphs in model.runs:
            if asked.holds(fitting_rules):
                return subgraphs
        merging = Merging(context, fitting_rules)
        partition = merging.subgraphs()
        model.runs.append((merging.asked, partition))
        return partition

    return model.known.get(rules, make)


class Need(NamedTuple):
    """Bytes that a sub-graph may need as a whole: a bound that adds up layer by layer.

    Attributes:
        peak: At once, at most.
        given: Bytes of tensors that no layer makes.
        unread: Bytes of tensors that nobody reads, which stay to the end.
    """

    peak: int
    given: int
    unread: int

    def then(self, reader: Need) -> Need:
        """Return the bound of a sub-graph and the next one, which alone reads all of its output."""
        peak = max(self.peak + reader.given, self.unread + reader.peak)
        return Need(peak, self.given + reader.given, self.unread + reader.unread)


@dataclass(slots=True, eq=False)
class Node:
    """A sub-graph while it grows.

    Attributes:
        bits: The node's layers, a bit for each.
        producers: The nodes that it reads from.
        consumers: The nodes that read from it, and :data:`OUTSIDE` where it leaves the model.
        need: Whole; None where there is no bound.
        ceiling: The smallest factor that a producer inside had before its output was up-sampled.
        split: Split into instances; None until it is computed.
    """

    bits: int
    producers: AbstractSet[int]
    consumers: AbstractSet[int]
    need: Need | None
    ceiling: float = math.inf
    split: Split | None = None

    @property
    def first(self) -> int:
        """Return its first layer."""
        return (self.bits & -self.bits).bit_length() - 1

    @property
    def layers(self) -> tuple[int, ...]:
        """Return its layers, ascending."""
        digits = reversed(f"{self.bits >> self.first:b}")
        return tuple(layer for layer, bit in enumerate(digits, self.first) if bit == "1")


OUTSIDE: Final = -1
"""The consumer that a model's outputs have."""


class Groupings(NamedTuple):
    """Partitions of a context found so far, and the data that all runs of Algorithm 2 read.

    Attributes:
        alone: A sub-graph of each layer.
        opaque: The layers with an operator that runs whole, not analysed; a bit for each.
        enlarging: The layers that up-sample.
        known: Sub-graphs by rules.
        runs: The questions that each of the latest runs asked of its rules, and its sub-graphs.
    """

    alone: list[Node]
    opaque: int
    enlarging: frozenset[int]
    known: BoundedCache[GroupRules, tuple[SubGraph, ...]]
    runs: deque[tuple[RuleQueries, tuple[SubGraph, ...]]]


@remembered(1)
def groupings(context: SchedulingContext) -> Groupings:
    """Return the cached partitions of a context."""
    operators = context.graph.operators
    opaque = (x.index for x in context.layers if any(operators[op].opaque for op in x.operators))
    enlarging = frozenset(x.index for x in context.layers if upsamples(context, x))
    known: BoundedCache[GroupRules, tuple[SubGraph, ...]] = BoundedCache(
        _GROUPINGS, _SUBGRAPHS, len
    )
    bits = sum(1 << layer for layer in opaque)
    return Groupings(_alone(context), bits, enlarging, known, deque(maxlen=_RUNS))


def _alone(context: SchedulingContext) -> list[Node]:
    """Return one node per layer."""
    nodes, outputs, tensors = [], set(context.graph.outputs), context.graph.tensors
    sizes = whole_bytes(context.arrays, [tensor.elements for tensor in tensors]).tolist()
    for layer in context.layers:
        outside = set() if outputs.isdisjoint(layer.outputs) else {OUTSIDE}
        consumers = outside.union(*(context.consumers[t] for t in layer.outputs))
        producers = {context.producer[t] for t in layer.inputs} - {-1}
        need = Need(
            sum(sizes[t] for t in (*layer.inputs, *layer.outputs)),
            sum(sizes[t] for t in layer.inputs if context.producer[t] < 0),
            sum(sizes[t] for t in layer.outputs if not context.consumers[t]),
        )
        nodes.append(Node(1 << layer.index, producers, consumers, need))
    return nodes


class Merging:
    """One run of Algorithm 2.

    Attributes:
        nodes: Sub-graphs while they grow, by their last layer, which makes the output.
        asked: The questions asked of the rules.
    """

    def __init__(self, context: SchedulingContext, rules: GroupRules) -> None:
        self._problem, self._rules, self._model = context, rules, groupings(context)
        self._room, self._fitting, self._refused = rules.room(context), 0, set[int]()
        self.asked = RuleQueries(rules)
        self.asked.exactly("merge_order", "part_memory")
        self.nodes = {
            index: Node(node.bits, node.producers, node.consumers, node.need)
            for index, node in enumerate(self._model.alone)
        }

    def subgraphs(self) -> tuple[SubGraph, ...]:
        """Return the sub-graphs after rounds of merge patterns, until one merges nothing."""
        # A sum and not any(): a round goes through all patterns.
        while sum(map(self.merge, self._rules.merge_order.split("-"))):
            pass
        full = self._rules.memory_bytes(self._problem)
        # Nodes whose bound fits were not split: that all fit is asked once, of the largest.
        self.asked.side("lb_occupancy_limit", self._fitting / full)
        return tuple(
            SubGraph(index, node.layers, self._split(node))
            for index, (_, node) in enumerate(sorted(self.nodes.items()))
        )

    def merge(self, pattern_name: str) -> int:
        """Merge by the straight, diamond or branch pattern; return the number of merges."""
        patterns = {"straight": self._straight, "diamond": self._diamond, "branch": self._branch}
        pattern = patterns[pattern_name]
        # A node may be gone by the time that it is looked at: its union has the last one's number.
        return sum(number in self.nodes and pattern(number) for number in sorted(self.nodes))

    def _straight(self, producer: int) -> bool:
        """Merge P and Q if P is the only producer of Q and Q the only consumer of P."""
        consumers = self.nodes[producer].consumers
        if len(consumers) != 1 or OUTSIDE in consumers:
            return False
        (consumer,) = consumers
        alone = self.nodes[consumer].producers == {producer}
        return alone and self._merge_pair(producer, consumer)

    def _branch(self, consumer: int) -> bool:
        """Merge Q, with several producers, and one of them, P, if Q is the only consumer of P.

        The latest such P is taken; straight merges take the chain that is left.

        Returns:
            Whether anything was merged.
        """
        producers = self.nodes[consumer].producers
        return len(producers) > 1 and any(
            self.nodes[producer].consumers == {consumer} and self._merge_pair(producer, consumer)
            for producer in sorted(producers, reverse=True)
        )

    def _diamond(self, end: int) -> bool:
        """Merge the nodes on two or more paths from an entry to an exit, and the exit."""
        producers = self.nodes[end].producers
        if len(producers) < 2:  # noqa: PLR2004
            return False
        paths: dict[int, list[int]] = {}
        for producer in sorted(producers):
            path, entry = self._walk_back(producer, end)
            if path:
                paths.setdefault(entry, []).extend(path)
        for nodes in paths.values():
            # Two paths at least reach the end; one alone is a chain, which straight merges join.
            if sum(end in self.nodes[node].consumers for node in nodes) > 1:
                merged = [*nodes, end]
                return self._try(merged, max(self._factor(self.nodes[node]) for node in merged))
        return False

    def _walk_back(self, node: int, reader: int) -> tuple[list[int], int]:
        """Return the nodes with one producer and one consumer before a reader, and their entry."""
        path: list[int] = []
        while self.nodes[node].consumers == {reader} and len(self.nodes[node].producers) == 1:
            path.append(node)
            reader, (node,) = node, self.nodes[node].producers
        return path, node

    def _merge_pair(self, producer: int, consumer: int) -> bool:
        """Merge a producer and a consumer by rule (i)."""
        name, nodes = self._problem.layers[producer].name, [producer, consumer]
        if name in self._rules.merges:
            merged = self._try(nodes, None)
        else:
            before, after = (self._factor(self.nodes[node]) for node in nodes)
            # infinity is below every multiple of infinity but that by 0, which is no number: a
            # threshold below every ratio but 0
            threshold = 1e-300 if math.isinf(before) or math.isinf(after) else after / before
            self.asked.side("producer_factor_ratio", threshold)
            smaller = after < self._rules.producer_factor_ratio * before
            if not smaller and self._try(nodes, after):
                return True
            merged = False
        self.asked.layers["merges"].add(name)
        return merged

    def _ceiling(self, nodes: Iterable[int], bits: int) -> float:
        """Return the smallest factor of a producer whose output the merged nodes up-sample."""
        smallest = min(self.nodes[node].ceiling for node in nodes)
        for node in nodes if self._model.enlarging else ():
            outputs, consumers = self._problem.layers[node].outputs, self._problem.consumers
            readers = self._model.enlarging & set().union(*(consumers[t] for t in outputs))
            if any(bits >> reader & 1 for reader in readers):
                smallest = min(smallest, self._factor(self.nodes[node]))
        return smallest

    def _try(self, nodes: list[int], before: float | None) -> bool:
        """Merge nodes if size, splits and the rule allow it.

        Args:
            nodes: The last makes the output.
            before: The factor that the rule compares theirs with; None for a merge that a knob asks
                for.

        Returns:
            Whether they were merged; those that were not are refused from then on.
        """
        merged = [self.nodes[node] for node in nodes]
        bits = functools.reduce(or_, (node.bits for node in merged))
        if bits in self._refused:
            return False
        # Between two whole numbers, so that the limit is clearly on one side.
        self.asked.side("max_layers", bits.bit_count() - 0.5)
        if bits.bit_count() <= self._rules.max_layers and not bits & self._model.opaque:
            ceiling = self._ceiling(nodes, bits)
            union = Node(bits, frozenset(), frozenset(), self._need(merged), ceiling)
            most = math.inf if before is None else min(before, ceiling)
            if self._may_have(self._factor(union), most):
                names = {self._problem.layers[node].name for node in nodes[:-1]}
                self.asked.layers["cuts"] |= names
                if names.isdisjoint(self._rules.cuts):
                    self._join(nodes, union)
                    return True
        self._refused.add(bits)
        return False

    def _need(self, nodes: Sequence[Node]) -> Need | None:
        """Return the memory bound of merged nodes, or None if there is none or it does not fit."""
        producer, consumer = nodes[0], nodes[-1]
        if producer.need is None or consumer.need is None or len(nodes) > 2:  # noqa: PLR2004
            return None
        # Layers run by number: bounds add up only if all of the producer's come first.
        if producer.bits.bit_length() > consumer.first or len(consumer.producers) > 1:
            return None
        need = producer.need.then(consumer.need)
        return need if need.peak <= self._room else None

    def _may_have(self, factor: float, before: float) -> bool:
        """Return whether the rule allows merged nodes a factor, given the one before."""
        if math.isinf(factor) or math.isinf(before):
            # Infinity is not above infinity, but a merge that no split makes fit is refused.
            return not math.isinf(factor)
        self.asked.side("merged_factor_ratio", factor / before)
        return factor <= self._rules.merged_factor_ratio * before

    def _join(self, nodes: list[int], union: Node) -> None:
        """Replace nodes by their union, kept under the last one's number."""
        kept, gone = nodes[-1], set(nodes)
        union.producers = set().union(*(self.nodes[n].producers for n in nodes)) - gone
        union.consumers = self.nodes[kept].consumers
        for node in nodes[:-1]:
            del self.nodes[node]
        self.nodes[kept] = union
        for node in union.producers:
            self.nodes[node].consumers = (self.nodes[node].consumers - gone) | {kept}

    def _factor(self, node: Node) -> float:
        """Return a node's factor; its split is not computed if its bound fits."""
        if node.split is None and node.need is not None and node.need.peak <= self._room:
            self._fitting = max(self._fitting, node.need.peak)
            return 1
        return self._split(node).factor

    def _split(self, node: Node) -> Split:
        if node.split is None:
            node.split = best_split(self._problem, node.layers, self._rules, self.asked)
        return node.split


def upsamples(context: SchedulingContext, layer: Layer) -> bool:
    """Return whether a layer makes several output positions out of one input position.

    A layer is a straight line, so its input passes all of its operators.
    """
    tensors = context.graph.tensors
    operators = (context.graph.operators[index] for index in layer.operators)
    return any(
        not operator.opaque
        and bool(operator.outputs)
        and not tensors[tensor].constant
        and _stretches(context, operator, position)
        for operator in operators
        for position, tensor in enumerate(operator.inputs)
    )


def _stretches(context: SchedulingContext, operator: Operator, position: int) -> bool:
    """Return whether an output advances faster than an input along a dimension, and grows.

    Channels are left out. A reshape or a pixel shuffle also advances faster, but has as many
    elements as before; if a dimension is read in full (a resize by a fraction), its extents are
    compared.
    """
    source = context.graph.tensors[operator.inputs[position]]
    output = context.graph.tensors[operator.outputs[0]]
    if output.elements <= source.elements or len(output.shape) != len(source.shape):
        return False
    read, written = operator.input_maps[position].dims, operator.output_maps[0].dims
    steps = {axis: abs(step) for dim in read for axis, step in dim.terms}
    return any(
        any(abs(step) > steps.get(axis, abs(step)) for axis, step in written[dim].terms)
        or (read[dim].whole and output.shape[dim] > source.shape[dim])
        for dim in context.loop_order[operator.outputs[0]][:-1]
    )
