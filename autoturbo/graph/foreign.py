"""Output types of ONNX Runtime's own operators (mostly ``com.microsoft``), unknown to ONNX itself.

Those that optimised and quantised models are full of: each has the shape of its first input, of a
standard operator, or of a matrix product.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TypeProto

from autoturbo.graph.source import domain_of
from autoturbo.graph.values import Step, Value, element_type, tensor_type

DOMAIN = "com.microsoft"

Shape = tuple[int, ...]


def foreign_types(step: Step) -> dict[str, TypeProto]:
    """Types of the outputs of a ``com.microsoft`` node, as far as they are known.

    Args:
        step: the node; its outputs need not be filled in.
    """
    rules = {DOMAIN: _RULES, "": _WITHOUT_DOMAIN}.get(domain_of(step.node), {})
    rule = rules.get(step.node.op_type)
    present = [value for value in step.inputs if value is not None]
    if rule is None or not present or any(value.shape is None for value in present):
        return {}
    try:
        shape = rule(step)
    except (LookupError, ValueError, TypeError):
        return {}
    kind = tensor_type(_element(step), shape)
    alike = (0, _SUM) if step.node.op_type in _SKIP else (0,)
    return {name: kind for k, name in enumerate(step.node.output) if name and k in alike}


_SKIP = ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
_SUM = 3
"""Output of the skip normalisations that holds the sum, of the same shape as the first."""

_TYPE_FROM = {"QuantizeLinear": 2, "DequantizeLinear": 1, "GatherBlockQuantized": 2}
"""Inputs whose element type the output has, where it is not the first one's."""


def _element(step: Step) -> int:
    return element_type(_value(step, _TYPE_FROM.get(step.node.op_type, 0)).type)


def _value(step: Step, position: int) -> Value:
    value = step.inputs[position]
    if value is None:
        raise LookupError(position)
    return value


def _shape(step: Step, position: int) -> Shape:
    return _value(step, position).shape or ()


def _integer(step: Step, name: str) -> int:
    return next((int(a.i) for a in step.node.attribute if a.name == name), 0)


def _as_first(step: Step) -> Shape:
    return _shape(step, 0)


def _quantised_pair(step: Step) -> Shape:
    """Operands are values, scale and zero point each."""
    return np.broadcast_shapes(_shape(step, 0), _shape(step, 3))


def _product(step: Step, turned: tuple[str, str]) -> Shape:
    """A matrix product of which either operand may be transposed."""
    left, right = (
        (*shape[:-2], shape[-1], shape[-2]) if _integer(step, flag) else shape
        for shape, flag in zip((_shape(step, 0), _shape(step, 1)), turned, strict=True)
    )
    if left[-1] != right[-2]:
        raise ValueError(step.name)
    return (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])


def _matmul(step: Step) -> Shape:
    return _product(step, ("transA", "transB"))


def _n_bits(step: Step) -> Shape:
    return (*_shape(step, 0)[:-1], _integer(step, "N"))


def _attention(step: Step) -> Shape:
    """``[batch, sequence, hidden]``: the packed weight makes query, key and value."""
    return (*_shape(step, 0)[:-1], _shape(step, 1)[-1] // 3)


def _multi_head(step: Step) -> Shape:
    """``[batch, sequence, hidden of the value]``, the value as ``[batch, sequence, hidden]``."""
    query, value = _shape(step, 0), _shape(step, 2)
    if len(query) != 3 or len(value) != 3:  # noqa: PLR2004 - packed forms say less
        raise ValueError(step.name)
    return (*query[:-1], value[-1])


def _gathered_blocks(step: Step) -> Shape:
    """Rows of a table; bytes hold two numbers of four bits unless they are eight wide."""
    table, picks = _shape(step, 0), _shape(step, 1)
    each = 8 // (_integer(step, "bits") or 4) if _value(step, 0).dtype == "uint8" else 1
    return (*picks, *table[1:-1], table[-1] * each)


_RULES: dict[str, Callable[[Step], Shape]] = {
    **dict.fromkeys(("Gelu", "FastGelu", "BiasGelu", "QuickGelu", "RotaryEmbedding"), _as_first),
    **dict.fromkeys((*_SKIP, "MoE", "QMoE"), _as_first),
    "GatherBlockQuantized": _gathered_blocks,
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "GroupQueryAttention"), _as_first),
    **dict.fromkeys(("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"), _as_first),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), _quantised_pair),
    "FusedMatMul": _matmul,
    "FusedGemm": _matmul,
    "MatMulNBits": _n_bits,
    "Attention": _attention,
    "MultiHeadAttention": _multi_head,
}

_WITHOUT_DOMAIN: dict[str, Callable[[Step], Shape]] = dict.fromkeys(
    ("SimplifiedLayerNormalization", "LayerNormalization"), _as_first
)
"""ONNX Runtime's own operators that bear no domain: unknown to ONNX, or to earlier opsets of it."""
