"""Opens files of records to take them in: JSON lines, databases, and a run's manifest."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from autoturbo.database import opening, tables
from autoturbo.database.believing import Contradiction, contradiction
from autoturbo.database.checking import readable_texts
from autoturbo.database.formats import canonical, encode, parse_line
from autoturbo.database.merging import Source
from autoturbo.database.records import (
    RECORD_SCHEMA,
    BestSchedule,
    Counts,
    PairKey,
    Record,
    RunInfo,
    TrialRecord,
)
from autoturbo.database.rows import TABLES, merge
from autoturbo.database.run_folder import MANIFEST
from autoturbo.errors import DatabaseError, Location
from autoturbo.files import MEMORY, open_input
from autoturbo.simulator.measurement import VERSION

LOG = logging.getLogger("autoturbo")


@contextmanager
def opened(path: Path, database: Path) -> Iterator[Source]:
    """Open an export by its first bytes: a database, or JSON lines.

    A run's ``manifest.json`` is the record of the run.

    Yields:
        Its records, within the ``with`` block alone.

    Raises:
        DatabaseError: The file cannot be read.
    """
    if opening.is_database(path):
        if path.samefile(database):
            raise DatabaseError("the database itself", Location(path), "name another one")
        with _open_database(path) as other:
            yield Source(other, path)
        return
    with _open(path) as file, closing(opening.temporary()) as connection:
        lines = _manifest(file, path) if path.name == MANIFEST else _lines(file, path)
        read: Counter[str] = Counter()
        first: dict[str, Location] = {}
        with opening.transaction(connection):
            tables.make_tables(connection)
            for location, record in _parsed(lines, path):
                read[TABLES[type(record)].name] += 1
                merge(connection, record, location)
                if isinstance(record, TrialRecord):
                    first.setdefault(record.run, location)
        yield Source(connection, path, Counts(**read), first)


def _parsed(
    lines: Iterable[tuple[Location, bytes]], path: Path
) -> Iterator[tuple[Location, Record]]:
    """Yield the records of an export, runs before their trials; of kernels' times, tell how many.

    Raises:
        DatabaseError: One contradicts itself or, if this version wrote it, lacks something.
    """
    ours, kernels = set[str](), 0
    for location, line in lines:
        record = parse_line(line, location)
        if record is None:
            kernels += 1
            continue
        wrong = contradiction(record)
        if isinstance(record, RunInfo) and _is_own(record.key):
            ours.add(record.id)
        elif isinstance(record, TrialRecord):
            wrong = wrong or (_altered(record, line) if record.run in ours else None)
        elif isinstance(record, BestSchedule):
            wrong = wrong or (_altered(record, line) if _is_own(record.key) else None)
        if wrong:
            place = replace(location, field=wrong.field)
            raise DatabaseError(wrong.message, place, "the file was changed after it was exported")
        yield location, record
    if kernels:
        LOG.warning("%s: left out %d kernel times, which are not kept any more", path, kernels)


def _is_own(key: PairKey) -> bool:
    return key.scheduler_version.split("+")[0] == VERSION


def _altered(record: Record, line: bytes) -> Contradiction | None:
    """Return which field of a line is not as its record is written; None where all are."""
    written = encode(record)
    if line.rstrip() == written.encode():
        return None
    return next(_differing(json.loads(line), json.loads(written)), None)


def _differing(given: Any, written: Any, path: str = "") -> Iterator[Contradiction]:
    if isinstance(given, dict) and isinstance(written, dict):
        for name in sorted({*given, *written}):
            place = f"{path}.{name}" if path else name
            if name not in given or name not in written:
                yield Contradiction(place, "missing" if name in written else "empty")
            yield from _differing(given.get(name), written.get(name), place)
    elif given != written:
        yield Contradiction(path, "not as it was written")


def _lines(file: BinaryIO, path: Path) -> Iterator[tuple[Location, bytes]]:
    for number, line in enumerate(iter(lambda: file.readline(MEMORY.bytes + 1), b""), start=1):
        location = Location(path, number)
        if len(line) > MEMORY.bytes:
            raise DatabaseError("a line that is too long for a record", location, MEMORY.hint)
        if line.strip():
            yield location, line


def _manifest(file: BinaryIO, path: Path) -> Iterator[tuple[Location, bytes]]:
    """Yield the run of a folder's manifest, which restores a lost record."""
    try:
        values = json.load(file)
        run = {name: values[name] for name in values if name not in ("schema", "space")}
        more = {"kind": "run", "schema": RECORD_SCHEMA, "state": "interrupted"}
        text = canonical({**run, **more})
    except (ValueError, TypeError, RecursionError):
        raise DatabaseError("not a run's manifest", Location(path)) from None
    yield Location(path), text.encode()


def _open(path: Path) -> BinaryIO:
    try:
        return open_input(path)
    except IsADirectoryError:
        raise DatabaseError("a folder, not an export", Location(path)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DatabaseError(f"cannot read: {reason}", Location(path)) from None


@contextmanager
def _open_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Open another database in one consistent state, if it is sound."""
    other = opening.connect(path, create=False, read_only=True, timeout_s=30.0)
    try:
        other.execute("BEGIN")
        (verdict,) = other.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            hint = f"'autoturbo db check --db {path} --save NEW.jsonl' writes what it still holds"
            raise DatabaseError(opening.DAMAGED, Location(path), hint)
        readable_texts(other)
        yield other
    except opening.UNREADABLE as error:
        raise opening.explained(error, path) from error
    finally:
        other.close()
