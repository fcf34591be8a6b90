"""Inputs of the model that a value is made of, and what a user may give for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from autoturbo.graph.source import domain_of
from autoturbo.graph.values import Step, Value

_BY_VALUE: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "If": (0,),
    "Loop": (0,),
    "MaxUnpool": (2,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""Inputs whose elements decide on the shape of an output."""

_MOST_NUMBERS = 16
"""Elements of an input that somebody might type."""


def inputs_behind(
    values: Iterable[Value | None], steps: Sequence[Step], inputs: Sequence[Value]
) -> list[Value] | None:
    """Return the inputs that values are computed from; None if a body computes one from others."""
    makers = {output: step for step in steps for output in step.outputs if output is not None}
    found: dict[Value, None] = {}
    waiting = [value for value in values if value is not None]
    while waiting:
        value = waiting.pop()
        if value.constant or value in found:
            continue
        found[value] = None
        waiting += makers[value].read if value in makers else []
    ends = [value for value in found if value not in makers]
    return ends if all(value in inputs for value in ends) else None


def deciding(step: Step, steps: Sequence[Step], inputs: Sequence[Value]) -> list[tuple[str, str]]:
    """Return the inputs of the model that decide on the shapes a node makes, with example values.

    Args:
        step: The node.
        steps: The steps before it.
        inputs: Inputs of the model.

    Returns:
        Nothing if they are not few numbers each.
    """
    places = () if domain_of(step.node) else _BY_VALUE.get(step.node.op_type, ())
    values = [step.inputs[place] for place in places if place < len(step.inputs)]
    ends = inputs_behind(values, steps, inputs) or []
    if any(value.shape is None or math.prod(value.shape) > _MOST_NUMBERS for value in ends):
        return []
    return sorted((value.name, _example(step, value)) for value in ends)


def _example(step: Step, value: Value) -> str:
    """Return elements that an input may have: the extents of the data where it is for those."""
    kind, data = step.node.op_type, step.inputs[0]
    if kind == "Pad":
        return "0"
    direct = any(one is value for one in step.inputs[1:])
    if not direct or data is None or data.shape is None or kind not in ("Reshape", "Expand"):
        return "1"
    count = math.prod(value.shape or ())
    if kind == "Reshape":
        extents = [*[1] * (count - 1), math.prod(data.shape)]
    else:
        extents = [*[1] * (count - len(data.shape)), *data.shape]
    return ",".join(map(str, extents))


def regrown(ends: Sequence[Value], old: int, new: int) -> str | None:
    """Return the shape that gives the one input behind a value another extent.

    Args:
        ends: The inputs behind it.
        old: The extent that it has.
        new: The one that it should have.

    Returns:
        ``NAME=2,4,128``; None if there are several inputs, or several such dimensions.
    """
    if len(ends) != 1 or (ends[0].shape or ()).count(old) != 1:
        return None
    extents = (new if extent == old else extent for extent in ends[0].shape or ())
    return f"{ends[0].name}={','.join(map(str, extents))}"
