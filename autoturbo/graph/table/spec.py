"""What a row of the operator table is given, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from autoturbo.graph.domain import AccessMap, Axis
from autoturbo.graph.operators import NO_WORK, Engine, Pattern, Work


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


class NoRowError(Exception):
    """The node has no description (the message says why): it becomes opaque."""
