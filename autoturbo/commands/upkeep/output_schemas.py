"""The JSON schemas of what every command prints."""

from __future__ import annotations

import itertools
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from autoturbo.commands.console import ErrorLine
from autoturbo.commands.registry import COMMANDS
from autoturbo.errors import UsageError, did_you_mean
from autoturbo.schema import DeferredType, Described, json_schema

ERROR: Final = "error"
"""Name of the schema of errors, which every command may print."""


def _lines() -> dict[str, Any]:
    """Return the types of what commands print by name, actions after a blank."""
    lines = {
        f"{name} {action}".rstrip(): line
        for name, command in COMMANDS.items()
        for action, line in command.LINES.items()
    }
    return {**{name: lines[name] for name in sorted(lines)}, ERROR: ErrorLine}


def schema_names() -> tuple[str, ...]:
    """Return commands that have a schema, actions after a blank; :data:`ERROR` comes last."""
    return tuple(_lines())


def output_schema(name: str) -> dict[str, Any]:
    """Return the schema of one line that a command prints; an error is a line of its own.

    Args:
        name: Name of a command, ``"targets list"`` where it has actions, or :data:`ERROR`.

    Raises:
        UsageError: There is none of that name.
    """
    lines = _lines()
    if name not in lines:
        raise UsageError(f"no schema of {name!r}", hint=did_you_mean(name, lines))
    title = "An error under --json" if name == ERROR else f"A line of 'autoturbo {name} --json'"
    return json_schema(lines[name], title, _about(lines[name]))


def _about(record: Any) -> str:
    """Return what a record's docstring says; of several, one after the other."""
    if get_origin(record) in (Union, UnionType):
        return " ".join(filter(None, map(_about, get_args(record))))
    if notes := getattr(record, "__metadata__", ()):
        described = (note.about for note in notes if isinstance(note, Described))
        deferred = (_about(note.type()) for note in notes if isinstance(note, DeferredType))
        return next(filter(None, itertools.chain(described, deferred)), "")
    return " ".join(record.__doc__.split())
