"""The rows of an SQLite file, page by page, whatever is left of it.

A damaged file may have lost its first page, or those that lead to others, and SQLite then reads
nothing of it. But every leaf of a table holds whole rows, and a leaf is told by its form
(https://www.sqlite.org/fileformat2.html). Read are all pages of the file and, in their place, the
newest ones that the write-ahead log has committed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final

PAGE: Final = 4096
"""Bytes of a page where the file does not say, SQLite's default."""

_TABLE_LEAF, _INDEX_LEAF = 0x0D, 0x0A
_HEADER, _FRAME = 32, 24  # bytes of a log's header and of a frame's
_MOST_CELLS = 4096
_FIXED: Final = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8, 8: 0, 9: 0}
"""Bytes of a value by its serial type, below the types of texts and blobs."""

Value = None | int | float | str | bytes
Row = tuple[Value, ...]


class _NoCellError(Exception):
    """What stands there is no row."""


class Pages(Mapping[int, bytes]):
    """Pages by their number, from 1.

    Args:
        data: the file.
        log: the file of its write-ahead log; empty where there is none.
    """

    def __init__(self, data: bytes, log: bytes = b"") -> None:
        self._data = data
        self._size = page_size(data, log)
        self._logged = _logged(log, self._size)
        self._numbers = sorted({*range(1, -(-len(data) // self._size) + 1), *self._logged})

    def __getitem__(self, number: int) -> bytes:
        if number in self._logged:
            return self._logged[number]
        start = (number - 1) * self._size
        if not 0 <= start < len(self._data):
            raise KeyError(number)
        return self._data[start : start + self._size].ljust(self._size, b"\0")

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


def page_size(data: bytes, log: bytes = b"") -> int:
    """Of the file's header, or of the log's; :data:`PAGE` where neither makes sense."""
    (of_file,) = struct.unpack(">H", data[16:18].ljust(2, b"\0"))
    (of_log,) = struct.unpack(">I", log[8:12].ljust(4, b"\0"))
    sizes = (65536 if of_file == 1 else of_file, of_log)
    return next((n for n in sizes if 512 <= n <= 65536 and n & (n - 1) == 0), PAGE)  # noqa: PLR2004


def rows_of(pages: Mapping[int, bytes]) -> Iterator[Row]:
    """Every row on every leaf that can be read; one that cannot is passed over."""
    for number in pages:
        page = pages[number]
        start = 100 if number == 1 else 0
        kind = page[start]
        if kind not in (_TABLE_LEAF, _INDEX_LEAF):
            continue
        for cell in _cells(page, start):
            try:
                payload = _payload(pages, page, cell, table=kind == _TABLE_LEAF)
                yield _values(payload)
            except (_NoCellError, struct.error, UnicodeDecodeError):
                continue


def _cells(page: bytes, start: int) -> Iterator[int]:
    (count,) = struct.unpack(">H", page[start + 3 : start + 5])
    for at in range(start + 8, start + 8 + 2 * min(count, _MOST_CELLS), 2):
        if at + 2 <= len(page):
            yield struct.unpack(">H", page[at : at + 2])[0]


def _payload(pages: Mapping[int, bytes], page: bytes, at: int, *, table: bool) -> bytes:
    """What a cell holds, with what stands on further pages."""
    size, at = _varint(page, at)
    if table:
        _, at = _varint(page, at)  # the row's number
    here = _local(size, len(page), table=table)
    found = page[at : at + here]
    if here == size:
        return found
    (following,) = struct.unpack(">I", page[at + here : at + here + 4])
    parts, got, seen = [found], here, set[int]()
    while got < size:
        if following in seen or following not in pages:
            raise _NoCellError
        seen.add(following)
        more = pages[following]
        parts.append(more[4 : 4 + size - got])
        got += len(parts[-1])
        (following,) = struct.unpack(">I", more[:4])
    return b"".join(parts)


def _local(size: int, usable: int, *, table: bool) -> int:
    """Bytes of a payload that stand in the cell itself."""
    most = usable - 35 if table else (usable - 12) * 64 // 255 - 23
    if size <= most:
        return size
    least = (usable - 12) * 32 // 255 - 23
    some = least + (size - least) % (usable - 4)
    return some if some <= most else least


def _values(payload: bytes) -> Row:
    """The values of a row in SQLite's record format."""
    end, at = _varint(payload, 0)
    body, values = end, list[Value]()
    while at < end:
        kind, at = _varint(payload, at)
        size = _FIXED.get(kind, (kind - 12) // 2 if kind >= 12 else -1)  # noqa: PLR2004
        if size < 0 or body + size > len(payload):
            raise _NoCellError
        values.append(_value(kind, payload[body : body + size]))
        body += size
    if body != len(payload) or not values:
        raise _NoCellError
    return tuple(values)


def _value(kind: int, data: bytes) -> Value:
    match kind:
        case 0:
            return None
        case 8 | 9:
            return kind - 8
        case 7:
            return float(struct.unpack(">d", data)[0])
        case _ if kind < 7:  # noqa: PLR2004
            return int.from_bytes(data, "big", signed=True)
        case _:
            return data.decode() if kind % 2 else data


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where the next one begins."""
    value = 0
    for count in range(9):
        if at >= len(data):
            raise _NoCellError
        byte, at = data[at], at + 1
        if count == 8:  # noqa: PLR2004
            return value << 8 | byte, at
        value = value << 7 | byte & 0x7F
        if byte < 0x80:  # noqa: PLR2004
            break
    return value, at


def _logged(log: bytes, size: int) -> dict[int, bytes]:
    """The newest pages of a log up to its last commit, as far as its checksums hold."""
    if len(log) < _HEADER or log[:3] != b"\x37\x7f\x06" or log[3] not in (0x82, 0x83):
        return {}
    order = ">" if log[3] & 1 else "<"
    salts, sums = log[16:24], _sums(order, log[:24], (0, 0))
    if sums != struct.unpack(">II", log[24:32]):
        return {}
    committed: dict[int, bytes] = {}
    waiting: dict[int, bytes] = {}
    for at in range(_HEADER, len(log) - _FRAME - size + 1, _FRAME + size):
        number, commit = struct.unpack(">II", log[at : at + 8])
        page = log[at + _FRAME : at + _FRAME + size]
        sums = _sums(order, page, _sums(order, log[at : at + 8], sums))
        same = log[at + 8 : at + 16] == salts
        if not same or sums != struct.unpack(">II", log[at + 16 : at + 24]):
            break
        waiting[number] = page
        if commit:
            committed |= waiting
            waiting = {}
    return committed


def _sums(order: str, data: bytes, before: tuple[int, int]) -> tuple[int, int]:
    """The log's running checksum over pairs of 32-bit words."""
    one, two = before
    for first, second in struct.iter_unpack(f"{order}II", data):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
