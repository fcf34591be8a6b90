"""The run that a command is about, and the file that it writes of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.commands.outputs import add_force_option
from autoturbo.commands.parser import Parser
from autoturbo.errors import RunError

if TYPE_CHECKING:
    from autoturbo.database import RunInfo


def add_run_argument(parser: Parser) -> None:
    """Which run."""
    parser.add_argument("run", metavar="RUN", help="id of a run, or the beginning of one")


def add_file_option(parser: Parser, name: str) -> None:
    """The file to write, ``name`` in the run's folder where none is given."""
    text = f"file to write (default: {name} in the run's folder)"
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help=text)
    add_force_option(parser)


def file_of(options: argparse.Namespace, info: RunInfo, name: str) -> Path:
    """The file of :func:`add_file_option`."""
    return options.output or folder_of(info) / name


def folder_of(info: RunInfo) -> Path:
    """The run's folder, made if it is gone."""
    from autoturbo.config import RUNS
    from autoturbo.database import RunFolder

    root = info.asked.get("runs_folder", RUNS)
    return RunFolder.create(root, info.model, info.target, info.id).path


def not_of_machines(info: RunInfo) -> RunError:
    """What a command says of a run on a machine, where it is for runs on targets alone."""
    message = f"run {info.id} is on {info.target}, a machine of several units"
    units = f"'autoturbo show {info.id}' says how units shared the work"
    return RunError(message, hint=f"{units}, and its schedule.json when every part runs")
