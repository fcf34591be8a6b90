"""All records of a database as a file, and files taken in.

Written are JSON lines, Parquet, or a database to be read only; taken in are all of these, within
the caller's transaction, and a run's manifest.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from autoturbo.database import tables
from autoturbo.database.checking import contradiction, readable_texts, sound_rows
from autoturbo.database.formats import canonical, decode, encode, pack, parse_line, unpack
from autoturbo.database.merging import TABLES, merge
from autoturbo.database.records import (
    RECORD_SCHEMA,
    BestSchedule,
    Counts,
    ImportResult,
    KernelRecord,
    Record,
    RunInfo,
    TrialRecord,
)
from autoturbo.database.run_folder import MANIFEST
from autoturbo.errors import DatabaseError, Location
from autoturbo.limits import MEMORY, open_input
from autoturbo.outputs import Kind, Outputs

if TYPE_CHECKING:
    Merge = Callable[[sqlite3.Connection], ImportResult]

DATABASE_SUFFIXES = (".db", ".sqlite")
PARQUET_SUFFIX = ".parquet"
_PARQUET = b"PAR1"

_MOST_FINDINGS = 20
"""Rows that are left out and named one by one."""


# Out


def write(
    connection: sqlite3.Connection, path: Path, outputs: Outputs, *, best_only: bool
) -> Counts:
    """Write every record, runs before their trials; the file appears whole or not at all.

    The form follows from the file's name: see :meth:`autoturbo.database.Database.export`.

    Raises:
        DatabaseError: the file cannot be written, or what is there may not be replaced.
        UsageError: pyarrow is missing, which Parquet files need.
    """
    if path.suffix in DATABASE_SUFFIXES:
        outputs.check(path, Kind.DATABASE, DatabaseError)
        with tables.fresh(Path(os.path.realpath(path))) as copy:
            return _copy_rows(connection, copy, best_only=best_only)
    lines = record_lines(connection, best_only=best_only)
    if path.suffix == PARQUET_SUFFIX:
        from autoturbo.database.parquet import write_parquet

        return write_parquet(lines, path, outputs)
    counts: Counter[str] = Counter()
    with outputs.open(path, Kind.RECORDS, DatabaseError) as file:
        for name, line in lines:
            file.write(line.encode("ascii") + b"\n")
            counts[name] += 1
    return Counts(**counts)


def record_lines(connection: sqlite3.Connection, *, best_only: bool) -> Iterator[tuple[str, str]]:
    """Give table and canonical text of every record, sorted: equal databases, equal exports."""
    for kind, table in TABLES.items():
        if best_only and kind is not BestSchedule:
            continue
        columns = ", ".join(table.columns) if kind is KernelRecord else "record"
        query = f"SELECT {columns} FROM {table.name} ORDER BY {', '.join(table.key)}"  # noqa: S608
        for row in connection.execute(query):
            yield table.name, encode(KernelRecord(*row)) if row[1:] else _text(kind, row[0])


def _text(kind: type[Record], kept: str | bytes) -> str:
    """Of a run without a password that an earlier release may have kept."""
    return encode(decode(kept, Location())) if kind is RunInfo else unpack(kept)


def _copy_rows(
    connection: sqlite3.Connection, copy: sqlite3.Connection, *, best_only: bool
) -> Counts:
    counts: Counter[str] = Counter()
    copy.execute("BEGIN")
    tables.make_tables(copy)
    for kind, table in TABLES.items():
        if best_only and kind is not BestSchedule:
            continue
        there = table.there(connection)
        chosen = ", ".join(name if name in there else "NULL" for name in table.columns)
        query = f"SELECT {chosen} FROM {table.name} ORDER BY {', '.join(table.key)}"  # noqa: S608
        rows: Iterable[tuple[Any, ...]] = connection.execute(query)
        if kind is not KernelRecord:
            rows = ((*row[:-1], pack(_text(kind, row[-1]))) for row in rows)
        counts[table.name] += copy.executemany(table.put, rows).rowcount
    copy.execute("COMMIT")
    return Counts(**counts)


# In


@contextmanager
def opened(path: Path, database: Path) -> Iterator[Merge]:
    """Give what merges a file, told by its first bytes: a database, a Parquet file, or JSON lines.

    A run's ``manifest.json`` is the record of the run.

    Raises:
        DatabaseError: the file cannot be read.
        UsageError: pyarrow is missing, which Parquet files need.
    """
    if tables.is_database(path):
        if path.samefile(database):
            raise DatabaseError("the database itself", Location(path), "name another one")
        with _open_database(path) as other:
            yield lambda connection: _merge_database(connection, other, path)
        return
    with _open(path) as file:
        start = file.read(len(_PARQUET))
        file.seek(0)
        if start == _PARQUET:
            from autoturbo.database.parquet import parquet_lines

            lines = parquet_lines(file, path)
        else:
            lines = _manifest(file, path) if path.name == MANIFEST else _lines(file, path)
        yield lambda connection: _merge_records(connection, _parsed(lines))


def _merge_records(
    connection: sqlite3.Connection, records: Iterable[tuple[Location, Record]]
) -> ImportResult:
    """Merge records one by one; every trial must have its run in the end.

    Raises:
        DatabaseError: a record contradicts the database, or a trial has no run.
    """
    read: Counter[str] = Counter()
    changed: Counter[str] = Counter()
    first: dict[str, Location] = {}
    for at, record in records:
        name = TABLES[type(record)].name
        read[name] += 1
        changed[name] += merge(connection, record, at)
        if isinstance(record, TrialRecord):
            first.setdefault(record.run, at)
    for run, at in first.items():
        if not _has_run(connection, run):
            message = f"a trial of run {run!r}, which is neither in the file nor in the database"
            raise DatabaseError(message, at, "import the file that has the run first")
    return ImportResult(Counts(**read), Counts(**changed))


def _parsed(lines: Iterable[tuple[Location, bytes]]) -> Iterator[tuple[Location, Record]]:
    """The records of an export; raises DatabaseError for one that contradicts itself."""
    for at, line in lines:
        record = parse_line(line, at)
        if wrong := contradiction(record):
            raise DatabaseError(wrong, at, "the file was changed after it was exported")
        yield at, record


def _lines(file: BinaryIO, path: Path) -> Iterator[tuple[Location, bytes]]:
    for number, line in enumerate(iter(lambda: file.readline(MEMORY.bytes + 1), b""), start=1):
        at = Location(path, number)
        if len(line) > MEMORY.bytes:
            raise DatabaseError("a line that is too long for a record", at, MEMORY.hint)
        if line.strip():
            yield at, line


def _manifest(file: BinaryIO, path: Path) -> Iterator[tuple[Location, bytes]]:
    """The run that its folder's manifest tells of: one whose record is lost comes back."""
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

    Raises:
        DatabaseError: the file cannot be read.
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
    """Another database, one consistent state of it, if it is sound."""
    other = tables.connect(path, create=False, read_only=True, timeout_s=30.0)
    try:
        other.execute("BEGIN")
        (found,) = other.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            hint = f"'autoturbo db check --db {path} --save NEW.jsonl' writes what it still holds"
            raise DatabaseError(tables.DAMAGED, Location(path), hint)
        readable_texts(other)
        yield other
    except tables.UNREADABLE as error:
        raise tables.explained(error, path) from error
    finally:
        other.close()


def _merge_database(
    connection: sqlite3.Connection, other: sqlite3.Connection, path: Path
) -> ImportResult:
    """Merge what can be believed of another database; the other rows are left out and named."""
    left_out: Counter[str] = Counter()
    findings: list[str] = []

    def believed() -> Iterator[tuple[Location, Record]]:
        for kind, table in TABLES.items():
            for name, record, found in sound_rows(other, kind):
                wrong = found
                if isinstance(record, TrialRecord) and not _has_run(connection, record.run):
                    wrong = "its run is neither in the file nor in the database"
                if record is not None and not wrong:
                    yield Location(path), record
                    continue
                left_out[table.name] += 1
                if len(findings) < _MOST_FINDINGS:
                    findings.append(f"{name}: {wrong}")

    result = _merge_records(connection, believed())
    return dataclasses.replace(result, left_out=Counts(**left_out), findings=tuple(findings))


def _has_run(connection: sqlite3.Connection, run: str) -> bool:
    found = connection.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchone()
    return found is not None
