"""Looking up best schedules, and saying why nothing was found."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from autoturbo.database.merging import column

COLUMNS = (
    "graph_hash",
    "model",
    "target_hash",
    "target",
    "dtype",
    "batch",
    "scheduler_version",
)
"""What can be asked for. What stands first weighs most when the nearest record is sought: one of
another model is farther away than one of another scheduler version."""


def condition(filters: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """The WHERE clause of the filters that are not None, and its values.

    Raises:
        TypeError: a filter that there is not.
    """
    asked = _asked(filters)
    clause = " AND ".join(f"{name} = ?" for name in asked)
    return (f"WHERE {clause}" if clause else ""), tuple(asked.values())


def explain(connection: sqlite3.Connection, filters: Mapping[str, Any]) -> str:
    """One line on why nothing matches: what differs in the record that comes nearest."""
    asked = _asked(filters)
    query = f"SELECT {', '.join(COLUMNS)}, run, trial FROM best"  # noqa: S608 (our own names)
    rows = connection.execute(query).fetchall()
    if not rows:
        return "the database holds no best schedule yet; 'autoturbo tune' finds one"
    near = min(rows, key=lambda row: (_distance(asked, row), row))
    record = dict(zip((*COLUMNS, "run", "trial"), near, strict=True))
    differs = [name for name in asked if asked[name] != record[name]]
    name = f"{record['model']} @ {record['target']} (run {record['run']}, trial {record['trial']})"
    if not differs:
        return f"{name} matches"
    parts = (f"{n} (asked {asked[n]!r}, there {record[n]!r})" for n in differs)
    return f"nothing matches; the nearest is {name}, which differs in {', '.join(parts)}"


def _asked(filters: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(filters) - set(COLUMNS))
    if unknown:
        raise TypeError(f"no filter {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    given = {name: filters.get(name) for name in COLUMNS}
    plain = {name: column(v) if isinstance(v, str) else v for name, v in given.items()}
    return {name: value for name, value in plain.items() if value is not None}


def _distance(asked: Mapping[str, Any], row: tuple[Any, ...]) -> tuple[int, tuple[bool, ...]]:
    """How many fields differ; among equals, whether the weightier ones do."""
    record = dict(zip(COLUMNS, row, strict=False))
    differs = tuple(value != record[name] for name, value in asked.items())
    return (sum(differs), differs)
