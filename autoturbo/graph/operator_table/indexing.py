"""Operators that pick or place elements by index, and those that make tensors from nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoturbo.graph.domain import WHOLE_DIM, AccessMap, DimAccess, along, merged
from autoturbo.graph.indices import counted_from_front, steps_of
from autoturbo.graph.operator_table.build import (
    MICROSOFT,
    ONNX,
    SCALAR,
    Domain,
    NodeView,
    OperatorSpec,
    Row,
    Rows,
    ValueView,
    agree,
    everything,
    moved,
    positive_axis,
    whole_if,
)
from autoturbo.graph.operators import Engine, Pattern, Work


def _gather(node: NodeView) -> OperatorSpec:
    """Describe Gather: any row may be read, unless the indices are known and regular."""
    table, picks, domain = node.shape_in(0), node.shape_in(1), Domain()
    axis = positive_axis(node.integer("axis", 0), len(table))
    end, shape = axis + len(picks), node.shape_out()
    agree(len(shape) == end + len(table) - axis - 1, "ranks do not add up")
    before = _numbered(domain, shape[:axis])
    lookup = _lookup(domain, node.value_in(1), (table[axis],), shape[axis:end])
    after = _numbered(domain, shape[end:])
    read = AccessMap((*before, *lookup.rows, *after))
    output_map = AccessMap((*before, *lookup.dims, *after))
    return moved(node, domain, [read, lookup.access()], [output_map])


@dataclass(frozen=True, slots=True)
class _Lookup:
    """Accesses of indices, and of the dimensions that they index.

    Attributes:
        dims: Accesses of the dimensions of the indices.
        rows: Per component of an index, the access of the dimension that it counts along.
        read: Whether the indices say more than that, and so are read.
    """

    dims: tuple[DimAccess, ...]
    rows: tuple[DimAccess, ...]
    read: bool

    def access(self, *components: DimAccess) -> AccessMap | None:
        """Return how the indices are read; None if the steps of the rows replace them."""
        return AccessMap((*self.dims, *components)) if self.read else None


def _numbered(domain: Domain, shape: Sequence[int]) -> tuple[DimAccess, ...]:
    """Add one axis per dimension, numbered on from the existing axes."""
    return tuple(along(domain.axis(f"d{len(domain.axes)}", extent)) for extent in shape)


def _lookup(
    domain: Domain, indices: ValueView | None, extents: tuple[int, ...], shape: Sequence[int]
) -> _Lookup:
    """Return how indices are addressed, and which axes they count along if known and regular.

    Args:
        domain: Gets the axes.
        indices: One index per position, or several components of it in a last dimension.
        extents: Extents of the dimensions that the components count along.
        shape: Shape of the indices, without a dimension of components.
    """
    if indices is None or indices.value is None or indices.value.size == 0:
        return _Lookup(_numbered(domain, shape), (WHOLE_DIM,) * len(extents), read=True)
    positions = np.asarray(indices.value).reshape(*shape, len(extents))
    steps = steps_of(counted_from_front(positions, extents))
    dims: list[DimAccess] = []
    terms: list[_Term] = []
    for digits, inner in zip(steps.digits, steps.rest.shape, strict=False):
        axes = [(domain.axis(f"d{len(domain.axes)}", extent), extent) for extent, _ in digits]
        terms += [(axis, step) for (axis, _), (_, step) in zip(axes, digits, strict=True)]
        if inner > 1 or not axes:
            axes.append((domain.axis(f"d{len(domain.axes)}", inner), inner))
        dims.append(merged(*axes))
    rows = [_row(domain, terms, part, steps.rest[..., part]) for part in range(len(extents))]
    return _Lookup(tuple(dims), tuple(rows), read=steps.rest.size > len(extents))


_Term = tuple[int, tuple[int, ...]]
"""An axis and the step of an index along it, per component."""


def _row(domain: Domain, terms: list[_Term], part: int, rest: np.ndarray) -> DimAccess:
    """Return the access of an index component: regular steps, and the reach of the rest in full."""
    terms_of_part = tuple((axis, step[part]) for axis, step in terms if step[part])
    low, high = int(rest.min()), int(rest.max())
    if low == high:
        return DimAccess(terms_of_part, low)
    if not terms_of_part:
        return WHOLE_DIM
    reach = domain.reduction(f"w{len(domain.axes)}", high - low + 1)
    return DimAccess((*terms_of_part, (reach, 1)), low)


def _gather_elements(node: NodeView) -> OperatorSpec:
    """Describe GatherElements: one index per output; other coordinates are the element's."""
    source, target, domain = node.shape_in(0), node.shape_out(), Domain()
    axis = positive_axis(node.integer("axis", 0), len(source))
    agree(node.shape_in(1) == target, "indices and output differ in shape")
    lookup = _lookup(domain, node.value_in(1), (source[axis],), target)
    read = (*lookup.dims[:axis], *lookup.rows, *lookup.dims[axis + 1 :])
    return moved(node, domain, [AccessMap(read), lookup.access()], [AccessMap(lookup.dims)])


def _gather_nd(node: NodeView) -> OperatorSpec:
    """Describe GatherND: batch dimensions and the slices' dimensions stay separate axes."""
    source, picks, domain = node.shape_in(0), node.shape_in(1), Domain()
    batch, depth = node.integer("batch_dims", 0), picks[-1]
    shape, shown = node.shape_out(), len(picks) - 1
    slice_rank = len(source) - batch - depth
    agree(slice_rank >= 0 and len(shape) == shown + slice_rank, "ranks do not add up")
    extents = source[batch : batch + depth]
    lookup = _lookup(domain, node.value_in(1), extents, shape[:shown])
    after = _numbered(domain, shape[shown:])
    read = AccessMap((*lookup.dims[:batch], *lookup.rows, *after))
    output_map = AccessMap((*lookup.dims, *after))
    return moved(node, domain, [read, lookup.access(WHOLE_DIM)], [output_map])


def _scatter_elements(node: NodeView) -> OperatorSpec:
    """Describe ScatterElements: each output part reads all updates that share its coordinates."""
    source, picks, domain = node.shape_in(0), node.shape_in(1), Domain()
    axis = positive_axis(node.integer("axis", 0), len(source))
    agree(len(picks) == len(source), "indices and data differ in rank")
    dims = domain.dims(source)
    access = AccessMap(dims)
    placed = AccessMap((*dims[:axis], WHOLE_DIM, *dims[axis + 1 :]))
    return moved(node, domain, [access, placed, placed], [access], Pattern.OPAQUE)


def _scatter_nd(node: NodeView) -> OperatorSpec:
    """Describe ScatterND: each output part reads all index tuples and its part of the slices."""
    source, picks, domain = node.shape_in(0), node.shape_in(1), Domain()
    dims = domain.dims(source)
    slices = dims[picks[-1] :]
    agree(len(node.shape_in(2)) == len(picks) - 1 + len(slices), "ranks do not add up")
    access = AccessMap(dims)
    placed = AccessMap((*(WHOLE_DIM,) * (len(picks) - 1), *slices))
    inputs = [access, everything(node.value_in(1)), placed]
    return moved(node, domain, inputs, [access], Pattern.OPAQUE)


def _tensor_scatter(node: NodeView) -> OperatorSpec:
    """Describe TensorScatter: rows placed from a per-sample index on; the others are copied."""
    source, domain = node.shape_in(0), Domain()
    axis = positive_axis(node.integer("axis", -2), len(source))
    update = node.shape_in(1)
    agree(axis > 0 and len(update) == len(source), "a dimension behind the batch expected")
    dims = domain.dims(source, whole_if([axis]))
    access = AccessMap(dims)
    placed = AccessMap((*dims[:axis], WHOLE_DIM, *dims[axis + 1 :]))
    return moved(node, domain, [access, placed, AccessMap(dims[:1])], [access], Pattern.OPAQUE)


def _gather_blocks(node: NodeView) -> OperatorSpec:
    """Describe com.microsoft.GatherBlockQuantized: rows of a table, unpacked when read.

    Returns:
        One point per output element, which subtracts the zero point and scales; the table is read
        as it is packed.
    """
    table, picks, target = node.shape_in(0), node.shape_in(1), node.shape_out()
    axis = positive_axis(node.integer("gather_axis", 0), len(table))
    agree(axis == 0 and len(target) == len(picks) + len(table) - 1, "rows of a table expected")
    domain = Domain()
    dims = domain.dims(target)
    parameter_maps = [everything(value) for value in node.inputs[2:]]
    inputs = [everything(node.value_in(0)), AccessMap(dims[: len(picks)]), *parameter_maps]
    return domain.answer(node, inputs, [AccessMap(dims)], Work(vector=2.0))


def _one_hot(node: NodeView) -> OperatorSpec:
    """Describe OneHot: a comparison and a selection per output."""
    target, domain = node.shape_out(), Domain()
    axis = positive_axis(node.integer("axis", -1), len(target))
    dims = domain.dims(target)
    picks = AccessMap((*dims[:axis], *dims[axis + 1 :]))
    inputs = [picks, None, everything(node.value_in(2))]
    work, pattern = Work(vector=2.0), Pattern.OUT_ELEMENTWISE_FUSABLE
    return domain.answer(node, inputs, [AccessMap(dims)], work, pattern=pattern)


def _range(node: NodeView) -> OperatorSpec:
    """Describe Range, ``start + i * delta``: a multiplication and an addition per output."""
    domain = Domain()
    dims = domain.dims(node.shape_out())
    inputs = [SCALAR, None, SCALAR]
    work = Work(vector=2.0)
    return domain.answer(node, inputs, [AccessMap(dims)], work, pattern=Pattern.INJECTIVE)


def _made(engine: Engine) -> Row:
    """Return the row of an operator that reads no elements: shapes, fills, constants."""

    def row(node: NodeView) -> OperatorSpec:
        domain = Domain()
        dims = domain.dims(node.shape_out())
        output = [AccessMap(dims)]
        return domain.answer(node, [], output, engine=engine, pattern=Pattern.INJECTIVE)

    return row


# ---------------------------------------------------------------------- extents that depend on data
#
# What these keep is known only after all was looked at.
# Their extents are taken at their largest (:mod:`autoturbo.graph.importer.shapes`), and so is their
# work; nothing of them can be split.


_BOXES = 3
"""Rank of boxes and of scores."""

_OVERLAP = 12.0
"""Comparisons, subtractions and multiplications of one overlap of two boxes; a division beside."""


def _whole(node: NodeView, vector: float, special: float = 0.0) -> OperatorSpec:
    """Describe an operator that runs whole on one core, with the given total operations."""
    shape, domain = node.shape_out(), Domain()
    dims = domain.dims(shape, whole_if(range(len(shape))))
    points = max(math.prod(shape), 1)
    further_maps = [
        _other(value.shape, shape, dims) if value else None for value in node.outputs[1:]
    ]
    inputs = [everything(value) for value in node.inputs]
    work = Work(vector=vector / points, special=special / points)
    return domain.answer(node, inputs, [AccessMap(dims), *further_maps], work)


def _other(
    shape: tuple[int, ...], first: tuple[int, ...], dims: tuple[DimAccess, ...]
) -> AccessMap:
    """Return the access of a further output, with one entry per row of the first output."""
    agree(shape == first[:1], f"an output of shape {shape}")
    return AccessMap(dims[:1])


def _boxes(node: NodeView) -> OperatorSpec:
    """Describe NonMaxSuppression: boxes are sorted by score and compared with those kept."""
    boxes, scores = node.shape_in(0), node.shape_in(1)
    agree(len(boxes) == len(scores) == _BOXES, "boxes and scores of three dimensions")
    lists, count = scores[0] * scores[1], boxes[1]
    kept = -(-node.shape_out()[0] // max(lists, 1))
    overlaps = float(lists * count * min(kept, count))
    return _whole(node, lists * _sorting(count) + _OVERLAP * overlaps, overlaps)


def _sorting(count: int) -> float:
    return count * max(math.log2(max(count, 1)), 1.0)


def _nonzero(node: NodeView) -> OperatorSpec:
    """Describe NonZero: a comparison and a count step per element; positions are written."""
    shape = node.shape_in(0)
    return _whole(node, 2.0 * math.prod(shape) + math.prod(node.shape_out()))


def _compress(node: NodeView) -> OperatorSpec:
    """Describe Compress: a comparison and a count step per condition; a copy per element."""
    return _whole(node, 2.0 * math.prod(node.shape_in(1)) + math.prod(node.shape_in(0)))


def _unique(node: NodeView) -> OperatorSpec:
    """Describe Unique: a sort, then a comparison with the element before."""
    count = math.prod(node.shape_in(0))
    return _whole(node, _sorting(count) + count)


ROWS: Rows = {
    (ONNX, "Gather"): _gather,
    (ONNX, "GatherElements"): _gather_elements,
    (ONNX, "GatherND"): _gather_nd,
    (ONNX, "Scatter"): _scatter_elements,
    (ONNX, "ScatterElements"): _scatter_elements,
    (ONNX, "ScatterND"): _scatter_nd,
    (ONNX, "OneHot"): _one_hot,
    (ONNX, "Range"): _range,
    (ONNX, "Shape"): _made(Engine.NONE),
    (ONNX, "Size"): _made(Engine.NONE),
    (ONNX, "Constant"): _made(Engine.NONE),
    (ONNX, "ConstantOfShape"): _made(Engine.MOVE),
    (ONNX, "EyeLike"): _made(Engine.MOVE),
    (ONNX, "TensorScatter"): _tensor_scatter,
    (MICROSOFT, "GatherBlockQuantized"): _gather_blocks,
    (ONNX, "Compress"): _compress,
    (ONNX, "NonMaxSuppression"): _boxes,
    (ONNX, "NonZero"): _nonzero,
    (ONNX, "Unique"): _unique,
}
