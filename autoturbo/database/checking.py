"""Whether a database is sound: SQLite's structures, every record, and what is kept beside it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.database import tables
from autoturbo.database.failures import explained
from autoturbo.database.formats import parse_line
from autoturbo.database.merging import TABLES, row_of
from autoturbo.database.packing import unpack
from autoturbo.database.records import BestSchedule, RunInfo, TrialRecord
from autoturbo.errors import AutoTurboError, DatabaseError, Location

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST = 20
"""Findings that are told one by one."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found.

    Attributes:
        records: records that were read.
        findings: what is wrong, one line each, the first ones; empty where all is sound.
        more: findings that are not told.
    """

    records: int
    findings: tuple[str, ...]
    more: int = 0

    @property
    def sound(self) -> bool:
        """Nothing is wrong."""
        return not self.findings


def check(path: str | Path) -> Checked:
    """Check a database file; nothing of it is changed.

    Raises:
        DatabaseError: there is no such file, or it is not one that this version can read.
    """
    path = Path(path)
    try:
        connection = tables.connect(path, create=False, read_only=True, timeout_s=30.0)
    except DatabaseError as error:
        code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
        if code not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise
        return Checked(0, (error.message,))
    try:
        connection.execute("BEGIN")
        found = list(_structure(connection))
        count, wrong = _records(connection)
        found += wrong
    except sqlite3.Error as error:
        return Checked(0, (str(getattr(explained(error, path), "message", error)),))
    finally:
        connection.close()
    return Checked(count, tuple(found[:_MOST]), max(len(found) - _MOST, 0))


def _structure(connection: sqlite3.Connection) -> Iterator[str]:
    for (text,) in connection.execute("PRAGMA integrity_check(100)"):
        if text != "ok":
            yield " ".join(str(text).split())
    loose = connection.execute(
        "SELECT DISTINCT run FROM trials WHERE run NOT IN (SELECT id FROM runs)"
    )
    for (run,) in loose:
        yield f"trials of run {run!r}, which is not there"


def _records(connection: sqlite3.Connection) -> tuple[int, list[str]]:
    """How many records can be read, and what is wrong with the others."""
    count, wrong = 0, list[str]()
    for kind in (RunInfo, TrialRecord, BestSchedule):
        table, columns, key = TABLES[kind]
        there = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        known = [name for name in columns if name in there and name not in ("record", "decisions")]
        at = [columns.index(name) for name in known]
        query = f"SELECT {', '.join(known)}, record FROM {table}"  # noqa: S608 (our own names)
        for row in connection.execute(query):
            name = f"{table} {' '.join(map(str, row[:key]))}"
            try:
                record = parse_line(unpack(row[-1]).encode(), Location())
            except (AutoTurboError, ValueError) as error:
                wrong.append(f"{name}: {error}")
                continue
            count += 1
            if type(record) is not kind or tuple(row_of(record)[i] for i in at) != row[:-1]:
                wrong.append(f"{name}: what is looked up by is not what the record says")
    return count, wrong
