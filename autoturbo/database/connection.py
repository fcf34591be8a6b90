"""An open database file: reading one consistent state, writing all or nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from autoturbo.atomic import check_writable
from autoturbo.database import tables
from autoturbo.database.formats import decode
from autoturbo.database.records import BestSchedule, RunInfo, TrialRecord
from autoturbo.errors import DatabaseError, Location

_R = TypeVar("_R", RunInfo, TrialRecord, BestSchedule)


class Connection:
    """What reads and writes; a context manager that closes the file.

    Attributes:
        path: the file as the user named it.
        read_only: nothing may be written.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self._connection = connection

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        create: bool = True,
        read_only: bool = False,
        timeout_s: float = 30.0,
    ) -> Self:
        """Open a file, made or migrated as needed.

        Args:
            path: the file.
            create: make it where there is none.
            read_only: neither make, migrate nor write it; the file and its folder may be ones that
                cannot be written.
            timeout_s: how long to wait for another process's write.

        Raises:
            DatabaseError: it cannot be opened, is damaged, of a newer version, or something else.
        """
        path = _named(path)
        connection = tables.connect(path, create=create, read_only=read_only, timeout_s=timeout_s)
        return cls(connection, path, read_only=read_only)

    @classmethod
    def check_place(cls, path: str | Path) -> None:
        """Raise what opening a file to write would, before the work; where none is, none is made.

        Raises:
            DatabaseError: as :meth:`open`.
        """
        path = _named(path)
        if path.is_file() and path.stat().st_size:
            cls.open(path).close()
            return
        tables.check_place(path, create=True)
        try:
            check_writable(path, DatabaseError)
        except DatabaseError:
            message = "the database cannot be opened"
            raise DatabaseError(message, Location(path), tables.WRITABLE) from None

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent state, and SQLite's errors as ours."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, durable at the end, waiting for other writers at the beginning."""
        if self.read_only:
            raise DatabaseError("the database is open for reading only", Location(self.path))
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        try:
            connection.execute(begin)
            yield connection
            connection.execute("COMMIT")
        except tables.UNREADABLE as error:
            raise tables.explained(error, self.path) from error
        finally:
            _roll_back(connection)

    def _decoded(self, kept: str | bytes, kind: type[_R]) -> _R:
        record = decode(kept, Location(self.path))
        if not isinstance(record, kind):
            message = f"a damaged record: not a {kind.__name__}"
            raise DatabaseError(message, Location(self.path), "restore the file from a copy")
        return record


def _roll_back(connection: sqlite3.Connection) -> None:
    """Leave no transaction open, whatever ended the block."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error:
        connection.close()


def _named(path: str | Path) -> Path:
    if not str(path):
        raise DatabaseError("the name of the database is empty", hint="give a file with --db")
    return Path(path)
