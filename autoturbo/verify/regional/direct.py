"""The same node on parts of its tensors: only extents change.

An axis that every tensor is addressed by position for position may be cut. One that addresses a
tensor in another way, or that the node takes from a parameter, is computed in full: what is not
needed of an input stands as zeros, and what is not wanted of an output is cut away. With no axis
that may be cut, this embeds the part in the whole, which is right for every operator.
"""

from __future__ import annotations

import math

from autoturbo.graph.domain import AccessMap, DimAccess, volume
from autoturbo.graph.table import (
    attention,
    elementwise,
    matrix,
    normalisation,
    quantisation,
    recurrent,
    reduction,
)
from autoturbo.verify.regional.frames import Frames
from autoturbo.verify.regional.kinds import CHANGES, PINS
from autoturbo.verify.regional.task import Box, Task
from autoturbo.verify.regional.task import whole as region_of

_FAMILIES = (attention, elementwise, matrix, normalisation, quantisation, recurrent, reduction)

_OTHERS = (
    "DepthToSpace", "Gather", "GatherElements", "GatherND", "GlobalAveragePool", "GlobalLpPool",
    "GlobalMaxPool", "GridSample", "OneHot", "Pad", "ReverseSequence", "RoiAlign", "Scatter",
    "ScatterElements", "ScatterND", "SpaceToDepth", "Tile", "Transpose", "Trilu", "Expand",
)  # fmt: skip

INDIFFERENT = frozenset(_OTHERS).union(
    f"{domain}.{op}" if domain else op for family in _FAMILIES for domain, op in family.ROWS
)
"""Kinds that compute the same on parts as on the whole wherever axes run position for position."""


def plan(task: Task) -> Frames:
    """The frames on which the node runs; always right."""
    alike = task.operator.kind in INDIFFERENT and all(map(_straight, task.maps))
    frames = _within(task, _pinned(task)) if alike else None
    return frames if frames is not None else whole(task)


def whole(task: Task) -> Frames:
    """The node as in the file, its inputs filled up with zeros."""
    inputs, outputs = (map(region_of, shapes) for shapes in (task.input_shapes, task.output_shapes))
    return Frames(tuple(inputs), tuple(outputs))


def _within(task: Task, pinned: set[int]) -> Frames | None:
    """Frames for a box that holds the pinned axes in full; None where the node cannot run so."""
    box = settled(task, pinned)
    frames = Frames(task.reads(box), task.makes(box))
    shapes = (*task.input_shapes, *task.output_shapes)
    sides = zip((*frames.inputs, *frames.outputs), shapes, strict=True)
    if any(volume(region) == 0 < math.prod(shape) for region, shape in sides):
        return None
    change = CHANGES.get(task.operator.kind)
    return frames if change is None or box == task.full else change(task, box, frames)


def settled(task: Task, pinned: set[int]) -> Box:
    """The box with the pinned axes in full, and those of dimensions that would have gaps."""
    while True:
        pairs = enumerate(zip(task.box, task.full, strict=True))
        box = tuple(whole if axis in pinned else part for axis, (part, whole) in pairs)
        gaps = {axis for dim in _merged(task) if not _dense(dim, box) for axis, _ in dim.terms}
        if gaps <= pinned:
            return box
        pinned = pinned | gaps


def _merged(task: Task) -> list[DimAccess]:
    return [dim for access in task.maps for dim in access.dims if len(dim.terms) > 1]


def _dense(dim: DimAccess, box: Box) -> bool:
    """Whether the positions that a box addresses are one interval, each once."""
    span, points = 1, 1
    for axis, coefficient in dim.terms:
        count = box[axis][1] - box[axis][0]
        span += (count - 1) * abs(coefficient)
        points *= count
    return span == points


def _pinned(task: Task) -> set[int]:
    """Axes that have to be computed in full."""
    operator = task.operator
    read = {axis for index in range(len(operator.inputs)) for axis in operator.input_axes(index)}
    pinned = set() if operator.kind in _SIZED else operator.output_axes - read
    return pinned | PINS.get(operator.kind, _none)(task)


def _none(_task: Task) -> set[int]:
    return set()


_SIZED = frozenset(("Expand", "Tile"))
"""Kinds whose outputs are as large as a parameter says, which is changed."""


def _straight(access: AccessMap) -> bool:
    """Whether no dimension is addressed from an offset, or in steps."""
    return not any(
        dim.offset or (len(dim.terms) == 1 and dim.terms[0][1] != 1) for dim in access.dims
    )
