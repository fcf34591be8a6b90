"""The pass pipeline: split, group, order, bind, concatenate and move, stitch, allocate.

::

    model -> share out the work -> split + group -> instances -> order -> bind
          -> stitch -> concatenations and movements -> buffers -> schedule

Each pass is a function of frozen values; what several settings have in common is remembered in the
bounded :class:`~autoturbo.schedule.cache.SchedulerCache` of the workbench.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoturbo.errors import KnobsError, Location
from autoturbo.graph.arrays import Ints
from autoturbo.graph.batch import BatchTrace, rebatch, trace_batch
from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.schedule.cache import Plan, SchedulerCache, key
from autoturbo.schedule.codegen.tiling import InstructionRules
from autoturbo.schedule.knobs import (
    AUTO,
    MIDDLE_PRIORITY,
    Knobs,
    Stage,
    SubGraphKnobs,
    kernel_knobs,
    knob_names,
)
from autoturbo.schedule.memory.timeline import BufferRules, Timeline, build_timelines
from autoturbo.schedule.partition.clusters import (
    clusters_at_work,
    clusters_of,
    group_for,
    hand_over,
    homes_of,
)
from autoturbo.schedule.partition.grouping import GroupRules, SubGraph
from autoturbo.schedule.partition.overrides import (
    UNSPLIT,
    possible_split,
    resolve,
    settled,
    split_fields,
)
from autoturbo.schedule.partition.split import SplitRules, divisors
from autoturbo.schedule.place.bind import Binding, Placement, Scope, bind_instances, chosen_binding
from autoturbo.schedule.place.instances import InstanceGraph, PartBook, make_instances
from autoturbo.schedule.place.order import order_instances
from autoturbo.schedule.problem import Problem, make_problem
from autoturbo.schedule.schedule import BATCH, Schedule, Share
from autoturbo.stores import Recent, remembered


@dataclass(eq=False)
class Workbench:
    """One model on one target, with a :class:`Problem` per batch size made on demand.

    Attributes:
        model: the whole model.
        target: the accelerator.
        dtype: the compute type; the target's default if empty.
        trace: where its samples are.
        problems: by samples that are processed at once.
        cache: results that settings have in common.
    """

    model: Graph
    target: Target
    dtype: str = ""
    trace: BatchTrace = field(init=False)
    problems: dict[int, Problem] = field(default_factory=dict)
    cache: SchedulerCache = field(default_factory=SchedulerCache)

    def __post_init__(self) -> None:
        self.dtype = self.dtype or self.target.default_dtype
        self.trace = trace_batch(self.model)

    def problem(self, batches: int) -> Problem:
        """The model for some samples, ready to schedule."""
        if batches not in self.problems:
            graph = rebatch(self.model, batches, self.trace)
            self.problems[batches] = make_problem(graph, self.target, self.dtype)
        return self.problems[batches]

    def parts(self, batches: int) -> PartBook:
        """What is known of the parts of the model for some samples."""
        books = self.cache.books
        if batches not in books:
            books[batches] = PartBook(self.problem(batches))
        return books[batches]

    def share(self, batches: int | str = AUTO, split: str = AUTO) -> Share:
        """How the clusters share out the work.

        A model whose samples cannot be told apart runs whole on one cluster, or on all of them if
        it is not samples that they share out. A single cluster has nothing to share out.

        Raises:
            KnobsError: more samples at once than a cluster, or the batch, has.
        """
        batch, clusters = self.model.batch, self.target.clusters
        jointly = split not in (AUTO, BATCH) and clusters > 1
        if not jointly:
            clusters = 1 if self.trace.obstacle else min(clusters, batch)
        samples = batch if jointly else -(-batch // clusters)
        at_once = samples if batches == AUTO or self.trace.obstacle else int(batches)
        if at_once > samples:
            owner = "the batch's" if jointly else "a cluster's"
            message = f"{at_once} is more than {owner} {samples} samples"
            raise KnobsError(message, Location(field="batches_per_cluster"))
        if jointly:
            return Share(clusters, samples, at_once, split)
        return Share(-(-batch // samples), samples, at_once)

    def batch_choices(self) -> tuple[int, ...]:
        """Samples at once that divide a cluster's share, largest first."""
        samples = self.share().samples
        if self.trace.obstacle:
            return (samples,)
        return divisors(samples)[::-1]


def plan(bench: Workbench, knobs: Knobs) -> Plan:
    """Share out, group and split, remembered: everything before instances exist.

    Settings that differ in the knobs of later passes share all of a plan but its overrides.

    Raises:
        KnobsError: the setting does not fit the model.
    """
    cache, share = bench.cache, bench.share(knobs.batches_per_cluster, knobs.cluster_split)
    problem = bench.problem(share.batches)
    # a split of its own that is impossible is refused where an override, whatever it says, names
    # the layer that makes the output
    at = key(knobs, Stage.PARTITION), tuple(override.layer for override in knobs.overrides)
    grouped = cache.groups.get(at, lambda: _grouped(problem, share, knobs))
    overrides = resolve(problem, grouped, knobs)

    def make() -> Plan:
        scale, room = _scale(knobs), SplitRules.of(knobs).room(problem)
        subgraphs = tuple(
            settled(problem, s, scale, overrides.get(s.index), share.split, room) for s in grouped
        )
        homes = homes_of(problem, subgraphs, share.split)
        clusters = share.clusters if share.split == BATCH else clusters_at_work(homes)
        busy = dataclasses.replace(share, clusters=clusters)
        return cache.same.get(
            (share, subgraphs), lambda: Plan(next(cache.numbers), problem, busy, subgraphs, homes)
        )

    found = cache.plans.get(at, make)
    return dataclasses.replace(found, overrides=overrides) if overrides else found


def _grouped(problem: Problem, share: Share, knobs: Knobs) -> tuple[SubGraph, ...]:
    """Sub-graphs as Algorithm 2 makes them, for clusters that share out the work in some way."""
    return group_for(problem, GroupRules.of(knobs), share.split)


def _scale(knobs: Knobs) -> int:
    """Instances over the smallest number that fits."""
    return 1 if knobs.factor_scale == AUTO else int(knobs.factor_scale)


def with_possible_splits(bench: Workbench, knobs: Knobs) -> tuple[Knobs, tuple[str, ...]]:
    """Return a setting whose sub-graphs can be cut as it says, and the layers that it changed.

    A sub-graph that cannot be cut into as many parts is cut into as many as divide its extent; one
    that cannot be cut along the dimension at all is left to the rules.

    Args:
        bench: the model on the target.
        knobs: a setting that may have been made for another model.

    Raises:
        KnobsError: it names a layer or a number of samples that the model has not.
    """
    share = bench.share(knobs.batches_per_cluster, knobs.cluster_split)
    problem = bench.problem(share.batches)
    subgraphs = _grouped(problem, share, knobs)
    room = SplitRules.of(knobs).room(problem)
    found: dict[str, SubGraphKnobs] = {}
    for index, said in sorted(resolve(problem, subgraphs, knobs).items()):
        subgraph = subgraphs[index]
        own = possible_split(problem, subgraph, _scale(knobs), said, share.split, room)
        if own != said:
            found |= {problem.layers[x].name: UNSPLIT for x in subgraph.layers}
            found[own.layer] = own
    overrides = tuple(
        dataclasses.replace(o, **split_fields(found[o.layer])) if o.layer in found else o
        for o in knobs.overrides
    )
    changed = tuple(o.layer for o in found.values() if o.layer)
    return dataclasses.replace(knobs, overrides=overrides), changed


def build_schedule(bench: Workbench, knobs: Knobs) -> Schedule:
    """Run all passes.

    Raises:
        KnobsError: the setting does not fit the model.
    """
    if knobs.units is not None:
        message = "it is for machines of several processing units, and this target is one unit"
        raise KnobsError(message, Location(field="units"), "take it out")
    cache = bench.cache
    cache.forget_when_full()
    found = plan(bench, knobs)
    share, overrides = found.share, found.overrides
    instances = cache.graphs.get(
        found.number, lambda: make_instances(bench.parts(share.batches), found.subgraphs)
    )
    cluster = clusters_of(instances, found.homes)
    order = cache.orders.get(
        (found.number, key(knobs, Stage.ORDER, after=Stage.PARTITION)),
        lambda: _order(instances, knobs, overrides),
    )
    placement = cache.placements.get(
        (found.number, order, key(knobs, Stage.PLACE, after=Stage.ORDER)),
        lambda: _placement(instances, order, cluster, knobs, overrides),
    )
    return assemble(
        bench.model, found.problem, "graphturbo", knobs, share, instances, order, placement,
        cluster, overrides, cache.timelines,
    )  # fmt: skip


def _order(
    instances: InstanceGraph, knobs: Knobs, overrides: Mapping[int, SubGraphKnobs]
) -> tuple[int, ...]:
    """Algorithm 3, or the order that knobs ask for."""
    if knobs.instance_order != "priority":
        return order_instances(instances, knobs.instance_order)
    priority = np.full(len(instances.subgraphs), MIDDLE_PRIORITY, np.int64)
    for index, override in overrides.items():
        if override.priority != AUTO:
            priority[index] = int(override.priority)
    return order_instances(instances, knobs.instance_order, priority)


def _placement(
    instances: InstanceGraph,
    order: tuple[int, ...],
    cluster: Ints,
    knobs: Knobs,
    overrides: Mapping[int, SubGraphKnobs],
) -> Placement:
    """Algorithm 4, with the bindings and scopes decided for single sub-graphs.

    What another cluster reads goes to DDR whatever was decided.
    """
    forced = {
        index: binding
        for subgraph, override in overrides.items()
        if override.cores != AUTO or override.core_dim != AUTO
        for index, binding in _chosen(instances, subgraph, override)
    }
    placement = bind_instances(instances, order, always=knobs.binding == "always", forced=forced)
    return hand_over(instances, _declare(instances, placement, knobs, overrides), cluster)


def _chosen(
    instances: InstanceGraph, subgraph: int, override: SubGraphKnobs
) -> list[tuple[int, Binding]]:
    """Bindings of a sub-graph's instances on some cores, one dimension first."""
    whole = instances.problem.target.cores
    cores = whole if override.cores == AUTO else int(override.cores)
    if whole % cores:
        at = Location(field="overrides")
        message = f"cores: {cores} does not divide the {whole} cores of a cluster"
        raise KnobsError(message, at)
    depth = None if override.core_dim == AUTO else int(override.core_dim)
    own = range(int(instances.first[subgraph]), int(instances.first[subgraph + 1]))
    return [(i, chosen_binding(instances.book, int(instances.shape[i]), cores, depth)) for i in own]


def _declare(
    instances: InstanceGraph,
    placement: Placement,
    knobs: Knobs,
    overrides: Mapping[int, SubGraphKnobs],
) -> Placement:
    """Scopes asked for by knobs: for all outputs, then for single sub-graphs."""
    scopes = list(placement.scopes)
    if knobs.output_scope != AUTO:
        scopes = [max(scope, Scope[knobs.output_scope]) for scope in scopes]
    for subgraph, override in overrides.items():
        if override.scope != AUTO:
            first, end = instances.first[subgraph : subgraph + 2].tolist()
            scopes[first:end] = [Scope[override.scope]] * (end - first)
    return Placement(placement.bindings, tuple(scopes))


def assemble(
    model: Graph,
    problem: Problem,
    scheduler: str,
    knobs: Knobs,
    share: Share,
    instances: InstanceGraph,
    order: tuple[int, ...],
    placement: Placement,
    cluster: Sequence[int] | Ints = (),
    overrides: Mapping[int, SubGraphKnobs] | None = None,
    known: Recent[Any, tuple[Timeline, ...]] | None = None,
) -> Schedule:
    """From bound instances to a schedule: stitch, concatenate, move, allocate.

    ``cluster`` is the cluster of every instance, empty where clusters work alike; ``overrides`` are
    the knobs' by sub-graph where they are resolved, and ``known`` timelines that are remembered.
    """
    if overrides is None:
        overrides = resolve(problem, instances.subgraphs, knobs)
    common = rules_of(problem, knobs)
    own = {index: rules_of(problem, knobs, override) for index, override in overrides.items()}
    rules = [own.get(subgraph.index, common) for subgraph in instances.subgraphs]
    buffers, where = tuple(rule.buffers for rule in rules), np.asarray(cluster, np.int64)

    def make() -> tuple[Timeline, ...]:
        return build_timelines(instances, order, placement, buffers, where)

    # not key(): rules of many settings come to the same
    at = instances, order, placement, buffers
    timelines = make() if known is None else known.get(at, make)
    others = {
        i: r.instructions for i, r in own.items() if r.instructions is not common.instructions
    }
    return Schedule(
        model, problem, scheduler, knobs, share, instances, order, placement, timelines[0],
        common.instructions, others, None, timelines[1:], tuple(where.tolist()),
    )  # fmt: skip


RULE_KNOBS = knob_names("subgraph", after=Stage.PLACE)
"""Knobs of the model that a sub-graph may have otherwise; what buffers and instructions read."""


@dataclass(frozen=True, slots=True)
class KernelRules:
    """What a sub-graph's buffers and its kernels' instructions depend on."""

    buffers: BufferRules
    instructions: InstructionRules


def rules_of(problem: Problem, knobs: Knobs, own: SubGraphKnobs | None = None) -> KernelRules:
    """The rules of a setting, or of a sub-graph with knobs of its own, remembered."""
    return _make_rules(problem, kernel_knobs(knobs, own)[-len(RULE_KNOBS) :])


@remembered(1 << 12)
def _make_rules(problem: Problem, values: tuple[Any, ...]) -> KernelRules:
    knobs = Knobs(**dict(zip(RULE_KNOBS, values, strict=True)))
    instructions = InstructionRules.of(problem, knobs)
    victim = "longest" if knobs.spill_victim == AUTO else knobs.spill_victim
    residence = "stream" if knobs.weight_residency == AUTO else knobs.weight_residency
    own = InstructionRules.of(problem, Knobs()).weight_room
    extra = max(instructions.weight_room - own, 0)
    return KernelRules(BufferRules(victim, residence, extra), instructions)
