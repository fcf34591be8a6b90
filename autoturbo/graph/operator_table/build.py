"""Building blocks of the table's rows: their input, helpers and result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoturbo.graph.domain import WHOLE_DIM, AccessMap, Axis, AxisKind, DimAccess, along, fixed
from autoturbo.graph.operators import NO_WORK, Engine, Pattern, Work


class NoRowError(Exception):
    """The node has no description (the message says why): it runs whole, not analysed."""


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
        attributes: Ints, floats, strings, tuples of them, arrays for tensors; bodies of control
            flow are left out.
        inputs: Inputs by ONNX position; None where an optional input is absent.
        outputs: Outputs by ONNX position; None where an optional output is absent.
    """

    name: str
    op_type: str
    domain: str
    opset: int
    attributes: Mapping[str, object]
    inputs: tuple[ValueView | None, ...]
    outputs: tuple[ValueView | None, ...]

    def value_in(self, position: int) -> ValueView | None:
        """Return an input, or None if it is absent."""
        return self.inputs[position] if position < len(self.inputs) else None

    def shape_in(self, position: int) -> tuple[int, ...]:
        """Return the shape of a required input."""
        value = self.value_in(position)
        if value is None:
            raise NoRowError(f"input {position} is missing")
        return value.shape

    def shape_out(self, position: int = 0) -> tuple[int, ...]:
        """Return the shape of a required output."""
        value = self.outputs[position] if position < len(self.outputs) else None
        if value is None:
            raise NoRowError(f"output {position} is missing")
        return value.shape

    def has_output(self, position: int) -> bool:
        """Return whether an optional output is requested."""
        return position < len(self.outputs) and self.outputs[position] is not None

    def is_weight(self, *positions: int) -> bool:
        """Return whether any of the given inputs is a constant: a learned parameter."""
        values = [self.value_in(position) for position in positions]
        return any(value is not None and value.constant for value in values)

    def integer(self, name: str, default: int) -> int:
        """Return an integer attribute."""
        value = self.attributes.get(name, default)
        if not isinstance(value, (int, np.integer)):
            raise NoRowError(f"attribute {name} is not an integer")
        return int(value)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Return a list attribute, or None if it is absent."""
        value = self.attributes.get(name)
        if value is None:
            return None
        if not isinstance(value, Iterable):
            raise NoRowError(f"attribute {name} is not a list")
        return tuple(int(item) for item in value)

    def text(self, name: str, default: str) -> str:
        """Return a string attribute."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def constant(self, position: int) -> np.ndarray | None:
        """Return the value of a parameter input, None if absent; refuse one that is unknown."""
        value = self.value_in(position)
        if value is None:
            return None
        if value.value is None:
            raise NoRowError(f"input {position} ({value.name}) is not a known constant")
        return value.value

    def constant_integers(self, position: int) -> tuple[int, ...] | None:
        """Return the elements of a parameter input, or None if it is absent."""
        value = self.constant(position)
        return None if value is None else tuple(int(item) for item in np.asarray(value).ravel())

    def parameter(self, name: str, position: int) -> tuple[int, ...] | None:
        """Return integers that were an attribute in early opsets and are an input since."""
        given = self.integers(name)
        return self.constant_integers(position) if given is None else given


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """A row's answer: the domain of one node and how it addresses its tensors.

    Attributes:
        axes: The iteration domain.
        inputs: One access map per ONNX input position; None where the input is absent or is a
            parameter that the domain has already absorbed (a target shape, slice bounds, axes).
        outputs: One access map per ONNX output position; None where absent.
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

ONNX = ""
MICROSOFT = "com.microsoft"

Rows = dict[tuple[str, str], Row]
"""Rows of one family, by ``(domain, operator type)``."""

SCALAR = AccessMap(())
"""The access map of a tensor without dimensions."""

_IN_THE_MAPS = frozenset({
    "allowzero", "auto_pad", "axes", "axis", "batch_axis", "blocksize", "ceil_mode", "dilations",
    "ends", "equation", "group", "keepdims", "kernel_shape", "noop_with_empty_axes", "num_outputs",
    "output_padding", "output_shape", "pads", "perm", "scales", "seed", "split", "starts",
    "strides", "transA", "transB", "transBatchA", "transBatchB", "value", "value_float",
    "value_floats", "value_int", "value_ints",
})  # fmt: skip
"""Attributes that shapes and maps already express; the others change the values computed."""


def positive_axis(axis: int, rank: int) -> int:
    """Return an axis counted from the front."""
    if not -rank <= axis < rank:
        raise NoRowError(f"axis {axis} of {rank} dimensions")
    return axis % rank


def chosen_axes(axes: Iterable[int] | None, rank: int) -> frozenset[int]:
    """Return axes counted from the front; all axes for None."""
    wanted = range(rank) if axes is None else axes
    return frozenset(positive_axis(axis, rank) for axis in wanted)


def agree(condition: object, what: str) -> None:
    """Refuse a node whose shapes contradict each other."""
    if not condition:
        raise NoRowError(what)


# -------------------------------------------------------------------------------- the domain's axes


class Domain:
    """The axes of a node while its row is being worked out; an axis is named by its index."""

    def __init__(self) -> None:
        self.axes: list[Axis] = []

    def axis(self, name: str, extent: int, kind: AxisKind = AxisKind.PARALLEL) -> int:
        """Add an axis."""
        self.axes.append(Axis(name, extent, kind))
        return len(self.axes) - 1

    def whole(self, name: str, extent: int) -> int:
        """Add an axis that cannot be split though it appears in the outputs."""
        return self.axis(name, extent, AxisKind.WHOLE)

    def reduction(self, name: str, extent: int) -> int:
        """Add an axis that is summed over."""
        return self.axis(name, extent, AxisKind.REDUCTION)

    def window(self, name: str, extent: int) -> int:
        """Add an axis that runs over a kernel window."""
        return self.axis(name, extent, AxisKind.WINDOW)

    def gap(self, name: str, extent: int) -> int:
        """Add an axis that reaches positions which nothing computes."""
        return self.axis(name, extent, AxisKind.GAP)

    def dims(
        self, shape: Sequence[int], kind: Callable[[int], AxisKind] = lambda _: AxisKind.PARALLEL
    ) -> tuple[DimAccess, ...]:
        """Add one axis per dimension of a shape, of the kind that ``kind`` returns for it."""
        return tuple(
            along(self.axis(f"d{index}", extent, kind(index))) for index, extent in enumerate(shape)
        )

    def answer(  # noqa: PLR0913  an operator has that many properties
        self,
        node: NodeView,
        inputs: Sequence[AccessMap | None],
        outputs: Sequence[AccessMap | None],
        work: Work = Work(),  # noqa: B008 - frozen
        *,
        engine: Engine = Engine.VECTOR,
        pattern: Pattern = Pattern.OPAQUE,
        parameterised: bool = False,
        extra: Sequence[tuple[str, object]] = (),
    ) -> OperatorSpec:
        """Return the description of an operator.

        Args:
            node: The node described.
            inputs: Access maps by position; positions left out at the end were absorbed.
            outputs: Access maps by position.
            work: Arithmetic per point.
            engine: The engine that it keeps busy.
            pattern: Its class in TVM's fusion pass.
            parameterised: Whether it has learned parameters.
            extra: Absorbed parameters that neither shapes nor maps show.
        """
        return OperatorSpec(
            axes=tuple(self.axes),
            inputs=_fit(inputs, node.inputs),
            outputs=_fit(outputs, node.outputs),
            work=work,
            engine=engine,
            pattern=pattern,
            parameterised=parameterised,
            # Sorted: hashes of graphs must not depend on the order in the file.
            attributes=tuple(sorted([*_value_attributes(node), *((k, str(v)) for k, v in extra)])),
        )


def moved(
    node: NodeView,
    domain: Domain,
    inputs: Sequence[AccessMap | None],
    outputs: Sequence[AccessMap | None],
    pattern: Pattern = Pattern.INJECTIVE,
) -> OperatorSpec:
    """Return the description of an operator that moves data and computes nothing."""
    return domain.answer(node, inputs, outputs, engine=Engine.MOVE, pattern=pattern)


def whole_if(dims: Iterable[int]) -> Callable[[int], AxisKind]:
    """Return a function from dimension to axis kind: the given ones are needed in full."""
    held = frozenset(dims)
    return lambda dim: AxisKind.WHOLE if dim in held else AxisKind.PARALLEL


# -------------------------------------------------------------------------------------- access maps


def broadcast(shape: Sequence[int], target: Sequence[int], dims: Sequence[DimAccess]) -> AccessMap:
    """Return the access of an operand of ``shape`` that is broadcast to ``target``."""
    agree(len(shape) <= len(target), f"shape {tuple(shape)} has more dimensions than {target}")
    start = len(target) - len(shape)
    return AccessMap(
        tuple(
            _broadcast_dim(extent, wanted, dim)
            for extent, wanted, dim in zip(shape, target[start:], dims[start:], strict=True)
        )
    )


def _broadcast_dim(extent: int, wanted: int, dim: DimAccess) -> DimAccess:
    agree(extent in (1, wanted), f"extent {extent} does not broadcast to {wanted}")
    return dim if extent == wanted else fixed()


def per_channel(value: ValueView | None, channel: DimAccess, extent: int) -> AccessMap | None:
    """Return the access of a parameter with one element per channel, or one for all."""
    if value is None:
        return None
    agree(value.shape in ((), (1,), (extent,)), f"{value.name} has shape {value.shape}")
    if not value.shape:
        return SCALAR
    return AccessMap((channel if value.shape == (extent,) else fixed(),))


def everything(value: ValueView | None) -> AccessMap | None:
    """Return the access of a tensor that every part of the output reads in full."""
    return None if value is None else AccessMap((WHOLE_DIM,) * len(value.shape))


def _fit(
    maps: Sequence[AccessMap | None], values: Sequence[ValueView | None]
) -> tuple[AccessMap | None, ...]:
    padded = [*maps, *([None] * len(values))][: len(values)]
    return tuple(
        None if value is None else access for access, value in zip(padded, values, strict=True)
    )


def _value_attributes(node: NodeView) -> list[tuple[str, str]]:
    return [
        (name, _spelt(value))
        for name, value in node.attributes.items()
        if name not in _IN_THE_MAPS and not isinstance(value, np.ndarray)
    ]


def _spelt(value: object) -> str:
    """Return a canonical text of a value, floats with the seven digits that float32 holds."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float):
        return f"{value:.7g}"
    if isinstance(value, (tuple, list)):
        return ",".join(_spelt(item) for item in value)
    return str(value)
