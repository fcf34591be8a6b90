"""Quantised operators of com.microsoft, as ONNX Runtime's quantiser and optimiser write them.

Those with a scale for every operand are real operators between conversions; those that quantise
while they run are an integer product between the conversion and its undoing.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto

from autoturbo.graph.expand.fused import MICROSOFT, attributes
from autoturbo.graph.expand.writer import Writer, refuse_unless

_AXIS_SINCE = 13
"""Opset since which conversions have a scale per channel."""


def real(w: Writer, position: int, scale: int, zero: int, axis: int | None = None) -> str:
    """Write the real numbers that a quantised input stands for.

    Args:
        w: where to.
        position: of the input.
        scale: position of its scale.
        zero: position of its zero point, which may be absent.
        axis: the dimension that has a scale per entry, if any has.
    """
    several = w.shape(scale) not in ((), (1,))
    given = (w.input(position), _scalar(w, scale), _scalar(w, zero) if w.has(zero) else "")
    if not several:
        return w.op("DequantizeLinear", *given)
    refuse_unless(axis is not None and w.opset >= _AXIS_SINCE, "a scale per channel")
    return w.op("DequantizeLinear", *given, axis=axis)


def _scalar(w: Writer, position: int) -> str:
    """A scale for all, without dimensions."""
    return w.op("Squeeze", w.input(position)) if w.shape(position) == (1,) else w.input(position)


def quantised(w: Writer, name: str, scale: int, zero: int) -> None:
    """Write the output of the node: real numbers quantised."""
    point = _scalar(w, zero) if w.has(zero) else ""
    w.op("QuantizeLinear", name, _scalar(w, scale), point, to=w.output(0))


def dynamic_product(w: Writer) -> None:
    """Write DynamicQuantizeMatMul: the left operand is quantised while the model runs."""
    data, scale, zero = w.several("DynamicQuantizeLinear", (w.input(0),), (None, None, None))
    _integer_product(w, (data, w.input(1), zero, w.input(3)), (scale, w.input(2)), 4)


def mixed_product(w: Writer) -> None:
    """Write MatMulIntegerToFloat: an integer product, scaled."""
    operands = (w.input(0), w.input(1), w.input(4), w.input(5))
    _integer_product(w, operands, (w.input(2), w.input(3)), 6)


def _integer_product(
    w: Writer, operands: Sequence[str], scales: tuple[str, str], bias: int
) -> None:
    product = w.cast(w.op("MatMulInteger", *operands), TensorProto.FLOAT)
    scale = w.op("Mul", *scales)
    if not w.has(bias):
        w.op("Mul", product, scale, to=w.output(0))
        return
    w.op("Add", w.op("Mul", product, scale), w.input(bias), to=w.output(0))


def gemm(w: Writer) -> None:
    """Write QGemm: a product of converted operands, a bias in steps of both scales."""
    columns = 0 if w.attribute("transB", 0) else 1
    left, right = real(w, 0, 1, 2), real(w, 3, 4, 5, columns)
    bias = ""
    if w.has(6):
        steps = w.op("Mul", _scalar(w, 1), _scalar(w, 4))
        factor = w.op("Mul", steps, w.number(w.attribute("alpha", 1.0), TensorProto.FLOAT))
        bias = w.op("Mul", w.cast(w.input(6), TensorProto.FLOAT), factor)
    to = None if w.has(7) else w.output(0)
    made = w.op("Gemm", left, right, bias, to=to, **attributes(w))
    if w.has(7):
        quantised(w, made, 7, 8)


def attention(w: Writer) -> None:
    """Write QAttention: com.microsoft.Attention of converted input and weight."""
    data, weight = real(w, 0, 3, 6), real(w, 1, 4, 7, 1)
    inputs = (data, weight, w.input(2), w.input(5), w.input(8))
    outputs = (w.output(0), w.output(1)) if w.wants(1) else (w.output(0),)
    w.several("Attention", inputs, outputs, MICROSOFT, **attributes(w))


def average_pool(w: Writer) -> None:
    """Write QLinearAveragePool and QLinearGlobalAveragePool."""
    kind, rank = w.step.node.op_type.removeprefix("QLinear"), len(w.shape(0))
    name, last = real(w, 0, 1, 2), bool(w.attribute("channels_last", 0))
    if last:
        name = w.transpose(name, 0, rank - 1, *range(1, rank - 1))
    name = w.op(kind, name, **attributes(w, "channels_last"))
    if last:
        name = w.transpose(name, 0, *range(2, rank), 1)
    quantised(w, name, 3, 4)


def softmax(w: Writer) -> None:
    """Write QLinearSoftmax along one dimension."""
    rank, axis = len(w.shape(0)), int(w.attribute("axis", -1))
    single = int(w.attribute("opset", w.opset)) >= _AXIS_SINCE or axis % rank == rank - 1
    refuse_unless(single, "a softmax over several dimensions")
    refuse_unless(w.opset >= _AXIS_SINCE or axis % rank == rank - 1, "an axis of its own")
    quantised(w, w.op("Softmax", real(w, 0, 1, 2), axis=axis), 3, 4)


def mean(w: Writer) -> None:
    """Write QLinearReduceMean."""
    name, keep = real(w, 0, 1, 2), int(w.attribute("keepdims", 1))
    rank = len(w.shape(0))
    for axis in sorted((int(a) % rank for a in w.attribute("axes", range(rank))), reverse=True):
        name = w.reduce("ReduceMean", name, axis, keep=bool(keep))
    quantised(w, name, 3, 4)


def selection(w: Writer) -> None:
    """Write QLinearWhere."""
    quantised(w, w.op("Where", w.input(0), real(w, 1, 2, 3), real(w, 4, 5, 6)), 7, 8)


def concatenation(w: Writer) -> None:
    """Write QLinearConcat: scale and zero point of the result, then each operand with its own."""
    count = len(w.step.inputs)
    names = [real(w, k, k + 1, k + 2) for k in range(2, count, 3)]
    quantised(w, w.concat(*names, axis=int(w.attribute("axis", 0))), 0, 1)


def convolution(w: Writer) -> None:
    """Write com.microsoft.QLinearConv: ONNX's, between transpositions where channels are last."""
    rank, last = len(w.shape(0)), bool(w.attribute("channels_last", 0))
    names = [w.input(k) for k in range(len(w.step.inputs))]
    if last:
        names[0] = w.transpose(names[0], 0, rank - 1, *range(1, rank - 1))
    to = None if last else w.output(0)
    made = w.op("QLinearConv", *names, to=to, **attributes(w, "channels_last"))
    if last:
        w.transpose(made, 0, *range(2, rank), 1, to=w.output(0))
