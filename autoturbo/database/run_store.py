"""Runs and their trials in an open database."""

from __future__ import annotations

import dataclasses
import itertools
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from autoturbo.database.connection import Connection
from autoturbo.database.holding import hold, is_held
from autoturbo.database.merging import TABLES, column, row_of
from autoturbo.database.records import LIMITS, Refused, RunInfo, RunState, TrialRecord
from autoturbo.errors import DatabaseError, Location, RunError, did_you_mean

_RUNS = """SELECT record,
    (SELECT count(*) FROM trials WHERE run = runs.id),
    (SELECT number FROM trials WHERE run = runs.id AND latency IS NOT NULL
        ORDER BY latency, number LIMIT 1),
    (SELECT min(latency) FROM trials WHERE run = runs.id),
    (SELECT latency FROM trials WHERE run = runs.id AND number = 0)
    FROM runs """

_FASTEST = """SELECT number, latency FROM trials WHERE run = ? AND latency IS NOT NULL
    ORDER BY latency, number"""


_PUT = TABLES[RunInfo].put

_FIGURES = (int, float, type(None))
"""What counts and latencies are; None where there is none."""


class RunStore(Connection):
    """What a database knows of runs."""

    def add_run(self, info: RunInfo) -> None:
        """Record a new run, without trials.

        Raises:
            RunError: a run of that id is there; :meth:`next_run_id` gives a free one.
            DatabaseError: the database cannot be written.
        """
        row = row_of(info)
        with self._writing() as connection:
            if _run_kept(connection, info.id) is not None:
                hint = f"'autoturbo resume {info.id}' goes on with it"
                raise RunError(f"run {info.id!r} exists already", Location(self.path), hint)
            connection.execute(_PUT, row)

    def set_state(self, run: str, state: RunState) -> None:
        """Say what became of a run.

        Raises:
            RunError: no such run.
            DatabaseError: the database cannot be written.
        """
        with self._writing() as connection:
            info = dataclasses.replace(self._run(run), state=state)
            connection.execute(_PUT, row_of(info))

    def set_limits(self, run: str, limits: Mapping[str, Any]) -> None:
        """Record the limits that a run goes on with, over those that it had.

        Args:
            run: its id.
            limits: settings by name.

        Raises:
            RunError: no such run.
            DatabaseError: the database cannot be written.
        """
        with self._writing() as connection:
            info = self._run(run)
            kept = {**info.settings.get(LIMITS, {}), **limits}
            new = dataclasses.replace(info, settings={**info.settings, LIMITS: kept})
            connection.execute(_PUT, row_of(new))

    def set_refused(self, run: str, refused: Sequence[Refused]) -> None:
        """Say which trials' schedules failed a check; what was said before is replaced.

        Raises:
            RunError: no such run.
            DatabaseError: the database cannot be written.
        """
        with self._writing() as connection:
            info = dataclasses.replace(self._run(run), refused=tuple(refused))
            connection.execute(_PUT, row_of(info))

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
            return next(name for name in names if _run_kept(connection, name) is None)

    def holding(self, run: str) -> AbstractContextManager[None]:
        """Be the only process that works on a run, within a ``with`` block.

        Raises:
            RunError: another process does, and which one.
        """
        return hold(self.path, run)

    def state(self, info: RunInfo) -> str:
        """The run's state; ``"killed"`` where it says ``"running"`` and no process works on it."""
        killed = info.state == "running" and is_held(self.path, info.id) is False
        return "killed" if killed else info.state

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
                if _run_kept(connection, run) is None:
                    raise self._no_run(run)
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

    # Inside

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

    def _run(self, run: str) -> RunInfo:
        row = self._connection.execute(_RUNS + "WHERE id = ?", (column(run),)).fetchone()
        if row is None:
            raise self._no_run(run)
        return self._info(row)

    def _info(self, row: tuple[Any, ...]) -> RunInfo:
        info = self._decoded(row[0], RunInfo)
        names = ("trials", "best_trial", "best_latency", "default_latency")
        found = dict(zip(names, row[1:], strict=True))
        if wrong := [name for name, one in found.items() if not isinstance(one, _FIGURES)]:
            message = f"a damaged row of run {info.id}: {wrong[0]} is {found[wrong[0]]!r}"
            raise DatabaseError(message, Location(self.path), "restore the file from a copy")
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
        names = [str(name) for (name,) in self._connection.execute("SELECT id FROM runs")]
        hint = did_you_mean(run, names, "'autoturbo runs' lists them")
        return RunError(f"no run {run!r}", Location(self.path), hint)


def _run_kept(connection: sqlite3.Connection, run: str) -> str | bytes | None:
    """The run's record as its row holds it."""
    row = connection.execute("SELECT record FROM runs WHERE id = ?", (column(run),)).fetchone()
    return None if row is None else row[0]
