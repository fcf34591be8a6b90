"""AStitch's thread mapping: dominant groups become tile loops on the cores of a cluster.

AStitch (ASPLOS '22, section 4.3) makes a mapping for each dominant and propagates it to its
group, whose Local operators it computes in registers. Here a group is a layer, one tile loop. It
is cut where a result is read by two tile loops, and where a dominant in the middle of the loop
would have to be computed by several cores alike, because its own blocks are fewer than those of
what follows it (a sum over the very dimension that is spread over the cores).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from autoturbo.baselines.astitch_operators import stitch_ops
from autoturbo.graph.domain import AxisKind
from autoturbo.graph.layers import Layer, layers_from
from autoturbo.graph.operators import Graph, Operator
from autoturbo.hardware.target import Target
from autoturbo.schedule.context import SchedulingContext, make_context
from autoturbo.schedule.place.bind import cores_used, infer_input, plain_for


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
        dominant: Operator that the mapping is made for.
        others: Sub-dominants: the other candidates of the group, ascending.
        operators: All operators of the group, ascending.
    """

    dominant: int
    others: tuple[int, ...]
    operators: tuple[int, ...]


def operator_class(graph: Graph, index: int) -> OperatorClass:
    """Return the class: reduction first, then broadcast, then by the cost of an element."""
    operator = graph.operators[index]
    held = (AxisKind.REDUCTION, AxisKind.WHOLE)
    if any(axis.kind in held for axis in operator.axes):
        return OperatorClass.REDUCE
    if any(_is_broadcast(operator, t) for t in operator.inputs if not graph.tensors[t].constant):
        return OperatorClass.BROADCAST
    return OperatorClass.HEAVY if operator.work.special else OperatorClass.LIGHT


def _is_broadcast(operator: Operator, tensor: int) -> bool:
    """Return whether an operator reads an element of a tensor for several of its result."""
    shown = {a for a in operator.output_axes if operator.axes[a].extent > 1}
    return any(
        t == tensor and shown - operator.input_axes(position)
        for position, t in enumerate(operator.inputs)
    )


def candidates(graph: Graph, members: Collection[int]) -> list[int]:
    """Return the operators whose results may have to be kept, ascending."""
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
    """Return whether a result of an operator is read outside, or is the model's."""
    outputs = graph.operators[index].outputs
    read = {reader for tensor in outputs for reader in graph.consumers[tensor]}
    return bool(read.difference(inside)) or any(t in graph.returned for t in outputs)


def dominant_groups(graph: Graph, members: Sequence[int]) -> list[Group]:
    """Return the dominant groups of a stitch operator, by their last operator."""
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
    """Return, per operator, the candidates that it reaches through Local operators, or itself."""
    serves: dict[int, set[int]] = {}
    for index in sorted(members, reverse=True):
        readers = {r for t in graph.operators[index].outputs for r in graph.consumers[t]}
        reached = [serves[reader] for reader in readers if reader in serves]
        serves[index] = {index} if index in chosen else set().union(*reached)
    return serves


def _group(graph: Graph, operators: list[int], chosen: set[int]) -> Group:
    """Return a group; its dominant is a reduction if there is one, else the last candidate."""
    chosen_here = [index for index in operators if index in chosen]
    reductions = [i for i in chosen_here if operator_class(graph, i) is OperatorClass.REDUCE]
    dominant = (reductions or chosen_here)[-1]
    return Group(dominant, tuple(i for i in chosen_here if i != dominant), tuple(operators))


@dataclass(frozen=True, eq=False)
class Plan:
    """AStitch's partition of a graph.

    Attributes:
        context: The graph in layers, each one tile loop.
        stitched: Per layer, which stitch operator it is part of.
    """

    context: SchedulingContext
    stitched: tuple[int, ...]


def plan_of(graph: Graph, target: Target, dtype: str) -> Plan:
    """Return the stitch operators, their dominant groups, and the resulting layers."""
    members = stitch_ops(graph)
    groups = [dominant_groups(graph, m) if len(m) > 1 else [] for m in members]
    plan = _plan(graph, target, dtype, members, groups, frozenset())
    # only layers show which dominants their cores would recompute, so the plan is made twice
    kept = frozenset(_not_local(plan.context, (g for found in groups for g in found)))
    return _plan(graph, target, dtype, members, groups, kept) if kept else plan


def _plan(
    graph: Graph,
    target: Target,
    dtype: str,
    members: Sequence[Sequence[int]],
    groups: Sequence[Sequence[Group]],
    kept: frozenset[int],
) -> Plan:
    chains = [
        c for m, found in zip(members, groups, strict=True) for c in _chains(graph, m, found, kept)
    ]
    context = make_context(graph, target, dtype, layers_from(graph, chains))
    owner = {index: number for number, found in enumerate(members) for index in found}
    return Plan(context, tuple(owner[layer.operators[0]] for layer in context.layers))


def _chains(
    graph: Graph, members: Sequence[int], groups: Sequence[Group], kept: frozenset[int]
) -> list[list[int]]:
    """Return a group's operators in chains; only the last of a chain is read outside of it.

    Args:
        graph: The graph of the operators.
        members: Operators of the stitch operator.
        groups: Dominant groups of the stitch operator.
        kept: Operators that end a chain for any reader.
    """
    group = {index: g for g, found in enumerate(groups) for index in found.operators}
    chain: dict[int, int] = {}
    for index in sorted(members, reverse=True):
        readers = {r for t in graph.operators[index].outputs for r in graph.consumers[t]}
        chains = {chain.get(reader, -1) for reader in readers}
        inner = len(chains) == 1 and index not in kept and not leaves(graph, index, members)
        follows = inner and all(group[reader] == group[index] for reader in readers)
        chain[index] = chains.pop() if follows else index
    found: dict[int, list[int]] = {}
    for index in sorted(members):
        found.setdefault(chain[index], []).append(index)
    return list(found.values())


def _not_local(context: SchedulingContext, groups: Iterable[Group]) -> Iterator[int]:
    """Yield dominants in a tile loop whose parts several cores would have to recompute.

    Their blocks do not match those of what follows them, so they cannot stay in the loop.
    """
    layer_of = {index: layer for layer in context.layers for index in layer.operators}
    for group in groups:
        for index in (group.dominant, *group.others):
            layer = layer_of[index]
            if index != layer.operators[-1] and _is_repeated(context, layer, index):
                yield index


def _is_repeated(context: SchedulingContext, layer: Layer, index: int) -> bool:
    """Return whether a layer is bound to more cores than an inner result has parts."""
    operators = context.graph.operators
    output = layer.outputs[0]
    binding = plain_for(context, layer.index, context.graph.tensors[output].shape)
    implied = {output: binding}
    for inner in reversed(layer.operators):
        known = implied.get(operators[inner].outputs[0])
        for position, tensor in enumerate(operators[inner].inputs if known is not None else ()):
            implied.setdefault(tensor, infer_input(operators[inner], position, known or ()))
    binding_inside = implied.get(operators[index].outputs[0], ())
    return cores_used(binding_inside) < cores_used(binding)
