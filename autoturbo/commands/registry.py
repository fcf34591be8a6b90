"""The subcommands by name, and the parser that knows them all."""

from __future__ import annotations

import argparse
import itertools
from typing import Any, Protocol

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
    """What a command's module offers: its docstring's first line is its help.

    Attributes:
        USAGE: Text that follows its name.
        EXAMPLE: One command line.
        LINES: A mapping of actions to the types of what they print under ``--json``; of ``""``
            where it has none.
    """

    __name__: str
    USAGE: str
    EXAMPLE: str
    LINES: Any

    def add_arguments(self, parser: Parser, /) -> None:
        """Add the command's own arguments."""

    def run(self, options: argparse.Namespace, console: Console, /) -> int:
        """Run the command; return the exit status."""


GROUPS: dict[str, tuple[Command, ...]] = {
    "tune": (tune, resume, sweep, bench),
    "look at runs": (runs, show, explain, report, dashboard, trace, diff, replay),
    "use a schedule": (verify, apply),
    "describe models and targets": (inspect, space, simulate, compare, targets),
    "keep and learn from measurements": (db, dataset, cost_model),
    "set up": (doctor, completion, schema),
}
"""Every subcommand, by the title under which the help has it."""

COMMANDS = {
    one.__name__.rpartition(".")[2].replace("_", "-"): one
    for group in GROUPS.values()
    for one in group
}
"""Every subcommand by name, in the order of the help."""

_DESCRIPTION = "Tune how whole neural networks are scheduled on scratchpad accelerators."
_EXAMPLE = "example:\n  autoturbo tune resnet50"


def build_parser() -> Parser:
    """Return the parser of the whole command line."""
    usage = "autoturbo COMMAND [arguments]"
    parser = Parser(prog="autoturbo", usage=usage, description=_DESCRIPTION, epilog=_EXAMPLE)
    names = parser.add_subparsers(dest="command", metavar="COMMAND", help=argparse.SUPPRESS)
    for name, command in COMMANDS.items():
        line = (command.__doc__ or "").splitlines()[0]
        title = f"{parser.prog} {name}"
        inner = add_command(names, name, title, line, example=command.EXAMPLE, usage=command.USAGE)
        command.add_arguments(inner)
        add_global_options(inner)
    lines = iter(names._get_subactions())  # noqa: SLF001  argparse has one group of all of them
    for title, group in GROUPS.items():
        parser.add_argument_group(title)._group_actions += itertools.islice(lines, len(group))  # noqa: SLF001
    add_global_options(parser)
    return parser
