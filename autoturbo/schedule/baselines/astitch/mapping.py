"""AStitch's thread mapping: dominant groups become tile loops on the cores of a cluster.

AStitch (ASPLOS '22, section 4.3) makes a mapping for each dominant and propagates it to its group,
whose Local operators it computes in registers. Here a group is a layer, one tile loop. It is cut
where a result is read by two tile loops, and where a dominant in the middle of the loop would have
to be computed by several cores alike, because its own blocks are fewer than those of what follows
it (a sum over the very dimension that is spread over the cores).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from autoturbo.graph.layers import Layer, layers_from
from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.schedule.baselines.astitch.dominants import Group, dominant_groups, leaves
from autoturbo.schedule.baselines.astitch.stitch_ops import stitch_ops
from autoturbo.schedule.place.bind import cores_used, infer_input, plain_for
from autoturbo.schedule.problem import Problem, make_problem


@dataclass(frozen=True, eq=False)
class Plan:
    """A graph cut for AStitch.

    Attributes:
        problem: the graph in layers, each one tile loop.
        stitched: per layer, which stitch operator it is part of.
    """

    problem: Problem
    stitched: tuple[int, ...]


def plan_of(graph: Graph, target: Target, dtype: str) -> Plan:
    """Stitch operators, their dominant groups, and the layers that these come to."""
    members = stitch_ops(graph)
    groups = [dominant_groups(graph, m) if len(m) > 1 else [] for m in members]
    plan = _plan(graph, target, dtype, members, groups, frozenset())
    kept = frozenset(_not_local(plan.problem, (g for found in groups for g in found)))
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
    problem = make_problem(graph, target, dtype, layers_from(graph, chains))
    owner = {index: number for number, found in enumerate(members) for index in found}
    return Plan(problem, tuple(owner[layer.operators[0]] for layer in problem.layers))


def _chains(
    graph: Graph, members: Sequence[int], groups: Sequence[Group], kept: frozenset[int]
) -> list[list[int]]:
    """A group's operators, cut so that only the last one of a chain is read outside of it.

    Args:
        graph: where they are from.
        members: operators of the stitch operator.
        groups: its dominant groups.
        kept: operators that end a chain whoever reads them.
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


def _not_local(problem: Problem, groups: Iterable[Group]) -> Iterator[int]:
    """Dominants inside a tile loop whose parts several cores would have to compute alike.

    Their blocks do not match those of what follows them, so they cannot stay in the loop.
    """
    layer_of = {index: layer for layer in problem.layers for index in layer.operators}
    for group in groups:
        for index in (group.dominant, *group.others):
            layer = layer_of[index]
            if index != layer.operators[-1] and _is_repeated(problem, layer, index):
                yield index


def _is_repeated(problem: Problem, layer: Layer, index: int) -> bool:
    """Whether a layer is bound to more cores than an inner result has parts."""
    operators = problem.graph.operators
    output = layer.outputs[0]
    binding = plain_for(problem, layer.index, problem.graph.tensors[output].shape)
    implied = {output: binding}
    for inner in reversed(layer.operators):
        known = implied.get(operators[inner].outputs[0])
        for position, tensor in enumerate(operators[inner].inputs if known is not None else ()):
            implied.setdefault(tensor, infer_input(operators[inner], position, known or ()))
    found = implied.get(operators[index].outputs[0], ())
    return cores_used(found) < cores_used(binding)
