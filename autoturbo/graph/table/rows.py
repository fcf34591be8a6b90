"""The table itself, and the opaque answer for what is not in it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from autoturbo.graph.domain import WHOLE_DIM, AccessMap, AxisKind, interval_of
from autoturbo.graph.operators import Engine, Pattern, Work
from autoturbo.graph.table import (
    attention,
    convolution,
    elementwise,
    indexing,
    layout,
    matrix,
    normalisation,
    pooling,
    quantisation,
    recurrent,
    reduction,
    reshape,
    resizing,
    selection,
    signal,
)
from autoturbo.graph.table.spec import NodeView, NoRowError, OperatorSpec, Row, ValueView

_FAMILIES: tuple[Mapping[tuple[str, str], Row], ...] = (
    elementwise.ROWS,
    matrix.ROWS,
    convolution.ROWS,
    pooling.ROWS,
    normalisation.ROWS,
    reduction.ROWS,
    reshape.ROWS,
    layout.ROWS,
    indexing.ROWS,
    resizing.ROWS,
    quantisation.ROWS,
    recurrent.ROWS,
    attention.ROWS,
    selection.ROWS,
    signal.ROWS,
)

ROWS: Mapping[tuple[str, str], Row] = MappingProxyType(
    {key: row for family in _FAMILIES for key, row in family.items()}
)
"""Every row, by ``(domain, operator type)``; ONNX's own domain is ``""``."""

_MALFORMED = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
"""What a row may stumble over in a node that breaks its operator's definition."""


def describe(node: NodeView) -> OperatorSpec:
    """The domain and access maps of a node; opaque, with the reason, where there is no row.

    Never raises: a node with attributes or shapes that its operator does not allow is opaque too.
    """
    row = ROWS.get((_domain(node), node.op_type))
    if row is None:
        return opaque(node, f"no row for {_kind(node)}")
    try:
        spec = row(node)
        _check(node, spec)
    except NoRowError as reason:
        return opaque(node, f"{_kind(node)}: {reason}")
    except _MALFORMED as reason:
        return opaque(node, f"{_kind(node)}: not as its definition says ({reason})")
    return spec


def supported() -> tuple[str, ...]:
    """Operator types that have a row, with the domain in front if not ONNX's own."""
    return tuple(sorted(f"{domain}.{op}" if domain else op for domain, op in ROWS))


def opaque(node: NodeView, reason: str) -> OperatorSpec:
    """The answer that is always right: no axes, everything read and written whole.

    Its domain is one point, so one vector operation per output element is one large constant.
    """
    elements = sum(math.prod(value.shape) for value in node.outputs if value is not None)
    return OperatorSpec(
        axes=(),
        inputs=tuple(_whole(value) for value in node.inputs),
        outputs=tuple(_whole(value) for value in node.outputs),
        work=Work(vector=float(elements)),
        engine=Engine.VECTOR,
        pattern=Pattern.OPAQUE,
        opaque=reason,
        counted=False,
    )


def _whole(value: ValueView | None) -> AccessMap | None:
    return None if value is None else AccessMap((WHOLE_DIM,) * len(value.shape))


def _domain(node: NodeView) -> str:
    return "" if node.domain == "ai.onnx" else node.domain


def _kind(node: NodeView) -> str:
    return f"{_domain(node)}.{node.op_type}" if _domain(node) else node.op_type


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
    """Whether the whole domain reaches every position of an output, and no other.

    Overlapping outputs (transposed convolution) have window axes in them and are left out.
    """
    axes = tuple((0, axis.extent) for axis in spec.axes)
    for dim, extent in zip(access.dims, shape, strict=True):
        if any(spec.axes[axis].kind is AxisKind.WINDOW for axis, _ in dim.terms):
            continue
        if interval_of(dim, axes, extent) != (0, extent):
            return False
    return True
