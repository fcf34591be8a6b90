"""Build ONNX nodes: names, constants, and operators that versions of ONNX write differently."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

EXPANDS = 8
"""Opset since which Expand exists."""

_FILLS = 9
"""Opset since which ConstantOfShape exists."""

_SLICE_INPUTS = 10
"""Opset since which the bounds of Slice are inputs, and it has steps."""

_INPUT_AXES = 13
"""Opset since which ReduceSum, Squeeze and Unsqueeze have their axes as an input."""

_ALL_INPUT_AXES = 18
"""Opset since which the other reductions have them as an input, too."""

Cut = tuple[int, int, int, int]
"""A dimension, and the start, end and step of a slice of it as ONNX's Slice takes them."""


def attributes_of(proto: NodeProto, *without: str) -> Mapping[str, Any]:
    """Return the attributes of a node as Python values by name, but for some."""
    given = (item for item in proto.attribute if item.name not in without)
    return {item.name: helper.get_attribute_value(item) for item in given}


@dataclass(eq=False)
class NodeBuilder(ABC):
    """Nodes of a graph while they are written.

    A subclass says how nodes and values are named and where constants are kept. Values are known by
    name; ``""`` stands for an absent input, and an output that is None gets a new name.

    Attributes:
        opset: Version of ONNX's own operators.
        nodes: Nodes written so far, in order.
    """

    opset: int
    nodes: list[NodeProto] = field(default_factory=list, init=False)
    _values: dict[object, str] = field(default_factory=dict, init=False)

    @abstractmethod
    def add(self, proto: NodeProto) -> tuple[str, ...]:
        """Name a node, append it, and return the names of its outputs."""

    @abstractmethod
    def output_name(self, op_type: str, position: int) -> str:
        """Return a new name for an output of the next node."""

    @abstractmethod
    def hold(self, array: np.ndarray, hint: str) -> str:
        """Add a constant and return its name, which may begin with the hint."""

    def node(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str | None] = (None,),
        domain: str = "",
        **attributes: Any,
    ) -> tuple[str, ...]:
        """Append a node.

        Args:
            op_type: The operator's type.
            inputs: Names of the inputs.
            outputs: Names of the outputs.
            domain: Domain of the type.
            attributes: Attributes by name.

        Returns:
            The names of its outputs.
        """
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        named = enumerate(outputs)
        names = [self.output_name(op_type, k) if name is None else name for k, name in named]
        return self.add(helper.make_node(op_type, given, names, domain=domain, **attributes))

    def op(self, op_type: str, *inputs: str, to: str | None = None, **attributes: Any) -> str:
        """Append a node with one output and return its name, a new one if ``to`` is None."""
        return self.node(op_type, inputs, (to,), **attributes)[0]

    def constant(self, array: np.ndarray, hint: str = "constant") -> str:
        """Return the name of a constant; equal ones are added once."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._values:
            self._values[key] = self.hold(array, hint)
        return self._values[key]

    def integers(self, *values: int, hint: str = "integers") -> str:
        """Return the name of a one-dimensional int64 constant: extents, axes, bounds."""
        return self.constant(np.array(values, dtype=np.int64), hint)

    def number(self, value: float, element: int = TensorProto.INT64) -> str:
        """Return the name of a scalar constant of an ONNX element type."""
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element))
        return self.constant(np.asarray(value).astype(dtype))

    def zeros(self, shape: Sequence[int], element: int) -> str:
        """Return the name of a tensor of zeros of an ONNX element type."""
        if self.opset < _FILLS:
            return self.constant(np.zeros(shape, helper.tensor_dtype_to_np_dtype(element)), "zeros")
        value = helper.make_tensor("zeros", element, [1], [0])
        return self.op("ConstantOfShape", self.integers(*shape, hint="extents"), value=value)

    def reshape(self, name: str, *extents: int, to: str | None = None) -> str:
        """Return the name of a value reshaped; 0 keeps an extent, -1 stands for the rest."""
        return self.op("Reshape", name, self.integers(*extents, hint="shape"), to=to)

    def transpose(self, name: str, *order: int, to: str | None = None) -> str:
        """Return the name of a transposed value."""
        return self.op("Transpose", name, to=to, perm=list(order))

    def concat(self, *names: str, axis: int, to: str | None = None) -> str:
        """Return the name of values concatenated along a dimension; of one value, the value."""
        if len(names) == 1:
            return names[0] if to is None else self.op("Identity", names[0], to=to)
        return self.op("Concat", *names, to=to, axis=axis)

    def cast(self, name: str, element: int, to: str | None = None) -> str:
        """Return the name of a value cast to an ONNX element type."""
        return self.node("Cast", (name,), (to,), to=element)[0]

    def reduce(self, op_type: str, name: str, *axes: int, keep: bool = True) -> str:
        """Return the name of a value reduced along dimensions."""
        since = _INPUT_AXES if op_type == "ReduceSum" else _ALL_INPUT_AXES
        if self.opset >= since:
            return self.op(op_type, name, self.integers(*axes, hint="axes"), keepdims=int(keep))
        return self.op(op_type, name, axes=list(axes), keepdims=int(keep))

    def unsqueeze(self, name: str, axis: int) -> str:
        """Return the name of a value with one more dimension."""
        if self.opset >= _INPUT_AXES:
            return self.op("Unsqueeze", name, self.integers(axis, hint="axes"))
        return self.op("Unsqueeze", name, axes=[axis])

    def pick(self, name: str, axis: int, index: int) -> str:
        """Return the name of one entry of a dimension, which is removed."""
        return self.op("Gather", name, self.number(index), axis=axis)

    def cut(self, name: str, cuts: Sequence[Cut], to: str | None = None) -> str:
        """Return the name of a value sliced along some dimensions, one cut each."""
        axes, starts, ends, steps = (list(column) for column in zip(*cuts, strict=True))
        bounds = {"starts": starts, "ends": ends, "axes": axes}
        plain = all(step == 1 for step in steps)
        if self.opset >= _SLICE_INPUTS:
            bounds |= {} if plain else {"steps": steps}
            given = [self.integers(*values, hint=hint) for hint, values in bounds.items()]
            return self.op("Slice", name, *given, to=to)
        if plain:
            return self.op("Slice", name, to=to, **bounds)
        return self._picked(name, cuts, to)

    def _picked(self, name: str, cuts: Sequence[Cut], to: str | None) -> str:
        """Return a strided slice built of Gather nodes, for opsets whose Slice has no steps."""
        for count, (axis, start, end, step) in enumerate(cuts, 1):
            # An end beyond the front, as Slice wants it, is -1 to ``range``.
            positions = self.integers(*range(start, max(end, -1), step), hint="positions")
            target = to if count == len(cuts) else None
            name = self.op("Gather", name, positions, to=target, axis=axis)
        return name
