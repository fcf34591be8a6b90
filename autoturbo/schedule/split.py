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
- ``sizeof(LB)`` is the data share of all cores of a cluster; the 64 KB of equation 2 cannot hold
  one image of ResNet-50's first stage.

What is kept although it is greedy: the first factor that fits is dropped, with its dimension, if it
does not divide (33 parts of 4096 positions, where 64 would do). ``factor_policy`` goes on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numba import njit

from autoturbo.graph.arrays import (
    MAX_AXES,
    GraphArrays,
    Ints,
    domain_points,
    need,
    propagate,
    read_region,
    region_bytes,
)
from autoturbo.graph.operators import Operator
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.schedule.problem import LayerArrays, Problem, outer_axis

UNFIT = math.inf
"""Factor of a sub-graph that no split makes fit."""

DEFAULT_RECOMPUTE_LIMIT = 1.25
"""Most repeated work by default: what a 3x3 halo costs on parts of eight rows."""

_RETRIES = 6
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
    """

    axis: int
    factor: float
    depth: int
    operators: int
    footprint: int

    @property
    def instances(self) -> int:
        """Number of instances: 1 where nothing fits."""
        return 1 if math.isinf(self.factor) else int(self.factor)


def best_split(problem: Problem, layers: tuple[int, ...], rules: SplitRules) -> Split:
    """Algorithm 1 and equation 1 for the sub-graph of the given layers, remembered."""
    key = ("split", layers, rules)
    found = problem.memory.get(key)
    if not isinstance(found, Split):
        found = _best_split(problem, layers, rules)
        problem.memory[key] = found
    return found


def _best_split(problem: Problem, layers: tuple[int, ...], rules: SplitRules) -> Split:
    room = int(problem.cluster_lb_bytes * rules.lb_fill)
    whole = part_cost(problem, layers, -1, 0, 0)
    if whole[0] <= room:
        return Split(-1, 1, 0, len(layers), whole[0])
    found = [
        split
        for depth, axis in split_axes(problem, layers, rules.dims)
        if (split := _along(problem, layers, axis, depth, rules, room, whole)) is not None
    ]
    if not found:
        return Split(-1, UNFIT, 0, 0, whole[0])
    return max(found, key=lambda split: _rank(split, rules.key))


def _rank(split: Split, key: str) -> tuple[float, ...]:
    ranks = {"o": split.operators, "f": -split.factor, "d": -split.depth}
    return tuple(ranks[letter] for letter in key)


def _along(
    problem: Problem,
    layers: tuple[int, ...],
    axis: int,
    depth: int,
    rules: SplitRules,
    room: int,
    whole: tuple[int, int, int],
) -> Split | None:
    """The smallest factor along one axis with which the parts fit."""
    extent = sink(problem, layers).axes[axis].extent
    factors = _factors(extent, rules.policy, whole[0], room)
    for factor in itertools.islice(factors, _RETRIES + 1):
        size = -(-extent // factor)
        start = min((factor // 2) * size, extent - size)
        peak, work, cut = part_cost(problem, layers, axis, start, start + size)
        if work * factor > rules.recompute_limit * whole[1] + factor:
            return None
        if peak <= room:
            return Split(axis, factor, depth, cut, peak)
    return None


def _factors(extent: int, policy: str, peak: int, room: int) -> Iterator[int]:
    """Factors from the smallest whose parts fit by the printed estimate."""
    first = max(-(-peak // max(room, 1)), 2)
    for factor in range(first, extent + 1):
        divides = extent % factor == 0
        if policy == "published" and factor in _SKIPPED:
            continue
        if policy == "published" and not divides:
            return
        if divides or policy == "ragged":
            yield factor


_SKIPPED = (3, 5, 6, 7)
"""The paper's candidates are 1, 2, 4, 8, 9, 10, ...: below 8 only what spreads over 8 cores."""


def sink(problem: Problem, layers: tuple[int, ...]) -> Operator:
    """The operator that makes a sub-graph's output."""
    return problem.graph.operators[problem.layers[layers[-1]].operators[-1]]


def split_axes(
    problem: Problem, layers: tuple[int, ...], dims: str = "all"
) -> tuple[tuple[int, int], ...]:
    """``(depth, axis)`` of every way to cut a sub-graph's output into contiguous parts.

    An operator with several outputs (a Split) may be cut only along an axis that all of them have.
    """
    operator = sink(problem, layers)
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


def part_cost(
    problem: Problem, layers: tuple[int, ...], axis: int, start: int, stop: int
) -> tuple[int, int, int]:
    """Footprint (bytes), work and operators cut of one part of a sub-graph.

    Args:
        problem: where it comes from.
        layers: the sub-graph.
        axis: axis of its last operator that is cut, -1 for the whole.
        start: first step of the part along the axis.
        stop: one past its last step.
    """
    indices = np.asarray(layers, dtype=np.int64)
    peak, work, cut = _part_cost(problem.arrays, problem.layer_arrays, indices, axis, start, stop)
    return int(peak), int(work), int(cut)


@njit(cache=True)
def operators_of(a: LayerArrays, layers: Ints) -> Ints:
    """Operators of some layers, in order."""
    total = 0
    for layer in layers:
        total += a.op_start[layer + 1] - a.op_start[layer]
    ops = np.empty(total, np.int64)
    at = 0
    for layer in layers:
        for index in range(a.op_start[layer], a.op_start[layer + 1]):
            ops[at] = a.op[index]
            at += 1
    return ops


@njit(cache=True)
def seed_outputs(
    g: GraphArrays, op: int, axis: int, start: int, stop: int, low: Ints, high: Ints, seen: Ints
) -> None:
    """Set the wanted regions of an operator's outputs to one part along an axis."""
    axis_low, axis_high = np.empty(MAX_AXES, np.int64), np.empty(MAX_AXES, np.int64)
    part_low, part_high = np.empty(MAX_AXES, np.int64), np.empty(MAX_AXES, np.int64)
    for index in range(g.axis_start[op + 1] - g.axis_start[op]):
        axis_low[index], axis_high[index] = 0, g.axis_extent[g.axis_start[op] + index]
    if axis >= 0:
        axis_low[axis], axis_high[axis] = start, stop
    for position in range(g.out_start[op], g.out_start[op + 1]):
        tensor = g.out_tensor[position]
        if read_region(g, g.out_slot[position], tensor, axis_low, axis_high, part_low, part_high):
            need(g, tensor, part_low, part_high, low, high, seen)


@njit(cache=True)
def _part_cost(
    g: GraphArrays, a: LayerArrays, layers: Ints, axis: int, start: int, stop: int
) -> tuple[int, int, int]:
    ops = operators_of(a, layers)
    low, high = np.empty(len(g.extent), np.int64), np.empty(len(g.extent), np.int64)
    seen = np.zeros(len(g.element), np.int64)
    box_low, box_high = (
        np.zeros(len(g.axis_extent), np.int64),
        np.zeros(len(g.axis_extent), np.int64),
    )
    seed_outputs(g, ops[-1], axis, start, stop, low, high, seen)
    propagate(g, ops, low, high, seen, box_low, box_high)
    work, cut = 0, 0
    for op in ops:
        points = domain_points(g, op, box_low, box_high)
        work += points * a.work[op]
        total = 1
        for index in range(g.axis_start[op], g.axis_start[op + 1]):
            total *= g.axis_extent[index]
        cut += points < total
    return peak_bytes(g, a, layers, low, high, seen), work, cut


@njit(cache=True)
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

    Inputs are there from the start and leave after their last reader; an elementwise layer writes
    over an input that was made inside and dies with it.
    """
    last = np.full(len(g.element), -1, np.int64)
    made = np.zeros(len(g.element), np.int64)
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
