"""Splitting information of a sub-graph: GraphTurbo, OSDI '23, section 3.1, Algorithm 1.

For every output dimension that can be split, the smallest factor with which the parts' footprint
fits the local buffers of a cluster; the best is the lexicographic maximum over (operators cut,
-factor, -depth), equation 1.

Where the printed algorithm cannot be meant as it stands, this differs:

- The output itself counts among the tensors that a dimension must match; printed, a sub-graph
  without intermediates never enters SplitInfo (line 11 is inside the loop over intermediates).
- A dimension is added once, after all its tensors were checked, not once per tensor with a growing
  count of operators.
- The output must be divisible too, not the intermediates alone (``factor_policy`` also allows
  ragged parts); intermediates need not be: their regions, halo included, follow from the output's.
- A factor above the extent makes a dimension unusable. If none is left the sub-graph stays whole,
  with factor infinity, and spills.
- ``ceil(peak / v) <= sizeof(LB)`` picks the factor as printed; the footprint of the largest part is
  then computed exactly, halo included, and larger factors are tried while it does not fit.
- "A simple cost model prevents excessive recomputation" (not given): the work of all parts over
  that of the whole must not pass ``recompute_limit``. A dimension that an operator does not have
  makes every part repeat that operator, so this is match_dim and halo in one.
- ``sizeof(LB)`` is what buffers can have of all cores' local buffers: the data share without the
  staging zone. The 64 KB of equation 2 cannot hold one image of ResNet-50's first stage.
- Parts may be sized by the global buffer instead (``part_memory``): what a kernel makes and has no
  room for in LB it keeps in GB, and passes it to the cores tile by tile. That is the second level
  of cuts: instances by GB, tiles by LB.

What is kept although it is greedy: the first factor that fits is dropped, with its dimension, if it
does not divide (33 parts of 4096 positions, where 64 would do). ``factor_policy`` goes on.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple, Self

import numpy as np

from autoturbo.caches import remembered
from autoturbo.compiled import borrowing, compiled
from autoturbo.graph.arrays import (
    GraphArrays,
    Ints,
    Regions,
    clear_seen,
    domain_points,
    propagate_in,
    region_bytes,
    seed_in,
)
from autoturbo.graph.operators import Operator
from autoturbo.schedule.context import LayerArrays, SchedulingContext, Zones, outer_axis
from autoturbo.schedule.knobs import AUTO, Knobs

UNFIT = math.inf
"""Factor of a sub-graph that no split makes fit."""

DEFAULT_RECOMPUTE_LIMIT = 1.25
"""Most repeated work by default: what a 3x3 halo costs on parts of eight rows."""

GB_SHARE = 0.6
"""Share of GB that a part may take where parts are to fit it: the rest is for what other parts made
and their readers wait for, and for weights on their way."""

RETRIES = 6
"""Larger factors tried when the halo makes the printed estimate too small."""


@dataclass(frozen=True, slots=True)
class SplitRules:
    """The knobs that Algorithm 1 reads, under their names."""

    lb_occupancy_limit: float = 1.0
    recompute_limit: float = DEFAULT_RECOMPUTE_LIMIT
    split_key: str = "operators-factor-depth"
    split_dims: str = "all"
    factor_policy: str = "published"
    part_memory: str = "LB"

    @classmethod
    def of(cls, knobs: Knobs) -> Self:
        """Return the rules of a candidate."""
        names = (rule.name for rule in dataclasses.fields(cls))
        choices: dict[str, Any] = {name: getattr(knobs, name, AUTO) for name in names}
        return cls(**{name: value for name, value in choices.items() if value != AUTO})

    def memory_bytes(self, context: SchedulingContext) -> int:
        """Return the bytes of the memory that parts have to fit: a cluster's LB, or its GB."""
        if self.part_memory == "GB":
            return max(int(Zones.of(context.target).gb * GB_SHARE), 1)
        return context.cluster_lb_bytes

    def room(self, context: SchedulingContext) -> int:
        """Return the bytes that a part may take."""
        return int(self.memory_bytes(context) * self.lb_occupancy_limit)


@dataclass(frozen=True, slots=True)
class Split:
    """How a sub-graph is split: BestSplit of the paper.

    Attributes:
        axis: Axis of the last operator's domain that is split, -1 for none.
        factor: Number of instances; :data:`UNFIT` if none fits (it then stays whole and spills).
        depth: Position of the dimension in the loop order.
        operators: Number of operators that the split divides.
        footprint: Bytes that the largest part needs in the local buffers of a cluster.
        inner_axis: A second axis that is split inside each part, -1 for none.
        inner_factor: Number of parts along it; there are ``factor * inner_factor`` instances.
    """

    axis: int
    factor: float
    depth: int
    operators: int
    footprint: int
    inner_axis: int = -1
    inner_factor: int = 1

    @property
    def instances(self) -> int:
        """Return the number of instances: 1 where nothing fits."""
        return (1 if self.factor == UNFIT else int(self.factor)) * self.inner_factor

    @property
    def axes(self) -> tuple[tuple[int, int], ...]:
        """Return ``(axis, parts)`` of every axis that is split, the outer one first."""
        inner = ((self.inner_axis, self.inner_factor),) if self.inner_axis >= 0 else ()
        return ((self.axis, int(self.factor)), *inner) if self.axis >= 0 else inner


class PartCost(NamedTuple):
    """Needs of the largest part of some layers.

    Attributes:
        footprint: Bytes in the local buffers of a cluster, weights excluded.
        work: Arithmetic, in vector-lane operations.
        operators: Number of operators that the part does not have whole.
    """

    footprint: int
    work: int
    operators: int


@remembered(1 << 17)
def part_cost(
    context: SchedulingContext, layers: tuple[int, ...], axis: int = -1, factor: int = 1
) -> PartCost:
    """Return the cost of the largest of ``factor`` equal parts along an axis, with halo; cached.

    Args:
        context: The model on the target.
        layers: Layers of the sub-graph.
        axis: One of the last operator's domain, -1 for none.
        factor: Number of parts.
    """
    if axis < 0:
        return box_cost(context, layers, (), ())
    extent = sink(context, layers).axes[axis].extent
    size = -(-extent // factor)
    # A part in the middle: its halo has both sides.
    start = min((factor // 2) * size, extent - size)
    return box_cost(context, layers, (axis,), ((start, start + size),))


def box_cost(
    context: SchedulingContext,
    layers: tuple[int, ...],
    axes: Sequence[int],
    bounds: Sequence[tuple[int, int]],
) -> PartCost:
    """Return the cost of one part of some layers, with halo.

    Args:
        context: The model on the target.
        layers: The layers that run together.
        axes: The axes of the last operator's domain that are split.
        bounds: Bounds of the part along each, first step and one past the last.
    """
    return PartCost(*_cost(
        context.arrays, context.layer_arrays, np.asarray(layers, np.int64),
        operators_of(context, layers), workspace(context), np.asarray(axes, np.int64),
        np.asarray(bounds, np.int64).reshape(-1, 2),
    ))  # fmt: skip


@dataclass(eq=False)
class RuleQueries:
    """Questions asked of rules: rules with the same answers give the same result.

    Attributes:
        rules: The rules that were asked.
        bounds: By rule, the range in which its answers would have been the same.
        layers: By rule that is a set of layers, the layers that it was asked for.
    """

    rules: SplitRules
    bounds: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    layers: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def exactly(self, *names: str) -> None:
        """Record that rules must be equal in the given fields to give the same answer."""
        self.bounds |= {name: (getattr(self.rules, name),) * 2 for name in names}

    def side(self, name: str, threshold: float) -> None:
        """Record a threshold of a numeric rule: values on one side give the same answer.

        A rule within rounding of the threshold must be equal.
        """
        # Thresholds are quotients, which rounding may put on either side.
        value, margin = getattr(self.rules, name), 1e-9 * abs(threshold)
        low, high = self.bounds.get(name, (-math.inf, math.inf))
        if value < threshold - margin:
            high = min(high, threshold - margin)
        elif value > threshold + margin:
            low = max(low, threshold + margin)
        else:
            low = high = value
        self.bounds[name] = low, high

    def holds(self, rules: SplitRules) -> bool:
        """Return whether other rules give the same answers."""
        return all(
            low <= getattr(rules, name) <= high for name, (low, high) in self.bounds.items()
        ) and all(
            asked.isdisjoint(getattr(rules, name) ^ getattr(self.rules, name))
            for name, asked in self.layers.items()
        )


def best_split(
    context: SchedulingContext,
    layers: tuple[int, ...],
    rules: SplitRules,
    asked: RuleQueries | None = None,
) -> Split:
    """Return the best split of the sub-graph of some layers: Algorithm 1 and equation 1.

    Args:
        context: The model on the target.
        layers: Layers of the sub-graph.
        rules: Limits, and which split is the best.
        asked: Takes down the questions asked of the rules.

    Returns:
        The split. Its axis is -1 where the sub-graph stays whole: it fits, or no parts do
        (:data:`UNFIT`).
    """
    asked = asked or RuleQueries(rules)
    asked.exactly("part_memory")
    whole = part_cost(context, layers)
    if whole.footprint <= rules.room(context):
        asked.side("lb_occupancy_limit", whole.footprint / rules.memory_bytes(context))
        return Split(-1, 1, 0, len(layers), whole.footprint)
    asked.exactly("lb_occupancy_limit", "split_dims", "factor_policy")
    ranked = {}
    for depth, axis in split_axes(context, layers, rules.split_dims):
        factor, part = _smallest_factor(context, layers, axis, rules, asked)
        if part is not None:
            split = Split(axis, factor, depth, part.operators, part.footprint)
            ranked[part.operators, -factor, -depth] = split
    if not ranked:
        return Split(-1, UNFIT, 0, 0, whole.footprint)
    keys = [("operators", "factor", "depth").index(key) for key in rules.split_key.split("-")]
    best = max(ranked, key=itemgetter(*keys))
    if any(
        best_digit < digit for rank in ranked for best_digit, digit in zip(best, rank, strict=True)
    ):
        asked.exactly("split_key")  # in another order another could be the best
    return ranked[best]


def _smallest_factor(
    context: SchedulingContext,
    layers: tuple[int, ...],
    axis: int,
    rules: SplitRules,
    asked: RuleQueries,
) -> tuple[int, PartCost | None]:
    """Return the smallest factor along an axis with which the parts fit, and a part's cost.

    It is searched from the smallest that fits by the printed estimate.

    Args:
        context: The model on the target.
        layers: Layers of the sub-graph.
        axis: One of the last operator's domain.
        rules: Limits on bytes and on recomputation.
        asked: Takes down the questions asked of them.

    Returns:
        The factor and the cost of a part; 0 and None if none fits.
    """
    extent, whole = sink(context, layers).axes[axis].extent, part_cost(context, layers)
    room = rules.room(context)
    # 1 is the whole, which has been tried.
    factor = max(-(-whole.footprint // max(room, 1)), 2)
    for _ in range(RETRIES + 1):
        factor = candidate_factor(factor, extent, rules.factor_policy)
        if factor == 0:
            break
        part = part_cost(context, layers, axis, factor)
        every = float(part.work * factor)
        if whole.work > 0:
            asked.side("recompute_limit", (every - factor) / whole.work)
        # One operation a part is allowed on top; more parts only repeat more, so this is the end.
        if every > rules.recompute_limit * whole.work + factor:
            break
        if part.footprint <= room:
            return factor, part
        factor += 1
    return 0, None


def candidate_factor(least: int, extent: int, policy: str) -> int:
    """Return the first factor to try from ``least`` on, 0 if there is none.

    The paper's are 1, 2, 4, 8, 9, 10, ...: below 8 only those that spread over 8 cores.
    """
    if policy == "published":
        factor = 4 if least == 3 else 8 if 5 <= least <= 7 else least  # noqa: PLR2004
        return factor if factor <= extent and extent % factor == 0 else 0
    if policy == "ragged":
        return least if least <= extent else 0
    dividing = divisors(extent)
    position = bisect.bisect_left(dividing, least)
    return dividing[position] if position < len(dividing) else 0


@functools.lru_cache(maxsize=1 << 12)
def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a number, ascending."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return tuple(sorted({*small, *(number // n for n in small)}))


def sink(context: SchedulingContext, layers: tuple[int, ...]) -> Operator:
    """Return the operator that makes a sub-graph's output."""
    return context.graph.operators[context.layers[layers[-1]].operators[-1]]


def extent_of(context: SchedulingContext, layers: tuple[int, ...], axis: int) -> int:
    """Return the steps of an axis of a sub-graph's output."""
    return sink(context, layers).axes[axis].extent


def split_axes(
    context: SchedulingContext, layers: tuple[int, ...], dims: str = "all"
) -> tuple[tuple[int, int], ...]:
    """Return ``(depth, axis)`` of every way to split an output into contiguous parts; cached.

    An operator with several outputs (a Split) may be split only along an axis that all of them
    have.
    """
    return _split_axes(context, layers[-1], dims)


@remembered(1 << 16)
def _split_axes(context: SchedulingContext, layer: int, dims: str) -> tuple[tuple[int, int], ...]:
    operator = sink(context, (layer,))
    if operator.opaque or not operator.outputs:
        return ()
    order = context.loop_order[operator.outputs[0]]
    ways = []
    for depth, dim in enumerate(order):
        # Activations lie in memory with samples outermost and channels innermost.
        kind = "batch" if depth == 0 else "channel" if depth == len(order) - 1 else "spatial"
        axis = outer_axis(operator, 0, dim)
        wanted = dims in ("all", kind)
        if wanted and axis is not None and _splits_all_outputs(operator, axis):
            ways.append((depth, axis))
    return tuple(ways)


def _splits_all_outputs(operator: Operator, axis: int) -> bool:
    for output, access in enumerate(operator.output_maps):
        dims = [
            d
            for d, dim_access in enumerate(access.dims)
            if any(a == axis for a, _ in dim_access.terms)
        ]
        if len(dims) != 1 or access.dims[dims[0]].offset:
            return False
        if outer_axis(operator, output, dims[0]) != axis:
            return False
    return True


def operators_of(context: SchedulingContext, layers: Sequence[int]) -> Ints:
    """Return the operators of some layers, in order."""
    return np.asarray([op for x in layers for op in context.layers[x].operators], np.int64)


class Workspace(NamedTuple):
    """Scratch arrays over the whole graph, allocated once; they describe the part computed last.

    Attributes:
        regions: Regions of a part.
        last: Per tensor that is read, the position of its last reader in a sub-graph.
        made: Per tensor, 1 if the sub-graph makes it.
    """

    regions: Regions
    last: Ints
    made: Ints


@remembered(1)
def workspace(context: SchedulingContext) -> Workspace:
    """Return scratch space to compute the regions of parts, one after another; cached."""
    regions = Regions.of(context.arrays)
    return Workspace(regions, np.zeros_like(regions.seen), np.zeros_like(regions.seen))


@compiled
def _cost(
    g: GraphArrays,
    a: LayerArrays,
    layers: Ints,
    ops: Ints,
    space: Workspace,
    axes: Ints,
    bounds: Ints,
) -> tuple[int, int, int]:
    """Return the footprint (bytes), the work and the number of operators split, of one part.

    The part is a box of the last operator's domain. A part of a recurrence runs all its steps: its
    work counts as the whole's.

    Args:
        g: The graph.
        a: Layers of the graph.
        layers: Layers of the sub-graph.
        ops: Operators of these layers.
        space: Scratch, which describes the part in the end.
        axes: The axes that the box is narrower along.
        bounds: First step and one past the last along each, ``(axes, 2)``.
    """
    regions, work, cut = space.regions, 0, 0
    clear_seen(g, ops, regions.seen)
    seed_in(g, ops[-1], axes, bounds, regions)
    propagate_in(g, ops, regions)
    for op in ops:
        points = domain_points(g, op, regions)
        total = 1
        for index in range(g.axis_start[op], g.axis_start[op + 1]):
            total *= g.axis_extent[index] if g.axis_computes[index] else 1
        work += (total if a.recurrent[op] and points else points) * a.work[op]
        cut += points < total
    return _peak(g, a, layers, space), work, cut


@borrowing
def _note_lives(a: LayerArrays, layers: Ints, last: Ints, made: Ints) -> None:
    """Record the last reader of all tensors that layers read, and which of them they make.

    Args:
        a: Layers of the graph.
        layers: Layers of the sub-graph, in order.
        last: Output: per tensor, the position of its last reader.
        made: Output: per tensor, 1 if a layer makes it; 0 if layers only read it.
    """
    for position in range(len(layers)):
        layer = layers[position]
        for tensor in a.in_tensor[a.in_start[layer] : a.in_start[layer + 1]]:
            last[tensor], made[tensor] = position, 0
    for layer in layers:
        for tensor in a.out_tensor[a.out_start[layer] : a.out_start[layer + 1]]:
            made[tensor] = 1


@borrowing
def _seen_bytes(g: GraphArrays, tensor: int, regions: Regions) -> int:
    return region_bytes(g, tensor, regions.low, regions.high) if regions.seen[tensor] else 0


@borrowing
def _peak(g: GraphArrays, a: LayerArrays, layers: Ints, space: Workspace) -> int:
    """Return the most bytes live at once while the layers run in order, weights excluded.

    Inputs are live from the start to their last reader; a layer that may write in place does so
    over an input that was made inside and dies with it.

    Args:
        g: The graph.
        a: Layers of the graph.
        layers: Layers in the order in which they run.
        space: Scratch with the regions of the part; its other arrays are overwritten.
    """
    regions, last, made, live = space.regions, space.last, space.made, 0
    _note_lives(a, layers, last, made)
    for position in range(len(layers)):
        layer = layers[position]
        for tensor in a.in_tensor[a.in_start[layer] : a.in_start[layer + 1]]:
            if last[tensor] == position and not made[tensor]:
                live += _seen_bytes(g, tensor, regions)
    peak = live
    for position in range(len(layers)):
        layer = layers[position]
        produced, dying, reusable = 0, 0, 0
        for tensor in a.out_tensor[a.out_start[layer] : a.out_start[layer + 1]]:
            produced += _seen_bytes(g, tensor, regions)
        for tensor in a.in_tensor[a.in_start[layer] : a.in_start[layer + 1]]:
            if last[tensor] == position:
                size = _seen_bytes(g, tensor, regions)
                dying += size
                if made[tensor] and a.in_place[layer] and size >= produced:
                    reusable = produced
        peak = max(peak, live + produced - reusable)
        live += produced - dying
    return peak
