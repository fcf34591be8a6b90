"""Work and bytes of one part of a sub-graph, from its regions alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autoturbo.graph.arrays import Ints, Regions
from autoturbo.schedule.codegen.work import MATRIX, MOVE, VECTOR
from autoturbo.schedule.partition.isomorphism import first_alike
from autoturbo.schedule.partition.split import Split, box_cost, operators_of
from autoturbo.schedule.place.instances import box_regions, boxes_of, external_inputs
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


def middle_part_work(problem: Problem, layers: tuple[int, ...], split: Split) -> PartWork:
    """Return the work and the bytes of a sub-graph's middle part, as of one that is isomorphic."""
    return _middle_part_work(problem, first_alike(problem, layers), split)


@remembered(1 << 14)
def _middle_part_work(problem: Problem, layers: tuple[int, ...], split: Split) -> PartWork:
    cut = boxes_of(problem, layers, split)[split.instances // 2]
    part = box_regions(problem, layers, cut)
    g, w = problem.arrays, problem.work
    sizes = _region_bytes(problem, part)
    ops = operators_of(problem, layers)
    lengths = np.maximum(part.box_high - part.box_low, 0)
    points = _products(lengths, g.axis_start)[ops]
    shown = _products(np.where(w.shown != 0, lengths, 1), g.axis_start)[ops]
    engine, matrix = w.engine[ops], w.engine[ops] == MATRIX
    own = np.zeros(len(w.engine), np.bool_)
    own[ops] = True
    maker = np.repeat(np.arange(len(own)), np.diff(g.out_start))
    made = sizes[g.out_tensor[own[maker]]]
    reader = np.repeat(np.arange(len(own)), np.diff(g.in_start))
    weights = own[reader] & (w.engine[reader] != MOVE) & (g.constant[g.in_tensor] != 0)
    vector = shown * w.vector[ops] + points * w.per_point[ops]
    vector = vector + np.where(engine == VECTOR, points * w.macs[ops], 0)
    return PartWork(
        len(layers), len(ops), float((points * w.macs[ops])[matrix].sum()), float(vector.sum()),
        float((shown * w.special[ops]).sum()),
        int(made[w.engine[maker[own[maker]]] == MOVE].sum()),
        int(sizes[g.in_tensor[weights]].sum()),
        int(sizes[list(external_inputs(problem, layers))].sum()),
        int(sizes[list(problem.layers[layers[-1]].outputs)].sum()),
        box_cost(problem, layers, cut.axes, cut.bounds).footprint, int(made.max(initial=0)),
    )  # fmt: skip


def _region_bytes(problem: Problem, part: Regions) -> Ints:
    """Return the bytes of every tensor's region in a part, 0 of those that it does not touch."""
    g = problem.arrays
    elements = _products(np.maximum(part.high - part.low, 0), g.dim_start)
    return np.where(part.seen != 0, elements * g.element, 0)


def _products(lengths: Ints, start: Ints) -> Ints:
    """Return the product of ``lengths[start[i]:start[i + 1]]`` for each ``i``; 1 of none."""
    products = np.multiply.reduceat(np.append(lengths, 1), start[:-1])
    return np.where(np.diff(start) > 0, products, 1)
