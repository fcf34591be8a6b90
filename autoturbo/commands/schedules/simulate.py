"""Measure one schedule of a model.

Of a scheduler by name, of a schedule file, or of a knobs file.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autoturbo.commands.config_flags import add_flags
from autoturbo.commands.console import Console
from autoturbo.commands.loading import (
    ModelNotes,
    add_model_options,
    add_target_options,
    load_any_pair,
    tell_notes,
)
from autoturbo.commands.parser import Parser
from autoturbo.commands.scheduling import add_schedule_options, chosen_schedule, required
from autoturbo.config import TuneConfig
from autoturbo.report.units import figures_of, range_sentence
from autoturbo.schema import Real
from autoturbo.simulate.measurement import Counters, MeasurementJson, Outcome, RangeJson

if TYPE_CHECKING:
    from autoturbo.heterogeneous.evaluator import MachineEvaluator
    from autoturbo.schedule.schedule import AnySchedule
    from autoturbo.simulate.evaluator import Evaluator

USAGE = "MODEL [--target T] [--scheduler NAME | --schedule FILE | --knobs FILE] [options]"
EXAMPLE = "autoturbo simulate examples/models/resnet50.onnx --scheduler tvm"


class SimulateLine(MeasurementJson, ModelNotes):
    """One schedule measured, and where its time went."""

    scheduler: str
    counters: Counters
    known_error: Real | None
    latency_range: RangeJson | None


def add_arguments(parser: Parser) -> None:
    """Add the model, the target, and what gives the schedule."""
    add_model_options(parser)
    add_target_options(parser)
    add_flags(parser, TuneConfig, "measurer")
    add_schedule_options(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Measure and print."""
    from autoturbo.hardware import known_error
    from autoturbo.simulate.unpublished import simulated_range

    pair = load_any_pair(options)
    notes = tell_notes(pair.model, console)
    evaluator = pair.evaluator()
    name, schedule, _ = chosen_schedule(options, pair, evaluator)
    measurement = required(_measured(evaluator, schedule), f"{pair}: {name}")
    counters = measurement.counters()
    error = known_error(pair.target, measurement.kernel_seconds)
    found = simulated_range(schedule, pair.measurer, measurement.latency)
    line: SimulateLine = {
        **measurement.as_json(), "scheduler": name, "counters": counters, "known_error": error,
        "latency_range": found.as_json() if found else None, **notes,
    }  # fmt: skip
    console.emit(line)
    if not console.json:
        console.answer(f"{pair}, {pair.dtype}: {name} ({figures_of(pair.measurer, error)})")
    console.compare({name: measurement})
    if said := range_sentence(measurement.latency, found):
        console.answer(said)
    return 0


def _measured(evaluator: Evaluator | MachineEvaluator, schedule: AnySchedule) -> Outcome:
    """Measure a schedule; one of a machine is measured by its assignment."""
    measure: Callable[[Any], Outcome] = evaluator.measure
    return measure(getattr(schedule, "assignment", schedule))
