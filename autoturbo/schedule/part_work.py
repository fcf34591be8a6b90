"""Work and bytes of one part of each of many sub-graphs, from its regions alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import GraphArrays, Ints, domain_points, region_bytes
from autoturbo.schedule.cut_batch import (
    CutBatch,
    CutKey,
    cut_batch,
    parts_in,
    regions_at,
)
from autoturbo.schedule.problem import LayerArrays, Problem
from autoturbo.schedule.split import Workspace, note_operators, peak_in, whole_workspace
from autoturbo.schedule.work import MATRIX, MOVE, VECTOR, Floats, WorkArrays, shown_points

COLUMNS = (
    "layers",
    "operators",
    "macs",
    "vector_ops",
    "special_ops",
    "moved_bytes",
    "weight_bytes",
    "input_bytes",
    "output_bytes",
    "footprint_bytes",
    "largest_layer_bytes",
)
"""What is known of a part: layers and operators, the work, the bytes of weights, inputs and
outputs, the footprint in the local buffers of a cluster and the largest tensor."""

_COLUMNS = len(COLUMNS)


def part_works(problem: Problem, keys: Sequence[CutKey]) -> Floats:
    """Rows of :data:`COLUMNS` for the middle parts of cut sub-graphs, ``(sub-graphs, columns)``."""
    return _rows(problem.arrays, problem.layer_arrays, problem.work, cut_batch(problem, keys))


@njit(cache=True)
def _rows(g: GraphArrays, a: LayerArrays, w: WorkArrays, b: CutBatch) -> Floats:
    count = len(b.layer_start) - 1
    r, rows = whole_workspace(g, a), np.zeros((count, _COLUMNS))
    bounds = np.zeros((len(b.axes), 2), np.int64)
    for at in range(count):
        layers, row = b.layers[b.layer_start[at] : b.layer_start[at + 1]], rows[at]
        ops = r.ops[: note_operators(a, layers, r.ops)]
        cut = slice(b.cut_start[at], b.cut_start[at + 1])
        regions_at(g, ops, b.axes[cut], b.factors[cut], parts_in(b, at) // 2, bounds[cut], r)
        row[0] = len(layers)
        _sum_up(g, w, ops, r, row)
        row[7] = _total(g, b.inputs[b.input_start[at] : b.input_start[at + 1]], r)
        row[8] = _total(g, b.outputs[b.output_start[at] : b.output_start[at + 1]], r)
        row[9] = peak_in(g, a, layers, r.low, r.high, r.seen, r.last, r.made)
    return rows


@borrowing
def _total(g: GraphArrays, tensors: Ints, r: Workspace) -> int:
    """Bytes of regions of tensors, together."""
    found = 0
    for tensor in tensors:
        found += _size(g, tensor, r)
    return found


@borrowing
def _sum_up(g: GraphArrays, w: WorkArrays, ops: Ints, r: Workspace, row: Floats) -> None:
    """Columns 1 to 6 and 10 of a row."""
    for op in ops:
        points = domain_points(g, op, r.box_low, r.box_high)
        shown = shown_points(g, w, op, r.box_low, r.box_high)
        row[1] += 1
        if w.engine[op] == MATRIX:
            row[2] += points * w.macs[op]
        elif w.engine[op] == VECTOR:
            row[3] += points * w.macs[op]
        row[3] += shown * w.vector[op] + points * w.per_point[op]
        row[4] += shown * w.special[op]
        for position in range(g.out_start[op], g.out_start[op + 1]):
            size = _size(g, g.out_tensor[position], r)
            row[5] += size if w.engine[op] == MOVE else 0
            row[10] = max(row[10], size)
        for position in range(g.in_start[op], g.in_start[op + 1]):
            if g.constant[g.in_tensor[position]] and w.engine[op] != MOVE:
                row[6] += _size(g, g.in_tensor[position], r)


@borrowing
def _size(g: GraphArrays, tensor: int, r: Workspace) -> int:
    return region_bytes(g, tensor, r.low, r.high) if r.seen[tensor] else 0
