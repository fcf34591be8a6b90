"""Writes the graph that stands for one node: standard operators with names of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from autoturbo.graph.values import Step, Value, element_type

_INPUT_AXES = 13
"""Opset since which ReduceSum, Squeeze and Unsqueeze have their axes as an input."""

_ALL_INPUT_AXES = 18
"""Opset since which the other reductions have them as an input, too."""

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


@dataclass(slots=True, eq=False)
class Writer:
    """The body of one node while it is written.

    Attributes:
        step: The node, its inputs looked up.
        opset: Version of ONNX's own operators.
        nodes: Nodes written so far.
        constants: Constants written so far.
    """

    step: Step
    opset: int
    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)
    _known: dict[object, str] = field(default_factory=dict)

    # ---------------------------------------------------------------------------- the node itself

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
        for item in self.step.node.attribute:
            if item.name == name:
                value = helper.get_attribute_value(item)
                return value.decode() if isinstance(value, bytes) else value
        return default

    # ------------------------------------------------------------------------------- writing nodes

    def op(
        self, op_type: str, *inputs: str, to: str | None = None, domain: str = "", **attributes: Any
    ) -> str:
        """Write a node of one output; the same node is written once.

        Args:
            op_type: Type of the node.
            inputs: Names, ``""`` for an absent one.
            to: The name of the output; a new one if None.
            domain: Domain of the type.
            attributes: The node's attributes by name.

        Returns:
            The name of the output.
        """
        key = (op_type, inputs, domain, repr(sorted(attributes.items())))
        if to is not None or key not in self._known:
            self._known[key] = self.several(op_type, inputs, (to,), domain, **attributes)[0]
        return self._known[key]

    def several(
        self,
        op_type: str,
        inputs: tuple[str, ...],
        outputs: tuple[str | None, ...],
        domain: str = "",
        **attributes: Any,
    ) -> list[str]:
        """Write a node and return the names of its outputs, new ones where None is given."""
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        number = len(self.nodes)
        hint = f"{op_type}_{number}"
        names = [
            self._name(hint if not k else f"{hint}_{k}") if name is None else name
            for k, name in enumerate(outputs)
        ]
        label = f"{self.step.node.name or self.stem}/{hint}"
        self.nodes.append(
            helper.make_node(op_type, inputs, names, name=label, domain=domain, **attributes)
        )
        return names

    def array(self, array: np.ndarray) -> str:
        """Write a constant and return its name; equal ones are written once."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = self._name(f"constant_{len(self.constants)}")
            self.constants.append(numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def integers(self, *values: int) -> str:
        """Write a one-dimensional int64 constant, such as extents or bounds."""
        return self.array(np.array(values, dtype=np.int64))

    def whole(self, value: int) -> str:
        """Write an int64 scalar, such as a position or the limit of a range."""
        return self.number(value, TensorProto.INT64)

    def number(self, value: float, element: int) -> str:
        """Write a scalar constant of an ONNX element type."""
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element))
        return self.array(np.asarray(value).astype(dtype))

    def _name(self, hint: str) -> str:
        return f"{self.stem}/{hint}"

    @property
    def stem(self) -> str:
        """Return the prefix of all new names: the node's first output."""
        return str(next(name for name in self.step.node.output if name))

    def graph(self) -> GraphProto:
        """Return the written nodes as a graph, with the outputs of the node."""
        outputs = [helper.make_empty_tensor_value_info(n) for n in self.step.node.output if n]
        return helper.make_graph(self.nodes, "body", [], outputs, self.constants)

    # -------------------------------------------------------- operators that opsets spell otherwise

    def reshape(self, name: str, *extents: int, to: str | None = None) -> str:
        """Write a Reshape; 0 keeps an extent, -1 stands for the rest."""
        return self.op("Reshape", name, self.integers(*extents), to=to)

    def transpose(self, name: str, *order: int, to: str | None = None) -> str:
        """Write a Transpose."""
        return self.op("Transpose", name, to=to, perm=list(order))

    def slice(self, name: str, axis: int, start: int, end: int) -> str:
        """Write a Slice along one dimension."""
        bounds = (self.integers(start), self.integers(end), self.integers(axis))
        return self.op("Slice", name, *bounds)

    def concat(self, *names: str, axis: int, to: str | None = None) -> str:
        """Write a Concat."""
        return self.op("Concat", *names, to=to, axis=axis)

    def cast(self, name: str, element: int, to: str | None = None) -> str:
        """Write a Cast to an ONNX element type."""
        key = ("Cast", name, element)
        if to is not None or key not in self._known:
            self._known[key] = self.several("Cast", (name,), (to,))[0]
            self.nodes[-1].attribute.append(helper.make_attribute("to", element))
        return self._known[key]

    def reduce(self, op_type: str, name: str, axis: int, *, keep: bool = True) -> str:
        """Write a reduction along one dimension."""
        since = _INPUT_AXES if op_type == "ReduceSum" else _ALL_INPUT_AXES
        if self.opset >= since:
            return self.op(op_type, name, self.integers(axis), keepdims=int(keep))
        return self.op(op_type, name, axes=[axis], keepdims=int(keep))

    def unsqueeze(self, name: str, axis: int) -> str:
        """Write an Unsqueeze."""
        if self.opset >= _INPUT_AXES:
            return self.op("Unsqueeze", name, self.integers(axis))
        return self.op("Unsqueeze", name, axes=[axis])

    def pick(self, name: str, axis: int, index: int) -> str:
        """Write a Gather of one entry of a dimension, which is removed."""
        return self.op("Gather", name, self.whole(index), axis=axis)
