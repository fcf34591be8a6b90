"""Opens the file of a database for several processes, and says in our words why it cannot.

An older version is migrated, what is damaged or another program's is refused.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO

from autoturbo.database import tables
from autoturbo.errors import DatabaseError, Location
from autoturbo.files import atomic_writer
from autoturbo.signals import deferred

UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""What reading a database raises; the second where a message of SQLite's quotes damaged text."""

WRITABLE = "the file and its folder must be writable, or give another --db"

DAMAGED = "the database is damaged"
CHECK = "'autoturbo db check' says what is lost and how to go on"
_LOCKED = ("locked by another process for too long", "try again when it is done")
_NO_DATABASE = "give another file with --db, or restore it from a copy if it was one"

# By SQLite's primary result code. The words are ours: SQLite's own differ from version to version.
_MEANINGS = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_READONLY: ("the database cannot be written", WRITABLE),
    sqlite3.SQLITE_PERM: ("the database may not be opened", WRITABLE),
    sqlite3.SQLITE_CANTOPEN: ("the database cannot be opened", WRITABLE),
    sqlite3.SQLITE_FULL: (
        "the disk is full",
        "free some space and resume: what was recorded is safe",
    ),
    sqlite3.SQLITE_CORRUPT: (DAMAGED, CHECK),
    sqlite3.SQLITE_NOTADB: ("not an SQLite database", _NO_DATABASE),
    sqlite3.SQLITE_IOERR: ("the disk reports an error", "what was recorded before is safe"),
}

_LOG_INDEX = 2 * 32768
"""Bytes that opening a database takes at most besides the file."""

_CANNOT_SHARE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR)
"""What SQLite says where it cannot have the files that readers share with writers."""

_MAGIC = b"SQLite format 3\0"
_LEAST_BYTES = 4096
"""A database of ours has several pages of this size."""

_EMPTY = "a process that is killed as it makes one leaves such; 'autoturbo tune' fills it"
"""What an empty file and a database without tables are."""

_MOST_IDS = 200
"""Runs that are completed while they are typed: more than anybody looks through."""


def code_of(error: BaseException | None) -> int:
    """Return SQLite's primary result code; 0 for other errors."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the upper bits say more than needed


def is_damage(error: BaseException | None) -> bool:
    """Return whether an error means that a file is damaged or no database."""
    damage = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_TOOBIG)
    return isinstance(error, UnicodeDecodeError) or code_of(error) in damage


def explained(error: sqlite3.Error | UnicodeDecodeError, path: Path) -> Exception:
    """Return the error to raise in place of SQLite's; a caller's mistake stays as it is."""
    if isinstance(error, UnicodeDecodeError):
        return DatabaseError(DAMAGED, Location(path), CHECK)
    if isinstance(error, sqlite3.ProgrammingError | sqlite3.InterfaceError):
        return error
    code = code_of(error)
    if code == sqlite3.SQLITE_IOERR and _is_full(path):
        code = sqlite3.SQLITE_FULL
    message, hint = _MEANINGS.get(code, (f"the database refuses: {error}", None))
    return DatabaseError(message, Location(path), hint)


def _is_full(path: Path) -> bool:
    """Return whether the disk is too full for the log's index, which SQLite calls an I/O error."""
    with suppress(OSError):
        return shutil.disk_usage(path.parent).free < _LOG_INDEX
    return False


def connect(path: Path, *, create: bool, read_only: bool, timeout_s: float) -> sqlite3.Connection:
    """Open the file, make or migrate its tables, and set it up for several processes.

    Args:
        path: The database.
        create: Make it where there is none.
        read_only: Neither make, migrate nor write it.
        timeout_s: Seconds to wait for another process's write.

    Returns:
        The connection. Where neither the file nor its folder can be written, SQLite is told that
        nothing changes the file.

    Raises:
        DatabaseError: There is no such file, or it is not a database of ours that we can use.
    """
    check_place(path, create=create and not read_only)
    if not read_only:
        return _connected(path, "mode=rwc" if create else "mode=rw", timeout_s)
    try:
        return _connected(path, "mode=ro", timeout_s)
    except DatabaseError as error:
        if code_of(error.__cause__) not in _CANNOT_SHARE or os.access(path.parent, os.W_OK):
            raise
    log = Path(f"{path}-wal")  # nobody can write here: what stands there stays
    if log.exists() and log.stat().st_size:
        message = "its last writer has not closed it, and its folder cannot be written"
        hint = f"copy it together with {log.name} to a folder that can be written"
        raise DatabaseError(message, Location(path), hint)
    return _connected(path, "immutable=1", timeout_s)


def _connected(path: Path, how: str, timeout_s: float) -> sqlite3.Connection:
    is_new = how == "mode=rwc" and not (path.exists() and path.stat().st_size)
    with deferred() if is_new else nullcontext():  # no file is left without tables
        return _connected_now(path, how, timeout_s)


def _connected_now(path: Path, how: str, timeout_s: float) -> sqlite3.Connection:
    try:
        connection = _opened(path, how, timeout_s)
    except sqlite3.Error as error:
        raise explained(error, path) from error
    try:
        _set_up(connection, path, read_only="mode=rw" not in how, timeout_s=timeout_s)
    except BaseException as error:
        connection.close()
        if isinstance(error, UNREADABLE):
            raise explained(error, path) from error
        raise
    return connection


def new_file(file: BinaryIO) -> closing[sqlite3.Connection]:
    """Open a new file that no other process knows: it needs no locks, no journal.

    Without a write-ahead log nothing has to be written to read it.

    Returns:
        The connection, which a ``with`` block closes.
    """
    connection = _opened(Path(file.name), "mode=rw&nolock=1")
    connection.execute("PRAGMA journal_mode = OFF")
    return closing(connection)


def temporary() -> sqlite3.Connection:
    """Open a database that has no name and goes with its connection."""
    connection = sqlite3.connect("", isolation_level=None)
    connection.execute("PRAGMA journal_mode = OFF")
    return connection


def _opened(path: Path, how: str = "mode=ro", timeout_s: float = 5.0) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{how}"
    return sqlite3.connect(uri, uri=True, timeout=timeout_s, isolation_level=None)


def _set_up(
    connection: sqlite3.Connection, path: Path, *, read_only: bool, timeout_s: float
) -> None:
    with transaction(connection):  # another process may be creating the tables now
        version = tables.version_of(connection, path)
    # Not our own views and triggers might stand in a file from elsewhere: they may do nothing odd.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA foreign_keys = ON")
    if read_only:
        if not version:
            raise DatabaseError("a database without tables", Location(path), _EMPTY)
        return
    _use_wal(connection, timeout_s)
    connection.execute("PRAGMA synchronous = FULL")
    if version < len(tables.MIGRATIONS):
        _migrate(connection, path)


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str | None = "BEGIN") -> Iterator[None]:
    """Run a block in a transaction, which is committed or rolled back as a whole.

    Args:
        connection: To the database.
        begin: The statement that begins it; None where that was done.
    """
    try:
        if begin is not None:
            connection.execute(begin)
        yield
        connection.execute("COMMIT")
    finally:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            connection.close()


def _use_wal(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Switch to the write-ahead log; SQLite does not wait for the lock here, so we do.

    A file system that cannot have one (no shared memory) keeps the rollback journal: slower, as
    safe.

    Raises:
        OperationalError: The file stays locked for ``timeout_s``, or SQLite fails in another way.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if code_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Update the tables in one transaction, unless another process just did.

    What an earlier version has left is copied first, to a file beside it.
    """
    with transaction(connection, "BEGIN IMMEDIATE"):
        version = tables.version_of(connection, path)
        if 0 < version < len(tables.MIGRATIONS):
            place = Path(os.path.realpath(path))
            copy_path = place.with_name(f"{place.name}.version-{version}")
            with (
                atomic_writer(copy_path, DatabaseError) as file,
                new_file(file) as copy,
                closing(_opened(path)) as reader,  # the writer's own connection cannot be copied
            ):
                reader.backup(copy)
        tables.make_tables(connection, version)


def is_ours(path: Path) -> bool:
    """Return whether a file is a database of ours, of whatever version, damaged or not."""
    return _application(path) == tables.APPLICATION_ID


def is_database(path: Path) -> bool:
    """Return whether a file is SQLite's, ours or another program's."""
    return _application(path) is not None


def _application(path: Path) -> int | None:
    """Return the application id of an SQLite file, 0 without one; None for another file."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size < _LEAST_BYTES:
            return 0 if path.read_bytes().startswith(_MAGIC) else None
        with closing(_opened(path)) as connection:
            return tables.pragma(connection, "application_id")
    except sqlite3.Error as error:
        return None if code_of(error) == sqlite3.SQLITE_NOTADB else 0
    except (OSError, ValueError):
        return None


def check_place(path: Path, *, create: bool) -> None:
    """Refuse a place with a clearer error than SQLite's 'unable to open database file'.

    Raises:
        DatabaseError: It cannot be a database.
    """
    location = Location(path)
    try:
        status = path.stat()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise DatabaseError(
                f"no folder {str(path.parent)!r}", location, "create it first"
            ) from None
        if not create:
            hint = "'autoturbo tune' makes one; --db names another"
            raise DatabaseError("no such database", location, hint) from None
        return
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DatabaseError(f"cannot open: {reason}", location) from None
    if stat.S_ISDIR(status.st_mode):
        hint = f"name a file in it, for example {path / 'autoturbo.db'}"
        raise DatabaseError("a folder, not a database file", location, hint)
    if not stat.S_ISREG(status.st_mode):  # to open a named pipe would wait for its writer
        raise DatabaseError("not a regular file", location, "give another file with --db")
    # A file that is large enough is SQLite's to judge: a process that opens one besides SQLite and
    # closes it loses the locks of all its connections to it.
    if status.st_size < _LEAST_BYTES and (status.st_size or not create):
        _check_header(path, status.st_size)


def _check_header(path: Path, size: int) -> None:
    """Refuse a truncated file: SQLite takes less than a page for empty, and would overwrite it."""
    location = Location(path)
    try:
        header = path.read_bytes()[:18]
    except OSError as error:
        reason = os.strerror(error.errno or errno.EIO)
        raise DatabaseError(f"cannot open: {reason}", location) from None
    if not header.startswith(_MAGIC):
        if not size:
            raise DatabaseError("an empty file", location, _EMPTY)
        raise DatabaseError("not an SQLite database", location, "give another file with --db")
    page = int.from_bytes(header[16:18], "big")
    if size < max(page, 512):
        raise DatabaseError("the database is cut short", location, "restore the file from a copy")


def recent_runs(path: str | Path) -> dict[str, str]:
    """Return models and targets of the newest runs by id, for shell completion.

    In milliseconds, and never an error: none where nothing can be read.
    """
    place = Path(path)
    if not place.is_file():
        return {}
    query = "SELECT id, model, target FROM runs ORDER BY created DESC LIMIT ?"
    try:
        with closing(_opened(place)) as connection:
            rows = connection.execute(query, (_MOST_IDS,))
            return {run: f"{model} @ {target}" for run, model, target in rows}
    except sqlite3.Error:
        return {}
