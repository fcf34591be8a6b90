"""AStitch's schemes: kernels, and where the results between their tile loops are kept.

AStitch (ASPLOS '22, section 4.3): a dominant's result is Regional where the blocks of producer and
consumer match, else Global; Regional results that do not fit are demoted to Global one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autoturbo.graph.operators import Graph
from autoturbo.schedule.baselines.astitch.mapping import Plan
from autoturbo.schedule.baselines.astitch.stitch_ops import is_memory_intensive
from autoturbo.schedule.baselines.ladder import LAYERWISE
from autoturbo.schedule.memory.timeline import OUT_GB
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.split import Split
from autoturbo.schedule.pipeline import assemble
from autoturbo.schedule.place.bind import (
    Placement,
    Scope,
    bind_instances,
    infer_layer,
    inputs_wanted,
    layer_bindings,
    plain_for,
)
from autoturbo.schedule.place.instances import InstanceGraph, PartBook, make_instances
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import Schedule, Share


def kernels_of(plan: Plan) -> list[list[int]]:
    """Layers of each kernel: those that only other layers of the same stitch operator read.

    A result that its readers would have in another binding is Global and ends a kernel.
    """
    kernels = _closed(plan, frozenset())
    apart = frozenset(x for kernel in kernels for x in _mismatched(plan.problem, kernel))
    return _closed(plan, apart) if apart else kernels


def _closed(plan: Plan, apart: frozenset[int]) -> list[list[int]]:
    """Kernels in the order of their last layers."""
    problem = plan.problem
    outputs = set(problem.graph.outputs)
    kernel: dict[int, int] = {}
    for layer in reversed(problem.layers):
        readers = {r for t in layer.outputs for r in problem.consumers[t]}
        own = {kernel[reader] for reader in readers}
        same = all(plan.stitched[reader] == plan.stitched[layer.index] for reader in readers)
        inner = len(own) == 1 and same and not outputs & set(layer.outputs)
        kernel[layer.index] = own.pop() if inner and layer.index not in apart else layer.index
    found: dict[int, list[int]] = {}
    for layer in problem.layers:
        found.setdefault(kernel[layer.index], []).append(layer.index)
    return [found[last] for last in sorted(found)]


def _mismatched(problem: Problem, kernel: Sequence[int]) -> Iterator[int]:
    """Layers of a kernel whose binding is not what all their readers would have."""
    tensors = problem.graph.tensors
    extents = tuple(tensors[problem.layers[x].outputs[0]].shape for x in kernel)
    last = plain_for(problem, kernel[-1], extents[-1])
    bound, _ = layer_bindings(problem, tuple(kernel), extents, last)
    for reader in kernel:
        for tensor, wanted in infer_layer(problem, reader, bound[reader]).items():
            maker = problem.producer[tensor]
            if maker in bound and bound[maker] != wanted:
                yield maker


def scheduled(model: Graph, plan: Plan, share: Share) -> Schedule:
    """Bind, choose scopes, and demote until what is outside LB is where AStitch would have it."""
    problem = plan.problem
    subgraphs = tuple(
        SubGraph(index, tuple(kernel), Split(-1, 1, 0, 0, 0))
        for index, kernel in enumerate(kernels_of(plan))
    )
    instances = make_instances(PartBook(problem), subgraphs)
    order = _order(subgraphs, plan)
    bound = bind_instances(instances, order, always=True)
    scopes = _scopes(instances, bound)
    while True:
        placement = Placement(bound.bindings, tuple(scopes))
        schedule = assemble(
            model, problem, "astitch", LAYERWISE, share, instances, order, placement
        )
        spilled = [i for i in _spilled(schedule) if _at_boundary(problem, instances, i)]
        if not spilled:
            return schedule
        for instance in spilled:
            scopes[instance] = Scope.DDR


def _order(subgraphs: Sequence[SubGraph], plan: Plan) -> tuple[int, ...]:
    """Kernels of one stitch operator follow one another."""
    return tuple(
        sorted(range(len(subgraphs)), key=lambda i: (plan.stitched[subgraphs[i].layers[0]], i))
    )


def _scopes(graph: InstanceGraph, bound: Placement) -> list[Scope]:
    """LB where every reader is bound like the producer, else GB."""
    scopes = list(bound.scopes)
    maker = {t: index for index, parts in enumerate(graph.parts) for t in parts.outputs}
    for index, parts in enumerate(graph.parts):  # each has one part
        wanted = inputs_wanted(graph.book, int(graph.shape[index]), bound.bindings[index])
        for tensor, binding in zip(parts.inputs, wanted, strict=True):
            made = maker.get(tensor)
            if binding is not None and made is not None and bound.bindings[made] != binding:
                scopes[made] = Scope.GB
    return scopes


def _spilled(schedule: Schedule) -> list[int]:
    """Instances whose result was to be in LB and is written to GB, for want of room."""
    declared, timeline = schedule.placement.scopes, schedule.timeline
    order, spilled = timeline.order.tolist(), timeline.streams[timeline.rows[1:] - 1, OUT_GB] > 0
    return [i for i, out in zip(order, spilled, strict=True) if declared[i] is Scope.LB and out]


def _at_boundary(problem: Problem, graph: InstanceGraph, index: int) -> bool:
    """Whether a product or another boundary makes or reads what an instance makes."""
    kernels = (index, *graph.consumers[index])
    first = [graph.subgraphs[graph.subgraph[k]].layers[0] for k in kernels]
    anchors = [problem.graph.operators[problem.layers[layer].operators[0]] for layer in first]
    return not all(is_memory_intensive(operator) for operator in anchors)
