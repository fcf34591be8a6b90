"""What is known of a setting's kernels once it is split and grouped: the cost model's raw material.

Far cheaper than a schedule: no instances, bindings or buffers exist yet, and sub-graphs that
several settings share are remembered.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from autoturbo.graph.arrays import GraphArrays, Ints, domain_points, region_bytes
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.instances import PartShape, box_regions, cuts_of, external_inputs
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import Workbench, homes, plan
from autoturbo.schedule.problem import LayerArrays, Problem
from autoturbo.schedule.split import operators_of, peak_bytes
from autoturbo.schedule.work import MATRIX, MOVE, VECTOR, Floats, WorkArrays, shown_points

STATISTICS = (
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
    "instances",
    "loops",
    "samples",
)
"""Columns of :class:`autoturbo.simulate.contract.PlanStatistics`: per instance of a sub-graph, the
layers and operators, the work, the bytes of weights, inputs and outputs, the footprint in the local
buffers of a cluster and the largest tensor; then instances per pass of the cluster that has most
of them, passes, samples per pass."""


def statistics_of(bench: Workbench, knobs: Knobs) -> tuple[Floats, Ints]:
    """Rows of :data:`STATISTICS`, one per sub-graph, and launches of each by one cluster.

    Where clusters do not work alike: by the cluster that launches it most.

    Raises:
        KnobsError: the setting does not fit the model.
    """
    problem, share, subgraphs = plan(bench, knobs)
    rows = np.empty((len(subgraphs), len(STATISTICS)))
    parts = np.asarray([s.split.instances for s in subgraphs], np.int64)
    if shared := homes(bench, knobs):
        parts = -(-parts // np.asarray(shared, np.int64)[:, 1])
    for subgraph, own in zip(subgraphs, parts.tolist(), strict=True):
        rows[subgraph.index, :-3] = _row(problem, subgraph)
        rows[subgraph.index, -3:] = (own, share.loops, share.batches)
    return rows, parts * share.loops


def _row(problem: Problem, subgraph: SubGraph) -> Floats:
    key = ("statistics", subgraph.layers, subgraph.split.axes)
    found = problem.memory.get(key)
    if not isinstance(found, np.ndarray):
        found = _compute(problem, subgraph)
        problem.memory[key] = found
    return found


def _compute(problem: Problem, subgraph: SubGraph) -> Floats:
    layers = subgraph.layers
    cuts = cuts_of(problem, layers, subgraph.split)
    shape = box_regions(problem, layers, cuts[len(cuts) // 2])
    indices = np.asarray(layers, np.int64)
    row: Floats = np.zeros(len(STATISTICS) - 3)
    row[0] = len(layers)
    inputs = np.asarray(external_inputs(problem, layers), np.int64)
    outputs = np.asarray(problem.layers[layers[-1]].outputs, np.int64)
    _sum_up(problem.arrays, problem.layer_arrays, problem.work, indices, *_fields(shape), row)
    row[7], row[8] = _total(problem, shape, inputs), _total(problem, shape, outputs)
    return row


def _fields(shape: PartShape) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    return shape.low, shape.high, shape.seen, shape.box_low, shape.box_high


def _total(problem: Problem, shape: PartShape, tensors: Ints) -> float:
    start, element = problem.arrays.dim_start, problem.arrays.element
    lengths = np.maximum(shape.high - shape.low, 0)
    return float(
        sum(int(lengths[start[t] : start[t + 1]].prod()) * int(element[t]) for t in tensors)
    )


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
