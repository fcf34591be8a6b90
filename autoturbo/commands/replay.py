"""Measure one trial of a run again, and say whether the numbers are the same.

They are, to the bit, on any machine and any number of workers; where they are not, something that
the measurement depends on has changed without its version, and the status is 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from autoturbo.commands.console import Console
from autoturbo.commands.loading import model_of_run
from autoturbo.commands.of_run import add_run_argument, not_of_machines
from autoturbo.commands.parser import Parser, whole_number
from autoturbo.errors import RunError

if TYPE_CHECKING:
    from autoturbo.database import RunInfo
    from autoturbo.simulate.evaluator import Evaluator
    from autoturbo.simulate.units.evaluator import MachineEvaluator

USAGE = "RUN TRIAL [options]"
EXAMPLE = "autoturbo replay 4f1c 12"


def add_arguments(parser: Parser) -> None:
    """The run and the trial."""
    add_run_argument(parser)
    number = whole_number("TRIAL", 0)
    parser.add_argument("trial", metavar="TRIAL", type=number, help="its number, from 0")


def run(options: argparse.Namespace, console: Console) -> int:
    """Measure, compare, print."""
    from autoturbo.database import Database
    from autoturbo.report.tables import comparison
    from autoturbo.simulate.measurement import Measurement

    with Database.open(options.db, create=False, read_only=True) as database:
        info = database.run(options.run)
        trials = {trial.number: trial for trial in database.trials(info.id)}
    if options.trial not in trials:
        has = f"it has {len(trials)}, 0 to {max(trials)}" if trials else "it has none"
        raise RunError(f"run {info.id} has no trial {options.trial}", hint=has)
    recorded = trials[options.trial].outcome
    replayed = evaluator_of_run(info).evaluate(trials[options.trial].knobs)
    changed = list(_changed(recorded.as_dict(), replayed.as_dict()))
    values = (
        replayed.as_json() if isinstance(replayed, Measurement) else {"failure": replayed.as_dict()}
    )
    begun_with = ["the heuristic", *info.settings.get("origins", ())]
    said = {
        "run": info.id, "trial": options.trial, "same": not changed, "changed": changed,
        "begun_with": begun_with,
    }  # fmt: skip
    console.emit({**said, **values})
    if not console.json:
        console.answer(f"run {info.id}, trial {options.trial}: {info.model} @ {info.target}")
        console.answer(f"the run began with {'; '.join(begun_with)}")
        console.show(comparison({"recorded": recorded, "replayed": replayed}, "recorded"))
        console.answer(f"not the same: {', '.join(changed)}" if changed else "the same, to the bit")
    return 1 if changed else 0


def evaluator_of_run(info: RunInfo) -> Evaluator | MachineEvaluator:
    """What measured a run's trials.

    Raises:
        RunError: the model, the target or the version is another one now, or is not recorded.
    """
    from autoturbo.hardware import Target
    from autoturbo.hardware.machine_file import target_from_dict
    from autoturbo.search.executors.processes import evaluator_by
    from autoturbo.simulate.contract import SIMULATOR
    from autoturbo.simulate.units.evaluator import evaluator_of
    from autoturbo.tuner import measurer_of, pair_key, scheduler_version

    measurer = measurer_of(info)
    if info.key.scheduler_version != scheduler_version(measurer):
        message = f"run {info.id} is of another version of the scheduler"
        raise RunError(message, hint="replay it with the release that its manifest names")
    description = info.settings.get("target_description")
    if description is None:
        raise RunError(f"run {info.id}: its target is not recorded", hint="replay another run")
    graph, target = model_of_run(info), target_from_dict(description)
    if pair_key(graph, target, info.key.dtype, measurer) != info.key:
        raise RunError(f"run {info.id}: {info.model_file} has changed", hint="replay another run")
    if measurer != SIMULATOR and isinstance(target, Target):
        return evaluator_by(measurer, graph, target, info.key.dtype)
    return evaluator_of(graph, target, info.key.dtype)


def evaluator_on_target(info: RunInfo) -> Evaluator:
    """What measured the trials of a run that is not on a machine.

    Raises:
        RunError: it is, or as :func:`evaluator_of_run`.
    """
    from autoturbo.simulate.evaluator import Evaluator

    found = evaluator_of_run(info)
    if not isinstance(found, Evaluator):
        raise not_of_machines(info)
    return found


def _changed(recorded: Mapping[str, Any], replayed: Mapping[str, Any]) -> Iterator[str]:
    """Fields that differ."""
    for name in dict.fromkeys((*recorded, *replayed)):
        if recorded.get(name) != replayed.get(name):
            yield name
