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

What is kept although it is greedy: the first factor that fits is dropped, with its dimension, if it
does not divide (33 parts of 4096 positions, where 64 would do). ``factor_policy`` goes on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numba import njit

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import (
    GraphArrays,
    Ints,
    domain_points,
    need,
    propagate_in,
    read_region,
    region_bytes,
)
from autoturbo.graph.operators import MAX_AXES, Operator
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.schedule.problem import LayerArrays, Problem, outer_axis

UNFIT = math.inf
"""Factor of a sub-graph that no split makes fit."""

DEFAULT_RECOMPUTE_LIMIT = 1.25
"""Most repeated work by default: what a 3x3 halo costs on parts of eight rows."""

RETRIES = 6
"""Larger factors tried when the halo makes the printed estimate too small."""


@dataclass(frozen=True, slots=True)
class SplitRules:
    """The knobs that Algorithm 1 reads."""

    lb_fill: float = 1.0
    recompute_limit: float = DEFAULT_RECOMPUTE_LIMIT
    key: str = "ofd"
    dims: str = "all"
    policy: str = "published"

    @staticmethod
    def of(knobs: Knobs) -> SplitRules:
        """Read them from a setting."""
        default = SplitRules()
        return SplitRules(
            lb_fill=float(_or(knobs.lb_fill, default.lb_fill)),
            recompute_limit=float(_or(knobs.recompute_limit, default.recompute_limit)),
            key=str(_or(knobs.split_key, default.key)),
            dims=str(_or(knobs.split_dims, default.dims)),
            policy=str(_or(knobs.factor_policy, default.policy)),
        )


def _or(value: str | float, default: str | float) -> str | float:
    return default if value == AUTO else value


@dataclass(frozen=True, slots=True)
class Split:
    """How a sub-graph is split: BestSplit of the paper.

    Attributes:
        axis: axis of the last operator's domain that is cut, -1 for none.
        factor: number of instances; :data:`UNFIT` if none fits (it then stays whole and spills).
        depth: position of the dimension in the loop order.
        operators: how many operators the split cuts.
        footprint: bytes that the largest part needs in the local buffers of a cluster.
        inner_axis: a second axis that is cut inside each part, -1 for none.
        inner_factor: number of parts along it; there are ``factor * inner_factor`` instances.
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
        """Number of instances: 1 where nothing fits."""
        return self._outer * self.inner_factor

    @property
    def _outer(self) -> int:
        return 1 if self.factor == UNFIT else int(self.factor)

    @property
    def axes(self) -> tuple[tuple[int, int], ...]:
        """``(axis, parts)`` of every axis that is cut, the outer one first."""
        inner = ((self.inner_axis, self.inner_factor),) if self.inner_axis >= 0 else ()
        return ((self.axis, self._outer), *inner) if self.axis >= 0 else inner

    @property
    def row(self) -> list[int]:
        """The attributes in order, for compiled code; factor 0 stands for :data:`UNFIT`."""
        outer = 0 if self.factor == UNFIT else int(self.factor)
        inner = (self.inner_axis, self.inner_factor)
        return [self.axis, outer, self.depth, self.operators, self.footprint, *inner]

    @staticmethod
    def of_row(row: Sequence[int]) -> Split:
        """From :attr:`row`, or from its first five numbers."""
        axis, factor, *others = row
        return Split(axis, factor or UNFIT, *others)

    def needing(self, footprint: int) -> Split:
        """The same with another footprint in bytes."""
        own = (self.axis, self.factor, self.depth, self.operators, footprint)
        return Split(*own, self.inner_axis, self.inner_factor)


class SplitColumn(IntEnum):
    """Columns of :attr:`Split.row`."""

    AXIS = 0
    FACTOR = 1
    DEPTH = 2
    OPERATORS = 3
    FOOTPRINT = 4
    INNER_AXIS = 5
    INNER_FACTOR = 6


def best_split(problem: Problem, layers: tuple[int, ...], rules: SplitRules) -> Split:
    """Algorithm 1 and equation 1 for the sub-graph of the given layers, remembered."""
    found = splits_of(problem, rules)
    if layers not in found:
        found[layers] = _best_split(problem, layers, rules)
    return found[layers]


def splits_of(problem: Problem, rules: SplitRules) -> dict[tuple[int, ...], Split]:
    """The splits that are known for some rules, by the sub-graph's layers."""
    key = ("splits", rules)
    found = problem.books.get(key)
    if not isinstance(found, dict):
        found = {}
        problem.books[key] = found
    return found


def _best_split(problem: Problem, layers: tuple[int, ...], rules: SplitRules) -> Split:
    axes = split_axes(problem, layers, rules.dims)
    room = int(problem.cluster_lb_bytes * rules.lb_fill)
    axis, factor, depth, cut, peak = _search(
        problem.arrays, problem.layer_arrays, np.asarray(layers, np.int64),
        np.asarray(axes, np.int64).reshape(-1, 2), room, rules.recompute_limit,
        POLICIES[rules.policy], np.asarray(["ofd".index(k) for k in rules.key], np.int64),
    )  # fmt: skip
    return Split(axis, UNFIT if factor == 0 else factor, depth, cut, peak)


POLICIES = {"published": 0, "divisors": 1, "ragged": 2}
"""Codes of the factors that are tried."""


@njit(cache=True)
def _search(
    g: GraphArrays,
    a: LayerArrays,
    layers: Ints,
    axes: Ints,
    room: int,
    limit: float,
    policy: int,
    key: Ints,
) -> tuple[int, int, int, int, int]:
    """The best way to cut a sub-graph: axis, factor (0 if none fits), depth, operators, bytes."""
    space = workspace(g, a, layers)
    whole, work, _ = cost(g, a, layers, space.ops, space, -1, 0, 0)
    if whole <= room:
        return -1, 1, 0, len(layers), whole
    best = np.asarray((-1, 0, 0, 0, whole))
    rank, best_rank = np.empty(3, np.int64), np.empty(3, np.int64)
    first = g.axis_start[space.ops[-1]]
    for index in range(len(axes)):
        depth, axis = axes[index, 0], axes[index, 1]
        extent = g.axis_extent[first + axis]
        factor, cut, peak = _along(
            g, a, layers, space, axis, extent, whole, work, room, limit, policy
        )
        if factor == 0:
            continue
        rank[0], rank[1], rank[2] = cut, -factor, -depth
        if best[1] == 0 or before(best_rank, rank, key):
            best[0], best[1], best[2], best[3], best[4] = axis, factor, depth, cut, peak
            best_rank[:] = rank
    return best[0], best[1], best[2], best[3], best[4]


@borrowing
def before(first: Ints, second: Ints, key: Ints) -> bool:
    """Whether a rank is lower than another: equation 1, its keys in a given order."""
    for position in key:
        if first[position] != second[position]:
            return bool(first[position] < second[position])
    return False


@njit(cache=True)
def _along(
    g: GraphArrays,
    a: LayerArrays,
    layers: Ints,
    space: Workspace,
    axis: int,
    extent: int,
    whole: int,
    whole_work: int,
    room: int,
    limit: float,
    policy: int,
) -> tuple[int, int, int]:
    """The smallest factor along one axis with which the parts fit (0 for none), cuts and bytes.

    From the smallest whose parts fit by the printed estimate.
    """
    factor = max(-(-whole // max(room, 1)), 2)
    for _ in range(RETRIES + 1):
        factor = candidate_factor(factor, extent, policy)
        if factor == 0:
            break
        size = -(-extent // factor)
        start = min((factor // 2) * size, extent - size)
        peak, work, cut = cost(g, a, layers, space.ops, space, axis, start, start + size)
        if work * factor > limit * whole_work + factor:
            break
        if peak <= room:
            return factor, cut, peak
        factor += 1
    return 0, 0, 0


@borrowing
def candidate_factor(least: int, extent: int, policy: int) -> int:
    """The first factor to try from ``least`` on, 0 for none.

    The paper's are 1, 2, 4, 8, 9, 10, ...: below 8 only what spreads over 8 cores; it stops at the
    first that does not divide the extent.
    """
    for factor in range(least, extent + 1):
        divides = extent % factor == 0
        skipped = policy == 0 and (factor == 3 or 5 <= factor <= 7)  # noqa: PLR2004
        if not skipped and (divides or policy == 2):  # noqa: PLR2004  the code of ragged
            return factor
        if not skipped and policy == 0:
            return 0
    return 0


def sink(problem: Problem, layers: tuple[int, ...]) -> Operator:
    """The operator that makes a sub-graph's output."""
    return problem.graph.operators[problem.layers[layers[-1]].operators[-1]]


def split_axes(
    problem: Problem, layers: tuple[int, ...], dims: str = "all"
) -> tuple[tuple[int, int], ...]:
    """``(depth, axis)`` of every way to cut a sub-graph's output into contiguous parts, remembered.

    An operator with several outputs (a Split) may be cut only along an axis that all of them have.
    """
    key = ("axes", problem.layers[layers[-1]].operators[-1], dims)
    found = problem.memory.get(key)
    if not isinstance(found, tuple):
        found = _split_axes(problem, sink(problem, layers), dims)
        problem.memory[key] = found
    return found


DIMS: Final = ("all", "batch", "spatial", "channel")
"""Which output dimensions may be split, by code."""

_KINDS = len(DIMS)


class AxisTable(NamedTuple):
    """:func:`split_axes` of all layers' outputs, for compiled code.

    Attributes:
        start: rows of ``ways`` by code of :data:`DIMS` and layer, ``(codes * layers + 1,)``.
        ways: depth, axis and extent.
    """

    start: Ints
    ways: Ints


def axis_table(problem: Problem) -> AxisTable:
    """All ways to cut all layers' outputs, remembered."""
    found = problem.memory.get("axis table")
    if not isinstance(found, AxisTable):
        ways = [_ways(problem, layer.index, dims) for dims in DIMS for layer in problem.layers]
        start = np.concatenate(([0], np.cumsum([len(own) for own in ways]))).astype(np.int64)
        rows = np.asarray([row for own in ways for row in own], np.int64).reshape(-1, 3)
        found = problem.memory["axis table"] = AxisTable(start, rows)
    return found


@borrowing
def ways_of(table: AxisTable, dims: int, layer: int) -> range:
    """Rows of ways to cut a layer's output, along dimensions by code of :data:`DIMS`."""
    place = dims * ((len(table.start) - 1) // _KINDS) + layer
    return range(table.start[place], table.start[place + 1])


def _ways(problem: Problem, layer: int, dims: str) -> list[tuple[int, int, int]]:
    axes = sink(problem, (layer,)).axes
    return [(d, axis, axes[axis].extent) for d, axis in split_axes(problem, (layer,), dims)]


def _split_axes(problem: Problem, operator: Operator, dims: str) -> tuple[tuple[int, int], ...]:
    if operator.opaque or not operator.outputs:
        return ()
    order = problem.loop_order[operator.outputs[0]]
    found = []
    for depth, dim in enumerate(order):
        kind = "batch" if depth == 0 else "channel" if depth == len(order) - 1 else "spatial"
        axis = outer_axis(operator, 0, dim)
        wanted = dims in ("all", kind)
        if wanted and axis is not None and _splits_all_outputs(operator, axis):
            found.append((depth, axis))
    return tuple(found)


def _splits_all_outputs(operator: Operator, axis: int) -> bool:
    for output, access in enumerate(operator.output_maps):
        dims = [d for d, one in enumerate(access.dims) if any(a == axis for a, _ in one.terms)]
        if len(dims) != 1 or outer_axis(operator, output, dims[0]) != axis:
            return False
        if access.dims[dims[0]].offset:
            return False
    return True


@njit(cache=True)
def operators_of(a: LayerArrays, layers: Ints) -> Ints:
    """Operators of some layers, in order."""
    total = 0
    for layer in layers:
        total += a.op_start[layer + 1] - a.op_start[layer]
    ops = np.empty(total, np.int64)
    note_operators(a, layers, ops)
    return ops


@borrowing
def note_operators(a: LayerArrays, layers: Ints, ops: Ints) -> int:
    """Note the operators of layers, in order, where there is room; how many they are."""
    count = 0
    for layer in layers:
        for index in range(a.op_start[layer], a.op_start[layer + 1]):
            ops[count] = a.op[index]
            count += 1
    return count


@njit(cache=True)
def seed_outputs(
    g: GraphArrays, op: int, axis: int, start: int, stop: int, low: Ints, high: Ints, seen: Ints
) -> None:
    """Set the wanted regions of an operator's outputs to one part along an axis."""
    room = np.empty((4, MAX_AXES), np.int64)
    axis_low, axis_high = room[0], room[1]
    for index in range(g.axis_start[op + 1] - g.axis_start[op]):
        axis_low[index], axis_high[index] = 0, g.axis_extent[g.axis_start[op] + index]
    if axis >= 0:
        axis_low[axis], axis_high[axis] = start, stop
    seed_box(g, op, axis_low, axis_high, low, high, seen, room[2], room[3])


@borrowing
def seed_box(
    g: GraphArrays,
    op: int,
    axis_low: Ints,
    axis_high: Ints,
    low: Ints,
    high: Ints,
    seen: Ints,
    part_low: Ints,
    part_high: Ints,
) -> None:
    """Set the wanted regions of an operator's outputs to what a box of its domain makes.

    ``part_low`` and ``part_high`` are room.
    """
    for position in range(g.out_start[op], g.out_start[op + 1]):
        tensor = g.out_tensor[position]
        if read_region(g, g.out_slot[position], tensor, axis_low, axis_high, part_low, part_high):
            need(g, tensor, part_low, part_high, low, high, seen)


class Workspace(NamedTuple):
    """Arrays over the whole graph, allocated once and cleared where they were touched."""

    ops: Ints
    low: Ints
    high: Ints
    seen: Ints
    box_low: Ints
    box_high: Ints
    last: Ints
    made: Ints
    axes: Ints


@njit(cache=True)
def workspace(g: GraphArrays, a: LayerArrays, layers: Ints) -> Workspace:
    """Room to compute what parts of some layers need."""
    dims, tensors, axes = len(g.extent), len(g.element), len(g.axis_extent)
    return Workspace(
        operators_of(a, layers), np.empty(dims, np.int64), np.empty(dims, np.int64),
        np.zeros(tensors, np.int64), np.zeros(axes, np.int64), np.zeros(axes, np.int64),
        np.full(tensors, -1, np.int64), np.zeros(tensors, np.int64),
        np.empty((6, MAX_AXES), np.int64),
    )  # fmt: skip


@njit(cache=True)
def whole_workspace(g: GraphArrays, a: LayerArrays) -> Workspace:
    """Room for parts of any layers, one after another."""
    return workspace(g, a, np.arange(len(a.op_start) - 1))


@borrowing
def clear_seen(g: GraphArrays, ops: Ints, seen: Ints) -> None:
    """Forget which tensors some operators touched."""
    for op in ops:
        for position in range(g.in_start[op], g.in_start[op + 1]):
            seen[g.in_tensor[position]] = 0
        for position in range(g.out_start[op], g.out_start[op + 1]):
            seen[g.out_tensor[position]] = 0


@njit(cache=True)
def cost(
    g: GraphArrays,
    a: LayerArrays,
    layers: Ints,
    ops: Ints,
    space: Workspace,
    axis: int,
    start: int,
    stop: int,
) -> tuple[int, int, int]:
    """Footprint (bytes), work and operators cut of one part (the whole if ``axis`` is negative).

    ``ops`` are the layers' operators; ``space`` may be that of other layers of the graph.
    """
    low, high, seen = space.low, space.high, space.seen
    clear_seen(g, ops, seen)
    seed_outputs(g, ops[-1], axis, start, stop, low, high, seen)
    propagate_in(g, ops, low, high, seen, space.box_low, space.box_high, space.axes)
    work, cut = _work_and_cut(g, a, ops, space.box_low, space.box_high)
    return peak_in(g, a, layers, low, high, seen, space.last, space.made), work, cut


@borrowing
def _work_and_cut(
    g: GraphArrays, a: LayerArrays, ops: Ints, box_low: Ints, box_high: Ints
) -> tuple[int, int]:
    """Work of a part, and how many operators it does not have whole.

    A part of a recurrence goes through all its steps, and counts as the whole.
    """
    work, cut = 0, 0
    for op in ops:
        points = domain_points(g, op, box_low, box_high)
        total = 1
        for index in range(g.axis_start[op], g.axis_start[op + 1]):
            total *= g.axis_extent[index]
        work += (total if a.recurrent[op] and points else points) * a.work[op]
        cut += points < total
    return work, cut


@borrowing
def _external_bytes(
    g: GraphArrays,
    a: LayerArrays,
    layers: Ints,
    low: Ints,
    high: Ints,
    seen: Ints,
    last: Ints,
    made: Ints,
) -> int:
    """Bytes of what is read and not made; notes last readers and what is made inside."""
    live = 0
    for position in range(len(layers)):
        layer = layers[position]
        for tensor in a.out_tensor[a.out_start[layer] : a.out_start[layer + 1]]:
            made[tensor] = 1
        for tensor in a.in_tensor[a.in_start[layer] : a.in_start[layer + 1]]:
            if last[tensor] < 0 and not made[tensor] and seen[tensor]:
                live += region_bytes(g, tensor, low, high)
            last[tensor] = position
    return live


@njit(cache=True)
def peak_bytes(
    g: GraphArrays, a: LayerArrays, layers: Ints, low: Ints, high: Ints, seen: Ints
) -> int:
    """Most bytes live at once while the layers run in order, weights excluded.

    Inputs are there from the start and leave after their last reader; a layer that may write in
    place does so over an input that was made inside and dies with it.
    """
    last = np.full(len(g.element), -1, np.int64)
    made = np.zeros(len(g.element), np.int64)
    return peak_in(g, a, layers, low, high, seen, last, made)


@borrowing
def peak_in(
    g: GraphArrays,
    a: LayerArrays,
    layers: Ints,
    low: Ints,
    high: Ints,
    seen: Ints,
    last: Ints,
    made: Ints,
) -> int:
    """:func:`peak_bytes` with arrays to note last readers and what is made inside."""
    for layer in layers:
        for tensor in a.out_tensor[a.out_start[layer] : a.out_start[layer + 1]]:
            made[tensor] = 0
        for tensor in a.in_tensor[a.in_start[layer] : a.in_start[layer + 1]]:
            made[tensor], last[tensor] = 0, -1
    peak = live = _external_bytes(g, a, layers, low, high, seen, last, made)
    for position in range(len(layers)):
        layer = layers[position]
        produced, dying, reusable = 0, 0, 0
        for tensor in a.out_tensor[a.out_start[layer] : a.out_start[layer + 1]]:
            if seen[tensor]:
                produced += region_bytes(g, tensor, low, high)
        for tensor in a.in_tensor[a.in_start[layer] : a.in_start[layer + 1]]:
            if last[tensor] == position and seen[tensor]:
                size = region_bytes(g, tensor, low, high)
                dying += size
                if made[tensor] and a.in_place[layer] and size >= produced:
                    reusable = produced
        peak = max(peak, live + produced - reusable)
        live += produced - dying
    return peak
