"""Cut sub-graphs of one problem, many at once, for compiled code that looks at one part of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import GraphArrays, Ints, propagate_in
from autoturbo.schedule.instances import external_inputs, seed_in
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.split import Workspace, clear_seen

CutKey = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]
"""Layers of a sub-graph, and the axes of its output that are cut, the outermost first, each with
its number of parts."""


class CutBatch(NamedTuple):
    """Cut sub-graphs: layers, axes that are cut and into how many, tensors read and made.

    Those of each are from its place in the starts on.
    """

    layer_start: Ints
    layers: Ints
    cut_start: Ints
    axes: Ints
    factors: Ints
    input_start: Ints
    inputs: Ints
    output_start: Ints
    outputs: Ints


def cut_batch(problem: Problem, keys: Sequence[CutKey]) -> CutBatch:
    """A batch of cut sub-graphs."""
    layers, cuts = [own for own, _ in keys], [own for _, own in keys]
    cut_start, axes = flat([[axis for axis, _ in own] for own in cuts])
    return CutBatch(
        *flat(layers), cut_start, axes, flat([[parts for _, parts in own] for own in cuts])[1],
        *flat([external_inputs(problem, own) for own in layers]),
        *flat([problem.layers[own[-1]].outputs for own in layers]),
    )  # fmt: skip


def flat(groups: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Where each group starts, and all their members, for compiled code."""
    start = np.zeros(len(groups) + 1, np.int64)
    np.cumsum([len(group) for group in groups], out=start[1:])
    return start, np.asarray([x for group in groups for x in group], np.int64)


@borrowing
def parts_in(b: CutBatch, at: int) -> int:
    """How many parts a sub-graph is cut into."""
    found = 1
    for cut in range(b.cut_start[at], b.cut_start[at + 1]):
        found *= b.factors[cut]
    return found


@borrowing
def regions_at(
    g: GraphArrays, ops: Ints, axes: Ints, factors: Ints, part: int, bounds: Ints, r: Workspace
) -> None:
    """Regions of a part of what some operators make, the outer axis slowest; notes its bounds.

    The box is that of :func:`autoturbo.schedule.instances.box_at`.
    """
    for cut in range(len(axes) - 1, -1, -1):
        size, rest = divmod(g.axis_extent[g.axis_start[ops[-1]] + axes[cut]], factors[cut])
        part, own = divmod(part, factors[cut])
        bounds[cut, 0] = own * size + min(own, rest)
        bounds[cut, 1] = (own + 1) * size + min(own + 1, rest)
    clear_seen(g, ops, r.seen)
    seed_in(g, ops[-1], axes, bounds, r.low, r.high, r.seen, r.axes)
    propagate_in(g, ops, r.low, r.high, r.seen, r.box_low, r.box_high, r.axes)
