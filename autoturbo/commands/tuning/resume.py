"""Go on with a run that was interrupted, or give it a larger budget."""

from __future__ import annotations

import argparse
import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.commands.config_flags import add_flags, config_of
from autoturbo.commands.console import Console, LiveLine, warn
from autoturbo.commands.loading import model_of_run, model_path_of_run
from autoturbo.commands.output_files import add_force_option, outputs_of
from autoturbo.commands.parser import Parser
from autoturbo.commands.scheduling import require_libraries
from autoturbo.commands.stored_runs import add_run_argument, stored_run
from autoturbo.commands.tuning.host_tuning import TunedHost, resume_on_host
from autoturbo.commands.tuning.run_end import finish, write_copy
from autoturbo.commands.tuning.run_start import tell_start
from autoturbo.commands.tuning.tuned_pairs import TunedPair
from autoturbo.config import ExecutionConfig, ResumeConfig
from autoturbo.errors import InputError
from autoturbo.files import Kind, Outputs

if TYPE_CHECKING:
    from autoturbo.database import RunInfo
    from autoturbo.tuning.result import TuneResult

USAGE = "RUN [options]"
EXAMPLE = "autoturbo resume 4f1c"


class ResumedPair(TunedPair):
    """As 'tune' prints it; with --all a line for each run that was begun together with it."""


ResumeLine = ResumedPair | TunedHost
LINES = {"": ResumeLine}


def add_arguments(parser: Parser) -> None:
    """Add the run, and what may change."""
    add_run_argument(parser)
    together = "go on as well with the runs that 'tune' began together with it"
    parser.add_argument("--all", dest="together", action="store_true", help=together)
    add_flags(parser, ResumeConfig, resuming=True)
    add_flags(parser, ExecutionConfig, resuming=True)
    output = "write the best schedule there as well (default: where 'tune' wrote it)"
    add = parser.group("what is kept").add_argument
    add("-o", "--output", metavar="FILE", type=Path, help=output)
    add_force_option(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Go on, then print what ``tune`` prints."""
    began = time.monotonic()
    if (info := stored_run(options.run, options.db, host=True).info).on_host:
        return resume_on_host(info, options, console)
    from autoturbo.tuning import tuner

    require_libraries(options)
    if options.output is not None:
        _outputs(options).check(options.output, Kind.SCHEDULE)
    config = config_of(ResumeConfig, options)

    with LiveLine(console) as line:

        def told(info: RunInfo) -> None:
            console.say(f"{info.model} @ {info.target}")
            tell_start(info, console, options.db)
            line.expect(info.model, info.target)

        execution = config_of(
            ExecutionConfig, options, on_progress=line, began=began, on_begin=told
        )
        ended = tuner.resume_all(
            [options.run], config, execution, load_graph=model_of_run, together=options.together
        )
    copied = functools.partial(_copies, options=options) if len(ended) == 1 else None
    return finish(ended, console, options.db, copied)


def _copies(result: TuneResult, options: argparse.Namespace) -> list[Path]:
    """Write the copy of the best schedule; its former place is left alone if that is gone."""
    outputs = _outputs(options)
    if options.output is not None:
        return write_copy(options.output, outputs, result)
    place = stored_run(result.run, options.db).info.settings.get("output")
    try:
        return write_copy(place and Path(place), outputs, result)
    except InputError as error:
        warn(f"no copy is written: {error}")
        return []


def _outputs(options: argparse.Namespace) -> Outputs:
    """Return what the copy may not replace: the run's model, and what no command's output may."""
    info = stored_run(options.run, options.db).info
    return outputs_of(options).reading(model_path_of_run(info))
