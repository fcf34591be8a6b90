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
from autoturbo.graph.arrays import MAX_AXES, GraphArrays, Ints, propagate_in
from autoturbo.schedule.bound_parts import flat
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.instances import (
    Parts,
    extents_hash,
    external_inputs,
    note_regions,
    part_book,
    seed_in,
    shape_index,
)
from autoturbo.schedule.problem import LayerArrays, Problem
from autoturbo.schedule.split import clear_seen


class _Batch(NamedTuple):
    """Sub-graphs: layers, axes that are cut and into how many, and tensors read and made."""

    layer_start: Ints
    layers: Ints
    cut_start: Ints
    axes: Ints
    factors: Ints
    input_start: Ints
    inputs: Ints
    output_start: Ints
    outputs: Ints


class _Chosen(NamedTuple):
    """Bounds along the axes, regions of inputs and outputs, hashes over the extents of it all."""

    bounds: Ints
    needed: Ints
    made: Ints
    hashes: Ints


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


_Key = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]


def _known(problem: Problem) -> dict[_Key, Parts]:
    found = problem.memory.get("commonest parts")
    if not isinstance(found, dict):
        found = problem.memory["commonest parts"] = {}
    return found


def _cut(problem: Problem, keys: Sequence[_Key]) -> list[Parts]:
    book, g = part_book(problem), problem.arrays
    layers, axes = [own for own, _ in keys], [cuts for _, cuts in keys]
    inputs = [external_inputs(problem, own) for own in layers]
    outputs = [problem.layers[own[-1]].outputs for own in layers]
    cut_start, cut_axes = flat([[axis for axis, _ in own] for own in axes])
    factors = flat([[factor for _, factor in own] for own in axes])[1]
    batch = _Batch(*flat(layers), cut_start, cut_axes, factors, *flat(inputs), *flat(outputs))
    chosen = _commonest(g, problem.layer_arrays, batch, book.rank)
    sizes = (chosen.made[..., 1] - chosen.made[..., 0]).prod(axis=1) * g.element[batch.outputs]
    owner = np.repeat(np.arange(len(keys)), np.diff(batch.output_start))
    written = np.bincount(owner, sizes, len(keys)).astype(np.int64)
    in_rows = batch.input_start + book.regions.add(chosen.needed)
    out_rows = batch.output_start + book.regions.add(chosen.made)
    found = []
    for at, own in enumerate(layers):
        rows = slice(cut_start[at], cut_start[at + 1])
        cut = tuple(axis for axis, _ in axes[at])
        hashes = int(chosen.hashes[at, 0]), int(chosen.hashes[at, 1])
        shape = shape_index(book, own, cut, chosen.bounds[rows], hashes)
        found.append(Parts(
            -1, own, 1, inputs[at], outputs[at], np.asarray([shape], np.int64), int(out_rows[at]),
            int(in_rows[at]), written[at : at + 1],
        ))  # fmt: skip
    return found


@njit(cache=True)
def _commonest(g: GraphArrays, a: LayerArrays, b: _Batch, rank: int) -> _Chosen:
    """The chosen part of each sub-graph of a batch."""
    count, most = len(b.layer_start) - 1, 1
    for at in range(count):
        most = max(most, _number(b, at))
    found = _Chosen(
        np.zeros((len(b.axes), 2), np.int64), np.zeros((len(b.inputs), rank, 2), np.int64),
        np.zeros((len(b.outputs), rank, 2), np.int64), np.zeros((count, 2), np.int64),
    )  # fmt: skip
    low, high = np.zeros(len(g.extent), np.int64), np.zeros(len(g.extent), np.int64)
    seen = np.zeros(len(g.element), np.int64)
    box_low = np.zeros(len(g.axis_extent), np.int64)
    box_high = np.zeros(len(g.axis_extent), np.int64)
    room, ops = np.empty((6, MAX_AXES), np.int64), np.empty(len(a.op), np.int64)
    classes = np.zeros((most, 4), np.int64)
    for at in range(count):
        own = ops[: _operators(a, b.layers[b.layer_start[at] : b.layer_start[at + 1]], ops)]
        axes = b.axes[b.cut_start[at] : b.cut_start[at + 1]]
        factors = b.factors[b.cut_start[at] : b.cut_start[at + 1]]
        bounds = found.bounds[b.cut_start[at] : b.cut_start[at + 1]]
        total, part, best, different = _number(b, at), 0, 0, 0
        while part < total:
            _box(g, own[-1], axes, factors, part, bounds)
            _regions(g, own, axes, bounds, low, high, seen, box_low, box_high, room)
            first, second = extents_hash(g, own, low, high, seen, box_low, box_high)
            kind = 0
            while kind < different and (classes[kind, 0] != first or classes[kind, 1] != second):
                kind += 1
            if kind == different:
                classes[kind, 0], classes[kind, 1] = first, second
                classes[kind, 2], classes[kind, 3] = part, 0
                different += 1
            classes[kind, 3] += 1
            if classes[kind, 3] > classes[best, 3] or (
                classes[kind, 3] == classes[best, 3] and kind < best
            ):
                best = kind
            if 2 * classes[best, 3] > total:
                break
            part += 1
        if part != classes[best, 2]:
            _box(g, own[-1], axes, factors, classes[best, 2], bounds)
            _regions(g, own, axes, bounds, low, high, seen, box_low, box_high, room)
        found.hashes[at] = classes[best, :2]
        into, out = b.input_start, b.output_start
        tensors = b.inputs[into[at] : into[at + 1]]
        note_regions(g, tensors, low, high, seen, found.needed[into[at] : into[at + 1]])
        tensors = b.outputs[out[at] : out[at + 1]]
        note_regions(g, tensors, low, high, seen, found.made[out[at] : out[at + 1]])
    return found


@borrowing
def _number(b: _Batch, at: int) -> int:
    """Parts of a sub-graph."""
    found = 1
    for cut in range(b.cut_start[at], b.cut_start[at + 1]):
        found *= b.factors[cut]
    return found


@borrowing
def _operators(a: LayerArrays, layers: Ints, ops: Ints) -> int:
    """Note the operators of some layers, in order, and say how many they are."""
    at = 0
    for layer in layers:
        for index in range(a.op_start[layer], a.op_start[layer + 1]):
            ops[at] = a.op[index]
            at += 1
    return at


@borrowing
def _box(g: GraphArrays, op: int, axes: Ints, factors: Ints, part: int, bounds: Ints) -> None:
    """Bounds of a part, as :func:`autoturbo.schedule.instances.box_at` has them."""
    for at in range(len(axes) - 1, -1, -1):
        size, rest = divmod(g.axis_extent[g.axis_start[op] + axes[at]], factors[at])
        part, own = divmod(part, factors[at])
        bounds[at, 0] = own * size + min(own, rest)
        bounds[at, 1] = (own + 1) * size + min(own + 1, rest)


@borrowing
def _regions(
    g: GraphArrays,
    ops: Ints,
    axes: Ints,
    bounds: Ints,
    low: Ints,
    high: Ints,
    seen: Ints,
    box_low: Ints,
    box_high: Ints,
    room: Ints,
) -> None:
    """Regions of one box."""
    clear_seen(g, ops, seen)
    seed_in(g, ops[-1], axes, bounds, low, high, seen, room)
    propagate_in(g, ops, low, high, seen, box_low, box_high, room)
