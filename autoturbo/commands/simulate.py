"""Measure one schedule of a model.

Of a scheduler by name, of a schedule file, or of a knobs file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoturbo.commands.loading import (
    add_measurer_option,
    add_model_options,
    add_target_options,
    load_pair,
)
from autoturbo.commands.scheduling import add_schedule_options, chosen_schedule

if TYPE_CHECKING:
    import argparse

    from autoturbo.commands.console import Console
    from autoturbo.commands.parser import Parser

USAGE = "MODEL [--target T] [--scheduler NAME | --schedule FILE | --knobs FILE] [options]"
EXAMPLE = "autoturbo simulate examples/models/resnet50.onnx --scheduler tvm"


def add_arguments(parser: Parser) -> None:
    """The model, the target, and what gives the schedule."""
    add_model_options(parser)
    add_target_options(parser)
    add_measurer_option(parser)
    add_schedule_options(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Measure and print."""
    from autoturbo.commands.failures import required
    from autoturbo.report.tables import comparison

    pair = load_pair(options)
    evaluator = pair.evaluator()
    name, schedule, _ = chosen_schedule(options, pair, evaluator)
    of = f"{pair.model.name} @ {pair.target.name}: {name}"
    measurement = required(evaluator.measure(schedule), of)
    counters = measurement.counters()
    console.emit({**measurement.as_json(), "scheduler": name, "counters": counters})
    if not console.json:
        console.show(comparison({name: measurement}))
    return 0
