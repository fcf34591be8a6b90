"""Write a run's best schedule as a timeline for Perfetto.

Open the file at https://ui.perfetto.dev: slices per engine, counters for buffers and off-chip
traffic, flows between kernels. With --netron also a file for Netron: where and when each node runs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired

from autoturbo.commands.console import Console
from autoturbo.commands.flag_values import OneOf, wrong
from autoturbo.commands.loading import SIMULATOR, model_path_of_run
from autoturbo.commands.output_files import add_file_option, folder_of, outputs_of
from autoturbo.commands.parser import Parser
from autoturbo.commands.stored_runs import add_run_argument, stored_run
from autoturbo.files import Kind, Outputs
from autoturbo.report.units import duration
from autoturbo.schema import Natural, TypedDict

if TYPE_CHECKING:
    from autoturbo.schedule.schedule import Schedule

_FILE = "trace.json"

_SIDE_CAR = "netron.json"
"""Name of the side-car in the run's folder, where --netron names no file."""

USAGE = "RUN [-o FILE] [--netron [FILE]] [options]"
EXAMPLE = "autoturbo trace 4f1c -o resnet50.trace.json"


NetronJson = TypedDict("NetronJson", {"file": str, "nodes": Natural, "unnamed": Natural})
"""The file for Netron, and how many nodes it shows."""


class TraceLine(TypedDict):
    """Where the timeline is, and how many events it has.

    With --netron the file for Netron as well.
    """

    run: str
    trial: Natural
    latency_s: float | None
    file: str
    events: Natural
    netron: NotRequired[NetronJson]


LINES = {"": TraceLine}


def add_arguments(parser: Parser) -> None:
    """Add the run, the file, and how much is shown."""
    add_run_argument(parser)
    add_file_option(parser, _FILE)
    text = "kernels, layers or instructions (default: layers)"
    detail = OneOf("--detail", "autoturbo.report.trace:DETAILS")
    parser.add_argument("--detail", metavar="NAME", type=detail, default="layers", help=text)
    text = "side-car for Netron (.json), or copy of the model without weights (.onnx)"
    parser.group("what is kept").add_argument(
        "--netron", metavar="FILE", type=Path, nargs="?", const=Path(_SIDE_CAR), help=text
    )


def run(options: argparse.Namespace, console: Console) -> int:
    """Build the schedule again and write when everything happens."""
    from autoturbo.report.trace import write_trace
    from autoturbo.tuning.keys import measurer_of

    netron: Path | None = options.netron
    side_car = netron is not None and _is_side_car(netron)  # before anything is built
    run = stored_run(options.run, options.db)
    info, best = run.info, run.best()
    file = options.output or folder_of(info) / _FILE
    outputs = outputs_of(options).reading(model_path_of_run(info))
    outputs.check(file, Kind.TRACE)
    if netron is not None:
        netron = folder_of(info) / netron if str(netron) == _SIDE_CAR else netron
        outputs.check(netron, Kind.SIDE_CAR if side_car else Kind.MODEL)
    schedule = run.simulating("trace").schedule(best.knobs)
    events = write_trace(schedule, file, options.detail, outputs)
    shown = None if netron is None else _write_netron(netron, schedule, outputs)
    line: TraceLine = {
        "run": info.id, "trial": best.number, "latency_s": info.best_latency, "file": str(file),
        "events": events,
    }  # fmt: skip
    if shown is not None:
        line["netron"] = shown
    console.emit(line)
    console.answer(f"wrote {file}: {events} events; open it at https://ui.perfetto.dev")
    measurer = measurer_of(info)
    if measurer != SIMULATOR and info.best_latency is not None:
        took = duration(info.best_latency)
        console.answer(f"its times are simulated; the schedule took {took}, measured by {measurer}")
    if shown is not None:
        console.answer(_told(shown, schedule))
    return 0


def _is_side_car(path: Path) -> bool:
    """Return whether a file is a side-car; raise UsageError if it is no model either."""
    suffix = path.suffix.lower()
    if suffix not in (".json", ".onnx"):
        message = f"{path} is neither a side-car nor a model"
        raise wrong("--netron", message, "end its name in .json or .onnx")
    return suffix == ".json"


def _write_netron(file: Path, schedule: Schedule, outputs: Outputs) -> NetronJson:
    """Write what Netron shows; return what ``--json`` says of it."""
    from autoturbo.report.netron import write_annotated, write_attachment

    write = write_attachment if _is_side_car(file) else write_annotated
    shown = write(schedule, file, outputs)
    return {"file": str(file), "nodes": shown.nodes, "unnamed": shown.unnamed}


def _told(netron: NetronJson, schedule: Schedule) -> str:
    """Return how to look at the file, and what cannot be seen in it."""
    file = netron["file"]
    how = "open it in Netron"
    if _is_side_car(Path(file)):
        how = f"open {schedule.model.source} in Netron and drop it there"
    missing = f"; {netron['unnamed']} nodes have no name of their own" if netron["unnamed"] else ""
    return f"wrote {file}: {netron['nodes']} nodes; {how}{missing}"
