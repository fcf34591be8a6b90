"""The tables of the database, version by version, and whether a file has them.

Each row holds the whole record, the line of an export packed
(:mod:`autoturbo.database.formats`), beside the columns that are looked up and sorted.
"""

from __future__ import annotations

import functools
import sqlite3
from contextlib import closing
from pathlib import Path

from autoturbo.errors import DatabaseError, Location

APPLICATION_ID = 0x41547562  # "ATub"; tells our files from other programs' SQLite files

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (  # version 1
        """CREATE TABLE runs (
            id TEXT NOT NULL PRIMARY KEY,
            graph_hash TEXT NOT NULL,
            target_hash TEXT NOT NULL,
            dtype TEXT NOT NULL,
            scheduler_version TEXT NOT NULL,
            model TEXT NOT NULL,
            target TEXT NOT NULL,
            state TEXT NOT NULL,
            created TEXT NOT NULL,
            record TEXT NOT NULL
        )""",
        """CREATE TABLE trials (
            run TEXT NOT NULL REFERENCES runs (id) DEFERRABLE INITIALLY DEFERRED,
            number INTEGER NOT NULL CHECK (number >= 0),
            latency REAL CHECK (latency > 0),
            record TEXT NOT NULL,
            PRIMARY KEY (run, number)
        )""",
        "CREATE INDEX trials_by_latency ON trials (run, latency, number)",
        """CREATE TABLE best (
            graph_hash TEXT NOT NULL,
            target_hash TEXT NOT NULL,
            dtype TEXT NOT NULL,
            scheduler_version TEXT NOT NULL,
            model TEXT NOT NULL,
            target TEXT NOT NULL,
            batch INTEGER NOT NULL,
            run TEXT NOT NULL,
            trial INTEGER NOT NULL,
            latency REAL NOT NULL CHECK (latency > 0),
            record TEXT NOT NULL,
            PRIMARY KEY (graph_hash, target_hash, dtype, scheduler_version)
        )""",
        """CREATE TABLE kernels (
            target_hash TEXT NOT NULL,
            scheduler_version TEXT NOT NULL,
            signature TEXT NOT NULL,
            seconds REAL NOT NULL,
            PRIMARY KEY (target_hash, scheduler_version, signature)
        ) WITHOUT ROWID""",
    ),
    (  # version 2: the checks that the schedule passed, with spaces between them
        "ALTER TABLE best ADD COLUMN verified TEXT",
    ),
    (  # version 3: records are packed; of best schedules, the decisions beside the record
        "ALTER TABLE best ADD COLUMN decisions BLOB",
        "CREATE INDEX best_by_target ON best (target_hash, dtype, scheduler_version)",
    ),
    (  # version 4: no times of kernels
        "DROP TABLE kernels",
    ),
)
"""Statements that lead from each version to the next, from the empty file on. Never edited.

Their number is the version of the tables (``PRAGMA user_version``); an older one is migrated, a
newer refused.
"""


def make_tables(connection: sqlite3.Connection, version: int = 0) -> None:
    """Make the tables of the newest version out of those of an earlier one."""
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the tables; 0 for an empty file.

    Raises:
        DatabaseError: Another program's file, or one of a newer version.
    """
    application = pragma(connection, "application_id")
    version = pragma(connection, "user_version")
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application, version, tables) == (0, 0, 0):
        return 0
    if application != APPLICATION_ID:
        hint = "give another file with --db"
        raise DatabaseError("an SQLite database of another program", Location(path), hint)
    newest = len(MIGRATIONS)
    if not 0 <= version <= newest:
        message = f"a database of version {version}; this version reads up to {newest}"
        raise DatabaseError(message, Location(path), "update autoturbo, or give another --db")
    _refuse_foreign(connection, version, path)
    return version


def _refuse_foreign(connection: sqlite3.Connection, version: int, path: Path) -> None:
    """Refuse a file whose schema our migrations do not make, before anything is read of it.

    A view in the place of a table would be computed, a trigger run, by whatever reads it.

    Raises:
        DatabaseError: The file has something more, less, or other.
    """
    ours = _schema_of(version)
    schema = _schema_rows(connection, len(ours) + 1)
    for kind, name, *_ in sorted(schema - ours, key=repr):
        message = f"the {kind} {name!r:.60} in it is not what autoturbo makes"
        hint = "remove it with SQLite's own program, or give another file with --db"
        raise DatabaseError(f"a foreign schema: {message}", Location(path), hint)
    for kind, name, *_ in sorted(ours - schema, key=repr):
        if kind == "table":  # an index that is missing is damage, which 'db check' names
            raise DatabaseError(f"a foreign schema: the table {name!r} is missing", Location(path))


def _schema_rows(connection: sqlite3.Connection, most: int) -> frozenset[tuple[object, ...]]:
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat_'"
    rows = connection.execute(query).fetchmany(most)
    plain = ((*row[:3], " ".join(str(row[3]).split())) for row in rows)
    return frozenset(plain)


@functools.cache
def _schema_of(version: int) -> frozenset[tuple[object, ...]]:
    """Return the rows of SQLite's schema for a version of the tables."""
    with closing(sqlite3.connect(":memory:")) as empty:
        for statements in MIGRATIONS[:version]:
            for statement in statements:
                empty.execute(statement)
        return _schema_rows(empty, -1)


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """Return the number that SQLite keeps in a file under a name."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
