"""The schedules that a run hands out: measured a second time, or raced, and checked.

The best schedule by what was sought, the fastest (for the database) and all members of a Pareto
front are checked, each once. A schedule that fails is refused and the next best that passes takes
its place.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from autoturbo.database import Race, RefusedTrial
from autoturbo.errors import RefusedError
from autoturbo.registry import VERIFIERS, trial_name
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.work import Floats
from autoturbo.search.constants import SEARCH, Racing
from autoturbo.search.executors.base import guarded
from autoturbo.search.objectives import Objective, figures, pareto
from autoturbo.search.progress import Trial, schedules_of
from autoturbo.search.selection.racing import race
from autoturbo.simulator.contract import Scheduled, TuningEvaluator
from autoturbo.simulator.measurement import Failure, Measurement, Outcome
from autoturbo.simulator.outcomes import TIME_IS_UP, tried
from autoturbo.verifier import VERIFIER_VERSION
from autoturbo.verifier.findings import Check, Finding, Verification

MOST_REFUSED = 16
"""Schedules that fail, after which a run gives up: something is wrong with all of them."""

_LINES = 20
"""Findings that are kept of one schedule."""

Verifier = Callable[[Scheduled], Verification | None]
"""Checks a schedule; None for a kind of schedule that it does not know."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best trial of a run.

    Attributes:
        trial: Its number.
        knobs: Its candidate.
        measurement: The recorded one, which was the same a second time, or what a race gave.
        schedule: Has ``text`` and ``save(path)``.
        verification: What checking it gave; None where the verifier knows nothing of it.
        doubt: Why it was measured only once; empty where it was not.
        race: How it was chosen where measurements vary; None where they repeat, or where there was
            no time for a race.
        reference: Trial 0 as that race measured it; None where it was not in it.
        varies: Whether the same schedule does not always take as long.
        notes: What people should know of how it was chosen, a line each.
    """

    trial: int
    knobs: Knobs
    measurement: Measurement
    schedule: Any = field(repr=False)
    verification: Verification | None = None
    doubt: str = ""
    race: Race | None = None
    reference: Measurement | None = None
    varies: bool = False
    notes: tuple[str, ...] = ()

    @property
    def verified(self) -> tuple[Check, ...]:
        """Return the checks that it passed."""
        return () if self.verification is None else passed(self.verification)


def passed(verification: Verification) -> tuple[Check, ...]:
    """Return the checks that were made and found nothing."""
    numbers = verification.numbers
    performed = {
        Check.REGIONS: True,
        Check.MEMORY: True,
        Check.NUMBERS: numbers and not numbers.skipped,
    }
    failed = {finding.check for finding in verification.findings}
    return tuple(check for check in Check if performed[check] and check not in failed)


def verifier_of(path: str | Path, *, numbers: bool) -> Verifier:
    """Return the verifier of our own schedules; it returns None for others.

    Args:
        path: The model's file.
        numbers: Whether to run the schedule in ONNX Runtime as well.
    """

    def verify(schedule: Scheduled) -> Verification | None:
        from autoturbo.verifier import verify_schedule

        if type(schedule).__name__ not in VERIFIERS.names():
            return None
        ours: Any = schedule
        return verify_schedule(ours, path=path, numbers=numbers)

    return verify


def summary(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return one line for each finding."""
    return tuple(f"{f.check.value}: {f.kind}: {f.message}" for f in findings)


@dataclass(eq=False)
class VerifiedSelection:
    """A run's trials; those that are to be handed out are checked.

    Attributes:
        name: Of model and target, for errors.
        trials: By number.
        tuning_evaluator: Builds schedules and measures.
        verifier: Checks schedules.
        log: Takes a line for people.
        expected: Returns what a kernel model says of trials, in proportion to the first objective;
            None where nothing is known. Asked where measurements vary.
        left: Returns how many measurements there is time for, about.
        reference: Whether trial 0 is there to compare with only: it is not as people have fixed it.
        breaks: Returns what a schedule has otherwise than people have fixed it; empty for nothing.
        racing: How the best are raced.
    """

    name: str
    trials: Sequence[Trial]
    tuning_evaluator: TuningEvaluator
    verifier: Verifier
    log: Callable[[str], None]
    expected: Callable[[Sequence[Trial]], Floats | None] = lambda _: None
    left: Callable[[], float] = lambda: math.inf
    reference: bool = False
    breaks: Callable[[Any], str] = lambda _: ""
    racing: Racing = SEARCH.racing
    _notes: list[str] = field(default_factory=list)
    _again: dict[int, list[Measurement | None]] = field(default_factory=dict)
    _doubt: str = ""
    _varied: bool = False
    _known: dict[int, tuple[Scheduled, Verification | None]] = field(default_factory=dict)
    _refused: dict[int, RefusedTrial] = field(default_factory=dict)
    _winner: Best | None = None
    _broken: dict[int, str] = field(default_factory=dict)

    @property
    def refused(self) -> tuple[RefusedTrial, ...]:
        """Return the trials that failed a check, by number."""
        return tuple(self._refused[number] for number in sorted(self._refused))

    def best(self, objectives: Sequence[Objective], rather: Best | None = None) -> Best:
        """Return the best trial that passes; of equals ``rather``, else the earliest.

        Where it measures differently the second time, measurements vary from then on.

        Raises:
            RefusedError: None passes.
        """
        liked = -1 if rather is None else rather.trial
        measured = schedules_of(t for t in self._eligible if isinstance(t.outcome, Measurement))

        def rank(trial: Trial) -> tuple[object, ...]:
            return (*figures(objectives, trial.outcome), trial.number != liked, trial.number)

        ranked = sorted(measured, key=rank)
        for trial in ranked:
            if self._varied or _varies(trial):
                return self._raced(ranked, objectives[0])
            if self._passes(trial):
                if rather and trial.number == liked:
                    return rather
                return self._best(trial) or self._raced(ranked, objectives[0])
        raise self._nothing()

    @property
    def _eligible(self) -> Sequence[Trial]:
        """Return the trials that may be handed out."""
        return self.trials[1:] if self.reference else self.trials

    def _raced(self, ranked: Sequence[Trial], objective: Objective) -> Best:
        """Return the winner of a race of the best trials that pass, once for all who ask.

        Args:
            ranked: Trials, the best first; trial 0 is the reference.
            objective: What the race is about.

        Raises:
            RefusedError: None passes.
        """
        if self._winner is None:
            promise = self._promise(ranked, objective)
            ordered = sorted(ranked, key=lambda trial: promise.get(trial.number, math.inf))
            passing = (trial for trial in ordered if self._passes(trial))
            entrants = {t.number: t for t in itertools.islice(passing, self.racing.rounds[0])}
            heuristic = self.trials[0]
            if (heuristic in ranked or self.reference) and self._passes(heuristic):
                entrants.setdefault(heuristic.number, heuristic)
            if not entrants:
                raise self._nothing()
            reference = 0 if 0 in entrants else next(iter(entrants))
            measure = functools.partial(self._figure, entrants, objective)
            promising = {number: promise[number] for number in entrants if number in promise}
            result = race(
                measure, promising, reference, trials=len(self.trials), objective=objective.name,
                most=self.left(), racing=self.racing,
            )  # fmt: skip
            winner = next(iter(entrants)) if result is None else result.winner
            if self.reference and winner == 0 and result is not None:
                winner = result.leader
            chosen = entrants[winner]
            self._winner = self._of_race(chosen, entrants[reference], result, objective)
        return self._winner

    def _promise(self, ranked: Sequence[Trial], objective: Objective) -> dict[int, float]:
        """Return trials' figures of an objective, less of their noise where a model tells of it."""
        taken = {t.number: figure for t in ranked if (figure := _taken(objective, t.outcome))}
        known = self.expected([trial for trial in ranked if trial.number in taken])
        if known is None or not np.isfinite(known).all():
            return taken
        logarithms = np.log(known)
        logarithms += np.mean(np.log([*taken.values()]) - logarithms)  # whatever its unit
        return dict(zip(taken, np.exp(logarithms).tolist(), strict=True))

    def _figure(
        self, entrants: Mapping[int, Trial], objective: Objective, number: int
    ) -> float | None:
        outcome = self._tried(entrants[number])
        measured = outcome if isinstance(outcome, Measurement) else None
        self._again.setdefault(number, []).append(measured)
        return _taken(objective, outcome)

    def _tried(self, trial: Trial) -> Outcome:
        """Return what measuring a trial gives, tried once more where its measurer failed."""
        outcome = tried(functools.partial(guarded, self.tuning_evaluator, trial.knobs))
        if isinstance(outcome, Failure):
            self._doubt = f"measuring it again failed: {outcome.message}"
            if outcome is TIME_IS_UP:
                self._doubt = "there was no time to measure it again"
        return outcome

    def _of_race(
        self, trial: Trial, reference: Trial, result: Race | None, objective: Objective
    ) -> Best:
        """Return the best trial by a race; None where there was no time for one."""
        schedule, verification = self._known[trial.number]
        measurement, against = self._measured_in(trial, reference, result)
        if result is None:
            self.log(f"trial {trial.number}: {self._doubt}")
        else:
            low = f"{result.low:.3f}"
            high = "any number of" if result.high is None else f"{result.high:.3f}"
            self.log(
                f"race of {result.measurements} measurements: {trial_name(result.leader)} is {low} "
                f"to {high} times as good in {objective.name} as {trial_name(reference.number)} at "
                f"{result.confidence:.0%} confidence; {trial_name(trial.number)} is handed out"
            )
        schedule = _expecting(schedule, measurement)
        return Best(
            trial.number, trial.knobs, measurement, schedule, verification,
            self._doubt if result is None else "", result,
            against if reference.number == 0 and result else None, varies=True,
            notes=tuple(self._notes),
        )  # fmt: skip

    def _measured_in(
        self, trial: Trial, reference: Trial, result: Race | None
    ) -> tuple[Measurement, Measurement]:
        """Return a trial's and the reference's measurements by the last rounds of a race.

        Their geometric means over the rounds in which both were measured: as the gain is that of
        the mean of logarithms, these figures are in its ratio.
        """
        own, base = (
            self._again.get(t.number, [])[-result.rounds :] if result else []
            for t in (trial, reference)
        )
        pairs = [(a, b) for a, b in zip(own, base, strict=False) if a and b]
        return (
            _together(trial, [a for a, _ in pairs]),
            _together(reference, [b for _, b in pairs]),
        )

    def front(self, objectives: Sequence[Objective]) -> tuple[Trial, ...]:
        """Return the Pareto front of the trials that pass; empty with one objective.

        Raises:
            RefusedError: None passes.
        """
        remaining = [
            t for t in self._eligible if None not in [o.score(t.outcome) for o in objectives]
        ]
        while len(objectives) > 1:
            measured = [figures(objectives, trial.outcome) for trial in remaining]
            front = [remaining[i] for i in pareto(measured)]
            passing = [trial for trial in front if self._passes(trial)]
            if len(passing) == len(front):
                return tuple(front)
            out = {*self._refused, *self._broken}
            remaining = [trial for trial in remaining if trial.number not in out]
        return ()

    def passes(self, trial: Trial) -> bool:
        """Return whether a trial's schedule passes; it is checked once."""
        number = trial.number
        if not any(number in known for known in (self._known, self._refused, self._broken)):
            self._check(trial)
        return number in self._known

    def _passes(self, trial: Trial) -> bool:
        """Return whether a trial's schedule passes.

        Raises:
            RefusedError: So many fail that something is wrong with all of them.
        """
        passes = self.passes(trial)
        if not passes and len(self._refused) >= MOST_REFUSED:
            raise self._nothing()
        return passes

    def _check(self, trial: Trial) -> None:
        schedule = self.tuning_evaluator.schedule(trial.knobs)
        if (trial.number or not self.reference) and (why := self.breaks(schedule)):
            self._broken[trial.number] = why
            return
        verification = self.verifier(schedule)
        if verification is None or verification.ok:
            self._known[trial.number] = (schedule, verification)
            return
        failures = summary(verification.findings[:_LINES])
        self._refused[trial.number] = RefusedTrial(trial.number, VERIFIER_VERSION, failures)
        self.log(f"trial {trial.number} is refused: {failures[0]}")

    def _best(self, trial: Trial) -> Best | None:
        """Return a trial measured once more; None where the two measurements differ."""
        schedule, verification = self._known[trial.number]
        again: Outcome = self._tried(trial)
        recorded: Any = trial.outcome
        if isinstance(again, Measurement) and not recorded.agrees(again):
            self._varied = True
            text = f"{recorded.latency:.4g} s, then {again.latency:.4g} s"
            note = f"trial {trial.number} measured {text}: measurements are taken to vary"
            self._notes.append(note)
            self.log(note)
            return None
        if isinstance(again, Failure):
            self.log(f"trial {trial.number}: {self._doubt}")
        doubt = self._doubt if isinstance(again, Failure) else ""
        schedule = _expecting(schedule, recorded)
        return Best(trial.number, trial.knobs, recorded, schedule, verification, doubt)

    def _nothing(self) -> RefusedError:
        """Return the error that no schedule passes, with the reason of the first."""
        if not self._refused:
            message = f"{self.name}: no schedule has what is pinned"
            why = next(iter(self._broken.values()))
            raise RefusedError(f"{message}: {why}", hint="pin less, or try more settings")
        first = next(iter(self._refused.values()))
        count = len(self._refused)
        which = "the only schedule" if count == 1 else f"each of the best {count} schedules"
        message = f"{self.name}: {which} fails a check"
        hint = "this is a defect of the scheduler or of the checks; please report it"
        return RefusedError(f"{message}: trial {first.trial}: {first.failures[0]}", hint=hint)


def _taken(objective: Objective, outcome: Outcome) -> float | None:
    """Return an objective's figure so that less is better and all are above zero; None for none."""
    value = objective.value(outcome) if isinstance(outcome, Measurement) else None
    if not value:
        return None
    return value if objective.direction == "minimize" else 1 / value


def _together(trial: Trial, again: Sequence[Measurement]) -> Measurement:
    """Return the geometric means of a trial's measurements; the recorded one if there is none."""
    recorded: Any = trial.outcome
    if not again:
        measurement: Measurement = recorded
        return measurement
    joules = [m.energy for m in again if m.energy]
    moved = [m.ddr_bytes for m in again]
    measurement = recorded
    latency_s = statistics.geometric_mean(m.latency for m in again)
    bound = measurement.bound
    return dataclasses.replace(
        measurement,
        latency=latency_s,
        matrix_utilization=min(bound.matrix_s / latency_s, 1.0),
        vector_utilization=min(bound.vector_s / latency_s, 1.0),
        ddr_bytes=round(statistics.median(moved)),
        energy=statistics.geometric_mean(joules) if joules else None,
    )


def _varies(trial: Trial) -> bool:
    """Return whether the same schedule does not always take as long."""
    return isinstance(trial.outcome, Measurement) and trial.outcome.noise is not None


def _expecting(schedule: Any, measurement: Measurement) -> Any:
    """Return a schedule that says what it took, where it does not yet."""
    from autoturbo.schedule.schedule import Schedule

    if isinstance(schedule, Schedule) and schedule.expected is None:
        return dataclasses.replace(schedule, expected=measurement.as_json())
    return schedule
