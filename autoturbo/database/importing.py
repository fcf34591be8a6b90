"""Exports and other databases, merged into an open database within the caller's transaction."""

from __future__ import annotations

import io
import json
import sqlite3
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from autoturbo.database import tables
from autoturbo.database.failures import explained
from autoturbo.database.formats import canonical, decode, parse_line
from autoturbo.database.merging import TABLES, merge, merge_trial_row
from autoturbo.database.records import (
    RECORD_SCHEMA,
    BestSchedule,
    Counts,
    ImportResult,
    KernelRecord,
    Record,
    RunInfo,
    RunState,
    TrialRecord,
)
from autoturbo.database.run_folder import MANIFEST
from autoturbo.errors import DatabaseError, Location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    Merge = Callable[[sqlite3.Connection], ImportResult]

_PARQUET = b"PAR1"


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
    return ((at, parse_line(line, at)) for at, line in lines)


def _lines(file: BinaryIO, path: Path) -> Iterator[tuple[Location, bytes]]:
    for number, line in enumerate(file, start=1):
        if line.strip():
            yield Location(path, number), line


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
        file = path.open("rb")
        if file.seekable():
            return file
        with file:
            return io.BytesIO(file.read())
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
        yield other
    except sqlite3.Error as error:
        raise explained(error, path) from error
    finally:
        other.close()


def _merge_database(
    connection: sqlite3.Connection, other: sqlite3.Connection, path: Path
) -> ImportResult:
    """The rows of trials, which are many, as they are; all else record by record."""
    at = Location(path)
    few = merge_records(connection, ((at, record) for record in _few(other, at)))
    read = changed = 0
    for row in other.execute("SELECT run, number, latency, record FROM trials"):
        read += 1
        changed += merge_trial_row(connection, row, at)
    names = ("runs", "best", "kernels")
    found, new = ({name: getattr(part, name) for name in names} for part in (few.read, few.changed))
    return ImportResult(Counts(trials=read, **found), Counts(trials=changed, **new))


def _few(other: sqlite3.Connection, at: Location) -> Iterator[Record]:
    for kind in (RunInfo, BestSchedule):
        for (kept,) in other.execute(f"SELECT record FROM {TABLES[kind][0]}"):  # noqa: S608
            yield decode(kept, at)
    columns = ", ".join(TABLES[KernelRecord][1])
    for row in other.execute(f"SELECT {columns} FROM kernels"):  # noqa: S608 (our own names)
        yield KernelRecord(*row)
