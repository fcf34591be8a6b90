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
from collections.abc import Iterator, Sequence

from autoturbo.baselines.astitch_loops import Plan, plan_of
from autoturbo.baselines.astitch_operators import is_memory_intensive
from autoturbo.graph.operators import Graph
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.knobs import LAYERWISE
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.split import Split
from autoturbo.schedule.pipeline import ModelScheduler, assemble
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
from autoturbo.schedule.schedule import Schedule, Share
from autoturbo.schedule.streams import OUT_GB


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
    # readers come first: a layer joins the kernel that they are in
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
    # demoting moves other buffers, so that more may spill; each round sends one to DDR, so it ends
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
