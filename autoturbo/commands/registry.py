"""The subcommands by name, and the parser that knows them all."""

from __future__ import annotations

import argparse
from typing import Protocol

from autoturbo.commands.console import Console
from autoturbo.commands.parser import Parser, add_command, add_global_options
from autoturbo.commands.schedules import apply, compare, diff, inspect, simulate, trace, verify
from autoturbo.commands.tuning import (
    bench,
    dashboard,
    explain,
    replay,
    report,
    resume,
    runs,
    show,
    space,
    sweep,
    tune,
)
from autoturbo.commands.upkeep import completion, cost_model, dataset, db, doctor, schema, targets


class Command(Protocol):
    """What a command's module offers: its docstring's first line is its help."""

    __name__: str
    USAGE: str
    EXAMPLE: str

    def add_arguments(self, parser: Parser, /) -> None:
        """Add the command's own arguments."""

    def run(self, options: argparse.Namespace, console: Console, /) -> int:
        """Run the command; return the exit status."""


_COMMANDS: tuple[Command, ...] = (
    *(tune, resume, bench, runs, show, inspect, space, simulate, compare, sweep, explain, diff),
    *(replay, report, dashboard, trace, verify, apply, targets, db, dataset, cost_model, doctor),
    *(schema, completion),
)
COMMANDS = {one.__name__.rpartition(".")[2].replace("_", "-"): one for one in _COMMANDS}
"""Every subcommand, in the order of the help."""

_DESCRIPTION = "Tune how whole neural networks are scheduled on scratchpad accelerators."
_EXAMPLE = "example:\n  autoturbo tune examples/models/resnet50.onnx"


def build_parser() -> Parser:
    """Return the parser of the whole command line."""
    usage = "autoturbo COMMAND [arguments]"
    parser = Parser(prog="autoturbo", usage=usage, description=_DESCRIPTION, epilog=_EXAMPLE)
    names = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        line = (command.__doc__ or "").splitlines()[0]
        title = f"{parser.prog} {name}"
        inner = add_command(names, name, title, line, example=command.EXAMPLE, usage=command.USAGE)
        command.add_arguments(inner)
        add_global_options(inner)
    add_global_options(parser)
    return parser
