"""Extents that depend on data, taken at their largest, so that detectors can be scheduled.

``NonZero`` finds at most every element, ``NonMaxSuppression`` keeps at most every box, a ``Loop``
of known trip count runs at most that often and carries values that keep their shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from onnx import TensorProto, TypeProto

from autoturbo.graph.source import domain_of
from autoturbo.graph.values import Step, Value, dims_of, element_type, static_shape, tensor_type

Shape = tuple[int, ...]

_BOX_COLUMNS = 3
"""NonMaxSuppression answers batch, class and box per row."""


def upper_bounds(step: Step, types: Mapping[str, TypeProto]) -> dict[str, TypeProto]:
    """Types of the outputs whose extents are bounded though not known.

    Args:
        step: the node.
        types: what is known of its outputs.
    """
    if domain_of(step.node):
        return {}
    if step.node.op_type == "Loop":
        return _loop(step, types)
    bound = _BOUNDS.get(step.node.op_type)
    shape = (
        bound(step)
        if bound and all(v is None or v.shape is not None for v in step.inputs)
        else None
    )
    if shape is None:
        return {}
    return {
        name: tensor_type(element_type(kind) or TensorProto.INT64, shape if first else shape[-1:])
        for first, (name, kind) in zip((True, False, False, False), types.items(), strict=False)
    }


def _input(step: Step, position: int) -> Value | None:
    return step.inputs[position] if position < len(step.inputs) else None


def _shape(step: Step, position: int) -> Shape:
    value = _input(step, position)
    return (value.shape if value is not None else None) or ()


def _nonzero(step: Step) -> Shape:
    shape = _shape(step, 0)
    return (max(len(shape), 1), math.prod(shape))


def _boxes(step: Step) -> Shape | None:
    boxes, scores, most = _shape(step, 0), _shape(step, 1), _input(step, 2)
    if len(boxes) != 3 or len(scores) != 3:  # noqa: PLR2004 - [batch, boxes, 4], [batch, classes, boxes]
        return None
    kept = boxes[1]
    if most is not None and most.data is not None:
        kept = min(kept, int(most.data.ravel()[0]))
    return (scores[0] * scores[1] * kept, _BOX_COLUMNS)


def _flat_or_axis(step: Step) -> Shape:
    """Unique and Compress: all elements without an axis, the extent of the axis with one."""
    shape = _shape(step, 0)
    axis = next((int(a.i) for a in step.node.attribute if a.name == "axis"), None)
    return (math.prod(shape),) if axis is None else shape


_BOUNDS: dict[str, Callable[[Step], Shape | None]] = {
    "NonZero": _nonzero,
    "NonMaxSuppression": _boxes,
    "Compress": _flat_or_axis,
    "Unique": _flat_or_axis,
}


def _loop(step: Step, types: Mapping[str, TypeProto]) -> dict[str, TypeProto]:
    """Values that a Loop carries keep their shape; stacked ones have an entry per trip."""
    trips = _input(step, 0)
    longest = None if trips is None or trips.data is None else int(trips.data.ravel()[0])
    bounded = {}
    for position, name in enumerate(step.node.output):
        kind = types.get(name)
        if kind is None or static_shape(kind) is not None:
            continue
        carried = _input(step, position + 2)
        shape = _stacked(kind, longest) if carried is None else carried.shape
        if shape is not None:
            bounded[name] = tensor_type(element_type(kind), shape)
    return bounded


def _stacked(kind: TypeProto, trips: int | None) -> Shape | None:
    """The shape of an output with one entry per trip."""
    dims = dims_of(kind)
    if trips is None or not dims or dims[0] is not None or None in dims[1:]:
        return None
    return (trips, *(int(dim or 0) for dim in dims[1:]))
