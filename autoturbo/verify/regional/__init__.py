"""One operator restricted to a box of its domain, written as ONNX nodes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from autoturbo.graph.model_nodes import ModelNode
from autoturbo.graph.operators import Operator
from autoturbo.verify.body import Body
from autoturbo.verify.regional import direct, frames, layout, verbatim, windows
from autoturbo.verify.regional.task import Box, RegionError, Task

__all__ = ["Box", "RegionError", "Rule", "restrict"]


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
    task = Task(body, node, operator, shapes, box)
    if all(wanted is None for wanted in task.wanted):
        return Rule.NOTHING
    task.check()
    if verbatim.applies(task):
        verbatim.write(task)
        return Rule.VERBATIM
    if node.captured:
        verbatim.refuse(task)
    return _part(task)


def _part(task: Task) -> Rule:
    if layout.write(task):
        return Rule.LAYOUT
    sliding = windows.plan(task)
    if sliding is not None:
        frames.write(task, sliding)
        return Rule.WINDOW
    filled = frames.write(task, direct.plan(task))
    return Rule.EMBED if filled else Rule.DIRECT
