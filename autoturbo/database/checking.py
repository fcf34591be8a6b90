"""Checks a database for damage and contradictions.

A row is believed only where its record can be read, its columns say what the record says, and the
record does not contradict itself, its run or its trial.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from autoturbo.database import tables
from autoturbo.database.formats import (
    TABLES,
    Table,
    decode,
    encode,
    merge,
    parse_line,
    row_of,
    unpack,
)
from autoturbo.database.records import (
    OTHER_EVALUATOR,
    BestSchedule,
    HandedOut,
    Record,
    RunInfo,
    TrialRecord,
)
from autoturbo.errors import AutoTurboError, DatabaseError, Location
from autoturbo.files import Kind, Outputs
from autoturbo.registry import SIMULATOR
from autoturbo.simulator.measurement import ROUNDING, Failure, Measurement, Outcome

_MOST = 20
"""Findings that are told one by one."""

_LONGEST_NAME = 80
_MOST_TRIED = 50_000
"""Numbers of rows that are tried one after another where a table cannot be read."""

Simulate = Callable[[BestSchedule | TrialRecord, RunInfo | None], str]
"""Simulates a schedule again, of a run if that is known; says what differs, if anything."""

NOISES = 8.0
"""Times the noise by which a best schedule may be faster than its trial was measured: twice the
four at which a measurement counts as an outlier and is made again."""

_SCHEDULES = ("autoturbo-schedule", "autoturbo-machine-schedule")


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
        connection = tables.connect(path, create=False, read_only=True, timeout_s=30.0)
    except DatabaseError as error:
        if not tables.is_damage(error.__cause__):
            raise
        return DatabaseCheck(0, (error.message,))
    opened: AbstractContextManager[BinaryIO | None] = nullcontext()
    if save is not None:
        opened = Outputs(database=path, force=force).open(save, Kind.RECORDS, DatabaseError)
    try:
        with closing(connection), opened as file:
            return _checked(connection, file)
    except tables.UNREADABLE as error:
        raise tables.explained(error, path) from error


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
    except tables.UNREADABLE as error:
        if not tables.is_damage(error):
            raise
        yield tables.DAMAGED


# Rows


def readable_texts(connection: sqlite3.Connection) -> None:
    """Let a connection return texts that are not UTF-8: they make a row wrong, not all."""
    connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")


def sound_rows(
    connection: sqlite3.Connection, kind: type[Record]
) -> Iterator[tuple[str, Record | None, str]]:
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
            wrong = contradiction(record)
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
        except tables.UNREADABLE as error:
            if not tables.is_damage(error):
                raise
            place, tried, lost = max(place, 0) + 1, tried + 1, True
    if lost:
        yield _lost(connection, table, count)


def _lost(connection: sqlite3.Connection, table: str, read: int) -> str:
    """Return how many rows cannot be read; an index may still know them."""
    try:
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608
    except tables.UNREADABLE:
        return "rows cannot be read"
    return f"{count - read} of {count} rows cannot be read"


def _record_of(kind: type[Record], row: Mapping[str, Any]) -> Record:
    """Decode a row; raises AutoTurboError or ValueError."""
    record = parse_line(unpack(row["record"]).encode(), Location())
    if record is None or type(record) is not kind:
        raise ValueError("its record is one of another table")
    stored = dict(zip(TABLES[kind].columns, row_of(record), strict=True))
    if any(row[name] != stored[name] for name in row if name not in ("record", "decisions")):
        raise ValueError("what is looked up by is not what the record says")
    if row.get("decisions") is not None and row["decisions"] != stored["decisions"]:
        raise ValueError("the decisions beside the record are not the record's")
    return record


def contradiction(record: Record) -> str:
    """Return how a record contradicts itself; empty where it does not."""
    match record:
        case RunInfo():
            return _of_run(record)
        case TrialRecord():
            return _of_measurement(record.outcome)
        case BestSchedule():
            wrong = _of_measurement(record.measurement)
            return wrong or ("" if is_unchecked(record) else _of_schedule(record))


def doubt(connection: sqlite3.Connection, best: BestSchedule) -> str:
    """Return why a best schedule of a database is not handed out; empty where it is."""
    return _of_measurement(best.measurement) or disagreement(connection, best)


def disagreement(connection: sqlite3.Connection, record: Record | None) -> str:
    """Return how a best schedule, or what a run handed out, differs from its own trial.

    Empty where it does not, or where run or trial are not there. Where measurements vary, the
    figure is not its trial's: a race has measured it again. What the run has handed out is believed
    then; of older runs, which do not say, a figure that is slower, or faster by at most
    :data:`NOISES` times the noise.
    """
    match record:
        case BestSchedule():
            return _best_disagrees(connection, record)
        case RunInfo(handed_out=HandedOut() as found):
            trial = there(connection, TrialRecord, record.id, found.trial)
            varies = found.varies and record.settings.get("measurer", SIMULATOR) != SIMULATOR
            if not isinstance(trial, TrialRecord) or varies:
                return ""
            wrong = _differs(found.measurement, trial)
            return f"handed_out.{wrong}" if wrong else ""
        case _:
            return ""


def _best_disagrees(connection: sqlite3.Connection, best: BestSchedule) -> str:
    run = there(connection, RunInfo, best.run)
    trial = there(connection, TrialRecord, best.run, best.trial)
    if isinstance(run, RunInfo) and run.key != best.key:
        return f"run: {best.run} is of another model, target or version"
    if not isinstance(trial, TrialRecord):
        return ""
    if trial.knobs != best.knobs:
        return f"knobs: not those of trial {trial.number} of run {trial.run}"
    if _is_handed_out(run, best) and not disagreement(connection, run):
        return ""
    return _differs(best.measurement, trial)


def _differs(again: Measurement, trial: TrialRecord) -> str:
    """Return how a measurement cannot be of the schedule of a trial."""
    outcome = trial.outcome
    if isinstance(outcome, Measurement) and _may_be(again.latency, outcome):
        return ""
    taken = "has failed" if trial.latency is None else f"took {trial.latency:.6g} s"
    which = f"trial {trial.number} of run {trial.run}"
    return f"measurement.latency: {again.latency:.6g} s, but {which} {taken}"


def _may_be(latency: float, earlier: Measurement) -> bool:
    """Return whether a latency may be of the same schedule as an earlier measurement."""
    if earlier.noise is None:
        return abs(latency - earlier.latency) <= ROUNDING * earlier.latency
    fastest = min(earlier.latency, *earlier.samples, earlier.latency)
    return latency >= fastest * math.exp(-NOISES * abs(earlier.noise)) * (1.0 - ROUNDING)


def simulated_otherwise(latency: float, again: Outcome) -> str:
    """Return what simulating a recorded schedule again contradicts; empty if it gives the same."""
    if isinstance(again, Failure):
        return (
            f"measurement.latency: {latency:.6g} s, but simulated again it fails: {again.message}"
        )
    if _may_be(latency, again):
        return ""
    return (
        f"measurement.latency: {latency:.6g} s, but simulated again it takes {again.latency:.6g} s"
    )


def put_best(
    connection: sqlite3.Connection, best: BestSchedule, at: Location, simulate: Simulate | None
) -> bool:
    """Keep the better one of a best schedule and the recorded one, if that is believed.

    Of two of one run the one that it has handed out last is kept, whatever it takes.

    Args:
        connection: To the database, in a transaction.
        best: The schedule.
        at: The database, for errors.
        simulate: Says what simulating the recorded one again contradicts; not asked if None.

    Returns:
        Whether the new one was written.
    """
    old = there(connection, BestSchedule, *astuple(best.key))
    if not isinstance(old, BestSchedule):
        return merge(connection, best, at)
    if old.run == best.run and (old.trial, old.measurement) != (best.trial, best.measurement):
        run = there(connection, RunInfo, best.run)
        if _is_handed_out(run, best) != _is_handed_out(run, old):
            return _replaced(connection, best) if _is_handed_out(run, best) else False
    if doubt(connection, old) or (simulate is not None and simulate(old, None)):
        return _replaced(connection, best)
    return merge(connection, best, at)


def hand_out_best(
    connection: sqlite3.Connection, best: BestSchedule, at: Location, simulate: Simulate | None
) -> bool:
    """Keep the best schedule that a run hands out now, in place of what it has handed out before.

    Where measurements vary, its last race knows better, whatever the latencies.

    Returns:
        As :func:`put_best`, of the same arguments.
    """
    old = there(connection, BestSchedule, *astuple(best.key))
    own = old if isinstance(old, BestSchedule) and old.run == best.run else best
    if (own.trial, own.measurement) != (best.trial, best.measurement):
        connection.execute(TABLES[BestSchedule].put, row_of(best))
        return True
    return put_best(connection, best, at, simulate)


def there(connection: sqlite3.Connection, kind: type[Record], *key: object) -> Record | None:
    """Return a record by its key; None where there is none that can be read."""
    try:
        row = connection.execute(TABLES[kind].find, key).fetchone()
        return None if row is None else decode(row[0], Location())
    except (DatabaseError, *tables.UNREADABLE) as error:  # a finding of its own
        if isinstance(error, sqlite3.Error) and not tables.is_damage(error):
            raise
        return None


def _replaced(connection: sqlite3.Connection, best: BestSchedule) -> bool:
    connection.execute(TABLES[BestSchedule].put, row_of(best))
    return True


def _is_handed_out(run: Record | None, best: BestSchedule) -> bool:
    """Return whether a run says that it handed this out, measured as the record says."""
    found = run.handed_out if isinstance(run, RunInfo) else None
    if found is None:
        return False
    return (found.trial, found.measurement.latency) == (best.trial, best.measurement.latency)


def is_unchecked(record: Record) -> bool:
    """Return whether a record's schedule is a text that only its own evaluator can read."""
    if not isinstance(record, BestSchedule):
        return False
    other = record.key.free.scheduler_version.endswith(OTHER_EVALUATOR)
    return other and not any(name in record.schedule for name in _SCHEDULES)


def _of_run(info: RunInfo) -> str:
    """Return a message if a run names another pair than its key, or hands out the impossible."""
    for name in ("graph_hash", "target_hash", "dtype", "scheduler_version"):
        given = info.settings.get(name)
        if given is not None and given != getattr(info.key, name):
            return f"settings.{name}: not that of the run's key"
    if info.handed_out is not None and (wrong := _of_measurement(info.handed_out.measurement)):
        return f"handed_out.{wrong}"
    return ""


def _of_measurement(outcome: object) -> str:
    """Return what is impossible in a measurement, such as a latency below the lower bound."""
    if not isinstance(outcome, Measurement):
        return ""
    if not all(map(math.isfinite, outcome.kernel_times.values())):
        return "measurement.kernel_times: not finite"
    if min(outcome.kernel_times.values(), default=0.0) < 0:
        return "measurement.kernel_times: below 0 seconds"
    if outcome.latency < outcome.bound.seconds * (1.0 - ROUNDING):
        return f"measurement.latency: below the lower bound of {outcome.bound.seconds:.6g} s"
    return ""


def _of_schedule(best: BestSchedule) -> str:
    """Return a message if a schedule is of another pair or of other knobs."""
    try:
        document = json.loads(best.schedule)
        if document.get("format") not in _SCHEDULES:
            return "schedule: not a schedule file's text"
        model, target = document["model"]["hash"], document["target"]["hash"]
        pair = (model, target, document["dtype"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "schedule: not a schedule file's text"
    key = best.key
    if pair != (key.graph_hash, key.target_hash, key.dtype):
        return "schedule: of another model, target or data type than the key"
    knobs = document.get("knobs")
    if knobs is not None and knobs != json.loads(best.knobs.canonical()):
        return "schedule: of other knobs than the record's"
    return ""
