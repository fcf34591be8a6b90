"""Buffer stitching: all layers of an instance in one kernel (GraphTurbo, OSDI '23, section 4.2).

A :class:`Template` is what all instances of a sub-graph with the same part shape and binding have
in common: per layer, the work of one core, the weights, and what comes from other cores. Where
buffers end up is decided later and differs from instance to instance.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import (
    GraphArrays,
    Ints,
    Regions,
    clear_seen,
    domain_points,
    need,
    propagate_in,
    region_bytes,
)
from autoturbo.graph.operators import MAX_RANK
from autoturbo.schedule.codegen.steps import narrow_spread
from autoturbo.schedule.codegen.work import (
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
    Floats,
    WorkArrays,
    depth_of,
    shown_points,
)
from autoturbo.schedule.memory.hazards import clearances
from autoturbo.schedule.partition.split import workspace
from autoturbo.schedule.place.bind import Binding, extents_in, layer_bindings
from autoturbo.schedule.place.instances import external_inputs
from autoturbo.schedule.problem import LayerArrays, Problem
from autoturbo.stores import remembered


class Stage(IntEnum):
    """Columns of a template's stage table: one row per layer, quantities of one core.

    ``COUNT`` products of ``ROWS`` x ``COLUMNS`` x ``DEPTH`` on the matrix engine; ``VECTOR`` and
    ``SPECIAL`` operations on the vector engine; ``MOVED`` bytes rearranged in LB; ``WEIGHTS`` bytes
    of weights that the cluster loads and ``CORE_WEIGHTS`` that one core keeps, ``CORES`` the cores
    that have a part of the layer; ``EXCHANGED`` bytes that one core gets from others; ``SEQUENCE``
    steps that go one after another (0 of layers without a recurrence), in each of which a core
    reads ``STEP_WEIGHTS`` bytes of its weights anew, and ``STATE`` bytes that in all steps together
    a core gets of what others made in the step before; ``READ`` and
    ``WRITTEN`` bytes of activations; ``STEPS`` the rows into which its tiles may be cut; ``MACS``
    multiply-accumulates on the matrix engine.
    ``RUN_READ``, ``RUN_WRITTEN`` and ``RUN_WEIGHTS`` are the consecutive bytes that the cluster's
    part of its inputs, outputs and weights has in memory, over all tensors the bytes by the number
    of runs: activations lie in memory as their loops run, channels last, weights as in the file. A
    part of the samples is contiguous; a part of the rows, columns or channels is in runs.
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


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """What instances of one sub-graph, part shape and binding share.

    Attributes:
        layers: layer indices in order.
        binding: of the output.
        stages: array (layers, :data:`STAGE_COLUMNS`).
        bindings: per layer, the binding of its output.
        inputs: external input tensors.
        wanted: per external input, the binding that the kernel wants.
        reads: per layer, ``(tensor, cluster bytes)`` of its activations.
        writes: per layer, ``(tensor, cluster bytes, bytes per core)`` of its outputs.
        input_bytes: per external input tensor, ``(cluster bytes, bytes per core)``.
        exchanged: per layer, of each activation that it reads, bytes that a core gets from others.
        digest: of all that its time depends on.
    """

    layers: tuple[int, ...]
    binding: Binding
    stages: Floats
    bindings: tuple[Binding, ...]
    inputs: tuple[int, ...]
    wanted: dict[int, Binding]
    reads: tuple[tuple[tuple[int, int], ...], ...]
    writes: tuple[tuple[tuple[int, int, int], ...], ...]
    input_bytes: dict[int, tuple[int, int]]
    exchanged: tuple[tuple[int, ...], ...]
    digest: bytes

    def renamed(self, layers: tuple[int, ...], tensors: Mapping[int, int]) -> Template:
        """Return the template of an isomorphic sub-graph, given its tensors by this one's."""
        return dataclasses.replace(
            self, layers=layers, inputs=tuple(tensors[t] for t in self.inputs),
            wanted={tensors[t]: binding for t, binding in self.wanted.items()},
            reads=tuple(tuple((tensors[t], size) for t, size in own) for own in self.reads),
            writes=tuple(tuple((tensors[t], a, b) for t, a, b in own) for own in self.writes),
            input_bytes={tensors[t]: sizes for t, sizes in self.input_bytes.items()},
        )  # fmt: skip


def stitch(problem: Problem, layers: tuple[int, ...], shape: Regions, binding: Binding) -> Template:
    """Return the template of a part, its output bound in some way."""
    extents = extents_in(problem, layers, shape)
    chosen, wanted = layer_bindings(problem, layers, extents, binding)
    inputs = external_inputs(problem, layers)
    bindings = tuple(chosen[layer] for layer in layers)
    held = {problem.layers[x].outputs[0]: b for x, b in zip(layers, bindings, strict=True)}
    stages, foreign = _stage_table(problem, layers, shape, held | wanted)
    own = [problem.layers[layer] for layer in layers]
    touched = {t for layer in own for t in (*layer.inputs, *layer.outputs)}
    sizes = _sizes(problem, shape, touched, _all_outputs(problem, layers, bindings) | wanted)
    digest = hashlib.blake2b(stages.tobytes(), digest_size=16)
    digest.update(_waits(problem, layers))
    return Template(
        layers, binding, stages, bindings, inputs, wanted,
        tuple(tuple((t, sizes[t][0]) for t in layer.inputs) for layer in own),
        tuple(tuple((t, *sizes[t]) for t in layer.outputs) for layer in own),
        {t: sizes[t] for t in inputs}, _by_layer(problem, layers, foreign), digest.digest(),
    )  # fmt: skip


@remembered(1 << 14)
def _waits(problem: Problem, layers: tuple[int, ...]) -> bytes:
    """Return text of what the layers of a kernel wait for, remembered."""
    return repr((local_edges(problem, layers), clearances(problem, layers))).encode()


def _all_outputs(
    problem: Problem, layers: Sequence[int], bindings: Sequence[Binding]
) -> dict[int, Binding]:
    """The binding of every output: further ones are bound like the first, dimension by dimension.

    What one has in more dimensions is not shared out.
    """
    found = {}
    for layer, binding in zip(layers, bindings, strict=True):
        for tensor in problem.layers[layer].outputs:
            rank = len(problem.graph.tensors[tensor].shape)
            found[tensor] = (*binding, *(1,) * rank)[:rank]
    return found


@remembered(1 << 14)
def local_edges(problem: Problem, layers: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return, per layer of a kernel, the positions of the layers that it waits for; remembered."""
    position = {layer: p for p, layer in enumerate(layers)}
    return [
        tuple(
            position[problem.producer[t]]
            for t in problem.layers[layer].inputs
            if problem.producer[t] in position
        )
        for layer in layers
    ]


def _sizes(
    problem: Problem, shape: Regions, tensors: Iterable[int], held: Mapping[int, Binding]
) -> dict[int, tuple[int, int]]:
    """Return the bytes of tensors in a part, whole and on the busiest core.

    Args:
        problem: the model on the target.
        shape: regions of the part.
        tensors: that it touches.
        held: bindings; what has none is spread evenly.
    """
    starts, cores, found = problem.arrays.dim_start, problem.target.cores, {}
    for tensor in tensors:
        dims = slice(starts[tensor], starts[tensor + 1])
        element = int(problem.arrays.element[tensor]) if shape.seen[tensor] else 0
        extents = [max(n, 0) for n in (shape.high[dims] - shape.low[dims]).tolist()]
        whole, binding = element * math.prod(extents), held.get(tensor)
        if binding is None:
            found[tensor] = whole, -(-whole // cores)
        else:
            parts = (-(-n // factor) for n, factor in zip(extents, binding, strict=True))
            found[tensor] = whole, element * math.prod(parts)
    return found


def _by_layer(problem: Problem, layers: Sequence[int], values: Ints) -> tuple[tuple[int, ...], ...]:
    """Values of all layers' inputs, end to end, layer by layer."""
    counts = [len(problem.layers[layer].inputs) for layer in layers]
    return tuple(tuple(own.tolist()) for own in np.split(values, np.cumsum(counts)[:-1]))


def _binding_table(problem: Problem, held: dict[int, Binding]) -> Ints:
    """Binding factors per tensor; row of zeros where a tensor has none."""
    table = np.zeros((len(problem.graph.tensors), MAX_RANK), np.int64)
    for tensor, binding in held.items():
        table[tensor, : len(binding)] = binding
    return table


class PartArrays(NamedTuple):
    """Regions of a part and how its tensors are bound.

    Attributes:
        low: over all dimensions of all tensors: first element needed, where ``seen``.
        high: one past the last.
        seen: per tensor, 1 if the part touches it.
        table: per tensor, the factors of its binding, 0 where it has none.
    """

    low: Ints
    high: Ints
    seen: Ints
    table: Ints


@borrowing
def _core_region(
    g: GraphArrays,
    tensor: int,
    core: int,
    part: PartArrays,
    out_low: Ints,
    out_high: Ints,
) -> bool:
    """The part of a tensor's region that a core has under the tensor's binding.

    Cores count row-major over the factors; False if the core has none.
    """
    first, rank = g.dim_start[tensor], g.dim_start[tensor + 1] - g.dim_start[tensor]
    left = core
    for back in range(rank):
        dim = rank - 1 - back
        factor = max(part.table[tensor, dim], 1)
        place, left = left % factor, left // factor
        begin = part.low[first + dim]
        extent = part.high[first + dim] - begin
        size = -(-extent // factor)
        out_low[dim] = begin + min(place * size, extent)
        out_high[dim] = begin + min((place + 1) * size, extent)
        if out_high[dim] <= out_low[dim]:
            return False
    return left == 0


@borrowing
def _foreign_bytes(
    g: GraphArrays, tensor: int, core: int, part: PartArrays, regions: Regions
) -> int:
    """Bytes of a tensor that a core needs and another core has; none if it is not bound."""
    if part.table[tensor, 0] == 0:
        return 0
    own_low, own_high = regions.room[0], regions.room[1]
    first, rank = g.dim_start[tensor], g.dim_start[tensor + 1] - g.dim_start[tensor]
    needed, common = 1, 1
    has = _core_region(g, tensor, core, part, own_low, own_high)
    for dim in range(rank):
        begin, end = regions.low[first + dim], regions.high[first + dim]
        needed *= max(end - begin, 0)
        common *= max(min(end, own_high[dim]) - max(begin, own_low[dim]), 0) if has else 0
    size: int = (needed - common) * g.element[tensor]
    return size


@borrowing
def _add_operator(
    w: WorkArrays, g: GraphArrays, op: int, regions: Regions, row: Floats, moved: int
) -> None:
    """Add one operator's work on one core to its layer's row."""
    sizes = regions.room[0]
    sizes[:ROLES] = 1
    for axis in range(g.axis_start[op], g.axis_start[op + 1]):
        sizes[w.role[axis]] *= max(regions.box_high[axis] - regions.box_low[axis], 0)
    points = domain_points(g, op, regions)
    shown = shown_points(g, w, op, regions)
    if w.engine[op] == MATRIX:
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
    """Add the steps of a recurrence: what each reads again, and the state that cores exchange."""
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
def _output_bytes(g: GraphArrays, op: int, low: Ints, high: Ints, seen: Ints) -> int:
    total = 0
    for position in range(g.out_start[op], g.out_start[op + 1]):
        if seen[g.out_tensor[position]]:
            total += region_bytes(g, g.out_tensor[position], low, high)
    return total


@borrowing
def _weight_bytes(g: GraphArrays, w: WorkArrays, op: int, low: Ints, high: Ints, seen: Ints) -> int:
    """Bytes of constants that an operator reads; one that only moves data reads what it writes."""
    total = 0
    for position in range(g.in_start[op], g.in_start[op + 1]):
        tensor = g.in_tensor[position]
        if g.constant[tensor] and seen[tensor]:
            size = region_bytes(g, tensor, low, high)
            if w.engine[op] == MOVE or w.engine[op] == NONE:
                size = min(size, _output_bytes(g, op, low, high, seen))
            total += size
    return total


@borrowing
def _add_reads(
    g: GraphArrays,
    reads: Ints,
    core: int,
    part: PartArrays,
    regions: Regions,
    row: Floats,
    foreign: Ints,
) -> None:
    """Add what a core reads to its layer's row, and note what other cores have of each tensor."""
    for position in range(len(reads)):
        tensor = reads[position]
        if regions.seen[tensor]:
            row[Stage.READ] += region_bytes(g, tensor, regions.low, regions.high)
            foreign[position] = _foreign_bytes(g, tensor, core, part, regions)
            row[Stage.EXCHANGED] += foreign[position]


@njit(cache=True)
def _core_table(
    g: GraphArrays,
    a: LayerArrays,
    w: WorkArrays,
    layers: Ints,
    cores: Ints,
    part: PartArrays,
    regions: Regions,
) -> tuple[Floats, Ints]:
    """Return one row per layer, the work of one of its cores, and what that gets from others.

    Args:
        g: the graph.
        a: its layers.
        w: its work.
        layers: of the part.
        cores: per layer, the core that is looked at.
        part: regions of the part, and how its tensors are bound.
        regions: any contents.

    Returns:
        ``(layers, STAGE_COLUMNS)``, and bytes by input, layer by layer.
    """
    inputs, at = 0, 0
    for layer in layers:
        inputs += a.in_start[layer + 1] - a.in_start[layer]
    rows, foreign = np.zeros((len(layers), STAGE_COLUMNS)), np.zeros(inputs, np.int64)
    low, high, seen = regions.low, regions.high, regions.seen
    own_low, own_high = regions.room[0], regions.room[1]
    for index in range(len(layers)):
        layer, row, core = layers[index], rows[index], cores[index]
        ops = a.op[a.op_start[layer] : a.op_start[layer + 1]]
        clear_seen(g, ops, seen)
        for position in range(a.out_start[layer], a.out_start[layer + 1]):
            tensor = a.out_tensor[position]
            if part.seen[tensor] and _core_region(g, tensor, core, part, own_low, own_high):
                need(g, tensor, own_low, own_high, regions)
        propagate_in(g, ops, regions)
        for op in ops:
            moved = _output_bytes(g, op, low, high, seen)
            share = narrow_spread(g, w, op, regions)
            _add_operator(w, g, op, regions, row, moved)
            row[Stage.WEIGHTS] += _weight_bytes(g, w, op, part.low, part.high, part.seen)
            row[Stage.CORE_WEIGHTS] += _weight_bytes(g, w, op, low, high, seen) * share
            if w.recurrent[op]:
                _add_recurrence(w, g, op, regions, share, row)
        reads = a.in_tensor[a.in_start[layer] : a.in_start[layer + 1]]
        _add_reads(g, reads, core, part, regions, row, foreign[at : at + len(reads)])
        at += len(reads)
        for position in range(a.out_start[layer], a.out_start[layer + 1]):
            if seen[a.out_tensor[position]]:
                row[Stage.WRITTEN] += region_bytes(g, a.out_tensor[position], low, high)
    return rows, foreign


def _stage_table(
    problem: Problem, layers: tuple[int, ...], shape: Regions, held: dict[int, Binding]
) -> tuple[Floats, Ints]:
    """Return the stages of a part, and what the busiest core gets of inputs from others.

    Args:
        problem: the model on the target.
        layers: of the part.
        shape: its regions.
        held: bindings of tensors.
    """
    outputs = [problem.layers[layer].outputs for layer in layers]
    table = _binding_table(problem, held)
    for first, *others in outputs:
        for tensor in others:  # what has no binding of its own is bound like the first
            table[tensor] = np.where(table[tensor] == 0, table[first], table[tensor])
    spread = [_spread(problem, shape, own[0], table[own[0]].tolist()) for own in outputs]
    rows, foreign = _core_table(
        problem.arrays, problem.layer_arrays, problem.work, np.asarray(layers, np.int64),
        np.asarray([core for core, _ in spread], np.int64),
        PartArrays(shape.low, shape.high, shape.seen, table), workspace(problem).regions,
    )  # fmt: skip
    rows[:, Stage.CORES] = [cores for _, cores in spread]
    sharing = [max(problem.work.sharing[list(problem.layers[x].operators)]) for x in layers]
    _share_out(rows, np.where(rows[:, Stage.MACS] > 0, 1, sharing))
    rows[:, [Stage.RUN_READ, Stage.RUN_WRITTEN, Stage.RUN_WEIGHTS]] = _runs(problem, layers, shape)
    element = np.maximum(problem.arrays.element[[own[0] for own in outputs]], 1)
    rows[:, Stage.STEPS] = np.maximum(rows[:, Stage.WRITTEN] // element, 1)
    return rows, foreign


def _spread(
    problem: Problem, shape: Regions, tensor: int, factors: Sequence[int]
) -> tuple[int, int]:
    """Return a core with a full part of a tensor, and the number of cores that have a part of it.

    The core is inside where there is one: its halo has all sides. Parts of equal size may leave
    some cores without.
    """
    start = problem.arrays.dim_start
    dims = slice(int(start[tensor]), int(start[tensor + 1]))
    core, cores = 0, 1
    extents = (shape.high[dims] - shape.low[dims]).tolist()
    for extent, factor in zip(extents, factors, strict=False):  # rows of factors are padded
        parts = max(factor, 1)
        size = max(-(-extent // parts), 1)
        core = core * parts + min(parts // 2, max(extent // size - 1, 0))
        cores *= max(-(-extent // size), 1)
    return core, cores


def _share_out(rows: Floats, cores: Ints) -> None:
    """Let cores reduce their parts of one whole; one of them combines what they found.

    Args:
        rows: of layers.
        cores: that share a layer out, 1 for none.
    """
    shared = cores > 1
    for column in (Stage.VECTOR, Stage.SPECIAL, Stage.MOVED, Stage.READ, Stage.EXCHANGED):
        rows[shared, column] /= cores[shared]
    rows[shared, Stage.VECTOR] += cores[shared] - 1
    rows[shared, Stage.EXCHANGED] += PARTIAL_BYTES * (cores[shared] - 1)


def _runs(problem: Problem, layers: tuple[int, ...], shape: Regions) -> Floats:
    """Return the consecutive bytes that a part's inputs, outputs and weights have in memory.

    Per layer and kind of tensor, bytes of the regions over the number of their runs, ``(layers,
    3)``; of weights each time that they are read.
    """
    tensors, ends = _tensors_in_memory(problem, layers)
    size, run = _regions(problem, tensors, shape)
    count = np.where(size > 0, np.ceil(size / run), 0)  # scales are part of the instructions
    total, runs = (np.diff(np.append(0, np.cumsum(own))[ends]) for own in (size, count))
    each: Floats = (total / np.maximum(runs, 1)).reshape(-1, 3)
    return each


@remembered(1 << 14)
def _tensors_in_memory(problem: Problem, layers: tuple[int, ...]) -> tuple[Ints, Ints]:
    """Return the inputs, the outputs and, each time that they are read, the weights of layers.

    Layer by layer, end to end, and where each of these groups begins and ends; remembered.
    """
    graph, groups = problem.graph, list[list[int]]()
    for layer in (problem.layers[index] for index in layers):
        read = [t for op in layer.operators for t in graph.operators[op].inputs]
        kinds = (layer.inputs, layer.outputs)
        groups += [[t for t in kind if not graph.tensors[t].constant] for kind in kinds]
        groups.append([t for t in read if graph.tensors[t].constant])
    tensors = np.asarray([t for group in groups for t in group], np.int64)
    return tensors, np.cumsum([0, *map(len, groups)])


def _regions(problem: Problem, tensors: Ints, shape: Regions) -> tuple[Ints, Ints]:
    """Return the bytes of tensors in a part, and how many of them are consecutive in memory."""
    arrays, dims = problem.arrays, _memory_layout(problem)[tensors]
    there = dims >= 0
    own, part, cut = dims[there], np.ones_like(dims), np.zeros(dims.shape, np.bool_)
    part[there] = shape.high[own] - shape.low[own]
    cut[there] = part[there] < arrays.extent[own]
    # up to the first dimension that is not there whole
    run: NDArray[np.bool_] = np.cumsum(cut, axis=1) - cut == 0
    element = np.where(shape.seen[tensors] != 0, arrays.element[tensors], 0)
    size: Ints = element * np.maximum(part, 0).prod(axis=1)
    return size, np.maximum(element * np.where(run, np.maximum(part, 1), 1).prod(axis=1), 1)


@remembered(1)
def _memory_layout(problem: Problem) -> Ints:
    """Return the dimensions of each tensor from the innermost in memory; remembered.

    Positions in the arrays over all dimensions, ``(tensors, rank)``, -1 after the last.
    """
    tensors, starts = problem.graph.tensors, problem.arrays.dim_start.tolist()
    found = np.full((len(tensors), MAX_RANK), -1, np.int64)
    for index, (tensor, order) in enumerate(zip(tensors, problem.loop_order, strict=True)):
        dims = range(len(tensor.shape)) if tensor.constant else order
        found[index, : len(dims)] = [starts[index] + dim for dim in reversed(dims)]
    return found
