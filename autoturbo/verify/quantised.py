"""Keeps a DequantizeLinear beside the node that reads it, so that runtimes make one node of them.

ONNX Runtime runs ``DequantizeLinear -> node -> QuantizeLinear`` as one integer node where the three
follow each other. A part that cuts or joins values in between would end that: it cuts the quantised
values instead, and quantises again what it is given, which gives the very same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx import NodeProto, TensorProto, helper

from autoturbo.graph.model_nodes import ModelNode, ModelNodes, Operand

DEQUANTIZE = "DequantizeLinear"

_AXIS = 1
"""The dimension along which scales differ where a node does not say."""

_ACTIVATIONS = frozenset((TensorProto.UINT8, TensorProto.INT8))
"""Types that every version of QuantizeLinear gives."""

_EXACT = frozenset((TensorProto.FLOAT, TensorProto.FLOAT16))
"""Types of real values that tell any two bytes apart, also after a division by the scale."""


@dataclass(frozen=True, slots=True, eq=False)
class Dequantised:
    """How a constant is made from a quantised one.

    Attributes:
        proto: the node that makes it.
        inputs: of the node: the quantised constant, its scale, and its zero point if it has one.
    """

    proto: NodeProto
    inputs: tuple[Operand, ...]


def is_dequantize(proto: NodeProto) -> bool:
    """Return whether a node is ONNX's DequantizeLinear with a scale per tensor or per axis."""
    blocks = any(item.name == "block_size" and item.i for item in proto.attribute)
    return proto.op_type == DEQUANTIZE and proto.domain in ("", "ai.onnx") and not blocks


def axis_of(proto: NodeProto, rank: int) -> int:
    """Return the dimension along which the scales of a DequantizeLinear differ."""
    return next((int(i.i) for i in proto.attribute if i.name == "axis"), _AXIS) % max(rank, 1)


def dequantised_constants(nodes: ModelNodes) -> Mapping[str, Dequantised]:
    """Return how each constant that a DequantizeLinear makes from stored ones is made, by name."""
    found = {}
    for proto in nodes.constants:
        stored = [nodes.stored.get(name) for name in proto.input if name]
        if is_dequantize(proto) and all(tensor is not None for tensor in stored):
            inputs = tuple(_operand(tensor) for tensor in stored if tensor is not None)
            found[proto.output[0]] = Dequantised(proto, inputs)
    return found


def _operand(tensor: TensorProto) -> Operand:
    return Operand(tensor.name, -1, tuple(tensor.dims), tensor.data_type, True, None)  # noqa: FBT003


def quantisation_of(node: ModelNode) -> tuple[Operand, Operand] | None:
    """Return scale and zero point with which the result of a node may be quantised again.

    None where the node is no DequantizeLinear of bytes with one constant scale.
    """
    given = [value for value in node.inputs if value is not None]
    if not is_dequantize(node.proto) or len(given) != 3:  # noqa: PLR2004 - with a zero point
        return None
    values, scale, zero = given
    single = all(value.constant and value.shape in ((), (1,)) for value in (scale, zero))
    exact = values.element in _ACTIVATIONS and scale.element in _EXACT
    return (scale, zero) if single and exact else None


def plain_dequantize(proto: NodeProto, inputs: list[str], output: str) -> NodeProto:
    """Return a DequantizeLinear with other names."""
    made = helper.make_node(DEQUANTIZE, inputs, [output])
    made.attribute.extend(proto.attribute)
    return made
