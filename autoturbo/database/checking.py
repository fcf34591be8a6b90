"""Whether a database is sound: SQLite's structures, every record, and what is kept beside it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autoturbo.database import tables
from autoturbo.database.failures import UNREADABLE, explained
from autoturbo.database.merging import TABLES
from autoturbo.database.rows import is_unchecked, readable_texts, sound_rows
from autoturbo.errors import DatabaseError

_MOST = 20
"""Findings that are told one by one."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found.

    Attributes:
        records: records that were read.
        findings: what is wrong, one line each, the first ones; empty where all is sound.
        more: findings that are not told.
        unchecked: records of other evaluators, whose schedules only these can read.
    """

    records: int
    findings: tuple[str, ...]
    more: int = 0
    unchecked: int = 0

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
        unread = isinstance(error.__cause__, UnicodeDecodeError)
        if code not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT) and not unread:
            raise
        return Checked(0, (error.message,))
    try:
        readable_texts(connection)
        connection.execute("BEGIN")
        found = list(_structure(connection))
        count, unchecked, wrong = _records(connection)
        found += wrong
    except UNREADABLE as error:
        return Checked(0, (str(getattr(explained(error, path), "message", error)),))
    finally:
        connection.close()
    return Checked(count, tuple(found[:_MOST]), max(len(found) - _MOST, 0), unchecked)


def _structure(connection: sqlite3.Connection) -> Iterator[str]:
    for (text,) in connection.execute("PRAGMA integrity_check(100)"):
        if text != "ok":
            yield " ".join(str(text).split())
    loose = connection.execute(
        "SELECT DISTINCT run FROM trials WHERE run NOT IN (SELECT id FROM runs)"
    )
    for (run,) in loose:
        yield f"trials of run {run!r}, which is not there"


def _records(connection: sqlite3.Connection) -> tuple[int, int, list[str]]:
    """How many records can be read, of how many not all, and what is wrong with the others."""
    count, unchecked, wrong = 0, 0, list[str]()
    for kind in TABLES:
        for name, record, finding in sound_rows(connection, kind):
            if record is None:
                wrong.append(f"{name}: {finding}")
                continue
            count += 1
            unchecked += is_unchecked(record)
    return count, unchecked, wrong
