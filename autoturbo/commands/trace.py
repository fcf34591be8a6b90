"""Write a run's best schedule as a timeline for Perfetto.

Open the file at https://ui.perfetto.dev: slices per engine, counters for buffers and off-chip
traffic, flows between kernels.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.commands.replay import evaluator_of_run
from autoturbo.commands.values import one_of
from autoturbo.errors import Location, RunError, UsageError

if TYPE_CHECKING:
    import argparse

    from autoturbo.commands.console import Console
    from autoturbo.commands.parser import Parser
    from autoturbo.database import RunInfo

USAGE = "RUN [-o FILE] [options]"
EXAMPLE = "autoturbo trace 4f1c -o resnet50.trace.json"


def add_arguments(parser: Parser) -> None:
    """The run, the file, how much is shown."""
    parser.add_argument("run", metavar="RUN", help="id of a run, or the beginning of one")
    text = "file to write (default: trace.json in the run's folder)"
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help=text)
    text = "kernels, layers or instructions (default: layers)"
    detail = one_of("--detail", _details)
    parser.add_argument("--detail", metavar="NAME", type=detail, default="layers", help=text)


def run(options: argparse.Namespace, console: Console) -> int:
    """Build the schedule again and write when everything happens."""
    from autoturbo.database import Database
    from autoturbo.report.trace import write_trace
    from autoturbo.simulate.units.evaluator import MachineEvaluator

    with Database.open(options.db, create=False, read_only=True) as database:
        info = database.run(options.run)
        trials = {trial.number: trial.knobs for trial in database.trials(info.id)}
    if info.best_trial is None:
        hint = f"'autoturbo show {info.id}' says what failed"
        raise RunError(f"run {info.id} has no schedule", hint=hint)
    file = options.output or _folder(info) / "trace.json"
    evaluator = evaluator_of_run(info)
    if isinstance(evaluator, MachineEvaluator):
        message = f"run {info.id} is on {info.target}, a machine of several units"
        hint = "its schedule.json says when every part runs; traces are of targets"
        raise RunError(message, hint=hint)
    schedule = evaluator.schedule(trials[info.best_trial])
    try:
        events = write_trace(schedule, file, options.detail)
    except OSError as error:
        raise UsageError(error.strerror or "cannot be written", Location(file)) from None
    console.emit({"run": info.id, "trial": info.best_trial, "file": str(file), "events": events})
    if not console.json:
        console.answer(f"wrote {file}: {events} events; open it at https://ui.perfetto.dev")
    return 0


def _folder(info: RunInfo) -> Path:
    """The run's folder, made if it is gone."""
    from autoturbo.database import RunFolder

    root = info.settings.get("runs_folder", "runs")
    return RunFolder.create(root, info.model, info.target, info.id).path


def _details() -> tuple[str, ...]:
    from autoturbo.report.trace import DETAILS

    return DETAILS
