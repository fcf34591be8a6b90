"""One operator restricted to a box of its domain, written as ONNX nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from onnx import GraphProto, NodeProto

from autoturbo.graph.domain import Region
from autoturbo.graph.importer.structure import bodies, captured_names, initializer_names
from autoturbo.graph.model_nodes import ModelNode, Operand
from autoturbo.graph.operators import Operator
from autoturbo.verify.onnx_writer.builder import GraphBuilder
from autoturbo.verify.onnx_writer.data_movement import write_data_movement
from autoturbo.verify.onnx_writer.parallel_axes import plan_parallel
from autoturbo.verify.onnx_writer.partial_operator import (
    Box,
    PartialOperator,
    RegionError,
    add_node,
    output_names,
    whole,
    write_node,
)
from autoturbo.verify.onnx_writer.sliding_windows import plan_window


class Rule(StrEnum):
    """How a part of an operator is computed."""

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
    """Add the nodes that compute what is held of an operator's outputs from what is held.

    Args:
        builder: holds the regions of the inputs, and those wanted of the outputs.
        node: of the operator.
        operator: its domain and access maps.
        shapes: of the graph's tensors.
        box: the part of the domain to compute, at least what the outputs need.

    Returns:
        How it is done.

    Raises:
        RegionError: an input's region is not inside of what is held, or the box is too small.
    """
    builder.operator = operator.name
    partial = PartialOperator(builder, node, operator, shapes, box)
    if all(wanted is None for wanted in partial.wanted):
        return Rule.NOTHING
    partial.check()
    if _is_whole(partial):
        _write_whole(partial)
        return Rule.WHOLE
    if node.captured:
        _refuse(partial)
    return _part(partial)


def _part(partial: PartialOperator) -> Rule:
    if write_data_movement(partial):
        return Rule.DATA_MOVEMENT
    sliding = plan_window(partial)
    if sliding is not None:
        write_node(partial, sliding)
        return Rule.SLIDING_WINDOW
    filled = write_node(partial, plan_parallel(partial))
    return Rule.EMBEDDED if filled else Rule.PARALLEL_AXES


def _is_whole(partial: PartialOperator) -> bool:
    """Return whether the whole domain is asked for, and all inputs are there whole."""
    read = (operand for operand in partial.values if operand is not None)
    return partial.box == partial.full and all(_at_hand(partial, operand) for operand in read)


def _at_hand(partial: PartialOperator, operand: Operand) -> bool:
    region: Region | None = (
        partial.builder.regions.get(operand.tensor) if operand.tensor >= 0 else None
    )
    return region == whole(operand.shape) or (region is None and operand.constant)


def _write_whole(partial: PartialOperator) -> None:
    """Add the node, and cut what it makes where a part of it is wanted."""
    for operand in partial.values:
        if operand is not None and partial.builder.regions.get(operand.tensor) is None:
            partial.builder.operand(operand)
    inputs = ["" if operand is None else operand.name for operand in partial.node.inputs]
    made = output_names(partial, [whole(shape) for shape in partial.output_shapes])
    add_node(partial, inputs, [name for name, _ in made])
    _rename_captured(partial)
    partial.finish(made)


def _refuse(partial: PartialOperator) -> None:
    """Say what an operator that is never split lacks.

    Raises:
        RegionError: always.
    """
    lacking = [o.name for o in partial.values if o is not None and not _at_hand(partial, o)]
    raise RegionError(f"{partial.operator.name} is computed whole; not held whole: {lacking}")


def _rename_captured(partial: PartialOperator) -> None:
    """Let the bodies of control flow read values by the names that they have here."""
    proto = partial.builder.nodes[-1]
    pairs = zip(partial.node.proto.input, partial.node.inputs, strict=False)
    names = {name: operand.name for name, operand in pairs if operand is not None}
    outer = [n for n in captured_names(partial.node.proto) if n not in partial.node.proto.input]
    captured = zip(outer, partial.node.captured, strict=True)
    names.update({name: operand.name for name, operand in captured})
    for graph in bodies(proto):
        _rename_graph(graph, {old: new for old, new in names.items() if old != new})


def _rename_graph(graph: GraphProto, names: Mapping[str, str]) -> None:
    own = {value.name for value in graph.input} | set(initializer_names(graph))
    own.update(name for node in graph.node for name in node.output)
    outer = {old: new for old, new in names.items() if old not in own}
    for node in graph.node:
        _rename_inputs(node, outer)
    for value in graph.output:
        value.name = outer.get(value.name, value.name)


def _rename_inputs(node: NodeProto, names: Mapping[str, str]) -> None:
    node.input[:] = [names.get(name, name) for name in node.input]
    for graph in bodies(node):
        _rename_graph(graph, names)
