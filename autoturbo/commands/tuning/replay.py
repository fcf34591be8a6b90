"""Measure one trial of a run again, and say whether the numbers are the same.

They are, to the bit, on any machine and any number of workers; where they are not, something that
the measurement depends on has changed without its version, and the status is 1.
"""

from __future__ import annotations

import argparse

from autoturbo.commands.console import Console
from autoturbo.commands.flag_values import whole_number
from autoturbo.commands.parser import Parser
from autoturbo.commands.stored_runs import add_run_argument, stored_run
from autoturbo.errors import RunError
from autoturbo.report.units import origin_of, percent
from autoturbo.schema import Natural, TypedDict
from autoturbo.simulator.measurement import (
    FailedJson,
    Failure,
    Measurement,
    MeasurementJson,
    Outcome,
)

USAGE = "RUN TRIAL [options]"
EXAMPLE = "autoturbo replay 4f1c 12"


_Replayed = TypedDict("_Replayed", {
    "run": str, "trial": Natural, "same": bool, "changed": list[str], "warm_starts": list[str],
})  # fmt: skip
"""Which trial it is, and the fields that differ."""


class Measured(_Replayed, MeasurementJson):
    """One trial measured again; 'changed' names the fields that differ."""


class Failed(_Replayed, FailedJson):
    """One trial tried again that cannot be measured."""


ReplayLine = Measured | Failed
LINES = {"": ReplayLine}


def add_arguments(parser: Parser) -> None:
    """Add the run and the trial."""
    add_run_argument(parser)
    number = whole_number("TRIAL", 0)
    parser.add_argument("trial", metavar="TRIAL", type=number, help="number of the trial, from 0")


def run(options: argparse.Namespace, console: Console) -> int:
    """Measure, compare, print."""
    from autoturbo.tuning.keys import measurer_of

    run = stored_run(options.run, options.db)
    info, trial = run.info, run.trial(options.trial)
    if trial is None:
        numbers = [trial.number for trial in run.trials]
        has = f"it has {len(numbers)}, 0 to {max(numbers)}" if numbers else "it has none"
        raise RunError(f"run {info.id} has no trial {options.trial}", hint=has)
    recorded, replayed = trial.outcome, run.evaluator().evaluate(trial.knobs)
    before, now = recorded.as_dict(), replayed.as_dict()
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    noise = _noise_between(recorded, replayed)
    if noise is not None:
        changed = []
    warm_starts = ["the heuristic", *info.settings.get("origins", ())]
    said: _Replayed = {
        "run": info.id, "trial": options.trial, "same": not changed, "changed": changed,
        "warm_starts": warm_starts,
    }  # fmt: skip
    if isinstance(replayed, Failure):
        failed: Failed = {**said, "failure": replayed.as_dict()}
        console.emit(failed)
    else:
        measured: Measured = {**said, **replayed.as_json()}
        console.emit(measured)
    origin = origin_of(measurer_of(info))
    name = f"{info.model} @ {info.target} ({origin})"
    console.answer(f"run {info.id}, trial {options.trial}: {name}")
    console.answer(f"the search started from: {'; '.join(warm_starts)}")
    console.compare({"recorded": recorded, "replayed": replayed}, "recorded")
    equal = "to the bit" if noise is None else f"within the noise of {percent(noise)}"
    console.answer(
        f"replayed and recorded differ in {', '.join(changed)}"
        if changed
        else f"replayed and recorded are equal, {equal}"
    )
    return 1 if changed else 0


def _noise_between(recorded: Outcome, replayed: Outcome) -> float | None:
    """Return the noise that explains how two measurements differ; None where none does."""
    from autoturbo.statistics import alike

    if not isinstance(recorded, Measurement) or not isinstance(replayed, Measurement):
        return None
    if recorded.noise is None or replayed.noise is None:
        return None
    noise = max(recorded.noise, replayed.noise)
    return noise if alike((recorded.latency, replayed.latency), noise) else None
