"""Measure one schedule of a model.

Of a scheduler by name, of a schedule file, or of a knobs file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.commands.loading import Pair, add_model_options, add_target_options, load_pair
from autoturbo.commands.values import one_of

if TYPE_CHECKING:
    import argparse

    from autoturbo.commands.console import Console
    from autoturbo.commands.parser import Parser
    from autoturbo.simulate.measurement import Outcome

USAGE = "MODEL [--target T] [--scheduler NAME | --schedule FILE | --knobs FILE] [options]"
EXAMPLE = "autoturbo simulate examples/models/resnet50.onnx --scheduler tvm"


def add_arguments(parser: Parser) -> None:
    """The model, the target, and what gives the schedule."""
    add_model_options(parser)
    add_target_options(parser)
    what = parser.add_mutually_exclusive_group()
    choose = one_of("--scheduler", _schedulers)
    text = "graphturbo, tvm, astitch, O0, O1, ... (default: graphturbo)"
    what.add_argument("--scheduler", metavar="NAME", type=choose, help=text)
    what.add_argument("--schedule", metavar="FILE", type=Path, help="schedule file (JSON)")
    what.add_argument("--knobs", metavar="FILE", type=Path, help="knobs file (JSON)")


def run(options: argparse.Namespace, console: Console) -> int:
    """Measure and print."""
    from autoturbo.commands.failures import required
    from autoturbo.report.tables import comparison

    pair = load_pair(options)
    name, outcome = _measured(options, pair)
    measurement = required(outcome, f"{pair.model.name} @ {pair.target.name}: {name}")
    counters = measurement.counters()
    console.emit({**measurement.as_json(), "scheduler": name, "counters": counters})
    if not console.json:
        console.show(comparison({name: measurement}))
    return 0


def _measured(options: argparse.Namespace, pair: Pair) -> tuple[str, Outcome]:
    if options.schedule:
        return "schedule", _measured_file(options.schedule, pair)
    if options.knobs:
        return "knobs", _measured_knobs(options.knobs, pair)
    name = options.scheduler or "graphturbo"
    return name, pair.evaluator().measure_scheduler(name)


def _measured_knobs(path: Path, pair: Pair) -> Outcome:
    """Of a setting; one that does not fit the model is the file's error."""
    from autoturbo.errors import KnobsError, Location
    from autoturbo.schedule.knobs import load_knobs
    from autoturbo.schedule.pipeline import build_schedule

    evaluator, knobs = pair.evaluator(), load_knobs(path)
    try:
        return evaluator.measure(build_schedule(evaluator.bench, knobs))
    except KnobsError as error:
        at = Location(path, field=error.at.field)
        raise KnobsError(error.message, at, error.hint) from None


def _measured_file(path: Path, pair: Pair) -> Outcome:
    from autoturbo.schedule.files import load_schedule

    return pair.evaluator().measure(load_schedule(path, pair.model, pair.target))


def _schedulers() -> tuple[str, ...]:
    from autoturbo.schedule.baselines import ALIASES, scheduler_names

    return (*scheduler_names(), *ALIASES)
