"""Attention with caches, packed operands or masks of its own, as products and a softmax.

Heads are folded: the ``g`` heads of queries that share a head of keys are rows of one product, so
that keys and values are never repeated. Both products run over the total length, past included.
What the operator table describes as one operator (no cache, no packing) stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from autoturbo.graph.expand.writer import Writer, one_operator_unless, refuse_unless
from autoturbo.graph.operator_table.build import MICROSOFT

_FLAT, _HEADS, _PACKED = 3, 4, 5
"""Ranks of operands with heads folded into channels, with heads, and with several in one."""

_MASKED = -10000.0
"""Value that ONNX Runtime adds to scores that a key mask hides, unless a node says otherwise."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Extents of an attention.

    Attributes:
        heads: Heads of the queries.
        key_heads: Heads of the keys and the values.
        rows: Positions of queries.
        length: Positions of keys, past ones included.
        channels: Channels of a head of queries and keys.
    """

    heads: int
    key_heads: int
    rows: int
    length: int
    channels: int


def _split_heads(w: Writer, name: str, heads: int) -> str:
    """Write ``[batch, rows, heads * channels]`` as ``[batch, heads, rows, channels]``."""
    return w.transpose(w.reshape(name, 0, 0, heads, -1), 0, 2, 1, 3)


def _join_heads(w: Writer, name: str, to: str | None) -> str:
    """Write ``[batch, heads, rows, channels]`` as ``[batch, rows, heads * channels]``."""
    return w.reshape(w.transpose(name, 0, 2, 1, 3), 0, 0, -1, to=to)


def _hidden(w: Writer, allowed: str, value: float | None = None) -> str:
    """Write the mask added to scores: 0 where allowed, else ``value`` or the lowest number."""
    element = w.element()
    if value is None and element == TensorProto.BFLOAT16:
        value = -3.38e38
    elif value is None:
        value = float(np.finfo(helper.tensor_dtype_to_np_dtype(element)).min)
    return w.op("Where", allowed, w.number(0.0, element), w.number(value, element))


def _total(w: Writer, *terms: str) -> str:
    """Write the sum of the terms that are present; return ``""`` if there are none."""
    result = ""
    for term in terms:
        result = w.op("Add", result, term) if result and term else result or term
    return result


def _attended(
    w: Writer,
    operands: tuple[str, str, str],
    sizes: _Sizes,
    added: str = "",
    sink: Callable[[Writer], str] = lambda _: "",
) -> str:
    """Write the attention-weighted values: ``[batch, heads, rows, channels]``.

    Args:
        w: The writer that takes the nodes.
        operands: Queries, keys and values, each ``[batch, heads, positions, channels]``.
        sizes: The extents.
        added: Term that is added to the scores, ``""`` for nothing.
        sink: Writes a score that takes its share and has no value, ``""`` for none.

    Returns:
        The name of the values.
    """
    query, key, value = operands
    scores = _scores(w, query, key, sizes)
    weights = _softmax(w, w.op("Add", scores, added) if added else scores, sink(w))
    return _ungrouped(w, w.op("MatMul", _grouped(w, weights, sizes), value), sizes)


def _scores(w: Writer, query: str, key: str, sizes: _Sizes) -> str:
    """Write the scores ``[batch, heads, rows, length]``, scaled and capped as the node says."""
    element = w.element()
    factor = w.attribute("scale", 0.0) or 1.0 / math.sqrt(sizes.channels)
    # Before the product, so that its sums stay small in half precision.
    query = w.op("Mul", query, w.number(factor, element))
    result = w.op("MatMul", _grouped(w, query, sizes), w.transpose(key, 0, 1, 3, 2))
    result = _ungrouped(w, result, sizes)
    if bound := float(w.attribute("softcap", 0.0)):
        cap = w.number(bound, element)
        result = w.op("Mul", w.op("Tanh", w.op("Div", result, cap)), cap)
    return result


def _grouped(w: Writer, name: str, sizes: _Sizes) -> str:
    """Fold the query heads that share a key head into the rows."""
    if sizes.heads == sizes.key_heads:
        return name
    rows = sizes.heads // sizes.key_heads * sizes.rows
    return w.reshape(name, 0, sizes.key_heads, rows, -1)


def _ungrouped(w: Writer, name: str, sizes: _Sizes) -> str:
    if sizes.heads == sizes.key_heads:
        return name
    return w.reshape(name, 0, sizes.heads, sizes.rows, -1)


def _softmax(w: Writer, name: str, sink: str) -> str:
    """Write the softmax along the last dimension, with an optional sink logit."""
    if not sink:
        return w.op("Softmax", name, axis=-1)
    # Over the largest, the sink included: no power overflows.
    largest = w.op("Max", w.reduce("ReduceMax", name, -1), sink)
    powers = w.op("Exp", w.op("Sub", name, largest))
    share = w.op("Exp", w.op("Sub", sink, largest))
    return w.op("Div", powers, w.op("Add", w.reduce("ReduceSum", powers, -1), share))


def _positions(w: Writer, count: int) -> str:
    """Write ``0 .. count - 1``, by a Range node where it is long."""
    return w.op("Range", *(w.number(k) for k in (0, count, 1)))


def _columns(w: Writer, sizes: _Sizes) -> str:
    """Write the positions of keys, shaped to broadcast over scores."""
    return w.reshape(_positions(w, sizes.length), 1, 1, 1, -1)


def _causal(w: Writer, sizes: _Sizes, first: str, window: int = -1) -> str:
    """Write the causal mask of each row, limited to a window where one is given.

    Args:
        w: The writer that takes the nodes.
        sizes: The extents.
        first: Position of the first row, ``[batch, 1, 1, 1]`` or without dimensions.
        window: Keys before its own that a row sees; negative for all.

    Returns:
        Truth values that broadcast to ``[batch, heads, rows, length]``.
    """
    row = w.op("Add", w.reshape(_positions(w, sizes.rows), 1, 1, -1, 1), first)
    column = _columns(w, sizes)
    seen = w.op("Not", w.op("Less", row, column))
    if window < 0:
        return seen
    oldest = w.op("Sub", row, w.number(window))
    return w.op("And", seen, w.op("Not", w.op("Less", column, oldest)))


# --------------------------------------------------------------------------- com.microsoft's forms


def multi_head(w: Writer) -> None:
    """Write com.microsoft.MultiHeadAttention with a cache, packed operands or a length mask."""
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
    sizes = _Sizes(heads, heads, rows, past + length, channels)
    added = _total(w, _mask(w, 4, sizes), _unidirectional(w, sizes), w.input(5))
    _join_heads(w, _attended(w, (query, key, value), sizes, added), w.output(0))


def _needs_writing(w: Writer) -> bool:
    """Return whether the table has no row for this form."""
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
    """Write biased queries, keys and values, each ``[batch, heads, positions, channels]``."""
    if len(w.shape(0)) == _PACKED:
        query, key, value = _unpacked(w, 0, 3)
        return query, key, value
    biases = _biases(w)
    query = _split_heads(w, _total(w, w.input(0), biases[0]), heads)
    if len(w.shape(1)) == _PACKED:
        key, value = _unpacked(w, 1, 2)
    elif len(w.shape(1)) == _HEADS:
        key, value = w.input(1), w.input(2)
    else:
        key = _split_heads(w, _total(w, w.input(1), biases[1]), heads)
        value = _split_heads(w, _total(w, w.input(2), biases[2]), heads)
    return query, key, value


def _unpacked(w: Writer, position: int, count: int) -> list[str]:
    """Write the operands that are packed in one input."""
    refuse_unless(not w.has(3), "a bias of packed operands")
    return [w.transpose(w.pick(w.input(position), 3, k), 0, 2, 1, 3) for k in range(count)]


def _biases(w: Writer) -> tuple[str, str, str]:
    """Write the biases of queries, keys and values; ``""`` where there is none."""
    if not w.has(3):
        return "", "", ""
    hidden_size, everything = w.shape(0)[-1], w.shape(3)[0]
    query, key, value = _cut(w, w.input(3), 0, (0, hidden_size, 2 * hidden_size, everything))
    return query, key, value


def _cut(w: Writer, name: str, axis: int, bounds: Sequence[int]) -> Iterator[str]:
    """Write the slices of a dimension between bounds, lazily."""
    return (w.slice(name, axis, start, end) for start, end in pairwise(bounds))


def _unidirectional(w: Writer, sizes: _Sizes) -> str:
    if not w.attribute("unidirectional", 0):
        return ""
    first = w.number(sizes.length - sizes.rows)
    return _hidden(w, _causal(w, sizes, first))


def _mask(w: Writer, position: int, sizes: _Sizes) -> str:
    """Write the term that a key mask adds to the scores; return ``""`` without a mask."""
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
    return _hidden(w, allowed, w.attribute("mask_filter_value", _MASKED))


def _within_lengths(w: Writer, name: str, count: int, batch: int, sizes: _Sizes) -> str:
    """Write which keys lie before each sample's end and, if given, after its start."""
    column = _columns(w, sizes)
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
    sizes = _Sizes(heads, heads, rows, past + rows, channels)
    added = _total(w, _mask(w, 3, sizes), _unidirectional(w, sizes), w.input(5))
    _join_heads(w, _attended(w, (query, key, value), sizes, added), w.output(0))


def _qkv_sizes(w: Writer) -> tuple[int, int, int]:
    given = w.attribute("qkv_hidden_sizes", None)
    if given:
        return int(given[0]), int(given[1]), int(given[2])
    width = w.shape(1)[-1] // 3
    return width, width, width


def _projected(w: Writer, heads: int) -> tuple[str, str, str]:
    joined = _total(w, w.op("MatMul", w.input(0), w.input(1)), w.input(2))
    sizes = _qkv_sizes(w)
    bounds = (0, sizes[0], sizes[0] + sizes[1], sum(sizes))
    query, key, value = (_split_heads(w, part, heads) for part in _cut(w, joined, 2, bounds))
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
    sizes = _Sizes(heads, key_heads, rows, past + w.shape(1)[-2], channels)
    added = _standard_masks(w, sizes, past, window[0])
    result = _attended(w, (query, key, value), sizes, added)
    if len(w.shape(0)) == _FLAT:
        _join_heads(w, result, w.output(0))
    else:
        w.op("Identity", result, to=w.output(0))


def _standard_operands(w: Writer) -> tuple[int, int, str, str, str]:
    if len(w.shape(0)) == _HEADS:
        names = (w.input(0), w.input(1), w.input(2))
        return w.shape(0)[1], w.shape(1)[1], *names
    counts = [int(w.attribute(f"{kind}_num_heads", 0)) for kind in ("q", "kv", "kv")]
    query, key, value = (_split_heads(w, w.input(k), counts[k]) for k in range(3))
    return counts[0], counts[1], query, key, value


def _standard_past(w: Writer, name: str, which: int) -> str:
    to = w.output(1 + which)
    if w.has(4):
        return w.concat(w.input(4 + which), name, axis=2, to=to)
    return w.op("Identity", name, to=to) if to else name


def _standard_masks(w: Writer, sizes: _Sizes, past: int, window: int) -> str:
    """Write the term that a mask, lengths per sample and causality add to the scores."""
    added, first = "", w.number(past)
    if w.has(3):
        refuse_unless(w.shape(3)[-1] == sizes.length, "a mask of fewer keys")
        truth = w.element(3) == TensorProto.BOOL
        added = _hidden(w, w.input(3)) if truth else w.input(3)
    if w.has(6):
        ends = w.reshape(w.input(6), -1, 1, 1, 1)
        first = w.op("Sub", ends, w.number(sizes.rows))
        column = _columns(w, sizes)
        added = _total(w, added, _hidden(w, w.op("Less", column, ends)))
    if w.attribute("is_causal", 0):
        return _total(w, added, _hidden(w, _causal(w, sizes, first, window)))
    refuse_unless(window < 0, "a window without order")
    return added


# -------------------------------------------------------------------- groups of heads with a buffer
#
# com.microsoft.GroupQueryAttention is what ONNX Runtime's exporter of generative models writes.
# A sample with ``n`` tokens in all has its new keys behind its ``n - rows`` past ones. Samples may
# differ in length, so where keys go is a selection by position; in the first prompt there is no
# past and they stay where they are.


@dataclass(frozen=True, slots=True)
class _Cache:
    """Place of the new keys and values of a sample in the cache.

    Attributes:
        past: Extent of the buffer of past ones.
        rows: New ones.
        length: Past and new ones that are attended to.
        extent: Extent of the buffer that is made.
        prompt: There are no past keys, even if the buffer holds some.
        first: Position of the first new one, ``[batch, 1, 1, 1]``, or without dimensions.
    """

    past: int
    rows: int
    length: int
    extent: int
    prompt: bool
    first: str


def group_query(w: Writer) -> None:
    """Write GroupQueryAttention; quantised or windowed caches and query lengths stay whole."""
    _check(w)
    heads, key_heads = int(w.attribute("num_heads", 0)), int(w.attribute("kv_num_heads", 0))
    query, key, value = _grouped_operands(w, heads, key_heads)
    packed = not w.has(1)
    channels = w.shape(0)[-1] // (heads + 2 * key_heads if packed else heads)
    query, key = _normalised(w, query, 14, "q"), _normalised(w, key, 15, "k")
    cache = _cache(w)
    query, key = (_rotated(w, name, cache, channels) for name in (query, key))
    key = _present(w, key, 3, cache, w.output(1))
    value = _present(w, value, 4, cache, w.output(2))
    sizes = _Sizes(heads, key_heads, cache.rows, cache.length, channels)
    added = _added(w, sizes, cache)
    _join_heads(w, _attended(w, (query, key, value), sizes, added, _sink), w.output(0))


def _check(w: Writer) -> None:
    quantised = w.has(12) or w.has(13) or w.attribute("kv_cache_bit_width", 0)
    refuse_unless(not quantised, "a quantised cache")
    refuse_unless(not w.attribute("sliding_window_cache", 0), "a window for a cache")
    refuse_unless(not w.has(16), "lengths of queries")
    refuse_unless(not w.wants(3), "scores are an output")
    refuse_unless(w.has(5) and len(w.shape(0)) == _FLAT, "no lengths")
    refuse_unless(not w.has(1) or w.shape(1)[1] == w.shape(0)[1], "keys of another sequence")


def _grouped_operands(w: Writer, heads: int, key_heads: int) -> tuple[str, str, str]:
    """Write queries, keys and values, each ``[batch, heads, rows, channels]``."""
    counts = (heads, key_heads, key_heads)
    if w.has(1):
        names = [w.input(k) for k in range(3)]
    else:
        channels = w.shape(0)[-1] // (heads + 2 * key_heads)
        ends = (heads * channels, (heads + key_heads) * channels, w.shape(0)[-1])
        names = list(_cut(w, w.input(0), 2, (0, *ends)))
    query, key, value = (_split_heads(w, n, c) for n, c in zip(names, counts, strict=True))
    return query, key, value


def _normalised(w: Writer, name: str, position: int, which: str) -> str:
    if not w.has(position):
        return name
    epsilon = w.attribute(f"{which}_norm_epsilon", 0.0) or w.attribute("qk_norm_epsilon", 1e-6)
    return w.op("SimplifiedLayerNormalization", name, w.input(position), axis=-1, epsilon=epsilon)


def _cache(w: Writer) -> _Cache:
    rows = w.shape(0)[1]
    past = w.shape(3)[2] if w.has(3) else 0
    given = w.value(6).data if w.has(6) else None
    length = past + rows if given is None else int(given.ravel()[0])
    prompt = length == rows
    first = w.number(0)
    if not prompt:
        ends = w.reshape(w.cast(w.input(5), TensorProto.INT64), -1, 1, 1, 1)
        first = w.op("Add", ends, w.number(1 - rows))
    return _Cache(past, rows, length, max(past, length), prompt, first)


def _rotated(w: Writer, name: str, cache: _Cache, channels: int) -> str:
    if not w.attribute("do_rotary", 0):
        return name
    angles = w.shape(7)[1] * 2
    partial: dict[str, Any] = {} if angles == channels else {"rotary_embedding_dim": angles}
    if partial:
        partial["num_heads"] = int(w.attribute("num_heads", 0))
    interleaved = int(w.attribute("rotary_interleaved", 0))
    tables = (_places(w, cache), w.input(7), w.input(8))
    return w.op(
        "RotaryEmbedding", name, *tables, domain=MICROSOFT, interleaved=interleaved, **partial
    )


def _places(w: Writer, cache: _Cache) -> str:
    """Write the position of each sample's rows; in a prompt, of the first row."""
    if w.has(9):
        if not cache.prompt:
            return w.input(9)
        return w.reshape(w.slice(w.slice(w.input(9), 0, 0, 1), 1, 0, 1), 1)
    if cache.prompt:
        return w.integers(0)
    row = w.reshape(_positions(w, cache.rows), 1, -1)
    return w.op("Add", w.reshape(cache.first, -1, 1), row)


def _present(w: Writer, new: str, position: int, cache: _Cache, to: str | None) -> str:
    """Write the cache with the new entries; return the part that is attended to."""
    if cache.prompt:
        _padded(w, new, cache.extent - cache.rows, to)
        return new
    if cache.extent > cache.past:
        past = w.concat(w.input(position), new, axis=2)
        if cache.past + cache.rows != cache.extent:
            past = w.slice(past, 2, 0, cache.extent)
    else:
        past = w.input(position)
    column = w.reshape(_positions(w, cache.extent), 1, 1, -1, 1)
    kept = w.op("Less", column, cache.first)
    placed = w.op("Where", kept, past, _placed(w, new, column, cache))
    end = w.op("Add", cache.first, w.number(cache.rows))
    zero = w.number(0.0, w.element())
    present = w.op("Where", w.op("Less", column, end), placed, zero, to=to)
    return present if cache.length == cache.extent else w.slice(present, 2, 0, cache.length)


def _padded(w: Writer, new: str, count: int, to: str | None) -> None:
    """Write the cache of a prompt: the new entries, padded with zeros."""
    if to is None:
        return
    if not count:
        w.op("Identity", new, to=to)
        return
    widths = w.integers(0, 0, 0, 0, 0, 0, count, 0)
    w.op("Pad", new, widths, to=to)


def _placed(w: Writer, new: str, column: str, cache: _Cache) -> str:
    """Write the new entries at their positions in the cache; the rest is undefined."""
    if cache.rows == 1:
        return new
    row = w.op("Sub", column, cache.first)
    # Rows beyond the new ones are never chosen, but an index has to be valid.
    row = w.op("Max", w.op("Min", row, w.number(cache.rows - 1)), w.number(0))
    row_indices = w.reshape(row, 0, cache.extent, 1)
    moved = w.transpose(new, 0, 2, 1, 3)
    picked = w.op("GatherND", moved, row_indices, batch_dims=1)
    return w.transpose(picked, 0, 2, 1, 3)


def _added(w: Writer, sizes: _Sizes, cache: _Cache) -> str:
    """Write the term that causality, a window and a bias add to the scores."""
    bias = w.input(10)
    if bias and w.shape(10)[-1] != sizes.length:
        bias = w.slice(bias, 3, 0, sizes.length)
    if not w.attribute("causal", 1):
        ends = w.op("Add", cache.first, w.number(cache.rows))
        column = _columns(w, sizes)
        return _total(w, _hidden(w, w.op("Less", column, ends)), bias)
    window = int(w.attribute("local_window_size", -1))
    seen = _causal(w, sizes, cache.first, window - 1 if window > 0 else -1)
    return _total(w, _hidden(w, seen), bias)


def _sink(w: Writer) -> str:
    if w.has(11):
        return w.reshape(w.input(11), 1, -1, 1, 1)
    return w.number(0.0, w.element()) if w.attribute("smooth_softmax", 0) == 1 else ""
