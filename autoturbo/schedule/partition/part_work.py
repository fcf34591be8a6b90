"""Work and bytes of one part of a sub-graph, from its regions alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autoturbo.caches import remembered
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.partition.boxes import boxes_of, external_inputs
from autoturbo.schedule.partition.isomorphism import first_alike
from autoturbo.schedule.partition.split import Split, box_cost, operators_of, workspace
from autoturbo.schedule.work import MATRIX, MOVE, VECTOR, Floats


class PartWork(NamedTuple):
    """Computation and traffic of one part of a sub-graph.

    Attributes:
        layers: Number of layers of the part.
        operators: Number of operators of these layers.
        macs: Multiply-accumulates on the matrix engine.
        vector_ops: Plain operations on the vector engine.
        special_ops: Slow operations on the vector engine.
        moved_bytes: Rearranged in the local buffers.
        weight_bytes: Read.
        input_bytes: Read from outside the sub-graph.
        output_bytes: Written for others.
        footprint_bytes: Alive at once in the local buffers of a cluster.
        largest_layer_bytes: Bytes of the largest tensor that an operator makes.
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
def middle_part_work(context: SchedulingContext, layers: tuple[int, ...], split: Split) -> PartWork:
    """Return the work and the bytes of a sub-graph's middle part; isomorphic ones share it."""
    if (first := first_alike(context, layers)) != layers:
        return middle_part_work(context, first, split)
    # In the middle, where a halo has both sides.
    cut = boxes_of(context, layers, split)[split.instances // 2]
    footprint = box_cost(context, layers, cut.axes, cut.bounds).footprint
    part = workspace(context).regions  # that part's still
    g, w, ops = context.arrays, context.work, operators_of(context, layers)
    elements = _products(np.maximum(part.high - part.low, 0), g.dim_start)
    sizes = np.where(part.seen != 0, -(-elements * g.element // g.divisor), 0)
    macs, vector, special = (
        work[ops] for work in operator_work(context, np.maximum(part.box_high - part.box_low, 0))
    )
    operators = [(context.graph.operators[op], int(w.engine[op])) for op in ops.tolist()]
    output_sizes = [(int(sizes[t]), code) for operator, code in operators for t in operator.outputs]
    # Moves pick rows of their constants, whose regions are whole.
    weights = (
        t for operator, code in operators if code != MOVE for t in operator.inputs if g.constant[t]
    )
    return PartWork(
        len(layers), len(ops), float(macs[w.engine[ops] == MATRIX].sum()), float(vector.sum()),
        float(special.sum()), sum(size for size, code in output_sizes if code == MOVE),
        int(sizes[list(weights)].sum()), int(sizes[list(external_inputs(context, layers))].sum()),
        int(sizes[list(context.layers[layers[-1]].outputs)].sum()),
        footprint, max((size for size, _ in output_sizes), default=0),
    )  # fmt: skip


def operator_work(context: SchedulingContext, lengths: Ints) -> tuple[Floats, Floats, Floats]:
    """Return multiply-accumulates, plain and slow vector operations of each operator.

    ``lengths`` are the steps of each of their axes. Multiply-accumulates of the vector engine are
    among its plain operations too.
    """
    work, start = context.work, context.arrays.axis_start
    points = _products(np.where(context.arrays.axis_computes != 0, lengths, 1), start)
    shown = _products(np.where(work.shown != 0, lengths, 1), start)
    macs = points * work.macs
    plain = shown * work.vector + points * work.per_point
    return macs, plain + np.where(work.engine == VECTOR, macs, 0), shown * work.special


def _products(lengths: Ints, start: Ints) -> Ints:
    """Return the product of ``lengths[start[i]:start[i + 1]]`` for each ``i``; 1 if empty."""
    products = np.multiply.reduceat(np.append(lengths, 1), start[:-1])
    return np.where(np.diff(start) > 0, products, 1)
