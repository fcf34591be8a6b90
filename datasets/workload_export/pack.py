"""Move weights out of the file: external data by name, offset and length, not shipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, external_data_helper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INLINE_LIMIT = 1024
"""Bytes up to which a floating-point tensor stays in the file."""

TABLE_LIMIT = 128 * 1024
"""Bytes up to which integers and booleans stay: they are indices, and random ones are wrong."""

_ALIGNMENT = 64
"""Bytes: a cache line; also what vector loads of mapped files ask for."""

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)


def pack(model: onnx.ModelProto, location: str) -> int:
    """Turn large tensors into external data in the file `location`; return that file's bytes."""
    _promote_constants(model.graph)
    drop_unused(model.graph)
    offset = 0
    for tensor in model.graph.initializer:
        size = _bytes(tensor)
        if _stays(tensor, size):
            continue
        _externalise(tensor, location, offset, size)
        offset += -(-size // _ALIGNMENT) * _ALIGNMENT
    return offset


def load_small(model: onnx.ModelProto, folder: Path) -> None:
    """Read tensors that stay in the file and that the exporter wrote beside it."""
    _promote_constants(model.graph)
    for tensor in model.graph.initializer:
        external = tensor.data_location == TensorProto.EXTERNAL
        if external and _stays(tensor, _bytes(tensor)):
            external_data_helper.load_external_data_for_tensor(tensor, str(folder))
            tensor.data_location = TensorProto.DEFAULT
            tensor.ClearField("external_data")


def _bytes(tensor: onnx.TensorProto) -> int:
    count = 1
    for size in tensor.dims:
        count *= size
    return count * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def _stays(tensor: onnx.TensorProto, size: int) -> bool:
    if tensor.data_type in _FLOATS:
        return size <= INLINE_LIMIT
    if size > TABLE_LIMIT:
        raise ValueError(f"index table {tensor.name} has {size} bytes, limit {TABLE_LIMIT}")
    return True


def _externalise(tensor: onnx.TensorProto, location: str, offset: int, size: int) -> None:
    shell = TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    shell.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", size)):
        shell.external_data.add(key=key, value=str(value))
    tensor.CopyFrom(shell)


def _promote_constants(graph: onnx.GraphProto) -> None:
    """Make initializers of Constant nodes, so that one rule covers all constants."""
    for node in [node for node in graph.node if node.op_type == "Constant"]:
        value = next((a.t for a in node.attribute if a.name == "value"), None)
        if value is not None:
            graph.initializer.add().CopyFrom(value)
            graph.initializer[-1].name = node.output[0]
            graph.node.remove(node)


def _used(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in graph.output)
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _used(attribute.g)


def drop_unused(graph: onnx.GraphProto) -> None:
    """Remove initializers that no node and no output reads."""
    used = set(_used(graph))
    for tensor in [t for t in graph.initializer if t.name not in used]:
        graph.initializer.remove(tensor)
