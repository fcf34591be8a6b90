"""Writes the graph that stands for one node: standard operators with names of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from autoturbo.graph.node_builder import NodeBuilder, attributes_of
from autoturbo.graph.values import Step, Value, element_type

OLDEST = 11
"""Opset of the bodies that are written here; models of older ones keep their node."""


class NoExpansionError(Exception):
    """The node is in a form that is not written out: it stays whole."""


class OneOperatorError(NoExpansionError):
    """The operator table describes this form of the node as one operator."""


def refuse_unless(condition: object, what: str) -> None:
    """Refuse a node in a form that is not written out.

    Raises:
        NoExpansionError: The condition does not hold.
    """
    if not condition:
        raise NoExpansionError(what)


def one_operator_unless(condition: object) -> None:
    """Leave a node to the operator table, which describes this form of it.

    Raises:
        OneOperatorError: The condition does not hold.
    """
    if not condition:
        raise OneOperatorError


@dataclass(eq=False)
class Writer(NodeBuilder):
    """The body of one node while it is written; the same node is written once.

    Attributes:
        step: The node, its inputs looked up.
        constants: Constants written so far.
    """

    step: Step
    constants: list[TensorProto] = field(default_factory=list)
    _known: dict[object, tuple[str, ...]] = field(default_factory=dict)

    def has(self, position: int) -> bool:
        """Return whether an input is given."""
        inputs = self.step.inputs
        return position < len(inputs) and inputs[position] is not None

    def wants(self, position: int) -> bool:
        """Return whether an output is asked for."""
        names = self.step.node.output
        return position < len(names) and bool(names[position])

    def input(self, position: int) -> str:
        """Return the name of an input, ``""`` where it is absent."""
        return self.step.node.input[position] if self.has(position) else ""

    def output(self, position: int) -> str | None:
        """Return the name of an output, None where it is not asked for."""
        return self.step.node.output[position] if self.wants(position) else None

    def value(self, position: int) -> Value:
        """Return an input that the operator cannot do without.

        Raises:
            NoExpansionError: It is absent.
        """
        value = self.step.inputs[position] if self.has(position) else None
        if value is None:
            raise NoExpansionError(f"input {position} is absent")
        return value

    def shape(self, position: int) -> tuple[int, ...]:
        """Return the extents of an input."""
        return self.value(position).shape or ()

    def element(self, position: int = 0) -> int:
        """Return the ONNX element type of an input."""
        return element_type(self.value(position).type)

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute, text as ``str``."""
        value = attributes_of(self.step.node).get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def node(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str | None] = (None,),
        domain: str = "",
        **attributes: Any,
    ) -> tuple[str, ...]:
        """Append a node, or return the outputs of the same one if none of them is named."""
        about = repr(sorted(attributes.items()))
        key = (op_type, tuple(inputs), len(outputs), domain, about)
        if any(outputs) or key not in self._known:
            self._known[key] = super().node(op_type, inputs, outputs, domain, **attributes)
        return self._known[key]

    def add(self, proto: NodeProto) -> tuple[str, ...]:
        """Append a node, named after the one that it stands for."""
        proto.name = f"{self.step.node.name or self.stem}/{proto.op_type}_{len(self.nodes)}"
        self.nodes.append(proto)
        return tuple(proto.output)

    def output_name(self, op_type: str, position: int) -> str:
        """Return a new name for an output of the next node."""
        name = f"{self.stem}/{op_type}_{len(self.nodes)}"
        return f"{name}_{position}" if position else name

    def hold(self, array: np.ndarray, hint: str) -> str:  # noqa: ARG002 - constants are counted
        """Add a constant and return its name."""
        name = f"{self.stem}/constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    @property
    def stem(self) -> str:
        """Return the prefix of all new names: the node's first output."""
        return str(next(name for name in self.step.node.output if name))

    def graph(self) -> GraphProto:
        """Return the written nodes as a graph, with the outputs of the node."""
        outputs = [helper.make_empty_tensor_value_info(n) for n in self.step.node.output if n]
        return helper.make_graph(self.nodes, "body", [], outputs, self.constants)

    def slice(self, name: str, axis: int, start: int, end: int) -> str:
        """Return the name of a value sliced along one dimension."""
        return self.cut(name, [(axis, start, end, 1)])
