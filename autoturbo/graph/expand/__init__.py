"""Operators that are written out in others while a model is imported.

The operator table describes what is computed by one operator; what is better seen as several
(attention with a cache, a quantised operator, a fused one with a layout of its own) is written out
as a graph for the node's attributes and extents, and the import goes on with that graph as it does
with a branch of an ``If``. So regions, work, checks and written models follow by themselves.

Operators that ONNX itself defines by a body are written out by that body where the table has no row
for them (:mod:`defined`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoturbo.graph.expand import attention, grouped_query
from autoturbo.graph.expand.writer import OLDEST, NoExpansionError, Writer
from autoturbo.graph.source import Source, domain_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnx import GraphProto

    from autoturbo.graph.values import Step

MICROSOFT = "com.microsoft"

EXPANSIONS: dict[tuple[str, str], Callable[[Writer], None]] = {
    ("", "Attention"): attention.standard,
    (MICROSOFT, "Attention"): attention.packed_projection,
    (MICROSOFT, "MultiHeadAttention"): attention.multi_head,
    (MICROSOFT, "GroupQueryAttention"): grouped_query.group_query,
}
"""What writes a node out, by ``(domain, operator type)``."""

_MALFORMED = (LookupError, TypeError, ValueError, ArithmeticError)
"""What an expansion may stumble over in a node that breaks its operator's definition."""


def expand(step: Step, source: Source) -> GraphProto | None:
    """Return the graph that stands for a node, or None where the node stays as it is.

    The graph reads the node's inputs, and makes its outputs, under their own names.

    Args:
        step: the node with its inputs looked up; its outputs need not be filled in.
        source: where the versions are from.
    """
    write = EXPANSIONS.get((domain_of(step.node), step.node.op_type))
    opset = source.opsets.get("", 1)
    known = all(value is None or value.shape is not None for value in step.inputs)
    if write is None or opset < OLDEST or not known:
        return None
    writer = Writer(step, opset)
    try:
        write(writer)
    except (NoExpansionError, *_MALFORMED):
        return None
    return writer.graph()
