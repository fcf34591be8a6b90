"""Write the report of a run: one HTML file that needs no network.

How much faster, why, what bounds it now, whether it can be trusted; then the schedule in time, its
buffers, its sub-graphs, and how the search went.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from autoturbo.commands.console import Console, warn
from autoturbo.commands.loading import model_of_run, model_path_of_run
from autoturbo.commands.output_files import add_file_option, folder_of, outputs_of
from autoturbo.commands.parser import Parser
from autoturbo.commands.stored_runs import RUN_HELP, opened, stored_run
from autoturbo.commands.tuning import host_runs
from autoturbo.errors import InputError, RunError
from autoturbo.files import Kind, Outputs
from autoturbo.report.units import counted
from autoturbo.schema import Natural, TypedDict

if TYPE_CHECKING:
    from autoturbo.commands.stored_runs import StoredRun
    from autoturbo.database import Database, RunInfo
    from autoturbo.report.runs import ListedRun, RunPage

_FILE = "report.html"

_LIGHT = "light.html"
"""Page of a run that has no report: what is recorded, without what takes seconds."""

_INDEX = "runs.html"

USAGE = "RUN | --all [-o FILE] [options]"
EXAMPLE = "autoturbo report 4f1c -o resnet50.html"


class RunReportLine(TypedDict):
    """Where the report is, and whether its predictions can be trusted."""

    run: str
    trial: Natural
    file: str
    bytes: Natural
    trusted: bool


class IndexLine(TypedDict):
    """Where the index of all runs is, how many there are, and how many light pages were made."""

    file: str
    bytes: Natural
    runs: Natural
    made: Natural


ReportLine = RunReportLine | IndexLine
"""Where the report is, and whether its predictions can be trusted; with --all, the index."""

LINES = {"": ReportLine}


def add_arguments(parser: Parser) -> None:
    """Add the run or all of them, and the file."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("run", metavar="RUN", nargs="?", help=RUN_HELP)
    text = f"an index of all runs, with a light page of each without report (default: {_INDEX})"
    which.add_argument("--all", action="store_true", help=text)
    add_file_option(parser, _FILE)


def run(options: argparse.Namespace, console: Console) -> int:
    """Write the page of a run, or the index of all."""
    return _index(options, console) if options.all else _report(options, console)


def _index(options: argparse.Namespace, console: Console) -> int:
    """Write the index of all runs, and a light page of each that has no report."""
    from autoturbo.report.runs import index

    file = options.output or Path(_INDEX)
    outputs = outputs_of(options)
    outputs.check(file, Kind.REPORT)
    left_out: list[str] = []
    with opened(options.db) as database:
        runs = listed_runs(database, left_out.append)
        pages = {run.info.id: report_of(run.info) for run in runs}
        missing = [run for run in runs if pages[run.info.id] is None]
        for run in missing:
            pages[run.info.id] = _light(run, database, outputs, left_out.append)
    listed = [replace(run, report=_link(pages[run.info.id], file)) for run in runs]
    page = index(listed, str(options.db)).encode()
    outputs.write(file, Kind.REPORT, page)
    made = sum(pages[run.info.id] is not None for run in missing)
    line: IndexLine = {"file": str(file), "bytes": len(page), "runs": len(listed), "made": made}
    console.emit(line)
    console.answer(
        f"wrote {file}: {counted(len(listed), 'run')}, {counted(made, 'light page')} made;"
        " open it in a browser"
    )
    for text in left_out:
        warn(f"left out: {text}")
    return 2 if left_out else 0


def listed_runs(
    database: Database,
    told: Callable[[str], None] | None = None,
    before: Iterable[ListedRun] = (),
) -> list[ListedRun]:
    """Return the runs of a database with their states and latencies, the oldest first.

    Args:
        database: The database that has them.
        told: Is called with a line for each run whose record cannot be read.
        before: Runs as they were once: latencies are read of those alone that have gone on.
    """
    from autoturbo.report.runs import ListedRun
    from autoturbo.report.sparklines import Course

    found, known = [], {run.info.id: run for run in before}
    for info in database.runs(told):
        state, old = database.state(info), known.get(info.id)
        if old is not None and (old.info.trials, old.info.refused) == (info.trials, info.refused):
            course = old.course
        else:
            refused = (one.trial for one in info.refused)
            course = Course.of(database.latencies(info.id), refused)
        run = ListedRun(info, state, course=course)
        found.append(replace(run, climb=_climb(run)) if run.going else run)
    return found


def _climb(run: ListedRun) -> int:
    """Return how many schedules a run measures at most after its trials; 0 where nobody knows."""
    from autoturbo.config import TuneConfig
    from autoturbo.tuning.run import climb_of

    try:
        asked = TuneConfig.of_run(run.info)
    except RunError:
        return 0
    climb = climb_of(asked, on_machine=run.on_machine)
    return int(climb) if math.isfinite(climb) else 0


def light_page_of(
    run: ListedRun, database: Database, *, whole: str = "", note: str = ""
) -> RunPage:
    """Return the light page of a run, with the records that it shows.

    Args:
        run: The run.
        database: The database that has the run.
        whole: Address at which the whole report is made; empty for none.
        note: Why there can be no whole report; empty where there can.
    """
    from autoturbo.report.runs import RunPage, wanted

    records = database.trials(run.info.id, wanted(run.info, run.course))
    return RunPage(run, {record.number: record for record in records}, whole, note)


def _light(
    run: ListedRun, database: Database, outputs: Outputs, told: Callable[[str], None]
) -> Path | None:
    """Write the light page of a run to its folder; tell why where it cannot be written."""
    from autoturbo.report.runs import light_page

    try:
        file = folder_of(run.info) / _LIGHT
        outputs.check(file, Kind.REPORT)
        outputs.write(file, Kind.REPORT, light_page(light_page_of(run, database)).encode())
    except InputError as error:
        told(f"the page of run {run.info.id}: {error}")
        return None
    return file


def report_of(info: RunInfo) -> Path | None:
    """Return the report in a run's folder; None where there is none."""
    from autoturbo.config import RUNS
    from autoturbo.database import RunFolder

    root = info.asked.get("runs_folder", RUNS)
    report = RunFolder.named(root, info.model, info.target, info.id) / _FILE
    return report if report.is_file() else None


def _link(page: Path | None, index: Path) -> str | None:
    """Return the address of a run's page as seen from the index; None where there is none."""
    return None if page is None else quote(os.path.relpath(page, index.absolute().parent))


class Whole(NamedTuple):
    """The whole report of a run.

    Attributes:
        page: One HTML document.
        trial: The trial whose schedule it is about.
        trusted: Nothing speaks against its figures.
    """

    page: str
    trial: int
    trusted: bool


def whole_report(run: StoredRun) -> Whole:
    """Return the report of a run, which takes some seconds; where its time goes is simulated."""
    from autoturbo.report.facts import gather
    from autoturbo.report.page import document

    info = run.info
    if info.on_host:
        return Whole(host_runs.page(run), info.best_trial or 0, info.handed_out is not None)
    facts = gather(
        info, run.state, run.trials, run.handed_out, run.verified, model_of_run(info),
        run.simulating("report"),
    )  # fmt: skip
    return Whole(document(facts), facts.handed.trial, facts.trust.ok)


def _report(options: argparse.Namespace, console: Console) -> int:
    """Write the page of a run."""
    from autoturbo.report.filling import library

    library()  # before anything long is done
    run = stored_run(options.run, options.db, host=True)
    outputs = outputs_of(options).reading(model_path_of_run(run.info))
    file = options.output or folder_of(run.info) / _FILE
    outputs.check(file, Kind.REPORT)
    made = whole_report(run)
    page = made.page.encode()
    outputs.write(file, Kind.REPORT, page)
    line: RunReportLine = {
        "run": run.info.id, "trial": made.trial, "file": str(file), "bytes": len(page),
        "trusted": made.trusted,
    }  # fmt: skip
    console.emit(line)
    console.answer(f"wrote {file}: {len(page) / 1e6:.1f} MB; open it in a browser")
    return 0
