"""Checks a database for damage and contradictions.

A row is sound where its record can be read, its columns say what the record says, and the record is
believed (:mod:`autoturbo.database.believing`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from autoturbo.database import opening
from autoturbo.database.believing import contradiction, disagreement, is_unchecked
from autoturbo.database.formats import R, canonical, encode, parse_line, unpack
from autoturbo.database.records import BestSchedule
from autoturbo.database.rows import TABLES, Table, row_of
from autoturbo.errors import AutoTurboError, DatabaseError, Location
from autoturbo.files import Kind, Outputs

_MOST = 20
"""Findings that are told one by one."""

_LONGEST_NAME = 80
_MOST_TRIED = 50_000
"""Numbers of rows that are tried one after another where a table cannot be read."""


@dataclass(frozen=True, slots=True)
class DatabaseCheck:
    """The findings of a check.

    Attributes:
        records: Records that were read.
        findings: What is wrong, one line each, the first ones; empty where all is sound.
        more: Findings that are not told.
        unchecked: Records of other evaluators, whose schedules only these can read.
    """

    records: int
    findings: tuple[str, ...]
    more: int = 0
    unchecked: int = 0

    @property
    def sound(self) -> bool:
        """Return whether nothing is wrong."""
        return not self.findings


def check(path: str | Path, save: Path | None = None, *, force: bool = False) -> DatabaseCheck:
    """Check a database file without changing it.

    Args:
        path: The file.
        save: Where to write every record that can be believed, as JSON lines.
        force: Whether the file of records may replace one of another kind.

    Returns:
        How many records were read, and what is wrong; where damage keeps the file from being
        opened, that alone.

    Raises:
        DatabaseError: There is no such file, or it is not one that this version can read; or
            records cannot be written.
    """  # noqa: DOC501  explained() makes the error
    path = Path(path)
    try:
        connection = opening.connect(path, create=False, read_only=True, timeout_s=30.0)
    except DatabaseError as error:
        if not opening.is_damage(error.__cause__):
            raise
        return DatabaseCheck(0, (error.message,))
    opened: AbstractContextManager[BinaryIO | None] = nullcontext()
    if save is not None:
        opened = Outputs(database=path, force=force).open(save, Kind.RECORDS, DatabaseError)
    try:
        with closing(connection), opened as file:
            return _checked(connection, file)
    except opening.UNREADABLE as error:
        raise opening.explained(error, path) from error


def _checked(connection: sqlite3.Connection, file: BinaryIO | None) -> DatabaseCheck:
    readable_texts(connection)
    connection.execute("BEGIN")
    count, unchecked, findings = 0, 0, list(structure(connection))
    for kind in TABLES:
        for name, record, finding in sound_rows(connection, kind):
            wrong = finding or disagreement(connection, record)
            if record is None or wrong:
                findings.append(f"{name}: {wrong}")
                continue
            count += 1
            unchecked += is_unchecked(record)
            if file is not None:
                file.write(encode(record).encode("ascii") + b"\n")
    return DatabaseCheck(count, tuple(findings[:_MOST]), max(len(findings) - _MOST, 0), unchecked)


def structure(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield what SQLite itself finds wrong, and the runs that trials lack."""
    loose = "SELECT DISTINCT run FROM trials WHERE run NOT IN (SELECT id FROM runs)"
    try:
        for (text,) in connection.execute("PRAGMA integrity_check(100)"):
            if text != "ok":
                yield " ".join(str(text).split())
        for (run,) in connection.execute(loose):
            yield f"trials of run {run!r}, which is not there: import its manifest.json first"
    except opening.UNREADABLE as error:
        if not opening.is_damage(error):
            raise
        yield opening.DAMAGED


def readable_texts(connection: sqlite3.Connection) -> None:
    """Let a connection return texts that are not UTF-8: they make a row wrong, not all."""
    connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")


def sound_rows(
    connection: sqlite3.Connection, kind: type[R]
) -> Iterator[tuple[str, R | None, str]]:
    """Yield the rows of a table: a name, the record, and what is wrong where it is None.

    Args:
        connection: To a file whose schema was checked; texts may hold half surrogate pairs.
        kind: Of the records of the table.
    """
    table = TABLES[kind]
    known = table.there(connection)
    for row in _rows(connection, table.name, known):
        if isinstance(row, str):
            yield table.name, None, row
            continue
        name = named(table, row)
        try:
            record = _record_of(kind, dict(zip(known, row, strict=True)))
            wrong = str(contradiction(record) or "")
        except (AutoTurboError, ValueError) as error:
            record, wrong = None, str(error) or type(error).__name__
        yield name, None if wrong else record, wrong


def named(table: Table, row: Sequence[object]) -> str:
    """Return the name of a row for people: its table and key."""
    name = f"{table.name} {' '.join(map(str, row[: len(table.key)]))}"
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def _rows(
    connection: sqlite3.Connection, table: str, columns: Sequence[str]
) -> Iterator[Sequence[Any] | str]:
    """Yield every row that SQLite can read; in the end, how many others there are.

    Behind a page that cannot be read, the rows are asked for by their numbers.

    Raises:
        UNREADABLE: SQLite refuses for another reason than damage, a lock for example.
    """
    names = ", ".join(columns)
    query = f"SELECT rowid, {names} FROM {table} WHERE rowid > ? ORDER BY rowid"  # noqa: S608
    place, tried, count, lost = -(2**63), 0, 0, False
    while tried < _MOST_TRIED:
        try:
            for number, *row in connection.execute(query, (place,)):
                tried = 0 if number > place else tried  # a damaged table may lead in circles
                place, count = max(place, number), count + 1
                yield row
            break
        except opening.UNREADABLE as error:
            if not opening.is_damage(error):
                raise
            place, tried, lost = max(place, 0) + 1, tried + 1, True
    if lost:
        yield _lost(connection, table, count)


def _lost(connection: sqlite3.Connection, table: str, read: int) -> str:
    """Return how many rows cannot be read; an index may still know them."""
    try:
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608
    except opening.UNREADABLE:
        return "rows cannot be read"
    return f"{count - read} of {count} rows cannot be read"


def _record_of(kind: type[R], row: Mapping[str, Any]) -> R:
    """Decode a row; raises AutoTurboError or ValueError."""
    record = parse_line(unpack(row["record"]).encode(), Location())
    if not isinstance(record, kind):
        raise ValueError("its record is one of another table")  # noqa: TRY004  of a file
    stored = dict(zip(TABLES[kind].columns, row_of(record), strict=True))
    if any(row[name] != stored[name] for name in row if name not in ("record", "decisions")):
        raise ValueError("what is looked up by is not what the record says")
    if isinstance(record, BestSchedule) and (beside := row.get("decisions")) is not None:
        # texts, not what is packed: other builds of zlib pack the same text to other bytes
        text = canonical({}) if beside == b"" else unpack(beside)
        if text != canonical(record.decisions):
            raise ValueError("the decisions beside the record are not the record's")
    return record
