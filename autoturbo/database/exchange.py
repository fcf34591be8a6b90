"""Exports all records of a database to a file, and imports files.

Written are JSON lines, Parquet, or a database to be read only; taken in are all of these, within
the caller's transaction, and a run's manifest.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import logging
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from autoturbo.database import tables
from autoturbo.database.checking import (
    contradiction,
    readable_texts,
)
from autoturbo.database.formats import (
    TABLES,
    canonical,
    encode,
    merge,
    pack,
    parse_line,
    read,
)
from autoturbo.database.merging import Source, sorted_rows
from autoturbo.database.records import (
    RECORD_SCHEMA,
    BestSchedule,
    Counts,
    PairKey,
    Record,
    RunInfo,
    TrialRecord,
)
from autoturbo.database.run_folder import MANIFEST
from autoturbo.errors import DatabaseError, Location, UsageError
from autoturbo.extras import how_to_install
from autoturbo.files import MEMORY, Kind, Outputs, is_bomb, open_input
from autoturbo.simulator.measurement import VERSION

LOG = logging.getLogger("autoturbo")

DATABASE_SUFFIXES = (".db", ".sqlite")
PARQUET_SUFFIX = ".parquet"
_PARQUET = b"PAR1"

COLUMNS: Final[dict[str, str]] = {
    "kind": "string", "schema": "int64",
    "run": "string", "number": "int64",
    "model": "string", "target": "string", "batch": "int64",
    "graph_hash": "string", "target_hash": "string", "dtype": "string",
    "scheduler_version": "string", "state": "string", "created": "string",
    "latency_s": "float64",
    "record": "string",
}  # fmt: skip
"""Names and types, as pyarrow names them; times in seconds."""

_SCHEMA: Final = "autoturbo.record_schema"
_CHECKSUM: Final = "autoturbo.records_sha256"
"""Name of the metadata: SHA-256 of all records, each followed by a line feed."""

_ROWS = 20_000  # of a row group: some tens of MB of text


# Out


def write(connection: sqlite3.Connection, path: Path, outputs: Outputs, best_only: bool) -> Counts:
    """Write every record, runs before their trials; the file appears whole or not at all.

    The form follows from the file's name: see :meth:`autoturbo.database.Database.export`.

    Args:
        connection: To the database.
        path: The file to write.
        outputs: What it may not replace.
        best_only: Leave out runs and trials.

    Returns:
        The number of records written, of each kind.

    Raises:
        DatabaseError: The file cannot be written, or what is there may not be replaced.
        UsageError: PyArrow is missing, which Parquet files need.
    """
    kinds = [BestSchedule] if best_only else list(TABLES)
    location = Location(outputs.database)
    if path.suffix in DATABASE_SUFFIXES:
        with (
            outputs.open(path, Kind.DATABASE, DatabaseError) as file,
            tables.new_file(file) as copy,
        ):
            return _copy_rows(connection, copy, kinds, location)
    counts: Counter[str] = Counter()

    def texts() -> Iterator[str]:
        for kind in kinds:
            for row in sorted_rows(connection, kind, location):
                counts[TABLES[kind].name] += 1
                yield read(row[-1], location, str)

    is_parquet = path.suffix == PARQUET_SUFFIX
    output = Kind.PARQUET if is_parquet else Kind.RECORDS
    with outputs.open(path, output, DatabaseError) as file:
        if is_parquet:
            _write_parquet(texts(), file)
        else:
            file.writelines(text.encode("ascii") + b"\n" for text in texts())
    return Counts(**counts)


def _copy_rows(
    connection: sqlite3.Connection,
    copy: sqlite3.Connection,
    kinds: Iterable[type[Record]],
    at: Location,
) -> Counts:
    counts: Counter[str] = Counter()
    with tables.transaction(copy):
        tables.make_tables(copy)
        for kind in kinds:
            rows = (
                (*row, pack(kept) if isinstance(kept, str) else kept)
                for *row, kept in sorted_rows(connection, kind, at)
            )
            counts[TABLES[kind].name] += copy.executemany(TABLES[kind].put, rows).rowcount
    return Counts(**counts)


def _write_parquet(texts: Iterator[str], file: BinaryIO) -> None:
    """Write one row a record: the line itself as ``record``, and columns to filter by.

    The file's metadata have a checksum of the records: pages have none, and one bit of a
    compressed page may be a digit of a latency.

    Raises:
        UsageError: PyArrow is missing.
    """
    arrow, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    schema = arrow.schema(
        [(name, getattr(arrow, kind)()) for name, kind in COLUMNS.items()],
        metadata={_SCHEMA: str(RECORD_SCHEMA)},
    )
    checksum = hashlib.sha256()
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while part := list(islice(texts, _ROWS)):
            checksum.update("".join(f"{text}\n" for text in part).encode())
            rows = [_columns(text) for text in part]
            columns = {name: [row.get(name) for row in rows] for name in COLUMNS}
            writer.write_table(arrow.table(columns, schema=schema))
        writer.add_key_value_metadata({_CHECKSUM: checksum.hexdigest()})


def _columns(text: str) -> dict[str, Any]:
    """Return the columns of a record."""
    try:
        values: Mapping[str, Any] = json.loads(text)
    except RecursionError:
        raise DatabaseError("a damaged record: nested too deeply", hint=tables.CHECK) from None
    measured = values.get("measurement") or {}
    key = values.get("key") or {}
    columns = {name: values[name] for name in COLUMNS if name in values}
    columns |= {name: key[name] for name in COLUMNS if name in key}
    names = {"id": "run", "trial": "number"}
    columns |= {column: values[name] for name, column in names.items() if name in values}
    columns |= {"latency_s": measured["latency"]} if measured else {}
    return {**columns, "record": text}


def _arrow(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        message = "Parquet files need pyarrow, which is not installed"
        raise UsageError(message, hint=how_to_install("parquet")) from None


# In


@contextmanager
def opened(path: Path, database: Path) -> Iterator[Source]:
    """Open an export by its first bytes: a database, a Parquet file, or JSON lines.

    A run's ``manifest.json`` is the record of the run.

    Yields:
        Its records, within the ``with`` block alone.

    Raises:
        DatabaseError: The file cannot be read.
        UsageError: PyArrow is missing, which Parquet files need.
    """
    if tables.is_database(path):
        if path.samefile(database):
            raise DatabaseError("the database itself", Location(path), "name another one")
        with _open_database(path) as other:
            yield Source(other, path)
        return
    with _open(path) as file, closing(tables.temporary()) as connection:
        start = file.read(len(_PARQUET))
        file.seek(0)
        if start == _PARQUET:
            lines = _parquet_lines(file, path)
        else:
            lines = _manifest(file, path) if path.name == MANIFEST else _lines(file, path)
        read: Counter[str] = Counter()
        first: dict[str, Location] = {}
        with tables.transaction(connection):
            tables.make_tables(connection)
            for location, record in _parsed(lines, path):
                read[TABLES[type(record)].name] += 1
                merge(connection, record, location)
                if isinstance(record, TrialRecord):
                    first.setdefault(record.run, location)
        yield Source(connection, path, Counts(**read), first)


def _parsed(
    lines: Iterable[tuple[Location, bytes]], path: Path
) -> Iterator[tuple[Location, Record]]:
    """Yield the records of an export, runs before their trials; of kernels' times, tell how many.

    Raises:
        DatabaseError: One contradicts itself or, if this version wrote it, lacks something.
    """
    ours, kernels = set[str](), 0
    for location, line in lines:
        record = parse_line(line, location)
        if record is None:
            kernels += 1
            continue
        wrong = contradiction(record)
        if isinstance(record, RunInfo) and _is_own(record.key):
            ours.add(record.id)
        elif isinstance(record, TrialRecord):
            wrong = wrong or (_altered(record, line) if record.run in ours else "")
        elif isinstance(record, BestSchedule):
            wrong = wrong or (_altered(record, line) if _is_own(record.key) else "")
        if wrong:
            raise DatabaseError(wrong, location, "the file was changed after it was exported")
        yield location, record
    if kernels:
        LOG.warning("%s: left out %d kernel times, which are not kept any more", path, kernels)


def _is_own(key: PairKey) -> bool:
    return key.scheduler_version.split("+")[0] == VERSION


def _altered(record: Record, line: bytes) -> str:
    """Return which field of a line is not as its record is written; empty where none is."""
    written = encode(record)
    if line.rstrip() == written.encode():
        return ""
    return next(_differing(json.loads(line), json.loads(written)), "")


def _differing(given: Any, written: Any, path: str = "") -> Iterator[str]:
    if isinstance(given, dict) and isinstance(written, dict):
        for name in sorted({*given, *written}):
            place = f"{path}.{name}" if path else name
            if name not in given or name not in written:
                yield f"{place}: {'missing' if name in written else 'empty'}"
            yield from _differing(given.get(name), written.get(name), place)
    elif given != written:
        yield f"{path}: not as it was written"


def _parquet_lines(file: BinaryIO, path: Path) -> Iterator[tuple[Location, bytes]]:
    """Yield the texts of a file's records; a location's line is the row, from 1.

    Raises:
        DatabaseError: Not a file that :func:`write_parquet` has written, or a damaged one.
        UsageError: PyArrow is missing.
    """
    arrow, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    number = 0
    try:
        if "record" not in parquet.read_schema(file).names:
            hint = "expected a file of 'autoturbo db export FILE.parquet'"
            raise DatabaseError("a Parquet file without records", Location(path), hint)
        source = parquet.ParquetFile(file, read_dictionary=["record"])
        stored, unpacked = file.seek(0, os.SEEK_END), 0
        metadata = source.metadata.metadata or {}
        written = metadata.get(_CHECKSUM.encode())  # not of 0.1 and before
        if written is None and metadata.keys() != {_SCHEMA.encode(), b"ARROW:schema"}:
            message = "the Parquet file is damaged: not the metadata that it was written with"
            raise DatabaseError(message, Location(path), "export it again")
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
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        message = f"the Parquet file is damaged: {str(error).splitlines()[0]}"
        raise DatabaseError(message, Location(path), "export it again") from None


def _lines(file: BinaryIO, path: Path) -> Iterator[tuple[Location, bytes]]:
    for number, line in enumerate(iter(lambda: file.readline(MEMORY.bytes + 1), b""), start=1):
        location = Location(path, number)
        if len(line) > MEMORY.bytes:
            raise DatabaseError("a line that is too long for a record", location, MEMORY.hint)
        if line.strip():
            yield location, line


def _manifest(file: BinaryIO, path: Path) -> Iterator[tuple[Location, bytes]]:
    """Yield the run of a folder's manifest, which restores a lost record."""
    try:
        values = json.load(file)
        run = {name: values[name] for name in values if name not in ("schema", "space")}
        more = {"kind": "run", "schema": RECORD_SCHEMA, "state": "interrupted"}
        text = canonical({**run, **more})
    except (ValueError, TypeError, RecursionError):
        raise DatabaseError("not a run's manifest", Location(path)) from None
    yield Location(path), text.encode()


def _open(path: Path) -> BinaryIO:
    """Open a file for reading; a pipe is read first, so that no one waits for its end later.

    Returns:
        The open file, or a pipe's content in memory: either can be read from any place.

    Raises:
        DatabaseError: The file cannot be read.
    """
    try:
        file = open_input(path)
        if file.seekable():
            return file
        with file:
            content = file.read(MEMORY.bytes + 1)
        if len(content) > MEMORY.bytes:
            hint = f"save it as a file; {MEMORY.hint}"
            raise DatabaseError("too long for a pipe", Location(path), hint)
        return io.BytesIO(content)
    except IsADirectoryError:
        raise DatabaseError("a folder, not an export", Location(path)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DatabaseError(f"cannot read: {reason}", Location(path)) from None


@contextmanager
def _open_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Open another database in one consistent state, if it is sound."""
    other = tables.connect(path, create=False, read_only=True, timeout_s=30.0)
    try:
        other.execute("BEGIN")
        (verdict,) = other.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            hint = f"'autoturbo db check --db {path} --save NEW.jsonl' writes what it still holds"
            raise DatabaseError(tables.DAMAGED, Location(path), hint)
        readable_texts(other)
        yield other
    except tables.UNREADABLE as error:
        raise tables.explained(error, path) from error
    finally:
        other.close()
