"""Write a run's best schedule as a timeline for Perfetto.

Open the file at https://ui.perfetto.dev: slices per engine, counters for buffers and off-chip
traffic, flows between kernels.
"""

from __future__ import annotations

import argparse

from autoturbo.commands.console import Console
from autoturbo.commands.flag_values import OneOf
from autoturbo.commands.loading import SIMULATOR, model_path_of_run
from autoturbo.commands.output_files import add_file_option, folder_of, outputs_of
from autoturbo.commands.parser import Parser
from autoturbo.commands.stored_runs import add_run_argument, stored_run
from autoturbo.files import Kind
from autoturbo.report.units import duration
from autoturbo.schema import Natural, TypedDict

_FILE = "trace.json"

USAGE = "RUN [-o FILE] [options]"
EXAMPLE = "autoturbo trace 4f1c -o resnet50.trace.json"


class TraceLine(TypedDict):
    """Where the timeline is, and how many events it has."""

    run: str
    trial: Natural
    latency_s: float | None
    file: str
    events: Natural


LINES = {"": TraceLine}


def add_arguments(parser: Parser) -> None:
    """Add the run, the file, and how much is shown."""
    add_run_argument(parser)
    add_file_option(parser, _FILE)
    text = "kernels, layers or instructions (default: layers)"
    detail = OneOf("--detail", "autoturbo.report.trace:DETAILS")
    parser.add_argument("--detail", metavar="NAME", type=detail, default="layers", help=text)


def run(options: argparse.Namespace, console: Console) -> int:
    """Build the schedule again and write when everything happens."""
    from autoturbo.report.trace import write_trace
    from autoturbo.tuning.keys import measurer_of

    run = stored_run(options.run, options.db)
    info, best = run.info, run.best()
    file = options.output or folder_of(info) / _FILE
    outputs = outputs_of(options).reading(model_path_of_run(info))
    outputs.check(file, Kind.TRACE)
    schedule = run.simulating("trace").schedule(best.knobs)
    events = write_trace(schedule, file, options.detail, outputs)
    line: TraceLine = {
        "run": info.id, "trial": best.number, "latency_s": info.best_latency, "file": str(file),
        "events": events,
    }  # fmt: skip
    console.emit(line)
    console.answer(f"wrote {file}: {events} events; open it at https://ui.perfetto.dev")
    measurer = measurer_of(info)
    if measurer != SIMULATOR and info.best_latency is not None:
        took = duration(info.best_latency)
        console.answer(f"its times are simulated; the schedule took {took}, measured by {measurer}")
    return 0
