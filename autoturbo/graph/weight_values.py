"""Random values of tensors, piece by piece.

Each tensor has a random stream of its own, keyed by the SHA-256 of seed and tensor name, so its
values depend neither on the other tensors nor on their order. Values are made in pieces of a few
MiB: a model of several GiB needs no more memory than a small one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from autoturbo.graph.weight_fills import Fill

_PIECE = 1 << 20
"""Values per piece: 4 MiB of float32. Even, as packed types hold two to the byte."""

Array = np.ndarray[Any, Any]


def generator(seed: str | int, name: str) -> np.random.Generator:
    """The random stream of what is called ``name``."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def pieces(tensor: TensorProto, fill: Fill, seed: str | int) -> Iterator[bytes]:
    """Yield a tensor's values as ``raw_data`` has them: little-endian, sub-byte types packed."""
    stream = generator(seed, tensor.name)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    left = math.prod(tensor.dims)
    while left > 0:
        count = min(left, _PIECE)
        values = _converted(drawn(stream, fill, count), dtype, tensor.data_type)
        yield bytes(numpy_helper.from_array(values).raw_data)
        left -= count


def drawn(stream: np.random.Generator, fill: Fill, count: int) -> Array:
    """``count`` values of a distribution, as float32."""
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
    """Smallest and largest value of an ONNX integer type; None for any other type."""
    if element in _SUB_BYTE:
        return _SUB_BYTE[element]
    dtype = helper.tensor_dtype_to_np_dtype(element)
    if dtype.kind not in "iu":
        return None
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _converted(values: Array, dtype: np.dtype[Any], element: int) -> Array:
    """As the type has them: integers rounded and kept within its range."""
    bounds = integer_range(element)
    if bounds is not None:
        return np.clip(np.rint(values), *bounds).astype(dtype)
    return (values >= np.float32(0.5)) if dtype.kind == "b" else values.astype(dtype)
