"""com.microsoft.GroupQueryAttention: what ONNX Runtime's exporter of generative models writes.

A sample with ``n`` tokens in all has its new keys behind its ``n - rows`` past ones. Samples may
differ in length, so where keys go is a selection by position; in the first prompt there is no past
and they stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnx import TensorProto

from autoturbo.graph.expand.attention import (
    MICROSOFT,
    Sizes,
    always,
    causal,
    hidden,
    join_heads,
    positions,
    scores,
    softmax,
    split_heads,
    total,
    weighted,
)
from autoturbo.graph.expand.writer import Writer, refuse_unless

_FLAT = 3


@dataclass(frozen=True, slots=True)
class _Cache:
    """Where the new keys and values of a sample go.

    Attributes:
        past: extent of the buffer of past ones.
        rows: new ones.
        length: past and new ones that are attended to.
        extent: of the buffer that is made.
        prompt: nothing is past, whatever the buffer holds.
        first: position of the first new one, ``[batch, 1, 1, 1]``, or without dimensions.
    """

    past: int
    rows: int
    length: int
    extent: int
    prompt: bool
    first: str


def group_query(w: Writer) -> None:
    """Write GroupQueryAttention; quantised or windowed caches and lengths of queries stay whole."""
    _check(w)
    heads, key_heads = int(w.attribute("num_heads", 0)), int(w.attribute("kv_num_heads", 0))
    query, key, value = _operands(w, heads, key_heads)
    packed = not w.has(1)
    channels = w.shape(0)[-1] // (heads + 2 * key_heads if packed else heads)
    query, key = _normalised(w, query, 14, "q"), _normalised(w, key, 15, "k")
    cache = _cache(w)
    query, key = (_rotated(w, name, cache, channels) for name in (query, key))
    key = _present(w, key, 3, cache, w.output(1))
    value = _present(w, value, 4, cache, w.output(2))
    sizes = Sizes(heads, key_heads, cache.rows, cache.length, channels)
    added = _added(w, sizes, cache)
    cap = float(w.attribute("softcap", 0.0))
    result = scores(w, query, key, sizes, w.attribute("scale", 0.0), added, cap)
    join_heads(w, weighted(w, softmax(w, result, _sink(w)), value, sizes), w.output(0))


def _check(w: Writer) -> None:
    quantised = w.has(12) or w.has(13) or w.attribute("kv_cache_bit_width", 0)
    refuse_unless(not quantised, "a quantised cache")
    refuse_unless(not w.attribute("sliding_window_cache", 0), "a window for a cache")
    refuse_unless(not w.has(16), "lengths of queries")
    refuse_unless(not w.wants(3), "scores are an output")
    refuse_unless(w.has(5) and len(w.shape(0)) == _FLAT, "no lengths")
    refuse_unless(not w.has(1) or w.shape(1)[1] == w.shape(0)[1], "keys of another sequence")


def _operands(w: Writer, heads: int, key_heads: int) -> tuple[str, str, str]:
    """Queries, keys and values, each ``[batch, heads, rows, channels]``."""
    counts = (heads, key_heads, key_heads)
    if w.has(1):
        names = [w.input(k) for k in range(3)]
    else:
        channels = w.shape(0)[-1] // (heads + 2 * key_heads)
        ends = [heads * channels, (heads + key_heads) * channels, w.shape(0)[-1]]
        names = [
            w.slice(w.input(0), 2, start, end) for start, end in zip([0, *ends], ends, strict=False)
        ]
    query, key, value = (split_heads(w, n, c) for n, c in zip(names, counts, strict=True))
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
    first = always(w, 0)
    if not prompt:
        ends = w.reshape(w.cast(w.input(5), TensorProto.INT64), -1, 1, 1, 1)
        first = w.op("Add", ends, always(w, 1 - rows))
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
    """Position of every row of every sample; in a prompt, of the first row."""
    if w.has(9):
        if not cache.prompt:
            return w.input(9)
        return w.reshape(w.slice(w.slice(w.input(9), 0, 0, 1), 1, 0, 1), 1)
    if cache.prompt:
        return w.integers(0)
    row = w.reshape(positions(w, cache.rows), 1, -1)
    return w.op("Add", w.reshape(cache.first, -1, 1), row)


def _present(w: Writer, new: str, position: int, cache: _Cache, to: str | None) -> str:
    """Write the buffer with what is new, and give what of it is attended to."""
    if cache.prompt:
        _padded(w, new, cache.extent - cache.rows, to)
        return new
    if cache.extent > cache.past:
        past = w.concat(w.input(position), new, axis=2)
        if cache.past + cache.rows != cache.extent:
            past = w.slice(past, 2, 0, cache.extent)
    else:
        past = w.input(position)
    column = w.reshape(positions(w, cache.extent), 1, 1, -1, 1)
    kept = w.op("Less", column, cache.first)
    placed = w.op("Where", kept, past, _placed(w, new, column, cache))
    end = w.op("Add", cache.first, always(w, cache.rows))
    zero = w.number(0.0, w.element())
    present = w.op("Where", w.op("Less", column, end), placed, zero, to=to)
    return present if cache.length == cache.extent else w.slice(present, 2, 0, cache.length)


def _padded(w: Writer, new: str, count: int, to: str | None) -> None:
    """Write the buffer of a prompt: zeros behind what is new."""
    if to is None:
        return
    if not count:
        w.op("Identity", new, to=to)
        return
    widths = w.integers(0, 0, 0, 0, 0, 0, count, 0)
    w.op("Pad", new, widths, to=to)


def _placed(w: Writer, new: str, column: str, cache: _Cache) -> str:
    """What is new at its positions; elsewhere anything."""
    if cache.rows == 1:
        return new
    row = w.op("Sub", column, cache.first)
    row = w.op("Max", w.op("Min", row, always(w, cache.rows - 1)), always(w, 0))
    found = w.reshape(row, 0, cache.extent, 1)
    moved = w.transpose(new, 0, 2, 1, 3)
    picked = w.op("GatherND", moved, found, batch_dims=1)
    return w.transpose(picked, 0, 2, 1, 3)


def _added(w: Writer, sizes: Sizes, cache: _Cache) -> str:
    """What the order of positions, a window and a bias add to the scores."""
    bias = w.input(10)
    if bias and w.shape(10)[-1] != sizes.length:
        bias = w.slice(bias, 3, 0, sizes.length)
    if not w.attribute("causal", 1):
        ends = w.op("Add", cache.first, always(w, cache.rows))
        column = w.reshape(positions(w, sizes.length), 1, 1, 1, -1)
        return total(w, hidden(w, w.op("Less", column, ends), w.element()), bias)
    window = int(w.attribute("local_window_size", -1))
    seen = causal(w, sizes, cache.first, window - 1 if window > 0 else -1)
    return total(w, hidden(w, seen, w.element()), bias)


def _sink(w: Writer) -> str:
    if w.has(11):
        return w.reshape(w.input(11), 1, -1, 1, 1)
    return w.number(0.0, w.element()) if w.attribute("smooth_softmax", 0) == 1 else ""
