"""What is believed of a record: what contradicts neither itself, nor its trial, nor the simulator.

A best schedule that is not believed is not handed out, and the next one replaces it.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace

from autoturbo.database import opening
from autoturbo.database.formats import R, decode_as
from autoturbo.database.records import (
    OTHER_EVALUATOR,
    BestSchedule,
    HandedOut,
    Record,
    RunInfo,
    TrialRecord,
)
from autoturbo.database.rows import TABLES, merge, row_of
from autoturbo.errors import DatabaseError, Location
from autoturbo.registry import SIMULATOR
from autoturbo.simulator.measurement import ROUNDING, Failure, Measurement, Outcome

Simulate = Callable[[BestSchedule | TrialRecord, RunInfo | None], str]
"""Simulates a schedule again, of a run if that is known; says what differs, if anything."""

NOISES = 8.0
"""Times the noise by which a best schedule may be faster than its trial was measured: twice the
four at which a measurement counts as an outlier and is made again."""

_SCHEDULES = ("autoturbo-schedule", "autoturbo-machine-schedule")


@dataclass(frozen=True, slots=True)
class Contradiction:
    """One thing that cannot be true of a record.

    Attributes:
        field: Path of the record's field that says it.
        message: Why it cannot be true.
    """

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def within(self, field: str) -> Contradiction:
        """Return the same, seen from a record that holds this one in a field."""
        return replace(self, field=f"{field}.{self.field}")


def contradiction(record: Record) -> Contradiction | None:
    """Return how a record contradicts itself; None where it does not."""
    match record:
        case RunInfo():
            return _of_run(record)
        case TrialRecord():
            return _of_measurement(record.outcome)
        case BestSchedule():
            wrong = _of_measurement(record.measurement)
            return wrong or (None if is_unchecked(record) else _of_schedule(record))


def doubt(connection: sqlite3.Connection, best: BestSchedule) -> Contradiction | None:
    """Return why a best schedule of a database is not handed out; None where it is."""
    return _of_measurement(best.measurement) or disagreement(connection, best)


def disagreement(connection: sqlite3.Connection, record: Record | None) -> Contradiction | None:
    """Return how a best schedule, or what a run handed out, differs from its own trial.

    None where it does not, or where run or trial are not there. Where measurements vary, the
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
            if trial is None or varies:
                return None
            wrong = _differs(found.measurement, trial)
            return wrong and wrong.within("handed_out")
        case _:
            return None


def _best_disagrees(connection: sqlite3.Connection, best: BestSchedule) -> Contradiction | None:
    run = there(connection, RunInfo, best.run)
    trial = there(connection, TrialRecord, best.run, best.trial)
    if run is not None and run.key != best.key:
        return Contradiction("run", f"{best.run} is of another model, target or version")
    if trial is None:
        return None
    if trial.knobs != best.knobs:
        return Contradiction("knobs", f"not those of trial {trial.number} of run {trial.run}")
    if _is_handed_out(run, best) and not disagreement(connection, run):
        return None
    return _differs(best.measurement, trial)


def _differs(again: Measurement, trial: TrialRecord) -> Contradiction | None:
    """Return how a measurement cannot be of the schedule of a trial."""
    outcome = trial.outcome
    if isinstance(outcome, Measurement) and _may_be(again.latency, outcome):
        return None
    taken = "has failed" if trial.latency is None else f"took {trial.latency:.6g} s"
    which = f"trial {trial.number} of run {trial.run}"
    return Contradiction("measurement.latency", f"{again.latency:.6g} s, but {which} {taken}")


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
    if old is None:
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
    own = old if old is not None and old.run == best.run else best
    if (own.trial, own.measurement) != (best.trial, best.measurement):
        connection.execute(TABLES[BestSchedule].put, row_of(best))
        return True
    return put_best(connection, best, at, simulate)


def there(connection: sqlite3.Connection, kind: type[R], *key: object) -> R | None:
    """Return a record by its key; None where there is none that can be read."""
    try:
        row = connection.execute(TABLES[kind].find, key).fetchone()
        return None if row is None else decode_as(row[0], kind, Location())
    except (DatabaseError, *opening.UNREADABLE) as error:  # a finding of its own
        if isinstance(error, sqlite3.Error) and not opening.is_damage(error):
            raise
        return None


def _replaced(connection: sqlite3.Connection, best: BestSchedule) -> bool:
    connection.execute(TABLES[BestSchedule].put, row_of(best))
    return True


def _is_handed_out(run: RunInfo | None, best: BestSchedule) -> bool:
    """Return whether a run says that it handed this out, measured as the record says."""
    found = None if run is None else run.handed_out
    if found is None:
        return False
    return (found.trial, found.measurement.latency) == (best.trial, best.measurement.latency)


def is_unchecked(record: Record) -> bool:
    """Return whether a record's schedule is a text that only its own evaluator can read."""
    if not isinstance(record, BestSchedule):
        return False
    other = record.key.free.scheduler_version.endswith(OTHER_EVALUATOR)
    return other and not any(name in record.schedule for name in _SCHEDULES)


def _of_run(info: RunInfo) -> Contradiction | None:
    """Return how a run names another pair than its key, or hands out the impossible."""
    for name in ("graph_hash", "target_hash", "dtype", "scheduler_version"):
        given = info.settings.get(name)
        if given is not None and given != getattr(info.key, name):
            return Contradiction(f"settings.{name}", "not that of the run's key")
    wrong = None if info.handed_out is None else _of_measurement(info.handed_out.measurement)
    return wrong and wrong.within("handed_out")


def _of_measurement(outcome: object) -> Contradiction | None:
    """Return what is impossible in a measurement, such as a latency below the lower bound."""
    if not isinstance(outcome, Measurement):
        return None
    least = outcome.bound.seconds
    if not all(map(math.isfinite, outcome.kernel_times.values())):
        return Contradiction("measurement.kernel_times", "not finite")
    if min(outcome.kernel_times.values(), default=0.0) < 0:
        return Contradiction("measurement.kernel_times", "below 0 seconds")
    if outcome.latency < least * (1.0 - ROUNDING):
        return Contradiction("measurement.latency", f"below the lower bound of {least:.6g} s")
    return None


def _of_schedule(best: BestSchedule) -> Contradiction | None:
    """Return how a schedule is of another pair or of other knobs."""
    try:
        document = json.loads(best.schedule)
        if document.get("format") not in _SCHEDULES:
            return Contradiction("schedule", "not a schedule file's text")
        model, target = document["model"]["hash"], document["target"]["hash"]
        pair = (model, target, document["dtype"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Contradiction("schedule", "not a schedule file's text")
    key = best.key
    if pair != (key.graph_hash, key.target_hash, key.dtype):
        return Contradiction("schedule", "of another model, target or data type than the key")
    knobs = document.get("knobs")
    if knobs is not None and knobs != json.loads(best.knobs.canonical()):
        return Contradiction("schedule", "of other knobs than the record's")
    return None
