"""The outputs of a command: what they may not replace follows from its arguments."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from autoturbo.commands.parser import Parser
from autoturbo.files import Outputs

_NO_INPUTS = frozenset(
    ("output", "netron", "file", "save_targets", "runs_folder", "db", "command", "action")
)
"""Arguments that name what is written, the database, or no file."""

_FOLDER = "folder"
"""The argument that names a folder which is read."""


def add_force_option(parser: Parser) -> None:
    """Whether outputs may replace what is not theirs."""
    text = "replace a file of another kind; never an input or the database"
    parser.add_argument("--force", action="store_true", help=text)


def outputs_of(options: argparse.Namespace) -> Outputs:
    """Return what guards the outputs of a command: every file among its arguments is an input."""
    given = {name: value for name, value in vars(options).items() if name not in _NO_INPUTS}
    inputs = [Path(text) for value in given.values() for text in _names(value)]
    there = [path for path in inputs if _is_file(path)]
    if given.get(_FOLDER):
        there.append(Path(given[_FOLDER]))
    return Outputs(tuple(there), Path(options.db), options.force)


def _names(value: object) -> Iterator[str]:
    """What in the value of an argument may name a file."""
    if isinstance(value, list):
        for one in value:
            yield from _names(one)
    elif isinstance(value, str | Path) and str(value):
        yield str(value)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
