"""Exports and other databases, merged into an open database within the caller's transaction."""

from __future__ import annotations

import dataclasses
import io
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from autoturbo.database import tables
from autoturbo.database.failures import UNREADABLE, explained
from autoturbo.database.formats import canonical, parse_line
from autoturbo.database.merging import TABLES, merge
from autoturbo.database.records import (
    RECORD_SCHEMA,
    Counts,
    ImportResult,
    Record,
    RunState,
    TrialRecord,
)
from autoturbo.database.rows import contradiction, readable_texts, sound_rows
from autoturbo.database.run_folder import MANIFEST
from autoturbo.errors import DatabaseError, Location
from autoturbo.files import MEMORY, open_input

if TYPE_CHECKING:
    Merge = Callable[[sqlite3.Connection], ImportResult]

_PARQUET = b"PAR1"

_MOST_FINDINGS = 20
"""Rows that are left out and named one by one."""


@contextmanager
def opened(path: Path, database: Path) -> Iterator[Merge]:
    """What merges a file, told by its first bytes: a database, a Parquet file, or JSON lines.

    A run's ``manifest.json`` is the record of the run.

    Raises:
        DatabaseError: the file cannot be read.
        UsageError: pyarrow is missing, which Parquet files need.
    """
    if tables.is_database(path):
        _refuse_itself(path, database)
        with _open_database(path) as other:
            yield lambda connection: _merge_database(connection, other, path)
        return
    with _open(path) as file:
        start = file.read(len(_PARQUET))
        file.seek(0)
        if start == _PARQUET:
            from autoturbo.database.parquet import parquet_lines

            lines = parquet_lines(file, path)
            yield lambda connection: merge_records(connection, _parsed(lines))
        else:
            found = _manifest(file, path) if path.name == MANIFEST else _lines(file, path)
            yield lambda connection: merge_records(connection, _parsed(found))


def merge_records(
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
        name = TABLES[type(record)][0]
        read[name] += 1
        changed[name] += merge(connection, record, at)
        if isinstance(record, TrialRecord):
            first.setdefault(record.run, at)
    _refuse_orphans(connection, first)
    return ImportResult(Counts(**read), Counts(**changed))


def _refuse_orphans(connection: sqlite3.Connection, first: dict[str, Location]) -> None:
    runs = {run for (run,) in connection.execute("SELECT id FROM runs")}
    for run, at in first.items():
        if run not in runs:
            message = f"a trial of run {run!r}, which is neither in the file nor in the database"
            raise DatabaseError(message, at, "import the file that has the run first")


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
        state: RunState = "interrupted"
        run = {name: values[name] for name in values if name not in ("schema", "space")}
        text = canonical({**run, "kind": "run", "schema": RECORD_SCHEMA, "state": state})
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


def _refuse_itself(path: Path, database: Path) -> None:
    if path.samefile(database):
        raise DatabaseError("the database itself", Location(path), "name another one")


@contextmanager
def _open_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Another database, one consistent state of it, if it is sound."""
    other = tables.connect(path, create=False, read_only=True, timeout_s=30.0)
    try:
        other.execute("BEGIN")
        (found,) = other.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            hint = f"'autoturbo db check --db {path} --salvage NEW.db' saves what it still holds"
            raise DatabaseError("the database is damaged", Location(path), hint)
        readable_texts(other)
        yield other
    except UNREADABLE as error:
        raise explained(error, path) from error
    finally:
        other.close()


def _merge_database(
    connection: sqlite3.Connection, other: sqlite3.Connection, path: Path
) -> ImportResult:
    """Merge what can be believed of another database; the other rows are left out and named."""
    left_out: Counter[str] = Counter()
    findings: list[str] = []

    def leave_out(table: str, finding: str) -> None:
        left_out[table] += 1
        if len(findings) < _MOST_FINDINGS:
            findings.append(finding)

    at = Location(path)
    believed = ((at, record) for record in _believed(connection, other, leave_out))
    result = merge_records(connection, believed)
    return dataclasses.replace(result, left_out=Counts(**left_out), findings=tuple(findings))


def _believed(
    connection: sqlite3.Connection,
    other: sqlite3.Connection,
    leave_out: Callable[[str, str], None],
) -> Iterator[Record]:
    """The records of another database that are sound; trials whose run is nowhere are not."""
    for kind, (table, *_) in TABLES.items():
        for name, record, finding in sound_rows(other, kind):
            if record is None:
                leave_out(table, f"{name}: {finding}")
            elif isinstance(record, TrialRecord) and not _has_run(connection, record.run):
                leave_out(table, f"{name}: its run is neither in the file nor in the database")
            else:
                yield record


def _has_run(connection: sqlite3.Connection, run: str) -> bool:
    found = connection.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchone()
    return found is not None
