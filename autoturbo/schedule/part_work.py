"""Work and bytes of one part of a sub-graph, from its regions alone."""

from __future__ import annotations

import numpy as np
from numba import njit

from autoturbo.graph.arrays import GraphArrays, Ints, domain_points, region_bytes
from autoturbo.schedule.instances import Cut, external_inputs, regions_in
from autoturbo.schedule.problem import LayerArrays, Problem
from autoturbo.schedule.split import operators_of, peak_bytes
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


def part_work(problem: Problem, layers: tuple[int, ...], cut: Cut) -> Floats:
    """A row of :data:`COLUMNS` for one part of a sub-graph."""
    return _row(
        problem.arrays, problem.layer_arrays, problem.work, np.asarray(layers, np.int64),
        np.asarray(cut.axes, np.int64), np.asarray(cut.bounds, np.int64).reshape(-1, 2),
        np.asarray(external_inputs(problem, layers), np.int64),
        np.asarray(problem.layers[layers[-1]].outputs, np.int64),
    )  # fmt: skip


@njit(cache=True)
def _row(
    g: GraphArrays,
    a: LayerArrays,
    w: WorkArrays,
    layers: Ints,
    axes: Ints,
    bounds: Ints,
    inputs: Ints,
    outputs: Ints,
) -> Floats:
    low, high, seen, box_low, box_high = regions_in(g, a, layers, axes, bounds)
    row = np.zeros(_COLUMNS)
    row[0] = len(layers)
    _sum_up(g, a, w, layers, low, high, seen, box_low, box_high, row)
    row[7], row[8] = _total(g, inputs, low, high), _total(g, outputs, low, high)
    return row


@njit(cache=True)
def _total(g: GraphArrays, tensors: Ints, low: Ints, high: Ints) -> int:
    """Bytes of regions of tensors, together."""
    found = 0
    for tensor in tensors:
        found += region_bytes(g, tensor, low, high)
    return found


@njit(cache=True)
def _sum_up(
    g: GraphArrays,
    a: LayerArrays,
    w: WorkArrays,
    layers: Ints,
    low: Ints,
    high: Ints,
    seen: Ints,
    box_low: Ints,
    box_high: Ints,
    row: Floats,
) -> None:
    """Columns 1 to 6, 9 and 10 of a row."""
    for op in operators_of(a, layers):
        points = domain_points(g, op, box_low, box_high)
        shown = shown_points(g, w, op, box_low, box_high)
        row[1] += 1
        if w.engine[op] == MATRIX:
            row[2] += points * w.macs[op]
        elif w.engine[op] == VECTOR:
            row[3] += points * w.macs[op]
        row[3] += shown * w.vector[op] + points * w.per_point[op]
        row[4] += shown * w.special[op]
        for position in range(g.out_start[op], g.out_start[op + 1]):
            size = _size(g, g.out_tensor[position], low, high, seen)
            row[5] += size if w.engine[op] == MOVE else 0
            row[10] = max(row[10], size)
        for position in range(g.in_start[op], g.in_start[op + 1]):
            if g.constant[g.in_tensor[position]] and w.engine[op] != MOVE:
                row[6] += _size(g, g.in_tensor[position], low, high, seen)
    row[9] = peak_bytes(g, a, layers, low, high, seen)


@njit(cache=True)
def _size(g: GraphArrays, tensor: int, low: Ints, high: Ints, seen: Ints) -> int:
    return region_bytes(g, tensor, low, high) if seen[tensor] else 0
