"""Operators that pick or place elements by index, and those that make tensors from nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from autoturbo.graph.domain import WHOLE_DIM, AccessMap, DimAccess, along, fixed
from autoturbo.graph.operators import Engine, Pattern, Work
from autoturbo.graph.table.build import (
    MICROSOFT,
    ONNX,
    SCALAR,
    Domain,
    Rows,
    agree,
    answer,
    everything,
    integer,
    positive_axis,
    shape_in,
    shape_out,
    value_in,
    whole_if,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autoturbo.graph.table.spec import NodeView, OperatorSpec, Row, ValueView


def _picked(
    node: NodeView,
    domain: Domain,
    inputs: Sequence[AccessMap | None],
    output: AccessMap,
    pattern: Pattern = Pattern.INJECTIVE,
) -> OperatorSpec:
    """The answer of an operator that moves data and computes nothing."""
    return answer(node, domain, inputs, [output], engine=Engine.MOVE, pattern=pattern)


def _gather(node: NodeView) -> OperatorSpec:
    """Rows of a table: any of them may be asked for, unless the indices are known and regular."""
    table, picks, domain = shape_in(node, 0), shape_in(node, 1), Domain()
    axis = positive_axis(integer(node, "axis", 0), len(table))
    dims = domain.dims(shape_out(node))
    end = axis + len(picks)
    agree(len(dims) == end + len(table) - axis - 1, "ranks do not add up")
    regular = _regular(value_in(node, 1), table[axis], dims[axis:end])
    row = WHOLE_DIM if regular is None else regular
    read = AccessMap((*dims[:axis], row, *dims[end:]))
    indices = None if regular is not None else AccessMap(dims[axis:end])
    return _picked(node, domain, [read, indices], AccessMap(dims))


def _regular(
    indices: ValueView | None, extent: int, dims: tuple[DimAccess, ...]
) -> DimAccess | None:
    """The access of indices known to be ``first + i * step`` along one dimension, or None."""
    if indices is None or indices.value is None or indices.value.size == 0:
        return None
    flat = np.asarray(indices.value).ravel().astype(np.int64)
    flat = np.where(flat < 0, flat + extent, flat)
    if flat.size == 1:
        return fixed(int(flat[0]))
    steps = np.diff(flat)
    if len(dims) != 1 or steps[0] == 0 or (steps != steps[0]).any():
        return None
    return along(dims[0].terms[0][0], int(steps[0]), int(flat[0]))


def _gather_elements(node: NodeView) -> OperatorSpec:
    """One index per output element; the other coordinates are the element's own."""
    source, target, domain = shape_in(node, 0), shape_out(node), Domain()
    axis = positive_axis(integer(node, "axis", 0), len(source))
    agree(shape_in(node, 1) == target, "indices and output differ in shape")
    dims = domain.dims(target)
    read = (*dims[:axis], WHOLE_DIM, *dims[axis + 1 :])
    return _picked(node, domain, [AccessMap(read), AccessMap(dims)], AccessMap(dims))


def _gather_nd(node: NodeView) -> OperatorSpec:
    """Slices found by index tuples: batch dimensions and the slices' own stay separate."""
    source, picks, domain = shape_in(node, 0), shape_in(node, 1), Domain()
    batch, depth = integer(node, "batch_dims", 0), picks[-1]
    dims = domain.dims(shape_out(node))
    shown = len(picks) - 1
    own = len(source) - batch - depth
    agree(own >= 0 and len(dims) == shown + own, "ranks do not add up")
    read = (*dims[:batch], *(WHOLE_DIM,) * depth, *dims[shown:])
    inputs = [AccessMap(read), AccessMap((*dims[:shown], WHOLE_DIM))]
    return _picked(node, domain, inputs, AccessMap(dims))


def _scatter_elements(node: NodeView) -> OperatorSpec:
    """Each part of the output looks at all updates that share its other coordinates."""
    source, picks, domain = shape_in(node, 0), shape_in(node, 1), Domain()
    axis = positive_axis(integer(node, "axis", 0), len(source))
    agree(len(picks) == len(source), "indices and data differ in rank")
    dims = domain.dims(source)
    access = AccessMap(dims)
    placed = AccessMap((*dims[:axis], WHOLE_DIM, *dims[axis + 1 :]))
    return _picked(node, domain, [access, placed, placed], access, Pattern.OPAQUE)


def _scatter_nd(node: NodeView) -> OperatorSpec:
    """Each part of the output looks at all index tuples, and at its part of the slices placed."""
    source, picks, domain = shape_in(node, 0), shape_in(node, 1), Domain()
    dims = domain.dims(source)
    slices = dims[picks[-1] :]
    agree(len(shape_in(node, 2)) == len(picks) - 1 + len(slices), "ranks do not add up")
    access = AccessMap(dims)
    placed = AccessMap((*(WHOLE_DIM,) * (len(picks) - 1), *slices))
    inputs = [access, everything(value_in(node, 1)), placed]
    return _picked(node, domain, inputs, access, Pattern.OPAQUE)


def _tensor_scatter(node: NodeView) -> OperatorSpec:
    """Rows placed behind each other from an index per sample on; the others are copied."""
    source, domain = shape_in(node, 0), Domain()
    axis = positive_axis(integer(node, "axis", -2), len(source))
    update = shape_in(node, 1)
    agree(axis > 0 and len(update) == len(source), "a dimension behind the batch expected")
    dims = domain.dims(source, whole_if([axis]))
    access = AccessMap(dims)
    placed = AccessMap((*dims[:axis], WHOLE_DIM, *dims[axis + 1 :]))
    return _picked(node, domain, [access, placed, AccessMap(dims[:1])], access, Pattern.OPAQUE)


def _gather_blocks(node: NodeView) -> OperatorSpec:
    """com.microsoft.GatherBlockQuantized: rows of a table, unpacked on the way.

    Subtract the zero point and scale, per element; the table stays packed where it is stored.
    """
    table, picks, target = shape_in(node, 0), shape_in(node, 1), shape_out(node)
    axis = positive_axis(integer(node, "gather_axis", 0), len(table))
    agree(axis == 0 and len(target) == len(picks) + len(table) - 1, "rows of a table expected")
    domain = Domain()
    dims = domain.dims(target)
    others = [everything(value) for value in node.inputs[2:]]
    inputs = [everything(value_in(node, 0)), AccessMap(dims[: len(picks)]), *others]
    return answer(node, domain, inputs, [AccessMap(dims)], Work(vector=2.0))


def _one_hot(node: NodeView) -> OperatorSpec:
    """A comparison and a selection per output; the depth is in the output's shape."""
    target, domain = shape_out(node), Domain()
    axis = positive_axis(integer(node, "axis", -1), len(target))
    dims = domain.dims(target)
    picks = AccessMap((*dims[:axis], *dims[axis + 1 :]))
    inputs = [picks, None, everything(value_in(node, 2))]
    work, pattern = Work(vector=2.0), Pattern.OUT_ELEMENTWISE_FUSABLE
    return answer(node, domain, inputs, [AccessMap(dims)], work, pattern=pattern)


def _range(node: NodeView) -> OperatorSpec:
    """``start + i * delta``: a multiplication and an addition; the limit is in the shape."""
    domain = Domain()
    dims = domain.dims(shape_out(node))
    inputs = [SCALAR, None, SCALAR]
    work = Work(vector=2.0)
    return answer(node, domain, inputs, [AccessMap(dims)], work, pattern=Pattern.INJECTIVE)


def _made(engine: Engine) -> Row:
    """A tensor that depends on no element of any input: shapes, fills, constants."""

    def row(node: NodeView) -> OperatorSpec:
        domain = Domain()
        dims = domain.dims(shape_out(node))
        output = [AccessMap(dims)]
        return answer(node, domain, [], output, engine=engine, pattern=Pattern.INJECTIVE)

    return row


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
}
