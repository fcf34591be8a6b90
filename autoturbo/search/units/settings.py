"""What a run on a machine of several units is asked for where nothing else is said."""

from __future__ import annotations

import dataclasses

from autoturbo.errors import UsageError
from autoturbo.hardware.machine import Machine
from autoturbo.search.names import ANNEALING, OURS
from autoturbo.search.settings import Settings
from autoturbo.search.units.annealing import ROUND
from autoturbo.simulate.units.evaluator import scheduler_names

UNIT_EFFORTS = {"quick": 400, "standard": 2000, "thorough": 10000}
"""Settings of each effort, where cycles of annealing end: one takes some milliseconds."""

BASELINES = ("tvm", "graphturbo")
"""What is measured beside a run on a target where nothing is said."""


def on_machine(asked: Settings, machine: Machine) -> Settings:
    """The same for a machine: its own sampler, effort, rounds and baselines."""
    trials, baselines = asked.trials, asked.baselines
    if trials is None and asked.time_budget is None:
        trials = UNIT_EFFORTS.get(asked.effort)
    return dataclasses.replace(
        asked,
        trials=trials,
        sampler=ANNEALING if asked.sampler == OURS else asked.sampler,
        baselines=scheduler_names(machine) if baselines == BASELINES else baselines,
        subgraphs=0,
        round=asked.round or ROUND,
    )


def check_on_machine(asked: Settings, objectives: int) -> None:
    """Refuse what a machine cannot be asked for.

    Raises:
        UsageError: energy, which no machine gives, or several objectives for annealing.
    """
    if "energy" in asked.objective.split(","):
        hint = "latency, throughput or ddr-bytes"
        raise UsageError("machines of several units give no energy figures", hint=hint)
    if asked.sampler == ANNEALING and objectives > 1:
        hint = "take nsgaii, tpe or random with --sampler"
        raise UsageError("annealing over units works on one objective", hint=hint)
