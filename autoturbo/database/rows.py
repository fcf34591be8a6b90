"""The rows of a database file from elsewhere: each decoded as a line of an export is, and checked.

A row is believed only where its record can be read, its columns say what the record says, and the
record does not contradict itself or its run.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any

from autoturbo.database.formats import parse_line
from autoturbo.database.merging import TABLES, row_of
from autoturbo.database.packing import unpack
from autoturbo.database.records import (
    OTHER_EVALUATOR,
    BestSchedule,
    KernelRecord,
    Record,
    RunInfo,
    TrialRecord,
)
from autoturbo.errors import AutoTurboError, Location
from autoturbo.simulate.measurement import Measurement

_ROUNDING = 1e-9
"""Share by which a latency may lie below its bound: both are sums of floats."""

_LONGEST_NAME = 80
_SCHEDULES = ("autoturbo-schedule", "autoturbo-machine-schedule")


def sound_rows(
    connection: sqlite3.Connection, kind: type[Record]
) -> Iterator[tuple[str, Record | None, str]]:
    """Return the rows of a table: a name, the record, and what is wrong where it is None.

    Args:
        connection: to a file whose schema was checked; texts may hold half surrogate pairs.
        kind: of the records of the table.
    """
    table, columns, key = TABLES[kind]
    there = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
    known = [name for name in columns if name in there]
    query = f"SELECT {', '.join(known)} FROM {table}"  # noqa: S608 (our own names)
    for row in connection.execute(query):
        name = f"{table} {' '.join(map(str, row[:key]))}"
        name = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."
        try:
            record = _record_of(kind, dict(zip(known, row, strict=True)))
            wrong = contradiction(record)
        except (AutoTurboError, ValueError) as error:
            record, wrong = None, str(error) or type(error).__name__
        yield name, None if wrong else record, wrong


def readable_texts(connection: sqlite3.Connection) -> None:
    """Have a connection return texts that are not UTF-8 too: they make a row wrong, not all."""
    connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")


def _record_of(kind: type[Record], row: Mapping[str, Any]) -> Record:
    """Decode a row; raises AutoTurboError or ValueError."""
    if kind is KernelRecord:
        line = json.dumps({"kind": "kernel", "schema": 1, **row})
    elif isinstance(row["record"], str | bytes):
        line = unpack(row["record"])
    else:
        raise ValueError("its record is neither text nor packed")
    record = parse_line(line.encode(), Location())
    if type(record) is not kind:
        raise ValueError("its record is one of another table")
    said = dict(zip(TABLES[kind][1], row_of(record), strict=True))
    if any(row[name] != said[name] for name in row if name not in ("record", "decisions")):
        raise ValueError("what is looked up by is not what the record says")
    if row.get("decisions") is not None and row["decisions"] != said["decisions"]:
        raise ValueError("the decisions beside the record are not the record's")
    return record


def contradiction(record: Record) -> str:
    """Say in what a record contradicts itself; empty where it does not."""
    match record:
        case RunInfo():
            return _of_run(record)
        case TrialRecord():
            return _of_measurement(record.outcome)
        case BestSchedule():
            wrong = _of_measurement(record.measurement)
            return wrong or ("" if is_unchecked(record) else _of_schedule(record))
        case KernelRecord():
            return "" if record.seconds > 0 else "seconds: a kernel takes some time"


def is_unchecked(record: Record) -> bool:
    """Return whether a record's schedule is a text that only its own evaluator can read."""
    if not isinstance(record, BestSchedule):
        return False
    other = record.key.scheduler_version.endswith(OTHER_EVALUATOR)
    return other and not any(name in record.schedule for name in _SCHEDULES)


def _of_run(info: RunInfo) -> str:
    """Settings that name another pair than the run's key does."""
    for name in ("graph_hash", "target_hash", "dtype", "scheduler_version"):
        given = info.settings.get(name)
        if given is not None and given != getattr(info.key, name):
            return f"settings.{name}: not that of the run's key"
    return ""


def _of_measurement(outcome: object) -> str:
    """Say what of a measurement cannot be: a latency below what no schedule can beat."""
    if not isinstance(outcome, Measurement):
        return ""
    if not all(map(math.isfinite, outcome.kernel_times.values())):
        return "measurement.kernel_times: not finite"
    if min(outcome.kernel_times.values(), default=0.0) < 0:
        return "measurement.kernel_times: below 0 seconds"
    if outcome.latency < outcome.bound.seconds * (1.0 - _ROUNDING):
        return f"measurement.latency: below the lower bound of {outcome.bound.seconds:.6g} s"
    return ""


def _of_schedule(best: BestSchedule) -> str:
    """A schedule of another pair or of other knobs."""
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
