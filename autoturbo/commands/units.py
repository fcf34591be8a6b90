"""Machines of several processing units on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autoturbo.commands.console import Console
from autoturbo.commands.facts import assumed, notes_field
from autoturbo.commands.loading import MachinePair
from autoturbo.report.units import count, duration, ratio, size

if TYPE_CHECKING:
    from autoturbo.simulate.units.evaluator import MachineEvaluator
    from autoturbo.simulate.units.machine import MachineMeasurement, MachineOutcome

TRIALS = 400
"""Settings that our search measures beside the published tuners."""


def compare_units(pair: MachinePair, console: Console, database: str) -> int:
    """Every way to share a model out among the units of a machine, side by side.

    Args:
        pair: the model and the machine.
        console: where it is shown.
        database: whose best schedule is the tuned one; searched for now where it has none.
    """
    evaluator = pair.evaluator()
    kept = _kept(pair, evaluator, database)
    outcomes = _outcomes(evaluator, kept)
    missing = pair.model.uncounted
    console.emit(
        {
            "incomplete": None if missing is None else missing.as_dict(),
            "model": pair.model.name,
            "target": pair.target.name,
            "mixed_samples": None,  # units share out operators, not samples
            "schedulers": {name: _as_json(outcome) for name, outcome in outcomes.items()},
            **notes_field(assumed(pair.model)),
        }
    )
    if not console.json:
        console.answer(f"{pair.model.name} @ {pair.target.name}, {pair.dtype}")
        console.show(_table(outcomes))
        if missing is not None:
            console.answer(missing.sentence)
    if kept is None:
        console.say(f"tuned: the best of {TRIALS} settings tried now; 'autoturbo tune' keeps it")
    return 0


def _kept(pair: MachinePair, evaluator: MachineEvaluator, path: str) -> MachineOutcome | None:
    """What the best schedule that a database has measures; None where it has none."""
    from autoturbo.commands.scheduling import best_of_database
    from autoturbo.schedule.units.files import decided
    from autoturbo.simulate.units.machine import measure_assignment

    best = best_of_database(path, pair)
    if best is None:
        return None
    stored = decided(best.schedule, pair.model, pair.target, path)
    return measure_assignment(evaluator.profiles, stored.assignment)


def _outcomes(
    evaluator: MachineEvaluator, kept: MachineOutcome | None
) -> dict[str, MachineOutcome]:
    """What does not fit first, then the slowest."""
    from autoturbo.search.units import best_assignment
    from autoturbo.simulate.units.evaluator import scheduler_names
    from autoturbo.simulate.units.machine import measure_assignment

    profiles = evaluator.profiles
    starts = {name: evaluator.named(name) for name in scheduler_names(profiles.machine)}
    found = {name: measure_assignment(profiles, start) for name, start in starts.items()}
    best = None
    if kept is None:
        best = best_assignment(profiles, trials=TRIALS, starts=list(starts.values()))
    tuned = kept if best is None else best.best
    if tuned is not None:
        found["tuned"] = tuned
    return dict(sorted(found.items(), key=lambda item: -_latency(item[1])))


def _latency(outcome: MachineOutcome) -> float:
    from autoturbo.simulate.measurement import Failure

    return float("inf") if isinstance(outcome, Failure) else outcome.latency


def _as_json(outcome: MachineOutcome) -> dict[str, Any]:
    from autoturbo.simulate.measurement import Failure

    if isinstance(outcome, Failure):
        return {"failure": outcome.as_dict()}
    return {
        "latency_s": outcome.latency,
        "throughput_per_s": outcome.throughput,
        "ddr_bytes": outcome.ddr_bytes,
        "copied_bytes": outcome.copied_bytes,
        "copying_s": outcome.copying,
        "busy_s": dict(outcome.busy),
        "peak_bytes": outcome.peak_bytes,
        "held_bytes": dict(outcome.held),
        "parts": len(outcome.assignment.parts),
    }


def _table(outcomes: dict[str, MachineOutcome]) -> Any:
    from autoturbo.report.tables import table
    from autoturbo.simulate.measurement import Failure

    measured = [one for one in outcomes.values() if not isinstance(one, Failure)]
    base = next(iter(measured), None)

    def row(name: str, one: MachineOutcome) -> tuple[str, ...]:
        if isinstance(one, Failure):
            return (f"{name}: {one.message}", *["-"] * 7)
        return (
            name,
            duration(one.latency),
            count(one.throughput),
            "-" if base is None else ratio(base.latency / one.latency),
            _shares(one),
            duration(one.copying) if one.copying else "-",
            size(one.ddr_bytes),
            str(len(one.assignment.parts)),
        )

    head = ("scheduler", "latency", "samples/s", "speed-up", "busy", "copying", "DDR", "parts")
    return table(head, (row(name, one) for name, one in outcomes.items()), close=True)


def _shares(one: MachineMeasurement) -> str:
    """Shares of the time in which the units were busy, in the machine's order."""
    return "/".join(f"{100 * busy / one.latency:.0f}" for busy in one.busy.values()) + " %"
