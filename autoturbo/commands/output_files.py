"""The files that a command writes, and what it may not write over."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.commands.parser import Parser
from autoturbo.files import Outputs

if TYPE_CHECKING:
    from autoturbo.database import RunInfo


_NO_INPUTS = frozenset(
    ("output", "html", "file", "save_targets", "runs_folder", "db", "command", "action")
)
"""Arguments that name what is written, the database, or no file."""

_FOLDER = "folder"
"""The argument that names a folder which is read."""


def add_force_option(parser: Parser) -> None:
    """Add ``--force``, which lets outputs replace files of another kind."""
    text = "replace a file of another kind; never an input or the database"
    parser.group("what is kept").add_argument("--force", action="store_true", help=text)


def outputs_of(options: argparse.Namespace) -> Outputs:
    """Return what guards the outputs of a command: every file among its arguments is an input."""
    given = {name: value for name, value in vars(options).items() if name not in _NO_INPUTS}
    folder = (Path(given[_FOLDER]),) if given.get(_FOLDER) else ()
    # a text that names a file by chance is guarded too, which does no harm
    names = (name for value in given.values() for name in _names(value))
    return Outputs(folder, Path(options.db), options.force).reading(*names)


def _names(value: object) -> Iterator[str | Path]:
    """Yield what may name a file in the value of an argument."""
    if isinstance(value, list):
        for one in value:
            yield from _names(one)
    elif isinstance(value, str | Path):
        yield value


def add_file_option(parser: Parser, name: str) -> None:
    """Add the file to write, ``name`` in the run's folder where none is given."""
    text = f"file to write (default: {name} in the run's folder)"
    parser.group("what is kept").add_argument(
        "-o", "--output", metavar="FILE", type=Path, help=text
    )
    add_force_option(parser)


def folder_of(info: RunInfo) -> Path:
    """Return the run's folder, made if it is gone."""
    from autoturbo.config import RUNS
    from autoturbo.database import RunFolder

    root = info.asked.get("runs_folder", RUNS)
    return RunFolder.create(root, info.model, info.target, info.id).path
