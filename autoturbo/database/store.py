"""The tuned-schedule database: one SQLite file that several processes may write.

What a method has written when it returns survives the end of the process, a ``kill -9`` and, on
disks that keep their word, a power loss (docs/decisions/database.md). A connection belongs to
the thread and the process that opened it: open another one elsewhere.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import shlex
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

from autoturbo.database import exporting, importing, merging, opening
from autoturbo.database.believing import Simulate, doubt, hand_out_best
from autoturbo.database.checking import structure
from autoturbo.database.formats import R, decode_as, read
from autoturbo.database.holding import hold, is_held
from autoturbo.database.misses import Miss, find_miss
from autoturbo.database.records import (
    DERIVED,
    LIMITS,
    BestSchedule,
    Counts,
    Decided,
    HandedOut,
    ImportResult,
    PairKey,
    RefusedTrial,
    RunInfo,
    RunState,
    TrialRecord,
    Verified,
)
from autoturbo.database.rows import TABLES, column, has_run, merge, row_of
from autoturbo.database.waiting import GONE, LOCKED, Place, Waiting
from autoturbo.errors import DatabaseError, Location, RunError, did_you_mean
from autoturbo.files import Outputs, check_writable
from autoturbo.registry import HEURISTIC
from autoturbo.schedule.knobs import Knobs

LOG = logging.getLogger("autoturbo")

_RUNS = """SELECT record,
    (SELECT count(*) FROM trials WHERE run = runs.id),
    (SELECT number FROM trials WHERE run = runs.id AND latency IS NOT NULL
        ORDER BY latency, number LIMIT 1),
    (SELECT min(latency) FROM trials WHERE run = runs.id),
    (SELECT latency FROM trials WHERE run = runs.id AND number = 0)
    FROM runs """

_FASTEST = """SELECT number, latency FROM trials WHERE run = ? AND latency IS NOT NULL
    ORDER BY latency, number"""


_FIGURES = (int, float, type(None))
"""What counts and latencies are; None where there is none."""

_MOST_FINDINGS = 5

PATIENCE_MS, LAST_MS = 5_000, 30_000
"""For how long a run waits for the lock: while it measures, and at its end."""

_SHRINK_EVERY_S = 1.0
"""Seconds after which a run empties the log of its database again."""

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

_COUNTS = """SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM trials),
    (SELECT count(*) FROM best)"""


class BestFilter(TypedDict, total=False):
    """A filter of best schedules; a field that is left out or None matches everything."""

    graph_hash: str | None
    target_hash: str | None
    dtype: str | None
    scheduler_version: str | None
    model: str | None
    target: str | None
    batch: int | None


class Database:
    """An open database; a context manager that closes it.

    Whatever reads or writes raises a DatabaseError where the database cannot be read or written.

    Attributes:
        path: The file as the user named it.
        read_only: Nothing may be written.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self._own = connection
        self._place = Place(path)
        self._kept: dict[str, tuple[RunInfo, Path]] = {}
        self._waiting: Waiting | None = None
        self._settled = False
        self._shrunk = 0.0

    @property
    def _connection(self) -> sqlite3.Connection:
        """Return the connection to what is read and written now."""
        return self._own if self._waiting is None else self._waiting.connection

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
            path: The file.
            create: Make it where there is none.
            read_only: Neither make, migrate nor write it; the file and its folder may be ones that
                cannot be written.
            timeout_s: How long to wait for another process's write.

        Returns:
            The open database; :meth:`close`, or the end of a ``with`` block, closes it.

        Raises:
            DatabaseError: It cannot be opened, is damaged, of a newer version, or something else.
        """
        path = _named(path)
        connection = opening.connect(path, create=create, read_only=read_only, timeout_s=timeout_s)
        return cls(connection, path, read_only=read_only)

    @classmethod
    def check_place(cls, path: str | Path) -> None:
        """Raise the errors of opening a file to write, before the work; no file is made.

        Raises:
            DatabaseError: As :meth:`open`.
        """
        path = _named(path)
        if path.is_file() and path.stat().st_size:
            cls.open(path).close()
            return
        opening.check_place(path, create=True)
        try:
            check_writable(path, DatabaseError)
        except DatabaseError:
            message = "the database cannot be opened"
            raise DatabaseError(message, Location(path), opening.WRITABLE) from None

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self.settle()
        self._kept.clear()
        self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What cannot be written while runs go on

    def keep(self, info: RunInfo, file: Path) -> None:
        """Let the records of a run wait in a file where they cannot be written here.

        From now on nothing that is written to it fails because somebody holds the lock for long, or
        because the database is removed or replaced by another.

        Args:
            info: The run, which this process works on.
            file: Has the form of an export; it is made when it is needed.
        """
        self._kept[info.id] = info, file
        if self._waiting is not None:
            self._waiting.add(info, file)
            return
        self._own.execute(f"PRAGMA busy_timeout = {PATIENCE_MS}")
        self._place.look()

    def take_unsaved(self, file: Path) -> None:
        """Take in the file that :meth:`keep` left where the process was killed; it is removed."""
        if file.is_file():
            self.take_in(file)
            file.unlink()

    def settle(self) -> None:
        """Wait for the lock once more where records wait, and say what is not stored then."""
        if self._waiting is None or self._settled:
            return
        self._store_waiting(LAST_MS)
        self._settled = True
        if self._waiting is not None and not self._waiting.is_gone:
            self._tell()

    def unsaved(self, run: str) -> str:
        """Return what was not recorded of a run, and the command that does; empty if all was."""
        if self._waiting is None or run not in self._waiting.files:
            return ""
        why = GONE if self._waiting.is_gone else LOCKED
        words = ["autoturbo", "db", "import", str(self._waiting.files[run]), "--db", str(self.path)]
        return f"{self.path}: {why}; '{shlex.join(words)}' stores what run {run} measured"

    def _begun(self) -> bool:
        """Begin to write; return False where the file is gone or its lock stays held."""
        if self._place.is_gone:
            return False
        try:
            self._own.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if opening.code_of(error) not in _BUSY:
                raise opening.explained(error, self.path) from error
            return False
        return True

    def _wait(self) -> None:
        """Let all records of the runs wait from now on, and say so."""
        is_gone = self._place.is_gone
        self._waiting = Waiting(self._own, self._kept, is_gone=is_gone)
        if is_gone:
            self._place.forsake()
            self._own.close()
        self._tell()

    def _tell(self) -> None:
        for run in self._kept:
            LOG.warning("%s", self.unsaved(run))

    def _store_waiting(self, patience_ms: int = 0) -> None:
        """Write the records that wait, if nobody holds the lock any more."""
        waiting = self._waiting
        if waiting is None or waiting.is_gone:
            return
        self._own.execute(f"PRAGMA busy_timeout = {patience_ms}")
        if self._place.is_gone:
            waiting.is_gone = True
            self._place.forsake()
        elif self._begun():
            with opening.transaction(self._own, None):
                waiting.store(self._own, Location(self.path))
            self._waiting = None
            waiting.forget()
            LOG.warning("%s: the lock is free, and all that was measured is stored", self.path)
        self._own.execute(f"PRAGMA busy_timeout = {PATIENCE_MS}")

    def _shrink_log(self) -> None:
        """Leave nothing in the log, which would be applied to a file that takes this one's place.

        Where others read at this moment, it stays until the next time.
        """
        if time.monotonic() - self._shrunk > _SHRINK_EVERY_S:
            self._shrunk = time.monotonic()
            self._own.execute("PRAGMA busy_timeout = 0")
            with suppress(sqlite3.Error):
                self._own.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._own.execute(f"PRAGMA busy_timeout = {PATIENCE_MS}")

    # Runs

    def add_run(self, info: RunInfo) -> None:
        """Record a new run, without trials.

        Raises:
            RunError: A run of that id is there; :meth:`next_run_id` gives a free one.
        """
        row = row_of(info)
        with self._writing() as connection:
            if has_run(connection, info.id):
                hint = f"'autoturbo resume {info.id}' goes on with it"
                raise RunError(f"run {info.id!r} exists already", Location(self.path), hint)
            connection.execute(TABLES[RunInfo].put, row)

    def set_state(self, run: str, state: RunState) -> None:
        """Record the state of a run.

        Raises:
            RunError: No such run.
        """
        with self._writing():
            self._change(self._run(run), state=state)

    def set_limits(self, run: str, limits: Mapping[str, Any]) -> None:
        """Record the limits of a resumed run, over those that it had.

        Args:
            run: Its id.
            limits: Settings by name.

        Raises:
            RunError: No such run.
        """
        with self._writing():
            info = self._run(run)
            merged = {**info.settings.get(LIMITS, {}), **limits}
            self._change(info, settings={**info.settings, LIMITS: merged})

    def set_refused(self, run: str, refused: Sequence[RefusedTrial]) -> None:
        """Record the trials whose schedules failed a check, in place of those recorded before.

        Raises:
            RunError: No such run.
        """
        with self._writing():
            self._change(self._run(run), refused=tuple(refused))

    def set_lacking(self, run: str, lacking: Mapping[str, str]) -> None:
        """Record why bases of comparison are not complete, in place of what was recorded before.

        Raises:
            RunError: No such run.
        """
        with self._writing():
            self._change(self._run(run), lacking=dict(lacking))

    def hand_out(self, run: str, handed: HandedOut, state: RunState) -> None:
        """Record what a run handed out, and its state.

        Raises:
            RunError: No such run.
            MeasurerError: A measurement that no record may hold.
        """
        with self._writing():
            self._change(self._run(run), handed_out=handed, state=state)

    def run(self, run_id: str) -> RunInfo:
        """Return the run of an id, of the start of one, or of a run folder's name or path.

        Raises:
            RunError: None or several, and which ones may be meant.
        """
        with self._reading():
            return self._run(self._full_id(run_id))

    def runs(self, told: Callable[[str], None] | None = None) -> tuple[RunInfo, ...]:
        """Return all runs whose records can be read, the oldest first.

        Args:
            told: Is called with a line for each of the others.
        """
        found = []
        with self._reading() as connection:
            names = connection.execute("SELECT id FROM runs ORDER BY created, id").fetchall()
            rows = connection.execute(_RUNS + "ORDER BY created, id").fetchall()
            for (name,), row in zip(names, rows, strict=True):
                try:
                    found.append(self._info(row, name))
                except DatabaseError as error:
                    if told:
                        told(str(error))
        return tuple(found)

    def next_run_id(self, base: str) -> str:
        """Return the first of ``base``, ``base-2``, ``base-3``, ... that no run has.

        Another process may take it before :meth:`add_run`, which then says so.
        """
        names = itertools.chain([base], (f"{base}-{number}" for number in itertools.count(2)))
        with self._reading() as connection:
            return next(name for name in names if not has_run(connection, name))

    def holding(self, run: str) -> AbstractContextManager[None]:
        """Hold a run: this process alone works on it within a ``with`` block.

        Returns:
            A context manager that holds the run while its block runs.

        Raises:
            RunError: Another process does, and which one.
        """
        return hold(self.path, run)

    def state(self, info: RunInfo) -> str:
        """Return the run's state; ``"killed"`` if ``"running"`` and no process works on it."""
        killed = info.state == "running" and is_held(self.path, info.id) is False
        return "killed" if killed else info.state

    # Trials

    def add_trials(self, trials: Sequence[TrialRecord]) -> None:
        """Record trials in one transaction; they are durable when this returns.

        A trial that is there already is left as it is.

        Raises:
            RunError: No such run, or a trial of that number with other knobs is there.
            MeasurerError: An outcome that no record may hold (NaN, a latency that is not positive).
        """
        rows = [row_of(trial) for trial in trials]
        with self._writing() as connection:
            for run in {trial.run for trial in trials}:
                if not has_run(connection, run):
                    raise self._no_run(run)
            for trial, row in zip(trials, rows, strict=True):
                self._add_trial(connection, trial, row)

    def trials(self, run: str, numbers: Collection[int] | None = None) -> tuple[TrialRecord, ...]:
        """Return the run's trials by number.

        Args:
            run: Id of the run.
            numbers: Those that are wanted, a few hundred at most; None for all.

        Raises:
            RunError: No such run.
        """
        wanted = "" if numbers is None else f"AND number IN ({', '.join('?' for _ in numbers)}) "
        query = f"SELECT number, record FROM trials WHERE run = ? {wanted}ORDER BY number"  # noqa: S608
        with self._reading() as connection:
            self._run(run)
            rows = connection.execute(query, (column(run), *(numbers or ()))).fetchall()
        return tuple(self._decoded(r, TrialRecord, f"trial {n} of run {run}") for n, r in rows)

    def latencies(self, run: str) -> tuple[tuple[int, float | None], ...]:
        """Return the number and the seconds of each of the run's trials; None for a failed one.

        Of thousands of trials this takes milliseconds: no record is read.
        """
        query = "SELECT number, latency FROM trials WHERE run = ? ORDER BY number"
        with self._reading() as connection:
            rows: list[tuple[int, float | None]] = connection.execute(
                query, (column(run),)
            ).fetchall()
        return tuple(rows)

    # Best schedules

    def put_best(self, best: BestSchedule, simulate: Simulate | None = None) -> bool:
        """Keep the better one of this schedule and the recorded one.

        The lower latency is better; of equals the one with the smaller canonical text of the knobs,
        and of one schedule the record of more checks passed. What the same run has handed out
        before is replaced, and what is not believed.

        Args:
            best: The schedule.
            simulate: Says what simulating the recorded one again contradicts; not asked if None.

        Returns:
            Whether this one was kept.

        Raises:
            MeasurerError: A measurement that no record may hold.
        """
        with self._writing() as connection:
            return hand_out_best(connection, best, Location(self.path), simulate)

    def set_verified(self, key: PairKey, schedule: str, verified: Verified) -> bool:
        """Record that the best schedule passed checks, unless it is known to have passed more.

        Args:
            key: Of the schedule.
            schedule: Its text; where the best one is another, nothing is recorded.
            verified: What it passed.

        Returns:
            Whether it was recorded; False also where more checks are on record.
        """
        with self._writing() as connection:
            matching = self._matching(connection, key.as_dict())
            if not matching or matching[0].schedule != schedule:
                return False
            new = dataclasses.replace(matching[0], verified=verified)
            return merge(connection, new, Location(self.path))

    def withdraw_best(self, key: PairKey, knobs: Knobs) -> bool:
        """Drop the best schedule if it is that of a candidate, which failed a check."""
        where, values = _where(key.as_dict())
        with self._writing() as connection:
            matching = self._matching(connection, key.as_dict())
            if not matching or matching[0].knobs != knobs:
                return False
            connection.execute(f"DELETE FROM best {where}", values)  # noqa: S608 (columns)
            return True

    def best(self, **filters: Unpack[BestFilter]) -> tuple[BestSchedule, ...]:
        """Return the best schedules that match, by model, target and the rest of the key.

        Those that are not believed are left out; see :meth:`doubted`.
        """
        with self._reading() as connection:
            return tuple(b for b in self._matching(connection, filters) if not doubt(connection, b))

    def doubted(self, **filters: Unpack[BestFilter]) -> tuple[str, ...]:
        """Return a line on each best schedule that matches and is not believed, and why.

        Such a one is faster than its lower bound, or contradicts its own trial.
        """
        with self._reading() as connection:
            matching = self._matching(connection, filters)
            reasons = ((best, doubt(connection, best)) for best in matching)
            return tuple(f"{b.model} on {b.target}: {why}" for b, why in reasons if why)

    def explain_miss(self, named: BestFilter | None = None, **filters: Unpack[BestFilter]) -> Miss:
        """Return why no best schedule matches, and what others of the same model there are.

        Args:
            named: What people call it, said in place of hashes; as the filters if None.
            **filters: What none matches.
        """
        if doubted := self.doubted(**filters):
            why = f"a new 'tune' replaces it: {doubted[0]}"
            return Miss(f"the best schedule is not believed, and {why}")
        with self._reading() as connection:
            return find_miss(connection, filters, filters if named is None else named)

    def decisions(
        self, *, target_hash: str, dtype: str, scheduler_version: str
    ) -> tuple[Decided, ...]:
        """Return the recorded decisions of the best schedules for a target.

        Nothing else of their records is read.
        """
        asked = BestFilter(
            target_hash=target_hash, dtype=dtype, scheduler_version=scheduler_version
        )
        where, values = _where(asked)
        order = " ORDER BY model, target, batch, graph_hash"
        with self._reading() as connection:
            column = (
                "decisions" if "decisions" in TABLES[BestSchedule].there(connection) else "NULL"
            )
            old = f"CASE WHEN {column} IS NULL THEN record END"
            columns = f"graph_hash, model, run, trial, {column}, {old}"
            query = f"SELECT {columns} FROM best {where}{order}"  # noqa: S608 (columns)
            rows = connection.execute(query, values).fetchall()
        decided = (
            Decided(graph, model, self._decisions(kept, record), run, trial)
            for graph, model, run, trial, kept, record in rows
        )
        return tuple(entry for entry in decided if entry.decisions)

    def _decisions(self, kept: bytes | None, record: str | bytes) -> Mapping[str, Any]:
        """Return the decisions from their column, or from the record of an earlier version."""
        if kept is None:
            return self._decoded(record, BestSchedule).decisions
        return read(kept, Location(self.path), json.loads) if kept else {}

    # The whole

    def export(self, path: str | Path, *, best_only: bool = False, force: bool = False) -> Counts:
        """Write all records, one consistent state of the database.

        A name that ends in ``.jsonl``, or in nothing, gives JSON lines; ``.db`` or ``.sqlite`` a
        database that is compact and can be read where nothing can be written.

        Args:
            path: The file to write.
            best_only: Leave out runs and trials.
            force: Replace a file of another kind; never the database.

        Returns:
            The number of records written, of each kind.

        Raises:
            DatabaseError: The file cannot be written, or the database not be read, or what is there
                may not be replaced.
            UsageError: The name has another ending.
        """
        with self._reading() as connection:
            outputs = Outputs(database=self.path, force=force)
            return exporting.write(connection, Path(path), outputs, best_only)

    def take_in(self, path: str | Path, simulate: Simulate | None = None) -> ImportResult:
        """Merge an export or another database, whichever the file is.

        The better of two records is kept, nothing else is lost. A run whose id another run has here
        is taken in under a free one. Of an export all or nothing: one record that is wrong and
        nothing is written. Of a database, rows that cannot be read or that contradict themselves
        are left out; of either, what contradicts its own trial or what simulating gives. The result
        names them. The order in which files are taken in and taking them in again make no
        difference, but for the ids of such runs.

        Args:
            path: The file.
            simulate: Says what simulating a new record again contradicts; not asked if None.

        Returns:
            How many records were read, changed or left out, and what is wrong with the first of
            those left out.

        Raises:
            DatabaseError: The file is none that this version can read, and which record; or the
                database cannot be written.
        """
        with importing.opened(Path(path), self.path) as source:
            doubts: merging.Doubts = {}
            if simulate is not None:  # before the database is locked: it takes its time
                with self._reading() as connection:
                    doubts = merging.doubted(connection, source, simulate)
            with self._writing() as connection:
                return merging.taken_in(connection, source, doubts)

    def counts(self) -> Counts:
        """Return the number of records of each kind."""
        with self._reading() as connection:
            return Counts(*connection.execute(_COUNTS).fetchone())

    def health(self) -> dict[str, Any]:
        """Return the report of ``autoturbo doctor``; ``integrity`` is ``"ok"`` or names the damage.

        Raises:
            DatabaseError: The database is too damaged to say.
        """
        with self._reading() as connection:
            findings = list(structure(connection)) or ["ok"]
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        return {
            "path": str(self.path),
            "bytes": self.path.stat().st_size,
            "integrity": "; ".join(findings[:_MOST_FINDINGS]),
            "user_version": version,
            "journal_mode": journal,
            "sqlite": sqlite3.sqlite_version,
            "counts": dataclasses.asdict(self.counts()),
        }

    # Inside

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """Begin a transaction on one consistent state, with SQLite's errors as ours."""
        return self._transaction("BEGIN")

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Begin an atomic, durable transaction, after waiting for other writers.

        Where records of runs wait, or have to from now on, it is one of a temporary database, whose
        records are in the runs' files when it ends.

        Yields:
            The connection.

        Raises:
            DatabaseError: Nothing may be written.
        """
        if self.read_only:
            raise DatabaseError("the database is open for reading only", Location(self.path))
        if not self._kept:
            with self._transaction("BEGIN IMMEDIATE") as connection:
                yield connection
            return
        self._store_waiting()
        begin = None
        if self._waiting is None and not self._begun():
            self._wait()
        if self._waiting is not None:
            begin = "BEGIN"
        with self._transaction(begin) as connection:
            yield connection
        if self._waiting is not None:
            self._waiting.write()
        elif self._place.is_gone:  # since it was begun: it went to a file that nobody finds
            self._wait()
        else:
            self._shrink_log()

    @contextmanager
    def _transaction(self, begin: str | None) -> Iterator[sqlite3.Connection]:
        try:
            with opening.transaction(self._connection, begin):
                yield self._connection
        except opening.UNREADABLE as error:
            raise opening.explained(error, self.path) from error

    def _decoded(self, kept: str | bytes, kind: type[R], name: str = "") -> R:
        return decode_as(kept, kind, Location(self.path, field=name or None))

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

    def _change(self, info: RunInfo, **changes: Any) -> None:
        row = row_of(dataclasses.replace(info, **changes))
        self._connection.execute(TABLES[RunInfo].put, row)

    def _run(self, run: str) -> RunInfo:
        row = self._connection.execute(_RUNS + "WHERE id = ?", (column(run),)).fetchone()
        if row is None:
            raise self._no_run(run)
        return self._info(row, run)

    def _info(self, row: tuple[Any, ...], name: str) -> RunInfo:
        info = self._decoded(row[0], RunInfo, f"run {name}")
        figures = dict(zip(DERIVED, row[1:], strict=True))
        if wrong := [name for name, value in figures.items() if not isinstance(value, _FIGURES)]:
            message = f"a damaged row of run {info.id}: {wrong[0]} is {figures[wrong[0]]!r}"
            raise DatabaseError(message, Location(self.path), opening.CHECK)
        if info.refused:
            figures |= zip(DERIVED[1:3], self._best_but(info), strict=True)
        if info.refuses(0) or HEURISTIC in info.lacking:
            figures[DERIVED[3]] = None
        if (handed := info.handed_out) is not None:
            base = handed.heuristic and handed.heuristic.latency
            figures |= zip(
                DERIVED[1:], (handed.trial, handed.measurement.latency, base), strict=True
            )
        return dataclasses.replace(info, **figures)

    def _best_but(self, info: RunInfo) -> tuple[int | None, float | None]:
        """Return the number and latency of the run's best trial, without refused ones."""
        refused = {trial.trial for trial in info.refused}
        rows = self._connection.execute(_FASTEST, (column(info.id),))
        return next((row for row in rows if row[0] not in refused), (None, None))

    def _full_id(self, start: str) -> str:
        text = column(start)
        query = "SELECT id FROM runs WHERE substr(id, 1, length(?)) = ? ORDER BY id"
        rows = self._connection.execute(query, (text, text)).fetchall() if text else []
        names = [str(name) for (name,) in rows]
        if not names:
            return self._of_folder(start)
        if text in names:
            return start
        if len(names) > 1:
            message = f"{start!r} is the start of {len(names)} runs"
            hint = f"one of {', '.join(names[:5])}{', ...' if names[5:] else ''}"
            raise RunError(message, Location(self.path), hint)
        return names[0]

    def _of_folder(self, path: str) -> str:
        """Return the id at the end of a run folder's name, as the folder of a run has it."""
        query = "SELECT id FROM runs WHERE ? LIKE '%-' || id ORDER BY length(id) DESC LIMIT 1"
        row = self._connection.execute(query, (column(Path(path).name),)).fetchone()
        return str(row[0]) if row else path

    def _no_run(self, run: str) -> RunError:
        names = [str(name) for (name,) in self._connection.execute("SELECT id FROM runs")]
        hint = did_you_mean(run, names, "'autoturbo runs' lists them")
        return RunError(f"no run {run!r}", Location(self.path), hint)

    def _matching(
        self, connection: sqlite3.Connection, filters: Mapping[str, Any]
    ) -> tuple[BestSchedule, ...]:
        where, values = _where(filters)
        order = " ORDER BY model, target, batch, dtype, scheduler_version, graph_hash, target_hash"
        rows = connection.execute(f"SELECT record FROM best {where}{order}", values)  # noqa: S608
        return tuple(self._decoded(text, BestSchedule) for (text,) in rows)


def _named(path: str | Path) -> Path:
    if not str(path):
        raise DatabaseError("the name of the database is empty", hint="give a file with --db")
    return Path(path)


def _where(filters: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """Return the WHERE clause of the filters that are not None, and its values.

    Raises:
        TypeError: A filter that there is not.
    """
    known = tuple(BestFilter.__annotations__)
    if unknown := sorted(set(filters) - set(known)):
        raise TypeError(f"no filter {unknown[0]!r}; there are {', '.join(known)}")
    asked = {name: value for name, value in filters.items() if value is not None}
    clause = " AND ".join(f"{name} = ?" for name in asked)
    values = (column(one) if isinstance(one, str) else one for one in asked.values())
    return (f"WHERE {clause}" if clause else ""), tuple(values)
