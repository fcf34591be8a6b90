"""The ladder of the vendor's compiler (baselines.md, section 1): one kernel per layer, unsplit.

``O0`` keeps all inputs, outputs and intermediates in DDR; ``O1`` puts them into GB as far as they
fit;
``O2`` into LB as far as they fit, the rest into GB. ``O3`` is GraphTurbo itself.
"""

from __future__ import annotations

from autoturbo.graph.operators import Graph
from autoturbo.schedule.bind import Placement, Scope, bind_instances
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.instances import make_instances
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import assemble
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import Schedule, Share
from autoturbo.schedule.split import Split

LEVELS = {"O0": Scope.DDR, "O1": Scope.GB, "O2": Scope.LB}
"""Where each level would keep every layer's output."""

LAYERWISE = Knobs(instruction_scheduling="off")
"""Knobs of a compiler that schedules layer by layer: kernels are barriers, nothing is fused."""


def layer_by_layer(
    model: Graph, problem: Problem, share: Share, scheduler: str, scope: Scope
) -> Schedule:
    """One unsplit kernel per layer in topological order, outputs declared at one scope."""
    subgraphs = tuple(
        SubGraph(layer.index, (layer.index,), Split(-1, 1, 0, 0, 0)) for layer in problem.layers
    )
    instances = make_instances(problem, subgraphs)
    order = tuple(range(instances.count))
    placement = bind_instances(problem, instances, order, always=True)
    scopes = tuple(max(declared, scope) for declared in placement.scopes)
    return assemble(
        model, problem, scheduler, LAYERWISE, share, instances, order,
        Placement(placement.bindings, scopes),
    )  # fmt: skip
