"""The ladder of the vendor's compiler and the rung of the ablation that splits and orders.

``O0`` keeps all inputs, outputs and intermediates in DDR; ``O1`` puts them into GB as far as they
fit; ``O2`` into LB as far as they fit, the rest into GB: one kernel per layer, unsplit. ``O3`` is
GraphTurbo itself (baselines.md, section 1).

The paper's ablation (GraphTurbo, OSDI '23, section 5.3, Fig. 15) climbs from TVM instead:
``gb_outputs`` and ``lb_outputs`` (:func:`autoturbo.baselines.tvm.outputs_at`),
``instance_order`` here, and ``graphturbo`` with everything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from autoturbo.graph.operators import Graph
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.knobs import FAR, LAYERWISE, Knobs, fitting
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.split import Split
from autoturbo.schedule.pipeline import ModelScheduler, assemble, build_schedule
from autoturbo.schedule.place.bind import Placement, Scope, bind_instances
from autoturbo.schedule.place.instances import PartBook, make_instances
from autoturbo.schedule.schedule import Schedule, Share

LEVELS = {"O0": Scope.DDR, "O1": Scope.GB, "O2": Scope.LB}
"""Where each level would keep every layer's output."""


def level(name: str) -> Callable[[ModelScheduler], Iterator[Schedule]]:
    """Return the scheduler of one level of the vendor's ladder, at every batch per cluster."""

    def candidates(model_scheduler: ModelScheduler) -> Iterator[Schedule]:
        for batches in model_scheduler.batch_choices():
            context, share = model_scheduler.context(batches), model_scheduler.share(batches)
            yield layer_by_layer(model_scheduler.model, context, share, name, LEVELS[name])

    return candidates


level_0, level_1, level_2 = map(level, LEVELS)


def instance_order(model_scheduler: ModelScheduler) -> Iterator[Schedule]:
    """Yield GraphTurbo without across-layer instruction scheduling, at every batch per cluster.

    Kept from GraphTurbo: layers, splitting into instances, grouping and ordering, binding,
    concatenation, and one kernel per instance: in the paper stitching is what grouped layers are
    compiled into, and instruction scheduling, which needs it, is the only thing that Fig. 15 adds
    after it. For networks that need no split the rung below does the same but for launches, which
    is why the paper shows no gain for them.
    """
    for batches in model_scheduler.batch_choices():
        knobs = Knobs(batches_per_cluster=batches, instruction_scheduling="off")
        yield dataclasses.replace(
            build_schedule(model_scheduler, knobs), scheduler="instance_order"
        )


def graphturbo(model_scheduler: ModelScheduler) -> Iterator[Schedule]:
    """Yield the published heuristic at every batch per cluster."""
    for batches in model_scheduler.batch_choices():
        yield build_schedule(model_scheduler, Knobs(batches_per_cluster=batches))


def prefetching(model_scheduler: ModelScheduler) -> Iterator[Schedule]:
    """Yield the published heuristic with loads that run over its kernels as far as there is room.

    On a target that cannot, it is the heuristic itself.
    """
    target = model_scheduler.target
    for batches in model_scheduler.batch_choices():
        knobs = fitting(Knobs(batches_per_cluster=batches, fetch_ahead=FAR), target)
        yield dataclasses.replace(build_schedule(model_scheduler, knobs), scheduler="prefetching")


def fitted(model_scheduler: ModelScheduler) -> Iterator[Schedule]:
    """Yield the published heuristic on the part of the chip on which it is fastest, simulated."""
    from autoturbo.simulator.fitted import settings_of

    schedule = build_schedule(model_scheduler, settings_of(model_scheduler))
    yield dataclasses.replace(schedule, scheduler="fitted")


def layer_by_layer(
    model: Graph, context: SchedulingContext, share: Share, scheduler: str, scope: Scope
) -> Schedule:
    """Return one unsplit kernel per layer in topological order, outputs declared at one scope."""
    subgraphs = tuple(
        SubGraph(layer.index, (layer.index,), Split(-1, 1, 0, 0, 0)) for layer in context.layers
    )
    instances = make_instances(PartBook(context), subgraphs)
    order = tuple(range(instances.count))
    placement = bind_instances(instances, order, always=True)
    # scopes are ordered by distance: what binding already puts farther away stays there
    scopes = tuple(max(declared, scope) for declared in placement.scopes)
    return assemble(
        model, context, scheduler, LAYERWISE, share, instances, order,
        Placement(placement.bindings, scopes),
    )  # fmt: skip
