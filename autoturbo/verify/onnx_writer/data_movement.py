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
    NodeRegions,
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
    """Return the elements of a region: equal for regions that hold the same ones in order."""
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


def _reshape(partial: PartialOperator) -> bool:
    """Write a reshape of the part, where it is the same elements in the same order.

    Parts of dimensions that are taken apart or put together are computed with all of these.
    """
    dense = settled(partial, set())
    for box, region in (
        (partial.box, partial.wanted[0]),
        (partial.box, partial.makes(partial.box)[0]),
        (dense, partial.makes(dense)[0]),
    ):
        source = partial.reads(box)[0]
        if region is not None and _same_elements(partial, source, region):
            _shaped(partial, partial.fit(0, source)[0], region)
            return True
    return False


def _same_elements(partial: PartialOperator, source: Region, made: Region) -> bool:
    return _run(source, partial.input_shapes[0]) == _run(made, partial.output_shapes[0])


def _shaped(partial: PartialOperator, name: str, region: Region) -> None:
    """Write a value under the extents of a region of the output, and cut what is wanted."""
    exact = region == partial.wanted[0]
    made = partial.builder.reshape(name, extents(region), partial.name(0) if exact else None)
    partial.finish([(made, region)])


# ----------------------------------------------------------------------------- slices and the like


def _strided(partial: PartialOperator) -> bool:
    """Write every output as a slice of the first input."""
    for output in range(len(partial.wanted)):
        if partial.wanted[output] is not None:
            _cut(partial, output)
    return True


def _cut(partial: PartialOperator, output: int) -> None:
    """Copy the rows that a region of one output is made from."""
    region = partial.wanted[output] or ()
    box = partial.operator.axis_region({output: region})
    need = partial.operator.input_region(0, box, partial.input_shapes[0])
    dims = partial.operator.input_maps[0].dims
    steps = [dim.terms[0][1] if dim.terms else 1 for dim in dims]
    name, _ = partial.fit(0, partial.needs[0])
    partial.builder.slice(name, partial.needs[0], need, steps, partial.name(output))


def _gathered(partial: PartialOperator) -> bool:
    """Write a gather by known indices, counted from the first position that is there."""
    indices = partial.node.inputs[1]
    if indices is None or indices.data is None:
        return False
    made = partial.makes(partial.box)
    rows, counted = _indexed(partial, made[0], len(indices.shape))
    picked = indices.data[tuple(slice(low, high) for low, high in rows)]
    extents = partial.input_shapes[0][counted]
    first = [low for low, _ in partial.needs[0][counted]]
    moved = counted_from_front(picked.reshape(-1, len(extents)), extents) - np.array(first)
    parameters = {1: moved.reshape(picked.shape)}
    write_node(partial, NodeRegions(partial.needs[:1], made, parameters=parameters))
    return True


def _indexed(partial: PartialOperator, made: Region, rank: int) -> tuple[Region, slice]:
    """Return the part of the indices that a part of the output takes, and the axes they count."""
    if partial.operator.kind == "GatherND":
        operand = partial.node.inputs[1]
        depth = operand.shape[-1] if operand is not None else 0
        first = int(partial.attributes.get("batch_dims", 0))
        return made[: rank - 1], slice(first, first + depth)
    axis = int(partial.attributes.get("axis", 0)) % len(partial.input_shapes[0])
    rows = made if partial.operator.kind == "GatherElements" else made[axis : axis + rank]
    return rows, slice(axis, axis + 1)


# --------------------------------------------------------------------------------- joins and edges


def _concat(partial: PartialOperator) -> bool:
    """Write a concatenation of the operands that meet the part, each cut to it."""
    region = partial.makes(partial.box)[0]
    met = [i for i, need in enumerate(partial.needs) if volume(need)]
    if not met:
        return False
    names = [partial.fit(index, partial.needs[index])[0] for index in met]
    exact = partial.wanted[0] == region
    axis = int(partial.attributes.get("axis", 1)) % len(region)
    joined = partial.builder.concat(names, axis, partial.name(0) if exact else None)
    partial.finish([(joined, region)])
    return True


def _padded(partial: PartialOperator) -> bool:
    """Write as much of a constant padding as the part has."""
    mode = partial.attributes.get("mode", b"constant")
    if mode != b"constant":
        return False
    if volume(partial.needs[0]) == 0:
        return _filled(partial)
    made, dims = partial.makes(partial.box), partial.operator.input_maps[0].dims
    sides = [
        _edge(dim, part, need)
        for dim, part, need in zip(dims, made[0], partial.needs[0], strict=True)
    ]
    widths = [before for before, _ in sides] + [after for _, after in sides]
    changes: dict[str, object] = {"pads": widths}
    parameters: dict[int, np.ndarray | str | None] = {}
    if partial.builder.opset >= PAD_INPUTS:
        changes, parameters = {}, {1: np.array(widths, dtype=np.int64)}
        if len(partial.node.inputs) > _AXES:
            parameters[_AXES] = None
    write_node(partial, NodeRegions(partial.needs, made, changes, parameters))
    return True


def _filled(partial: PartialOperator) -> bool:
    """Write a part that lies in the padding alone."""
    region, value = partial.makes(partial.box)[0], partial.attributes.get("value", 0.0)
    if partial.builder.opset < EXPANDS:
        return False
    index = partial.input_at(2)
    if index is not None:
        name, _ = partial.fit(index, partial.needs[index])
    elif value:
        name = partial.builder.constant(
            np.array(value, tensor_dtype_to_np_dtype(partial.operands[0].element))
        )
    else:
        name = partial.builder.zeros((1,), partial.operands[0].element)
    shape = partial.builder.integers(extents(region), "extents")
    partial.finish([(partial.builder.node("Expand", (name, shape))[0], region)])
    return True


def _edge(dim: DimAccess, made: Interval, need: Interval) -> tuple[int, int]:
    """Return the positions of an output before and after those that come from the input."""
    return need[0] - (made[0] + dim.offset), made[1] + dim.offset - need[1]


_AXES = 3
"""The input of Pad that says dimensions."""


# ---------------------------------------------------------------------------------- without inputs


def _shape(partial: PartialOperator) -> bool:
    """Write the shape of a tensor, whose elements are not needed for it."""
    operand = partial.node.inputs[0]
    shape = operand.shape if operand is not None else ()
    start, end = partial.attributes.get("start", 0), partial.attributes.get("end")
    _known(partial, np.array(shape[start:end], dtype=np.int64))
    return True


def _size(partial: PartialOperator) -> bool:
    operand = partial.node.inputs[0]
    _known(partial, np.array(np.prod(operand.shape if operand else (), dtype=np.int64)))
    return True


def _known(partial: PartialOperator, value: np.ndarray) -> None:
    region = partial.wanted[0] or ()
    part = value[tuple(slice(low, high) for low, high in region)]
    name = partial.builder.constant(np.asarray(part))
    partial.builder.node("Identity", (name,), (partial.name(0),))


def _cast(partial: PartialOperator) -> bool:
    """Write a cast: the second operand of CastLike lends only its type."""
    like = partial.node.inputs[1]
    if like is None:
        return False
    name, _ = partial.fit(0, partial.needs[0])
    region = partial.makes(partial.box)[0]
    made = partial.builder.node("Cast", (name,), 1, to=like.element)[0]
    partial.finish([(made, region)])
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


def write_data_movement(partial: PartialOperator) -> bool:
    """Add the nodes of a rearrangement; False for other kinds, and where there is no such way."""
    writer = WRITERS.get(partial.operator.kind)
    return writer is not None and writer(partial)
