"""Export and import as JSON lines: one record a line, described by ``record_schema()``."""

from __future__ import annotations

import io
from collections import Counter
from typing import TYPE_CHECKING, BinaryIO

from autoturbo.atomic import atomic_writer
from autoturbo.database.formats import encode, parse_line
from autoturbo.database.merging import merge
from autoturbo.database.records import (
    BestSchedule,
    Counts,
    KernelRecord,
    Record,
    RunInfo,
    TrialRecord,
)
from autoturbo.errors import DatabaseError, Location

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

_NAMES: dict[type[Record], str] = {
    RunInfo: "runs",
    TrialRecord: "trials",
    BestSchedule: "best",
    KernelRecord: "kernels",
}

# Sorted, so that equal databases have equal exports.
_QUERIES = {
    "runs": "SELECT record FROM runs ORDER BY id",
    "trials": "SELECT record FROM trials ORDER BY run, number",
    "best": "SELECT record FROM best ORDER BY graph_hash, target_hash, dtype, scheduler_version",
}
_KERNELS = """SELECT target_hash, scheduler_version, signature, seconds FROM kernels
    ORDER BY target_hash, scheduler_version, signature"""


def write_lines(connection: sqlite3.Connection, path: Path, database: Path) -> Counts:
    """Write every record, runs before their trials; the file appears whole or not at all.

    Raises:
        DatabaseError: the file cannot be written.
    """
    if path.exists() and path.samefile(database):
        message = "the export would replace the database itself"
        raise DatabaseError(message, Location(path), "give the export another name")
    counts: Counter[str] = Counter()
    with atomic_writer(path, DatabaseError) as file:
        for name, line in _lines(connection):
            file.write(line.encode("ascii") + b"\n")
            counts[name] += 1
    return Counts(**counts)


def read_lines(connection: sqlite3.Connection, file: BinaryIO, path: Path) -> Counts:
    """Merge every line's record, within the caller's transaction; gives how many changed something.

    Raises:
        DatabaseError: a record contradicts the database.
    """
    changed: Counter[str] = Counter()
    for at, record in _records(file, path):
        changed[_NAMES[type(record)]] += merge(connection, record, at)
    return Counts(**changed)


def check_lines(connection: sqlite3.Connection, file: BinaryIO, path: Path) -> Counts:
    """Check every line, and that every trial has its run, before anything is written.

    Raises:
        DatabaseError: which line is wrong, and what about it.
    """
    counts: Counter[str] = Counter()
    runs = {run for (run,) in connection.execute("SELECT id FROM runs")}
    wanted: dict[str, Location] = {}
    for at, record in _records(file, path):
        counts[_NAMES[type(record)]] += 1
        if isinstance(record, RunInfo):
            runs.add(record.id)
        elif isinstance(record, TrialRecord):
            wanted.setdefault(record.run, at)
    for run, at in wanted.items():
        if run not in runs:
            message = f"a trial of run {run!r}, which is neither in the file nor in the database"
            raise DatabaseError(message, at, "import the file that has the run first")
    return Counts(**counts)


def open_lines(path: Path) -> BinaryIO:
    """Open an export for reading, twice over: a pipe is read into memory.

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


def _lines(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    for name, query in _QUERIES.items():
        for (text,) in connection.execute(query):
            yield name, text
    for row in connection.execute(_KERNELS):
        yield "kernels", encode(KernelRecord(*row))


def _records(file: BinaryIO, path: Path) -> Iterator[tuple[Location, Record]]:
    file.seek(0)
    for number, line in enumerate(file, start=1):
        if line.strip():
            at = Location(path, number)
            yield at, parse_line(line, at)
