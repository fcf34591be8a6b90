"""Simulated annealing over units and cuts, from what other tuners would do.

The space is discrete and a step changes little of a schedule, whose measurement costs about a
millisecond once its parts are known: the setting in which SET and SoMa (baselines.md, section 4)
search by annealing as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autoturbo.schedule.units.parts import Assignment
from autoturbo.search.units.decisions import Decisions, Moves, first_settings
from autoturbo.simulate.units.machine import MachineMeasurement, MachineOutcome, measure_assignment
from autoturbo.simulate.units.profiles import Profiles

HOT, COLD = 0.03, 0.0005
"""Relative losses that are taken once in e times at the start and at the end."""

RETURN = 60
"""Steps without a new best after which the search goes back to the best."""

LOST = 50
"""Steps in a row to settings that are known, after which the search ends."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Attributes:
        best: the fastest setting, measured.
        latencies: of every setting in the order of measuring; infinite where it does not fit.
    """

    best: MachineMeasurement
    latencies: tuple[float, ...] = field(repr=False)


def best_assignment(
    profiles: Profiles, *, trials: int, seed: int = 0, starts: Sequence[Assignment] = ()
) -> Found | None:
    """The fastest assignment found; None where none fits.

    Args:
        profiles: of the model on the machine.
        trials: settings to measure at most, those it starts from included.
        seed: of all chance.
        starts: assignments to begin with besides each unit taking all it can; the result is no
            slower than any that is within the trials.
    """
    return _Search(profiles, trials, seed).run(starts)


class _Search:
    """A search under way."""

    def __init__(self, profiles: Profiles, trials: int, seed: int) -> None:
        self.profiles, self.trials = profiles, trials
        self.rng = np.random.default_rng([seed, len(profiles.layers)])
        self.moves = Moves(profiles, self.rng)
        self.known: dict[Decisions, float] = {}
        self.best: MachineMeasurement | None = None
        self.best_at: Decisions | None = None

    def run(self, starts: Sequence[Assignment]) -> Found | None:
        """Starts first, then steps."""
        for setting in first_settings(self.profiles, starts):
            self._measure(setting)
        self._anneal()
        if self.best is None:
            return None
        return Found(self.best, tuple(self.known.values()))

    def _anneal(self) -> None:
        if self.best_at is None:
            return
        at, since, lost = self.best_at, 0, 0
        while len(self.known) < self.trials and lost < LOST:
            to = self.moves.step(at)
            lost = lost + 1 if to in self.known else 0
            before = self.best_at
            if self._accepted(self.known[at], self._measure(to)):
                at = to
            since = 0 if self.best_at != before else since + 1
            if since >= RETURN:
                at, since = self.best_at, 0

    def _accepted(self, now: float, then: float) -> bool:
        done = len(self.known) / max(self.trials, 1)
        heat = HOT * (COLD / HOT) ** done
        return then <= now or bool(self.rng.random() < math.exp(-(then / now - 1) / heat))

    def _measure(self, setting: Decisions) -> float:
        """Seconds of a setting, infinite where it does not fit."""
        if setting in self.known:
            return self.known[setting]
        if len(self.known) >= self.trials:
            return math.inf
        outcome: MachineOutcome = measure_assignment(
            self.profiles, setting.assignment(self.profiles)
        )
        seconds = outcome.latency if isinstance(outcome, MachineMeasurement) else math.inf
        self.known[setting] = seconds
        if isinstance(outcome, MachineMeasurement) and (
            self.best is None or seconds < self.best.latency
        ):
            self.best, self.best_at = outcome, setting
        return seconds
