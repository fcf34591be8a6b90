"""What a database cannot take while runs go on: it waits in memory and in the runs' folders.

Somebody else may hold the lock of a database for long, and its file may be removed or replaced by
another. Measuring goes on: the records of the runs of this process are in a temporary database
then, and each in a file in the folder of its run as soon as it would be durable otherwise. The file
has the form of an export.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from autoturbo.database import opening, tables
from autoturbo.database.believing import hand_out_best
from autoturbo.database.formats import decode, encode
from autoturbo.database.records import BestSchedule, Record, RunInfo, TrialRecord
from autoturbo.database.rows import TABLES, merge, row_of
from autoturbo.errors import DatabaseError, Location

GONE = "the database was removed or replaced while a run wrote to it"
LOCKED = "another process holds the lock of the database"

_OF_RUNS: Mapping[type[Record], str] = {RunInfo: "id", TrialRecord: "run", BestSchedule: "run"}
"""The column of each table that names the run."""

_WITHDRAW = "DELETE FROM best WHERE run = ? AND trial = ?"


class Place:
    """A database's file as it was opened.

    Args:
        path: Of the database.
    """

    def __init__(self, path: Path) -> None:
        self._path = Path(os.path.realpath(path))
        self._opened = _identity(self._path)
        self._logs: dict[Path, tuple[int, int] | None] = {}

    def look(self) -> None:
        """Remember the files beside it, in which what was committed last may stand."""
        names = (Path(f"{self._path}{end}") for end in ("-wal", "-shm"))
        self._logs = {name: _identity(name) for name in names}

    @property
    def is_gone(self) -> bool:
        """Return whether the path names another file now, or none."""
        return _identity(self._path) != self._opened

    def forsake(self) -> None:
        """Remove the log of the file that is gone.

        Whoever opens the file that took its place would apply it to that.
        """
        for name, identity in self._logs.items():
            if identity is not None and _identity(name) == identity:
                with suppress(OSError):
                    name.unlink()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


class Waiting:
    """The records of some runs that wait.

    Args:
        connection: To the database that cannot be written; read where that is possible.
        runs: By id each run as it was begun, and the file that its records are written to.
        is_gone: Whether the database is there no more; else somebody holds its lock.

    Attributes:
        connection: To the temporary database that is read and written instead.
        is_gone: As given.
        files: By run.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        runs: Mapping[str, tuple[RunInfo, Path]],
        *,
        is_gone: bool,
    ) -> None:
        self.is_gone = is_gone
        self.files = {run: file for run, (_, file) in runs.items()}
        self._written = dict.fromkeys(_OF_RUNS, 0)
        self.connection = opening.temporary()
        with opening.transaction(self.connection):
            tables.make_tables(self.connection)
            for info, _ in runs.values():
                self.connection.execute(TABLES[RunInfo].put, row_of(info))
            with suppress(*opening.UNREADABLE):  # a lock may be one that nobody can read beside
                self._copy(connection)
        self.write()

    def _copy(self, connection: sqlite3.Connection) -> None:
        for kind in (RunInfo, TrialRecord):
            table = TABLES[kind]
            columns = ", ".join(table.columns)
            query = f"SELECT {columns} FROM {table.name} WHERE {_OF_RUNS[kind]} = ?"  # noqa: S608
            for run in self.files:
                self.connection.executemany(table.put, connection.execute(query, (run,)).fetchall())

    def write(self) -> None:
        """Write what is new to the files; it outlives this process then.

        Raises:
            DatabaseError: A file cannot be written.
        """
        texts: dict[str, list[str]] = {}
        for kind, column in _OF_RUNS.items():
            query = f"""SELECT rowid, {column}, record FROM {TABLES[kind].name}
                WHERE rowid > ? ORDER BY rowid"""  # noqa: S608  our names
            for number, run, kept in self.connection.execute(query, (self._written[kind],)):
                texts.setdefault(run, []).append(encode(decode(kept, Location())))
                self._written[kind] = number
        for run in texts.keys() & self.files.keys():
            _append(self.files[run], "".join(f"{line}\n" for line in texts[run]))

    def add(self, info: RunInfo, file: Path) -> None:
        """Let the records of one more run, which was begun meanwhile, wait in a file."""
        self.files[info.id] = file
        _append(file, f"{encode(info)}\n")

    def store(self, connection: sqlite3.Connection, at: Location) -> None:
        """Write all records to the database, within a transaction."""
        for kind in _OF_RUNS:
            query = f"SELECT record FROM {TABLES[kind].name}"  # noqa: S608  our names
            for (kept,) in self.connection.execute(query).fetchall():
                match decode(kept, at):
                    case RunInfo() as info:  # nobody else works on it
                        connection.execute(TABLES[RunInfo].put, row_of(info))
                        refused = [(info.id, one.trial) for one in info.refused]
                        connection.executemany(_WITHDRAW, refused)
                    case BestSchedule() as best:
                        hand_out_best(connection, best, at, None)
                    case record:
                        merge(connection, record, at)

    def forget(self) -> None:
        """Remove the files once their records are in the database."""
        for file in self.files.values():
            file.unlink(missing_ok=True)
        self.connection.close()


def _append(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            file.write(text.encode("ascii"))
            os.fsync(file.fileno())
    except OSError as error:
        raise DatabaseError(f"cannot write: {error.strerror}", Location(path)) from None
