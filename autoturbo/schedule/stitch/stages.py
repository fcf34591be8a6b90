"""Stages of a kernel: per layer of a part, one core's work and its traffic with other cores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from enum import IntEnum

import numpy as np

from autoturbo.caches import remembered
from autoturbo.compiled import borrowing, compiled
from autoturbo.graph.arrays import (
    GraphArrays,
    Ints,
    Regions,
    clear_seen,
    domain_points,
    narrow_axes,
    need,
    propagate_in,
    region_bytes,
)
from autoturbo.graph.operators import MAX_RANK
from autoturbo.schedule.context import LayerArrays, SchedulingContext
from autoturbo.schedule.partition.split import workspace
from autoturbo.schedule.place.bind import Binding
from autoturbo.schedule.work import (
    COLUMNS,
    COUNT,
    DEPTH,
    MATRIX,
    MOVE,
    NONE,
    ROLES,
    ROWS,
    STEP,
    VECTOR,
    WINDOW,
    Flags,
    Floats,
    WorkArrays,
    depth_of,
    shown_points,
)


class Stage(IntEnum):
    """Columns of a template's stage table: one row per layer, quantities of one core.

    ``COUNT`` products of ``ROWS`` x ``COLUMNS`` x ``DEPTH`` on the matrix engine; ``VECTOR`` and
    ``SPECIAL`` operations on the vector engine; ``MOVED`` bytes rearranged in LB; ``WEIGHTS`` bytes
    of weights that the cluster loads and ``CORE_WEIGHTS`` that one core keeps, ``CORES`` the cores
    that have a part of the layer; ``EXCHANGED`` bytes that one core gets from others; ``SEQUENCE``
    steps that go one after another (0 of layers without a recurrence), in each of which a core
    reads ``STEP_WEIGHTS`` bytes of its weights anew, and ``STATE`` bytes that in all steps together
    a core gets of what others made in the step before; ``READ`` and
    ``WRITTEN`` bytes of activations; ``STEPS`` the rows into which its tiles may be split; ``MACS``
    multiply-accumulates on the matrix engine.
    ``RUN_READ``, ``RUN_WRITTEN`` and ``RUN_WEIGHTS`` are the consecutive bytes that the cluster's
    part of its inputs, outputs and weights has in memory, over all tensors the bytes by the number
    of runs: activations lie in memory as their loops run, channels last, weights as in the file
    where they are not packed. A part of the samples is contiguous; a part of the rows, columns or
    channels is in runs.
    """

    COUNT = 0
    ROWS = 1
    COLUMNS = 2
    DEPTH = 3
    VECTOR = 4
    SPECIAL = 5
    MOVED = 6
    WEIGHTS = 7
    CORE_WEIGHTS = 8
    EXCHANGED = 9
    READ = 10
    WRITTEN = 11
    STEPS = 12
    MACS = 13
    RUN_READ = 14
    RUN_WRITTEN = 15
    RUN_WEIGHTS = 16
    CORES = 17
    SEQUENCE = 18
    STEP_WEIGHTS = 19
    STATE = 20


STAGE_COLUMNS = len(Stage)

PARTIAL_BYTES = 8
"""What a core finds in its part of a whole that is reduced: a least and a largest value, or a sum
and a count, of 32 bits."""


@borrowing
def _core_region(
    g: GraphArrays, tensor: int, core: int, part: Regions, table: Ints, out: Ints
) -> bool:
    """Compute the part of a tensor's region that a core has.

    Cores count row-major over the factors.

    Args:
        g: The graph.
        tensor: The tensor's number.
        core: The core.
        part: Regions of the part.
        table: Per tensor, the factors of its binding, 0 where it has none.
        out: Output: the first element along each dimension, and one past the last, ``(2, rank)``.

    Returns:
        False if the core has none; ``out`` says nothing then.
    """
    first, rank = g.dim_start[tensor], g.dim_start[tensor + 1] - g.dim_start[tensor]
    left = core
    for back in range(rank):
        dim = rank - 1 - back
        factor = max(table[tensor, dim], 1)
        place, left = left % factor, left // factor
        begin = part.low[first + dim]
        extent = part.high[first + dim] - begin
        size = -(-extent // factor)
        out[0, dim] = begin + min(place * size, extent)
        out[1, dim] = begin + min((place + 1) * size, extent)
        if out[1, dim] <= out[0, dim]:
            return False
    # What is left counts cores beyond those that have a part.
    return left == 0


@borrowing
def _foreign_bytes(
    g: GraphArrays, tensor: int, core: int, part: Regions, table: Ints, regions: Regions
) -> int:
    """Return the bytes of a tensor that a core needs from other cores; 0 if it is not bound.

    Args:
        g: The graph.
        tensor: The tensor's number.
        core: The core.
        part: Regions of the part, which the cores divide.
        table: Per tensor, the factors of its binding, 0 where it has none.
        regions: Regions that the core needs; ``room`` is overwritten.
    """
    if table[tensor, 0] == 0:
        return 0
    own = regions.room[:2]
    has = _core_region(g, tensor, core, part, table, own)
    needed, common, first = 1, 1, g.dim_start[tensor]
    for dim in range(g.dim_start[tensor + 1] - first):
        begin, end = regions.low[first + dim], regions.high[first + dim]
        needed *= max(end - begin, 0)
        common *= max(min(end, own[1, dim]) - max(begin, own[0, dim]), 0) if has else 0
    size: int = (needed - common) * g.element[tensor]
    return size


@borrowing
def _add_operator(
    w: WorkArrays, g: GraphArrays, op: int, regions: Regions, row: Floats, moved: int
) -> None:
    """Add one operator's work on one core to its layer's row.

    Args:
        w: Work of the graph's operators.
        g: The graph.
        op: The operator.
        regions: The core's part; ``room`` is overwritten.
        row: Row of the layer, a column per :class:`Stage`.
        moved: Bytes of the outputs that the core makes.
    """
    sizes = regions.room[0]
    sizes[:ROLES] = 1
    for axis in range(g.axis_start[op], g.axis_start[op + 1]):
        sizes[w.role[axis]] *= max(regions.box_high[axis] - regions.box_low[axis], 0)
    points = domain_points(g, op, regions)
    shown = shown_points(g, w, op, regions)
    if w.engine[op] == MATRIX:
        # Set, not added: a layer has one matrix operator at most.
        row[Stage.COUNT] = sizes[COUNT] * sizes[STEP] * w.macs[op]
        row[Stage.ROWS] = sizes[ROWS]
        row[Stage.COLUMNS] = sizes[COLUMNS]
        row[Stage.DEPTH] = depth_of(sizes[DEPTH], sizes[WINDOW], w.whole[op])
        row[Stage.MACS] += points * w.macs[op]
    elif w.engine[op] == VECTOR:
        row[Stage.VECTOR] += points * w.macs[op]
    row[Stage.VECTOR] += shown * w.vector[op] + points * w.per_point[op]
    row[Stage.SPECIAL] += shown * w.special[op]
    if w.engine[op] == MOVE:
        row[Stage.MOVED] += moved


@borrowing
def _add_recurrence(
    w: WorkArrays, g: GraphArrays, op: int, regions: Regions, share: float, row: Floats
) -> None:
    """Add the steps of a recurrence: the bytes that each rereads, the state that cores exchange.

    Args:
        w: Work of the graph's operators.
        g: The graph.
        op: The recurrence.
        regions: The core's part.
        share: The core's share of the points that cores divide (:func:`_narrow_spread`).
        row: Row of the layer, a column per :class:`Stage`.
    """
    for position in range(g.in_start[op], g.in_start[op + 1]):
        tensor, slot, by_step = g.in_tensor[position], g.in_slot[position], False
        for term in range(g.term_start[g.slot_dim[slot]], g.term_start[g.slot_dim[slot + 1]]):
            by_step = by_step or w.role[g.axis_start[op] + g.term_axis[term]] == STEP
        if by_step and g.constant[tensor] and regions.seen[tensor]:
            size = region_bytes(g, tensor, regions.low, regions.high)
            row[Stage.STEP_WEIGHTS] += size * share
    if 0.0 < share < 1.0:
        made = shown_points(g, w, op, regions) * g.element[g.out_tensor[g.out_start[op]]]
        row[Stage.STATE] += made * (1.0 / share - 1.0)
    steps = 1
    for axis in range(g.axis_start[op], g.axis_start[op + 1]):
        if w.role[axis] == STEP:
            steps *= max(regions.box_high[axis] - regions.box_low[axis], 0)
    row[Stage.SEQUENCE] = max(row[Stage.SEQUENCE], steps)


@borrowing
def _narrow_spread(g: GraphArrays, w: WorkArrays, op: int, regions: Regions) -> float:
    """Narrow the axes that cores divide to one core's part.

    Its part of the first wanted output determines its part of the axes.

    Args:
        g: The graph.
        w: Work of its operators.
        op: The operator.
        regions: Regions of the part; its axis intervals are narrowed, ``room`` is overwritten.

    Returns:
        The part's share of the points, 1 where cores divide nothing.
    """
    box_low, box_high = regions.box_low, regions.box_high
    own_low, own_high = regions.room[2], regions.room[3]
    first, end = g.axis_start[op], g.axis_start[op + 1]
    if w.spread[first:end].sum() == 0:
        return 1.0
    share = 1.0
    for position in range(g.out_start[op], g.out_start[op + 1]):
        tensor = g.out_tensor[position]
        if not regions.seen[tensor]:
            continue
        for axis in range(first, end):
            own_low[axis - first], own_high[axis - first] = box_low[axis], box_high[axis]
        slot, dim = g.out_slot[position], g.dim_start[tensor]
        narrow_axes(g, slot, regions.low, regions.high, dim, own_low, own_high)
        for axis in range(first, end):
            if w.spread[axis]:
                own = max(own_high[axis - first] - own_low[axis - first], 0)
                share *= own / max(box_high[axis] - box_low[axis], 1)
                box_low[axis], box_high[axis] = own_low[axis - first], own_high[axis - first]
        break
    return share


@borrowing
def _bytes(g: GraphArrays, tensors: Ints, regions: Regions) -> int:
    """Return the bytes of the regions of some tensors."""
    total = 0
    for tensor in tensors:
        if regions.seen[tensor]:
            total += region_bytes(g, tensor, regions.low, regions.high)
    return total


@borrowing
def _weight_bytes(g: GraphArrays, w: WorkArrays, op: int, made: int, regions: Regions) -> int:
    """Return the bytes of constants that an operator reads; a lookup counts only what it picks.

    Elements picked from constants that are kept narrow count as narrow too.

    Args:
        g: The graph.
        w: Work of its operators.
        op: The operator.
        made: Bytes of its outputs, the most that a lookup picks.
        regions: The regions that are read.
    """
    total, moves = 0, w.engine[op] == MOVE or w.engine[op] == NONE
    output = g.out_tensor[g.out_start[op]]
    for tensor in g.in_tensor[g.in_start[op] : g.in_start[op + 1]]:
        if g.constant[tensor] and regions.seen[tensor]:
            size, picked = region_bytes(g, tensor, regions.low, regions.high), made
            if g.divisor[tensor] > 1:
                picked = made * g.element[tensor] // (g.divisor[tensor] * max(g.element[output], 1))
            total += min(size, picked) if moves else size
    return total


@compiled
def _core_table(  # noqa: PLR0913  compiled: arrays by position
    g: GraphArrays,
    a: LayerArrays,
    w: WorkArrays,
    layers: Ints,
    cores: Ints,
    part: Regions,
    table: Ints,
    regions: Regions,
    foreign: Ints,
) -> Floats:
    """Return one row per layer, the work of one of its cores, ``(layers, STAGE_COLUMNS)``.

    Args:
        g: The graph.
        a: Layers of the graph.
        w: Work of the graph's operators.
        layers: Layers of the part.
        cores: Per layer, the core that is looked at.
        part: Regions of the part.
        table: Per tensor, the factors of its binding, 0 where it has none.
        regions: Any contents.
        foreign: Output: bytes that the core gets from others, by input, layer by layer.
    """
    rows, at = np.zeros((len(layers), STAGE_COLUMNS)), 0
    for index in range(len(layers)):
        layer, row, core = layers[index], rows[index], cores[index]
        ops = a.op[a.op_start[layer] : a.op_start[layer + 1]]
        outputs = a.out_tensor[a.out_start[layer] : a.out_start[layer + 1]]
        clear_seen(g, ops, regions.seen)
        own = regions.room[:2]
        for tensor in outputs:
            if part.seen[tensor] and _core_region(g, tensor, core, part, table, own):
                need(g, tensor, own[0], own[1], regions)
        propagate_in(g, ops, regions)
        for op in ops:
            makes = g.out_tensor[g.out_start[op] : g.out_start[op + 1]]
            made, whole = _bytes(g, makes, regions), _bytes(g, makes, part)
            share = _narrow_spread(g, w, op, regions)
            _add_operator(w, g, op, regions, row, made)
            row[Stage.WEIGHTS] += _weight_bytes(g, w, op, whole, part)
            row[Stage.CORE_WEIGHTS] += _weight_bytes(g, w, op, made, regions) * share
            if w.recurrent[op]:
                _add_recurrence(w, g, op, regions, share, row)
        for tensor in a.in_tensor[a.in_start[layer] : a.in_start[layer + 1]]:
            if regions.seen[tensor]:
                row[Stage.READ] += region_bytes(g, tensor, regions.low, regions.high)
                foreign[at] = _foreign_bytes(g, tensor, core, part, table, regions)
                row[Stage.EXCHANGED] += foreign[at]
            at += 1
        row[Stage.WRITTEN] += _bytes(g, outputs, regions)
    return rows


def stage_table(
    context: SchedulingContext,
    layers: tuple[int, ...],
    shape: Regions,
    extents: Mapping[int, Sequence[int]],
    held: Mapping[int, Binding],
    memory: PartMemory,
    limit: int = 0,
) -> tuple[Floats, tuple[tuple[int, ...], ...]]:
    """Return the stages of a part and, per layer, a core's bytes of each input from other cores.

    Args:
        context: The model on the target.
        layers: Layers of the part.
        shape: Regions of the part.
        extents: Extents of the tensors that it makes, along each dimension.
        held: Bindings of tensors.
        memory: Its parts of the tensors that it accesses.
        limit: The most cores that work on it, 0 for all.
    """
    part_layers = [context.layers[layer] for layer in layers]
    outputs = [layer.outputs[0] for layer in part_layers]
    table = np.zeros((len(context.graph.tensors), MAX_RANK), np.int64)
    for tensor, binding in held.items():
        table[tensor, : len(binding)] = binding
    spread = [spread_over(extents[tensor], held[tensor]) for tensor in outputs]
    foreign = np.zeros(sum(len(layer.inputs) for layer in part_layers), np.int64)
    rows = _core_table(
        context.arrays, context.layer_arrays, context.work, np.asarray(layers, np.int64),
        np.asarray([core for core, _ in spread], np.int64), shape, table,
        workspace(context).regions, foreign,
    )  # fmt: skip
    rows[:, Stage.CORES] = [cores for _, cores in spread]
    # cores reduce their parts of one whole, and one of them combines what they found
    sharing = [max(context.work.sharing[list(layer.operators)]) for layer in part_layers]
    sharing = [min(cores, limit or cores) for cores in sharing]
    shared = np.where(rows[:, Stage.MACS] > 0, 1, sharing)
    for column in (Stage.VECTOR, Stage.SPECIAL, Stage.MOVED, Stage.READ, Stage.EXCHANGED):
        rows[:, column] /= shared
    rows[:, Stage.VECTOR] += shared - 1
    rows[:, Stage.EXCHANGED] += PARTIAL_BYTES * (shared - 1)
    runs = [_runs(context, layer, memory) for layer in layers]
    rows[:, [Stage.RUN_READ, Stage.RUN_WRITTEN, Stage.RUN_WEIGHTS]] = runs
    element = np.maximum(context.arrays.element[outputs], 1)
    rows[:, Stage.STEPS] = np.maximum(rows[:, Stage.WRITTEN] // element, 1)
    sizes = iter(foreign.tolist())
    return rows, tuple(tuple(itertools.islice(sizes, len(x.inputs))) for x in part_layers)


def spread_over(extents: Sequence[int], binding: Binding) -> tuple[int, int]:
    """Return a core with a full part of a tensor, and the number of cores that have a part.

    The core is an inner one if possible: its halo has all sides. Parts of equal size may leave some
    cores without one.
    """
    core, cores = 0, 1
    for extent, parts in zip(extents, binding, strict=True):
        size = max(-(-extent // parts), 1)
        # Core numbers are row-major over the factors, as in ``_core_region``.
        core = core * parts + min(parts // 2, max(extent // size - 1, 0))
        cores *= max(-(-extent // size), 1)
    return core, cores


def _runs(context: SchedulingContext, layer: int, memory: PartMemory) -> list[float]:
    """Return the contiguous bytes in memory of a layer's inputs, outputs and weights.

    These are the bytes of their regions over the number of runs; of weights, per read.
    """
    kinds = [[memory[t] for t in tensors] for tensors in _touched(context, layer)]
    runs = [sum(math.ceil(size / run) for size, run in pairs) for pairs in kinds]
    # scales are part of the instructions: they may be no bytes
    return [
        sum(size for size, _ in pairs) / max(n, 1) for pairs, n in zip(kinds, runs, strict=True)
    ]


@remembered(1 << 14)
def _touched(context: SchedulingContext, layer: int) -> tuple[list[int], list[int], list[int]]:
    """Return the inputs, the outputs and, once per read, the weights of a layer."""
    record, tensors = context.layers[layer], context.graph.tensors
    read = [t for op in record.operators for t in context.graph.operators[op].inputs]
    inputs, outputs = (
        [t for t in kind if not tensors[t].constant] for kind in (record.inputs, record.outputs)
    )
    return inputs, outputs, [t for t in read if tensors[t].constant]


PartMemory = dict[int, tuple[int, int]]
"""By tensor, the bytes that a part has of it, and how many of them are consecutive in memory."""


def part_memory(context: SchedulingContext, layers: tuple[int, ...], shape: Regions) -> PartMemory:
    """Return the memory layout of the parts of tensors that some layers access."""
    touched = (t for layer in layers for kind in _touched(context, layer) for t in kind)
    tensors, arrays = list(dict.fromkeys(touched)), context.arrays
    dims = _memory_layout(context)[tensors]
    there = dims >= 0
    places, part, cut = dims[there], np.ones_like(dims), np.zeros(dims.shape, np.bool_)
    part[there] = shape.high[places] - shape.low[places]
    cut[there] = part[there] < arrays.extent[places]
    # up to the first dimension that is not there whole
    run: Flags = np.cumsum(cut, axis=1) - cut == 0
    element = np.where(shape.seen[tensors] != 0, arrays.element[tensors], 0)
    divisor = arrays.divisor[tensors]
    size: Ints = -(-element * np.maximum(part, 0).prod(axis=1) // divisor)
    runs = np.maximum(element * np.where(run, np.maximum(part, 1), 1).prod(axis=1) // divisor, 1)
    return dict(zip(tensors, zip(size.tolist(), runs.tolist(), strict=True), strict=True))


@remembered(1)
def _memory_layout(context: SchedulingContext) -> Ints:
    """Return the dimensions of each tensor from the innermost in memory; cached.

    Positions in the arrays over all dimensions, ``(tensors, rank)``, -1 after the last.
    """
    tensors, starts = context.graph.tensors, context.arrays.dim_start.tolist()
    layout = np.full((len(tensors), MAX_RANK), -1, np.int64)
    for index, (tensor, order) in enumerate(zip(tensors, context.loop_order, strict=True)):
        dims = range(len(tensor.shape)) if tensor.constant else order
        layout[index, : len(dims)] = [starts[index] + dim for dim in reversed(dims)]
    return layout
