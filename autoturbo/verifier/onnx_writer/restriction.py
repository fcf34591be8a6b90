"""One operator restricted to a box of its domain, written as ONNX nodes.

Rearrangements are written with the nodes that move just the elements asked for, all others with
the node itself on regions of its tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import numpy as np

from autoturbo.graph.domain import DimAccess, Interval, Region, volume
from autoturbo.graph.indices import counted_from_front
from autoturbo.graph.model_nodes import ModelNode, Operand
from autoturbo.graph.node_builder import EXPANDS
from autoturbo.graph.operators import Operator
from autoturbo.graph.structure import bodies, captured_names, rename_read
from autoturbo.verifier.onnx_writer.builder import PAD_INPUTS, GraphBuilder
from autoturbo.verifier.onnx_writer.node_regions import plan_parallel, plan_window, settled
from autoturbo.verifier.onnx_writer.partial_operator import (
    Box,
    NodeRegions,
    PartialOperator,
    RegionError,
    add_node,
    extents,
    output_names,
    whole,
    write_node,
)


class Rule(StrEnum):
    """Rule by which a part of an operator is computed."""

    NOTHING = "nothing"
    """No output is asked for."""
    WHOLE = "whole"
    """By the node of the file on whole tensors."""
    DATA_MOVEMENT = "data movement"
    """By slices, joins and reshapes."""
    SLIDING_WINDOW = "sliding window"
    """By the node with the halo of its windows and explicit padding."""
    PARALLEL_AXES = "parallel axes"
    """By the node on parts of its tensors."""
    EMBEDDED = "embedded"
    """By the node on larger tensors, zeros standing where nothing is needed."""


def restrict(
    builder: GraphBuilder,
    node: ModelNode,
    operator: Operator,
    shapes: Sequence[tuple[int, ...]],
    box: Box,
) -> Rule:
    """Add the nodes that compute the wanted regions of an operator's outputs.

    Args:
        builder: Holds the regions of the inputs, and those wanted of the outputs.
        node: Node of the operator.
        operator: The operator with its domain and access maps.
        shapes: Shapes of the graph's tensors.
        box: The part of the domain to compute, at least what the outputs need.

    Returns:
        The rule that was applied.

    Raises:
        RegionError: The region of an input is not held, or the box is too small.
    """
    builder.operator = operator.name
    partial = PartialOperator(builder, node, operator, shapes, box)
    if all(wanted is None for wanted in partial.wanted):
        return Rule.NOTHING
    partial.check()
    if _is_whole(partial):
        _write_whole(partial)
        return Rule.WHOLE
    if node.captured:  # it is never split
        lacking = [o.name for o in partial.values if o is not None and not _at_hand(partial, o)]
        raise RegionError(f"{operator.name} is computed whole; not held whole: {lacking}")
    writer = WRITERS.get(partial.operator.kind)
    if writer is not None and writer(partial):
        return Rule.DATA_MOVEMENT
    sliding = plan_window(partial)
    if sliding is not None:
        write_node(partial, sliding)
        return Rule.SLIDING_WINDOW
    filled = write_node(partial, plan_parallel(partial))
    return Rule.EMBEDDED if filled else Rule.PARALLEL_AXES


def _is_whole(partial: PartialOperator) -> bool:
    """Return whether the whole domain is wanted, and all inputs are whole."""
    read = (operand for operand in partial.values if operand is not None)
    return partial.box == partial.full and all(_at_hand(partial, operand) for operand in read)


def _at_hand(partial: PartialOperator, operand: Operand) -> bool:
    region: Region | None = (
        partial.builder.regions.get(operand.tensor) if operand.tensor >= 0 else None
    )
    return region == whole(operand.shape) or (region is None and operand.constant)


def _write_whole(partial: PartialOperator) -> None:
    """Add the node, and slice its outputs if a part of them is wanted."""
    for operand in partial.values:
        if operand is not None and partial.builder.regions.get(operand.tensor) is None:
            partial.builder.operand(operand)
    inputs = ["" if operand is None else operand.name for operand in partial.node.inputs]
    results = output_names(partial, [whole(shape) for shape in partial.output_shapes])
    add_node(partial, inputs, [name for name, _ in results])
    _rename_captured(partial)
    partial.finish(results)


def _rename_captured(partial: PartialOperator) -> None:
    """Rename the values that control-flow bodies capture."""
    proto = partial.builder.nodes[-1]
    pairs = zip(partial.node.proto.input, partial.node.inputs, strict=False)
    names = {name: operand.name for name, operand in pairs if operand is not None}
    outer = [n for n in captured_names(partial.node.proto) if n not in partial.node.proto.input]
    captured = zip(outer, partial.node.captured, strict=True)
    names.update({name: operand.name for name, operand in captured})
    for graph in bodies(proto):
        rename_read(graph, names)


Writer = Callable[[PartialOperator], bool]
"""Adds the nodes of a part; False where it has no way but to embed it in the whole."""


# -------------------------------------------------------------------------------------- reshaping


def _elements(region: Region, shape: tuple[int, ...]) -> tuple[int, list[tuple[int, int]]]:
    """Return which elements of a tensor a region has; equal for the same elements in order.

    They are the first one, and the counts and strides of loops over them, innermost first, none of
    which continues another.
    """
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
    return start, loops


def _reshape(partial: PartialOperator) -> bool:
    """Write a reshape of the part if both sides have the same elements in the same order.

    Parts of dimensions that are split or merged are computed with all of these.

    Returns:
        Whether it was written.
    """
    dense = settled(partial, set())
    for box, region in (
        (partial.box, partial.wanted[0]),
        (partial.box, partial.makes(partial.box)[0]),
        (dense, partial.makes(dense)[0]),
    ):
        source = partial.reads(box)[0]
        if region is None or _elements(source, partial.input_shapes[0]) != _elements(
            region, partial.output_shapes[0]
        ):
            continue
        name, exact = partial.fit(0, source)[0], region == partial.wanted[0]
        to = partial.name(0) if exact else None
        partial.finish([(partial.builder.reshape(name, *extents(region), to=to), region)])
        return True
    return False


# ----------------------------------------------------------------------------- slices and the like


def _strided(partial: PartialOperator) -> bool:
    """Write every output as a slice of the first input."""
    operator = partial.operator
    steps = [dim.terms[0][1] if dim.terms else 1 for dim in operator.input_maps[0].dims]
    for output, region in enumerate(partial.wanted):
        if region is not None:
            box = operator.axis_region({output: region})
            need = operator.input_region(0, box, partial.input_shapes[0])
            name, _ = partial.fit(0, partial.needs[0])
            partial.builder.slice(name, partial.needs[0], need, steps, partial.name(output))
    return True


def _gathered(partial: PartialOperator) -> bool:
    """Write a gather by known indices, relative to the first held position."""
    indices = partial.node.inputs[1]
    if indices is None or indices.data is None:
        return False
    regions = partial.makes(partial.box)
    rows, counted = _indexed(partial, regions[0], len(indices.shape))
    picked = indices.data[tuple(slice(low, high) for low, high in rows)]
    extents = partial.input_shapes[0][counted]
    first = [low for low, _ in partial.needs[0][counted]]
    moved = counted_from_front(picked.reshape(-1, len(extents)), extents) - np.array(first)
    parameters = {1: moved.reshape(picked.shape)}
    write_node(partial, NodeRegions(partial.needs[:1], regions, parameters=parameters))
    return True


def _indexed(partial: PartialOperator, made: Region, rank: int) -> tuple[Region, slice]:
    """Return the part of the indices that an output part uses, and their axes."""
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
    """Write a concatenation of the operands that overlap the part, each sliced to it."""
    region = partial.makes(partial.box)[0]
    met = [i for i, need in enumerate(partial.needs) if volume(need)]
    if not met:
        return False
    names = [partial.fit(index, partial.needs[index])[0] for index in met]
    exact = partial.wanted[0] == region
    axis = int(partial.attributes.get("axis", 1)) % len(region)
    joined = partial.builder.concat(*names, axis=axis, to=partial.name(0) if exact else None)
    partial.finish([(joined, region)])
    return True


def _padded(partial: PartialOperator) -> bool:
    """Write the constant padding of the part."""
    mode = partial.attributes.get("mode", b"constant")
    if mode != b"constant":
        return False
    if volume(partial.needs[0]) == 0:
        return _filled(partial)
    regions, dims = partial.makes(partial.box), partial.operator.input_maps[0].dims
    sides = [
        _edge(dim, part, need)
        for dim, part, need in zip(dims, regions[0], partial.needs[0], strict=True)
    ]
    widths = [before for before, _ in sides] + [after for _, after in sides]
    changes: dict[str, object] = {"pads": widths}
    parameters: dict[int, np.ndarray | str | None] = {}
    if partial.builder.opset >= PAD_INPUTS:
        changes, parameters = {}, {1: np.array(widths, dtype=np.int64)}
        if len(partial.node.inputs) > _AXES:
            parameters[_AXES] = None
    write_node(partial, NodeRegions(partial.needs, regions, changes, parameters))
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
        name = partial.builder.number(value, partial.operands[0].element)
    else:
        name = partial.builder.zeros((1,), partial.operands[0].element)
    shape = partial.builder.integers(*extents(region), hint="extents")
    partial.finish([(partial.builder.op("Expand", name, shape), region)])
    return True


def _edge(dim: DimAccess, made: Interval, need: Interval) -> tuple[int, int]:
    """Return the positions of an output before and after those that come from the input."""
    return need[0] - (made[0] + dim.offset), made[1] + dim.offset - need[1]


_AXES = 3
"""The input of Pad that says dimensions."""


# ---------------------------------------------------------------------------------- without inputs


def _shape(partial: PartialOperator) -> bool:
    """Write the shape of a tensor; its elements are not needed."""
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
    partial.builder.op("Identity", partial.builder.constant(np.asarray(part)), to=partial.name(0))


def _cast(partial: PartialOperator) -> bool:
    """Write a cast; CastLike's second operand only determines the type."""
    like = partial.node.inputs[1]
    if like is None:
        return False
    name, _ = partial.fit(0, partial.needs[0])
    region = partial.makes(partial.box)[0]
    converted = partial.builder.cast(name, like.element)
    partial.finish([(converted, region)])
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
