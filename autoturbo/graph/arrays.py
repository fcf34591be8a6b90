"""The graph as flat arrays, and region propagation compiled on them.

:mod:`autoturbo.graph.domain` says what an access map means, one box at a time; here the same
arithmetic runs over all operators of a sub-graph for many parts at once. A property test holds the
two to each other.

Index conventions: a *slot* is one (operator, tensor) pair; slots of an operator's inputs are
contiguous, as are those of its outputs. Dimensions of all tensors lie end to end, and a region is a
pair of arrays ``low``, ``high`` over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoturbo.caches import remembered
from autoturbo.compiled import borrowing
from autoturbo.graph.domain import AxisKind
from autoturbo.graph.operators import MAX_AXES, Graph, Tensor, bytes_per_element, check_limits

Ints = NDArray[np.int64]


class GraphArrays(NamedTuple):
    """A graph for compiled code. All arrays are int64.

    ``dim_start[t]:dim_start[t+1]`` are the dimensions of tensor ``t``; ``axis_start``,
    ``in_start``, ``out_start`` likewise for an operator's axes, input slots and output slots;
    ``slot_dim[s]`` is the first entry of slot ``s`` in ``term_start``, ``offset``, ``whole``.
    Terms are sorted by falling magnitude of their coefficient. ``divisor[t]`` elements of tensor
    ``t`` take ``element[t]`` bytes: 1 for all but constants that are kept narrow.
    """

    dim_start: Ints
    extent: Ints
    element: Ints
    divisor: Ints
    constant: Ints
    axis_start: Ints
    axis_extent: Ints
    axis_parallel: Ints
    axis_computes: Ints
    in_start: Ints
    in_tensor: Ints
    in_slot: Ints
    out_start: Ints
    out_tensor: Ints
    out_slot: Ints
    slot_dim: Ints
    term_start: Ints
    offset: Ints
    whole: Ints
    term_axis: Ints
    term_step: Ints


@remembered(4)
def graph_arrays(graph: Graph, dtype: str, *, integers: bool = False) -> GraphArrays:
    """Return a graph as flat arrays, cached; element sizes are those of the compute type ``dtype``.

    Args:
        graph: The graph.
        dtype: The compute type.
        integers: Quantised operators are computed in int8, which some tensors take fewer bytes for.

    Raises:
        ModelError: Compiled code has no room for it, see :func:`check_limits`.
    """
    check_limits(graph)
    reads = [access for op in graph.operators for access in op.input_maps]
    maps = [*reads, *(access for op in graph.operators for access in op.output_maps)]
    dims = [dim for access in maps for dim in access.dims]
    # Outermost first: ``narrow_axes`` takes the terms as digits, the longest step leading.
    terms = [t for dim in dims for t in sorted(dim.terms, key=lambda term: -abs(term[1]))]
    axes = [axis for op in graph.operators for axis in op.axes]
    sizes = [_element(t, dtype, integers=integers) for t in graph.tensors]
    return GraphArrays(
        dim_start=_starts([len(t.shape) for t in graph.tensors]),
        extent=_ints([e for t in graph.tensors for e in t.shape]),
        element=_ints([size for size, _ in sizes]),
        divisor=_ints([divisor for _, divisor in sizes]),
        constant=_ints([int(t.constant) for t in graph.tensors]),
        axis_start=_starts([len(op.axes) for op in graph.operators]),
        axis_extent=_ints([axis.extent for axis in axes]),
        axis_parallel=_ints([int(axis.kind is AxisKind.PARALLEL) for axis in axes]),
        axis_computes=_ints([int(axis.kind is not AxisKind.GAP) for axis in axes]),
        in_start=_starts([len(op.inputs) for op in graph.operators]),
        in_tensor=_ints([t for op in graph.operators for t in op.inputs]),
        in_slot=_ints(range(len(reads))),
        out_start=_starts([len(op.outputs) for op in graph.operators]),
        out_tensor=_ints([t for op in graph.operators for t in op.outputs]),
        out_slot=_ints(range(len(reads), len(maps))),
        slot_dim=_starts([len(access.dims) for access in maps]),
        term_start=_starts([len(dim.terms) for dim in dims]),
        offset=_ints([dim.offset for dim in dims]),
        whole=_ints([int(dim.whole) for dim in dims]),
        term_axis=_ints([axis for axis, _ in terms]),
        term_step=_ints([step for _, step in terms]),
    )


def _element(tensor: Tensor, dtype: str, *, integers: bool) -> tuple[int, int]:
    """Return the element size as a fraction; narrow constants have a denominator above 1."""
    if integers and tensor.integer_bytes is not None:
        return tensor.integer_bytes, 1
    size = bytes_per_element(tensor, dtype)
    # A denominator above 1 marks what is kept narrow, also where a byte holds one element.
    several = 2 if tensor.stored and size.denominator == 1 else 1
    return size.numerator * several, size.denominator * several


def _ints(values: Sequence[int]) -> Ints:
    return np.asarray(values, dtype=np.int64)


def _starts(lengths: list[int]) -> Ints:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int64)


@borrowing
def narrow_axes(
    g: GraphArrays,
    slot: int,
    region_low: Ints,
    region_high: Ints,
    first: int,
    low: Ints,
    high: Ints,
) -> None:
    """Narrow axis intervals ``low``, ``high`` to those that may reach a tensor region.

    ``region_low[first:]`` is the region of the slot's tensor. Same arithmetic as
    :func:`autoturbo.graph.domain.axes_of`.
    """
    for entry in range(g.slot_dim[slot], g.slot_dim[slot + 1]):
        begin, end = g.term_start[entry], g.term_start[entry + 1]
        if g.whole[entry] or begin == end:
            continue
        dim = first + entry - g.slot_dim[slot]
        least = region_low[dim] - g.offset[entry]
        most = region_high[dim] - 1 - g.offset[entry]
        for term in range(begin, end):
            rest_low, rest_high = 0, 0
            for inner in range(term + 1, end):
                a = low[g.term_axis[inner]] * g.term_step[inner]
                b = (high[g.term_axis[inner]] - 1) * g.term_step[inner]
                rest_low += min(a, b)
                rest_high += max(a, b)
            axis, step = g.term_axis[term], g.term_step[term]
            lowest, highest = least - rest_high, most - rest_low
            if step < 0:
                lowest, highest, step = -highest, -lowest, -step
            start = max(low[axis], -((-lowest) // step))
            last = min(high[axis] - 1, highest // step)
            low[axis], high[axis] = start, last + 1
            # Inner terms are bounded only where the outer one stands still.
            if start != last:
                break
            least -= start * g.term_step[term]
            most -= start * g.term_step[term]


@borrowing
def read_region(
    g: GraphArrays, slot: int, tensor: int, low: Ints, high: Ints, out_low: Ints, out_high: Ints
) -> bool:
    """Compute the region of ``tensor`` that axis intervals touch; return False if it is empty."""
    first = g.dim_start[tensor]
    filled = True
    for entry in range(g.slot_dim[slot], g.slot_dim[slot + 1]):
        position = entry - g.slot_dim[slot]
        extent = g.extent[first + position]
        if g.whole[entry]:
            out_low[position], out_high[position] = 0, extent
        else:
            least = most = g.offset[entry]
            for term in range(g.term_start[entry], g.term_start[entry + 1]):
                a = low[g.term_axis[term]] * g.term_step[term]
                b = (high[g.term_axis[term]] - 1) * g.term_step[term]
                least += min(a, b)
                most += max(a, b)
            out_low[position], out_high[position] = max(least, 0), min(most + 1, extent)
        filled = filled and out_high[position] > out_low[position]
    return filled


class Regions(NamedTuple):
    """Regions of all tensors and axis intervals of all operators, in arrays over the whole graph.

    Attributes:
        low: Over all dimensions of all tensors: first element needed, where ``seen``.
        high: One past the last.
        seen: Per tensor, 1 if the operators touch it.
        box_low: Over all axes: first step of each operator's loops; none where it is not needed.
        box_high: One past the last.
        room: Scratch space of any contents, ``(6, MAX_AXES)``.
    """

    low: Ints
    high: Ints
    seen: Ints
    box_low: Ints
    box_high: Ints
    room: Ints

    @staticmethod
    def of(g: GraphArrays) -> Regions:
        """Return empty regions for every tensor."""
        dims, tensors, axes = len(g.extent), len(g.element), len(g.axis_extent)
        sizes = (dims, dims, tensors, axes, axes, (6, MAX_AXES))
        return Regions(*(np.zeros(size, np.int64) for size in sizes))


@borrowing
def clear_seen(g: GraphArrays, ops: Ints, seen: Ints) -> None:
    """Clear the marks of the tensors that some operators touched."""
    for op in ops:
        for position in range(g.in_start[op], g.in_start[op + 1]):
            seen[g.in_tensor[position]] = 0
        for position in range(g.out_start[op], g.out_start[op + 1]):
            seen[g.out_tensor[position]] = 0


@borrowing
def need(g: GraphArrays, tensor: int, add_low: Ints, add_high: Ints, regions: Regions) -> None:
    """Grow the needed region of a tensor to the hull with another region."""
    low, high = regions.low, regions.high
    first, rank = g.dim_start[tensor], g.dim_start[tensor + 1] - g.dim_start[tensor]
    for position in range(rank):
        dim = first + position
        if regions.seen[tensor]:
            low[dim] = min(low[dim], add_low[position])
            high[dim] = max(high[dim], add_high[position])
        else:
            low[dim], high[dim] = add_low[position], add_high[position]
    regions.seen[tensor] = 1


@borrowing
def operator_axes(g: GraphArrays, op: int, regions: Regions) -> bool:
    """Compute an operator's axis intervals from the needed regions of its outputs.

    The first two rows of ``regions.room`` are set to them, begin and end per axis.

    Returns:
        False where nothing of the operator is needed; the rows say nothing then.
    """
    axis_low, axis_high = regions.room[0], regions.room[1]
    one_low, one_high = regions.room[4], regions.room[5]
    count = g.axis_start[op + 1] - g.axis_start[op]
    wanted = False
    for position in range(g.out_start[op], g.out_start[op + 1]):
        tensor = g.out_tensor[position]
        if not regions.seen[tensor]:
            continue
        for axis in range(count):
            one_low[axis], one_high[axis] = 0, g.axis_extent[g.axis_start[op] + axis]
        first, slot = g.dim_start[tensor], g.out_slot[position]
        narrow_axes(g, slot, regions.low, regions.high, first, one_low, one_high)
        for axis in range(count):
            axis_low[axis] = min(axis_low[axis], one_low[axis]) if wanted else one_low[axis]
            axis_high[axis] = max(axis_high[axis], one_high[axis]) if wanted else one_high[axis]
        wanted = True
    for axis in range(count):
        if not g.axis_parallel[g.axis_start[op] + axis]:
            # Sums and whole dimensions run over all of their axis, however little is wanted.
            axis_low[axis], axis_high[axis] = 0, g.axis_extent[g.axis_start[op] + axis]
    return wanted


@borrowing
def seed_in(g: GraphArrays, op: int, axes: Ints, bounds: Ints, regions: Regions) -> None:
    """Set the wanted regions of an operator's outputs to those that a box of its domain makes.

    ``axes`` are those that the box restricts, to ``bounds``.
    """
    room = regions.room
    axis_low, axis_high, part_low, part_high = room[0], room[1], room[2], room[3]
    for index in range(g.axis_start[op + 1] - g.axis_start[op]):
        axis_low[index], axis_high[index] = 0, g.axis_extent[g.axis_start[op] + index]
    for index in range(len(axes)):
        axis_low[axes[index]], axis_high[axes[index]] = bounds[index, 0], bounds[index, 1]
    for position in range(g.out_start[op], g.out_start[op + 1]):
        tensor = g.out_tensor[position]
        if read_region(g, g.out_slot[position], tensor, axis_low, axis_high, part_low, part_high):
            need(g, tensor, part_low, part_high, regions)


@borrowing
def propagate_in(g: GraphArrays, ops: Ints, regions: Regions) -> None:
    """Compute the regions that a sub-graph needs, from its outputs back to its inputs.

    Args:
        g: The graph.
        ops: Operators of the sub-graph in topological order.
        regions: The regions wanted of the sub-graph's outputs on entry; of every tensor that it
            touches, and the axis intervals of each operator, on return.
    """
    axis_low, axis_high = regions.room[0], regions.room[1]
    part_low, part_high = regions.room[2], regions.room[3]
    # Back through the operators, so that all readers of a tensor have said what they need of it.
    for index in range(len(ops) - 1, -1, -1):
        op = ops[index]
        start, end = g.axis_start[op], g.axis_start[op + 1]
        wanted = operator_axes(g, op, regions)
        for axis in range(start, end):
            regions.box_low[axis] = axis_low[axis - start] if wanted else 0
            regions.box_high[axis] = axis_high[axis - start] if wanted else 0
        if not wanted:
            continue
        for position in range(g.in_start[op], g.in_start[op + 1]):
            tensor = g.in_tensor[position]
            slot = g.in_slot[position]
            if read_region(g, slot, tensor, axis_low, axis_high, part_low, part_high):
                need(g, tensor, part_low, part_high, regions)


@borrowing
def region_bytes(g: GraphArrays, tensor: int, low: Ints, high: Ints) -> int:
    """Return the bytes of a tensor's region on the device."""
    size: int = g.element[tensor]
    for dim in range(g.dim_start[tensor], g.dim_start[tensor + 1]):
        size *= max(high[dim] - low[dim], 0)
    size = -(-size // g.divisor[tensor])
    return size  # noqa: RET504 - typed above


def whole_bytes(
    g: GraphArrays, elements: Sequence[int], tensors: Sequence[int] | None = None
) -> Ints:
    """Return the bytes of the given element counts, per tensor; of all tensors for None."""
    chosen = slice(None) if tensors is None else np.asarray(tensors, np.int64)
    return -(-np.asarray(elements, np.int64) * g.element[chosen] // g.divisor[chosen])


@borrowing
def domain_points(g: GraphArrays, op: int, regions: Regions) -> int:
    """Return the number of points computed inside an operator's axis intervals."""
    points = 1
    for axis in range(g.axis_start[op], g.axis_start[op + 1]):
        if g.axis_computes[axis]:
            points *= max(regions.box_high[axis] - regions.box_low[axis], 0)
    return points
