"""Values of a model during the import: type, static shape, and data if it is small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, TypeProto, helper

if TYPE_CHECKING:
    from onnx import NodeProto

    from autoturbo.errors import ModelError
    from autoturbo.graph.operators import Stored


@dataclass(frozen=True, slots=True)
class NotFolded:
    """Reason why the elements of a constant were not computed.

    Attributes:
        node: The node that could not be computed, as messages call it.
        why: One sentence that names its operator.
    """

    node: str
    why: str


@dataclass(slots=True, eq=False)
class Value:
    """A value while the model is imported.

    Attributes:
        name: Name in the file.
        type: Element type and shape as far as they are known.
        constant: Depends on no real input.
        data: Its elements, where it is a small constant.
        literal: Its data come from the file alone, not from the shape of another value.
        missing: The data file without which its elements are not known.
        unfolded: Why its elements were not computed, where it is a constant without ``data``.
        unknown: Why its type or shape is not known: raised if the graph needs it.
        repeated: The constant of the file's own batch that this one has repeated for another.
        stored: The narrow constant that a DequantizeLinear makes it of, perhaps rearranged.
        view: What of a stored constant it holds, if it is made from one without arithmetic.
        given: Inputs whose elements the user gave, and from which it is computed.
    """

    name: str
    type: TypeProto
    constant: bool = False
    data: np.ndarray | None = None
    literal: bool = False
    missing: str | None = None
    unfolded: NotFolded | None = None
    unknown: ModelError | None = None
    repeated: Repetition | None = None
    stored: Stored | None = None
    view: View | None = None
    given: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Return the static extents, or None if one is not known."""
        return static_shape(self.type)

    @property
    def empty(self) -> bool:
        """Return whether it is known to hold no elements."""
        return holds_nothing(self.type)

    @property
    def dtype(self) -> str:
        """Return the element type as numpy names it; ``""`` if it is not known."""
        return dtype_name(element_type(self.type))


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A constant as a view of one that the file stores.

    Attributes:
        stored: The constant in the file.
        part: Choice of its elements, node by node; empty if the view has all of them.
        beside: Scales and zero points of its conversion from narrow values.
    """

    stored: Value
    part: tuple[str, ...] = ()
    beside: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Repetition:
    """Place of the samples in a constant of the file's own batch.

    Attributes:
        original: The constant.
        dim: The dimension.
        batch: The file's own.
        inner: Elements of that dimension per sample that follow each other.
    """

    original: Value
    dim: int
    batch: int
    inner: int


@dataclass(frozen=True, slots=True, eq=False)
class Inside:
    """Body of a node of control flow that stays whole: a trip of a loop, or a branch.

    Attributes:
        times: Times that it is done; 0 where that or the work is not known.
        why: Why it stays whole, and what is counted.
        steps: The nodes that depend on an input of the model.
        constants: The nodes that make constants.
        outputs: Values that it makes in the end.
    """

    times: int
    why: str
    steps: tuple[Step, ...] = ()
    constants: tuple[Step, ...] = ()
    outputs: tuple[Value, ...] = ()


@dataclass(slots=True, eq=False)
class Step:
    """A node that stays in the graph, with its values looked up.

    Attributes:
        node: The node as it is in the file.
        name: A name for people, not necessarily unique.
        inputs: Values by position, None where absent.
        captured: Outer values that bodies of control flow read.
        outputs: Values by position, None where absent.
        trips: Trips of a Loop; None where their number depends on data.
        inside: The trip of a loop, or both branches of an If.
    """

    node: NodeProto
    name: str
    inputs: list[Value | None]
    captured: list[Value]
    outputs: list[Value | None]
    trips: int | None = None
    inside: tuple[Inside, ...] = ()

    @property
    def read(self) -> list[Value]:
        """Return the values that the node and its bodies read."""
        return [value for value in (*self.inputs, *self.captured) if value is not None]


def tensor_type(element: int, shape: Sequence[int]) -> TypeProto:
    """Return the type of a tensor of static shape."""
    return helper.make_tensor_type_proto(element, tuple(shape))


def holds_nothing(kind: TypeProto) -> bool:
    """Return whether a type is one of tensors without elements."""
    return min(static_shape(kind) or (1,)) == 0


def nothing(kind: TypeProto) -> np.ndarray:
    """Return the elements of a tensor that has none."""
    dtype = helper.tensor_dtype_to_np_dtype(element_type(kind))
    return np.zeros(static_shape(kind) or (0,), dtype)


def spread(elements: Sequence[float], shape: Sequence[int], element: int) -> np.ndarray:
    """Return elements as an array of an ONNX type, a single element repeated for all."""
    dtype = helper.tensor_dtype_to_np_dtype(element)
    several = np.asarray(elements, dtype)
    return np.resize(several, tuple(shape)) if several.size == 1 else several.reshape(tuple(shape))


def dims_of(kind: TypeProto) -> list[int | None] | None:
    """Return the extents of a tensor type, each None if not known; None for an unknown rank."""
    field = kind.WhichOneof("value")
    if field not in ("tensor_type", "sparse_tensor_type"):
        return None
    tensor = kind.tensor_type if field == "tensor_type" else kind.sparse_tensor_type
    if not tensor.HasField("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]


def holds_tensors(kind: TypeProto) -> bool:
    """Return whether a type is that of a sequence, an optional or a map."""
    return kind.WhichOneof("value") in ("sequence_type", "optional_type", "map_type")


def static_shape(kind: TypeProto) -> tuple[int, ...] | None:
    """Return the static extents of a type, None if unknown; ``()`` for sequences and optionals."""
    if holds_tensors(kind):
        return ()
    dims = dims_of(kind)
    if dims is None or any(dim is None for dim in dims):
        return None
    return tuple(dim for dim in dims if dim is not None)


def element_type(kind: TypeProto) -> int:
    """Return the element type of a tensor or of a sequence's tensors; 0 if not known."""
    match kind.WhichOneof("value"):
        case "tensor_type":
            return kind.tensor_type.elem_type
        case "sparse_tensor_type":
            return kind.sparse_tensor_type.elem_type
        case "sequence_type":
            return element_type(kind.sequence_type.elem_type)
        case "optional_type":
            return element_type(kind.optional_type.elem_type)
        case _:
            return TensorProto.UNDEFINED


def dtype_name(element: int) -> str:
    """Return an ONNX element type as numpy names it (``"float32"``, ``"string"``)."""
    if element == TensorProto.UNDEFINED:
        return ""
    if element == TensorProto.STRING:
        return "string"
    return str(np.dtype(helper.tensor_dtype_to_np_dtype(element)).name)
