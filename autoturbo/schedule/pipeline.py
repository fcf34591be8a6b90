"""The pass pipeline: split, group, order, bind, concatenate and move, stitch, allocate.

::

    model -> share out the work -> split + group -> instances -> order -> bind
          -> stitch -> concatenations and movements -> buffers -> schedule

Each pass is a function of frozen values; what several settings have in common is remembered in the
bounded :class:`~autoturbo.schedule.cache.SchedulerCache` of the workbench.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoturbo.errors import KnobsError, Location
from autoturbo.graph.arrays import Ints
from autoturbo.graph.batch import BatchTrace, rebatch, trace_batch
from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.schedule.cache import (
    ORDERED,
    PLACED,
    SUBGRAPH,
    Plan,
    SchedulerCache,
)
from autoturbo.schedule.codegen.tiling import InstructionRules
from autoturbo.schedule.knobs import (
    AUTO,
    MIDDLE_PRIORITY,
    Knobs,
    Stage,
    SubGraphKnobs,
    key,
    knob_names,
)
from autoturbo.schedule.memory.timeline import BufferRules, Timeline, build_timelines
from autoturbo.schedule.partition.clusters import (
    Home,
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
from autoturbo.stores import remembered


@dataclass(eq=False)
class Workbench:
    """One model on one target, with a :class:`Problem` per batch size made on demand.

    Attributes:
        model: the whole model.
        target: the accelerator.
        dtype: the compute type.
        trace: where its samples are.
        problems: by samples that are processed at once.
        cache: results that settings have in common.
    """

    model: Graph
    target: Target
    dtype: str
    trace: BatchTrace = field(init=False)
    problems: dict[int, Problem] = field(default_factory=dict)
    cache: SchedulerCache = field(default_factory=SchedulerCache)

    def __post_init__(self) -> None:
        self.trace = trace_batch(self.model)

    def problem(self, batches: int) -> Problem:
        """The model for some samples, ready to schedule."""
        if batches not in self.problems:
            graph = rebatch(self.model, batches, self.trace)
            self.problems[batches] = make_problem(graph, self.target, self.dtype)
        return self.problems[batches]

    def parts(self, batches: int) -> PartBook:
        """What is known of the parts of the model for some samples."""
        return self.cache.parts(batches, self.problem(batches))

    def share(self, batches: int | str = AUTO, split: str = AUTO) -> Share:
        """How the clusters share out the work.

        A model whose samples cannot be told apart runs whole on one cluster, or on all of them if
        it is not samples that they share out. A single cluster has nothing to share out.

        Raises:
            KnobsError: more samples at once than a cluster, or the batch, has.
        """
        batch = self.model.batch
        if split not in (AUTO, BATCH) and self.target.clusters > 1:
            return self._joint(batches, split)
        clusters = 1 if self.trace.obstacle else min(self.target.clusters, batch)
        samples = -(-batch // clusters)
        at_once = samples if batches == AUTO or self.trace.obstacle else int(batches)
        if at_once > samples:
            at = Location(field="batches_per_cluster")
            raise KnobsError(f"{at_once} is more than a cluster's {samples} samples", at)
        return Share(-(-batch // samples), samples, at_once)

    def _joint(self, batches: int | str, split: str) -> Share:
        """All clusters on the same samples."""
        batch = self.model.batch
        at_once = batch if batches == AUTO or self.trace.obstacle else int(batches)
        if at_once > batch:
            at = Location(field="batches_per_cluster")
            raise KnobsError(f"{at_once} is more than the batch's {batch} samples", at)
        return Share(self.target.clusters, batch, at_once, split)

    def batch_choices(self) -> tuple[int, ...]:
        """Samples at once that divide a cluster's share, largest first."""
        samples = self.share().samples
        if self.trace.obstacle:
            return (samples,)
        return divisors(samples)[::-1]


def plan(bench: Workbench, knobs: Knobs) -> tuple[Problem, Share, tuple[SubGraph, ...]]:
    """Split and group: everything before instances exist."""
    problem, share, found, _ = planned(bench, knobs)
    return problem, share, found.subgraphs


def homes(bench: Workbench, knobs: Knobs) -> tuple[Home, ...]:
    """First cluster and number of clusters of every sub-graph; empty where they work alike."""
    return planned(bench, knobs)[2].homes


def planned(
    bench: Workbench, knobs: Knobs
) -> tuple[Problem, Share, Plan, dict[int, SubGraphKnobs]]:
    """Split and group, remembered: a model's problem, how clusters share it out, and the plan.

    With the knobs of their own that sub-graphs have, by index: settings that differ in those of
    later passes share a plan.

    Raises:
        KnobsError: the setting does not fit the model.
    """
    share = bench.share(knobs.batches_per_cluster, knobs.cluster_split)
    problem = bench.problem(share.batches)

    def make() -> Plan:
        subgraphs = _plan(problem, share, knobs)
        number = bench.cache.number((share.batches, subgraphs), SUBGRAPH * len(subgraphs))
        return Plan(number, subgraphs, homes_of(problem, subgraphs, share.split))

    # a split of its own that is impossible is refused where an override, whatever it says, names
    # the layer that makes the output
    named = tuple(override.layer for override in knobs.overrides)
    found = bench.cache.plans.get((key(knobs, Stage.PARTITION), named), make)
    return problem, found.share(share), found, resolve(problem, found.subgraphs, knobs)


def grouped(problem: Problem, split: str, knobs: Knobs) -> tuple[SubGraph, ...]:
    """Sub-graphs as Algorithm 2 makes them, for clusters that share out the work in some way."""
    return group_for(problem, GroupRules.of(knobs), split)


def _plan(problem: Problem, share: Share, knobs: Knobs) -> tuple[SubGraph, ...]:
    """Return the sub-graphs of a setting."""
    subgraphs = grouped(problem, share.split, knobs)
    overrides = resolve(problem, subgraphs, knobs)
    scale = 1 if knobs.factor_scale == AUTO else int(knobs.factor_scale)
    room = SplitRules.of(knobs).room(problem)
    return tuple(
        settled(problem, s, scale, overrides.get(s.index), share.split, room) for s in subgraphs
    )


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
    subgraphs = grouped(problem, share.split, knobs)
    said = resolve(problem, subgraphs, knobs)
    scale = 1 if knobs.factor_scale == AUTO else int(knobs.factor_scale)
    room = SplitRules.of(knobs).room(problem)
    found: dict[str, SubGraphKnobs] = {}
    for subgraph in (s for s in subgraphs if s.index in said):
        own = possible_split(problem, subgraph, scale, said[subgraph.index], share.split, room)
        if own != said[subgraph.index]:
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
    bench.cache.forget_when_full()
    problem, share, found, overrides = planned(bench, knobs)
    cache, subgraphs = bench.cache, found.subgraphs
    instances = cache.graphs.get(
        found.number, lambda: make_instances(bench.parts(share.batches), subgraphs)
    )
    cluster = clusters_of(instances, found.homes)
    place, order = _order(cache, instances, found.number, knobs, overrides)
    bound, placement = _placement(
        cache, instances, (place, order), (found.homes, cluster), knobs, overrides
    )
    rules = _rules(problem, instances, knobs, overrides)
    buffers = tuple(rule.buffers for rule in rules)
    timelines = cache.timelines.get(
        (bound, buffers),  # not key(): rules of many settings come to the same
        lambda: build_timelines(problem, instances, order, placement, buffers, cluster),
    )
    return _schedule(
        bench.model, problem, "graphturbo", knobs, share, instances, order, placement, timelines,
        rules, cluster,
    )  # fmt: skip


def _order(
    cache: SchedulerCache,
    instances: InstanceGraph,
    plan_number: int,
    knobs: Knobs,
    overrides: Mapping[int, SubGraphKnobs],
) -> tuple[int, tuple[int, ...]]:
    """The order of a plan's instances, numbered."""

    def make() -> tuple[int, tuple[int, ...]]:
        priority = None
        if knobs.instance_order == "priority":
            priority = _priorities(instances, overrides)
        order = order_instances(instances, knobs.instance_order, priority)
        return cache.number((plan_number, order), ORDERED * len(order)), order

    said = key(knobs, Stage.ORDER, after=Stage.PARTITION)
    return cache.orders.get((plan_number, said), make)


def _priorities(instances: InstanceGraph, overrides: Mapping[int, SubGraphKnobs]) -> Ints:
    found = np.full(len(instances.subgraphs), MIDDLE_PRIORITY, np.int64)
    for index, override in overrides.items():
        if override.priority != AUTO:
            found[index] = int(override.priority)
    return found


def _placement(
    cache: SchedulerCache,
    instances: InstanceGraph,
    numbered: tuple[int, tuple[int, ...]],
    at: tuple[tuple[Home, ...], Ints],
    knobs: Knobs,
    overrides: Mapping[int, SubGraphKnobs],
) -> tuple[int, Placement]:
    """Algorithm 4, with the bindings and scopes decided for single sub-graphs, numbered.

    What another cluster reads goes to DDR whatever was decided.
    """
    problem = instances.problem
    number, order = numbered

    def make() -> tuple[int, Placement]:
        forced = {
            index: binding
            for subgraph, override in overrides.items()
            if override.cores != AUTO or override.core_dim != AUTO
            for index, binding in _chosen(problem, instances, subgraph, override)
        }
        always = knobs.binding == "always"
        placement = bind_instances(instances, order, always=always, forced=forced)
        placement = _declare(instances, placement, knobs, overrides)
        placement = hand_over(instances, placement, cluster)
        size = PLACED * len(placement.bindings)
        return cache.number((number, placement, homes), size), placement

    homes, cluster = at
    said = key(knobs, Stage.PLACE, after=Stage.ORDER)
    return cache.placements.get((number, homes, said), make)


def _chosen(
    problem: Problem, instances: InstanceGraph, subgraph: int, override: SubGraphKnobs
) -> list[tuple[int, Binding]]:
    """Bindings of a sub-graph's instances on some cores, one dimension first."""
    cores = problem.target.cores if override.cores == AUTO else int(override.cores)
    if problem.target.cores % cores:
        at = Location(field="overrides")
        message = f"cores: {cores} does not divide the {problem.target.cores} cores of a cluster"
        raise KnobsError(message, at)
    depth = None if override.core_dim == AUTO else int(override.core_dim)
    own = range(int(instances.first[subgraph]), int(instances.first[subgraph + 1]))
    return [(i, chosen_binding(instances.book, int(instances.shape[i]), cores, depth)) for i in own]


def assemble(
    model: Graph,
    problem: Problem,
    scheduler: str,
    knobs: Knobs,
    share: Share,
    instances: InstanceGraph,
    order: tuple[int, ...],
    placement: Placement,
    cluster: Sequence[int] = (),
) -> Schedule:
    """From bound instances to a schedule: stitch, concatenate, move, allocate.

    ``cluster`` is the cluster of every instance, empty where clusters work alike.
    """
    overrides = resolve(problem, instances.subgraphs, knobs)
    rules = _rules(problem, instances, knobs, overrides)
    buffers, where = [rule.buffers for rule in rules], np.asarray(cluster, np.int64)
    timelines = build_timelines(problem, instances, order, placement, buffers, where)
    return _schedule(
        model, problem, scheduler, knobs, share, instances, order, placement, timelines, rules,
        where,
    )  # fmt: skip


def _schedule(
    model: Graph,
    problem: Problem,
    scheduler: str,
    knobs: Knobs,
    share: Share,
    instances: InstanceGraph,
    order: tuple[int, ...],
    placement: Placement,
    timelines: tuple[Timeline, ...],
    rules: Sequence[KernelRules],
    cluster: Ints,
) -> Schedule:
    common = rules_of(problem, knobs).instructions
    own = {i: r.instructions for i, r in enumerate(rules) if r.instructions is not common}
    return Schedule(
        model, problem, scheduler, knobs, share, instances, order, placement, timelines[0], common,
        own, None, timelines[1:], tuple(cluster.tolist()),
    )  # fmt: skip


RULE_KNOBS = knob_names("subgraph", after=Stage.PLACE)
"""Knobs of the model that a sub-graph may have otherwise; what buffers and instructions read."""

_RULES_OF = operator.attrgetter(*RULE_KNOBS)


@dataclass(frozen=True, slots=True)
class KernelRules:
    """What a sub-graph's buffers and its kernels' instructions depend on."""

    buffers: BufferRules
    instructions: InstructionRules


def _rules(
    problem: Problem,
    instances: InstanceGraph,
    knobs: Knobs,
    overrides: Mapping[int, SubGraphKnobs],
) -> list[KernelRules]:
    """Per sub-graph, the rules that hold for it."""
    found = [rules_of(problem, knobs)] * len(instances.subgraphs)
    for index, override in overrides.items():
        found[index] = rules_of(problem, knobs, override)
    return found


def rules_of(problem: Problem, knobs: Knobs, own: SubGraphKnobs | None = None) -> KernelRules:
    """The rules of a setting, or of a sub-graph with knobs of its own, remembered."""
    values = _RULES_OF(knobs)
    if own is not None:
        said = [getattr(own, name, AUTO) for name in RULE_KNOBS]
        values = tuple(v if s == AUTO else s for s, v in zip(said, values, strict=True))
    return _make_rules(problem, values)


@remembered(1 << 12)
def _make_rules(problem: Problem, values: tuple[Any, ...]) -> KernelRules:
    knobs = Knobs(**dict(zip(RULE_KNOBS, values, strict=True)))
    instructions = InstructionRules.of(problem, knobs)
    victim = "longest" if knobs.spill_victim == AUTO else knobs.spill_victim
    residence = "stream" if knobs.weight_residency == AUTO else knobs.weight_residency
    own = InstructionRules.of(problem, Knobs()).weight_room
    extra = max(instructions.weight_room - own, 0)
    return KernelRules(BufferRules(victim, residence, extra), instructions)


def _declare(
    instances: InstanceGraph,
    placement: Placement,
    knobs: Knobs,
    overrides: Mapping[int, SubGraphKnobs],
) -> Placement:
    """Scopes asked for by knobs: for all outputs, then for single sub-graphs."""
    wanted = {index: Scope[o.scope] for index, o in overrides.items() if o.scope != AUTO}
    if knobs.output_scope == AUTO and not wanted:
        return placement
    scopes = list(placement.scopes)
    if knobs.output_scope != AUTO:
        scopes = [max(s, Scope[knobs.output_scope]) for s in scopes]
    for subgraph, scope in wanted.items():
        for index in range(int(instances.first[subgraph]), int(instances.first[subgraph + 1])):
            scopes[index] = scope
    return Placement(placement.bindings, tuple(scopes))
