"""AStitch's dominants: which results of a stitch operator are kept for the rest of it.

AStitch (ASPLOS '22, section 4.2; graphturbo.md, section 8.2): candidates are reductions, heavy
element-wise operators that are broadcast afterwards, and what leaves the stitch operator; every
other operator is *Local*, computed where it is needed and kept nowhere. Candidates that Local
operators connect are merged: one of them, a reduction if there is one, is the dominant whose
thread mapping the group follows, the others are its sub-dominants.

We read "connected by Local operators" as having a Local operator in common: it is computed once, so
both have to follow one mapping. A candidate that merely feeds another one through Local operators
is a group of its own, or no two groups could ever differ.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from autoturbo.graph.domain import AxisKind
from autoturbo.graph.operators import Graph, Operator


class OperatorClass(StrEnum):
    """AStitch's classes of memory-intensive operators."""

    LIGHT = "light"
    HEAVY = "heavy"
    BROADCAST = "broadcast"
    REDUCE = "reduce"


@dataclass(frozen=True, slots=True)
class Group:
    """A dominant and what follows its mapping.

    Attributes:
        dominant: operator that the mapping is made for.
        others: sub-dominants, ascending.
        operators: all of the group, ascending.
    """

    dominant: int
    others: tuple[int, ...]
    operators: tuple[int, ...]


def operator_class(graph: Graph, index: int) -> OperatorClass:
    """Reductions first, then broadcasts, then by what an element costs."""
    operator = graph.operators[index]
    held = (AxisKind.REDUCTION, AxisKind.WHOLE)
    if any(axis.kind in held for axis in operator.axes):
        return OperatorClass.REDUCE
    if any(_is_broadcast(operator, t) for t in operator.inputs if not graph.tensors[t].constant):
        return OperatorClass.BROADCAST
    return OperatorClass.HEAVY if operator.work.special else OperatorClass.LIGHT


def _is_broadcast(operator: Operator, tensor: int) -> bool:
    """Whether an operator reads an element of a tensor for several elements of its result."""
    shown = {a for a in operator.output_axes if operator.axes[a].extent > 1}
    return any(
        t == tensor and shown - operator.input_axes(position)
        for position, t in enumerate(operator.inputs)
    )


def candidates(graph: Graph, members: Collection[int]) -> list[int]:
    """Operators of a stitch operator whose results may have to be kept, ascending."""
    inside = set(members)
    return [index for index in sorted(inside) if _is_candidate(graph, index, inside)]


def _is_candidate(graph: Graph, index: int, inside: set[int]) -> bool:
    outputs = graph.operators[index].outputs
    if leaves(graph, index, inside) or operator_class(graph, index) is OperatorClass.REDUCE:
        return True
    return bool(graph.operators[index].work.special) and any(
        _is_broadcast(graph.operators[reader], tensor)
        for tensor in outputs
        for reader in graph.consumers[tensor]
    )


def leaves(graph: Graph, index: int, inside: Collection[int]) -> bool:
    """Whether a result of an operator is read outside, or is the model's."""
    outputs = graph.operators[index].outputs
    read = {reader for tensor in outputs for reader in graph.consumers[tensor]}
    return bool(read.difference(inside)) or any(t in graph.outputs for t in outputs)


def dominant_groups(graph: Graph, members: Sequence[int]) -> list[Group]:
    """The groups of a stitch operator, by their last operator."""
    chosen = candidates(graph, members)
    serves = _served(graph, members, set(chosen))
    merged = {candidate: candidate for candidate in chosen}

    def root(candidate: int) -> int:
        while merged[candidate] != candidate:
            candidate = merged[candidate]
        return candidate

    for served in serves.values():
        first, *rest = sorted(root(c) for c in served)
        for other in rest:
            merged[root(other)] = root(first)
    inside: dict[int, list[int]] = {}
    for index in sorted(members):
        inside.setdefault(root(min(serves[index])), []).append(index)
    groups = [_group(graph, operators, set(chosen)) for operators in inside.values()]
    return sorted(groups, key=lambda group: group.operators[-1])


def _served(graph: Graph, members: Sequence[int], chosen: set[int]) -> dict[int, set[int]]:
    """Per operator, the candidates that it reaches through Local operators; itself if it is one."""
    serves: dict[int, set[int]] = {}
    for index in sorted(members, reverse=True):
        readers = {r for t in graph.operators[index].outputs for r in graph.consumers[t]}
        reached = [serves[reader] for reader in readers if reader in serves]
        serves[index] = {index} if index in chosen else set().union(*reached)
    return serves


def _group(graph: Graph, operators: list[int], chosen: set[int]) -> Group:
    """A reduction dominates if there is one, else the last candidate."""
    own = [index for index in operators if index in chosen]
    reductions = [i for i in own if operator_class(graph, i) is OperatorClass.REDUCE]
    dominant = (reductions or own)[-1]
    return Group(dominant, tuple(i for i in own if i != dominant), tuple(operators))
