"""Writes all records of a database to a file: JSON lines, or a database to be read only."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from autoturbo.database import opening, tables
from autoturbo.database.formats import pack, read
from autoturbo.database.records import BestSchedule, Counts, Record
from autoturbo.database.rows import TABLES, sorted_rows
from autoturbo.errors import DatabaseError, Location, UsageError
from autoturbo.files import Kind, Outputs

_LINES, _DATABASES = ("", ".jsonl"), (".db", ".sqlite")
"""Ends of the names of both forms; a pipe has none."""


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
        UsageError: The name has another ending than those of exports.
    """
    kinds = [BestSchedule] if best_only else list(TABLES)
    location = Location(outputs.database)
    if path.suffix in _DATABASES:
        with (
            outputs.open(path, Kind.DATABASE, DatabaseError) as file,
            opening.new_file(file) as copy,
        ):
            return copy_rows(connection, copy, kinds, location)
    counts: Counter[str] = Counter()
    outputs.check(path, Kind.RECORDS, DatabaseError)
    if path.suffix not in _LINES:
        hint = "a name ends in .jsonl (JSON lines), .db or .sqlite (a database)"
        raise UsageError(f"no export ends in {path.suffix!r}", Location(path), hint)
    with outputs.open(path, Kind.RECORDS, DatabaseError) as file:
        for kind in kinds:
            for row in sorted_rows(connection, kind, location):
                counts[TABLES[kind].name] += 1
                file.write(read(row[-1], location, str).encode("ascii") + b"\n")
    return Counts(**counts)


def copy_rows(
    connection: sqlite3.Connection,
    copy: sqlite3.Connection,
    kinds: Iterable[type[Record]],
    at: Location,
) -> Counts:
    """Copy the sorted records of some kinds into an empty database; return how many."""
    counts: Counter[str] = Counter()
    with opening.transaction(copy):
        tables.make_tables(copy)
        for kind in kinds:
            rows = (
                (*row, pack(kept) if isinstance(kept, str) else kept)
                for *row, kept in sorted_rows(connection, kind, at)
            )
            counts[TABLES[kind].name] += copy.executemany(TABLES[kind].put, rows).rowcount
    return Counts(**counts)
