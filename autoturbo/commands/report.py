"""Write the report of a run: one HTML file that needs no network.

How much faster, why, what bounds it now, whether it can be trusted; then the schedule in time, its
buffers, its sub-graphs, and how the search went.
"""

from __future__ import annotations

import argparse

from autoturbo.commands.console import Console
from autoturbo.commands.loading import model_of_run, model_path_of_run
from autoturbo.commands.of_run import add_file_option, add_run_argument, file_of
from autoturbo.commands.outputs import outputs_of
from autoturbo.commands.parser import Parser
from autoturbo.commands.replay import evaluator_on_target
from autoturbo.commands.show import verified_of
from autoturbo.outputs import Kind

_FILE = "report.html"

USAGE = "RUN [-o FILE] [options]"
EXAMPLE = "autoturbo report 4f1c -o resnet50.html"


def add_arguments(parser: Parser) -> None:
    """The run, the file."""
    add_run_argument(parser)
    add_file_option(parser, _FILE)


def run(options: argparse.Namespace, console: Console) -> int:
    """Measure what the database keeps sums of only, and write the page."""
    from autoturbo.database import Database
    from autoturbo.report.facts import gather
    from autoturbo.report.filling import library
    from autoturbo.report.page import document

    library()  # before anything long is done
    with Database.open(options.db, create=False, read_only=True) as database:
        info = database.run(options.run)
        state, records = database.state(info), database.trials(info.id)
        verified = verified_of(info, database)
    file = file_of(options, info, _FILE)
    outputs = outputs_of(options).reading(model_path_of_run(info))
    outputs.check(file, Kind.REPORT)
    evaluator = evaluator_on_target(info)
    facts = gather(info, state, records, verified, model_of_run(info), evaluator)
    page = document(facts).encode()
    outputs.write(file, Kind.REPORT, page)
    said = {"run": info.id, "trial": facts.number, "file": str(file), "bytes": len(page)}
    console.emit({**said, "trusted": facts.trust.ok})
    if not console.json:
        console.answer(f"wrote {file}: {len(page) / 1e6:.1f} MB; open it in a browser")
    return 0
