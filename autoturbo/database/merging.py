"""Which of two records of the same thing is kept, and the rows they stand in.

The rank of a record is a total order, and of two the lower is kept, whole. Taking the least is
commutative, associative and idempotent, so databases can be merged in any order and any number of
times.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from autoturbo.database.formats import canonical, decode, encode
from autoturbo.database.packing import pack
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
_KEY_COLUMNS = ("graph_hash", "target_hash", "dtype", "scheduler_version")

TABLES: dict[type[Record], tuple[str, tuple[str, ...], int]] = {
    RunInfo: (
        "runs",
        ("id", *_KEY_COLUMNS, "model", "target", "state", "created", "record"),
        1,
    ),
    TrialRecord: ("trials", ("run", "number", "latency", "record"), 2),
    BestSchedule: (
        "best",
        (
            *(*_KEY_COLUMNS, "model", "target", "batch", "run", "trial", "latency", "verified"),
            *("decisions", "record"),
        ),
        4,
    ),
    KernelRecord: ("kernels", ("target_hash", "scheduler_version", "signature", "seconds"), 3),
}
"""Table, columns, and how many of the first of them are the key."""


def rank(record: Record) -> tuple[Any, ...]:
    """Lower is kept. Ties of all that matters are broken by the records' text.

    A run that is over goes before one that may go on; a measurement before a failure, the faster
    first; among best schedules of equal latency the smaller text of the knobs, and of one schedule
    the record of more checks passed, then of the newer verifier. Of one run's records goes first
    the one that refuses more trials.
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
    row = row_of(record)
    there = _find(connection, record, row)
    if there is not None and there == row[-1]:
        return False
    if there is not None:
        old = _read(record, there, at)
        _check_same_run(record, old, at)
        if rank(old) <= rank(record):
            return False
    put(connection, record, row)
    return True


def put(connection: sqlite3.Connection, record: Record, row: Sequence[Any]) -> None:
    """Write the record over the one with its key."""
    connection.execute(_STATEMENTS[type(record)][1], row)


def statement(kind: type[Record]) -> str:
    """What writes a row, over the one with its key."""
    return _STATEMENTS[kind][1]


def row_of(record: Record) -> tuple[Any, ...]:
    """The values of the record's columns."""
    match record:
        case RunInfo():
            names = (column(record.model), column(record.target))
            last = (record.state, record.created, _packed(record))
            return (record.id, *astuple(record.key), *names, *last)
        case TrialRecord():
            latency = None if record.latency is None else float(record.latency)
            return (record.run, int(record.number), latency, _packed(record))
        case BestSchedule():
            names = (column(record.model), column(record.target))
            found = (record.run, int(record.trial), float(record.measurement.latency))
            batch = int(record.batch)
            checks = " ".join(record.verified.checks) if record.verified else None
            own = pack(canonical(record.decisions)) if record.decisions else b""
            return (*astuple(record.key), *names, batch, *found, checks, own, _packed(record))
        case KernelRecord():
            encode(record)  # for its check
            return (*astuple(record)[:-1], float(record.seconds))


def _packed(record: Record) -> bytes:
    return pack(encode(record))


def column(text: str) -> str:
    """Text as SQLite can hold it: halves of surrogate pairs, from odd file names, are spelt out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _find(connection: sqlite3.Connection, record: Record, row: Sequence[Any]) -> Any:
    """The last column of the row with the same key, or None."""
    key = row[: TABLES[type(record)][2]]
    found = connection.execute(_STATEMENTS[type(record)][0], key).fetchone()
    return None if found is None else found[0]


def _read(record: Record, there: Any, at: Location) -> Record:
    if isinstance(record, KernelRecord):
        return KernelRecord(record.target_hash, record.scheduler_version, record.signature, there)
    return decode(there, at)


def _check_same_run(new: Record, old: Record, at: Location) -> None:
    if not isinstance(new, RunInfo) or not isinstance(old, RunInfo):
        return
    known = sorted({*new.settings, *old.settings} - {LIMITS})  # a resume may change limits
    names = [name for name in known if new.settings.get(name) != old.settings.get(name)]
    if new.key != old.key or names:
        differs = ", ".join(names) or "hashes or versions"
        message = f"run {new.id!r} is another one in the database, with other {differs}"
        raise DatabaseError(message, at, "import it into a database of its own")


def _statements(table: str, columns: Sequence[str], key: int) -> tuple[str, str]:
    """To find the record with a key, and to write one."""
    where = " AND ".join(f"{name} = ?" for name in columns[:key])
    marks = ", ".join("?" * len(columns))
    # Every name here is from the tuple above, none from outside.
    find = f"SELECT {columns[-1]} FROM {table} WHERE {where}"  # noqa: S608
    write = f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
    return find, write


_STATEMENTS = {kind: _statements(*columns) for kind, columns in TABLES.items()}
