"""Rearrangements, written with the nodes that move just the elements asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from autoturbo.graph.domain import DimAccess, Interval, Region, volume
from autoturbo.graph.indices import counted_from_front
from autoturbo.verify.onnx_writer.builder import EXPANDS, PAD_INPUTS
from autoturbo.verify.onnx_writer.parallel_axes import settled
from autoturbo.verify.onnx_writer.partial_operator import (
    Frames,
    PartialOperator,
    extents,
    write_node,
)

Writer = Callable[[PartialOperator], bool]
"""Adds the nodes of a part; False where it has no way but to embed it in the whole."""


# -------------------------------------------------------------------------------------- reshaping


@dataclass(frozen=True, slots=True)
class _Run:
    """Which elements of a tensor a region is, in their order.

    Attributes:
        start: of the first.
        loops: counts and strides, outermost first; one is not the continuation of the next.
    """

    start: int
    loops: tuple[tuple[int, int], ...]


def _run(region: Region, shape: tuple[int, ...]) -> _Run:
    """The elements of a region: equal for two regions of two shapes that hold the same ones."""
    start, stride = 0, 1
    loops: list[tuple[int, int]] = []
    for (low, high), extent in zip(reversed(region), reversed(shape), strict=True):
        start += low * stride
        if high - low != 1:
            if loops and loops[-1][0] * loops[-1][1] == stride:
                loops[-1] = (loops[-1][0] * (high - low), loops[-1][1])
            else:
                loops.append((high - low, stride))
        stride *= extent
    return _Run(start, tuple(reversed(loops)))


def _reshape(task: PartialOperator) -> bool:
    """A reshape of the part, where it is the same elements in the same order.

    Parts of dimensions that are taken apart or put together are computed with all of these.
    """
    dense = settled(task, set())
    for box, region in (
        (task.box, task.wanted[0]),
        (task.box, task.makes(task.box)[0]),
        (dense, task.makes(dense)[0]),
    ):
        source = task.reads(box)[0]
        if region is not None and _alike(task, source, region):
            _shaped(task, task.fit(0, source)[0], region)
            return True
    return False


def _alike(task: PartialOperator, source: Region, made: Region) -> bool:
    return _run(source, task.input_shapes[0]) == _run(made, task.output_shapes[0])


def _shaped(task: PartialOperator, name: str, region: Region) -> None:
    """A value under the extents of a region of the output, and what is wanted of it."""
    exact = region == task.wanted[0]
    made = task.body.reshape(name, extents(region), task.name(0) if exact else None)
    task.finish([(made, region)])


# ----------------------------------------------------------------------------- slices and the like


def _strided(task: PartialOperator) -> bool:
    """Every output is a slice of the first input."""
    for output in range(len(task.wanted)):
        if task.wanted[output] is not None:
            _cut(task, output)
    return True


def _cut(task: PartialOperator, output: int) -> None:
    """Copy the rows that a region of one output is made from."""
    region = task.wanted[output] or ()
    box = task.operator.axis_region({output: region})
    need = task.operator.input_region(0, box, task.input_shapes[0])
    dims = task.operator.input_maps[0].dims
    steps = [dim.terms[0][1] if dim.terms else 1 for dim in dims]
    name, _ = task.fit(0, task.needs[0])
    task.body.slice(name, task.needs[0], need, steps, task.name(output))


def _gathered(task: PartialOperator) -> bool:
    """Known indices into a tensor: they count from the first position at hand."""
    indices = task.node.inputs[1]
    if indices is None or indices.data is None:
        return False
    made = task.makes(task.box)
    rows, counted = _indexed(task, made[0], len(indices.shape))
    picked = indices.data[tuple(slice(low, high) for low, high in rows)]
    extents = task.input_shapes[0][counted]
    first = [low for low, _ in task.needs[0][counted]]
    moved = counted_from_front(picked.reshape(-1, len(extents)), extents) - np.array(first)
    parameters = {1: moved.reshape(picked.shape)}
    write_node(task, Frames(task.needs[:1], made, parameters=parameters))
    return True


def _indexed(task: PartialOperator, made: Region, rank: int) -> tuple[Region, slice]:
    """The part of the indices that a part of the output takes, and what they count along."""
    if task.operator.kind == "GatherND":
        operand = task.node.inputs[1]
        depth = operand.shape[-1] if operand is not None else 0
        first = int(task.attributes.get("batch_dims", 0))
        return made[: rank - 1], slice(first, first + depth)
    axis = int(task.attributes.get("axis", 0)) % len(task.input_shapes[0])
    rows = made if task.operator.kind == "GatherElements" else made[axis : axis + rank]
    return rows, slice(axis, axis + 1)


# --------------------------------------------------------------------------------- joins and edges


def _concat(task: PartialOperator) -> bool:
    """The operands that meet the part, each cut to it."""
    region = task.makes(task.box)[0]
    met = [i for i, need in enumerate(task.needs) if volume(need)]
    if not met:
        return False
    names = [task.fit(index, task.needs[index])[0] for index in met]
    exact = task.wanted[0] == region
    axis = int(task.attributes.get("axis", 1)) % len(region)
    joined = task.body.concat(names, axis, task.name(0) if exact else None)
    task.finish([(joined, region)])
    return True


def _padded(task: PartialOperator) -> bool:
    """As much of a constant padding as the part has."""
    mode = task.attributes.get("mode", b"constant")
    if mode != b"constant":
        return False
    if volume(task.needs[0]) == 0:
        return _filled(task)
    made, dims = task.makes(task.box), task.operator.input_maps[0].dims
    sides = [
        _edge(dim, part, need) for dim, part, need in zip(dims, made[0], task.needs[0], strict=True)
    ]
    widths = [before for before, _ in sides] + [after for _, after in sides]
    changes: dict[str, object] = {"pads": widths}
    parameters: dict[int, np.ndarray | str | None] = {}
    if task.body.opset >= PAD_INPUTS:
        changes, parameters = {}, {1: np.array(widths, dtype=np.int64)}
        if len(task.node.inputs) > _AXES:
            parameters[_AXES] = None
    write_node(task, Frames(task.needs, made, changes, parameters))
    return True


def _filled(task: PartialOperator) -> bool:
    """A part of the padding alone."""
    region, value = task.makes(task.box)[0], task.attributes.get("value", 0.0)
    if task.body.opset < EXPANDS:
        return False
    index = task.input_at(2)
    if index is not None:
        name, _ = task.fit(index, task.needs[index])
    elif value:
        name = task.body.constant(
            np.array(value, tensor_dtype_to_np_dtype(task.operands[0].element))
        )
    else:
        name = task.body.zeros((1,), task.operands[0].element)
    shape = task.body.integers(extents(region), "extents")
    task.finish([(task.body.node("Expand", (name, shape))[0], region)])
    return True


def _edge(dim: DimAccess, made: Interval, need: Interval) -> tuple[int, int]:
    """Positions of an output before and after those that come from the input."""
    return need[0] - (made[0] + dim.offset), made[1] + dim.offset - need[1]


_AXES = 3
"""The input of Pad that says dimensions."""


# ---------------------------------------------------------------------------------- without inputs


def _shape(task: PartialOperator) -> bool:
    """The shape of a tensor, which is not needed for it."""
    operand = task.node.inputs[0]
    shape = operand.shape if operand is not None else ()
    start, end = task.attributes.get("start", 0), task.attributes.get("end")
    _known(task, np.array(shape[start:end], dtype=np.int64))
    return True


def _size(task: PartialOperator) -> bool:
    operand = task.node.inputs[0]
    _known(task, np.array(np.prod(operand.shape if operand else (), dtype=np.int64)))
    return True


def _known(task: PartialOperator, value: np.ndarray) -> None:
    region = task.wanted[0] or ()
    part = value[tuple(slice(low, high) for low, high in region)]
    name = task.body.constant(np.asarray(part))
    task.body.node("Identity", (name,), (task.name(0),))


def _cast(task: PartialOperator) -> bool:
    """The second operand of CastLike lends only its type."""
    like = task.node.inputs[1]
    if like is None:
        return False
    name, _ = task.fit(0, task.needs[0])
    region = task.makes(task.box)[0]
    made = task.body.node("Cast", (name,), 1, to=like.element)[0]
    task.finish([(made, region)])
    return True


WRITERS: Mapping[str, Writer] = {
    "CastLike": _cast,
    "Concat": _concat,
    "Flatten": _reshape,
    "Gather": _gathered,
    "GatherElements": _gathered,
    "GatherND": _gathered,
    "Pad": _padded,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _strided,
    "Split": _strided,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
}
"""By kind."""


def write_data_movement(task: PartialOperator) -> bool:
    """Add the nodes of a rearrangement; False for other kinds, and where there is no such way."""
    writer = WRITERS.get(task.operator.kind)
    return writer is not None and writer(task)
