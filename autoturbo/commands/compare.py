"""Show every scheduler and the best tuned schedule of a model side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoturbo.commands.loading import (
    MachinePair,
    Pair,
    add_model_options,
    add_target_options,
    load_any_pair,
)
from autoturbo.commands.scheduling import best_of_database
from autoturbo.commands.tuning import REFERENCE
from autoturbo.commands.units import compare_units

if TYPE_CHECKING:
    import argparse

    from autoturbo.commands.console import Console
    from autoturbo.commands.parser import Parser
    from autoturbo.simulate.measurement import Outcome

USAGE = "MODEL [--target T] [options]"
EXAMPLE = "autoturbo compare examples/models/resnet50.onnx --target stcp920"


def add_arguments(parser: Parser) -> None:
    """The model and the target."""
    add_model_options(parser)
    add_target_options(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Measure all, print one table: what does not fit first, then the slowest."""
    from autoturbo.report.tables import comparison
    from autoturbo.schedule.baselines import scheduler_names
    from autoturbo.simulate.blocks import dlfusion_outcome

    pair = load_any_pair(options)
    if isinstance(pair, MachinePair):
        return compare_units(pair, console, options.db)
    evaluator = pair.evaluator()
    outcomes = {name: evaluator.measure_scheduler(name) for name in scheduler_names()}
    if pair.target.clusters == 1 and pair.target.cores > 1:  # the kind of chip that it is for
        outcomes["dlfusion"] = dlfusion_outcome(*pair)
    tuned = best_of_database(options.db, pair)
    if tuned is not None:
        outcomes["tuned"] = tuned.measurement
    outcomes = dict(sorted(outcomes.items(), key=lambda item: -_latency(item[1])))
    console.emit(_as_json(pair, outcomes))
    if not console.json:
        console.answer(f"{pair.model.name} @ {pair.target.name}, {pair.dtype}")
        console.show(comparison(outcomes, REFERENCE))
    if tuned is None:
        console.say("not tuned yet: 'autoturbo tune' adds the best schedule that it finds")
    return 0


def _latency(outcome: Outcome) -> float:
    from autoturbo.simulate.measurement import Measurement

    return outcome.latency if isinstance(outcome, Measurement) else float("inf")


def _as_json(pair: Pair, outcomes: dict[str, Outcome]) -> dict[str, object]:
    from autoturbo.simulate.measurement import Measurement

    schedulers = {
        name: outcome.as_json()
        if isinstance(outcome, Measurement)
        else {"failure": outcome.as_dict()}
        for name, outcome in outcomes.items()
    }
    return {"model": pair.model.name, "target": pair.target.name, "schedulers": schedulers}
