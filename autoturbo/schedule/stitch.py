"""Buffer stitching: all layers of an instance in one kernel (GraphTurbo, OSDI '23, section 4.2).

A :class:`Template` is what all instances of a sub-graph with the same part shape and binding have
in common: per layer, the work of one core, the weights, and what comes from other cores. Where
buffers end up is decided later and differs from instance to instance.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numba import njit

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import (
    GraphArrays,
    Ints,
    domain_points,
    need,
    propagate_in,
    region_bytes,
)
from autoturbo.graph.operators import MAX_AXES, MAX_RANK
from autoturbo.schedule.bind import Binding, extents_in, layer_bindings
from autoturbo.schedule.hazards import clearances
from autoturbo.schedule.instances import PartShape, external_inputs
from autoturbo.schedule.problem import LayerArrays, Problem
from autoturbo.schedule.split import clear_seen
from autoturbo.schedule.steps import by_step, narrow_spread, steps_of
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


def stitch(
    problem: Problem, layers: tuple[int, ...], shape: PartShape, binding: Binding
) -> Template:
    """The template of a part, remembered by sub-graph, extents and binding."""
    extents = extents_in(problem, layers, shape)
    key = ("stitch", layers, binding, _lengths_digest(shape))
    found = problem.books.get(key)
    if not isinstance(found, Template):
        found = _stitch(problem, layers, shape, binding, extents)
        problem.books[key] = found
    return found


def _stitch(
    problem: Problem,
    layers: tuple[int, ...],
    shape: PartShape,
    binding: Binding,
    extents: dict[int, list[int]],
) -> Template:
    chosen, wanted = layer_bindings(problem, layers, extents, binding)
    inputs = external_inputs(problem, layers)
    bindings = tuple(chosen[layer] for layer in layers)
    held = {problem.layers[x].outputs[0]: b for x, b in zip(layers, bindings, strict=True)}
    table = _binding_table(problem, held | wanted)
    stages, foreign = _stage_table(
        problem.arrays, problem.layer_arrays, problem.work, memory_layout(problem),
        np.asarray(layers, np.int64), shape.low, shape.high, shape.seen, table,
    )  # fmt: skip
    sizes = _Sizes(problem, shape, _all_outputs(problem, layers, bindings) | wanted)
    digest = hashlib.blake2b(stages.tobytes(), digest_size=16)
    waits = _local_edges(problem, layers), clearances(problem, layers)
    digest.update(repr(waits).encode())
    return Template(
        layers, binding, stages, bindings, inputs, wanted,
        tuple(_reads(problem, layer, sizes) for layer in layers),
        tuple(_writes(problem, layer, sizes) for layer in layers),
        {t: (sizes.cluster(t), sizes.core(t)) for t in inputs},
        _by_layer(problem, layers, foreign), digest.digest(),
    )  # fmt: skip


def _lengths_digest(shape: PartShape) -> bytes:
    """Return 16 bytes that stand for the lengths of all regions of a part.

    Most tensors of a model are none of the part's: the lengths themselves, kept for every part,
    would take memory that grows with the square of the model.
    """
    lengths = shape.high - shape.low
    touched = np.flatnonzero(lengths)
    digest = hashlib.blake2b(touched.tobytes(), digest_size=16)
    digest.update(lengths[touched].tobytes())
    return digest.digest()


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


def _local_edges(problem: Problem, layers: Sequence[int]) -> list[tuple[int, ...]]:
    """Per layer, the positions of the layers of the kernel that it waits for."""
    position = {layer: p for p, layer in enumerate(layers)}
    return [
        tuple(
            position[problem.producer[t]]
            for t in problem.layers[layer].inputs
            if problem.producer[t] in position
        )
        for layer in layers
    ]


def local_edges(problem: Problem, layers: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Per layer of a kernel, the positions of the layers that it waits for, remembered."""
    key = ("edges", layers)
    found = problem.books.get(key)
    if not isinstance(found, list):
        found = _local_edges(problem, layers)
        problem.books[key] = found
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Sizes:
    """Bytes of tensors in a part, whole and per core."""

    problem: Problem
    shape: PartShape
    held: dict[int, Binding]

    def _extents(self, tensor: int) -> Ints:
        start = self.problem.arrays.dim_start
        part = slice(int(start[tensor]), int(start[tensor + 1]))
        lengths: Ints = np.maximum(self.shape.high[part] - self.shape.low[part], 0)
        return lengths

    def cluster(self, tensor: int) -> int:
        """Bytes of the part of a tensor."""
        if not self.shape.seen[tensor]:
            return 0
        return int(self._extents(tensor).prod()) * int(self.problem.arrays.element[tensor])

    def core(self, tensor: int) -> int:
        """Bytes that the busiest core keeps."""
        binding = self.held.get(tensor)
        if binding is None or not self.shape.seen[tensor]:
            return -(-self.cluster(tensor) // self.problem.target.cores)
        parts = -(-self._extents(tensor) // np.asarray(binding, np.int64))
        return int(parts.prod()) * int(self.problem.arrays.element[tensor])


def memory_layout(problem: Problem) -> Ints:
    """Dimensions of all tensors, end to end, from the outermost in memory; remembered."""
    found = problem.memory.get("layout")
    if not isinstance(found, np.ndarray):
        tensors = zip(problem.graph.tensors, problem.loop_order, strict=True)
        orders = [range(len(t.shape)) if t.constant else order for t, order in tensors]
        found = np.asarray([dim for order in orders for dim in order], np.int64)
        problem.memory["layout"] = found
    return found


def _by_layer(problem: Problem, layers: Sequence[int], values: Ints) -> tuple[tuple[int, ...], ...]:
    """Values of all layers' inputs, end to end, layer by layer."""
    counts = [len(problem.layers[layer].inputs) for layer in layers]
    return tuple(tuple(own.tolist()) for own in np.split(values, np.cumsum(counts)[:-1]))


def _reads(problem: Problem, layer: int, sizes: _Sizes) -> tuple[tuple[int, int], ...]:
    return tuple((t, sizes.cluster(t)) for t in problem.layers[layer].inputs)


def _writes(problem: Problem, layer: int, sizes: _Sizes) -> tuple[tuple[int, int, int], ...]:
    outputs = problem.layers[layer].outputs
    return tuple((t, sizes.cluster(t), sizes.core(t)) for t in outputs)


def _binding_table(problem: Problem, held: dict[int, Binding]) -> Ints:
    """Binding factors per tensor; row of zeros where a tensor has none."""
    table = np.zeros((len(problem.graph.tensors), MAX_RANK), np.int64)
    for tensor, binding in held.items():
        table[tensor, : len(binding)] = binding
    return table


@borrowing
def _core_region(
    g: GraphArrays,
    tensor: int,
    core: int,
    table: Ints,
    low: Ints,
    high: Ints,
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
        factor = max(table[tensor, dim], 1)
        place, left = left % factor, left // factor
        extent = high[first + dim] - low[first + dim]
        size = -(-extent // factor)
        out_low[dim] = low[first + dim] + min(place * size, extent)
        out_high[dim] = low[first + dim] + min((place + 1) * size, extent)
        if out_high[dim] <= out_low[dim]:
            return False
    return left == 0


@borrowing
def _busiest_core(g: GraphArrays, tensor: int, table: Ints, low: Ints, high: Ints) -> int:
    """A core with a full part of a tensor, inside where there is one: its halo has all sides."""
    core = 0
    for dim in range(g.dim_start[tensor], g.dim_start[tensor + 1]):
        factor = max(table[tensor, dim - g.dim_start[tensor]], 1)
        extent = high[dim] - low[dim]
        size = max(-(-extent // factor), 1)
        core = core * factor + min(factor // 2, max(extent // size - 1, 0))
    return core


@borrowing
def _cores_with_a_part(g: GraphArrays, tensor: int, table: Ints, low: Ints, high: Ints) -> int:
    """Cores that have a part of a tensor's region; parts of equal size may leave some without."""
    cores = 1
    for dim in range(g.dim_start[tensor], g.dim_start[tensor + 1]):
        factor = max(table[tensor, dim - g.dim_start[tensor]], 1)
        extent = high[dim] - low[dim]
        size = max(-(-extent // factor), 1)
        cores *= max(-(-extent // size), 1)
    return cores


@borrowing
def _foreign_bytes(
    g: GraphArrays,
    tensor: int,
    core: int,
    table: Ints,
    low: Ints,
    high: Ints,
    core_low: Ints,
    core_high: Ints,
    own_low: Ints,
    own_high: Ints,
) -> int:
    """Bytes of a tensor that a core needs and another core has; none if it is not bound."""
    if table[tensor, 0] == 0:
        return 0
    first, rank = g.dim_start[tensor], g.dim_start[tensor + 1] - g.dim_start[tensor]
    needed, common = 1, 1
    has = _core_region(g, tensor, core, table, low, high, own_low, own_high)
    for dim in range(rank):
        begin, end = core_low[first + dim], core_high[first + dim]
        needed *= max(end - begin, 0)
        common *= max(min(end, own_high[dim]) - max(begin, own_low[dim]), 0) if has else 0
    size: int = (needed - common) * g.element[tensor]
    return size


@borrowing
def _add_operator(
    w: WorkArrays,
    g: GraphArrays,
    op: int,
    box_low: Ints,
    box_high: Ints,
    row: Floats,
    moved: int,
    sizes: Ints,
) -> None:
    """Add one operator's work on one core to its layer's row; ``sizes`` is room."""
    sizes[:ROLES] = 1
    for axis in range(g.axis_start[op], g.axis_start[op + 1]):
        sizes[w.role[axis]] *= max(box_high[axis] - box_low[axis], 0)
    points = domain_points(g, op, box_low, box_high)
    shown = shown_points(g, w, op, box_low, box_high)
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
def _share_out(w: WorkArrays, ops: Ints, row: Floats) -> None:
    """Let all cores reduce their parts of one whole; one of them combines what they found."""
    cores = 1
    for op in ops:
        cores = max(cores, w.sharing[op])
    if cores == 1 or row[Stage.MACS] > 0:
        return
    for column in (Stage.VECTOR, Stage.SPECIAL, Stage.MOVED, Stage.READ, Stage.EXCHANGED):
        row[column] /= cores
    row[Stage.VECTOR] += cores - 1
    row[Stage.EXCHANGED] += PARTIAL_BYTES * (cores - 1)


@borrowing
def _add_recurrence(
    w: WorkArrays,
    g: GraphArrays,
    op: int,
    box_low: Ints,
    box_high: Ints,
    low: Ints,
    high: Ints,
    seen: Ints,
    share: float,
    row: Floats,
) -> None:
    """Add the steps of a recurrence: what each reads again, and the state that cores exchange."""
    for position in range(g.in_start[op], g.in_start[op + 1]):
        tensor = g.in_tensor[position]
        if g.constant[tensor] and seen[tensor] and by_step(g, w, op, g.in_slot[position]):
            row[Stage.STEP_WEIGHTS] += region_bytes(g, tensor, low, high) * share
    if 0.0 < share < 1.0:
        made = shown_points(g, w, op, box_low, box_high) * g.element[g.out_tensor[g.out_start[op]]]
        row[Stage.STATE] += made * (1.0 / share - 1.0)
    row[Stage.SEQUENCE] = max(row[Stage.SEQUENCE], steps_of(g, w, op, box_low, box_high))


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
def _run_bytes(g: GraphArrays, layout: Ints, tensor: int, low: Ints, high: Ints) -> int:
    """Consecutive bytes that a region of a tensor has in memory."""
    first = g.dim_start[tensor]
    run: int = g.element[tensor]
    for place in range(g.dim_start[tensor + 1] - 1, first - 1, -1):
        dim = first + layout[place]
        run *= max(high[dim] - low[dim], 1)
        if high[dim] - low[dim] < g.extent[dim]:
            break
    return run


@borrowing
def _add_run(
    g: GraphArrays, layout: Ints, tensor: int, low: Ints, high: Ints, runs: Floats
) -> None:
    """Add bytes and runs in memory of a tensor's region to ``runs``."""
    part = region_bytes(g, tensor, low, high)
    if part > 0:  # scales of integer operators are part of the instructions
        runs[0] += part
        runs[1] += np.ceil(part / _run_bytes(g, layout, tensor, low, high))


@borrowing
def _mean_run(runs: Floats) -> float:
    """Bytes over the number of runs, which are forgotten; 0 for none."""
    found = runs[0] / runs[1] if runs[1] else 0.0
    runs[:] = 0.0
    return found


@borrowing
def _add_runs(
    g: GraphArrays,
    a: LayerArrays,
    layout: Ints,
    layer: int,
    low: Ints,
    high: Ints,
    seen: Ints,
    runs: Floats,
    row: Floats,
) -> None:
    """Runs in memory of what the cluster's part of a layer reads and writes.

    Of every kind of tensor bytes of the regions over the number of their runs; of weights each
    time that they are read.
    """
    runs[:] = 0.0
    for tensor in a.in_tensor[a.in_start[layer] : a.in_start[layer + 1]]:
        if seen[tensor] and not g.constant[tensor]:
            _add_run(g, layout, tensor, low, high, runs)
    row[Stage.RUN_READ] = _mean_run(runs)
    for tensor in a.out_tensor[a.out_start[layer] : a.out_start[layer + 1]]:
        if seen[tensor] and not g.constant[tensor]:
            _add_run(g, layout, tensor, low, high, runs)
    row[Stage.RUN_WRITTEN] = _mean_run(runs)
    for op in a.op[a.op_start[layer] : a.op_start[layer + 1]]:
        for tensor in g.in_tensor[g.in_start[op] : g.in_start[op + 1]]:
            if seen[tensor] and g.constant[tensor]:
                _add_run(g, layout, tensor, low, high, runs)
    row[Stage.RUN_WEIGHTS] = _mean_run(runs)


@borrowing
def _want(
    g: GraphArrays,
    outputs: Ints,
    core: int,
    table: Ints,
    low: Ints,
    high: Ints,
    seen: Ints,
    core_low: Ints,
    core_high: Ints,
    core_seen: Ints,
    part_low: Ints,
    part_high: Ints,
) -> None:
    """Ask for a core's part of a layer's outputs; others than the first are bound like it."""
    for tensor in outputs:
        for dim in range(MAX_RANK):
            if table[tensor, dim] == 0:
                table[tensor, dim] = table[outputs[0], dim]
        if seen[tensor] and _core_region(g, tensor, core, table, low, high, part_low, part_high):
            need(g, tensor, part_low, part_high, core_low, core_high, core_seen)


class CoreRoom(NamedTuple):
    """Room to compute what one core needs of a part.

    Regions of tensors, which are seen, intervals of axes; ``axes`` ``(6, MAX_AXES)``, and ``runs``
    bytes and runs in memory.
    """

    low: Ints
    high: Ints
    seen: Ints
    box_low: Ints
    box_high: Ints
    axes: Ints
    runs: Floats


@njit(cache=True)
def core_room(g: GraphArrays) -> CoreRoom:
    """Room for any part of a graph."""
    dims, tensors, axes = len(g.extent), len(g.element), len(g.axis_extent)
    return CoreRoom(
        np.zeros(dims, np.int64), np.zeros(dims, np.int64), np.zeros(tensors, np.int64),
        np.zeros(axes, np.int64), np.zeros(axes, np.int64), np.zeros((6, MAX_AXES), np.int64),
        np.zeros(2),
    )  # fmt: skip


@njit(cache=True)
def _stage_table(
    g: GraphArrays,
    a: LayerArrays,
    w: WorkArrays,
    layout: Ints,
    layers: Ints,
    low: Ints,
    high: Ints,
    seen: Ints,
    table: Ints,
) -> tuple[Floats, Ints]:
    """One row per layer: the work of its busiest core; and what that gets of inputs from others."""
    rows = np.zeros((len(layers), STAGE_COLUMNS))
    inputs = 0
    for layer in layers:
        inputs += a.in_start[layer + 1] - a.in_start[layer]
    foreign = np.zeros(inputs, np.int64)
    fill_stages(g, a, w, layout, layers, low, high, seen, table, core_room(g), rows, foreign)
    return rows, foreign


@borrowing
def fill_stages(
    g: GraphArrays,
    a: LayerArrays,
    w: WorkArrays,
    layout: Ints,
    layers: Ints,
    low: Ints,
    high: Ints,
    seen: Ints,
    table: Ints,
    room: CoreRoom,
    rows: Floats,
    foreign: Ints,
) -> None:
    """Rows of a part's layers, and what a core gets from others, into arrays that are 0.

    Args:
        g: the graph.
        a: its layers.
        w: its work.
        layout: dimensions of all tensors from the outermost in memory.
        layers: of the part.
        low: regions of the part, over all dimensions of all tensors.
        high: likewise.
        seen: per tensor, 1 if the part touches it.
        table: binding per tensor, 0 where it has none; outputs after the first get the first's.
        room: any contents.
        rows: ``(layers, STAGE_COLUMNS)``.
        foreign: bytes by input, layer by layer.
    """
    at, core_low, core_high, core_seen = 0, room.low, room.high, room.seen
    part_low, part_high = room.axes[0], room.axes[1]
    for index in range(len(layers)):
        layer, row = layers[index], rows[index]
        ops = a.op[a.op_start[layer] : a.op_start[layer + 1]]
        clear_seen(g, ops, core_seen)
        output = a.out_tensor[a.out_start[layer]]
        core = _busiest_core(g, output, table, low, high)
        row[Stage.CORES] = _cores_with_a_part(g, output, table, low, high)
        outputs = a.out_tensor[a.out_start[layer] : a.out_start[layer + 1]]
        _want(
            g, outputs, core, table, low, high, seen, core_low, core_high, core_seen, part_low,
            part_high,
        )  # fmt: skip
        propagate_in(g, ops, core_low, core_high, core_seen, room.box_low, room.box_high, room.axes)
        for op in ops:
            moved = _output_bytes(g, op, core_low, core_high, core_seen)
            share = narrow_spread(
                g, w, op, core_low, core_high, core_seen, room.box_low, room.box_high,
                room.axes[2:4],
            )  # fmt: skip
            _add_operator(w, g, op, room.box_low, room.box_high, row, moved, part_low)
            row[Stage.WEIGHTS] += _weight_bytes(g, w, op, low, high, seen)
            own = _weight_bytes(g, w, op, core_low, core_high, core_seen) * share
            row[Stage.CORE_WEIGHTS] += own
            if w.recurrent[op]:
                _add_recurrence(
                    w, g, op, room.box_low, room.box_high, core_low, core_high, core_seen, share,
                    row,
                )  # fmt: skip
        for tensor in a.in_tensor[a.in_start[layer] : a.in_start[layer + 1]]:
            if core_seen[tensor]:
                row[Stage.READ] += region_bytes(g, tensor, core_low, core_high)
                foreign[at] = _foreign_bytes(
                    g, tensor, core, table, low, high, core_low, core_high, part_low, part_high
                )
                row[Stage.EXCHANGED] += foreign[at]
            at += 1
        for tensor in outputs:
            if core_seen[tensor]:
                row[Stage.WRITTEN] += region_bytes(g, tensor, core_low, core_high)
        _share_out(w, ops, row)
        _add_runs(g, a, layout, layer, low, high, seen, room.runs, row)
        element = max(g.element[output], 1)
        row[Stage.STEPS] = max(row[Stage.WRITTEN] // element, 1)
