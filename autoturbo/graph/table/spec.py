"""What a row of the operator table is given, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from autoturbo.graph.domain import AccessMap, Axis
from autoturbo.graph.operators import NO_WORK, Engine, Pattern, Work


class NoRowError(Exception):
    """The node has no description (the message says why): it becomes opaque."""


@dataclass(frozen=True, slots=True)
class ValueView:
    """A tensor as a row sees it: static shape, and its value where it is a small constant."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    constant: bool = False
    value: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as a row sees it.

    Attributes:
        attributes: ints, floats, strings, tuples of them, arrays for tensors; bodies of control
            flow are left out.
        inputs: by ONNX position; None where an optional input is absent.
        outputs: by ONNX position; None where an optional output is absent.
    """

    name: str
    op_type: str
    domain: str
    opset: int
    attributes: Mapping[str, object]
    inputs: tuple[ValueView | None, ...]
    outputs: tuple[ValueView | None, ...]

    def value_in(self, position: int) -> ValueView | None:
        """An input, or None where it is absent."""
        return self.inputs[position] if position < len(self.inputs) else None

    def shape_in(self, position: int) -> tuple[int, ...]:
        """The shape of an input that the operator cannot do without."""
        value = self.value_in(position)
        if value is None:
            raise NoRowError(f"input {position} is missing")
        return value.shape

    def shape_out(self, position: int = 0) -> tuple[int, ...]:
        """The shape of an output that the operator always has."""
        value = self.outputs[position] if position < len(self.outputs) else None
        if value is None:
            raise NoRowError(f"output {position} is missing")
        return value.shape

    def has_output(self, position: int) -> bool:
        """Whether an optional output is asked for."""
        return position < len(self.outputs) and self.outputs[position] is not None

    def is_weight(self, *positions: int) -> bool:
        """Whether any of the given inputs is a constant: a learned parameter."""
        values = [self.value_in(position) for position in positions]
        return any(value is not None and value.constant for value in values)

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.attributes.get(name, default)
        if not isinstance(value, (int, np.integer)):
            raise NoRowError(f"attribute {name} is not an integer")
        return int(value)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A list attribute, or None where it is absent."""
        value = self.attributes.get(name)
        if value is None:
            return None
        if not isinstance(value, Iterable):
            raise NoRowError(f"attribute {name} is not a list")
        return tuple(int(item) for item in value)

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def constant(self, position: int) -> np.ndarray | None:
        """The value of a parameter input; None where absent, refused where not known in advance."""
        value = self.value_in(position)
        if value is None:
            return None
        if value.value is None:
            raise NoRowError(f"input {position} ({value.name}) is not a known constant")
        return value.value

    def constant_integers(self, position: int) -> tuple[int, ...] | None:
        """The elements of a parameter input, or None where it is absent."""
        value = self.constant(position)
        return None if value is None else tuple(int(item) for item in np.asarray(value).ravel())

    def parameter(self, name: str, position: int) -> tuple[int, ...] | None:
        """Integers that were an attribute in early opsets and are an input since."""
        given = self.integers(name)
        return self.constant_integers(position) if given is None else given


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """A row's answer: the domain of one node and how it addresses its tensors.

    Attributes:
        axes: the iteration domain.
        inputs: one access map per ONNX input position; None where the input is absent or is a
            parameter that the domain has already absorbed (a target shape, slice bounds, axes).
        outputs: one access map per ONNX output position; None where absent.
    """

    axes: tuple[Axis, ...]
    inputs: tuple[AccessMap | None, ...]
    outputs: tuple[AccessMap | None, ...]
    work: Work = NO_WORK
    engine: Engine = Engine.VECTOR
    pattern: Pattern = Pattern.OPAQUE
    parameterised: bool = False
    attributes: tuple[tuple[str, str], ...] = ()
    opaque: str | None = None
    counted: bool = True
    unpacking: float = 0.0


Row = Callable[[NodeView], OperatorSpec]
"""Describes one node; raises :class:`NoRowError` where it cannot."""
