"""The pass pipeline: split, group, order, bind, concatenate and move, stitch, allocate.

::

    model -> share out the batch -> split + group -> instances -> order -> bind
          -> stitch -> concatenations and movements -> buffers -> schedule

Each pass is a function of frozen values; what several settings have in common is remembered in the
:class:`Problem` of its batch size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from autoturbo.errors import KnobsError, Location
from autoturbo.graph.batch import BatchTrace, rebatch, trace_batch
from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.schedule.bind import Placement, Scope, bind_instances
from autoturbo.schedule.group import GroupRules, SubGraph, group
from autoturbo.schedule.instances import InstanceGraph, make_instances
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.schedule.order import order_instances
from autoturbo.schedule.overrides import resolve
from autoturbo.schedule.problem import Problem, make_problem
from autoturbo.schedule.schedule import Schedule, Share
from autoturbo.schedule.split import Split, sink, split_axes
from autoturbo.schedule.stitch import Template, stitch
from autoturbo.schedule.tiling import InstructionRules
from autoturbo.schedule.timeline import TimelineRules, build_timeline


@dataclass(eq=False)
class Workbench:
    """One model on one target, with a :class:`Problem` per batch size made on demand.

    Attributes:
        model: the whole model.
        target: the accelerator.
        dtype: the compute type.
        trace: where its samples are.
        problems: by samples that a cluster processes at once.
    """

    model: Graph
    target: Target
    dtype: str
    trace: BatchTrace = field(init=False)
    problems: dict[int, Problem] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trace = trace_batch(self.model)

    def problem(self, batches: int) -> Problem:
        """The model for some samples, ready to schedule."""
        if batches not in self.problems:
            graph = rebatch(self.model, batches, self.trace)
            self.problems[batches] = make_problem(graph, self.target, self.dtype)
        return self.problems[batches]

    def share(self, batches: int | str = AUTO) -> Share:
        """How the clusters share out the batch.

        A model whose samples cannot be told apart runs whole on one cluster.

        Raises:
            KnobsError: more samples at once than a cluster has.
        """
        batch = self.model.batch
        clusters = 1 if self.trace.obstacle else min(self.target.clusters, batch)
        samples = -(-batch // clusters)
        at_once = samples if batches == AUTO or self.trace.obstacle else int(batches)
        if at_once > samples:
            at = Location(field="batches_per_cluster")
            raise KnobsError(f"{at_once} is more than a cluster's {samples} samples", at)
        return Share(-(-batch // samples), samples, at_once)

    def batch_choices(self) -> tuple[int, ...]:
        """Samples at once that divide a cluster's share, largest first."""
        samples = self.share().samples
        if self.trace.obstacle:
            return (samples,)
        return tuple(b for b in range(samples, 0, -1) if samples % b == 0)


def plan(bench: Workbench, knobs: Knobs) -> tuple[Problem, Share, tuple[SubGraph, ...]]:
    """Split and group: everything before instances exist."""
    share = bench.share(knobs.batches_per_cluster)
    problem = bench.problem(share.batches)
    subgraphs = group(problem, GroupRules.of(knobs))
    scale = 1 if knobs.factor_scale == AUTO else int(knobs.factor_scale)
    scaled = tuple(_scaled(problem, s, scale) for s in subgraphs)
    return problem, share, _overridden(problem, scaled, knobs)


def _scaled(problem: Problem, subgraph: SubGraph, scale: int) -> SubGraph:
    """More instances than needed, where the axis divides."""
    split = subgraph.split
    if scale == 1:
        return subgraph
    if split.axis < 0:
        axes = split_axes(problem, subgraph.layers)
        if not axes or split.instances != 1:
            return subgraph
        split = dataclasses.replace(split, depth=axes[0][0], axis=axes[0][1])
    extent = sink(problem, subgraph.layers).axes[split.axis].extent
    factor = split.instances * scale
    if factor > extent or extent % factor:
        return subgraph
    return dataclasses.replace(subgraph, split=dataclasses.replace(split, factor=factor))


def _overridden(
    problem: Problem, subgraphs: tuple[SubGraph, ...], knobs: Knobs
) -> tuple[SubGraph, ...]:
    """Apply the split decisions made for single sub-graphs.

    Raises:
        KnobsError: an override names a layer that the model has not, or a split that is impossible.
    """
    found = list(subgraphs)
    for index, override in resolve(problem, subgraphs, knobs).items():
        if override.dim != AUTO or override.factor != AUTO:
            found[index] = _forced(problem, found[index], override.dim, override.factor)
    return tuple(found)


def _forced(problem: Problem, subgraph: SubGraph, dim: int | str, factor: int | str) -> SubGraph:
    axes = dict(split_axes(problem, subgraph.layers))
    known = subgraph.split.depth if subgraph.split.axis >= 0 else min(axes, default=0)
    depth = known if dim == AUTO else int(dim)
    axis = axes.get(depth, -1)
    parts = subgraph.split.instances if factor == AUTO else max(int(factor), 1)
    name = problem.layers[subgraph.layers[-1]].name
    if parts > 1 and (axis < 0 or parts > sink(problem, subgraph.layers).axes[axis].extent):
        at = Location(field="overrides")
        raise KnobsError(f"{name} cannot be split into {parts} along dimension {depth}", at)
    split = Split(axis if parts > 1 else -1, parts, depth, 0, subgraph.split.footprint)
    return dataclasses.replace(subgraph, split=split)


def build_schedule(bench: Workbench, knobs: Knobs) -> Schedule:
    """Run all passes.

    Raises:
        KnobsError: the setting does not fit the model.
    """
    problem, share, subgraphs = plan(bench, knobs)
    instances = make_instances(problem, subgraphs)
    order = order_instances(problem, instances, knobs.instance_order)
    placement = bind_instances(problem, instances, order, always=knobs.binding == "always")
    placement = _declare(problem, instances, placement, knobs)
    return assemble(bench.model, problem, "graphturbo", knobs, share, instances, order, placement)


def assemble(
    model: Graph,
    problem: Problem,
    scheduler: str,
    knobs: Knobs,
    share: Share,
    instances: InstanceGraph,
    order: tuple[int, ...],
    placement: Placement,
) -> Schedule:
    """From bound instances to a schedule: stitch, concatenate, move, allocate."""
    templates = _templates(problem, instances, placement)
    victim = "longest" if knobs.spill_victim == AUTO else knobs.spill_victim
    rules = TimelineRules(victim, knobs.weight_residency == "GB")
    timeline = build_timeline(problem, instances, order, placement, templates, rules)
    return Schedule(
        model, problem, scheduler, knobs, share, instances, order, placement, timeline,
        InstructionRules.of(problem, knobs),
    )  # fmt: skip


def _templates(
    problem: Problem, instances: InstanceGraph, placement: Placement
) -> Sequence[Template]:
    return [
        stitch(
            problem,
            instances.subgraphs[instance.subgraph].layers,
            instances.shapes[instance.shape],
            placement.bindings[instance.index],
        )
        for instance in instances.instances
    ]


def _declare(
    problem: Problem, instances: InstanceGraph, placement: Placement, knobs: Knobs
) -> Placement:
    """Scopes asked for by knobs: for all outputs, then for single sub-graphs."""
    scopes = list(placement.scopes)
    if knobs.output_scope in ("GB", "DDR"):
        scopes = [max(s, Scope[knobs.output_scope]) for s in scopes]
    wanted = {o.layer: Scope[o.scope] for o in knobs.overrides if o.scope != AUTO}
    for instance in instances.instances if wanted else ():
        for layer in instances.subgraphs[instance.subgraph].layers:
            name = problem.layers[layer].name
            scopes[instance.index] = wanted.get(name, scopes[instance.index])
    return Placement(placement.bindings, tuple(scopes))
