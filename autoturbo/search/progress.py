"""Trials, and how a run stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoturbo.schedule.knobs import Knobs
from autoturbo.simulate.measurement import Outcome


@dataclass(frozen=True, slots=True)
class Trial:
    """A setting and what became of it.

    Attributes:
        number: of the proposal, from 0 (the published heuristic).
        knobs: what was proposed.
        outcome: what measuring gave.
    """

    number: int
    knobs: Knobs
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Progress:
    """How a run stands.

    Attributes:
        model: its name.
        target: its name.
        done: trials measured or failed.
        total: trials to make, None where only time or the space limits them.
        best_latency: seconds, of the best trial so far.
        default_latency: seconds, of trial 0.
        best_trial: number of the best trial so far.
        bound_fraction: lower bound over the best latency.
        measured_per_s: outcomes that came per second.
        screened: settings that the kernel model looked at.
        infeasible: failed trials by reason.
        elapsed_s: seconds since the start.
        remaining_s: seconds to go, None while unknown: before a first round of trials is through
            nothing tells, unless time is limited.
        phase: what comes before the first trial, or that functions are compiled; else empty.
        compiled: functions compiled so far, where that is what goes on.
        to_compile: those and the ones to come, 0 where nothing is being compiled.
    """

    model: str
    target: str
    done: int
    total: int | None
    best_latency: float | None = None
    default_latency: float | None = None
    best_trial: int | None = None
    bound_fraction: float | None = None
    measured_per_s: float = 0.0
    screened: int = 0
    infeasible: Mapping[str, int] = field(default_factory=dict)
    elapsed_s: float = 0.0
    remaining_s: float | None = None
    phase: str = ""
    compiled: int = 0
    to_compile: int = 0
