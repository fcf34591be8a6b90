"""Compare a schedule of this computer with its baselines once more, measured in turn.

The run is one of 'tune MODEL --target host': its id or the beginning of it, its folder, or a
schedule file. The whole batch is measured twice in each round; what seems to be between these two
is noise.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

from autoturbo.commands.config_flags import add_flags
from autoturbo.commands.console import Console, LiveLine
from autoturbo.commands.parser import Parser
from autoturbo.commands.tuning.host_answers import HostLine, compared_json, print_answer
from autoturbo.config import RUNS, ExecutionConfig
from autoturbo.errors import Location, RunError
from autoturbo.registry import HOST

USAGE = "RUN [--model FILE] [options]"
EXAMPLE = "autoturbo bench 4f1c"


class BenchLine(HostLine):
    """The comparison; 'gains' are those of the chosen plan over each other one."""


LINES = {"": BenchLine}


def add_arguments(parser: Parser) -> None:
    """Add the run, and where it and its model are."""
    text = "id of a run on this computer or the beginning of it, its folder, or a schedule file"
    parser.add_argument("run", metavar="RUN", help=text)
    text = "the model's file (default: where it was, or beside the schedule)"
    parser.add_argument("--model", metavar="FILE", help=text)
    add_flags(parser, ExecutionConfig, "runs_folder")


def run(options: argparse.Namespace, console: Console) -> int:
    """Read everything again, compare, print."""
    from autoturbo.host.files import HostSchedule, divided_model
    from autoturbo.host.tuning import bench_host
    from autoturbo.report.host import HostAnswer

    file = _schedule_file(options.run, Path(options.runs_folder or RUNS))
    schedule = HostSchedule.read(file)
    with tempfile.TemporaryDirectory(prefix="autoturbo-") as folder, LiveLine(console) as line:
        model = divided_model(schedule, file, options.model, Path(folder))
        comparison = bench_host(schedule, model, line)
    answer = HostAnswer.of_schedule(schedule, comparison)
    found: BenchLine = {**compared_json(answer), "schedule_file": str(file)}
    console.emit(found)
    console.say(f"{schedule.model.name} @ host")
    print_answer(answer, console)
    return 0


def _schedule_file(name: str, runs: Path) -> Path:
    """Return the schedule file that a run stands for.

    Raises:
        RunError: There is none, or there are several.
    """
    path = Path(name)
    if path.is_file():
        return path
    if path.is_dir():
        return path / "schedule.json"
    found = []
    if re.fullmatch(r"\w[\w-]*", name):
        whole = sorted(runs.glob(f"*-{HOST}-{name}/schedule.json"))
        found = whole or sorted(runs.glob(f"*-{HOST}-{name}*/schedule.json"))
    if len(found) == 1:
        return found[0]
    hint = "'autoturbo tune MODEL --target host' makes one"
    if found:
        ids = (one.parent.name.rpartition(f"-{HOST}-")[2] for one in found)
        hint = f"it may be {' or '.join(ids)}"
    what = "several runs of this computer begin" if found else "no run of this computer begins"
    raise RunError(f"{what} with {name!r}", Location(runs), hint)
