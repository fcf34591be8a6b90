"""Records as a Parquet file, for data frames and query engines; needs pyarrow.

One row a record, in the order of the JSON lines. The column ``record`` has the line itself, and so
nothing is lost; the others repeat what one filters and plots by, null where a kind has no such
field. The file's metadata have a checksum of the records: pages have none, and one bit of a
compressed page may be a digit of a latency.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from autoturbo.database.records import RECORD_SCHEMA, Counts
from autoturbo.errors import DatabaseError, Location, UsageError
from autoturbo.files import MEMORY, NO_OTHERS, Kind, Outputs, is_bomb

COLUMNS: Final[dict[str, str]] = {
    "kind": "string", "schema": "int64",
    "run": "string", "number": "int64",
    "model": "string", "target": "string", "batch": "int64",
    "graph_hash": "string", "target_hash": "string", "dtype": "string",
    "scheduler_version": "string", "state": "string", "created": "string",
    "latency_s": "float64", "signature": "string",
    "record": "string",
}  # fmt: skip
"""Names and types, as pyarrow names them; times in seconds."""

_CHECKSUM: Final = "autoturbo.records_sha256"
"""Name of the metadata: SHA-256 of all records, each followed by a line feed."""

_ROWS = 20_000  # of a row group: some tens of MB of text


def write_parquet(
    lines: Iterable[tuple[str, str]], path: Path, outputs: Outputs = NO_OTHERS
) -> Counts:
    """Write tables and texts of records.

    Raises:
        DatabaseError: the file cannot be written.
        UsageError: pyarrow is missing.
    """
    arrow, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    schema = arrow.schema(
        [(name, getattr(arrow, kind)()) for name, kind in COLUMNS.items()],
        metadata={"autoturbo.record_schema": str(RECORD_SCHEMA)},
    )
    counts: Counter[str] = Counter()
    checksum = hashlib.sha256()
    with outputs.open(path, Kind.PARQUET, DatabaseError) as file:
        left = iter(lines)
        with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            while part := list(islice(left, _ROWS)):
                counts.update(name for name, _ in part)
                checksum.update("".join(f"{text}\n" for _, text in part).encode())
                rows = [_row(text) for _, text in part]
                columns = {name: [row.get(name) for row in rows] for name in COLUMNS}
                writer.write_table(arrow.table(columns, schema=schema))
            writer.add_key_value_metadata({_CHECKSUM: checksum.hexdigest()})
    return Counts(**counts)


def parquet_lines(file: BinaryIO, path: Path) -> Iterator[tuple[Location, bytes]]:
    """The texts of a file's records; a location's line is the row, from 1.

    Raises:
        DatabaseError: not a file that :func:`write_parquet` has written, or a damaged one.
        UsageError: pyarrow is missing.
    """
    arrow, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    number = 0
    try:
        if "record" not in parquet.read_schema(file).names:
            hint = "expected a file of 'autoturbo db export FILE.parquet'"
            raise DatabaseError("a Parquet file without records", Location(path), hint)
        source = parquet.ParquetFile(file, read_dictionary=["record"])
        stored, unpacked = file.seek(0, os.SEEK_END), 0
        written = (source.metadata.metadata or {}).get(_CHECKSUM.encode())  # not of 0.1 and before
        checksum = hashlib.sha256()
        for part in source.iter_batches(batch_size=_ROWS, columns=["record"]):
            for text in part.column(0):  # one at a time: a dictionary may say one text often
                number, record = number + 1, str(text.as_py()).encode()
                unpacked += len(record)
                checksum.update(record + b"\n")
                if is_bomb(unpacked, stored):
                    message = f"{stored} bytes unpack to more than {unpacked // 2**20} MiB"
                    raise DatabaseError(message, Location(path, number), MEMORY.hint)
                yield Location(path, number), record
        if written is not None and written.decode(errors="replace") != checksum.hexdigest():
            message = "the Parquet file is damaged: its records are not those that were written"
            raise DatabaseError(message, Location(path), "export it again")
    except (arrow.ArrowException, OSError) as error:
        message = f"the Parquet file is damaged: {str(error).splitlines()[0]}"
        raise DatabaseError(message, Location(path), "export it again") from None


def _row(text: str) -> dict[str, Any]:
    """The columns of a record."""
    values: Mapping[str, Any] = json.loads(text)
    measured = values.get("measurement") or {}
    key = values.get("key") or {}
    own = {name: values[name] for name in COLUMNS if name in values}
    own |= {name: key[name] for name in COLUMNS if name in key}
    names = {"id": "run", "trial": "number", "seconds": "latency_s"}
    own |= {column: values[name] for name, column in names.items() if name in values}
    own |= {"latency_s": measured["latency"]} if measured else {}
    return {**own, "record": text}


def _arrow(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        hint = "pip install 'autoturbo[parquet]'"
        raise UsageError("Parquet files need pyarrow", hint=hint) from None
