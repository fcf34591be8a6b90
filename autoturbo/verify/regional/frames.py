"""The node of the file on parts of its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from onnx import NodeProto, helper

from autoturbo.graph.domain import Region
from autoturbo.verify.regional import spelt
from autoturbo.verify.regional.task import Task

_NONE: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Frames:
    """On which regions of its tensors a node runs, and what of it changes for that.

    Attributes:
        inputs: per input of the operator; larger than needed where the node wants more.
        outputs: per output of the operator, what the node makes.
        attributes: that get another value, by name; None takes one away.
        parameters: inputs that get another value, by ONNX position: a constant, or the name of a
            value of the body; None leaves one out.
    """

    inputs: tuple[Region, ...]
    outputs: tuple[Region, ...]
    attributes: Mapping[str, object] = field(default_factory=dict)
    parameters: Mapping[int, np.ndarray | str | None] = field(default_factory=dict)


def write(task: Task, frames: Frames) -> bool:
    """Add the node on its frames, its inputs cut and its outputs cut.

    Returns:
        Whether any input had to be filled up with zeros.

    Raises:
        RegionError: what is needed is not held.
    """
    fitted = [task.fit(index, frame) for index, frame in enumerate(frames.inputs)]
    names = [name for name, _ in fitted]
    made = outputs(task, frames.outputs)
    add(task, _inputs(task, names, frames), [name for name, _ in made], frames.attributes)
    task.finish(made)
    return any(filled for _, filled in fitted)


def outputs(task: Task, regions: Sequence[Region]) -> list[tuple[str, Region]]:
    """Per output of the operator, the tensor's name if just that is wanted, or a passing one.

    Args:
        task: whose outputs.
        regions: what is made of each.
    """
    made = []
    for index, (wanted, region) in enumerate(zip(task.wanted, regions, strict=True)):
        name = task.name(index)
        made.append((name if wanted == region else task.body.fresh(f"{name}.made"), region))
    return made


def _inputs(task: Task, names: Sequence[str], frames: Frames) -> list[str]:
    """Names by ONNX position, absent ones at the end left out."""
    found = []
    for position in range(len(task.node.inputs)):
        index = task.input_at(position)
        if position in frames.parameters:
            found.append(_parameter(task, frames.parameters[position]))
        elif index is not None:
            found.append(names[index])
        else:
            found.append(task.absorbed(position))
    for position in sorted(p for p in frames.parameters if p >= len(found)):
        found += [""] * (position - len(found))
        found.append(_parameter(task, frames.parameters[position]))
    while found and not found[-1]:
        found.pop()
    return found


def _parameter(task: Task, value: np.ndarray | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return task.body.constant(value, "parameter")


def add(
    task: Task,
    inputs: Sequence[str],
    results: Sequence[str],
    attributes: Mapping[str, object] = _NONE,
) -> None:
    """Add the node with other names, and with other values of some attributes; or spell it out.

    Args:
        task: whose node.
        inputs: names by ONNX position.
        results: names by output of the operator.
        attributes: by name; None takes one away.
    """
    named = _results(task, results)
    if spelt.write(task, inputs, named):
        return
    proto = NodeProto()
    proto.CopyFrom(task.node.proto)
    kept = [item for item in proto.attribute if item.name not in attributes]
    new = [helper.make_attribute(k, v) for k, v in attributes.items() if v is not None]
    for part in (proto.attribute, proto.input, proto.output, proto.metadata_props):
        del part[:]
    proto.attribute.extend([*kept, *new])
    proto.input.extend(inputs)
    proto.output.extend(named)
    proto.doc_string = ""
    task.body.add(proto)


def _results(task: Task, results: Sequence[str]) -> list[str]:
    """Names by ONNX position of the outputs."""
    by_tensor = dict(zip(task.operator.outputs, results, strict=True))
    return [
        "" if operand is None else by_tensor.get(operand.tensor) or task.body.fresh("unused")
        for operand in task.node.outputs
    ]
