"""Operators that are written out in others while a model is imported.

The operator table describes what is computed by one operator; what is better seen as several
(attention with a cache, a quantised operator, a fused one with a layout of its own) is written out
as a graph for the node's attributes and extents, and the import goes on with that graph as it does
with a branch of an ``If``. So regions, work, checks and written models follow by themselves.

Operators that ONNX itself defines by a body are written out by that body where the table has no row
for them (:mod:`bodies`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnx import GraphProto, defs

from autoturbo.graph.expand import attention, bodies, empty, fused
from autoturbo.graph.expand.writer import OLDEST, NoExpansionError, OneOperatorError, Writer
from autoturbo.graph.operator_table import ROWS
from autoturbo.graph.operator_table.build import MICROSOFT
from autoturbo.graph.source import Source, domain_of, kind_of
from autoturbo.graph.values import Step

EXPANSIONS: dict[tuple[str, str], Callable[[Writer], object]] = {
    ("", "Attention"): attention.standard,
    ("", "Einsum"): fused.einsum,
    ("", "Loop"): bodies.loop,
    ("", "Scan"): bodies.scan,
    (MICROSOFT, "Attention"): attention.packed_projection,
    (MICROSOFT, "BiasAdd"): fused.bias_add,
    (MICROSOFT, "BiasSoftmax"): fused.bias_softmax,
    (MICROSOFT, "BiasSplitGelu"): fused.bias_split_gelu,
    (MICROSOFT, "DynamicQuantizeLSTM"): fused.quantised_recurrence,
    (MICROSOFT, "DynamicQuantizeMatMul"): fused.dynamic_product,
    (MICROSOFT, "EmbedLayerNormalization"): fused.embeddings,
    (MICROSOFT, "FusedConv"): fused.convolution,
    (MICROSOFT, "FusedMatMul"): fused.matmul,
    (MICROSOFT, "GroupNorm"): fused.group_norm,
    (MICROSOFT, "GroupQueryAttention"): attention.group_query,
    (MICROSOFT, "MatMulIntegerToFloat"): fused.mixed_product,
    (MICROSOFT, "MultiHeadAttention"): attention.multi_head,
    (MICROSOFT, "NhwcConv"): fused.channels_last,
    (MICROSOFT, "NhwcFusedConv"): fused.channels_last,
    (MICROSOFT, "NhwcMaxPool"): fused.max_pool,
    (MICROSOFT, "QAttention"): fused.quantised_attention,
    (MICROSOFT, "QEmbedLayerNormalization"): fused.quantised_embeddings,
    (MICROSOFT, "QGemm"): fused.quantised_gemm,
    (MICROSOFT, "QLinearAveragePool"): fused.quantised_pool,
    (MICROSOFT, "QLinearConcat"): fused.quantised_concatenation,
    (MICROSOFT, "QLinearConv"): fused.quantised_convolution,
    (MICROSOFT, "QLinearGlobalAveragePool"): fused.quantised_pool,
    (MICROSOFT, "QLinearReduceMean"): fused.quantised_mean,
    (MICROSOFT, "QLinearSoftmax"): fused.quantised_softmax,
    (MICROSOFT, "QLinearWhere"): fused.quantised_selection,
    (MICROSOFT, "SkipGroupNorm"): fused.group_norm,
}
"""Functions that write a node out, by ``(domain, operator type)``."""

ROUNDED_INSIDE = frozenset((f"{MICROSOFT}.DynamicQuantizeLSTM",))
"""Kinds of operators that quantise activations inside a step and are written out without that."""

_MALFORMED = (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError)
"""Errors of an expansion for a node that breaks its operator's definition."""


def expand(step: Step, schema: defs.OpSchema | None, source: Source) -> GraphProto | None:
    """Return the graph that replaces a node, or None if the node is kept.

    The graph reads the node's inputs, and makes its outputs, under their own names.

    Args:
        step: The node with its inputs looked up; its outputs need not be filled in.
        schema: Its operator's definition, None for one that ONNX does not know.
        source: The file that the versions of operators come from.
    """
    kind = (domain_of(step.node), step.node.op_type)
    known = all(value is None or value.shape is not None for value in step.inputs)
    if not known:
        return None
    if (without_empty := _without_empty(step, source)) is not None:
        return without_empty
    if not (kind in EXPANSIONS or _is_defined(kind, schema)):
        return None
    try:
        written = _written(step, source)
        if written and kind_of(step.node) in ROUNDED_INSIDE:
            unrounded = "activations stay real where ONNX Runtime quantises them inside"
            source.note(f"{step.node.op_type} is written out: {unrounded}")
        return written if written or schema is None else bodies.defined_body(step, schema, source)
    except (NoExpansionError, *_MALFORMED):
        return None


def _without_empty(step: Step, source: Source) -> GraphProto | None:
    """Return a node without what is empty of its values, or None if nothing else is computed."""
    write = None if domain_of(step.node) else empty.WRITTEN.get(step.node.op_type)
    if write is None:
        return None
    writer = Writer(source.opsets.get("", 1), step)
    try:
        write(writer)
    except (NoExpansionError, *_MALFORMED):
        return None
    return writer.graph()


def first_trip(step: Step, source: Source) -> tuple[GraphProto, bodies.TripCount] | str:
    """Return the first trip of a loop that is kept and its trips, or the reason they are unknown.

    Args:
        step: The node with its inputs looked up.
        source: The file that the versions of operators come from.
    """
    writer = Writer(source.opsets.get("", 1), step)
    write = bodies.loop if step.node.op_type == "Loop" else bodies.scan
    try:
        trips = write(writer, once=True)
    except NoExpansionError as reason:
        return str(reason)
    except _MALFORMED:
        return "not as its definition says"
    return writer.graph(), trips


def _is_defined(kind: tuple[str, str], schema: defs.OpSchema | None) -> bool:
    """Return whether ONNX defines an operator by a function body and the table lacks it."""
    known: Any = schema
    if known is None or kind in ROWS:
        return False
    return bool(known.has_function or known.has_context_dependent_function)


def _written(step: Step, source: Source) -> GraphProto | None:
    """Return the graph of :data:`EXPANSIONS`, or None if it has none for this form of the node."""
    write = EXPANSIONS.get((domain_of(step.node), step.node.op_type))
    opset = source.opsets.get("", 1)
    if write is None or opset < OLDEST:
        return None
    writer = Writer(opset, step)
    try:
        write(writer)
    except OneOperatorError:
        raise
    except NoExpansionError:
        return None
    return writer.graph()
