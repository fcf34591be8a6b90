"""All records of a database as a file: JSON lines, Parquet, or a database to be read only."""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from autoturbo.database import tables
from autoturbo.database.formats import decode, encode
from autoturbo.database.merging import TABLES, statement
from autoturbo.database.packing import pack, unpack
from autoturbo.database.records import BestSchedule, Counts, KernelRecord, Record, RunInfo
from autoturbo.errors import DatabaseError, Location
from autoturbo.files import Kind, Outputs

DATABASE_SUFFIXES = (".db", ".sqlite")
PARQUET_SUFFIX = ".parquet"
_MAY_BE_SECRET = re.compile(r'"storage":"')

# Sorted, so that equal databases have equal exports.
_QUERIES = {
    "runs": "SELECT record FROM runs ORDER BY id",
    "trials": "SELECT record FROM trials ORDER BY run, number",
    "best": "SELECT record FROM best ORDER BY graph_hash, target_hash, dtype, scheduler_version",
}
_KERNELS = """SELECT target_hash, scheduler_version, signature, seconds FROM kernels
    ORDER BY target_hash, scheduler_version, signature"""


def write(
    connection: sqlite3.Connection, path: Path, outputs: Outputs, *, best_only: bool
) -> Counts:
    """Write every record, runs before their trials; the file appears whole or not at all.

    The form follows from the file's name: see :meth:`autoturbo.database.Database.export`.

    Raises:
        DatabaseError: the file cannot be written, or what is there may not be replaced.
        UsageError: pyarrow is missing, which Parquet files need.
    """
    if path.suffix in DATABASE_SUFFIXES:
        outputs.check(path, Kind.DATABASE, DatabaseError)
        return _write_database(connection, path, best_only=best_only)
    lines = record_lines(connection, best_only=best_only)
    if path.suffix == PARQUET_SUFFIX:
        from autoturbo.database.parquet import write_parquet

        return write_parquet(lines, path, outputs)
    return write_lines(lines, path, outputs)


def record_lines(
    connection: sqlite3.Connection, *, best_only: bool = False
) -> Iterator[tuple[str, str]]:
    """Table and canonical text of every record, in the order of an export."""
    for name, query in _QUERIES.items():
        if name == "best" or not best_only:
            for (kept,) in connection.execute(query):
                yield name, _run_text(kept) if name == "runs" else unpack(kept)
    if not best_only:
        for row in connection.execute(_KERNELS):
            yield "kernels", encode(KernelRecord(*row))


def write_lines(lines: Iterator[tuple[str, str]], path: Path, outputs: Outputs) -> Counts:
    """Write one record a line.

    Raises:
        DatabaseError: the file cannot be written.
    """
    counts: Counter[str] = Counter()
    with outputs.open(path, Kind.RECORDS, DatabaseError) as file:
        for name, line in lines:
            file.write(line.encode("ascii") + b"\n")
            counts[name] += 1
    return Counts(**counts)


def _write_database(connection: sqlite3.Connection, path: Path, *, best_only: bool) -> Counts:
    """A database without a write-ahead log, so that nothing has to be written to read it."""
    place = Path(os.path.realpath(path))
    temporary = place.with_name(f".autoturbo-{secrets.token_hex(8)}.tmp")
    try:
        copy = tables.connect(temporary, create=True, read_only=False, timeout_s=0.0)
        try:
            counts = _copy_rows(connection, copy, best_only=best_only)
            copy.execute("PRAGMA journal_mode = DELETE")
        finally:
            copy.close()
        temporary.replace(place)
    finally:
        for ending in ("", "-wal", "-shm", "-journal"):
            with suppress(OSError):
                Path(f"{temporary}{ending}").unlink()
    return counts


def _copy_rows(
    connection: sqlite3.Connection, copy: sqlite3.Connection, *, best_only: bool
) -> Counts:
    counts: Counter[str] = Counter()
    copy.execute("BEGIN")
    for kind, (table, columns, key) in TABLES.items():
        if best_only and kind is not BestSchedule:
            continue
        there = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        chosen = ", ".join(name if name in there else "NULL" for name in columns)
        order = ", ".join(columns[:key])
        rows = connection.execute(f"SELECT {chosen} FROM {table} ORDER BY {order}")  # noqa: S608
        packed = ((*row[:-1], _packed(kind, row[-1])) for row in rows)
        counts[table] += copy.executemany(statement(kind), packed).rowcount
    copy.execute("COMMIT")
    return Counts(**counts)


def _run_text(kept: str | bytes) -> str:
    """The text of a run's row without a password that an earlier release may have kept."""
    text = unpack(kept)
    return encode(decode(text, Location())) if _MAY_BE_SECRET.search(text) else text


def _packed(kind: type[Record], kept: float | str | bytes) -> float | str | bytes:
    """The last column of a row as the newest version has it."""
    if kind is RunInfo and isinstance(kept, str | bytes):
        return pack(_run_text(kept))
    return pack(kept) if isinstance(kept, str) else kept
