"""What a database has in place of a best schedule that it has not, in names instead of hashes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from autoturbo.database.records import OTHER_EVALUATOR, PINNED
from autoturbo.database.rows import column
from autoturbo.errors import nearest
from autoturbo.registry import SIMULATOR

_MOST_NAMED = 5
"""Values that a sentence lists, and no more."""

_DIGITS = 12
"""Of a hash that the user gave; the rest tells people nothing."""

_WORDS = {
    "model": "of {}", "graph_hash": "of graph {}", "batch": "at batch {}", "target": "on {}",
    "target_hash": "on target {}", "dtype": "in {}", "scheduler_version": "by version {}",
}  # fmt: skip
"""How a sentence names each part of a key, in its order."""


class Miss(NamedTuple):
    """Why no best schedule matches.

    Attributes:
        text: One sentence without its full stop: what there is not, then what there is.
        batches: Other batches of the same model, with all else as asked for.
        measurers: Others that measured best schedules of all that was asked for.
    """

    text: str
    batches: tuple[int, ...] = ()
    measurers: tuple[str, ...] = ()


class _Row(NamedTuple):
    """The key of a best schedule, and what people call it."""

    graph_hash: str
    target_hash: str
    dtype: str
    scheduler_version: str
    model: str
    target: str
    batch: int


def find_miss(
    connection: sqlite3.Connection, asked: Mapping[str, Any], named: Mapping[str, Any]
) -> Miss:
    """Return why no best schedule matches, and what others of the same model there are.

    Args:
        connection: To the database.
        asked: What none matches, by column.
        named: What people call it, by column: it is said in place of hashes.
    """
    columns = ", ".join(_Row._fields)
    order = "model, target, batch, dtype, scheduler_version"
    query = f"SELECT DISTINCT {columns} FROM best ORDER BY {order}"  # noqa: S608 (columns)
    rows = [_Row(*row) for row in connection.execute(query)]
    if not rows:
        return Miss("the database holds no best schedule yet; 'autoturbo tune' finds one")
    asked, named = _stored(asked), _stored(named)
    lacks = f"no best schedule {' '.join(_named(named)) or 'matches'}"
    model = named.get("model", asked.get("model"))
    ours = [row for row in rows if _is_of(row, asked, model)]
    if not ours:
        return Miss(f"{lacks}; {_other_models(model, rows)}")
    differing = [(row, _differing(row, asked, named)) for row in ours]
    least = min(len(parts) for _, parts in differing)
    closest = [(row, parts) for row, parts in differing if len(parts) == least]
    values: dict[tuple[str, ...], list[_Row]] = {}
    for row, parts in closest:
        values.setdefault(parts, []).append(row)
    found = " or ".join(dict.fromkeys(_there_is(p, of, asked) for p, of in values.items()))
    batches = {row.batch for row in values.get(("batch",), ())}
    versions = [row.scheduler_version for row in values.get(("scheduler_version",), ())]
    ours_is = str(asked.get("scheduler_version", "")).partition("+")[0]
    measurers = {measurer_name(one) for one in versions if one.partition("+")[0] == ours_is}
    return Miss(
        f"{lacks}; there is one {found}", tuple(sorted(batches)), tuple(sorted(measurers - {""}))
    )


def _stored(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts that are given, with texts as the database holds them."""
    given = {name: value for name, value in parts.items() if value is not None}
    return {name: column(one) if isinstance(one, str) else one for name, one in given.items()}


def _named(named: Mapping[str, Any]) -> Iterable[str]:
    """Yield how a sentence says each part that is named."""
    for name, words in _WORDS.items():
        if name in named:
            is_hash = name.endswith("_hash")
            yield words.format(str(named[name])[:_DIGITS] if is_hash else named[name])


def _is_of(row: _Row, asked: Mapping[str, Any], model: str | None) -> bool:
    """Return whether a row is of the model asked for, at whatever batch."""
    if model is None and "graph_hash" not in asked:
        return True
    return row.model == model or row.graph_hash == asked.get("graph_hash")


def _other_models(model: str | None, rows: Iterable[_Row]) -> str:
    """Return what other models there are: the one whose name is alike, or the first ones."""
    names = sorted({row.model for row in rows})
    if model is not None and (close := nearest(model, names)):
        return f"there is one of {close}"
    return f"there is one of {_listed(names)}"


def _differing(row: _Row, asked: Mapping[str, Any], named: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parts in which a row of the model differs: the batch counts before the graph."""
    parts = [
        name
        for name in ("batch", "target", "dtype", "scheduler_version")
        if getattr(row, name) != asked.get(name, named.get(name, getattr(row, name)))
    ]
    if "batch" not in parts and row.graph_hash != asked.get("graph_hash", row.graph_hash):
        parts.insert(0, "graph_hash")
    if "target" in parts and row.target_hash == asked.get("target_hash"):
        parts.remove("target")  # the same target by another name
    elif "target" not in parts and row.target_hash != asked.get("target_hash", row.target_hash):
        parts.append("target_hash")
    return tuple(parts)


def _there_is(parts: tuple[str, ...], rows: list[_Row], asked: Mapping[str, Any]) -> str:
    """Return where there are schedules that differ in some parts from what was asked for."""
    if len(parts) == 1 and parts[0] in ("batch", "target", "dtype"):
        values = sorted({getattr(row, parts[0]) for row in rows})
        return _WORDS[parts[0]].format(_listed(values))
    return _listed(
        dict.fromkeys(" ".join(_other(part, row, asked) for part in parts) for row in rows), " or "
    )


def _other(part: str, row: _Row, asked: Mapping[str, Any]) -> str:
    """Return in words the value that a row has of a part in which it differs."""
    if part == "graph_hash":
        return "for other operators or shapes"
    if part == "target_hash":
        return "for another description of that target"
    if part == "scheduler_version":
        return _version(row, asked)
    return _WORDS[part].format(getattr(row, part))


def _version(row: _Row, asked: Mapping[str, Any]) -> str:
    """Return what made a schedule of another version."""
    ours, _, asked_kind = str(asked.get("scheduler_version", "")).partition("+")
    base, _, kind = row.scheduler_version.partition("+")
    if base != ours:
        return f"by version {row.scheduler_version}"
    if not kind:
        return "that is simulated"
    if PINNED in row.scheduler_version:
        return "with settings that people fixed"
    measurer = measurer_name(row.scheduler_version)
    if not measurer:
        return "of another evaluator"
    return f"measured by {kind if measurer == measurer_name(f'+{asked_kind}') else measurer}"


def measurer_name(version: str) -> str:
    """Return who measured, by the scheduler's version; empty for pins and other evaluators."""
    kind = version.partition("+")[2]
    if PINNED in version or version.endswith(OTHER_EVALUATOR):
        return ""
    return kind.partition("@")[0] or SIMULATOR


def _listed(values: Iterable[Any], between: str = ", ") -> str:
    """Return values as a choice, or the first ones where there are many."""
    all_of = [str(value) for value in values]
    if all_of[_MOST_NAMED:]:
        return between.join(all_of[:_MOST_NAMED]) + ", ..."
    return " or ".join([between.join(all_of[:-1]), all_of[-1]] if all_of[1:] else all_of)
