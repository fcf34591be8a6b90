"""Go on with a run that was interrupted, or give it a larger budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoturbo.commands.loading import resume
from autoturbo.commands.tuning import LiveLine, add_machine_options, finish, machine_options
from autoturbo.commands.values import whole_number

if TYPE_CHECKING:
    import argparse

    from autoturbo.commands.console import Console
    from autoturbo.commands.parser import Parser

USAGE = "RUN [options]"
EXAMPLE = "autoturbo resume 4f1c"


def add_arguments(parser: Parser) -> None:
    """The run, and what may change."""
    parser.add_argument("run", metavar="RUN", help="id of a run, or the beginning of one")
    trials = "trials in all, those made included (default: as asked for at first)"
    parser.add_argument("--trials", metavar="N", type=whole_number("--trials", 1), help=trials)
    add_machine_options(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Go on, then print what ``tune`` prints."""
    with LiveLine(console) as line:
        result = resume(
            options.run,
            database=options.db,
            trials=options.trials,
            on_progress=line,
            **machine_options(options),
        )
    return finish(result, console, options.db)
