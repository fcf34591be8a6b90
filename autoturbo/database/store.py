"""The tuned-schedule database: one SQLite file that several processes may write.

What a method has written when it returns survives the end of the process, a ``kill -9`` and, on
disks that keep their word, a power loss (docs/decisions/0004-database.md). A connection belongs to
the thread and the process that opened it: open another one elsewhere.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack

from autoturbo.database import exchange
from autoturbo.database.checking import structure
from autoturbo.database.formats import values_of
from autoturbo.database.merging import TABLES, column, merge
from autoturbo.database.records import (
    BestSchedule,
    Counts,
    Decided,
    ImportResult,
    KernelRecord,
    PairKey,
    Verified,
)
from autoturbo.database.run_store import RunStore
from autoturbo.errors import Location
from autoturbo.outputs import Outputs
from autoturbo.schedule.knobs import Knobs


class BestFilter(TypedDict, total=False):
    """What to look for among the best schedules; what is left out or None matches everything."""

    graph_hash: str | None
    target_hash: str | None
    dtype: str | None
    scheduler_version: str | None
    model: str | None
    target: str | None
    batch: int | None


_MOST_FINDINGS = 5

_COUNTS = """SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM trials),
    (SELECT count(*) FROM best), (SELECT count(*) FROM kernels)"""


class Database(RunStore):
    """An open database; a context manager that closes it."""

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
        where, values = _where(key.as_dict())
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
        where, values = _where(filters)
        order = " ORDER BY model, target, batch, dtype, scheduler_version, graph_hash, target_hash"
        with self._reading() as connection:
            query = f"SELECT record FROM best {where}{order}"  # noqa: S608 (columns)
            texts = connection.execute(query, values).fetchall()
        return tuple(self._decoded(text, BestSchedule) for (text,) in texts)

    def explain_miss(self, **filters: Unpack[BestFilter]) -> str:
        """One line: what of the filters no best schedule has, where :meth:`best` finds nothing.

        Raises:
            DatabaseError: the database cannot be read.
        """
        with self._reading() as connection:
            if not _has_best(connection, {}):
                return "the database holds no best schedule yet; 'autoturbo tune' finds one"
            asked = {name: value for name, value in filters.items() if value is not None}
            absent = [f"{n} {v!r}" for n, v in asked.items() if not _has_best(connection, {n: v})]
        lacks = ", ".join(absent) or "all that together"
        return f"nothing matches: the database has no best schedule of {lacks}"

    def decisions(
        self, *, target_hash: str, dtype: str, scheduler_version: str
    ) -> tuple[Decided, ...]:
        """What the best schedules for a target decided, those that say it.

        Nothing else of their records is read.

        Raises:
            DatabaseError: the database cannot be read.
        """
        asked = BestFilter(
            target_hash=target_hash, dtype=dtype, scheduler_version=scheduler_version
        )
        where, values = _where(asked)
        order = " ORDER BY model, target, batch, graph_hash"
        with self._reading() as connection:
            own = "decisions" if "decisions" in TABLES[BestSchedule].there(connection) else "NULL"
            columns = f"graph_hash, model, run, trial, {own}, rowid"
            query = f"SELECT {columns} FROM best {where}{order}"  # noqa: S608 (columns)
            rows = connection.execute(query, values).fetchall()
            found = [
                Decided(graph, model, self._decisions(connection, own, row), run, trial)
                for graph, model, run, trial, own, row in rows
            ]
        return tuple(one for one in found if one.decisions)

    def _decisions(
        self, connection: sqlite3.Connection, kept: bytes | None, row: int
    ) -> Mapping[str, Any]:
        """Of a column, or, where an earlier version wrote the row, of the record."""
        if kept is None:
            query = "SELECT record FROM best WHERE rowid = ?"
            (record,) = connection.execute(query, (row,)).fetchone()
            return self._decoded(record, BestSchedule).decisions
        return values_of(kept, Location(self.path)) if kept else {}

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

    def export(self, path: str | Path, *, best_only: bool = False, force: bool = False) -> Counts:
        """Write all records, one consistent state of the database.

        A name that ends in ``.parquet`` gives a Parquet file, ``.db`` or ``.sqlite`` a database
        that is compact and can be read where nothing can be written, any other JSON lines.

        Args:
            path: the file to write.
            best_only: leave out runs, trials and kernel times.
            force: replace a file of another kind; never the database.

        Raises:
            DatabaseError: the file cannot be written, or the database not be read, or what is there
                may not be replaced.
            UsageError: Parquet files cannot be written here.
        """
        with self._reading() as connection:
            outputs = Outputs(database=self.path, force=force)
            return exchange.write(connection, Path(path), outputs, best_only=best_only)

    def take_in(self, path: str | Path) -> ImportResult:
        """Merge an export or another database, whichever the file is.

        The better of two records is kept, nothing else is lost. Of an export all or nothing: one
        record that is wrong and nothing is written. Of a database, rows that cannot be read or that
        contradict themselves are left out, and the result names them. The order in which files are
        taken in and taking them in again make no difference.

        Raises:
            DatabaseError: the file is none that this version can read, and which record; or the
                database cannot be written.
            UsageError: Parquet files cannot be read here.
        """
        with exchange.opened(Path(path), self.path) as merge_into, self._writing() as connection:
            return merge_into(connection)

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
            found = list(structure(connection)) or ["ok"]
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        return {
            "path": str(self.path),
            "bytes": self.path.stat().st_size,
            "integrity": "; ".join(found[:_MOST_FINDINGS]),
            "user_version": version,
            "journal_mode": journal,
            "sqlite": sqlite3.sqlite_version,
            "counts": dataclasses.asdict(self.counts()),
        }

    # Inside

    def _best_of(self, connection: sqlite3.Connection, key: PairKey) -> BestSchedule | None:
        where, values = _where(key.as_dict())
        query = f"SELECT record FROM best {where}"  # noqa: S608 (columns)
        row = connection.execute(query, values).fetchone()
        return None if row is None else self._decoded(row[0], BestSchedule)


def _where(filters: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """The WHERE clause of the filters that are not None, and its values.

    Raises:
        TypeError: a filter that there is not.
    """
    known = tuple(BestFilter.__annotations__)
    if unknown := sorted(set(filters) - set(known)):
        raise TypeError(f"no filter {unknown[0]!r}; there are {', '.join(known)}")
    asked = {name: value for name, value in filters.items() if value is not None}
    clause = " AND ".join(f"{name} = ?" for name in asked)
    values = (column(one) if isinstance(one, str) else one for one in asked.values())
    return (f"WHERE {clause}" if clause else ""), tuple(values)


def _has_best(connection: sqlite3.Connection, filters: Mapping[str, Any]) -> bool:
    where, values = _where(filters)
    query = f"SELECT 1 FROM best {where} LIMIT 1"  # noqa: S608 (columns)
    return connection.execute(query, values).fetchone() is not None
