"""Write the report of a run: one HTML file that needs no network.

How much faster, why, what bounds it now, whether it can be trusted; then the schedule in time, its
buffers, its sub-graphs, and how the search went.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from autoturbo.commands.console import Console
from autoturbo.commands.loading import (
    RUN_HELP,
    add_file_option,
    folder_of,
    model_of_run,
    model_path_of_run,
    opened,
    outputs_of,
    stored_run,
)
from autoturbo.commands.parser import Parser
from autoturbo.files import Kind
from autoturbo.schema import Bool, Natural, TypedDict

if TYPE_CHECKING:
    from autoturbo.commands.loading import StoredRun
    from autoturbo.database import RunInfo

_FILE = "report.html"

_INDEX = "runs.html"

USAGE = "RUN | --all [-o FILE] [options]"
EXAMPLE = "autoturbo report 4f1c -o resnet50.html"


class RunReportLine(TypedDict):
    """Where the report is, and whether its predictions can be trusted."""

    run: str
    trial: Natural
    file: str
    bytes: Natural
    trusted: Bool


class IndexLine(TypedDict):
    """Where the index of all runs is, and how many there are."""

    file: str
    bytes: Natural
    runs: Natural


ReportLine = RunReportLine | IndexLine
"""Where the report is, and whether its predictions can be trusted; with --all, the index."""


def add_arguments(parser: Parser) -> None:
    """Add the run or all of them, and the file."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("run", metavar="RUN", nargs="?", help=RUN_HELP)
    text = f"an index of all runs, with links to their reports (default file: {_INDEX})"
    which.add_argument("--all", action="store_true", help=text)
    add_file_option(parser, _FILE)


def run(options: argparse.Namespace, console: Console) -> int:
    """Write the page of a run, or the index of all."""
    return _index(options, console) if options.all else _report(options, console)


def _index(options: argparse.Namespace, console: Console) -> int:
    """Write the index of all runs."""
    from autoturbo.report.page import ListedRun, index

    file = options.output or Path(_INDEX)
    outputs = outputs_of(options)
    outputs.check(file, Kind.REPORT)
    with opened(options.db) as database:
        runs = [(info, database.state(info)) for info in database.runs()]
    listed = [ListedRun(info, state, _link(info, file)) for info, state in runs]
    page = index(listed, str(options.db)).encode()
    outputs.write(file, Kind.REPORT, page)
    line: IndexLine = {"file": str(file), "bytes": len(page), "runs": len(listed)}
    console.emit(line)
    console.answer(f"wrote {file}: {len(listed)} runs; open it in a browser")
    return 0


def report_of(info: RunInfo) -> Path | None:
    """Return the report in a run's folder; None where there is none."""
    from autoturbo.config import RUNS
    from autoturbo.database import RunFolder

    root = info.asked.get("runs_folder", RUNS)
    report = RunFolder.named(root, info.model, info.target, info.id) / _FILE
    return report if report.is_file() else None


def _link(info: RunInfo, index: Path) -> str | None:
    """Return the address of a run's report as seen from the index; None where there is none."""
    report = report_of(info)
    return None if report is None else quote(os.path.relpath(report, index.absolute().parent))


def _report(options: argparse.Namespace, console: Console) -> int:
    """Write the page of a run; where its time goes is simulated."""
    from autoturbo.report.facts import gather
    from autoturbo.report.filling import library
    from autoturbo.report.page import document

    library()  # before anything long is done
    run = stored_run(options.run, options.db, host=True)
    if run.info.on_host:
        return _report_host(run, options, console)
    info, graph = run.info, model_of_run(run.info)
    file = options.output or folder_of(info) / _FILE
    outputs = outputs_of(options).reading(model_path_of_run(info))
    outputs.check(file, Kind.REPORT)
    evaluator = run.simulating("report")
    facts = gather(
        info, run.state, run.trials, run.handed_out, run.verified, graph, evaluator
    )  # fmt: skip
    page = document(facts).encode()
    outputs.write(file, Kind.REPORT, page)
    line: RunReportLine = {
        "run": info.id, "trial": facts.handed.trial, "file": str(file), "bytes": len(page),
        "trusted": facts.trust.ok,
    }  # fmt: skip
    console.emit(line)
    console.answer(f"wrote {file}: {len(page) / 1e6:.1f} MB; open it in a browser")
    return 0


def _report_host(run: StoredRun, options: argparse.Namespace, console: Console) -> int:
    """Write the page of a run on this computer."""
    from autoturbo.commands.tuning import host_runs

    file, size = host_runs.report(run, _FILE, options)
    best = run.info.best_trial or 0
    line: RunReportLine = {
        "run": run.info.id, "trial": best, "file": str(file), "bytes": size,
        "trusted": run.info.handed_out is not None,
    }  # fmt: skip
    console.emit(line)
    console.answer(f"wrote {file}: {size / 1e6:.1f} MB; open it in a browser")
    return 0
