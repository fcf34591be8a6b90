"""Merges a file of records into a database, run by run.

A run whose id another run has is taken in under a free one; what contradicts its own trial, or what
simulating it again gives, is left out and named; everything else goes on.
"""

from __future__ import annotations

import dataclasses
import itertools
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from autoturbo.database.believing import Simulate, disagreement, put_best, there
from autoturbo.database.checking import named, sound_rows
from autoturbo.database.formats import R, decode_as
from autoturbo.database.records import (
    BORROWS,
    CALL,
    BestSchedule,
    Counts,
    Document,
    ImportResult,
    Record,
    RunInfo,
    TrialRecord,
)
from autoturbo.database.rows import TABLES, has_run, is_news, merge, sorted_rows
from autoturbo.errors import DatabaseError, Location

_MOST_FINDINGS = 20
"""Rows that are left out and named one by one."""

_MOST_FORGED = 16
"""Trials of a run that simulating contradicts, after which none of it is believed."""

_LONGEST_NUMBER = 7
"""Digits of what counts up in an id; more are a part of a name."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file of records, open as a database.

    Attributes:
        connection: To another database, or to a temporary one of an export's records.
        path: The file.
        read: How many records an export has; None for a database, whose rows are to be checked.
        first: Where an export has the first trial of each run.
    """

    connection: sqlite3.Connection
    path: Path
    read: Counts | None = None
    first: Mapping[str, Location] = field(default_factory=dict)

    def rows(self, kind: type[R]) -> Iterator[tuple[str, R | None, str]]:
        """Yield the rows of a table: a name, the record, and what is wrong where it is None."""
        if self.read is None:
            yield from sound_rows(self.connection, kind)
            return
        table = TABLES[kind]
        for row in sorted_rows(self.connection, kind, Location(self.path)):
            yield named(table, row), decode_as(row[-1], kind, Location()), ""


Doubts = dict[tuple[object, ...], str]
"""What is wrong with records by their keys, besides what they say themselves."""


def doubted(connection: sqlite3.Connection, source: Source, simulate: Simulate) -> Doubts:
    """Return what simulating again contradicts: new best schedules, and the fastest of each run.

    Args:
        connection: To the database that takes the source in.
        source: The file.
        simulate: Simulates a record again.
    """
    at, doubts = Location(source.path), Doubts()
    runs = {r.id: r for _, r, _ in source.rows(RunInfo) if r is not None}
    for _, best, wrong in source.rows(BestSchedule):
        if best is not None and not wrong and is_news(connection, best, at):
            run = runs.get(best.run) or there(connection, RunInfo, best.run)
            doubts[_key(best)] = simulate(best, run)
    for info in runs.values():
        forged = 0
        for trial in itertools.islice(_fastest(source, info.id), _MOST_FORGED):
            why = simulate(trial, info) if is_news(connection, trial, at) else ""
            if not why:
                break
            forged, doubts[_key(trial)] = forged + 1, why
        if forged == _MOST_FORGED:
            doubts[_key(info)] = f"its fastest {forged} trials are not what simulating gives"
    return {key: wrong for key, wrong in doubts.items() if wrong}


def _fastest(source: Source, run: str) -> Iterator[TrialRecord]:
    """Yield the measured trials of a run that can be read, the fastest first."""
    query = (
        "SELECT record FROM trials WHERE run = ? AND latency IS NOT NULL ORDER BY latency, number"
    )
    for (kept,) in source.connection.execute(query, (run,)):
        with suppress(DatabaseError):
            yield decode_as(kept, TrialRecord, Location(source.path))


def _key(record: Record) -> tuple[object, ...]:
    match record:
        case RunInfo():
            return (record.id,)
        case TrialRecord():
            return (record.run, record.number)
        case BestSchedule():
            return dataclasses.astuple(record.key)


def taken_in(connection: sqlite3.Connection, source: Source, doubts: Doubts) -> ImportResult:
    """Merge a file run by run; what is not believed is left out and named.

    Args:
        connection: To the database, in a transaction.
        source: The file.
        doubts: Of :func:`doubted`.

    Returns:
        How many records were read, changed and left out, and why.

    Raises:
        DatabaseError: A trial of an export has no run; a record of the database is damaged.
    """
    return _Taking(connection, source, doubts).all()


class _Taking:
    """A file that is being merged."""

    def __init__(self, connection: sqlite3.Connection, source: Source, doubts: Doubts) -> None:
        self._connection, self._source, self._doubts = connection, source, doubts
        self._at = Location(source.path)
        self._names: dict[str, str] = {}
        self._read: Counter[str] = Counter()
        self._changed: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._findings: list[str] = []

    def all(self) -> ImportResult:
        runs = [info for _, info in self._believed(RunInfo)]
        for info in runs:  # whole calls and sweeps are named before one of their runs is written
            self._names[info.id] = self._name(info)
        for info in runs:
            self._put(self._sound(info))
        for kind in list(TABLES)[1:]:
            for name, record in self._believed(kind):
                own = self._renamed(record)
                if wrong := self._contradicts(own):
                    self._leave_out(kind, f"{name}: {wrong}")
                else:
                    self._put(own)
        renamed = {old: new for old, new in self._names.items() if old != new}
        counts = (self._source.read or Counts(**self._read), Counts(**self._changed))
        return ImportResult(*counts, Counts(**self._left_out), tuple(self._findings), renamed)

    def _believed(self, kind: type[R]) -> Iterator[tuple[str, R]]:
        """Yield the records of a table with their names; the others are left out."""
        for name, record, found in self._source.rows(kind):
            wrong = found or ("" if record is None else self._doubts.get(_key(record), ""))
            if record is None or wrong:
                self._leave_out(kind, f"{name}: {wrong}")
            else:
                self._read[TABLES[kind].name] += 1
                yield name, record

    def _leave_out(self, kind: type[Document], finding: str) -> None:
        self._left_out[TABLES[kind].name] += 1
        self._tell(finding)

    def _tell(self, finding: str) -> None:
        if len(self._findings) < _MOST_FINDINGS:
            self._findings.append(finding)

    def _put(self, record: Record) -> None:
        if isinstance(record, BestSchedule):
            changed = put_best(self._connection, record, self._at, None)
        else:
            changed = merge(self._connection, record, self._at)
        self._changed[TABLES[type(record)].name] += changed

    def _name(self, info: RunInfo) -> str:
        """Return the id that a run is taken under: its own, or a free one if another run has it."""
        taken = set(self._names.values())
        for name in ids(info.id):
            row = self._connection.execute(TABLES[RunInfo].find, (name,)).fetchone()
            old = None if row is None else decode_as(row[0], RunInfo, self._at)
            if name not in taken and (old is None or self._is_same(info, old)):
                return name
        raise AssertionError("there is always a free id")

    def _is_same(self, info: RunInfo, old: RunInfo) -> bool:
        """Return whether a run is the one of the database: no trial of both is another one."""
        if info.unlike(old):
            return False
        query = "SELECT number, record FROM trials WHERE run = ?"
        theirs = dict(self._source.connection.execute(query, (info.id,)).fetchall())
        ours = self._connection.execute(query, (old.id,)).fetchall()
        return not any(
            theirs.get(number, kept) != kept and _differ(theirs[number], kept, self._at)
            for number, kept in ours
        )

    def _sound(self, info: RunInfo) -> RunInfo:
        """Return a run as it is taken, without what it cannot have handed out."""
        found = info.handed_out
        wrong = str(disagreement(self._source.connection, info) or "")
        if found is not None and not wrong:
            wrong = self._doubts.get((info.id, found.trial), "")
        if wrong:
            self._tell(f"runs {info.id}: {wrong}")
            info = dataclasses.replace(info, handed_out=None)
        own = self._renamed(info)
        return own if isinstance(own, RunInfo) else info

    def _renamed(self, record: Record) -> Record:
        """Return a record with the ids that runs are taken under."""
        match record:
            case RunInfo():
                settings = dict(record.settings)
                if (call := settings.get(CALL)) in self._names:
                    settings[CALL] = self._names[call]
                if (
                    isinstance(lent := settings.get(BORROWS), dict)
                    and lent.get("run") in self._names
                ):
                    settings[BORROWS] = {**lent, "run": self._names[lent["run"]]}
                return dataclasses.replace(record, id=self._names[record.id], settings=settings)
            case TrialRecord() | BestSchedule():
                return dataclasses.replace(record, run=self._names.get(record.run, record.run))

    def _contradicts(self, record: Record) -> str:
        """Return how a record contradicts the database."""
        if not isinstance(record, TrialRecord):
            return str(disagreement(self._connection, record) or "")
        if not has_run(self._connection, record.run):
            if (at := self._source.first.get(record.run)) is None:
                return "its run is neither in the file nor in the database"
            message = (
                f"a trial of run {record.run!r}, which is neither in the file nor in the database"
            )
            raise DatabaseError(message, at, "import the file that has the run first")
        if record.run in self._names.values():
            return ""
        old = there(self._connection, TrialRecord, record.run, record.number)
        if old is not None and record.unlike(old):
            return "another one is in the database, with other knobs or figures"
        return ""


def _differ(given: str | bytes, kept: str | bytes, at: Location) -> bool:
    """Return whether two packed trials of one number are others; damaged ones are named later."""
    with suppress(DatabaseError):
        mine, theirs = (decode_as(text, TrialRecord, at) for text in (kept, given))
        return theirs.unlike(mine)
    return False


def ids(first: str) -> Iterator[str]:
    """Yield an id and those that follow it: ``ab``, ``ab-2``, ``ab-3``, ..."""
    base, dash, number = first.rpartition("-")
    numbered = dash and number.isdecimal() and len(number) < _LONGEST_NUMBER
    yield first
    begin = int(number) + 1 if numbered else 2
    yield from (f"{base if numbered else first}-{n}" for n in itertools.count(begin))
