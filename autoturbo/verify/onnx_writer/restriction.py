"""One operator restricted to a box of its domain, written as ONNX nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from onnx import GraphProto, NodeProto

from autoturbo.graph.domain import Region
from autoturbo.graph.model_nodes import ModelNode, Operand
from autoturbo.graph.operators import Operator
from autoturbo.graph.structure import bodies, captured_names, initializer_names
from autoturbo.verify.onnx_writer.builder import Body
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


def _is_whole(task: PartialOperator) -> bool:
    """Whether the whole domain is asked for, and all that it reads is held whole."""
    read = (operand for operand in task.values if operand is not None)
    return task.box == task.full and all(_at_hand(task, operand) for operand in read)


def _at_hand(task: PartialOperator, operand: Operand) -> bool:
    held: Region | None = task.body.held(operand.tensor) if operand.tensor >= 0 else None
    return held == whole(operand.shape) or (held is None and operand.constant)


def _write_whole(task: PartialOperator) -> None:
    """Add the node, and cut what it makes where a part of it is wanted."""
    for operand in task.values:
        if operand is not None and task.body.held(operand.tensor) is None:
            task.body.operand(operand)
    inputs = ["" if operand is None else operand.name for operand in task.node.inputs]
    made = output_names(task, [whole(shape) for shape in task.output_shapes])
    add_node(task, inputs, [name for name, _ in made])
    _rename_captured(task)
    task.finish(made)


def _refuse(task: PartialOperator) -> None:
    """Say what an operator that is never split lacks.

    Raises:
        RegionError: always.
    """
    lacking = [o.name for o in task.values if o is not None and not _at_hand(task, o)]
    raise RegionError(f"{task.operator.name} is computed whole; not held whole: {lacking}")


def _rename_captured(task: PartialOperator) -> None:
    """Let the bodies of control flow read values by the names that they have here."""
    proto = task.body.nodes[-1]
    pairs = zip(task.node.proto.input, task.node.inputs, strict=False)
    names = {name: operand.name for name, operand in pairs if operand is not None}
    outer = [n for n in captured_names(task.node.proto) if n not in task.node.proto.input]
    captured = zip(outer, task.node.captured, strict=True)
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


class Rule(StrEnum):
    """How a part of an operator is computed."""

    NOTHING = "nothing"
    """No output is asked for."""
    VERBATIM = "verbatim"
    """By the node of the file on whole tensors."""
    LAYOUT = "layout"
    """By slices, joins and reshapes."""
    WINDOW = "window"
    """By the node with the halo of its windows and explicit padding."""
    DIRECT = "direct"
    """By the node on parts of its tensors."""
    EMBED = "embed"
    """By the node on larger tensors, zeros standing where nothing is needed."""


def restrict(
    body: Body,
    node: ModelNode,
    operator: Operator,
    shapes: Sequence[tuple[int, ...]],
    box: Box,
) -> Rule:
    """Add the nodes that compute what is held of an operator's outputs from what is held.

    Args:
        body: holds the regions of the inputs, and those wanted of the outputs.
        node: of the operator.
        operator: its domain and access maps.
        shapes: of the graph's tensors.
        box: the part of the domain to compute, at least what the outputs need.

    Returns:
        How it is done.

    Raises:
        RegionError: an input's region is not inside of what is held, or the box is too small.
    """
    body.operator = operator.name
    task = PartialOperator(body, node, operator, shapes, box)
    if all(wanted is None for wanted in task.wanted):
        return Rule.NOTHING
    task.check()
    if _is_whole(task):
        _write_whole(task)
        return Rule.VERBATIM
    if node.captured:
        _refuse(task)
    return _part(task)


def _part(task: PartialOperator) -> Rule:
    if write_data_movement(task):
        return Rule.LAYOUT
    sliding = plan_window(task)
    if sliding is not None:
        write_node(task, sliding)
        return Rule.WINDOW
    filled = write_node(task, plan_parallel(task))
    return Rule.EMBED if filled else Rule.DIRECT
