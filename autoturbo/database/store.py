"""The tuned-schedule database: one SQLite file that several processes may write.

What a method has written when it returns survives the end of the process, a ``kill -9`` and, on
disks that keep their word, a power loss (docs/decisions/0004-database.md). A connection belongs to
the thread and the process that opened it: open another one elsewhere.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import sqlite3
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

from autoturbo.database import exchange, misses, tables
from autoturbo.database.failures import explained
from autoturbo.database.formats import decode
from autoturbo.database.merging import column, merge, put, row_of
from autoturbo.database.records import (
    BestSchedule,
    Counts,
    ImportResult,
    KernelRecord,
    PairKey,
    Refused,
    RunInfo,
    RunState,
    TrialRecord,
    Verified,
)
from autoturbo.errors import DatabaseError, Location, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from autoturbo.schedule.knobs import Knobs

_R = TypeVar("_R", RunInfo, TrialRecord, BestSchedule)


class BestFilter(TypedDict, total=False):
    """What to look for among the best schedules; what is left out or None matches everything."""

    graph_hash: str | None
    target_hash: str | None
    dtype: str | None
    scheduler_version: str | None
    model: str | None
    target: str | None
    batch: int | None


_RUNS = """SELECT record,
    (SELECT count(*) FROM trials WHERE run = runs.id),
    (SELECT number FROM trials WHERE run = runs.id AND latency IS NOT NULL
        ORDER BY latency, number LIMIT 1),
    (SELECT min(latency) FROM trials WHERE run = runs.id),
    (SELECT latency FROM trials WHERE run = runs.id AND number = 0)
    FROM runs """

_FASTEST = """SELECT number, latency FROM trials WHERE run = ? AND latency IS NOT NULL
    ORDER BY latency, number"""

_COUNTS = """SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM trials),
    (SELECT count(*) FROM best), (SELECT count(*) FROM kernels)"""


class Database:
    """An open database; a context manager that closes it.

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
            read_only: neither make, migrate nor write it.
            timeout_s: how long to wait for another process's write.

        Raises:
            DatabaseError: it cannot be opened, is damaged, of a newer version, or something else.
        """
        if not str(path):
            raise DatabaseError("the name of the database is empty", hint="give a file with --db")
        path = Path(path)
        connection = tables.connect(path, create=create, read_only=read_only, timeout_s=timeout_s)
        return cls(connection, path, read_only=read_only)

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

    # Runs

    def add_run(self, info: RunInfo) -> None:
        """Record a new run, without trials.

        Raises:
            RunError: a run of that id is there; :meth:`next_run_id` gives a free one.
            DatabaseError: the database cannot be written.
        """
        row = row_of(info)
        with self._writing() as connection:
            if _run_text(connection, info.id) is not None:
                hint = f"'autoturbo resume {info.id}' goes on with it"
                raise RunError(f"run {info.id!r} exists already", Location(self.path), hint)
            put(connection, info, row)

    def set_state(self, run: str, state: RunState) -> None:
        """Say what became of a run.

        Raises:
            RunError: no such run.
            DatabaseError: the database cannot be written.
        """
        with self._writing() as connection:
            info = dataclasses.replace(self._run(run), state=state)
            put(connection, info, row_of(info))

    def set_refused(self, run: str, refused: Sequence[Refused]) -> None:
        """Say which trials' schedules failed a check; what was said before is replaced.

        Raises:
            RunError: no such run.
            DatabaseError: the database cannot be written.
        """
        with self._writing() as connection:
            info = dataclasses.replace(self._run(run), refused=tuple(refused))
            put(connection, info, row_of(info))

    def run(self, run_id: str) -> RunInfo:
        """The run of that id, or the one whose id starts so.

        Raises:
            RunError: none or several, and which ones may be meant.
            DatabaseError: the database cannot be read.
        """
        with self._reading():
            return self._run(self._full_id(run_id))

    def runs(self) -> tuple[RunInfo, ...]:
        """All runs, the oldest first.

        Raises:
            DatabaseError: the database cannot be read.
        """
        with self._reading() as connection:
            rows = connection.execute(_RUNS + "ORDER BY created, id").fetchall()
            return tuple(self._info(row) for row in rows)

    def next_run_id(self, base: str) -> str:
        """The first of ``base``, ``base-2``, ``base-3``, ... that no run has.

        Another process may take it before :meth:`add_run`, which then says so.

        Raises:
            DatabaseError: the database cannot be read.
        """
        names = itertools.chain([base], (f"{base}-{number}" for number in itertools.count(2)))
        with self._reading() as connection:
            return next(name for name in names if _run_text(connection, name) is None)

    # Trials

    def add_trials(self, trials: Sequence[TrialRecord]) -> None:
        """Record trials in one transaction; they are durable when this returns.

        A trial that is there already is left as it is.

        Raises:
            RunError: no such run, or a trial of that number with other knobs is there.
            MeasurerError: an outcome that no record may hold (NaN, a latency that is not positive).
            DatabaseError: the database cannot be written.
        """
        rows = [row_of(trial) for trial in trials]
        with self._writing() as connection:
            for run in {trial.run for trial in trials}:
                self._run(run)
            for trial, row in zip(trials, rows, strict=True):
                self._add_trial(connection, trial, row)

    def trials(self, run: str) -> tuple[TrialRecord, ...]:
        """The run's trials by number.

        Raises:
            RunError: no such run.
            DatabaseError: the database cannot be read.
        """
        query = "SELECT record FROM trials WHERE run = ? ORDER BY number"
        with self._reading() as connection:
            self._run(run)
            texts = connection.execute(query, (column(run),)).fetchall()
        return tuple(self._decoded(text, TrialRecord) for (text,) in texts)

    # Best schedules

    def put_best(self, best: BestSchedule) -> bool:
        """Keep the better of this and the one there is for the key; True where it is this one.

        The lower latency is better; of equals the one with the smaller canonical text of the knobs,
        and of one schedule the record of more checks passed.

        Raises:
            MeasurerError: a measurement that no record may hold.
            DatabaseError: the database cannot be written.
        """
        with self._writing() as connection:
            return merge(connection, best, Location(self.path))

    def set_verified(self, key: PairKey, schedule: str, verified: Verified) -> bool:
        """Record that the best schedule passed checks, unless it is known to have passed more.

        Args:
            key: of the schedule.
            schedule: its text; where the best one is another, nothing is recorded.
            verified: what it passed.

        Raises:
            DatabaseError: the database cannot be written.
        """
        with self._writing() as connection:
            found = self._best_of(connection, key)
            if found is None or found.schedule != schedule:
                return False
            new = dataclasses.replace(found, verified=verified)
            return merge(connection, new, Location(self.path))

    def withdraw_best(self, key: PairKey, knobs: Knobs) -> bool:
        """Drop the best schedule if it is the one of a setting: it failed a check.

        Raises:
            DatabaseError: the database cannot be written.
        """
        where, values = misses.condition(dataclasses.asdict(key))
        with self._writing() as connection:
            found = self._best_of(connection, key)
            if found is None or found.knobs != knobs:
                return False
            connection.execute(f"DELETE FROM best {where}", values)  # noqa: S608 (columns)
            return True

    def best(self, **filters: Unpack[BestFilter]) -> tuple[BestSchedule, ...]:
        """The best schedules that match, by model, target and the rest of the key.

        Raises:
            DatabaseError: the database cannot be read.
        """
        where, values = misses.condition(filters)
        order = " ORDER BY model, target, batch, dtype, scheduler_version, graph_hash, target_hash"
        with self._reading() as connection:
            query = f"SELECT record FROM best {where}{order}"  # noqa: S608 (columns)
            texts = connection.execute(query, values).fetchall()
        return tuple(self._decoded(text, BestSchedule) for (text,) in texts)

    def explain_miss(self, **filters: Unpack[BestFilter]) -> str:
        """One line: why :meth:`best` finds nothing, by the record that comes nearest.

        Raises:
            DatabaseError: the database cannot be read.
        """
        with self._reading() as connection:
            return misses.explain(connection, filters)

    # Kernels

    def add_kernels(
        self, times: Mapping[str, float], *, target_hash: str, scheduler_version: str
    ) -> None:
        """Remember measured kernel times in seconds by signature; of two for one, the lower.

        Raises:
            MeasurerError: a time that is not a finite number.
            DatabaseError: the database cannot be written.
        """
        at = Location(self.path)
        with self._writing() as connection:
            for signature, seconds in times.items():
                record = KernelRecord(target_hash, scheduler_version, signature, seconds)
                merge(connection, record, at)

    def kernels(self, *, target_hash: str, scheduler_version: str) -> dict[str, float]:
        """All remembered kernel times of a target, in seconds by signature.

        Raises:
            DatabaseError: the database cannot be read.
        """
        query = """SELECT signature, seconds FROM kernels
            WHERE target_hash = ? AND scheduler_version = ? ORDER BY signature"""
        with self._reading() as connection:
            key = (column(target_hash), column(scheduler_version))
            return dict(connection.execute(query, key).fetchall())

    # The whole

    def export_jsonl(self, path: str | Path) -> Counts:
        """Write all records as JSON lines, one consistent state of the database.

        Raises:
            DatabaseError: the file cannot be written, or the database not be read.
        """
        with self._reading() as connection:
            return exchange.write_lines(connection, Path(path), self.path)

    def import_jsonl(self, path: str | Path) -> ImportResult:
        """Merge an export: the better of two records is kept, nothing else is lost.

        The whole file is checked first, then written in one transaction. The order of imports and
        importing again make no difference.

        Raises:
            DatabaseError: the file is not an export that this version can read, and which line; or
                the database cannot be written.
        """
        path = Path(path)
        with exchange.open_lines(path) as file:
            with self._reading() as connection:
                read = exchange.check_lines(connection, file, path)
            with self._writing() as connection:
                changed = exchange.read_lines(connection, file, path)
        return ImportResult(read, changed)

    def counts(self) -> Counts:
        """How many records of each kind there are.

        Raises:
            DatabaseError: the database cannot be read.
        """
        with self._reading() as connection:
            return Counts(*connection.execute(_COUNTS).fetchone())

    def health(self) -> dict[str, Any]:
        """What ``autoturbo doctor`` shows: ``integrity`` is ``"ok"`` or says what is damaged.

        Raises:
            DatabaseError: the database is too damaged to say.
        """
        with self._reading() as connection:
            found = [text for (text,) in connection.execute("PRAGMA integrity_check(5)")]
            loose = connection.execute("PRAGMA foreign_key_check").fetchall()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        if loose:
            found = [*(t for t in found if t != "ok"), f"{len(loose)} trials without their run"]
        return {
            "path": str(self.path),
            "bytes": self.path.stat().st_size,
            "integrity": " ".join("; ".join(found).split()),
            "user_version": version,
            "journal_mode": journal,
            "sqlite": sqlite3.sqlite_version,
            "counts": dataclasses.asdict(self.counts()),
        }

    # Inside

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
        except sqlite3.Error as error:
            raise explained(error, self.path) from error
        finally:
            _roll_back(connection)

    def _add_trial(
        self, connection: sqlite3.Connection, trial: TrialRecord, row: tuple[Any, ...]
    ) -> None:
        statement = "INSERT INTO trials (run, number, latency, record) VALUES (?, ?, ?, ?)"
        ignore = " ON CONFLICT (run, number) DO NOTHING"
        if connection.execute(statement + ignore, row).rowcount:
            return
        query = "SELECT record FROM trials WHERE run = ? AND number = ?"
        (text,) = connection.execute(query, row[:2]).fetchone()
        if self._decoded(text, TrialRecord).knobs != trial.knobs:
            message = f"trial {trial.number} of run {trial.run!r} is there with other knobs"
            raise RunError(message, Location(self.path), "is the run going on elsewhere?")

    def _best_of(self, connection: sqlite3.Connection, key: PairKey) -> BestSchedule | None:
        where, values = misses.condition(dataclasses.asdict(key))
        query = f"SELECT record FROM best {where}"  # noqa: S608 (columns)
        row = connection.execute(query, values).fetchone()
        return None if row is None else self._decoded(row[0], BestSchedule)

    def _run(self, run: str) -> RunInfo:
        row = self._connection.execute(_RUNS + "WHERE id = ?", (column(run),)).fetchone()
        if row is None:
            raise self._no_run(run)
        return self._info(row)

    def _info(self, row: tuple[Any, ...]) -> RunInfo:
        info = self._decoded(row[0], RunInfo)
        names = ("trials", "best_trial", "best_latency", "default_latency")
        found = dict(zip(names, row[1:], strict=True))
        if info.refused:
            found |= zip(names[1:3], self._best_but(info), strict=True)
        return dataclasses.replace(info, **found)

    def _best_but(self, info: RunInfo) -> tuple[int | None, float | None]:
        """Number and latency of the run's best trial, refused ones left out."""
        refused = {trial.trial for trial in info.refused}
        rows = self._connection.execute(_FASTEST, (column(info.id),))
        return next((row for row in rows if row[0] not in refused), (None, None))

    def _full_id(self, start: str) -> str:
        text = column(start)
        query = "SELECT id FROM runs WHERE substr(id, 1, length(?)) = ? ORDER BY id"
        rows = self._connection.execute(query, (text, text)).fetchall() if text else []
        names = [str(name) for (name,) in rows]
        if text in names or not names:
            return start
        if len(names) > 1:
            message = f"{start!r} is the start of {len(names)} runs"
            hint = f"one of {', '.join(names[:5])}{', ...' if names[5:] else ''}"
            raise RunError(message, Location(self.path), hint)
        return names[0]

    def _no_run(self, run: str) -> RunError:
        names = [name for (name,) in self._connection.execute("SELECT id FROM runs")]
        close = difflib.get_close_matches(run, names, 1)
        hint = f"did you mean {close[0]!r}?" if close else "'autoturbo runs' lists them"
        return RunError(f"no run {run!r}", Location(self.path), hint)

    def _decoded(self, text: str, kind: type[_R]) -> _R:
        record = decode(text, Location(self.path))
        if not isinstance(record, kind):
            message = f"a damaged record: not a {kind.__name__}"
            raise DatabaseError(message, Location(self.path), "restore the file from a copy")
        return record


def _run_text(connection: sqlite3.Connection, run: str) -> str | None:
    row = connection.execute("SELECT record FROM runs WHERE id = ?", (column(run),)).fetchone()
    return None if row is None else str(row[0])


def _roll_back(connection: sqlite3.Connection) -> None:
    """Leave no transaction open, whatever ended the block."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error:
        connection.close()
