"""Reads an ONNX file without its weights: a skim of the protobuf wire format.

A model is scheduled from shapes, so the payload of a large tensor is never copied. The file is
mapped, the fields of messages that are longer than :data:`LARGE` are walked (shorter ones cannot
hold a large payload and are copied as they are), and a large payload is replaced by the mark of
external data under the key :data:`INLINE`: the tensor keeps its name, type and extents.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnx import ModelProto, TensorProto

LARGE = 32 * 1024
"""Bytes above which a payload is left behind: 4096 64-bit integers, the longest value folded."""

INLINE = "inline_bytes"
"""External-data key of a payload that was left behind.

Its value is the length of ``raw_data`` in bytes, 0 for the fields of variable-length integers.
"""

_PLACE = "inline_place"
"""External-data key of where that payload is: number of the field, start and end in the file."""

_LENGTH_DELIMITED = 2
_FIXED_BYTES = {1: 8, 5: 4}
_VARINT_BITS = 64
_MORE = 0x80
"""The bit of a byte that says that its integer goes on; the other seven are its digits."""

_PAYLOADS = frozenset(
    ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")
)

Descriptor = Any
"""Describes a message type; protobuf ships no annotations."""

Part = bytes | memoryview


class WireError(Exception):
    """The bytes are not protobuf."""


class TruncatedError(WireError):
    """A field is longer than what is left of the file."""


def read_without_weights(path: Path) -> ModelProto:
    """The model in a file, payloads above :data:`LARGE` bytes left behind.

    Raises:
        WireError: the file is not a protobuf message.
        TruncatedError: the file ends within a field.
        OSError: the file cannot be read.
    """
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        memoryview(data) as view,
    ):
        small = b"".join(_skim(view, ModelProto.DESCRIPTOR, 0, len(view)))
    try:
        model: ModelProto = ModelProto.FromString(small)
    except Exception as error:  # protobuf's own exception class moves between its releases
        raise WireError("damaged protobuf") from error
    return model


def inline_bytes(tensor: TensorProto) -> int | None:
    """Bytes of the ``raw_data`` left behind (0: not known); None where the tensor has its own."""
    for entry in tensor.external_data:
        if entry.key == INLINE:
            return int(entry.value)
    return None


def restore(tensor: TensorProto, path: Path) -> None:
    """Read the payload that was left behind into the tensor.

    Raises:
        OSError: the file cannot be read.
    """
    place = next(entry.value for entry in tensor.external_data if entry.key == _PLACE)
    field, start, stop = map(int, place.split())
    with path.open("rb") as file:
        file.seek(start)
        payload = file.read(stop - start)
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]
    tensor.MergeFromString(_header(field, len(payload)) + payload)


def _skim(view: memoryview, message: Descriptor, start: int, end: int) -> Iterator[Part]:
    """The bytes of a message from ``start`` to ``end``, large payloads replaced."""
    kept = start
    for field, position, stop in _long_fields(view, start, end):
        replacement = _replace(view, message, (field, position, stop))
        if replacement is None:
            continue
        field_start, parts = replacement
        yield bytes(view[kept:field_start])
        yield from parts
        kept = stop
    yield bytes(view[kept:end])


def _long_fields(view: memoryview, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, payload start and payload end of the fields longer than :data:`LARGE`."""
    position = start
    while position < end:
        tag, position = _varint(view, position, end)
        stop = _end_of_field(view, tag & 7, position, end)
        if tag & 7 == _LENGTH_DELIMITED:
            _, position = _varint(view, position, end)
            if stop - position > LARGE:
                yield tag >> 3, position, stop
        position = stop


def _end_of_field(view: memoryview, kind: int, position: int, end: int) -> int:
    if kind == 0:
        return _varint(view, position, end)[1]
    if kind == _LENGTH_DELIMITED:
        size, position = _varint(view, position, end)
        stop = position + size
    elif kind in _FIXED_BYTES:
        stop = position + _FIXED_BYTES[kind]
    else:
        raise WireError(f"wire type {kind}")
    if stop > end:
        raise TruncatedError(f"{stop - end} bytes are missing")
    return stop


def _replace(
    view: memoryview, message: Descriptor, field: tuple[int, int, int]
) -> tuple[int, list[Part]] | None:
    """Where a long field begins and what stands in its place; None to keep it."""
    number, position, stop = field
    described = message.fields_by_number.get(number)
    if described is None:
        return None
    begin = position - len(_header(number, stop - position))
    if described.message_type is not None:
        inner = list(_skim(view, described.message_type, position, stop))
        return begin, [_header(number, sum(map(len, inner))), *inner]
    if message.full_name == TensorProto.DESCRIPTOR.full_name and described.name in _PAYLOADS:
        size = stop - position if described.name == "raw_data" else 0
        return begin, [_mark(size, f"{number} {position} {stop}")]
    return None


def _mark(size: int, place: str) -> bytes:
    tensor = TensorProto(data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key=INLINE, value=str(size))
    tensor.external_data.add(key=_PLACE, value=place)
    return bytes(tensor.SerializeToString())


def _header(number: int, size: int) -> bytes:
    return _as_varint(number << 3 | _LENGTH_DELIMITED) + _as_varint(size)


def _as_varint(value: int) -> bytes:
    digits = bytearray()
    while value >= _MORE:
        digits.append(value % _MORE | _MORE)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def _varint(view: memoryview, position: int, end: int) -> tuple[int, int]:
    """A variable-length integer and the position after it."""
    value = shift = 0
    while position < end:
        byte = view[position]
        value |= (byte % _MORE) << shift
        position, shift = position + 1, shift + 7
        if byte < _MORE:
            return value, position
        if shift > _VARINT_BITS:
            raise WireError("integer of more than 64 bits")
    raise TruncatedError("the file ends within an integer")
