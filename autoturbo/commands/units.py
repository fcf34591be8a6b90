"""Machines of several processing units on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autoturbo.commands.loading import load_model
from autoturbo.commands.values import merged_shapes, wrong

if TYPE_CHECKING:
    import argparse

    from autoturbo.commands.console import Console
    from autoturbo.hardware.machine import Machine
    from autoturbo.simulate.units.machine import MachineMeasurement, MachineOutcome
    from autoturbo.simulate.units.profiles import Profiles

TRIALS = 400
"""Settings that our search measures beside the published tuners."""


def compare_units(options: argparse.Namespace, console: Console, machine: Machine) -> int:
    """Every way to share a model out among the units of a machine, side by side.

    Raises:
        UsageError: a data type that not all units compute in.
    """
    from autoturbo.simulate.units.profiles import Profiles

    shapes = merged_shapes(options.shape) or None
    graph = load_model(options.model, batch=options.batch, shapes=shapes)
    dtype = options.dtype or next(iter(machine.dtypes), None)
    if dtype not in machine.dtypes:
        message = f"not all units of {machine.name} compute in {dtype!r}"
        raise wrong("--dtype", message, f"one of {', '.join(machine.dtypes) or 'none'}")
    profiles = Profiles(graph, machine, dtype)
    outcomes = _outcomes(profiles)
    console.emit(
        {
            "model": graph.name,
            "target": machine.name,
            "schedulers": {name: _as_json(outcome) for name, outcome in outcomes.items()},
        }
    )
    if not console.json:
        console.answer(f"{graph.name} @ {machine.name}, {dtype}")
        console.show(_table(outcomes))
    return 0


def _outcomes(profiles: Profiles) -> dict[str, MachineOutcome]:
    """What does not fit first, then the slowest."""
    from autoturbo.schedule.baselines.partition_tuner import SCHEDULERS
    from autoturbo.schedule.units.parts import assign
    from autoturbo.search.units import best_assignment
    from autoturbo.simulate.units.machine import measure_assignment

    count = len(profiles.layers)
    starts = {
        profiles.machine.units[0].name: assign(
            profiles.graph, profiles.layers, [0] * count, range(count)
        )
    }
    starts |= {name: scheduler(profiles) for name, scheduler in SCHEDULERS.items()}
    found = {name: measure_assignment(profiles, start) for name, start in starts.items()}
    best = best_assignment(profiles, trials=TRIALS, starts=list(starts.values()))
    if best is not None:
        found["tuned"] = best.best
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
        "parts": len(outcome.assignment.parts),
    }


def _table(outcomes: dict[str, MachineOutcome]) -> Any:
    from autoturbo.report.tables import table
    from autoturbo.report.units import count, duration, ratio, size
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
