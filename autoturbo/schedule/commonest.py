"""Of each sub-graph the most common part, without the others: what estimates look at.

:mod:`autoturbo.schedule.instances` cuts sub-graphs up for schedules; here the same boxes are gone
through for a batch of sub-graphs by one call of compiled code, and one part of each is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import GraphArrays, Ints
from autoturbo.schedule.cut_batch import (
    CutBatch,
    CutKey,
    cut_batch,
    parts_in,
    regions_at,
)
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.instances import (
    Parts,
    extents_hash,
    external_inputs,
    note_regions,
    part_book,
    shape_index,
)
from autoturbo.schedule.problem import LayerArrays, Problem
from autoturbo.schedule.split import Workspace, note_operators, whole_workspace


class _Chosen(NamedTuple):
    """Bounds along the axes, regions of inputs and outputs, hashes over the extents of it all."""

    bounds: Ints
    needed: Ints
    made: Ints
    hashes: Ints


_FIRST, _COUNT = 2, 3
"""Columns of classes, after two hashes."""


def commonest_parts(problem: Problem, subgraphs: Sequence[SubGraph]) -> list[Parts]:
    """A part of the class that has most, the first of several such classes; remembered.

    Like :func:`autoturbo.schedule.instances.parts_of`, with one part each. It is the first of its
    class.
    """
    known = _known(problem)
    keys = [(s.layers, s.split.axes) for s in subgraphs]
    new = [key for key in dict.fromkeys(keys) if key not in known]
    if new:
        known.update(zip(new, _cut(problem, new), strict=True))
    return [known[key] for key in keys]


def _known(problem: Problem) -> dict[CutKey, Parts]:
    found = problem.books.get("commonest parts")
    if not isinstance(found, dict):
        found = problem.books["commonest parts"] = {}
    return found


def _cut(problem: Problem, keys: Sequence[CutKey]) -> list[Parts]:
    book, g, batch = part_book(problem), problem.arrays, cut_batch(problem, keys)
    chosen = _commonest(g, problem.layer_arrays, batch, book.rank)
    sizes = (chosen.made[..., 1] - chosen.made[..., 0]).prod(axis=1) * g.element[batch.outputs]
    owner = np.repeat(np.arange(len(keys)), np.diff(batch.output_start))
    written = np.bincount(owner, sizes, len(keys)).astype(np.int64)
    in_rows = batch.input_start + book.regions.add(chosen.needed)
    out_rows = batch.output_start + book.regions.add(chosen.made)
    found = []
    for at, (layers, axes) in enumerate(keys):
        bounds = chosen.bounds[batch.cut_start[at] : batch.cut_start[at + 1]]
        hashes = int(chosen.hashes[at, 0]), int(chosen.hashes[at, 1])
        shape = shape_index(book, layers, tuple(axis for axis, _ in axes), bounds, hashes)
        found.append(Parts(
            -1, layers, 1, external_inputs(problem, layers), problem.layers[layers[-1]].outputs,
            np.asarray([shape], np.int64), int(out_rows[at]), int(in_rows[at]),
            written[at : at + 1],
        ))  # fmt: skip
    return found


@njit(cache=True)
def _commonest(g: GraphArrays, a: LayerArrays, b: CutBatch, rank: int) -> _Chosen:
    """The chosen part of each sub-graph of a batch."""
    count, most = len(b.layer_start) - 1, 1
    for at in range(count):
        most = max(most, parts_in(b, at))
    found = _Chosen(
        np.zeros((len(b.axes), 2), np.int64), np.zeros((len(b.inputs), rank, 2), np.int64),
        np.zeros((len(b.outputs), rank, 2), np.int64), np.zeros((count, 2), np.int64),
    )  # fmt: skip
    r, classes = whole_workspace(g, a), np.zeros((most, 4), np.int64)
    for at in range(count):
        layers = b.layers[b.layer_start[at] : b.layer_start[at + 1]]
        ops = r.ops[: note_operators(a, layers, r.ops)]
        cut = slice(b.cut_start[at], b.cut_start[at + 1])
        axes, factors, bounds = b.axes[cut], b.factors[cut], found.bounds[cut]
        best, last = _choose(g, ops, axes, factors, parts_in(b, at), bounds, r, classes)
        if last != classes[best, _FIRST]:
            regions_at(g, ops, axes, factors, classes[best, _FIRST], bounds, r)
        found.hashes[at] = classes[best, :_FIRST]
        into, out = b.input_start, b.output_start
        tensors = b.inputs[into[at] : into[at + 1]]
        note_regions(g, tensors, r.low, r.high, r.seen, found.needed[into[at] : into[at + 1]])
        tensors = b.outputs[out[at] : out[at + 1]]
        note_regions(g, tensors, r.low, r.high, r.seen, found.made[out[at] : out[at + 1]])
    return found


@borrowing
def _choose(
    g: GraphArrays,
    ops: Ints,
    axes: Ints,
    factors: Ints,
    total: int,
    bounds: Ints,
    r: Workspace,
    classes: Ints,
) -> tuple[int, int]:
    """The class that has most parts, the first of several such, and the part looked at last.

    A class is a row of two hashes, its first part, and how many parts it has.
    """
    best, different, part = 0, 0, 0
    for part in range(total):
        regions_at(g, ops, axes, factors, part, bounds, r)
        first, second = extents_hash(g, ops, r.low, r.high, r.seen, r.box_low, r.box_high)
        kind = 0
        while kind < different and (classes[kind, 0] != first or classes[kind, 1] != second):
            kind += 1
        if kind == different:
            classes[kind, 0], classes[kind, 1] = first, second
            classes[kind, _FIRST], classes[kind, _COUNT] = part, 0
            different += 1
        classes[kind, _COUNT] += 1
        ahead = classes[kind, _COUNT] - classes[best, _COUNT]
        if ahead > 0 or (ahead == 0 and kind < best):
            best = kind
        if 2 * classes[best, _COUNT] > total:
            break
    return best, part
