"""Axes counted from the last dimension before opset 11, which runtimes take and ONNX does not say.

They are counted from the first one before anything else looks at a node.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import NodeProto

from autoturbo.graph.source import domain_of
from autoturbo.graph.values import Value

_SINCE = 11
"""Opset since which ONNX itself defines negative axes, and infers shapes with them."""

_REFUSED = frozenset(("Flatten",))
"""Operators of whose old versions ONNX itself refuses a negative axis."""

_SLICE_AXES = 3
"""Input of a Slice that holds its axes, where they are no attribute."""


def positive_axes(
    node: NodeProto, inputs: Sequence[Value | None], opset: int
) -> tuple[NodeProto, list[Value | None]]:
    """Return a node and its inputs with all axes counted from the first dimension.

    Args:
        node: The node; a copy is returned where it has a negative axis.
        inputs: The node's inputs by position.
        opset: Version of ONNX's own operators.
    """
    first = inputs[0] if inputs else None
    shape = None if first is None else first.shape
    if opset >= _SINCE or domain_of(node) or shape is None or node.op_type in _REFUSED:
        return node, list(inputs)
    rank = len(shape) + _more_dimensions(node)
    return _positive(node, rank), _positive_input(node, inputs, rank)


def _more_dimensions(node: NodeProto) -> int:
    """Return how many more dimensions the tensor that axes count in has than the first input."""
    if node.op_type == "Unsqueeze":
        return sum(len(item.ints) for item in node.attribute if item.name == "axes")
    return int(node.op_type == "OneHot")


def _positive(node: NodeProto, rank: int) -> NodeProto:
    negative = any(
        axis < 0 for a in node.attribute if a.name in ("axis", "axes") for axis in (a.i, *a.ints)
    )
    if not negative:
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    for item in copy.attribute:
        if item.name == "axis" and -rank <= item.i < 0:
            item.i += rank
        elif item.name == "axes":
            item.ints[:] = [axis + rank if -rank <= axis < 0 else axis for axis in item.ints]
    if node.op_type == "Slice":
        _sort_bounds(copy)
    return copy


def _sort_bounds(node: NodeProto) -> None:
    """Put the bounds of a Slice in the order of its axes: ONNX infers no shape of others."""
    columns = {a.name: list(a.ints) for a in node.attribute}
    axes = columns.get("axes", [])
    for item in node.attribute:
        if len(item.ints) == len(axes):
            item.ints[:] = [item.ints[k] for k in sorted(range(len(axes)), key=axes.__getitem__)]


def _positive_input(
    node: NodeProto, inputs: Sequence[Value | None], rank: int
) -> list[Value | None]:
    """Return the inputs of a Slice with positive axes; those of others as they are."""
    axes = inputs[_SLICE_AXES] if len(inputs) > _SLICE_AXES else None
    if node.op_type != "Slice" or axes is None or axes.data is None or (axes.data >= 0).all():
        return list(inputs)
    counted = np.where(axes.data < 0, axes.data + rank, axes.data)
    name = f"{axes.name} from the first"
    positive = Value(name, axes.type, constant=True, data=counted, literal=axes.literal)
    return [*inputs[:_SLICE_AXES], positive, *inputs[_SLICE_AXES + 1 :]]
