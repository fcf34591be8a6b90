"""Measure one schedule of a model.

Of a scheduler by name, of a schedule file, or of a knobs file.
"""

from __future__ import annotations

import argparse

from autoturbo.commands.config_flags import add_flags
from autoturbo.commands.console import Console
from autoturbo.commands.facts import assumed, notes_field, say_notes
from autoturbo.commands.loading import (
    AnyPair,
    MachinePair,
    add_model_options,
    add_target_options,
    load_any_pair,
)
from autoturbo.commands.parser import Parser
from autoturbo.commands.scheduling import (
    add_schedule_options,
    chosen_on_machine,
    chosen_on_target,
)
from autoturbo.config import TuneConfig
from autoturbo.simulate.measurement import Measurement

USAGE = "MODEL [--target T] [--scheduler NAME | --schedule FILE | --knobs FILE] [options]"
EXAMPLE = "autoturbo simulate examples/models/resnet50.onnx --scheduler tvm"


def add_arguments(parser: Parser) -> None:
    """The model, the target, and what gives the schedule."""
    add_model_options(parser)
    add_target_options(parser)
    add_flags(parser, TuneConfig, "measurer")
    add_schedule_options(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Measure and print."""
    from autoturbo.report.tables import comparison

    pair = load_any_pair(options)
    say_notes(assumed(pair.model), console)
    name, measurement = _measured(options, pair)
    counters = measurement.counters()
    said = {"scheduler": name, "counters": counters, **notes_field(assumed(pair.model))}
    console.emit({**measurement.as_json(), **said})
    if not console.json:
        console.show(comparison({name: measurement}))
    return 0


def _measured(options: argparse.Namespace, pair: AnyPair) -> tuple[str, Measurement]:
    """What gives the schedule, and what it measures.

    Raises:
        InfeasibleError: it does not fit.
    """
    from autoturbo.commands.failures import required

    of = f"{pair.model.name} @ {pair.target.name}"
    if isinstance(pair, MachinePair):
        units = pair.evaluator()
        name, on_units, _ = chosen_on_machine(options, pair, units)
        return name, required(units.measure_schedule(on_units), f"{of}: {name}")
    evaluator = pair.evaluator()
    name, schedule, _ = chosen_on_target(options, pair, evaluator)
    return name, required(evaluator.measure(schedule), f"{of}: {name}")
