"""Work and bytes of one part of a sub-graph, from its regions alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.work import MATRIX, MOVE, VECTOR, Floats
from autoturbo.schedule.partition.isomorphism import first_alike
from autoturbo.schedule.partition.split import Split, box_cost, operators_of, workspace
from autoturbo.schedule.place.instances import boxes_of, external_inputs
from autoturbo.schedule.problem import Problem
from autoturbo.stores import remembered


class PartWork(NamedTuple):
    """What one part of a sub-graph computes and moves.

    Attributes:
        layers: how many it has.
        operators: how many these have.
        macs: multiply-accumulates on the matrix engine.
        vector_ops: plain operations on the vector engine.
        special_ops: its slow operations.
        moved_bytes: rearranged in the local buffers.
        weight_bytes: read.
        input_bytes: read from outside the sub-graph.
        output_bytes: written for others.
        footprint_bytes: alive at once in the local buffers of a cluster.
        largest_layer_bytes: of the largest tensor that an operator makes.
    """

    layers: int
    operators: int
    macs: float
    vector_ops: float
    special_ops: float
    moved_bytes: int
    weight_bytes: int
    input_bytes: int
    output_bytes: int
    footprint_bytes: int
    largest_layer_bytes: int


@remembered(1 << 16)
def middle_part_work(problem: Problem, layers: tuple[int, ...], split: Split) -> PartWork:
    """Return the work and the bytes of a sub-graph's middle part, as of one that is isomorphic."""
    if (first := first_alike(problem, layers)) != layers:
        return middle_part_work(problem, first, split)
    cut = boxes_of(problem, layers, split)[split.instances // 2]
    footprint = box_cost(problem, layers, cut.axes, cut.bounds).footprint
    part = workspace(problem).regions  # that part's still
    g, w, ops = problem.arrays, problem.work, operators_of(problem, layers)
    elements = _products(np.maximum(part.high - part.low, 0), g.dim_start)
    sizes = np.where(part.seen != 0, -(-elements * g.element // g.divisor), 0)
    macs, vector, special = (
        work[ops] for work in operator_work(problem, np.maximum(part.box_high - part.box_low, 0))
    )
    operators = [(problem.graph.operators[op], int(w.engine[op])) for op in ops.tolist()]
    made = [(int(sizes[t]), code) for operator, code in operators for t in operator.outputs]
    weights = (
        t for operator, code in operators if code != MOVE for t in operator.inputs if g.constant[t]
    )
    return PartWork(
        len(layers), len(ops), float(macs[w.engine[ops] == MATRIX].sum()), float(vector.sum()),
        float(special.sum()), sum(size for size, code in made if code == MOVE),
        int(sizes[list(weights)].sum()), int(sizes[list(external_inputs(problem, layers))].sum()),
        int(sizes[list(problem.layers[layers[-1]].outputs)].sum()),
        footprint, max((size for size, _ in made), default=0),
    )  # fmt: skip


def operator_work(problem: Problem, lengths: Ints) -> tuple[Floats, Floats, Floats]:
    """Return multiply-accumulates, plain and slow vector operations of each operator.

    ``lengths`` are the steps of each of their axes. Multiply-accumulates of the vector engine are
    among its plain operations too.
    """
    work, start = problem.work, problem.arrays.axis_start
    points = _products(lengths, start)
    shown = _products(np.where(work.shown != 0, lengths, 1), start)
    macs = points * work.macs
    plain = shown * work.vector + points * work.per_point
    return macs, plain + np.where(work.engine == VECTOR, macs, 0), shown * work.special


def _products(lengths: Ints, start: Ints) -> Ints:
    """Return the product of ``lengths[start[i]:start[i + 1]]`` for each ``i``; 1 of none."""
    products = np.multiply.reduceat(np.append(lengths, 1), start[:-1])
    return np.where(np.diff(start) > 0, products, 1)
