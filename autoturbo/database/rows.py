"""The rows that records stand in, and which of two records of the same thing is kept.

The rank of a record is a total order, and of two the lower is kept, whole. Taking the least is
commutative, associative and idempotent, so databases can be merged in any order and any number of
times.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from autoturbo.database.formats import canonical, decode, encode, pack
from autoturbo.database.records import BestSchedule, Document, Record, RunInfo, TrialRecord
from autoturbo.errors import DatabaseError, Location

_STATES = ("done", "failed", "interrupted", "running")  # what is over outranks what may go on
_KEY = ("graph_hash", "target_hash", "dtype", "scheduler_version")


@dataclass(frozen=True, slots=True)
class Table:
    """The table of a kind of records.

    Attributes:
        name: Of the table.
        key: Columns that tell one record from another.
        others: The other columns; the last one has the record.
    """

    name: str
    key: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Return all columns, in the order of :func:`row_of`."""
        return (*self.key, *self.others)

    def there(self, connection: sqlite3.Connection) -> tuple[str, ...]:
        """Return those columns that a database has, which an earlier version may have made."""
        present = {row[1] for row in connection.execute(f"PRAGMA table_info({self.name})")}
        return tuple(name for name in self.columns if name in present)

    @property
    def find(self) -> str:
        """Return the statement that looks up the last column by the key."""
        where = " AND ".join(f"{name} = ?" for name in self.key)
        return f"SELECT {self.others[-1]} FROM {self.name} WHERE {where}"  # noqa: S608  our names

    @property
    def put(self) -> str:
        """Return the statement that writes a row over the one with its key."""
        names, marks = ", ".join(self.columns), ", ".join("?" * len(self.columns))
        return f"INSERT OR REPLACE INTO {self.name} ({names}) VALUES ({marks})"  # noqa: S608


TABLES: Mapping[type[Any], Table] = {
    RunInfo: Table("runs", ("id",), (*_KEY, "model", "target", "state", "created", "record")),
    TrialRecord: Table("trials", ("run", "number"), ("latency", "record")),
    BestSchedule: Table(
        "best",
        _KEY,
        ("model", "target", "batch", "run", "trial", "latency", "verified", "decisions", "record"),
    ),
}
"""The tables, in the order in which an export holds their records."""


def rank(record: Record) -> tuple[Any, ...]:
    """Return a sort key of records for the same thing: the lower one is kept.

    A run that is over goes before one that may go on, then what was handed out after more trials,
    then the one that refuses more trials; a measurement before a failure, the faster first; among
    best schedules of equal latency the smaller text of the knobs, and of one schedule the record of
    more checks passed, then of the newer verifier. Ties of all that matters are broken by the
    records' text.
    """
    match record:
        case RunInfo():
            state = _STATES.index(record.state)
            covered = 0 if record.handed_out is None else record.handed_out.covers
            return (state, -covered, -len(record.refused), record.created, encode(record))
        case TrialRecord():
            latency = record.latency
            return (latency is None, latency or 0.0, record.created, encode(record))
        case BestSchedule():
            knobs = record.knobs.canonical()
            checks, verifier = record.verified.strength if record.verified else (0, 0)
            what = (record.measurement.latency, knobs)
            return (*what, -checks, -verifier, record.created, encode(record))


def merge(connection: sqlite3.Connection, record: Record, at: Location) -> bool:
    """Write the record unless the database has one of lower rank.

    Returns:
        Whether it was written; False also where the very same record is there.

    Raises:
        DatabaseError: A run of that id with other settings is there; a record there is damaged.
    """
    row = row_of(record)
    if not _outranks(connection, record, row, at):
        return False
    connection.execute(TABLES[type(record)].put, row)
    return True


def is_news(connection: sqlite3.Connection, record: Record, at: Location) -> bool:
    """Return whether :func:`merge` would write a record."""
    return _outranks(connection, record, row_of(record), at)


def _outranks(
    connection: sqlite3.Connection, record: Record, row: tuple[Any, ...], at: Location
) -> bool:
    table = TABLES[type(record)]
    found = connection.execute(table.find, row[: len(table.key)]).fetchone()
    if found is None:
        return True
    (kept,) = found
    if kept == row[-1]:
        return False
    old = decode(kept, at)
    _check_same_run(record, old, at)
    return rank(old) > rank(record)


def row_of(record: Record) -> tuple[Any, ...]:
    """Return the values of the record's columns.

    Raises:
        MeasurerError: A measured value that no record may hold.
        ValueError: Another such value.
    """
    text = encode(record)
    match record:
        case RunInfo():
            names = (column(record.model), column(record.target))
            return (record.id, *astuple(record.key), *names, record.state, record.created,
                    pack(text))  # fmt: skip
        case TrialRecord():
            latency = None if record.latency is None else float(record.latency)
            return (record.run, int(record.number), latency, pack(text))
        case BestSchedule():
            names = (column(record.model), column(record.target))
            columns = (record.run, int(record.trial), float(record.measurement.latency))
            checks = " ".join(record.verified.checks) if record.verified else None
            decisions = pack(canonical(record.decisions)) if record.decisions else b""
            return (*astuple(record.key), *names, int(record.batch), *columns, checks, decisions,
                    pack(text))  # fmt: skip


def sorted_rows(
    connection: sqlite3.Connection, kind: type[Document], at: Location
) -> Iterator[tuple[Any, ...]]:
    """Yield all columns of a table, sorted: equal databases have equal exports."""
    table = TABLES[kind]
    present = table.there(connection)
    chosen = ", ".join(name if name in present else "NULL" for name in table.columns)
    query = f"SELECT {chosen} FROM {table.name} ORDER BY {', '.join(table.key)}"  # noqa: S608
    for *row, record in connection.execute(query):
        # runs without a password that an earlier release may have kept
        yield (*row, encode(decode(record, at)) if kind is RunInfo else record)


def has_run(connection: sqlite3.Connection, run: str) -> bool:
    """Return whether there is a run of that id."""
    row = connection.execute("SELECT 1 FROM runs WHERE id = ?", (column(run),)).fetchone()
    return row is not None


def column(text: str) -> str:
    """Return text as SQLite can hold it: halves of surrogate pairs, in odd names, are spelt out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _check_same_run(new: Record, old: Record, at: Location) -> None:
    if isinstance(new, RunInfo) and isinstance(old, RunInfo) and (names := new.unlike(old)):
        message = f"run {new.id!r} is another one in the file, with other {', '.join(names)}"
        raise DatabaseError(message, at, "no export of a database has two; give each its own file")
