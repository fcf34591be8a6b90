"""Boxes of a sub-graph's last operator, and the regions of tensors and loops that each needs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from autoturbo.caches import remembered
from autoturbo.compiled import compiled
from autoturbo.graph.arrays import GraphArrays, Ints, Regions, clear_seen, propagate_in, seed_in
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.partition.split import Split, operators_of, sink, workspace


@dataclass(frozen=True, slots=True)
class Cut:
    """A box of the domain of a sub-graph's last operator.

    Attributes:
        axes: The axes that are split, outermost first.
        bounds: First step and one past the last along each.
    """

    axes: tuple[int, ...]
    bounds: tuple[tuple[int, int], ...]


WHOLE: Final = Cut((), ())


@remembered(1 << 16)
def external_inputs(context: SchedulingContext, layers: tuple[int, ...]) -> tuple[int, ...]:
    """Return the tensors that a sub-graph reads and does not make, in order of first use."""
    inner_tensors = {t for layer in layers for t in context.layers[layer].outputs}
    read = (t for layer in layers for t in context.layers[layer].inputs)
    return tuple(dict.fromkeys(t for t in read if t not in inner_tensors))


def part_bounds(extent: int, factor: int) -> list[tuple[int, int]]:
    """Return contiguous parts of near-equal length that cover ``range(extent)``, larger first."""
    size, rest = divmod(extent, factor)
    return list(itertools.pairwise(n * size + min(n, rest) for n in range(factor + 1)))


def boxes_of(context: SchedulingContext, layers: tuple[int, ...], split: Split) -> list[Cut]:
    """Return the boxes that a split makes, the outer axis slowest."""
    axes, operator = tuple(axis for axis, _ in split.axes), sink(context, layers)
    bounds = (part_bounds(operator.axes[axis].extent, factor) for axis, factor in split.axes)
    return [Cut(axes, box) for box in itertools.product(*bounds)]


def box_regions(context: SchedulingContext, layers: Sequence[int], cut: Cut = WHOLE) -> Regions:
    """Return the regions of all tensors and loops that one box of a sub-graph needs."""
    regions, nothing = Regions.of(context.arrays), np.zeros(0, np.int64)
    _find(context, operators_of(context, layers), [cut], regions, (nothing, nothing, nothing))
    return regions


def regions_at(
    context: SchedulingContext, ops: Ints, boxes: Sequence[Cut], places: tuple[Ints, Ints, Ints]
) -> tuple[Ints, Ints, Ints]:
    """Return each box's regions of some loops and dimensions, and the tensors that it accesses.

    Args:
        context: The model on the target.
        ops: Operators of a sub-graph, in order.
        boxes: Boxes of the domain of the last one, along the same axes.
        places: Positions of loops, of dimensions and of tensors in the context's arrays.

    Returns:
        ``(boxes, loops, 2)``, ``(boxes, dimensions, 2)`` and ``(boxes, tensors)``.
    """
    regions = _find(context, ops, boxes, workspace(context).regions, places)
    loops, dims, _ = map(len, places)
    return regions[:, :loops], regions[:, loops : loops + dims], regions[:, loops + dims :, 1]


def _find(
    context: SchedulingContext,
    ops: Ints,
    boxes: Sequence[Cut],
    regions: Regions,
    places: tuple[Ints, Ints, Ints],
) -> Ints:
    """Compute the regions that boxes need.

    Args:
        context: The model on the target.
        ops: Operators of the sub-graph, in order.
        boxes: Boxes of its last operator's domain, all along the same axes.
        regions: Output: those of the last box.
        places: Positions of loops, of dimensions and of tensors in the context's arrays.

    Returns:
        Begin and end at the loops, then at the dimensions, and in the last column 1 for each tensor
        that is touched: ``(boxes, places, 2)``.
    """
    axes = np.asarray(boxes[0].axes, np.int64)
    bounds = np.asarray([box.bounds for box in boxes], np.int64).reshape(len(boxes), len(axes), 2)
    needed = np.zeros((len(boxes), sum(map(len, places)), 2), np.int64)
    _find_regions(context.arrays, ops, axes, bounds, regions, places, needed)
    return needed


@compiled
def _find_regions(
    g: GraphArrays,
    ops: Ints,
    axes: Ints,
    boxes: Ints,
    regions: Regions,
    places: tuple[Ints, Ints, Ints],
    found: Ints,
) -> None:
    loops, dims, tensors = places
    for bounds, row in zip(boxes, found):  # noqa: B905 (compiled code takes no keyword here)
        clear_seen(g, ops, regions.seen)
        seed_in(g, ops[-1], axes, bounds, regions)
        propagate_in(g, ops, regions)
        for place, loop in enumerate(loops):
            row[place, 0], row[place, 1] = regions.box_low[loop], regions.box_high[loop]
        for place, dim in enumerate(dims, len(loops)):
            row[place, 0], row[place, 1] = regions.low[dim], regions.high[dim]
        for place, tensor in enumerate(tensors, len(loops) + len(dims)):
            row[place, 1] = regions.seen[tensor]
