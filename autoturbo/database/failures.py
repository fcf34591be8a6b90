"""What SQLite's errors mean for the user."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

from autoturbo.errors import DatabaseError, Location

_RESTORE = "'autoturbo db check --repair' saves what can be read, or restore it from a copy"
NO_DATABASE = "give another file with --db, or 'autoturbo db check --repair' if it was one"
_FREE = "free some space and resume: what was recorded is safe"
WRITABLE = "the file and its folder must be writable, or give another --db"

# By SQLite's primary result code. The words are ours: SQLite's own differ from version to version.
_MEANINGS = {
    sqlite3.SQLITE_BUSY: ("locked by another process for too long", "try again when it is done"),
    sqlite3.SQLITE_LOCKED: ("locked by another process for too long", "try again when it is done"),
    sqlite3.SQLITE_READONLY: ("the database cannot be written", WRITABLE),
    sqlite3.SQLITE_PERM: ("the database may not be opened", WRITABLE),
    sqlite3.SQLITE_CANTOPEN: ("the database cannot be opened", WRITABLE),
    sqlite3.SQLITE_FULL: ("the disk is full", _FREE),
    sqlite3.SQLITE_CORRUPT: ("the database is damaged", _RESTORE),
    sqlite3.SQLITE_NOTADB: ("not an SQLite database", NO_DATABASE),
    sqlite3.SQLITE_IOERR: ("the disk reports an error", "what was recorded before is safe"),
}

_LOG_INDEX = 2 * 32768
"""Bytes that opening a database takes at most besides the file."""


UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""What reading a database raises; the second where a message of SQLite's quotes damaged text."""


def explained(error: sqlite3.Error | UnicodeDecodeError, path: Path) -> Exception:
    """The error to raise in place of SQLite's; a mistake of the caller's stays as it is."""
    if isinstance(error, UnicodeDecodeError):
        return DatabaseError("the database is damaged", Location(path), _RESTORE)
    if isinstance(error, sqlite3.ProgrammingError | sqlite3.InterfaceError):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the upper bits say more than needed
    if code == sqlite3.SQLITE_IOERR and _is_full(path):
        code = sqlite3.SQLITE_FULL
    message, hint = _MEANINGS.get(code, (f"the database refuses: {error}", None))
    return DatabaseError(message, Location(path), hint)


def _is_full(path: Path) -> bool:
    """Whether there is no room for the index of the log, whose lack SQLite calls an I/O error."""
    with suppress(OSError):
        return shutil.disk_usage(path.parent).free < _LOG_INDEX
    return False
