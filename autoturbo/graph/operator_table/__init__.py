"""The operator table: one row per operator type; operators without a row run whole, not analysed.

``describe(node)`` answers with the iteration domain and the access maps of a node; of a node that
the table cannot describe, with the reason (``opaque`` in its fields). Families of operators are one
module each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from autoturbo.graph.domain import AccessMap, AxisKind, interval_of
from autoturbo.graph.operator_table import (
    convolution,
    elementwise,
    indexing,
    layout,
    matrix,
    reduction,
    sequence,
    signal,
)
from autoturbo.graph.operator_table.build import (
    NodeView,
    NoRowError,
    OperatorSpec,
    Row,
    ValueView,
    everything,
)
from autoturbo.graph.operators import Engine, Pattern, Work
from autoturbo.graph.source import domain_of, kind_of

__all__ = ["NoRowError", "NodeView", "OperatorSpec", "ValueView", "describe", "supported"]

_FAMILIES = (convolution, elementwise, indexing, layout, matrix, reduction, sequence, signal)

ROWS: Mapping[tuple[str, str], Row] = MappingProxyType(
    {key: row for family in _FAMILIES for key, row in family.ROWS.items()}
)
"""Every row, by ``(domain, operator type)``; ONNX's own domain is ``""``."""

_MALFORMED = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
"""Errors of a row for a node that breaks its operator's definition."""


def describe(node: NodeView) -> OperatorSpec:
    """Return the domain and access maps of a node, or why it runs whole, not analysed.

    Never raises: a node with attributes or shapes that its operator does not allow runs whole too.
    """
    row = ROWS.get((domain_of(node), node.op_type))
    if row is None:
        return opaque(node, f"no row for {kind_of(node)}")
    try:
        spec = row(node)
        _check(node, spec)
    except NoRowError as reason:
        return opaque(node, f"{kind_of(node)}: {reason}")
    except _MALFORMED as reason:
        return opaque(node, f"{kind_of(node)}: not as its definition says ({reason})")
    return spec


def supported() -> tuple[str, ...]:
    """Return the operator types that have a row, with the domain before them if not ONNX's."""
    return tuple(sorted(f"{domain}.{op}" if domain else op for domain, op in ROWS))


def opaque(node: NodeView, reason: str) -> OperatorSpec:
    """Return the description of a node that runs whole: no axes, all of its tensors in full.

    Its domain is one point, so one vector operation per output element is one large constant.
    """
    elements = sum(math.prod(value.shape) for value in node.outputs if value is not None)
    return OperatorSpec(
        axes=(),
        inputs=tuple(everything(value) for value in node.inputs),
        outputs=tuple(everything(value) for value in node.outputs),
        work=Work(vector=float(elements)),
        engine=Engine.VECTOR,
        pattern=Pattern.OPAQUE,
        opaque=reason,
        counted=False,
    )


def _check(node: NodeView, spec: OperatorSpec) -> None:
    """Refuse maps that do not fit the tensors: wrong count, wrong rank, outputs not covered."""
    for values, maps in ((node.inputs, spec.inputs), (node.outputs, spec.outputs)):
        for value, access in zip(values, maps, strict=True):
            if value is not None and access is not None and len(access.dims) != len(value.shape):
                raise NoRowError(f"{value.name} has {len(value.shape)} dimensions, not as expected")
    for value, access in zip(node.outputs, spec.outputs, strict=True):
        if value is not None and (access is None or not _covers(spec, access, value.shape)):
            raise NoRowError(f"the shape of {value.name} does not follow from the inputs")


def _covers(spec: OperatorSpec, access: AccessMap, shape: tuple[int, ...]) -> bool:
    """Return whether the domain reaches every position of an output, and no other.

    Overlapping outputs (transposed convolution) have window axes in them and are not checked.
    """
    axes = tuple((0, axis.extent) for axis in spec.axes)
    for dim, extent in zip(access.dims, shape, strict=True):
        if any(spec.axes[axis].kind is AxisKind.WINDOW for axis, _ in dim.terms):
            continue
        if interval_of(dim, axes, extent) != (0, extent):
            return False
    return True
