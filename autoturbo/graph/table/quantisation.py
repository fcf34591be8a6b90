"""Conversions between real and quantised values, and element-wise operators on quantised ones."""

from __future__ import annotations

from collections.abc import Callable

from autoturbo.graph.domain import AccessMap, DimAccess, along, merged
from autoturbo.graph.operators import Pattern, Work
from autoturbo.graph.table.build import (
    MICROSOFT,
    ONNX,
    SCALAR,
    Domain,
    Rows,
    agree,
    broadcast,
    per_channel,
    positive_axis,
)
from autoturbo.graph.table.spec import NodeView, OperatorSpec, Row, ValueView

Scale = Callable[[ValueView | None], AccessMap | None]
"""How scales and zero points are addressed."""


def _linear(work: Work) -> Row:
    """One scale for all, one per channel along ``axis``, or one per block of it."""

    def row(node: NodeView) -> OperatorSpec:
        shape, domain = node.shape_in(0), Domain()
        axis = node.integer("axis", 1)
        if node.integer("block_size", 0):
            access, scale = _blocked(node, domain, positive_axis(axis, len(shape)))
        else:
            access, scale = _per_axis(shape, domain, axis)
        inputs = [access, scale(node.value_in(1)), scale(node.value_in(2))]
        return domain.answer(node, inputs, [access], work, pattern=Pattern.BROADCAST)

    return row


def _per_axis(shape: tuple[int, ...], domain: Domain, axis: int) -> tuple[AccessMap, Scale]:
    dims = domain.dims(shape)

    def scale(value: ValueView | None) -> AccessMap | None:
        if value is None or value.shape in ((), (1,)):
            return per_channel(value, DimAccess(), 1)
        dim = positive_axis(axis, len(shape))
        return per_channel(value, dims[dim], shape[dim])

    return AccessMap(dims), scale


def _blocked(node: NodeView, domain: Domain, axis: int) -> tuple[AccessMap, Scale]:
    """The blocked dimension is (block, place in the block); a ragged last block is refused."""
    shape, block = node.shape_in(0), node.integer("block_size", 0)
    agree(shape[axis] % block == 0, f"{shape[axis]} elements in blocks of {block}")
    blocks = shape[axis] // block
    dims = list(domain.dims([blocks if i == axis else e for i, e in enumerate(shape)]))
    scaled = AccessMap(tuple(dims))
    place = domain.axis("place", block)
    dims[axis] = merged((axis, blocks), (place, block))
    return AccessMap(tuple(dims)), lambda value: None if value is None else scaled


def _dynamic(node: NodeView) -> OperatorSpec:
    """The scale depends on every element; so do all outputs.

    Minimum, maximum, round, add, saturate per element; the division by the scale.
    """
    domain = Domain()
    shape = node.shape_in(0)
    access = AccessMap(tuple(along(domain.whole(f"d{i}", e)) for i, e in enumerate(shape)))
    work = Work(vector=5.0, special=1.0)
    return domain.answer(node, [access], [access, SCALAR, SCALAR], work)


def _quantised(vector: float, special: float = 0.0) -> Row:
    """An element-wise operator whose inputs all broadcast; scales are scalars among them."""

    def row(node: NodeView) -> OperatorSpec:
        shape, domain = node.shape_out(), Domain()
        dims = domain.dims(shape)
        inputs = [None if v is None else broadcast(v.shape, shape, dims) for v in node.inputs]
        work = Work(vector=vector, special=special)
        return domain.answer(node, inputs, [AccessMap(dims)], work, pattern=Pattern.BROADCAST)

    return row


# Back to real values: subtract the zero point, multiply (2). To quantised values: round, add the
# zero point, saturate (3), and the division by the scale.
ROWS: Rows = {
    (ONNX, "QuantizeLinear"): _linear(Work(vector=3.0, special=1.0)),
    (ONNX, "DequantizeLinear"): _linear(Work(vector=2.0)),
    (ONNX, "DynamicQuantizeLinear"): _dynamic,
    (MICROSOFT, "QuantizeLinear"): _linear(Work(vector=3.0, special=1.0)),
    (MICROSOFT, "DequantizeLinear"): _linear(Work(vector=2.0)),
    # Two operands back, the operation, the result (scaled by multiplication).
    (MICROSOFT, "QLinearAdd"): _quantised(9.0),
    (MICROSOFT, "QLinearMul"): _quantised(9.0),
    # One operand back, sigmoid (1 and 2) or leaky relu (2), the result.
    (MICROSOFT, "QLinearSigmoid"): _quantised(7.0, 2.0),
    (MICROSOFT, "QLinearLeakyRelu"): _quantised(8.0),
}
