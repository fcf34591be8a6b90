"""Show every scheduler and the best tuned schedule of a model side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.commands.loading import (
    Pair,
    add_measurer_option,
    add_model_options,
    add_target_options,
    load_pair,
)
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
    add_measurer_option(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Measure all, print one table: what does not fit first, then the slowest."""
    from autoturbo.hardware.machine_file import find_machine
    from autoturbo.report.tables import comparison
    from autoturbo.schedule.baselines import scheduler_names

    machine = find_machine(options.target)
    if machine is not None:
        return compare_units(options, console, machine)
    pair = load_pair(options)
    evaluator = pair.evaluator()
    outcomes = {name: evaluator.measure_scheduler(name) for name in scheduler_names()}
    tuned = _tuned(pair, options.db)
    if tuned is not None:
        outcomes["tuned"] = tuned
    outcomes = dict(sorted(outcomes.items(), key=lambda item: -_latency(item[1])))
    console.emit(_as_json(pair, outcomes))
    if not console.json:
        console.answer(f"{pair.model.name} @ {pair.target.name}, {pair.dtype}")
        console.show(comparison(outcomes, REFERENCE))
    if tuned is None:
        console.say("not tuned yet: 'autoturbo tune' adds the best schedule that it finds")
    return 0


def _tuned(pair: Pair, database: str) -> Outcome | None:
    """The best schedule that the database holds for the pair, or None."""
    from autoturbo.database import Database
    from autoturbo.tuner import scheduler_version

    if not Path(database).exists():
        return None
    with Database.open(database, create=False, read_only=True) as opened:
        found = opened.best(
            graph_hash=pair.model.hash,
            target_hash=pair.target.hash,
            dtype=pair.dtype,
            scheduler_version=scheduler_version(pair.measurer),
        )
    return min((best.measurement for best in found), key=lambda m: m.latency, default=None)


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
