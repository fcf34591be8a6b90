"""Weights are left in their files: skimmed over in the model, checked beside it, read where small.

A model is scheduled from shapes, so the payload of a large tensor is never copied. The file is
mapped, the fields of messages that are longer than :data:`LARGE` are walked (shorter ones cannot
hold a large payload and are copied as they are), and a large payload is replaced by the mark of
external data under the key :data:`INLINE`: the tensor keeps its name, type and extents.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper

from autoturbo.graph.source import MOST_ELEMENTS

if TYPE_CHECKING:
    from autoturbo.graph.source import Source

LARGE = 32 * 1024
"""Bytes above which a payload is left behind: 4096 64-bit integers, the longest value folded."""

_OWN = os.urandom(8).hex()
"""What no file can know: its own external data are never taken for a mark."""

INLINE = f"inline_bytes {_OWN}"
"""External-data key of a payload that was left behind.

Its value is the length of ``raw_data`` in bytes, 0 for the fields of variable-length integers.
"""

_PLACE = f"inline_place {_OWN}"
"""External-data key of where that payload is: start and end of its field in the file."""

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
    """A field is longer than the rest of the file."""


def read_without_weights(path: Path) -> ModelProto:
    """Return the model in a file, without payloads above :data:`LARGE` bytes.

    Raises:
        WireError: The file is not a protobuf message.
        TruncatedError: The file ends within a field.
        OSError: The file cannot be read.
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
    """Return the bytes of a skipped payload (0: not known), or None if the tensor has its own."""
    for entry in tensor.external_data:
        if entry.key == INLINE:
            return int(entry.value)
    return None


def left_out(name: str, element: int, dims: Sequence[int]) -> TensorProto:
    """Return a tensor as it stands where its payload was left behind."""
    tensor = TensorProto(name=name, data_type=element, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key=INLINE, value="0")
    return tensor


def restore(tensor: TensorProto, path: Path) -> None:
    """Read a skipped payload into the tensor.

    Raises:
        OSError: The file cannot be read.
    """
    place = next(entry.value for entry in tensor.external_data if entry.key == _PLACE)
    start, stop = map(int, place.split())
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(stop - start)
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]
    tensor.MergeFromString(data)


def _skim(view: memoryview, message: Descriptor, start: int, end: int) -> Iterator[Part]:
    """Return the bytes of a message from ``start`` to ``end``, large payloads replaced."""
    kept = start
    # A message longer than the limit may hold a payload; a shorter one is taken as it is.
    for number, begin, position, stop in _long_fields(view, start, end):
        described = message.fields_by_number.get(number)
        if described is None:
            continue
        if described.message_type is not None:
            inner = list(_skim(view, described.message_type, position, stop))
            # The message has shrunk, so its length is written anew.
            parts = [_header(number, sum(map(len, inner))), *inner]
        elif message.full_name == TensorProto.DESCRIPTOR.full_name and described.name in _PAYLOADS:
            # Other payloads are packed numbers, whose length in the file is not theirs.
            size = stop - position if described.name == "raw_data" else 0
            parts = [_mark(size, f"{begin} {stop}")]
        else:
            continue
        yield bytes(view[kept:begin])
        yield from parts
        kept = stop
    yield bytes(view[kept:end])


def _long_fields(view: memoryview, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Return fields longer than :data:`LARGE`: number, start, start of the payload, end."""
    stop = start
    while (begin := stop) < end:
        tag, position = _varint(view, begin, end)
        if tag & 7 == 0:
            stop = _varint(view, position, end)[1]
        elif tag & 7 == _LENGTH_DELIMITED:
            size, position = _varint(view, position, end)
            stop = position + size
        elif tag & 7 in _FIXED_BYTES:
            stop = position + _FIXED_BYTES[tag & 7]
        else:
            raise WireError(f"wire type {tag & 7}")
        if stop > end:
            raise TruncatedError(f"{stop - end} bytes are missing")
        if tag & 7 == _LENGTH_DELIMITED and stop - position > LARGE:
            yield tag >> 3, begin, position, stop


def _mark(size: int, place: str) -> bytes:
    tensor = TensorProto(data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key=INLINE, value=str(size))
    tensor.external_data.add(key=_PLACE, value=place)
    return bytes(tensor.SerializeToString())


def _header(number: int, size: int) -> bytes:
    """Return the bytes before a payload: its tag and length."""
    return _as_varint(number << 3 | _LENGTH_DELIMITED) + _as_varint(size)


def _as_varint(value: int) -> bytes:
    digits = bytearray()
    while value >= _MORE:
        digits.append(value % _MORE | _MORE)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def _varint(view: memoryview, position: int, end: int) -> tuple[int, int]:
    """Return a variable-length integer and the position after it."""
    value = shift = 0
    while position < end:
        byte = view[position]
        value |= (byte % _MORE) << shift
        position, shift = position + 1, shift + 7
        if byte < _MORE:
            return value, position
        # Bytes that all say "more" would make a number without end.
        if shift > _VARINT_BITS:
            raise WireError("integer of more than 64 bits")
    raise TruncatedError("the file ends within an integer")


# ----------------------------------------------------------------------- large values, small values


SMALL = 4096
"""Elements up to which a value is read and computed with; shapes and axes are shorter."""

INDICES = 1 << 18
"""Elements up to which integers are, as they may be indices."""

MOST_READ = 1 << 24
"""Elements of integers above :data:`SMALL` that are read, and computed, in all."""

_PAGE = 4096
"""Bytes to which elements in a data file are aligned, so that runtimes can map them."""

_LONGEST_PATH = 4095
"""Bytes of the longest path that a system takes."""

_SHOWN = 60
"""Characters of a location that a message shows."""

_NUMBER = re.compile("[0-9]{,20}")
"""Places in a file, of no more digits than those of the last byte of any disk."""

_SUB_BYTE_BITS = {"UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "UINT2": 2, "INT2": 2}
"""Bits of the element types that are packed several to a byte."""


@dataclass(slots=True)
class DataFiles:
    """Data files of a model: those that are missing, and how much may still be read.

    Attributes:
        missing: The file of each tensor whose data file does not exist.
        left: Elements above :data:`SMALL` that may still be read.
    """

    missing: dict[str, str] = field(default_factory=dict)
    left: int = MOST_READ

    def wants(self, tensor: TensorProto) -> bool:
        """Return whether to read the elements of a tensor, which is then marked as read."""
        size: int = math.prod(tensor.dims)
        if size <= SMALL:
            return True
        # Integers may be indices, on which shapes and samples depend; weights are never needed.
        if size > most_elements(tensor.data_type) or size > self.left:
            return False
        self.left -= size
        return True


def most_elements(element: int) -> int:
    """Return the most elements of an ONNX element type for which a value is computed."""
    return INDICES if element in (TensorProto.INT32, TensorProto.INT64) else SMALL


def tensors_of(graph: GraphProto) -> Iterator[TensorProto]:
    """Return every tensor stored in a graph: initializers, attributes, bodies of control flow."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            yield from _tensors_of_attribute(attribute)


def _tensors_of_attribute(attribute: AttributeProto) -> Iterator[TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    for body in (attribute.g, *attribute.graphs):
        yield from tensors_of(body)


def is_stored(tensor: TensorProto) -> bool:
    """Return whether the message itself holds the values of a tensor.

    A file may say "here" behind a payload that was skipped: the mark counts.
    """
    return tensor.data_location != TensorProto.EXTERNAL and inline_bytes(tensor) is None


def attach(graph: GraphProto, source: Source, *, seeded: bool = False) -> DataFiles:
    """Check every large or external tensor, and read the small ones into the message.

    A data file that does not exist is noted, not refused: shapes are enough to schedule.

    Args:
        graph: Graph of the file.
        source: Names the file and takes the notes.
        seeded: Whether missing weights are made from a seed, so that there is nothing to note.

    Returns:
        Data files that are missing, and how many elements may still be read.

    Raises:
        ModelError: A data file outside the model's folder, or shorter than a tensor needs; an
            extent that is negative or far too large; an inline payload of the wrong length.
    """
    files = DataFiles()
    for tensor in tensors_of(graph):
        if any(extent < 0 for extent in tensor.dims):
            raise source.error(f"extents {list(tensor.dims)} are negative", tensor.name)
        if math.prod(tensor.dims) >= MOST_ELEMENTS:
            raise source.too_large(tensor.dims, tensor.name)
        if is_stored(tensor):
            _check_length(tensor, len(tensor.raw_data), source)
        else:
            _attach(tensor, files, source)
    for location in sorted(set() if seeded else set(files.missing.values())):
        source.note(
            f"weights file {location} is missing: shapes are enough to schedule, not to run"
        )
    return files


def _check_length(tensor: TensorProto, raw_bytes: int, source: Source) -> None:
    """Refuse a payload of the wrong length; 0 bytes mean that it is stored in another field."""
    needed = stored_bytes(tensor, source) if raw_bytes else 0
    if raw_bytes != needed:
        raise source.error(f"holds {raw_bytes} bytes, its shape needs {needed}", tensor.name)


def _attach(tensor: TensorProto, files: DataFiles, source: Source) -> None:
    left_behind = inline_bytes(tensor)
    if left_behind is not None:
        _check_length(tensor, left_behind, source)
        if files.wants(tensor):
            restore(tensor, source.path)
        return
    needed = stored_bytes(tensor, source)
    place = {entry.key: entry.value for entry in tensor.external_data}
    path = _inside(place.get("location", ""), tensor.name, source)
    offset, length = _extent(place, tensor.name, source)
    length = needed if length is None else length
    # Longer is no harm: what is behind is not read.
    if length < needed:
        raise source.error(f"holds {length} bytes, its shape needs {needed}", tensor.name)
    if not _is_there(path, place["location"], tensor.name, source):
        files.missing[tensor.name] = place["location"]
        return
    size = path.stat().st_size
    if size < offset + length:
        raise source.error(
            f"data file {place['location']} has {size} bytes, {offset + length} are needed",
            tensor.name,
            "copy or download the file again",
        )
    if files.wants(tensor):
        _read(tensor, path, offset, needed)


def stored_bytes(tensor: TensorProto, source: Source) -> int:
    """Return the bytes that the values of a tensor take in a file (0 for strings)."""
    if tensor.data_type == TensorProto.STRING:
        return 0
    elements: int = math.prod(tensor.dims)
    try:
        bits = _SUB_BYTE_BITS.get(TensorProto.DataType.Name(tensor.data_type))
        if bits:
            return -(-elements * bits // 8)
        return elements * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    except (KeyError, ValueError):
        raise source.error(f"unknown element type {tensor.data_type}", tensor.name) from None


def _inside(location: str | bytes, name: str, source: Source) -> Path:
    """Return the path of a data file; refuse it if it leaves the model's folder."""
    if not location or not isinstance(location, str):
        raise source.error("external data without a readable location", name)
    folder = source.path.absolute().parent
    path = folder / location
    if "\0" in location or len(os.fsencode(path)) > _LONGEST_PATH:
        message = f"external data {location[:_SHOWN]!r}... cannot be the name of a file"
        raise source.error(message, name, "keep the weights beside the model")
    # A link may lead out as well, so the resolved path is looked at too.
    inside = not Path(location).is_absolute() and ".." not in Path(location).parts
    if not inside or not path.resolve().is_relative_to(folder.resolve()):
        raise source.error(
            f"external data {location!r} leaves the model's folder",
            name,
            "keep the weights beside the model",
        )
    return path


def _is_there(path: Path, location: str, name: str, source: Source) -> bool:
    """Return whether a data file exists; refuse a name that the file system does not take."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        message = f"external data {location[:_SHOWN]!r} cannot be read: {error.strerror}"
        raise source.error(message, name) from None


def _extent(place: dict[str, str], name: str, source: Source) -> tuple[int, int | None]:
    """Return offset and length in bytes; the length is None where it is not given."""
    texts = [place.get(key) or "" for key in ("offset", "length")]
    if not all(_NUMBER.fullmatch(text) for text in texts):
        raise source.error("external data with a bad offset or length", name)
    return int(texts[0] or 0), int(texts[1]) if texts[1] else None


def _read(tensor: TensorProto, path: Path, offset: int, length: int) -> None:
    """Read the elements into the message and keep its reference to the data file."""
    with path.open("rb") as file:
        file.seek(offset)
        tensor.raw_data = file.read(length)
    tensor.data_location = TensorProto.DEFAULT


def reference(tensor: TensorProto) -> TensorProto:
    """Return a tensor as its file has it: one read from a data file refers to it again."""
    if not (is_stored(tensor) and tensor.external_data):
        return tensor
    copy = TensorProto()
    copy.CopyFrom(tensor)
    copy.ClearField("raw_data")
    copy.data_location = TensorProto.EXTERNAL
    return copy


def put_outside(
    tensor: TensorProto, values: Iterable[bytes], stream: BinaryIO, location: str
) -> None:
    """Append the elements of a tensor to a data file and point the tensor to them.

    Args:
        tensor: Loses the elements that it holds.
        values: Its elements, piece by piece; they may be read from where it refers to now.
        stream: The data file.
        location: The file's name beside the model.
    """
    offset = -(-stream.tell() // _PAGE) * _PAGE
    stream.seek(offset)
    length = sum(stream.write(piece) for piece in values)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
