"""The pass pipeline: split, group, order, bind, concatenate and move, stitch, allocate.

::

    model -> share out the work -> split + group -> instances -> order -> bind
          -> stitch -> concatenations and movements -> buffers -> schedule

Each pass is a function of frozen values; what several settings have in common is remembered in the
bounded :class:`SchedulerCache` of the workbench.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoturbo.caches import BoundedCache, remembered
from autoturbo.errors import KnobsError, Location
from autoturbo.graph.arrays import Ints
from autoturbo.graph.batch import BatchTrace, rebatch, trace_batch
from autoturbo.graph.layers import layers_of, places_of
from autoturbo.graph.operators import Graph
from autoturbo.graph.ordering import LEAST_BYTES
from autoturbo.hardware.target import Target
from autoturbo.schedule.chip_part import WHOLE, ChipPart, seen_by, used_target
from autoturbo.schedule.codegen.tiling import BY_TILES, InstructionRules
from autoturbo.schedule.context import BATCH, SchedulingContext, make_context
from autoturbo.schedule.knobs import (
    AUTO,
    MIDDLE_PRIORITY,
    Knobs,
    Stage,
    SubGraphKnobs,
    kernel_knobs,
    knob_names,
    refuse_misplaced,
)
from autoturbo.schedule.memory.timeline import BufferRules, Timeline, build_timelines
from autoturbo.schedule.partition.clusters import group_for
from autoturbo.schedule.partition.grouping import GroupRules, SubGraph
from autoturbo.schedule.partition.overrides import resolve, settled
from autoturbo.schedule.partition.split import SplitRules, divisors
from autoturbo.schedule.place.bind import Binding, Placement, Scope, bind_instances, chosen_binding
from autoturbo.schedule.place.homes import Home, clusters_at_work, clusters_of, homes_of
from autoturbo.schedule.place.instances import InstanceGraph, PartBook, make_instances
from autoturbo.schedule.place.order import order_instances
from autoturbo.schedule.schedule import Schedule, Share
from autoturbo.schedule.stitch.templates import known_templates

MIB = 1 << 20

BOOKS = 64 * MIB
"""Bytes, about, that all books of parts may take before they begin anew."""

_RESULTS, _PLANS, _TIMELINES = 1024, 4096, 64
"""Results of most kinds that are kept at most, whatever they take."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions of a candidate before instances exist: clusters, partition and splits.

    Attributes:
        number: Equal for equal sub-graphs with an equal division of work; never used twice.
        context: The model for the samples that are processed at once.
        share: Division of the work among the clusters that have some.
        subgraphs: In topological order.
        homes: The clusters of each; none where clusters work alike.
        overrides: Knobs of their own that sub-graphs have, by index.
    """

    number: int
    context: SchedulingContext
    share: Share
    subgraphs: tuple[SubGraph, ...]
    homes: tuple[Home, ...]
    overrides: Mapping[int, SubGraphKnobs] = field(default_factory=dict)

    @property
    def instances(self) -> Ints:
        """Return the instances of each sub-graph per pass, of the cluster that has most of them."""
        counts = np.asarray([s.split.instances for s in self.subgraphs], np.int64)
        if not self.homes:
            return counts
        return np.asarray(-(-counts // np.asarray(self.homes, np.int64)[:, 1]), np.int64)


def key(knobs: Knobs, upto: Stage, after: Stage | None = None) -> tuple[object, ...]:
    """Return the knobs that a range of passes reads, as a cache key.

    An override counts with its layer if it sets a knob of these passes. The assignment to the units
    of a machine is no part of it.

    Args:
        knobs: The candidate.
        upto: The last of the passes.
        after: The pass before the first; from the first one if None.
    """
    model = operator.attrgetter(*knob_names("model", upto=upto, after=after))
    names = knob_names("layer", "subgraph", upto=upto, after=after)
    if not names or not knobs.overrides:
        return (model(knobs),)
    chosen_of, unsaid = operator.attrgetter("layer", *names), (AUTO,) * len(names)
    return model(knobs), *(
        values for o in knobs.overrides if (values := chosen_of(o))[1:] != unsaid
    )


class SchedulerCache:
    """Caches of the passes' results, shared by candidates, each kind in bounded memory.

    Each kind, for all batch sizes together, forgets what was not asked for longest when its results
    would take more than their share. What they take is known about, from a few models: 400 bytes
    for a sub-graph with its split, 40 for an instance in an order, 16 for one in a placement, where
    binding and scope are shared, and 80 for one in a graph, with 48 for each that it reads.

    Attributes:
        books: Known parts, by the context that they are parts of. Parts and templates
            are numbered; holders of numbers hold their book too, so that a new one can begin.
        numbers: Of the plans to come.
        groups: Sub-graphs before they are split, by the knobs of division, split and grouping.
        plans: By the same.
        same: Plans by their content: equal ones are one object.
        graphs: Instance graphs by the number of their plan.
        orders: By plan and the knobs of ordering.
        placements: By plan, order and the knobs of binding and placing.
        timelines: Of all clusters, by instance graph, order, placement and the knobs of buffers.
    """

    def __init__(self) -> None:
        self.books: dict[SchedulingContext, PartBook] = {}
        self.numbers = itertools.count(1)
        self.groups = BoundedCache[Any, tuple[SubGraph, ...]](
            _PLANS, 16 * MIB, lambda s: 400 * len(s)
        )
        self.plans = BoundedCache[Any, Plan](_PLANS, 32 * MIB, lambda p: 400 * len(p.subgraphs))
        self.same = BoundedCache[Any, Plan](_PLANS, 16 * MIB, lambda p: 400 * len(p.subgraphs))
        self.graphs = BoundedCache[int, InstanceGraph](_RESULTS, 32 * MIB, _graph_bytes)
        self.orders = BoundedCache[Any, tuple[int, ...]](_RESULTS, 16 * MIB, lambda o: 40 * len(o))
        self.placements = BoundedCache[Any, Placement](
            _RESULTS, 16 * MIB, lambda placement: 16 * len(placement.bindings)
        )
        self.timelines = BoundedCache[Any, tuple[Timeline, ...]](
            _TIMELINES, 48 * MIB, _timeline_bytes
        )

    def forget_when_full(self) -> None:
        """Clear the parts and the caches that refer to them once they exceed :data:`BOOKS`."""
        if sum(map(_book_bytes, self.books.values())) > BOOKS:
            self.books.clear()
            self.graphs.forget()
            self.timelines.forget()


def _book_bytes(parts: PartBook) -> int:
    """Return the bytes of regions, split sub-graphs, classes of parts and templates."""
    templates = known_templates(parts).values()
    known = len(parts.parts) + len(parts.shapes) + len(templates)
    layers = sum(len(template.layers) for template in templates)
    return 16 * parts.rank * parts.regions.count + (known << 10) + (3 * layers << 10)


def _graph_bytes(graph: InstanceGraph) -> int:
    return 80 * graph.count + 48 * len(graph.links.maker)


def _timeline_bytes(timelines: tuple[Timeline, ...]) -> int:
    """Return the bytes of timelines, with the instance graph."""
    graph = timelines[0].graph
    rows = sum(len(timeline.streams) for timeline in timelines)
    return 104 * rows + 150 * graph.count + 80 * len(graph.links.maker) + _graph_bytes(graph)


@dataclass(eq=False)
class ModelScheduler:
    """One model on one target.

    A :class:`SchedulingContext` per batch size and order of layers is made on demand.

    Attributes:
        model: The whole model.
        target: The accelerator.
        dtype: The compute type; the target's default if empty.
        trace: Where its samples are.
        contexts: By samples that are processed at once, order of layers, the part of the chip, and
            the clusters that share its off-chip memory.
        places: The place of every operator, by order of layers.
        cache: Results that candidates have in common.
    """

    model: Graph
    target: Target
    dtype: str = ""
    trace: BatchTrace = field(init=False)
    contexts: dict[tuple[object, ...], SchedulingContext] = field(default_factory=dict)
    places: dict[str, Sequence[int]] = field(default_factory=dict)
    cache: SchedulerCache = field(default_factory=SchedulerCache)

    @staticmethod
    def of(schedule: Schedule) -> ModelScheduler:
        """Return the scheduler of the model and the target that a schedule is of."""
        context = schedule.context
        return ModelScheduler(schedule.model, context.chip, context.dtype)

    def __post_init__(self) -> None:
        self.dtype = self.dtype or self.target.default_dtype
        self.trace = trace_batch(self.model)

    def context(
        self, batches: int, order: str = AUTO, part: ChipPart = WHOLE, split: str = AUTO
    ) -> SchedulingContext:
        """Return the model for ``batches`` samples on a part of the chip, ready to schedule.

        Args:
            batches: Samples at once.
            order: Of the layers.
            part: The part of the chip.
            split: What clusters divide.

        Raises:
            KnobsError: The chip has no such part.
        """
        whole = used_target(self.target, part)
        working = self._working(split, whole.clusters)
        target = seen_by(whole, working)
        alike = 1 if self._jointly(split, whole.clusters) else working
        place = batches, order, part, target.clusters, alike
        if place not in self.contexts:
            known = (c.graph for at, c in self.contexts.items() if at[:2] == (batches, order))
            graph = next(known, None) or rebatch(self.model, batches, self.trace)
            layers = layers_of(graph, self._places(order))
            self.contexts[place] = make_context(
                graph, target, self.dtype, layers, self.target, alike
            )
        return self.contexts[place]

    def context_for(self, batches: int, knobs: Knobs) -> SchedulingContext:
        """Return the model for ``batches`` samples as a candidate has it.

        Raises:
            KnobsError: The chip has no such part.
        """
        split = knobs.cluster_partitioning
        return self.context(batches, knobs.layer_order, ChipPart.of(knobs), split)

    def _places(self, order: str) -> Sequence[int]:
        if order not in self.places:
            word = LEAST_BYTES if order == AUTO else order
            self.places[order] = places_of(self.model, word)
        return self.places[order]

    def parts(self, context: SchedulingContext) -> PartBook:
        """Return the known parts of the model, as one of its contexts has it."""
        books = self.cache.books
        if context not in books:
            books[context] = PartBook(context)
        return books[context]

    def share(self, batches: int | str = AUTO, split: str = AUTO, part: ChipPart = WHOLE) -> Share:
        """Return how the clusters of a part of the chip divide the work.

        A model whose samples cannot be told apart runs whole on one cluster, or on all of them if
        they divide something else than samples. A single cluster has nothing to divide.

        Raises:
            KnobsError: More samples at once than a cluster, or the batch, has.
        """
        chip_clusters = used_target(self.target, part).clusters
        batch, clusters = self.model.batch, self._working(split, chip_clusters)
        jointly = self._jointly(split, chip_clusters)
        samples = batch if jointly else -(-batch // clusters)
        at_once = samples if batches == AUTO or self.trace.obstacle else int(batches)
        if at_once > samples:
            owner = "the batch's" if jointly else "a cluster's"
            message = f"{at_once} is more than {owner} {samples} samples"
            raise KnobsError(message, Location(field="batches_per_cluster"))
        return Share(clusters, samples, at_once, split if jointly else BATCH)

    def share_of(self, knobs: Knobs) -> Share:
        """Return how the clusters divide the work as a candidate has it.

        Raises:
            KnobsError: More samples at once than a cluster has, or the chip has no such part.
        """
        part = ChipPart.of(knobs)
        return self.share(knobs.batches_per_cluster, knobs.cluster_partitioning, part)

    def _jointly(self, split: str, clusters: int) -> bool:
        """Return whether all clusters work on the same samples."""
        return split not in (AUTO, BATCH) and clusters > 1

    def _working(self, split: str, clusters: int) -> int:
        """Return the clusters that work if they divide a dimension; joint ones count as all."""
        if self._jointly(split, clusters):
            return clusters
        if self.trace.obstacle:
            return 1
        batch = self.model.batch
        samples = -(-batch // min(clusters, batch))  # five on four clusters: 2, 2, 1
        return -(-batch // samples)

    def batch_choices(self) -> tuple[int, ...]:
        """Return the numbers of samples at once that divide a cluster's share, largest first."""
        samples = self.share().samples
        return (samples,) if self.trace.obstacle else divisors(samples)[::-1]


def plan(model_scheduler: ModelScheduler, knobs: Knobs) -> Plan:
    """Return the plan of a candidate, all decisions before instances exist; cached.

    Candidates that differ in the knobs of later passes share all of a plan but its overrides.

    Raises:
        KnobsError: The candidate does not fit the model.
    """
    cache, share = (
        model_scheduler.cache,
        model_scheduler.share_of(knobs),
    )
    context = model_scheduler.context_for(share.batches, knobs)
    # a split of its own that is impossible is refused where an override, whatever it says, names
    # the layer that makes the output
    cache_key = key(knobs, Stage.PARTITION), tuple(override.layer for override in knobs.overrides)
    grouped = cache.groups.get(
        cache_key, lambda: group_for(context, GroupRules.of(knobs), share.split)
    )
    overrides = resolve(context, grouped, knobs)

    def make() -> Plan:
        scale = 1 if knobs.instance_multiplier == AUTO else int(knobs.instance_multiplier)
        room = SplitRules.of(knobs).room(context)
        subgraphs = tuple(
            settled(context, s, scale, overrides.get(s.index), share.split, room) for s in grouped
        )
        homes = homes_of(context, subgraphs, share.split)
        clusters = share.clusters if share.split == BATCH else clusters_at_work(homes)
        busy = dataclasses.replace(share, clusters=clusters)
        return cache.same.get(
            (context, share, subgraphs),
            lambda: Plan(next(cache.numbers), context, busy, subgraphs, homes),
        )

    known_plan = cache.plans.get(cache_key, make)
    return dataclasses.replace(known_plan, overrides=overrides) if overrides else known_plan


def build_schedule(model_scheduler: ModelScheduler, knobs: Knobs) -> Schedule:
    """Return the schedule of a candidate after all passes.

    Raises:
        KnobsError: The candidate does not fit the model.
    """
    if knobs.units is not None:
        message = "it is for machines of several processing units, and this target is one unit"
        raise KnobsError(message, Location(field="units"), "take it out")
    if knobs.host is not None:
        message = "it is how a batch runs on this computer, and this target is an accelerator"
        raise KnobsError(message, Location(field="host"), "take it out")
    cache = model_scheduler.cache
    cache.forget_when_full()
    decided = plan(model_scheduler, knobs)
    refuse_misplaced(knobs, decided.context.target)
    share, overrides = decided.share, decided.overrides
    instances = cache.graphs.get(
        decided.number,
        lambda: make_instances(model_scheduler.parts(decided.context), decided.subgraphs),
    )
    cluster = clusters_of(instances, decided.homes)
    order = cache.orders.get(
        (decided.number, key(knobs, Stage.ORDER, after=Stage.PARTITION)),
        lambda: _order(instances, knobs, overrides),
    )
    placement = cache.placements.get(
        (decided.number, order, key(knobs, Stage.PLACE, after=Stage.ORDER)),
        lambda: _placement(instances, order, knobs, overrides),
    )
    return assemble(
        model_scheduler.model, decided.context, "graphturbo", knobs, share, instances, order,
        placement, cluster, overrides, cache.timelines,
    )  # fmt: skip


def _order(
    instances: InstanceGraph, knobs: Knobs, overrides: Mapping[int, SubGraphKnobs]
) -> tuple[int, ...]:
    """Return the order of Algorithm 3, or the one that knobs ask for."""
    priority = np.full(len(instances.subgraphs), MIDDLE_PRIORITY, np.int64)
    for index, override in overrides.items():
        if override.priority != AUTO:
            priority[index] = int(override.priority)
    return order_instances(instances, knobs.instance_order, priority)


def _placement(
    instances: InstanceGraph,
    order: tuple[int, ...],
    knobs: Knobs,
    overrides: Mapping[int, SubGraphKnobs],
) -> Placement:
    """Return the placement of Algorithm 4, with the bindings and scopes that knobs ask for.

    Knobs of a sub-graph come after those of the model.

    Args:
        instances: Parts of the sub-graphs.
        order: Of execution.
        knobs: The model's.
        overrides: The sub-graphs' own, by number.

    Raises:
        KnobsError: A number of cores does not divide those of a cluster.
    """
    whole, first = instances.context.target.cores, instances.first.tolist()
    parts = {subgraph: range(first[subgraph], first[subgraph + 1]) for subgraph in overrides}
    forced, limits = dict[int, Binding](), dict[int, int]()
    for subgraph, override in overrides.items():
        if override.cores == AUTO == override.core_parallel_dim:
            continue
        cores = whole if override.cores == AUTO else int(override.cores)
        if whole % cores:
            message = f"cores: {cores} does not divide the {whole} cores of a cluster"
            raise KnobsError(message, Location(field="overrides"))
        depth = None if override.core_parallel_dim == AUTO else int(override.core_parallel_dim)
        for index in parts[subgraph]:
            shape = int(instances.shape[index])
            forced[index] = chosen_binding(instances.book, shape, cores, depth)
            if cores < whole and len(instances.subgraphs[subgraph].layers) > 1:
                limits[index] = cores
    always = knobs.binding == "always"
    bound = bind_instances(instances, order, always=always, forced=forced, limits=limits)
    least = Scope.LB if knobs.output_scope == AUTO else Scope[knobs.output_scope]
    scopes = [max(scope, least) for scope in bound.scopes]
    for subgraph, override in overrides.items():
        if override.scope != AUTO:
            for index in parts[subgraph]:
                scopes[index] = Scope[override.scope]
    return dataclasses.replace(bound, scopes=tuple(scopes))


def assemble(  # noqa: PLR0913  all that a schedule is made of
    model: Graph,
    context: SchedulingContext,
    scheduler: str,
    knobs: Knobs,
    share: Share,
    instances: InstanceGraph,
    order: tuple[int, ...],
    placement: Placement,
    cluster: Sequence[int] | Ints = (),
    overrides: Mapping[int, SubGraphKnobs] | None = None,
    known: BoundedCache[Any, tuple[Timeline, ...]] | None = None,
) -> Schedule:
    """Return the schedule of bound instances: stitch, concatenate, move, allocate.

    Args:
        model: The model with its whole batch.
        context: The model at the samples of a pass, on the target.
        scheduler: The scheduler's name.
        knobs: The decisions' settings.
        share: How clusters divide the work.
        instances: The parts of the sub-graphs.
        order: The order of execution.
        placement: Bindings and declared scopes.
        cluster: Of every instance; empty where clusters work alike.
        overrides: The knobs' by sub-graph, where they are resolved already.
        known: Timelines that are cached.
    """
    if overrides is None:
        overrides = resolve(context, instances.subgraphs, knobs)
    common = rules_of(context, knobs)
    own_rules = {index: rules_of(context, knobs, override) for index, override in overrides.items()}
    buffers = tuple(own_rules.get(s.index, common).buffers for s in instances.subgraphs)
    where = np.asarray(cluster, np.int64)
    # not key(): rules of many settings come to the same
    timelines = (BoundedCache[Any, tuple[Timeline, ...]](1) if known is None else known).get(
        (instances, order, placement, buffers),
        lambda: build_timelines(instances, order, placement, buffers, where),
    )
    rules = {
        i: r.instructions for i, r in own_rules.items() if r.instructions != common.instructions
    }
    return Schedule(
        model, context, scheduler, knobs, share, instances, order, placement, timelines,
        common.instructions, rules, None, tuple(where.tolist()),
    )  # fmt: skip


RULE_KNOBS = knob_names("subgraph", after=Stage.PLACE)
"""Knobs of the model that a sub-graph may have otherwise; what buffers and instructions read."""


@dataclass(frozen=True, slots=True)
class KernelRules:
    """Rules that determine a sub-graph's buffers and its kernels' instructions."""

    buffers: BufferRules
    instructions: InstructionRules


def rules_of(
    context: SchedulingContext, knobs: Knobs, own: SubGraphKnobs | None = None
) -> KernelRules:
    """Return the kernel rules of a candidate, or of a sub-graph with its own knobs; cached."""
    return _make_rules(context, kernel_knobs(knobs, own)[-len(RULE_KNOBS) :])


@remembered(1 << 12)
def _make_rules(context: SchedulingContext, values: tuple[Any, ...]) -> KernelRules:
    knobs = Knobs(**dict(zip(RULE_KNOBS, values, strict=True)))
    instructions = InstructionRules.of(context, knobs)
    victim = "longest" if knobs.spill_victim == AUTO else knobs.spill_victim
    residence = "stream" if knobs.weight_residency == AUTO else knobs.weight_residency
    default_room = InstructionRules.of(context, Knobs()).weight_room
    extra = max(instructions.weight_room - default_room, 0)
    ahead = 0 if knobs.fetch_ahead == AUTO else int(knobs.fetch_ahead)
    turns = instructions.across == BY_TILES
    return KernelRules(BufferRules(victim, residence, extra, ahead, turns), instructions)
