"""Operators whose extents depend on data: what they keep is known only after all was looked at.

Their extents are taken at their largest (:mod:`autoturbo.graph.unknown_extents`), and so is their
work; nothing of them can be split.
"""

from __future__ import annotations

import math

from autoturbo.graph.domain import AccessMap, DimAccess
from autoturbo.graph.operators import Work
from autoturbo.graph.table.build import ONNX, Domain, Rows, agree, everything, whole_if
from autoturbo.graph.table.spec import NodeView, OperatorSpec

_BOXES = 3
"""Rank of boxes and of scores."""

_OVERLAP = 12.0
"""Comparisons, subtractions and multiplications of one overlap of two boxes; a division beside."""


def _whole(node: NodeView, vector: float, special: float = 0.0) -> OperatorSpec:
    """Everything read and made by one core, so many operations in all."""
    shape, domain = node.shape_out(), Domain()
    dims = domain.dims(shape, whole_if(range(len(shape))))
    points = max(math.prod(shape), 1)
    others = [_other(value.shape, shape, dims) if value else None for value in node.outputs[1:]]
    inputs = [everything(value) for value in node.inputs]
    work = Work(vector=vector / points, special=special / points)
    return domain.answer(node, inputs, [AccessMap(dims), *others], work)


def _other(
    shape: tuple[int, ...], first: tuple[int, ...], dims: tuple[DimAccess, ...]
) -> AccessMap:
    """A further output, with an entry per entry of the first one's first dimension."""
    agree(shape == first[:1], f"an output of shape {shape}")
    return AccessMap(dims[:1])


def _boxes(node: NodeView) -> OperatorSpec:
    """Boxes are sorted by score; each is compared with those that are kept."""
    boxes, scores = node.shape_in(0), node.shape_in(1)
    agree(len(boxes) == len(scores) == _BOXES, "boxes and scores of three dimensions")
    lists, count = scores[0] * scores[1], boxes[1]
    kept = -(-node.shape_out()[0] // max(lists, 1))
    overlaps = float(lists * count * min(kept, count))
    return _whole(node, lists * _sorting(count) + _OVERLAP * overlaps, overlaps)


def _sorting(count: int) -> float:
    return count * max(math.log2(max(count, 1)), 1.0)


def _nonzero(node: NodeView) -> OperatorSpec:
    """A comparison and a step of the count per element; positions are written down."""
    shape = node.shape_in(0)
    return _whole(node, 2.0 * math.prod(shape) + math.prod(node.shape_out()))


def _compress(node: NodeView) -> OperatorSpec:
    """A comparison and a step of the count per condition; a copy per element."""
    return _whole(node, 2.0 * math.prod(node.shape_in(1)) + math.prod(node.shape_in(0)))


def _unique(node: NodeView) -> OperatorSpec:
    """Sorted, then each compared with the one before."""
    count = math.prod(node.shape_in(0))
    return _whole(node, _sorting(count) + count)


ROWS: Rows = {
    (ONNX, "Compress"): _compress,
    (ONNX, "NonMaxSuppression"): _boxes,
    (ONNX, "NonZero"): _nonzero,
    (ONNX, "Unique"): _unique,
}
