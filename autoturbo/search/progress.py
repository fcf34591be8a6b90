"""Trials, the progress of a run, and its journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.measurement import Outcome


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate and its outcome.

    Attributes:
        number: Of the proposal, from 0 (the published heuristic).
        knobs: The candidate.
        outcome: Its measurement or failure.
    """

    number: int
    knobs: Knobs
    outcome: Outcome


def schedules_of(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Return the first trial of each schedule: settings with the same programs are one schedule.

    One whose program is not known, and one that failed, counts by itself.
    """
    seen, first = set[str](), list[Trial]()
    for trial in trials:
        program = program_of(trial.outcome)
        if program not in seen:
            first.append(trial)
        seen.update([program] if program else [])
    return tuple(first)


def program_of(outcome: object) -> str:
    """Return the digest of what was measured; empty where it is not known, or nothing was."""
    return getattr(outcome, "program", "")


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a run.

    Attributes:
        model: Its name.
        target: Its name.
        done: Schedules measured or failed.
        total: Schedules to measure, None where only time or the space limits them.
        best_latency: Seconds, of the best trial so far.
        default_latency: Seconds, of trial 0.
        best_trial: Number of the best trial so far.
        bound_fraction: Lower bound over the best latency.
        measured_per_s: Outcomes that came per second.
        screened: Candidates that the kernel model looked at.
        infeasible: Failed trials by reason.
        elapsed_s: Seconds since the start.
        remaining_s: Seconds to go, None while unknown: before a first round of trials is through
            nothing tells, unless time is limited.
        phase: What comes before the first trial, or that functions are compiled; else empty.
        compiled: Functions compiled so far, where that is what goes on.
        to_compile: Those and the ones to come, 0 where nothing is being compiled.
        ended: Whether the search has stopped: no trial follows.
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
    ended: bool = False
