"""The JSON schemas of what every command prints."""

from __future__ import annotations

from pkgutil import resolve_name
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from autoturbo.commands.console import ErrorLine
from autoturbo.errors import UsageError, did_you_mean
from autoturbo.schema import DeferredType, json_schema

ERROR: Final = "error"
"""Name of the schema of errors, which every command may print."""

_ROOMS: Final = {
    "schedules": ("apply", "compare", "diff", "inspect", "simulate", "trace", "verify"),
    "tuning": (
        *(
            "bench",
            "dashboard",
            "explain",
            "replay",
            "report",
            "resume",
            "runs",
            "show",
            "space",
            "sweep",
        ),
        "tune",
    ),
    "upkeep": (
        *("completion", "cost-model list", "cost-model train"),
        *("dataset collect", "dataset stats", "db best", "db check", "db export", "db import"),
        *("db list", "db merge", "db schema", "db stats", "doctor", "schema"),
        *("targets calibrate", "targets list", "targets scaffold", "targets schema"),
        *("targets show", "targets validate"),
    ),
}
"""Commands by where their modules are: the record of ``db best`` is ``upkeep.db.BestLine``."""


def schema_names() -> tuple[str, ...]:
    """Return commands that have a schema, actions after a blank; :data:`ERROR` comes last."""
    return (*sorted(name for names in _ROOMS.values() for name in names), ERROR)


def output_schema(name: str) -> dict[str, Any]:
    """Return the schema of one line that a command prints; an error is a line of its own.

    Args:
        name: Name of a command, ``"targets list"`` where it has actions, or :data:`ERROR`.

    Raises:
        UsageError: There is none of that name.
    """
    if name not in schema_names():
        raise UsageError(f"no schema of {name!r}", hint=did_you_mean(name, schema_names()))
    if name == ERROR:
        return json_schema(ErrorLine, "An error under --json", _about(ErrorLine))
    room = next(room for room, names in _ROOMS.items() if name in names)
    command, _, action = name.replace("-", "_").partition(" ")
    record = f"{(action or command).title()}Line"
    found = resolve_name(f"autoturbo.commands.{room}.{command}:{record}")
    return json_schema(found, f"A line of 'autoturbo {name} --json'", _about(found))


def _about(record: Any) -> str:
    """Return what a record's docstring says; of several, one after the other."""
    if get_origin(record) in (Union, UnionType):
        return " ".join(filter(None, map(_about, get_args(record))))
    for rule in getattr(record, "__metadata__", ()):
        return rule.about or (_about(rule.type()) if isinstance(rule, DeferredType) else "")
    return " ".join(record.__doc__.split())
