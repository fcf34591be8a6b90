"""Ways to share a model out among the units of a machine, measured side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from autoturbo.commands.console import Console
from autoturbo.commands.loading import Pair
from autoturbo.commands.scheduling import best_of_database
from autoturbo.report.units import count, duration, percent, ratio, size, versus
from autoturbo.schema import Described, Duration, Natural, TypedDict
from autoturbo.simulator.measurement import Failure, seconds_of

if TYPE_CHECKING:
    from autoturbo.hardware.machine import Machine
    from autoturbo.heterogeneous.evaluator import MachineEvaluator
    from autoturbo.heterogeneous.measurement import MachineMeasurement, MachineOutcome


_Size = Annotated[float, Ge(0.0), Described(unit="bytes")]

UnitsJson = TypedDict("UnitsJson", {
    "latency_s": Duration, "throughput_per_s": float | None, "ddr_bytes": _Size,
    "copied_bytes": _Size, "copying_s": Duration, "busy_s": dict[str, Duration],
    "peak_bytes": _Size, "held_bytes": dict[str, _Size], "parts": Natural,
})  # fmt: skip
"""A model shared out among the units of a machine."""

# as many as the first cycle of the annealing, so that it ends cold
TRIALS = 400
"""Settings that our search measures beside the published tuners."""


def kept_outcome(
    pair: Pair[Machine], evaluator: MachineEvaluator, path: str
) -> MachineOutcome | None:
    """Measure the best schedule that a database has; None where it has none."""
    from autoturbo.heterogeneous.files import decided
    from autoturbo.heterogeneous.measurement import measure_assignment

    best = best_of_database(path, pair)
    if best is None:
        return None
    stored = decided(best.schedule, pair.model, pair.target, path)
    return measure_assignment(evaluator.profiles, stored.assignment)


def unit_outcomes(
    evaluator: MachineEvaluator, kept: MachineOutcome | None
) -> dict[str, MachineOutcome]:
    """Return the schedulers' outcomes, first what does not fit, then from the slowest on."""
    from autoturbo.heterogeneous.annealing import best_assignment
    from autoturbo.heterogeneous.evaluator import scheduler_names
    from autoturbo.heterogeneous.measurement import measure_assignment

    profiles = evaluator.profiles
    starts = {name: evaluator.named(name) for name in scheduler_names(profiles.machine)}
    found = {name: measure_assignment(profiles, start) for name, start in starts.items()}
    if kept is None:
        best = best_assignment(profiles, trials=TRIALS, starts=list(starts.values()))
        kept = None if best is None else best.best
    if kept is not None:
        found["tuned"] = kept
    return dict(sorted(found.items(), key=lambda item: -seconds_of(item[1])))


def units_json(outcome: MachineMeasurement) -> UnitsJson:
    """Return the measurement of an assignment as ``compare --json`` has it."""
    return {
        "latency_s": outcome.latency, "throughput_per_s": outcome.throughput,
        "ddr_bytes": outcome.ddr_bytes, "copied_bytes": outcome.copied_bytes,
        "copying_s": outcome.copying, "busy_s": dict(outcome.busy),
        "peak_bytes": outcome.peak_bytes, "held_bytes": dict(outcome.held),
        "parts": len(outcome.assignment.parts),
    }  # fmt: skip


def show_outcomes(outcomes: Mapping[str, MachineOutcome], console: Console) -> None:
    """Print the outcomes as a table, and below it how busy each unit was."""
    measured = [one for one in outcomes.values() if not isinstance(one, Failure)]
    base = next(iter(measured), None)

    def row(name: str, one: MachineOutcome) -> tuple[str, ...]:
        if isinstance(one, Failure):
            return (f"{name}: {one.message}", *["-"] * 6)
        return (
            name,
            duration(one.latency),
            count(one.throughput),
            "-" if base is None else ratio(base.latency / one.latency),
            duration(one.copying) if one.copying else "-",
            size(one.ddr_bytes),
            str(len(one.assignment.parts)),
        )

    versus_base = versus(next((n for n, one in outcomes.items() if one is base), None))
    head = ("scheduler", "latency", "samples/s", versus_base, "copying", "DDR traffic", "parts")
    console.table(head, (row(name, one) for name, one in outcomes.items()), close=True)
    busy = {name: one for name, one in outcomes.items() if not isinstance(one, Failure)}
    if busy:
        console.answer("")
        console.answer("share of the latency in which each unit is busy")
        rows = ((name, *_shares(one)) for name, one in busy.items())
        console.table(("scheduler", *next(iter(busy.values())).busy), rows, close=True)


def _shares(one: MachineMeasurement) -> list[str]:
    """Return the shares of the time in which the units were busy, in the machine's order."""
    return [percent(busy / one.latency) for busy in one.busy.values()]
