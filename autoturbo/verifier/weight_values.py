"""Random values of stored tensors: how they are distributed, and each piece by piece.

A network with arbitrary weights overflows or dies within a few layers, so values go by what the
graph does with each tensor. Weights that multiply are scaled by their fan-in, so that activations
keep their magnitude: variance ``2 / fan_in`` in front of a rectifier (convolutions), ``1 / fan_in``
in matrix products. Normalisation scales are near one, variances positive, everything that is added
small.

Each tensor has a random stream of its own, keyed by the SHA-256 of seed and tensor name, so its
values depend neither on the other tensors nor on their order. Values are made in pieces of a few
MiB: a model of several GiB needs no more memory than a small one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from autoturbo.graph.source import domain_of, integer_of
from autoturbo.graph.structure import nodes_in

Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fill:
    """Distribution of a tensor's values.

    Attributes:
        mean: Expected value.
        spread: Standard deviation; of a uniform fill the half width.
        uniform: Values are spread evenly over ``mean - spread`` to ``mean + spread`` (variances,
            which must stay above zero) instead of normally.
    """

    mean: float
    spread: float
    uniform: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """One place where a stored tensor is read.

    Attributes:
        node: Its reader, perhaps through views: transposed, converted, dequantised.
        position: Position among the node's inputs.
        dims: Its extents as the node sees them (views that regroup elements are not followed).
    """

    node: NodeProto
    position: int
    dims: Dims

    @property
    def kind(self) -> str:
        """Return the operator type of the node."""
        return str(self.node.op_type)


SCALE = Fill(1.0, 0.1)
BIAS = Fill(0.0, 0.02)
VARIANCE = Fill(1.0, 0.5, uniform=True)
EMBEDDING = Fill(0.0, 0.05)

_NORMALISATIONS = (
    "LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization",
    "SimplifiedLayerNormalization",
)  # fmt: skip
VIEWS = frozenset(
    ("Cast", "Identity", "DequantizeLinear", "Transpose", "Reshape", "Unsqueeze", "Squeeze",
     "Flatten")
)  # fmt: skip
"""Operators through which a stored tensor is followed to what computes with it."""


def _spread(gain: float, fan_in: int) -> Fill:
    return Fill(0.0, math.sqrt(gain / max(fan_in, 1)))


def _convolution(node: NodeProto, dims: Sequence[int]) -> Fill:
    del node
    # He's gain for what a ReLU mostly follows; without it deep networks fade out.
    return _spread(2.0, math.prod(dims[1:]))


def _transposed_convolution(node: NodeProto, dims: Sequence[int]) -> Fill:
    """Return the fill of a transposed convolution: input channels, output channels, kernel."""
    groups = integer_of(node, "group", 1)
    outputs = dims[1] * groups if len(dims) > 1 else 1
    return _spread(2.0, math.prod(dims) // outputs)


def _gemm(node: NodeProto, dims: Sequence[int]) -> Fill:
    transposed = integer_of(node, "transB")
    return _spread(1.0, dims[1 if transposed else 0] if len(dims) > 1 else max(dims, default=1))


def _matmul(node: NodeProto, dims: Sequence[int]) -> Fill:
    del node
    return _spread(1.0, dims[-2] if len(dims) > 1 else max(dims, default=1))


def _always(fill: Fill) -> Callable[[NodeProto, Sequence[int]], Fill]:
    return lambda _node, _dims: fill


_RULES: Mapping[tuple[str, int], Callable[[NodeProto, Sequence[int]], Fill]] = {
    ("Conv", 1): _convolution,
    ("ConvTranspose", 1): _transposed_convolution,
    ("Gemm", 1): _gemm,
    ("MatMul", 0): _matmul,
    ("MatMul", 1): _matmul,
    ("Gather", 0): _always(EMBEDDING),
    ("Mul", 0): _always(SCALE),
    ("Mul", 1): _always(SCALE),
    ("Div", 1): _always(SCALE),
    ("BatchNormalization", 1): _always(SCALE),
    ("BatchNormalization", 4): _always(VARIANCE),
    **{(kind, 1): _always(SCALE) for kind in _NORMALISATIONS},
}


def fills(graph: GraphProto) -> dict[str, Fill]:
    """Return a fill for every initializer, by its first reader that has a rule."""
    return fills_of(graph, {tensor.name: tuple(tensor.dims) for tensor in graph.initializer})


def fills_of(graph: GraphProto, dims: Mapping[str, Dims]) -> dict[str, Fill]:
    """Return a fill for every value that a graph reads, given their extents."""
    read = readings(graph, dims)
    return {name: _fill(read[name], shape) for name, shape in dims.items()}


def _fill(read: Sequence[Reading], dims: Dims) -> Fill:
    for reading in read:
        rule = _RULES.get((reading.kind, reading.position))
        if rule is not None:
            return rule(reading.node, reading.dims)
    return _by_shape(dims)


def _by_shape(dims: Sequence[int]) -> Fill:
    """Return the fill without a reader's rule: vectors are added, matrices may multiply."""
    # A vector with extents of 1 beside it is still a vector.
    wide = sum(d > 1 for d in dims) > 1
    return _spread(1.0, max(dims)) if wide else BIAS


def readings(graph: GraphProto, dims: Mapping[str, Dims]) -> dict[str, list[Reading]]:
    """Return the readers of each value in graph order, control-flow bodies included."""
    by_name: dict[str, list[Reading]] = {name: [] for name in dims}
    seen = {name: (name, shape) for name, shape in dims.items()}
    for node in nodes_in(graph.node):
        for position, name in enumerate(node.input):
            if name in seen:
                origin, shape = seen[name]
                by_name[origin].append(Reading(node, position, shape))
        if node.op_type in VIEWS and not domain_of(node) and node.input[0] in seen:
            origin, shape = seen[node.input[0]]
            seen[node.output[0]] = (origin, _viewed(node, shape))
    return by_name


def _viewed(node: NodeProto, dims: Dims) -> Dims:
    """Return the extents after a view; a reshape is not followed, so later views may not fit."""
    if node.op_type != "Transpose":
        return dims
    backwards = list(range(len(dims)))[::-1]
    order = next((list(a.ints) for a in node.attribute if a.name == "perm"), backwards)
    return tuple(dims[d] for d in order) if len(order) == len(dims) else dims


# ------------------------------------------------------------------------------------------ values


PIECE = 1 << 20
"""Values per piece: 4 MiB of float32. Even, as packed types hold two to the byte."""

Array = np.ndarray[Any, Any]


def generator(seed: str | int, name: str) -> np.random.Generator:
    """Return the random stream of a name."""
    # By name, not in turn: a weight has the same values whatever else the model holds.
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def pieces(tensor: TensorProto, fill: Fill, seed: str | int) -> Iterator[bytes]:
    """Yield a tensor's values as ``raw_data`` has them: little-endian, sub-byte types packed."""
    stream = generator(seed, tensor.name)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    left = math.prod(tensor.dims)
    while left > 0:
        count = min(left, PIECE)
        values = _converted(drawn(stream, fill, count), dtype, tensor.data_type)
        yield bytes(numpy_helper.from_array(values).raw_data)
        left -= count


def drawn(stream: np.random.Generator, fill: Fill, count: int) -> Array:
    """Return ``count`` values of a distribution, as float32."""
    if fill.uniform:
        width = np.float32(2 * fill.spread)
        return stream.random(count, np.float32) * width + np.float32(fill.mean - fill.spread)
    deviates = stream.standard_normal(count, np.float32)
    return deviates * np.float32(fill.spread) + np.float32(fill.mean)


_SUB_BYTE: dict[int, tuple[int, int]] = {
    getattr(TensorProto, name): limits
    for name, limits in (
        ("INT4", (-8, 7)), ("UINT4", (0, 15)), ("INT2", (-2, 1)), ("UINT2", (0, 3)),
    )
    if hasattr(TensorProto, name)  # earlier releases of ONNX lack the smallest
}  # fmt: skip


def integer_range(element: int) -> tuple[int, int] | None:
    """Return the smallest and largest value of an ONNX integer type; None for other types."""
    if element in _SUB_BYTE:
        return _SUB_BYTE[element]
    dtype = helper.tensor_dtype_to_np_dtype(element)
    if dtype.kind not in "iu":
        return None
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _converted(values: Array, dtype: np.dtype[Any], element: int) -> Array:
    """Return values in an element type: integers are rounded and clipped to its range."""
    bounds = integer_range(element)
    if bounds is not None:
        return np.clip(np.rint(values), *bounds).astype(dtype)
    return (values >= np.float32(0.5)) if dtype.kind == "b" else values.astype(dtype)
