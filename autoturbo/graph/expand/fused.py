"""Fused and quantised operators of com.microsoft, as ONNX Runtime's optimiser writes them.

Fused ones have a layout or operands that the operator table lacks. Quantised ones with a scale for
every operand are real operators between conversions; those that quantise while they run are an
integer product between the conversion and its undoing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from autoturbo.graph.expand.writer import Writer, one_operator_unless, refuse_unless
from autoturbo.graph.node_builder import attributes_of
from autoturbo.graph.operator_table.build import MICROSOFT

_ACTIVATIONS = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}
"""Attributes of activations, in the order in which a fused node lists them."""


def activated(w: Writer, name: str, to: str | None) -> str:
    """Write the activation that a fused node names."""
    kind = w.attribute("activation", "")
    if not kind:
        return w.op("Identity", name, to=to)
    numbers = [float(x) for x in w.attribute("activation_params", [])]
    if kind == "Clip":
        element = w.element()
        return w.op("Clip", name, *(w.number(x, element) for x in numbers), to=to)
    given: dict[str, Any] = dict(zip(_ACTIVATIONS.get(kind, ()), numbers, strict=False))
    return w.op(kind, name, to=to, **given)


def matmul(w: Writer) -> None:
    """Write FusedMatMul where a batch dimension is moved behind the rows."""
    flips = [bool(w.attribute(f"transBatch{side}", 0)) for side in "AB"]
    one_operator_unless(any(flips))
    names = []
    for position, (flip, side) in enumerate(zip(flips, "AB", strict=True)):
        rank = len(w.shape(position))
        order = list(range(rank))
        if flip:
            order = [*order[1:-1], 0, rank - 1]
        if w.attribute(f"trans{side}", 0):
            order[-2:] = order[:-3:-1]
        plain = order == sorted(order)
        names.append(w.input(position) if plain else w.transpose(w.input(position), *order))
    product = w.op("MatMul", *names)
    w.op("Mul", product, w.number(w.attribute("alpha", 1.0), w.element()), to=w.output(0))


def convolution(w: Writer) -> None:
    """Write FusedConv: a convolution, an optional addend, then the activation."""
    plain = attributes_of(w.step.node, "activation", "activation_params")
    convolved = w.op("Conv", *(w.input(k) for k in range(3)), **plain)
    activated(w, w.op("Add", convolved, w.input(3)) if w.has(3) else convolved, w.output(0))


def channels_last(w: Writer) -> None:
    """Write NhwcConv and NhwcFusedConv: a convolution between transpositions."""
    rank = len(w.shape(0))
    plain = attributes_of(w.step.node, "activation", "activation_params")
    data = _first(w, w.input(0), rank)
    weight = w.input(1)
    channels = w.shape(0)[-1] // int(w.attribute("group", 1))
    if w.step.node.op_type == "NhwcConv" and w.shape(1)[-1] == channels != w.shape(1)[1]:
        weight = _first(w, weight, rank)
    convolved = w.op("Conv", data, weight, w.input(2), **plain)
    if w.has(3):
        convolved = w.op("Add", convolved, _first(w, w.input(3), rank))
    _last(w, activated(w, convolved, None), rank, w.output(0))


def max_pool(w: Writer) -> None:
    """Write NhwcMaxPool: a pool between transpositions."""
    rank = len(w.shape(0))
    pooled = w.op("MaxPool", _first(w, w.input(0), rank), **attributes_of(w.step.node))
    _last(w, pooled, rank, w.output(0))


def _first(w: Writer, name: str, rank: int) -> str:
    """Move the channels from the last dimension to the second."""
    return w.transpose(name, 0, rank - 1, *range(1, rank - 1))


def _last(w: Writer, name: str, rank: int, to: str | None = None) -> str:
    return w.transpose(name, 0, *range(2, rank), 1, to=to)


def group_norm(w: Writer) -> None:
    """Write GroupNorm and SkipGroupNorm: each group normalised, scaled, maybe through SiLU."""
    skip = w.step.node.op_type == "SkipGroupNorm"
    refuse_unless(w.shape(1) == w.shape(2), "scale and shift of different extents")
    name, rank, last = w.input(0), len(w.shape(0)), bool(w.attribute("channels_last", 1))
    if skip:
        name = w.op("Add", name, _skipped(w, rank, last), to=None if w.has(4) else w.output(1))
    if skip and w.has(4):
        bias = w.input(4) if last else w.reshape(w.input(4), -1, *(1,) * (rank - 2))
        name = w.op("Add", name, bias, to=w.output(1))
    if last:
        name = _first(w, name, rank)
    channels, spatial = _extents(w, last=last)
    groups, element = int(w.attribute("groups", 1)), w.element()
    ones, zeros = (_filled(w, groups, value, element) for value in (1.0, 0.0))
    name = w.op(
        "InstanceNormalization", w.reshape(name, 0, groups, -1), ones, zeros,
        epsilon=w.attribute("epsilon", 1e-5),
    )  # fmt: skip
    name = w.reshape(name, 0, channels, *spatial)
    for op_type, position in (("Mul", 1), ("Add", 2)):
        name = w.op(op_type, name, _per_channel(w, position, element, rank))
    if w.attribute("activation", 0):
        name = w.op("Mul", name, w.op("Sigmoid", name))
    if last:
        _last(w, name, rank, w.output(0))
    else:
        w.op("Identity", name, to=w.output(0))


def _extents(w: Writer, *, last: bool) -> tuple[int, tuple[int, ...]]:
    """Return the number of channels and the spatial extents."""
    shape = w.shape(0)
    return (shape[-1], shape[1:-1]) if last else (shape[1], shape[2:])


def _filled(w: Writer, count: int, value: float, element: int) -> str:
    return w.constant(np.full(count, value, helper.tensor_dtype_to_np_dtype(element)))


def _per_channel(w: Writer, position: int, element: int, rank: int) -> str:
    """Write a scale or shift as ``[channels, 1, ...]`` in the element type of the data."""
    name = w.reshape(w.input(position), -1, *(1,) * (rank - 2))
    return name if w.element(position) == element else w.cast(name, element)


def _skipped(w: Writer, rank: int, last: bool) -> str:
    """Write the skip input: of full extent, or one number per sample and channel."""
    if len(w.shape(3)) == rank:
        return w.input(3)
    ones = (1,) * (rank - 2)
    return w.reshape(w.input(3), 0, *((*ones, -1) if last else (-1, *ones)))


def bias_add(w: Writer) -> None:
    """Write BiasAdd: a bias and a value of the same shape added."""
    w.op("Add", w.op("Add", w.input(0), w.input(1)), w.input(2), to=w.output(0))


def bias_split_gelu(w: Writer) -> None:
    """Write BiasSplitGelu: a bias, then one half times the Gelu of the other."""
    name, last = w.op("Add", w.input(0), w.input(1)), len(w.shape(0)) - 1
    width = w.shape(0)[-1]
    left, right = (w.slice(name, last, k * width // 2, (k + 1) * width // 2) for k in (0, 1))
    gate = w.op("Gelu", right, domain=MICROSOFT)
    w.op("Mul", left, gate, to=w.output(0))


def bias_softmax(w: Writer) -> None:
    """Write BiasSoftmax: a mask, then a softmax over the last dimensions."""
    shape, axis = w.shape(0), int(w.attribute("axis", 1))
    rank = len(shape)
    refuse_unless(axis % rank == rank - 1, "a softmax over several dimensions")
    inner = w.attribute("is_inner_broadcast", 0) and len(w.shape(1)) < rank
    refuse_unless(not inner, "a bias that lacks inner dimensions")
    bias = w.input(1)
    w.op("Softmax", w.op("Add", w.input(0), bias), to=w.output(0), axis=-1)


def embeddings(w: Writer) -> None:
    """Write EmbedLayerNormalization: tables looked up, added and normalised."""
    _embedded(w, [w.input(k) for k in range(2, 7)], w.input(8))


def quantised_embeddings(w: Writer) -> None:
    """Write QEmbedLayerNormalization: EmbedLayerNormalization of converted tables."""
    tables = [_real(w, k, k + 6, k + 11) if w.has(k) else "" for k in range(2, 7)]
    _embedded(w, tables, "")


def _embedded(w: Writer, tables: Sequence[str], positions: str) -> None:
    """Write the normalised sum of the rows that words, positions and segments choose.

    Args:
        w: The writer that takes the nodes.
        tables: Tables of words, positions and segments (``""`` for none); scale and shift.
        positions: Numbers of the rows of the second; ``""`` for the first ones.
    """
    word_table, place_table, segment_table, scale, shift = tables
    words = w.op("Gather", word_table, w.input(0), axis=0)
    if positions:
        places = w.op("Gather", place_table, positions, axis=0)
    else:
        places = w.unsqueeze(w.slice(place_table, 0, 0, w.shape(0)[1]), 0)
    name = w.op("Add", words, places)
    if w.has(1) and segment_table:
        name = w.op("Add", name, w.op("Gather", segment_table, w.input(1), axis=0))
    if w.wants(2):
        name = w.op("Identity", name, to=w.output(2))
    epsilon = w.attribute("epsilon", 1e-12)
    w.op("LayerNormalization", name, scale, shift, to=w.output(0), axis=-1, epsilon=epsilon)
    if w.wants(1):
        _mask_index(w)


def _mask_index(w: Writer) -> None:
    """Write the number of words of each sample, from the mask where there is one."""
    mask = w.input(7) or w.op("Mul", w.input(0), w.number(0, w.element()))
    count = w.reduce("ReduceSum", mask, 1, keep=False)
    w.cast(count, TensorProto.INT32, to=w.output(1))


_ALL_ORDERS, _ANY_ORDERS, _ANY_SIZE = 6, 128, 1 << 62
"""Operands up to which every order of contractions is tried, and NumPy's greedy search, whose time
is the cube of their number; and elements that a result between may have."""


def einsum(w: Writer) -> None:
    """Write an Einsum of three or more operands as pairwise Einsums, in the cheapest order.

    Raises:
        OneOperatorError: It has two operands at most.
        NoExpansionError: An ellipsis, or operands that do not go with the equation.
    """
    count = len(w.step.inputs)
    one_operator_unless(count > 2)  # noqa: PLR2004
    refuse_unless(count <= _ANY_ORDERS, "too many operands to look for an order")
    equation = w.attribute("equation", "").replace(" ", "")
    refuse_unless("." not in equation, "an ellipsis")
    left, arrow, result = equation.partition("->")
    if not arrow:
        result = "".join(sorted(x for x in set(left) - {","} if left.count(x) == 1))
    order = "optimal" if count <= _ALL_ORDERS else "greedy"
    shapes = [np.broadcast_to(np.float32(0), w.shape(k)) for k in range(count)]
    path, _ = np.einsum_path(f"{left}->{result}", *shapes, optimize=(order, _ANY_SIZE))
    terms = [(w.input(k), term) for k, term in enumerate(left.split(","))]
    for first, second in path[1:]:
        pair = [terms.pop(position) for position in sorted((first, second), reverse=True)][::-1]
        needed = set(result).union(*(term for _, term in terms))
        letters = "".join(x for x in dict.fromkeys(pair[0][1] + pair[1][1]) if x in needed)
        letters = letters if terms else result
        spelt = f"{pair[0][1]},{pair[1][1]}->{letters}"
        to = None if terms else w.output(0)
        terms.append((w.op("Einsum", pair[0][0], pair[1][0], to=to, equation=spelt), letters))


# ------------------------------------------------------------------------------ quantised operators


_AXIS_SINCE = 13
"""Opset since which conversions have a scale per channel."""


def _real(w: Writer, position: int, scale: int, zero: int, axis: int | None = None) -> str:
    """Write the real numbers that a quantised input stands for.

    Args:
        w: The writer that takes the nodes.
        position: Position of the input among the node's inputs.
        scale: Position of its scale.
        zero: Position of its zero point, which may be absent.
        axis: The dimension that has a scale per entry, if any has.

    Returns:
        The name of the real numbers, which have the shape of the input.
    """
    several = w.shape(scale) not in ((), (1,))
    given = (w.input(position), _scalar(w, scale), _scalar(w, zero) if w.has(zero) else "")
    if not several:
        return w.op("DequantizeLinear", *given)
    refuse_unless(axis is not None and w.opset >= _AXIS_SINCE, "a scale per channel")
    return w.op("DequantizeLinear", *given, axis=axis)


def _scalar(w: Writer, position: int) -> str:
    """Return a per-tensor scale without dimensions."""
    return w.op("Squeeze", w.input(position)) if w.shape(position) == (1,) else w.input(position)


def _quantised(w: Writer, name: str, scale: int, zero: int) -> None:
    """Write the output of the node: real numbers quantised."""
    point = _scalar(w, zero) if w.has(zero) else ""
    w.op("QuantizeLinear", name, _scalar(w, scale), point, to=w.output(0))


def dynamic_product(w: Writer) -> None:
    """Write DynamicQuantizeMatMul: the left operand is quantised while the model runs."""
    data, scale, zero = w.node("DynamicQuantizeLinear", (w.input(0),), (None, None, None))
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
    scaled = w.op("Mul", product, scale, to=None if w.has(bias) else w.output(0))
    if w.has(bias):
        w.op("Add", scaled, w.input(bias), to=w.output(0))


def quantised_gemm(w: Writer) -> None:
    """Write QGemm: a product of converted operands, a bias in steps of both scales."""
    columns = 0 if w.attribute("transB", 0) else 1
    left, right = _real(w, 0, 1, 2), _real(w, 3, 4, 5, columns)
    bias = ""
    if w.has(6):
        steps = w.op("Mul", _scalar(w, 1), _scalar(w, 4))
        factor = w.op("Mul", steps, w.number(w.attribute("alpha", 1.0), TensorProto.FLOAT))
        bias = w.op("Mul", w.cast(w.input(6), TensorProto.FLOAT), factor)
    to = None if w.has(7) else w.output(0)
    product = w.op("Gemm", left, right, bias, to=to, **attributes_of(w.step.node))
    if w.has(7):
        _quantised(w, product, 7, 8)


def quantised_attention(w: Writer) -> None:
    """Write QAttention: com.microsoft.Attention of converted input and weight."""
    data, weight = _real(w, 0, 3, 6), _real(w, 1, 4, 7, 1)
    inputs = (data, weight, w.input(2), w.input(5), w.input(8))
    outputs = (w.output(0), w.output(1)) if w.wants(1) else (w.output(0),)
    w.node("Attention", inputs, outputs, MICROSOFT, **attributes_of(w.step.node))


def quantised_recurrence(w: Writer) -> None:
    """Write DynamicQuantizeLSTM: ONNX's LSTM of converted weights.

    ONNX Runtime quantises inputs and states while it runs, too; here they stay real.
    """
    weights = _gate_rows(w, 1, 8), _gate_rows(w, 2, 10)
    inputs = (w.input(0), *weights, *(w.input(k) for k in range(3, 8)))
    outputs = tuple(w.output(k) or "" for k in range(len(w.step.node.output)))
    w.node("LSTM", inputs, outputs, **attributes_of(w.step.node))


def _gate_rows(w: Writer, position: int, scale: int) -> str:
    """Write converted weights as ``[directions, gates, inputs]``; the node has the last two turned.

    Args:
        w: The writer that takes the nodes.
        position: Position of the weights among the node's inputs.
        scale: Position of their scale: one for all, one per direction or one per row of a gate.

    Returns:
        The name of the real numbers.
    """
    directions, columns, rows = w.shape(position)
    count = math.prod(w.shape(scale))
    per_row = count == directions * rows
    name = w.transpose(w.input(position), 0, 2, 1)
    if per_row:
        name = w.reshape(name, directions * rows, columns)
    extents = (-1,) if count > 1 else ()
    steps, zeros = (w.reshape(w.input(k), *extents) for k in (scale, scale + 1))
    # Before opset 13 only com.microsoft's has a scale per entry of a dimension.
    domain = MICROSOFT if w.opset < _AXIS_SINCE and extents else ""
    axis: dict[str, Any] = {"axis": 0} if extents else {}
    name = w.op("DequantizeLinear", name, steps, zeros, domain=domain, **axis)
    return w.reshape(name, directions, rows, columns) if per_row else name


def quantised_pool(w: Writer) -> None:
    """Write QLinearAveragePool and QLinearGlobalAveragePool."""
    kind, rank = w.step.node.op_type.removeprefix("QLinear"), len(w.shape(0))
    name, last = _real(w, 0, 1, 2), bool(w.attribute("channels_last", 0))
    if last:
        name = _first(w, name, rank)
    name = w.op(kind, name, **attributes_of(w.step.node, "channels_last"))
    if last:
        name = _last(w, name, rank)
    _quantised(w, name, 3, 4)


def quantised_softmax(w: Writer) -> None:
    """Write QLinearSoftmax along one dimension."""
    rank, axis = len(w.shape(0)), int(w.attribute("axis", -1))
    single = int(w.attribute("opset", w.opset)) >= _AXIS_SINCE or axis % rank == rank - 1
    refuse_unless(single, "a softmax over several dimensions")
    refuse_unless(w.opset >= _AXIS_SINCE or axis % rank == rank - 1, "an axis of its own")
    _quantised(w, w.op("Softmax", _real(w, 0, 1, 2), axis=axis), 3, 4)


def quantised_mean(w: Writer) -> None:
    """Write QLinearReduceMean."""
    name, keep = _real(w, 0, 1, 2), int(w.attribute("keepdims", 1))
    rank = len(w.shape(0))
    for axis in sorted((int(a) % rank for a in w.attribute("axes", range(rank))), reverse=True):
        name = w.reduce("ReduceMean", name, axis, keep=bool(keep))
    _quantised(w, name, 3, 4)


def quantised_selection(w: Writer) -> None:
    """Write QLinearWhere."""
    _quantised(w, w.op("Where", w.input(0), _real(w, 1, 2, 3), _real(w, 4, 5, 6)), 7, 8)


def quantised_concatenation(w: Writer) -> None:
    """Write QLinearConcat: scale and zero point of the result, then each operand with its own."""
    count = len(w.step.inputs)
    names = [_real(w, k, k + 1, k + 2) for k in range(2, count, 3)]
    _quantised(w, w.concat(*names, axis=int(w.attribute("axis", 0))), 0, 1)


def quantised_convolution(w: Writer) -> None:
    """Write com.microsoft.QLinearConv: ONNX's, between transpositions where channels are last."""
    rank, last = len(w.shape(0)), bool(w.attribute("channels_last", 0))
    names = [w.input(k) for k in range(len(w.step.inputs))]
    if last:
        names[0] = _first(w, names[0], rank)
    to = None if last else w.output(0)
    convolved = w.op("QLinearConv", *names, to=to, **attributes_of(w.step.node, "channels_last"))
    if last:
        _last(w, convolved, rank, w.output(0))
