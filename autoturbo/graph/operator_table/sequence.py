"""Operators along a sequence: attention, rotary position embedding and recurrent layers.

Domain of an attention: ``b, h, g, s, l, d``: batch, key head, query head within it, query position,
key position, channel of a head. The two products (scores, and weights by values) visit the same
points when keys and values are equally wide, so a point is two multiply-accumulates; the softmax
between them is counted per score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoturbo.graph.domain import (
    WHOLE_DIM,
    AccessMap,
    AxisKind,
    DimAccess,
    along,
    merged,
    whole_along,
)
from autoturbo.graph.operator_table.build import (
    MICROSOFT,
    ONNX,
    Domain,
    NodeView,
    OperatorSpec,
    Row,
    Rows,
    ValueView,
    agree,
    broadcast,
    everything,
    whole_if,
)
from autoturbo.graph.operators import Engine, Pattern, Work

_FLAT, _HEADS = 3, 4
"""Ranks of queries with heads folded into channels, and with heads of their own."""


@dataclass(frozen=True, slots=True)
class _Heads:
    """Extents of an attention: heads of queries per head of keys, positions, channels."""

    batch: int
    keys: int
    groups: int
    queries: int
    length: int
    channels: int


def _attention_of(node: NodeView, heads: int, key_heads: int) -> _Heads:
    query, key, value = (node.shape_in(position) for position in range(3))
    agree(len(query) == len(key) == len(value) and key == value, "keys and values differ in shape")
    if len(query) == _HEADS:
        heads, key_heads = query[1], key[1]
    width = query[-1] // heads if len(query) == _FLAT else query[-1]
    agree(heads > 0 and heads % key_heads == 0, f"{heads} heads over {key_heads}")
    return _Heads(query[0], key_heads, heads // key_heads, query[-2], key[-2], width)


def _describe(node: NodeView, heads: _Heads, masks: Sequence[ValueView | None]) -> OperatorSpec:
    agree(not any(node.has_output(i) for i in range(1, len(node.outputs))), "caches are outputs")
    domain = Domain()
    b, h = domain.axis("b", heads.batch), domain.axis("h", heads.keys)
    g, s = domain.axis("g", heads.groups), domain.axis("s", heads.queries)
    d = domain.whole("d", heads.channels)
    length = domain.reduction("l", heads.length)
    query = merged((h, heads.keys), (g, heads.groups))
    if len(node.shape_in(0)) == _HEADS:
        read = AccessMap((along(b), query, along(s), along(d)))
        kept = AccessMap((along(b), along(h), along(length), along(d)))
    else:
        folded = merged((h, heads.keys), (g, heads.groups), (d, heads.channels))
        read = AccessMap((along(b), along(s), folded))
        kept = AccessMap((along(b), along(length), merged((h, heads.keys), (d, heads.channels))))
    target = (heads.batch, heads.keys * heads.groups, heads.queries, heads.length)
    scores = (along(b), query, along(s), along(length))
    mask_maps = [_mask(mask, target, scores) for mask in masks]
    # Softmax of a score: 3 vector and 2 special, mask and scale 2 more; per output element.
    rate = heads.length / max(heads.channels, 1)
    return domain.answer(
        node,
        [read, kept, kept, *mask_maps],
        [read],
        Work(macs=2, vector=5.0 * rate, special=2.0 * rate),
        engine=Engine.MATRIX,
        pattern=Pattern.OUT_ELEMENTWISE_FUSABLE,
    )


def _mask(
    mask: ValueView | None, target: tuple[int, ...], scores: tuple[DimAccess, ...]
) -> AccessMap | None:
    if mask is None or len(mask.shape) != len(target):
        return everything(mask)
    return broadcast(mask.shape, target, scores)


def _attention(node: NodeView) -> OperatorSpec:
    """Describe ONNX's Attention without a cache: inputs Q, K, V and a mask."""
    agree(not any(value is not None for value in node.inputs[4:]), "a cache is an input")
    heads, key_heads = node.integer("q_num_heads", 0), node.integer("kv_num_heads", 0)
    return _describe(node, _attention_of(node, heads, key_heads), node.inputs[3:4])


def _multi_head(node: NodeView) -> OperatorSpec:
    """Describe com.microsoft.MultiHeadAttention without cache and packing; a bias may be given."""
    agree(not any(value is not None for value in node.inputs[6:]), "a cache is an input")
    heads = node.integer("num_heads", 0)
    masks = [node.value_in(i) for i in (3, 4, 5)]
    return _describe(node, _attention_of(node, heads, heads), masks)


def _of_rows(
    value: ValueView | None, extents: tuple[int, int], rows: tuple[DimAccess, DimAccess]
) -> AccessMap | None:
    """Return the access to a value with an entry per sample and row.

    A table is read in full.
    """
    access = everything(value)
    if value is None or access is None or value.shape[:2] != extents:
        return access
    return AccessMap((*rows, *access.dims[2:]))


def _rotary(node: NodeView) -> OperatorSpec:
    """Describe RotaryEmbedding: two multiplications and an addition per element.

    Returns:
        One point per element. Channels stay whole, and heads too if they are folded into the
        channels. Angles are looked up by position if positions are an input; positions, and angles
        without a table, are per sample and row.
    """
    shape, domain = node.shape_in(0), Domain()
    agree(shape == node.shape_out() and len(shape) in (_FLAT, _HEADS), "3 or 4 dimensions expected")
    access = AccessMap(domain.dims(shape, whole_if([len(shape) - 1])))
    rows = (access.dims[0], access.dims[-2])
    extents = (shape[0], shape[-2])
    table_maps = [_of_rows(value, extents, rows) for value in node.inputs[1:]]
    work = Work(vector=3.0)
    return domain.answer(node, [access, *table_maps], [access], work, pattern=Pattern.INJECTIVE)


# -------------------------------------- recurrent layers: time and hidden state are not independent
#
# Time goes step by step. Hidden units of one step are independent, but the next step needs them
# all: no part of the output has some of them only, and the cores that share them out exchange the
# state.


def _recurrent(gates: int, work: Work) -> Row:
    """Return the row of a recurrent operator, with domain ``d, b, s, h, k``.

    These are direction, batch, time, hidden unit, and the input and state summed over. Each gate of
    each hidden unit is a product with the input and with the state:
    ``gates * d * b * s * h * (input + h)`` multiply-accumulates, ``gates`` per point.
    """

    def row(node: NodeView) -> OperatorSpec:
        source, state = node.shape_in(0), node.shape_in(2)
        batch_first = bool(node.integer("layout", 0))
        batch, time = source[:2] if batch_first else source[1::-1]
        hidden = state[2]
        agree(state[1] == gates * hidden, f"{gates} gates of {hidden} hidden units expected")
        domain = Domain()
        d, b = along(domain.axis("d", state[0])), along(domain.axis("b", batch))
        s, h = domain.axis("s", time, AxisKind.STEP), domain.axis("h", hidden, AxisKind.SPREAD)
        domain.reduction("k", source[2] + hidden)
        maps = _maps(batch_first, d, b, s, h)
        return domain.answer(
            node,
            *maps,
            Work(macs=gates, vector=work.vector, special=work.special),
            engine=Engine.MATRIX,
            pattern=Pattern.OPAQUE,
            parameterised=node.is_weight(1, 2),
        )

    return row


def _maps(
    batch_first: bool, d: DimAccess, b: DimAccess, s: int, h: int
) -> tuple[list[AccessMap], list[AccessMap]]:
    """Return the maps of ``X W R B sequence_lens initial_h initial_c P`` and of ``Y Y_h Y_c``.

    The rows of the weights of all gates belong to the hidden units; the columns of ``R`` meet the
    state at every step.
    """
    step, unit, rows = along(s), along(h), whole_along(h)
    source = AccessMap((b, step, WHOLE_DIM) if batch_first else (step, b, WHOLE_DIM))
    weight, state_weight = AccessMap((d, rows, WHOLE_DIM)), AccessMap((d, rows, whole_along(s)))
    bias = AccessMap((d, rows))
    state, series = _ordered(batch_first, d, b, unit, step)
    before, _ = _ordered(batch_first, d, b, rows, step)
    inputs = [source, weight, state_weight, bias, AccessMap((b,)), before, state, bias]
    return inputs, [series, state, state]


def _ordered(
    batch_first: bool, d: DimAccess, b: DimAccess, unit: DimAccess, step: DimAccess
) -> tuple[AccessMap, AccessMap]:
    """Return the maps of a state and of the states of all steps."""
    if batch_first:
        return AccessMap((b, d, unit)), AccessMap((b, step, d, unit))
    return AccessMap((d, b, unit)), AccessMap((step, d, b, unit))


ROWS: Rows = {
    (ONNX, "Attention"): _attention,
    (ONNX, "RotaryEmbedding"): _rotary,
    (MICROSOFT, "RotaryEmbedding"): _rotary,
    (MICROSOFT, "MultiHeadAttention"): _multi_head,
    # Per hidden unit and step, biases folded; a sigmoid is 1 vector, 2 special, a tanh 1 special.
    # Three sigmoids, two tanh; three multiplications, one addition; four gate additions.
    (ONNX, "LSTM"): _recurrent(4, Work(vector=11.0, special=8.0)),
    # Two sigmoids, one tanh; three multiplications, two additions; three gate additions.
    (ONNX, "GRU"): _recurrent(3, Work(vector=10.0, special=5.0)),
    # One tanh; one addition.
    (ONNX, "RNN"): _recurrent(1, Work(vector=1.0, special=1.0)),
}
