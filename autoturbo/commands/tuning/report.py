"""Write the report of a run: one HTML file that needs no network.

How much faster, why, what bounds it now, whether it can be trusted; then the schedule in time, its
buffers, its sub-graphs, and how the search went.
"""

from __future__ import annotations

import argparse

from autoturbo.commands.console import Console
from autoturbo.commands.loading import (
    add_file_option,
    add_run_argument,
    folder_of,
    model_of_run,
    model_path_of_run,
    outputs_of,
    stored_run,
)
from autoturbo.commands.parser import Parser
from autoturbo.files import Kind
from autoturbo.schema import Bool, Natural, TypedDict

_FILE = "report.html"

USAGE = "RUN [-o FILE] [options]"
EXAMPLE = "autoturbo report 4f1c -o resnet50.html"


class ReportLine(TypedDict):
    """Where the report is, and whether its predictions can be trusted."""

    run: str
    trial: Natural
    file: str
    bytes: Natural
    trusted: Bool


def add_arguments(parser: Parser) -> None:
    """The run, the file."""
    add_run_argument(parser)
    add_file_option(parser, _FILE)


def run(options: argparse.Namespace, console: Console) -> int:
    """Measure what the database keeps sums of only, and write the page."""
    from autoturbo.report.facts import gather
    from autoturbo.report.filling import library
    from autoturbo.report.page import document

    library()  # before anything long is done
    run = stored_run(options.run, options.db)
    info, graph = run.info, model_of_run(run.info)
    file = options.output or folder_of(info) / _FILE
    outputs = outputs_of(options).reading(model_path_of_run(info))
    outputs.check(file, Kind.REPORT)
    evaluator = run.evaluator_on_target()
    facts = gather(info, run.state, run.trials, run.verified, graph, evaluator)
    page = document(facts).encode()
    outputs.write(file, Kind.REPORT, page)
    line: ReportLine = {
        "run": info.id, "trial": facts.number, "file": str(file), "bytes": len(page),
        "trusted": facts.trust.ok,
    }  # fmt: skip
    console.emit(line)
    console.answer(f"wrote {file}: {len(page) / 1e6:.1f} MB; open it in a browser")
    return 0
