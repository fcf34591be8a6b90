"""Which of two records of the same thing is kept, and the rows they stand in.

The rank of a record is a total order, and of two the lower is kept, whole. Taking the least is
commutative, associative and idempotent, so databases can be merged in any order and any number of
times.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from autoturbo.database.formats import canonical, decode, encode, pack
from autoturbo.database.records import (
    LIMITS,
    BestSchedule,
    KernelRecord,
    Record,
    RunInfo,
    TrialRecord,
)
from autoturbo.errors import DatabaseError, Location

_STATES = ("done", "failed", "interrupted", "running")  # what is over outranks what may go on
_KEY = ("graph_hash", "target_hash", "dtype", "scheduler_version")


@dataclass(frozen=True, slots=True)
class Table:
    """Where records of a kind stand.

    Attributes:
        name: of the table.
        key: columns that tell one record from another.
        others: the other columns; the last one has the record, or what there is of it.
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
        found = {row[1] for row in connection.execute(f"PRAGMA table_info({self.name})")}
        return tuple(name for name in self.columns if name in found)

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


TABLES: Mapping[type[Record], Table] = {
    RunInfo: Table("runs", ("id",), (*_KEY, "model", "target", "state", "created", "record")),
    TrialRecord: Table("trials", ("run", "number"), ("latency", "record")),
    BestSchedule: Table(
        "best",
        _KEY,
        ("model", "target", "batch", "run", "trial", "latency", "verified", "decisions", "record"),
    ),
    KernelRecord: Table("kernels", ("target_hash", "scheduler_version", "signature"), ("seconds",)),
}
"""The tables, in the order in which an export holds their records."""


def rank(record: Record) -> tuple[Any, ...]:
    """Return what orders records of the same thing: the lower is kept.

    A run that is over goes before one that may go on, then the one that refuses more trials; a
    measurement before a failure, the faster first; among best schedules of equal latency the
    smaller text of the knobs, and of one schedule the record of more checks passed, then of the
    newer verifier. Ties of all that matters are broken by the records' text.
    """
    match record:
        case RunInfo():
            state = _STATES.index(record.state)
            return (state, -len(record.refused), record.created, encode(record))
        case TrialRecord():
            latency = record.latency
            return (latency is None, latency or 0.0, record.created, encode(record))
        case BestSchedule():
            knobs = record.knobs.canonical()
            checks, verifier = record.verified.strength if record.verified else (0, 0)
            what = (record.measurement.latency, knobs)
            return (*what, -checks, -verifier, record.created, encode(record))
        case KernelRecord():
            return (record.seconds,)


def merge(connection: sqlite3.Connection, record: Record, at: Location) -> bool:
    """Write the record unless the database has one of lower rank; True where it was written.

    Raises:
        DatabaseError: a run of that id with other settings is there; a record there is damaged.
    """
    row, table = row_of(record), TABLES[type(record)]
    found = connection.execute(table.find, row[: len(table.key)]).fetchone()
    if found is not None:
        (kept,) = found
        if kept == row[-1]:
            return False
        is_kernel = isinstance(record, KernelRecord)
        old = replace(record, seconds=kept) if is_kernel else decode(kept, at)
        _check_same_run(record, old, at)
        if rank(old) <= rank(record):
            return False
    connection.execute(table.put, row)
    return True


def row_of(record: Record) -> tuple[Any, ...]:
    """Return the values of the record's columns.

    Raises:
        MeasurerError: a measured value that no record may hold.
        ValueError: another such value.
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
            found = (record.run, int(record.trial), float(record.measurement.latency))
            checks = " ".join(record.verified.checks) if record.verified else None
            own = pack(canonical(record.decisions)) if record.decisions else b""
            return (*astuple(record.key), *names, int(record.batch), *found, checks, own,
                    pack(text))  # fmt: skip
        case KernelRecord():
            return (*astuple(record)[:-1], float(record.seconds))


def has_run(connection: sqlite3.Connection, run: str) -> bool:
    """Return whether there is a run of that id."""
    found = connection.execute("SELECT 1 FROM runs WHERE id = ?", (column(run),)).fetchone()
    return found is not None


def column(text: str) -> str:
    """Return text as SQLite can hold it: halves of surrogate pairs, in odd names, are spelt out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _check_same_run(new: Record, old: Record, at: Location) -> None:
    if not isinstance(new, RunInfo) or not isinstance(old, RunInfo):
        return
    known = sorted({*new.settings, *old.settings} - {LIMITS})  # a resume may change limits
    names = [name for name in known if new.settings.get(name) != old.settings.get(name)]
    if new.key != old.key or names:
        differs = ", ".join(names) or "hashes or versions"
        message = f"run {new.id!r} is another one in the database, with other {differs}"
        raise DatabaseError(message, at, "import it into a database of its own")
