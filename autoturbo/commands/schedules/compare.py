"""Show every scheduler and the best tuned schedule of a model side by side."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired

from autoturbo.commands.config_flags import add_flags
from autoturbo.commands.console import Console, warn
from autoturbo.commands.loading import (
    ModelNotes,
    Pair,
    add_model_options,
    add_target_options,
    load_any_pair,
    tell_notes,
)
from autoturbo.commands.parser import Parser
from autoturbo.commands.schedules.machine_comparison import (
    TRIALS,
    UnitsJson,
    kept_outcome,
    show_outcomes,
    unit_outcomes,
    units_json,
)
from autoturbo.commands.scheduling import best_of_database, measured_schedule, why_no_best
from autoturbo.config import TuneConfig
from autoturbo.errors import PluginError, UsageError
from autoturbo.graph.operators import Graph, UncountedJson
from autoturbo.registry import HEURISTIC, PUBLISHED
from autoturbo.report.gains import REFERENCE
from autoturbo.report.sharing import MixedSamples, mixed_samples, mixed_sentence
from autoturbo.report.units import duration, figures_of, range_sentence
from autoturbo.report.views import View, Viewed, comparison_view
from autoturbo.schema import Duration
from autoturbo.simulator.measurement import (
    FailedJson,
    Failure,
    LatencyRange,
    Measurement,
    MeasurementJson,
    Outcome,
    RangeJson,
    seconds_of,
)

if TYPE_CHECKING:
    from autoturbo.hardware import Target
    from autoturbo.hardware.machine import Machine
    from autoturbo.heterogeneous.measurement import MachineOutcome
    from autoturbo.simulator.evaluator import Evaluator

USAGE = "MODEL [--target T] [options]"
EXAMPLE = "autoturbo compare resnet50 --target stcp920"


def add_arguments(parser: Parser) -> None:
    """Add the model and the target."""
    add_model_options(parser)
    add_target_options(parser)
    add_flags(parser, TuneConfig, "measurer")


def run(options: argparse.Namespace, console: Console) -> int:
    """Measure all, print one table: what does not fit first, then the slowest."""
    from autoturbo.hardware import Target
    from autoturbo.hardware.machine import Machine

    pair = load_any_pair(options)
    target, notes = pair.target, tell_notes(pair.model, console)
    if isinstance(target, Machine):
        on_units = Pair(pair.model, target, pair.dtype)
        return _compare_units(on_units, console, options.db, notes)
    if not isinstance(target, Target):
        raise TypeError(target)
    found = compare(
        pair.model, target, dtype=pair.dtype, database=options.db, measurer=pair.measurer
    )
    console.emit({**found.as_json(), **notes})
    if not console.json:
        console.answer(f"{pair}, {found.dtype} ({figures_of(pair.measurer, found.known_error)})")
        console.compare(found.outcomes, REFERENCE)
        for name, span in found.ranges.items():
            said = range_sentence(seconds_of(found.outcomes[name]), span)
            console.answer(f"{HEURISTIC if name == PUBLISHED else name}: {said}")
        if found.mixed_samples:
            console.say(f"samples {mixed_sentence(found.mixed_samples)}")
    if found.recorded is not None:
        said = duration(found.recorded)
        warn(f"tuned: {options.db} says {said}, measured now it takes what the table says")
    if "tuned" not in found.outcomes:
        console.say(f"{why_no_best(options.db, pair)}: 'autoturbo tune' adds one")
    return 0


class CompareLine(ModelNotes):
    """Every scheduler's best schedule.

    On a machine of several units: every way to share the model out.
    """

    model: str
    target: str
    mixed_samples: MixedSamples | None
    incomplete: NotRequired[UncountedJson | None]
    schedulers: dict[str, MeasurementJson | FailedJson | UnitsJson]
    tuned_recorded_s: NotRequired[Duration]
    known_error: float | None
    latency_range: dict[str, RangeJson]


LINES = {"": CompareLine}


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Viewed):
    """What schedulers get out of a model on a target.

    Attributes:
        model: Name of the model.
        target: Name of the target.
        dtype: Data type that it computes in.
        outcomes: Outcomes by scheduler, what does not fit first, then the slowest; ``"tuned"`` is
            the best schedule of the database.
        mixed_samples: Why samples cannot be told apart, or None.
        recorded: Seconds that the database says of the tuned schedule, where measuring it now gives
            something else; else None.
        known_error: Relative error of the target's simulated times; None where nobody compared
            them with measured ones.
        ranges: Range of the heuristic's latency, where that depends on what is not published of the
            target.
    """

    model: str
    target: str
    dtype: str
    outcomes: Mapping[str, Outcome]
    mixed_samples: MixedSamples | None = None
    recorded: float | None = None
    known_error: float | None = None
    ranges: Mapping[str, LatencyRange] = field(default_factory=dict)

    def as_json(self) -> CompareLine:
        """Return the line of ``compare --json``."""
        line: CompareLine = {
            "model": self.model, "target": self.target, "mixed_samples": self.mixed_samples,
            "schedulers": {name: _as_json(one) for name, one in self.outcomes.items()},
            "known_error": self.known_error,
            "latency_range": {name: span.as_json() for name, span in self.ranges.items()},
        }  # fmt: skip
        if self.recorded is not None:
            line["tuned_recorded_s"] = self.recorded
        return line

    def view(self) -> View:
        """Return the comparison as a view."""
        return comparison_view(f"{self.model} @ {self.target}, {self.dtype}", self.outcomes)

    def picture(self) -> str:
        """Return the speed of each as SVG; empty where it cannot be drawn."""
        from autoturbo.report.plots import speed_plot

        fit = {name: one for name, one in self.outcomes.items() if isinstance(one, Measurement)}
        with suppress(UsageError):
            return speed_plot(f"{self.model} @ {self.target}", fit).svg() if fit else ""
        return ""

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.outcomes)} for {self.model!r} on {self.target!r}>"


def compare(
    model: Graph,
    target: Target,
    *,
    dtype: str | None = None,
    database: str | Path | None = None,
    measurer: str = "simulator",
) -> Comparison:
    """Measure every scheduler's best schedule of a model on a target.

    Args:
        model: The graph with its batch.
        target: The accelerator.
        dtype: Compute type; the target's default if None.
        database: Where tuned schedules are looked up; None, as in :func:`autoturbo.tune`, or a
            file that is not there: none are.
        measurer: Name of the measurer.

    Returns:
        The outcome of every scheduler, of DLFusion where the chip is of its kind, and of the tuned
        schedule where there is one; the fastest first.

    Raises:
        UsageError: The target does not compute in the type, or there is no such measurer.
    """
    from autoturbo.baselines.dlfusion_blocks import dlfusion_outcome
    from autoturbo.database.believing import simulated_otherwise
    from autoturbo.hardware import known_error
    from autoturbo.registry import SCHEDULERS, SIMULATOR
    from autoturbo.search.executors.remote import evaluator_by
    from autoturbo.simulator.unpublished import simulated_range

    chosen = dtype or target.default_dtype
    evaluator = evaluator_by(measurer, model, target, chosen)
    outcomes = {name: _measured(evaluator, name) for name in SCHEDULERS.names()}
    if measurer == SIMULATOR and target.clusters == 1 and target.cores > 1:
        outcomes["dlfusion"] = dlfusion_outcome(model, target, chosen)  # the chip that it is for
    pair = Pair(model, target, chosen, measurer)
    tuned = None if database is None else best_of_database(database, pair)
    told = None
    if tuned is not None:  # measured now, like all others
        outcomes["tuned"] = measured_schedule(tuned.schedule, pair, str(database), evaluator)
        if simulated_otherwise(tuned.measurement.latency, outcomes["tuned"]):
            told = tuned.measurement.latency
    ordered = dict(sorted(outcomes.items(), key=lambda item: -seconds_of(item[1])))
    mixed = mixed_samples(model, {target.name: target.clusters})
    ranges = {}
    if isinstance(published := outcomes[PUBLISHED], Measurement):
        schedule, _ = evaluator.scheduler(PUBLISHED)
        if span := simulated_range(schedule, measurer, published.latency):
            ranges[PUBLISHED] = span
    error = known_error(target)
    return Comparison(model.name, target.name, chosen, ordered, mixed, told, error, ranges)


def _measured(evaluator: Evaluator, name: str) -> Outcome:
    """Measure a scheduler; a plug-in that is broken fails alone."""
    try:
        return evaluator.measure_scheduler(name)
    except PluginError as error:
        return Failure("raised", str(error))


def _compare_units(pair: Pair[Machine], console: Console, database: str, notes: ModelNotes) -> int:
    """Compare the ways to share a model out among the units of a machine.

    The tuned one is the best schedule of the database; searched for now where it has none.

    Returns:
        The exit status: 0.
    """
    from autoturbo.heterogeneous.evaluator import MachineEvaluator

    evaluator = MachineEvaluator(pair.model, pair.target, pair.dtype)
    kept = kept_outcome(pair, evaluator, database)
    outcomes = unit_outcomes(evaluator, kept)
    missing = pair.model.uncounted
    line: CompareLine = {
        "incomplete": None if missing is None else missing.as_dict(),
        "model": pair.model.name, "target": pair.target.name,
        "mixed_samples": None,  # units share out operators, not samples
        "known_error": None, "latency_range": {},
        "schedulers": {name: _as_json(outcome) for name, outcome in outcomes.items()},
    }  # fmt: skip
    console.emit({**line, **notes})
    if not console.json:
        console.answer(f"{pair}, {pair.dtype} ({figures_of(pair.measurer, None)})")
        show_outcomes(outcomes, console)
        if missing is not None:
            console.answer(missing.sentence)
    if kept is None:
        console.say(
            f"tuned: best of {TRIALS} settings tried now, not kept; 'autoturbo tune' keeps its best"
        )
    return 0


def _as_json(outcome: Outcome | MachineOutcome) -> MeasurementJson | UnitsJson | FailedJson:
    if isinstance(outcome, Failure):
        return {"failure": outcome.as_dict()}
    if isinstance(outcome, Measurement):
        return outcome.as_json()
    return units_json(outcome)
