"""Attention with caches, packed operands or masks of its own, as products and a softmax.

Heads are folded: the ``g`` heads of queries that share a head of keys are rows of one product, so
that keys and values are never repeated. Both products run over the total length, past included.
What the operator table describes as one operator (no cache, no packing) stays as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper

from autoturbo.graph.expand.writer import Writer, one_operator_unless, refuse_unless

MICROSOFT = "com.microsoft"

_FLAT, _HEADS, _PACKED = 3, 4, 5
"""Ranks of operands with heads folded into channels, with heads, and with several in one."""

_MASKED = -10000.0
"""What ONNX Runtime adds to scores that a mask of keys hides, unless a node says otherwise."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Extents of an attention.

    Attributes:
        heads: of queries.
        key_heads: of keys and values.
        rows: positions of queries.
        length: positions of keys, past ones included.
        channels: of a head of queries and keys.
    """

    heads: int
    key_heads: int
    rows: int
    length: int
    channels: int


def split_heads(w: Writer, name: str, heads: int) -> str:
    """Write ``[batch, rows, heads * channels]`` as ``[batch, heads, rows, channels]``."""
    return w.transpose(w.reshape(name, 0, 0, heads, -1), 0, 2, 1, 3)


def join_heads(w: Writer, name: str, to: str | None) -> str:
    """Write ``[batch, heads, rows, channels]`` as ``[batch, rows, heads * channels]``."""
    return w.reshape(w.transpose(name, 0, 2, 1, 3), 0, 0, -1, to=to)


def lowest(element: int) -> float:
    """Return the lowest number of a floating-point type."""
    if element == TensorProto.BFLOAT16:
        return -3.38e38
    return float(np.finfo(helper.tensor_dtype_to_np_dtype(element)).min)


def hidden(w: Writer, allowed: str, element: int, value: float | None = None) -> str:
    """Write what is added to scores: nothing where allowed, else the lowest number or ``value``."""
    filled = lowest(element) if value is None else value
    return w.op("Where", allowed, w.number(0.0, element), w.number(filled, element))


def total(w: Writer, *terms: str) -> str:
    """Write the sum of the terms that are there; ``""`` if there are none."""
    result = ""
    for term in terms:
        result = w.op("Add", result, term) if result and term else result or term
    return result


def scores(
    w: Writer,
    query: str,
    key: str,
    sizes: Sizes,
    scale: float,
    added: str = "",
    softcap: float = 0.0,
) -> str:
    """Write the scores ``[batch, heads, rows, length]``.

    Args:
        w: where to.
        query: ``[batch, heads, rows, channels]``.
        key: ``[batch, key heads, length, channels]``.
        sizes: the extents.
        scale: of the product; 0 for one over the root of the channels.
        added: to the scores, ``""`` for nothing.
        softcap: bound of the scores, 0 for none.
    """
    element = w.element()
    factor = scale or 1.0 / math.sqrt(sizes.channels)
    query = w.op("Mul", query, w.number(factor, element))
    result = w.op("MatMul", _grouped(w, query, sizes), w.transpose(key, 0, 1, 3, 2))
    result = _ungrouped(w, result, sizes)
    if softcap:
        cap = w.number(softcap, element)
        result = w.op("Mul", w.op("Tanh", w.op("Div", result, cap)), cap)
    return w.op("Add", result, added) if added else result


def weighted(w: Writer, weights: str, value: str, sizes: Sizes) -> str:
    """Write the values under some weights: ``[batch, heads, rows, channels of values]``."""
    return _ungrouped(w, w.op("MatMul", _grouped(w, weights, sizes), value), sizes)


def _grouped(w: Writer, name: str, sizes: Sizes) -> str:
    """Heads that share a head of keys become rows."""
    if sizes.heads == sizes.key_heads:
        return name
    rows = sizes.heads // sizes.key_heads * sizes.rows
    return w.op("Reshape", name, w.integers(0, sizes.key_heads, rows, -1))


def _ungrouped(w: Writer, name: str, sizes: Sizes) -> str:
    if sizes.heads == sizes.key_heads:
        return name
    return w.op("Reshape", name, w.integers(0, sizes.heads, sizes.rows, -1))


def softmax(w: Writer, name: str, sink: str = "") -> str:
    """Write the softmax along the last dimension.

    Args:
        w: where to.
        name: the scores.
        sink: a score that takes its share and has no value, ``""`` for none.
    """
    if not sink:
        return w.op("Softmax", name, axis=-1)
    most = w.op("Max", w.reduce("ReduceMax", name, -1), sink)
    powers = w.op("Exp", w.op("Sub", name, most))
    share = w.op("Exp", w.op("Sub", sink, most))
    return w.op("Div", powers, w.op("Add", w.reduce("ReduceSum", powers, -1), share))


def positions(w: Writer, count: int) -> str:
    """Write ``0 .. count - 1``, made by a node where it is long."""
    bounds = (w.array(np.array(k, dtype=np.int64)) for k in (0, count, 1))
    return w.op("Range", *bounds)


def causal(w: Writer, sizes: Sizes, first: str, window: int = -1) -> str:
    """Write which keys a row sees: none after itself, none further back than a window.

    Args:
        w: where to.
        sizes: the extents.
        first: position of the first row, ``[batch, 1, 1, 1]`` or without dimensions.
        window: keys before its own that a row sees; negative for all.

    Returns:
        Truth values that broadcast to ``[batch, heads, rows, length]``.
    """
    row = w.op("Add", w.reshape(positions(w, sizes.rows), 1, 1, -1, 1), first)
    column = w.reshape(positions(w, sizes.length), 1, 1, 1, -1)
    seen = w.op("Not", w.op("Less", row, column))
    if window < 0:
        return seen
    oldest = w.op("Sub", row, w.array(np.array(window, dtype=np.int64)))
    return w.op("And", seen, w.op("Not", w.op("Less", column, oldest)))


def always(w: Writer, offset: int) -> str:
    """Write a position that is known."""
    return w.array(np.array(offset, dtype=np.int64))


# --------------------------------------------------------------------------- com.microsoft's forms


def multi_head(w: Writer) -> None:
    """Write com.microsoft.MultiHeadAttention with a cache, packed operands or a mask by lengths."""
    one_operator_unless(_needs_writing(w))
    refuse_unless(not (w.has(8) or w.has(9) or w.wants(3)), "a shared buffer, beams or scores")
    heads = int(w.attribute("num_heads", 0))
    query, key, value = _operands(w, heads)
    rows, channels = _rows_and_channels(w, heads)
    past, length = 0, _key_length(w)
    if w.has(6):
        past = w.shape(6)[2]
        key = w.concat(w.input(6), key, axis=2, to=w.output(1))
        value = w.concat(w.input(7), value, axis=2, to=w.output(2))
    else:
        key, value = (
            w.op("Identity", name, to=w.output(k)) if w.wants(k) else name
            for k, name in ((1, key), (2, value))
        )
    sizes = Sizes(heads, heads, rows, past + length, channels)
    added = total(w, _mask(w, 4, sizes), _unidirectional(w, sizes), w.input(5))
    probabilities = softmax(w, scores(w, query, key, sizes, w.attribute("scale", 0.0), added))
    join_heads(w, weighted(w, probabilities, value, sizes), w.output(0))


def _needs_writing(w: Writer) -> bool:
    """Whether the table has no row for this form."""
    flat = all(w.has(k) and len(w.shape(k)) == _FLAT for k in range(3))
    plain = flat and w.shape(1) == w.shape(2) and not any(w.has(k) for k in range(6, 10))
    lengths = w.has(4) and len(w.shape(4)) == 1
    return not plain or lengths or any(w.wants(k) for k in range(1, 4))


def _rows_and_channels(w: Writer, heads: int) -> tuple[int, int]:
    shape = w.shape(0)
    return shape[1], shape[-1] if len(shape) == _PACKED else shape[-1] // heads


def _key_length(w: Writer) -> int:
    if not w.has(1):
        return w.shape(0)[1]
    return w.shape(1)[2 if len(w.shape(1)) == _HEADS else 1]


def _operands(w: Writer, heads: int) -> tuple[str, str, str]:
    """Queries, keys and values, each ``[batch, heads, positions, channels]``, biases added."""
    if len(w.shape(0)) == _PACKED:
        query, key, value = (w.transpose(w.pick(w.input(0), 3, k), 0, 2, 1, 3) for k in range(3))
        refuse_unless(not w.has(3), "a bias of packed operands")
        return query, key, value
    biases = _biases(w)
    query = split_heads(w, total(w, w.input(0), biases[0]), heads)
    if len(w.shape(1)) == _PACKED:
        refuse_unless(not w.has(3), "a bias of packed operands")
        key, value = (w.transpose(w.pick(w.input(1), 3, k), 0, 2, 1, 3) for k in range(2))
    elif len(w.shape(1)) == _HEADS:
        key, value = w.input(1), w.input(2)
    else:
        key = split_heads(w, total(w, w.input(1), biases[1]), heads)
        value = split_heads(w, total(w, w.input(2), biases[2]), heads)
    return query, key, value


def _biases(w: Writer) -> tuple[str, str, str]:
    """The bias of queries, keys and values, ``""`` where there is none."""
    if not w.has(3):
        return "", "", ""
    hidden_size, everything = w.shape(0)[-1], w.shape(3)[0]
    bounds = (0, hidden_size, 2 * hidden_size, everything)
    query, key, value = (w.slice(w.input(3), 0, bounds[k], bounds[k + 1]) for k in range(3))
    return query, key, value


def _unidirectional(w: Writer, sizes: Sizes) -> str:
    if not w.attribute("unidirectional", 0):
        return ""
    first = always(w, sizes.length - sizes.rows)
    return hidden(w, causal(w, sizes, first), w.element())


def _mask(w: Writer, position: int, sizes: Sizes) -> str:
    """What a mask of keys adds to the scores; ``""`` without one."""
    if not w.has(position):
        return ""
    name, shape = w.input(position), w.shape(position)
    if len(shape) == 1:
        allowed = _within_lengths(w, name, shape[0], w.shape(0)[0], sizes)
    else:
        if len(shape) == _HEADS:
            name = w.slice(name, 2, sizes.length - sizes.rows, sizes.length)
            name = w.slice(name, 3, 0, sizes.length)
        else:
            refuse_unless(shape[-1] == sizes.length, "a mask of other keys")
            extents = (0, 1, 1, -1) if len(shape) == 2 else (0, 1, sizes.rows, -1)  # noqa: PLR2004
            name = w.reshape(name, *extents)
        allowed = w.op("Not", w.op("Equal", name, w.number(0, w.element(position))))
    return hidden(w, allowed, w.element(), w.attribute("mask_filter_value", _MASKED))


def _within_lengths(w: Writer, name: str, count: int, batch: int, sizes: Sizes) -> str:
    """Keys before an end per sample, and from a start on where there are both."""
    column = w.reshape(positions(w, sizes.length), 1, 1, 1, -1)
    lengths = w.cast(name, TensorProto.INT64)
    end = w.reshape(w.slice(lengths, 0, 0, batch), -1, 1, 1, 1)
    before = w.op("Less", column, end)
    if count != 2 * batch:
        return before
    start = w.reshape(w.slice(lengths, 0, batch, 2 * batch), -1, 1, 1, 1)
    return w.op("And", before, w.op("Not", w.op("Less", column, start)))


def packed_projection(w: Writer) -> None:
    """Write com.microsoft.Attention: the projections in one product, then the attention."""
    refuse_unless(not w.attribute("do_rotary", 0), "rotated inside")
    refuse_unless(not w.has(6), "a shared buffer")
    heads, rows = int(w.attribute("num_heads", 0)), w.shape(0)[1]
    query, key, value = _projected(w, heads)
    past = w.shape(4)[3] if w.has(4) else 0
    channels = _qkv_sizes(w)[0] // heads
    key, value = (_with_past(w, name, k) for k, name in enumerate((key, value)))
    if w.wants(1):
        pair = [w.unsqueeze(name, 0) for name in (key, value)]
        w.concat(*pair, axis=0, to=w.output(1))
    sizes = Sizes(heads, heads, rows, past + rows, channels)
    added = total(w, _mask(w, 3, sizes), _unidirectional(w, sizes), w.input(5))
    probabilities = softmax(w, scores(w, query, key, sizes, w.attribute("scale", 0.0), added))
    join_heads(w, weighted(w, probabilities, value, sizes), w.output(0))


def _qkv_sizes(w: Writer) -> tuple[int, int, int]:
    given = w.attribute("qkv_hidden_sizes", None)
    if given:
        return int(given[0]), int(given[1]), int(given[2])
    width = w.shape(1)[-1] // 3
    return width, width, width


def _projected(w: Writer, heads: int) -> tuple[str, str, str]:
    joined = total(w, w.op("MatMul", w.input(0), w.input(1)), w.input(2))
    sizes = _qkv_sizes(w)
    bounds = (0, sizes[0], sizes[0] + sizes[1], sum(sizes))
    query, key, value = (
        split_heads(w, w.slice(joined, 2, bounds[k], bounds[k + 1]), heads) for k in range(3)
    )
    return query, key, value


def _with_past(w: Writer, name: str, which: int) -> str:
    if not w.has(4):
        return name
    return w.concat(w.pick(w.input(4), 0, which), name, axis=2)


# ------------------------------------------------------------------------------------ ONNX's own


def standard(w: Writer) -> None:
    """Write ONNX's Attention with a cache, lengths or keys and values of different width."""
    cached = w.has(4) or w.has(6) or any(w.wants(k) for k in range(1, 4))
    window = [int(w.attribute(f"{side}_window_size", -1)) for side in ("left", "right")]
    wide = w.shape(1) != w.shape(2)
    one_operator_unless(cached or wide or max(window) >= 0)
    refuse_unless(not w.wants(3) and window[1] < 0, "scores are an output, or a window ahead")
    heads, key_heads, query, key, value = _standard_operands(w)
    rows = w.shape(0)[-2]
    past = w.shape(4)[2] if w.has(4) else 0
    key, value = (_standard_past(w, name, k) for k, name in enumerate((key, value)))
    channels = w.shape(0)[-1] // (heads if len(w.shape(0)) == _FLAT else 1)
    sizes = Sizes(heads, key_heads, rows, past + w.shape(1)[-2], channels)
    added = _standard_masks(w, sizes, past, window[0])
    cap = float(w.attribute("softcap", 0.0))
    result = scores(w, query, key, sizes, w.attribute("scale", 0.0), added, cap)
    result = weighted(w, softmax(w, result), value, sizes)
    if len(w.shape(0)) == _FLAT:
        join_heads(w, result, w.output(0))
    else:
        w.op("Identity", result, to=w.output(0))


def _standard_operands(w: Writer) -> tuple[int, int, str, str, str]:
    if len(w.shape(0)) == _HEADS:
        names = (w.input(0), w.input(1), w.input(2))
        return w.shape(0)[1], w.shape(1)[1], *names
    counts = [int(w.attribute(f"{kind}_num_heads", 0)) for kind in ("q", "kv", "kv")]
    query, key, value = (split_heads(w, w.input(k), counts[k]) for k in range(3))
    return counts[0], counts[1], query, key, value


def _standard_past(w: Writer, name: str, which: int) -> str:
    to = w.output(1 + which)
    if w.has(4):
        return w.concat(w.input(4 + which), name, axis=2, to=to)
    return w.op("Identity", name, to=to) if to else name


def _standard_masks(w: Writer, sizes: Sizes, past: int, window: int) -> str:
    """What a mask, lengths per sample and the order of positions add to the scores."""
    element, added, first = w.element(), "", always(w, past)
    if w.has(3):
        refuse_unless(w.shape(3)[-1] == sizes.length, "a mask of fewer keys")
        truth = w.element(3) == TensorProto.BOOL
        added = hidden(w, w.input(3), element) if truth else w.input(3)
    if w.has(6):
        ends = w.reshape(w.input(6), -1, 1, 1, 1)
        first = w.op("Sub", ends, always(w, sizes.rows))
        column = w.reshape(positions(w, sizes.length), 1, 1, 1, -1)
        added = total(w, added, hidden(w, w.op("Less", column, ends), element))
    if w.attribute("is_causal", 0):
        return total(w, added, hidden(w, causal(w, sizes, first, window), element))
    refuse_unless(window < 0, "a window without order")
    return added
