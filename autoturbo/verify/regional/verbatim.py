"""The node of the file where all that it reads and makes is held whole."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import GraphProto, NodeProto

from autoturbo.graph.domain import Region
from autoturbo.graph.model_nodes import Operand
from autoturbo.graph.structure import bodies, captured_names, initializer_names
from autoturbo.verify.regional.frames import add, outputs
from autoturbo.verify.regional.task import RegionError, Task, whole


def applies(task: Task) -> bool:
    """Whether the whole domain is asked for, and all that it reads is held whole."""
    read = (operand for operand in task.values if operand is not None)
    return task.box == task.full and all(_at_hand(task, operand) for operand in read)


def _at_hand(task: Task, operand: Operand) -> bool:
    held: Region | None = task.body.held(operand.tensor) if operand.tensor >= 0 else None
    return held == whole(operand.shape) or (held is None and operand.constant)


def write(task: Task) -> None:
    """Add the node, and cut what it makes where a part of it is wanted."""
    for operand in task.values:
        if operand is not None and task.body.held(operand.tensor) is None:
            task.body.operand(operand)
    inputs = ["" if operand is None else operand.name for operand in task.node.inputs]
    made = outputs(task, [whole(shape) for shape in task.output_shapes])
    add(task, inputs, [name for name, _ in made])
    _rename_captured(task)
    task.finish(made)


def refuse(task: Task) -> None:
    """Say what an operator that is never split lacks.

    Raises:
        RegionError: always.
    """
    lacking = [o.name for o in task.values if o is not None and not _at_hand(task, o)]
    raise RegionError(f"{task.operator.name} is computed whole; not held whole: {lacking}")


def _rename_captured(task: Task) -> None:
    """Let the bodies of control flow read values by the names that they have here."""
    proto = task.body.nodes[-1]
    pairs = zip(task.node.proto.input, task.node.inputs, strict=False)
    names = {name: operand.name for name, operand in pairs if operand is not None}
    outer = [n for n in captured_names(task.node.proto) if n not in task.node.proto.input]
    captured = zip(outer, task.node.captured, strict=True)
    names.update({name: operand.name for name, operand in captured})
    for graph in bodies(proto):
        _rename(graph, {old: new for old, new in names.items() if old != new})


def _rename(graph: GraphProto, names: Mapping[str, str]) -> None:
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
        _rename(graph, names)
