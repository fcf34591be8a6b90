"""Algorithm 2 step by step, as plain as it is printed: the compiled one is held against it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from autoturbo.schedule.group import GroupRules, SubGraph, upsamples
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.split import Split, best_split, splits_of

OUTSIDE = -1
"""The consumer that a model's outputs have."""


def plainly_grouped(problem: Problem, rules: GroupRules) -> tuple[SubGraph, ...]:
    """Sub-graphs in topological order."""
    merger = Merging(problem, rules)
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


@dataclass
class Merging:
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
        self.enlarging = frozenset(
            x.index for x in self.problem.layers if upsamples(self.problem, x)
        )
        operators = self.problem.graph.operators
        self.opaque = frozenset(
            x.index for x in self.problem.layers if any(operators[op].opaque for op in x.operators)
        )
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
