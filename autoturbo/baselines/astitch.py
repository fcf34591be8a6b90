"""AStitch (ASPLOS '22) on a scratchpad accelerator, as GraphTurbo (OSDI '23, section 5.2) ran it.

What its schemes become here (AStitch keeps data in registers, shared or global memory of a GPU):

========  ====================================================================================
Local     inside the tile loop of a layer: a group's operators are one layer
Regional  in LB, between layers of one kernel or between kernels, where producer and consumer
          are bound to the cores alike (AStitch: their thread blocks match)
Global    in GB, or DDR on overflow, behind a barrier of the cluster: the end of a kernel
========  ====================================================================================

A layer follows its consumer's binding if that keeps as many cores busy (element-wise groups adapt
proactively), otherwise it keeps its own and the bindings are compared (reductions: passively). LB
is shared out by liveness, and where it overflows Regional results are demoted to Global one by one:
the longest-lived first, as our allocator does it, where AStitch goes by its dominance tree.

Products and convolutions have kernels of their own and keep results in LB if they fit, else in DDR:
AStitch has no place for them but global memory, and GraphTurbo's reproduction spilled to DDR too.
Nothing is split into instances, reordered, or overlapped across kernels.

A kernel of ours hands over the results of one operator (its last), so a stitch operator with
several results becomes as many kernels, one after another. It costs launches that AStitch saves,
and no traffic, because LB outlives a kernel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from autoturbo.graph.domain import AxisKind
from autoturbo.graph.layers import Layer, layers_from
from autoturbo.graph.operators import Engine, Graph, Operator, Pattern
from autoturbo.hardware.target import Target
from autoturbo.schedule.context import SchedulingContext, make_context
from autoturbo.schedule.knobs import LAYERWISE
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.split import Split
from autoturbo.schedule.pipeline import ModelScheduler, assemble
from autoturbo.schedule.place.bind import (
    Placement,
    Scope,
    bind_instances,
    cores_used,
    infer_input,
    infer_layer,
    inputs_wanted,
    layer_bindings,
    plain_for,
)
from autoturbo.schedule.place.instances import InstanceGraph, PartBook, make_instances
from autoturbo.schedule.schedule import Schedule, Share
from autoturbo.schedule.streams import OUT_GB

# AStitch's stitch operators: which memory-intensive operators become one kernel.
#
# AStitch (ASPLOS '22, section 4.1; graphturbo.md, section 8.2): products and convolutions are
# boundaries with kernels of their own; between them, maximal connected sub-graphs of memory-
# intensive operators are stitched, and *remote stitching* joins stitch operators that do not
# depend on each other. Neither may close a cycle: an operator between two stitched ones would have
# to run both after and before their kernel.
#
# AStitch names element-wise operators, broadcasts and reductions. Operators that only rearrange
# data (transpose, gather, concatenation) count with them, as they do in the compiler it extends;
# softmax and normalisations, which exporters leave whole, count as reductions. Pooling windows and
# operators that no rule describes are boundaries.


def is_memory_intensive(operator: Operator) -> bool:
    """Return whether an operator may be stitched."""
    if operator.engine is Engine.MATRIX or operator.opaque or operator.pattern is Pattern.OPAQUE:
        return False
    return all(axis.kind is not AxisKind.WINDOW for axis in operator.axes)


def stitch_ops(graph: Graph) -> list[list[int]]:
    """Return the operators of each kernel, boundaries alone, in a topological order of kernels."""
    contraction = Contraction(graph)
    stitchable = [is_memory_intensive(operator) for operator in graph.operators]
    for index in range(len(graph.operators)):
        for producer in _producers(graph, index) if stitchable[index] else ():
            if stitchable[producer]:
                contraction.join(producer, index)
    _remote_stitching(contraction, stitchable)
    return [contraction.members[root] for root in contraction.in_order()]


def _producers(graph: Graph, index: int) -> list[int]:
    return sorted({graph.producer[t] for t in graph.operators[index].inputs} - {-1})


def _remote_stitching(contraction: Contraction, stitchable: list[bool]) -> None:
    """Join every stitch operator with the first earlier one that it is independent of."""
    reach = contraction.reach()
    joined: list[int] = []
    for root in contraction.in_order():
        if not stitchable[root]:
            continue
        partner = next((j for j in joined if _independent(reach, j, root)), None)
        if partner is None:
            joined.append(root)
        elif contraction.join(partner, root):
            joined[joined.index(partner)] = contraction.root(partner)
            reach = contraction.reach()


def _independent(reach: dict[int, int], first: int, second: int) -> bool:
    """Return whether neither node is reached from the other."""
    return not (reach[first] >> second & 1 or reach[second] >> first & 1)


class Contraction:
    """A graph whose operators are joined into nodes while it stays free of cycles.

    A node is named by one of its operators, its root.
    """

    def __init__(self, graph: Graph) -> None:
        count = len(graph.operators)
        self.members: dict[int, list[int]] = {i: [i] for i in range(count)}
        self.before = {i: set(_producers(graph, i)) for i in range(count)}
        self.after: dict[int, set[int]] = {i: set() for i in range(count)}
        for index, producers in self.before.items():
            for producer in producers:
                self.after[producer].add(index)
        self._parent = list(range(count))

    def root(self, index: int) -> int:
        """Return the node that contains an operator."""
        while self._parent[index] != index:
            index = self._parent[index]
        return index

    def join(self, first: int, second: int) -> bool:
        """Merge two nodes; return False, and change nothing, if that would close a cycle."""
        a, b = self.root(first), self.root(second)
        if a == b or self._leads(a, b) or self._leads(b, a):
            return False
        self._parent[b] = a
        self.members[a] = sorted(self.members[a] + self.members.pop(b))
        self._rewire(self.before, self.after, a, b)
        self._rewire(self.after, self.before, a, b)
        return True

    @staticmethod
    def _rewire(one: dict[int, set[int]], other: dict[int, set[int]], a: int, b: int) -> None:
        for neighbour in one.pop(b):
            other[neighbour].discard(b)
            if neighbour != a:
                other[neighbour].add(a)
                one[a].add(neighbour)
        one[a].discard(b)

    def _leads(self, start: int, end: int) -> bool:
        """Return whether a path leads from one node to another through a third."""
        latest = self.members[end][-1]
        stack = [node for node in self.after[start] if node != end]
        seen = set(stack)
        while stack:
            for node in self.after[stack.pop()]:
                if node == end:
                    return True
                if node not in seen and self.members[node][0] < latest:
                    seen.add(node)
                    stack.append(node)
        return False

    def in_order(self) -> list[int]:
        """Return the nodes in topological order; ties by the first operator."""
        import heapq

        waits = {node: len(before) for node, before in self.before.items()}
        ready = [(self.members[node][0], node) for node, count in waits.items() if not count]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            node = heapq.heappop(ready)[1]
            order.append(node)
            for after in self.after[node]:
                waits[after] -= 1
                if not waits[after]:
                    heapq.heappush(ready, (self.members[after][0], after))
        return order

    def reach(self) -> dict[int, int]:
        """Return, per node, the nodes that depend on it, as bits of one number."""
        reached: dict[int, int] = {}
        for node in reversed(self.in_order()):
            bits = 0
            for after in self.after[node]:
                bits |= reached[after] | 1 << after
            reached[node] = bits
        return reached


# AStitch's thread mapping: dominant groups become tile loops on the cores of a cluster.
#
# AStitch (ASPLOS '22, section 4.3) makes a mapping for each dominant and propagates it to its
# group, whose Local operators it computes in registers. Here a group is a layer, one tile loop. It
# is cut where a result is read by two tile loops, and where a dominant in the middle of the loop
# would have to be computed by several cores alike, because its own blocks are fewer than those of
# what follows it (a sum over the very dimension that is spread over the cores).


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
        others: Sub-dominants, ascending.
        operators: All of the group, ascending.
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
        graph: Where they are from.
        members: Operators of the stitch operator.
        groups: Its dominant groups.
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


# AStitch's schemes: kernels, and where the results between their tile loops are kept.
#
# AStitch (ASPLOS '22, section 4.3): a dominant's result is Regional where the blocks of producer
# and consumer match, else Global; Regional results that do not fit are demoted to Global one by
# one.


def kernels_of(plan: Plan) -> list[list[int]]:
    """Return each kernel's layers: those read only by other layers of the same stitch operator.

    A result that its readers would have in another binding is Global and ends a kernel.
    """
    kernels = _closed(plan, frozenset())
    apart = frozenset(x for kernel in kernels for x in _mismatched(plan.context, kernel))
    return _closed(plan, apart) if apart else kernels


def _closed(plan: Plan, apart: frozenset[int]) -> list[list[int]]:
    """Return the kernels in the order of their last layers."""
    context = plan.context
    outputs = set(context.graph.outputs)
    kernel: dict[int, int] = {}
    for layer in reversed(context.layers):
        readers = {r for t in layer.outputs for r in context.consumers[t]}
        own = {kernel[reader] for reader in readers}
        same = all(plan.stitched[reader] == plan.stitched[layer.index] for reader in readers)
        inner = len(own) == 1 and same and not outputs & set(layer.outputs)
        kernel[layer.index] = own.pop() if inner and layer.index not in apart else layer.index
    closed: dict[int, list[int]] = {}
    for layer in context.layers:
        closed.setdefault(kernel[layer.index], []).append(layer.index)
    return [closed[last] for last in sorted(closed)]


def _mismatched(context: SchedulingContext, kernel: Sequence[int]) -> Iterator[int]:
    """Yield the layers of a kernel whose binding differs from what their readers need."""
    tensors = context.graph.tensors
    extents = tuple(tensors[context.layers[x].outputs[0]].shape for x in kernel)
    last = plain_for(context, kernel[-1], extents[-1])
    bound, _ = layer_bindings(context, tuple(kernel), extents, last)
    for reader in kernel:
        for tensor, wanted in infer_layer(context, reader, bound[reader]).items():
            maker = context.producer[tensor]
            if maker in bound and bound[maker] != wanted:
                yield maker


def scheduled(model: Graph, plan: Plan, share: Share) -> Schedule:
    """Return the schedule of a plan: bind, choose scopes, and demote spilled outputs."""
    context = plan.context
    subgraphs = tuple(
        SubGraph(index, tuple(kernel), Split(-1, 1, 0, 0, 0))
        for index, kernel in enumerate(kernels_of(plan))
    )
    instances = make_instances(PartBook(context), subgraphs)
    order = _order(subgraphs, plan)
    bound = bind_instances(instances, order, always=True)
    scopes = _scopes(instances, bound)
    while True:
        placement = Placement(bound.bindings, tuple(scopes))
        schedule = assemble(
            model, context, "astitch", LAYERWISE, share, instances, order, placement
        )
        spilled = [i for i in _spilled(schedule) if _at_boundary(context, instances, i)]
        if not spilled:
            return schedule
        for instance in spilled:
            scopes[instance] = Scope.DDR


def _order(subgraphs: Sequence[SubGraph], plan: Plan) -> tuple[int, ...]:
    """Return an order in which the kernels of one stitch operator follow one another."""
    return tuple(
        sorted(range(len(subgraphs)), key=lambda i: (plan.stitched[subgraphs[i].layers[0]], i))
    )


def _scopes(graph: InstanceGraph, bound: Placement) -> list[Scope]:
    """Return the scopes: LB where every reader is bound like the producer, else GB."""
    scopes = list(bound.scopes)
    maker = {t: index for index, parts in enumerate(graph.parts) for t in parts.outputs}
    for index, parts in enumerate(graph.parts):  # each has one part
        wanted = inputs_wanted(graph.book, int(graph.shape[index]), bound.bindings[index])
        for tensor, binding in zip(parts.inputs, wanted, strict=True):
            source = maker.get(tensor)
            if binding is not None and source is not None and bound.bindings[source] != binding:
                scopes[source] = Scope.GB
    return scopes


def _spilled(schedule: Schedule) -> list[int]:
    """Return the instances whose result was declared in LB and is spilled to GB."""
    declared, timeline = schedule.placement.scopes, schedule.timeline
    order, spilled = timeline.order.tolist(), timeline.streams[timeline.rows[1:] - 1, OUT_GB] > 0
    return [i for i, out in zip(order, spilled, strict=True) if declared[i] is Scope.LB and out]


def _at_boundary(context: SchedulingContext, graph: InstanceGraph, index: int) -> bool:
    """Return whether a boundary operator makes or reads what an instance makes."""
    kernels = (index, *graph.consumers[index])
    first = [graph.subgraphs[graph.subgraph[k]].layers[0] for k in kernels]
    anchors = [context.graph.operators[context.layers[layer].operators[0]] for layer in first]
    return not all(is_memory_intensive(operator) for operator in anchors)


def astitch(model_scheduler: ModelScheduler) -> Iterator[Schedule]:
    """Yield a schedule for every batch per cluster."""
    for batches in model_scheduler.batch_choices():
        context = model_scheduler.context(batches)
        plan = plan_of(context.graph, context.target, context.dtype)
        whole = dataclasses.replace(plan.context, chip=context.chip)
        share = model_scheduler.share(batches)
        yield scheduled(model_scheduler.model, dataclasses.replace(plan, context=whole), share)
