"""Measure one schedule of a model.

Of a scheduler by name, of a schedule file, or of a knobs file.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoturbo.commands.config_flags import add_flags
from autoturbo.commands.console import Console
from autoturbo.commands.loading import (
    AnyPair,
    ModelNotes,
    add_model_options,
    add_target_options,
    load_any_pair,
    tell_notes,
)
from autoturbo.commands.parser import Parser
from autoturbo.commands.scheduling import (
    ChosenSchedule,
    add_schedule_options,
    chosen_schedule,
    required,
)
from autoturbo.config import TuneConfig
from autoturbo.report.units import figures_of, range_sentence
from autoturbo.report.views import View, Viewed, measurement_view
from autoturbo.simulator.measurement import (
    Counters,
    LatencyRange,
    Measurement,
    MeasurementJson,
    Outcome,
    RangeJson,
)

if TYPE_CHECKING:
    from autoturbo.heterogeneous.evaluator import MachineEvaluator
    from autoturbo.report.plots import Plot
    from autoturbo.schedule.schedule import AnySchedule
    from autoturbo.simulator.evaluator import Evaluator

USAGE = "MODEL [--target T] [--scheduler NAME | --schedule FILE | --knobs FILE] [options]"
EXAMPLE = "autoturbo simulate resnet50 --scheduler tvm"


class SimulateLine(MeasurementJson, ModelNotes):
    """One schedule measured, and where its time went."""

    scheduler: str
    counters: Counters
    known_error: float | None
    latency_range: RangeJson | None


LINES = {"": SimulateLine}


def add_arguments(parser: Parser) -> None:
    """Add the model, the target, and what gives the schedule."""
    add_model_options(parser)
    add_target_options(parser)
    add_flags(parser, TuneConfig, "measurer")
    add_schedule_options(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Measure and print."""
    pair = load_any_pair(options)
    notes = tell_notes(pair.model, console)
    evaluator = pair.evaluator()
    found = simulated(pair, chosen_schedule(options, pair, evaluator), evaluator)
    console.emit(found.as_json(notes))
    if not console.json:
        console.answer(found.title)
    console.compare({found.scheduler: found.measurement})
    if said := range_sentence(found.latency, found.latency_range):
        console.answer(said)
    return 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Simulation(Viewed):
    """A schedule of a model on a target, and what measuring it gave.

    Attributes:
        pair: The model, the target, the data type and what measured.
        scheduler: Where the schedule is from: a scheduler's name, ``"schedule"`` or ``"knobs"``.
        schedule: The schedule, with ``text`` and ``save(path)``.
        measurement: Measurement of the schedule.
        known_error: Relative error of the target's simulated times; None where nobody compared
            them with measured ones.
        latency_range: Range of the latency, where that depends on what is not published of the
            target.
    """

    pair: AnyPair
    scheduler: str
    schedule: AnySchedule
    measurement: Measurement
    known_error: float | None
    latency_range: LatencyRange | None

    @property
    def latency(self) -> float:
        """Return the seconds of one evaluation of the model."""
        return self.measurement.latency

    @property
    def title(self) -> str:
        """Return what was measured and how its figures are known, on one line."""
        pair = self.pair
        known = figures_of(pair.measurer, self.known_error)
        return f"{pair}, {pair.dtype}: {self.scheduler} ({known})"

    def as_json(self, notes: ModelNotes | None = None) -> SimulateLine:
        """Return the object of ``simulate --json``, with notes on the model if any are given."""
        span, told = self.latency_range, notes or ModelNotes()
        return {
            **self.measurement.as_json(), "scheduler": self.scheduler,
            "counters": self.measurement.counters(), "known_error": self.known_error,
            "latency_range": span.as_json() if span else None, **told,
        }  # fmt: skip

    def plot(self, kind: str = "timeline") -> Plot:
        """Return a chart of the report; a notebook shows it, ``save(path)`` writes it.

        Args:
            kind: ``"timeline"`` (engines in time), ``"breakdown"`` (where the time goes) or
                ``"roofline"``.

        Raises:
            UsageError: There is no such plot, or not of such a schedule.
        """
        from autoturbo.report import plots

        plots.check_kind(kind, plots.SCHEDULE_PLOTS)
        measured = plots.measured_of(self.schedule, self.measurement)
        return plots.schedule_plot(kind, str(self.pair), {self.scheduler: measured})

    def view(self) -> View:
        """Return the measurement's figures as a view."""
        return dataclasses.replace(measurement_view(self.measurement), title=self.title)

    def __repr__(self) -> str:
        return f"<Simulation of {self.pair}, {self.scheduler}: {self.latency!r} s>"


def simulated(
    pair: AnyPair, chosen: ChosenSchedule, evaluator: Evaluator | MachineEvaluator
) -> Simulation:
    """Measure a schedule of a pair by the pair's measurer, which simulates unless told otherwise.

    Returns:
        The schedule with its measurement.

    Raises:
        InfeasibleError: It does not fit the target.
        MeasurerError: Measuring failed.
    """
    from autoturbo.hardware import known_error
    from autoturbo.simulator.unpublished import simulated_range

    measure: Callable[[Any], Outcome] = evaluator.measure
    schedule = chosen.schedule
    # One of a machine is measured by its assignment.
    outcome = measure(getattr(schedule, "assignment", schedule))
    measurement = required(outcome, f"{pair}: {chosen.name}")
    error = known_error(pair.target, measurement.kernel_seconds)
    span = simulated_range(schedule, pair.measurer, measurement.latency)
    return Simulation(pair, chosen.name, schedule, measurement, error, span)
