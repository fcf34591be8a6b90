"""The costs of single sub-graphs, where their kernels depend on nothing but themselves.

Under these settings a kernel's time does not depend on how the rest of the model is cut, split,
bound or ordered, so that a schedule's time is the sum over its sub-graphs (tests hold it against
the whole pipeline):

- clusters share out samples: a pass is one cluster's kernels one after another;
- every output is declared in DDR: no tensor lives in LB or GB from one kernel to the next, and what
  a kernel reads is copied from DDR whoever made it, in however many pieces;
- bindings are chosen (``cores``) and not pushed from consumers to producers;
- weights are streamed: kept ones would share the local buffers with other sub-graphs' kernels.

Many sub-graphs are costed together: they are laid out one after another as if each were alone,
behind whole producers of what they read. Of parts with equal extents one is simulated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np

from autoturbo.caches import remembered
from autoturbo.graph.arrays import Ints
from autoturbo.graph.operators import Operator
from autoturbo.hardware.parts import storage_ratio
from autoturbo.schedule.codegen.durations import rates_of
from autoturbo.schedule.codegen.tiling import TilingRules
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs
from autoturbo.schedule.memory.timeline import without_outputs
from autoturbo.schedule.partition.clusters import PARTS, cluster_axis
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.split import Split, extent_of, split_axes
from autoturbo.schedule.pipeline import ModelScheduler, rules_of
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.place.instances import Parts
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.streams import IN_DDR, LATE_DDR, OUT_DDR
from autoturbo.schedule.work import MATRIX, VECTOR, Floats, in_integers, priced
from autoturbo.search.warm_starts.groups import Layers
from autoturbo.simulator.bound import Needs
from autoturbo.simulator.estimate import Estimate, estimates
from autoturbo.simulator.isolated import Bound, cores_of, lay_side_by_side
from autoturbo.simulator.plan import CAPACITIES, capacities
from autoturbo.simulator.sequence import KernelMemory, launched_seconds

SLACK = 1 - 1e-9
"""Sums in another order differ in their last digits."""


@remembered(1)
def least_seconds(context: SchedulingContext) -> Floats:
    """Return each operator's lower bounds of a cluster's seconds: array (operators, 3), remembered.

    The bounds are of the matrix engine, of the vector engine, and of loading its weights from DDR.
    """
    integers = in_integers(context.target, context.dtype)
    needs = Needs.of(context.graph, context.dtype, integers=integers)
    readers = [set(c) for c in context.graph.consumers]
    bounds_s = [
        _row(context, needs, index, operator, readers)
        for index, operator in enumerate(context.graph.operators)
    ]
    return np.asarray(bounds_s, np.float64).reshape(-1, 3)


def _row(
    context: SchedulingContext,
    needs: Needs,
    index: int,
    operator: Operator,
    readers: list[set[int]],
) -> tuple[float, float, float]:
    target, dtype = context.target, context.dtype
    points, shown = needs.points(index)
    work = priced(operator, target, dtype)
    code = work.engine
    macs = points * work.macs
    plain = shown * work.vector + points * work.per_point + macs * (code == VECTOR)
    special = shown * work.special
    slow = target.vector.special_lanes * target.cores * target.clock
    matrix_s = 0.0
    if code == MATRIX:
        matrix_s = macs / target.matrix_macs_per_second(dtype) * target.clusters
    vector_s = plain / target.vector_ops_per_second(dtype) * target.clusters if plain else 0.0
    vector_s += special / slow if special else 0.0
    # Only dense weights of this operator alone: a look-up reads what it picks.
    weights = sum(
        needs.bytes(t) for t in set(operator.inputs)
        if context.graph.tensors[t].constant and readers[t] == {index} and code == MATRIX
    )  # fmt: skip
    read = weights * context.own_weights * storage_ratio(dtype)
    return matrix_s, vector_s, read / target.ddr_bandwidth_per_cluster


TOGETHER = 1024
"""Sub-graphs costed at once: enough to share what a timeline costs, few enough for memory."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to compute a set of layers.

    Attributes:
        layers: Of the sub-graph.
        depth: Output dimension that is cut, counted from the outermost loop.
        axis: The same as an axis of the last operator, -1 for none.
        parts: Instances.
        own: Its further knobs; the layer that it names means nothing.
    """

    layers: Layers
    depth: int
    axis: int
    parts: int
    own: SubGraphKnobs

    @property
    def subgraph(self) -> SubGraph:
        """Return the variant as a sub-graph of the scheduler."""
        return SubGraph(0, self.layers, Split(self.axis, self.parts, self.depth, 0, 0))


@dataclass(eq=False)
class Costs:
    """The seconds of a model's sub-graphs, for a number of samples at once.

    Attributes:
        model_scheduler: Model and target.
        knobs: The model's knobs.
        memory: Kernels that are known.
    """

    divided: ClassVar[tuple[str, ...]] = (AUTO,)
    """What clusters may divide: samples only."""

    model_scheduler: ModelScheduler
    knobs: Knobs
    memory: KernelMemory = field(default_factory=KernelMemory)
    _full_rate: dict[Layers, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.share = self.model_scheduler.share_of(self.knobs)
        self.context: SchedulingContext = self.model_scheduler.context_for(
            self.share.batches, self.knobs
        )

    def least(self, variant: Variant) -> float:
        """Return a lower bound of the seconds of a variant, before it is laid out.

        Work, weights and the output, which goes to DDR, at full rate, and a launch for every part.
        """
        layers = variant.layers
        if layers not in self._full_rate:
            self._full_rate[layers] = self._at_full_rate(layers)
        launches = variant.parts * self.context.target.overheads.per_kernel
        return (self._full_rate[layers] + launches) * SLACK

    def _at_full_rate(self, layers: Layers) -> float:
        context = self.context
        matrix, vector, weights = least_of_layers(context, layers)
        written = sum(_written(context)[t] for t in context.layers[layers[-1]].outputs)
        rate = context.target.ddr_bandwidth_per_cluster / storage_ratio(context.dtype)
        return max(matrix, vector, weights + written / rate)

    def seconds(self, variants: Sequence[Variant], limits: Floats | None = None) -> Floats:
        """Return the seconds of one pass of one cluster, per variant.

        Args:
            variants: At least one layer each.
            limits: Per variant, seconds from which on they need not be known: infinite then.
        """
        seconds = np.full(len(variants), np.inf)
        for first in range(0, len(variants), TOGETHER):
            batch = list(range(first, min(first + TOGETHER, len(variants))))
            if limits is not None and np.isfinite(limits[batch]).any():
                least = _least(self.laid([variants[i] for i in batch]))
                batch = [i for i, s in zip(batch, least.tolist(), strict=True) if s < limits[i]]
            if batch:
                seconds[batch] = self._simulated([variants[i] for i in batch])
        return seconds

    def _simulated(self, variants: Sequence[Variant]) -> Floats:
        laid = self.laid(variants)
        return laid.sums(launched_seconds(laid.schedule, self.memory))

    def laid(self, variants: Sequence[Variant]) -> VariantSchedule:
        """Return the layout of variants one after another, each as if alone, its outputs in DDR."""
        context = self.context
        own = rules_of(context, self.knobs)
        each = [rules_of(context, self.knobs, variant.own) for variant in variants]
        wanted = [
            Bound(v.subgraph, *cores_of(context, v.own.cores, v.own.core_parallel_dim))
            for v in variants
        ]
        graph, first, placement, timeline = lay_side_by_side(
            self.model_scheduler.parts(context), wanted, _each_shape,
            [rules.buffers for rules in each], own.buffers,
        )  # fmt: skip
        instructions = [rules.instructions for rules in ([own] * first + each)]
        schedule = Schedule(
            self.model_scheduler.model, context, "graphturbo", self.knobs, self.share, graph,
            tuple(range(graph.count)), placement, (timeline,), instructions[0],
            dict(enumerate(instructions)),
        )  # fmt: skip
        counts = [np.unique(parts.shapes, return_counts=True)[1] for parts in graph.parts]
        return VariantSchedule(schedule, first, np.concatenate(counts).astype(np.float64))


def least_of_layers(context: SchedulingContext, layers: Layers) -> tuple[float, float, float]:
    """Return lower bounds of a set's seconds: matrix engine, vector engine, weights."""
    operators = [op for layer in layers for op in context.layers[layer].operators]
    matrix, vector, weights = least_seconds(context)[operators].sum(axis=0).tolist()
    return matrix, vector, weights


@remembered(1)
def _written(context: SchedulingContext) -> list[int]:
    """Return the bytes of every tensor that the model's outputs depend on, remembered."""
    integers = in_integers(context.target, context.dtype)
    needs = Needs.of(context.graph, context.dtype, integers=integers)
    return [needs.bytes(t) for t in range(len(context.graph.tensors))]


@dataclass(frozen=True, slots=True)
class VariantSchedule:
    """Variants as one schedule.

    Attributes:
        schedule: The schedule.
        first: Number of its leading sub-graphs: whole producers of what the variants read.
        times: Number of parts that each instance stands for.
    """

    schedule: Schedule
    first: int
    times: Floats

    @property
    def stages(self) -> Floats:
        """Return rows of :class:`.stitch.Stage`, layer by layer of every kernel."""
        timeline = self.schedule.timeline
        return np.concatenate([timeline.templates[index].stages for index in timeline.order])

    @property
    def outputs(self) -> Ints:
        """Return the output bytes of every kernel."""
        parts = self.schedule.instances.parts
        return np.concatenate([one.output_bytes[_each_shape(one)] for one in parts])

    def sums(self, seconds: Floats) -> Floats:
        """Return sums per variant of seconds per kernel."""
        graph = self.schedule.instances
        sums = np.bincount(graph.subgraph, seconds * self.times, len(graph.subgraphs))
        return np.asarray(sums[self.first :], np.float64)


def _least(laid: VariantSchedule) -> Floats:
    """Return lower bounds of the variants' seconds, before their kernels' instructions are known.

    A kernel takes no less than its bytes from and to DDR at full rate, which weights pass at least
    once, nor than its products at the matrix engines' rate; copies before it come on top.
    """
    schedule, timeline = laid.schedule, laid.schedule.timeline
    target, dtype = schedule.context.target, schedule.context.dtype
    rate = target.ddr_bandwidth_per_cluster / storage_ratio(dtype)
    stages = laid.stages
    weights = stages[:, Stage.WEIGHTS] * schedule.context.own_weights
    moved = timeline.streams[:, _DDR].sum(axis=1) + weights
    starts = timeline.rows[:-1]
    seconds = np.add.reduceat(moved / rate, starts)
    macs = target.matrix_macs_per_second(dtype) / (target.clusters * target.cores)
    if macs:
        seconds = np.maximum(seconds, np.add.reduceat(stages[:, Stage.MACS] / macs, starts))
    seconds += timeline.copied[:, Scope.DDR] / rate + target.overheads.per_kernel
    return laid.sums(seconds) * SLACK


_DDR = [IN_DDR, OUT_DDR, LATE_DDR]


def _each_shape(parts: Parts) -> Ints:
    """Return the index of the first part of every shape."""
    return np.unique(parts.shapes, return_index=True)[1]


class DividedCosts(Costs):
    """The seconds of sub-graphs whose outputs clusters divide along one kind of axis.

    Every cluster computes a part of its own, with all that this needs of the layers before it in
    the sub-graph, and has a part of the bus. A sub-graph whose output has no such axis is computed
    by one cluster while the others wait. What a cluster waits for on another is left out.
    """

    divided: ClassVar[tuple[str, ...]] = PARTS

    def least(self, variant: Variant) -> float:
        """Return a lower bound of a cluster's seconds of a variant; see :meth:`Costs.least`."""
        return super().least(variant) / self.context.target.clusters

    def seconds(self, variants: Sequence[Variant], limits: Floats | None = None) -> Floats:
        """Return the seconds of one pass of one cluster, per variant; see :meth:`Costs.seconds`.

        They are infinite where parts of a cluster's own lie along another axis.
        """
        shared = [self._shared(variant) for variant in variants]
        known = [index for index, one in enumerate(shared) if one is not None]
        seconds, owners = np.full(len(variants), np.inf), np.ones(len(variants))
        for index, one in enumerate(shared):
            if one is not None and one != variants[index]:
                owners[index] = self.context.target.clusters
        own = None if limits is None else (limits * owners)[known]
        found = super().seconds([one for one in shared if one is not None], own)
        seconds[known] = found / owners[known]
        return seconds

    def _shared(self, variant: Variant) -> Variant | None:
        """Return a variant with the parts of all clusters; None where there is no such one."""
        context, layers = self.context, variant.layers
        axis = cluster_axis(context, layers, self.knobs.cluster_partitioning)
        if axis < 0:
            return variant
        parts = variant.parts * context.target.clusters
        if (variant.parts > 1 and variant.axis != axis) or parts > extent_of(context, layers, axis):
            return None
        depth = {axis: depth for depth, axis in split_axes(context, layers)}[axis]
        return dataclasses.replace(variant, axis=axis, depth=depth, parts=parts)


ROOM: Final = 0.25
"""Share of the local buffers that what a sub-graph reads and writes may fill: tiles, weights and
what later sub-graphs wait for want room too. From 0.15 to 0.5 the cheapest covers of seven models
on ipu-mk2 cost the same to 1 %."""


class LocalBufferCosts(Costs):
    """The seconds of sub-graphs, with inputs and outputs in the local buffers where they fit.

    Those whose inputs and outputs do not fit cost what they cost with both in DDR.
    """

    def seconds(self, variants: Sequence[Variant], limits: Floats | None = None) -> Floats:
        """Return the seconds of one pass of one cluster, per variant; see :meth:`Costs.seconds`."""
        fits = np.asarray([self._fits(variant.layers) for variant in variants], np.bool_)
        seconds, near, far = np.empty(len(variants)), np.flatnonzero(fits), np.flatnonzero(~fits)
        for first in range(0, len(near), TOGETHER):
            batch = near[first : first + TOGETHER]
            seconds[batch] = self._estimated([variants[i] for i in batch.tolist()])
        known = None if limits is None else limits[far]
        seconds[far] = super().seconds([variants[i] for i in far.tolist()], known)
        return seconds

    def fitting(self, variants: Sequence[Variant]) -> float:
        """Return the share of variants whose inputs and outputs fit the local buffers."""
        return float(np.mean([self._fits(v.layers) for v in variants])) if variants else 0.0

    def _at_full_rate(self, layers: Layers) -> float:
        """Return a lower bound without outputs, which need not pass any memory."""
        return max(least_of_layers(self.context, layers))

    def _fits(self, layers: Layers) -> bool:
        row = dict(zip(CAPACITIES, capacities(self.context, layers), strict=True))
        return row["whole_input_bytes"] + row["whole_output_bytes"] <= ROOM * row["lb_bytes"]

    def _estimated(self, variants: Sequence[Variant]) -> Floats:
        """Return the simulator's estimates, for kernels that store no outputs in DDR."""
        laid = self.laid(variants)
        context, schedule = self.context, laid.schedule
        timeline, graph = schedule.timeline, schedule.instances
        rows, owners = timeline.rows, graph.subgraph[timeline.order].tolist()
        near = without_outputs(timeline.streams, rows[1:] - 1, laid.outputs)
        pairs = zip(owners, timeline.spare, strict=True)
        table = [TilingRules.with_spare(schedule.rules_of(own), spare) for own, spare in pairs]
        found = estimates(
            rows, laid.stages, near, np.asarray(table, np.int64), np.zeros(len(rows) - 1, np.int64),
            rates_of(context.target, context.dtype),
        )  # fmt: skip
        work = found[:, Estimate.SECONDS]
        return laid.sums(work + context.target.overheads.around(work))
