"""Simulated annealing over units and cuts, from what other tuners would do.

The space is discrete and a step changes little of a schedule, whose measurement costs about a
millisecond once its parts are known: the setting in which SET and SoMa (baselines.md, section 4)
search by annealing as well. Settings are proposed a round at a time, all of them steps from where
the search stands, so that they can be measured side by side; what follows from them is the same
whoever measures. The temperature falls in cycles whatever the budget, so that a search that goes on
later does what a longer one would have done.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autoturbo.schedule.units.parts import Assignment
from autoturbo.search.units.decisions import Decisions, Moves, first_settings
from autoturbo.simulate.units.machine import MachineMeasurement, measure_assignment
from autoturbo.simulate.units.profiles import Profiles

HOT, COLD = 0.03, 0.0005
"""Relative losses that are taken once in e times at the start and at the end of a cycle."""

CYCLES = (400, 1600, 8000)
"""Settings of each cycle, the last of them repeated: one ends where an effort of ``tune`` does."""

RETURN = 60
"""Settings without a new best after which the search goes back to the best."""

LOST = 50
"""Steps in a row to settings that are known, after which no more are proposed."""

ROUND = 4
"""Settings proposed at a time: they start from one place, so more of them know less."""


class Annealing:
    """A search under way: ask for settings, tell what became of them.

    Args:
        profiles: of the model on the machine.
        seed: of all chance.
        starts: assignments to begin with besides each unit taking all it can.
    """

    def __init__(self, profiles: Profiles, seed: int, starts: Sequence[Assignment] = ()) -> None:
        self._seed = seed
        self._moves = Moves(profiles, np.random.default_rng(seed))
        self._first = list(dict.fromkeys(first_settings(profiles, starts)))
        self.known: dict[Decisions, float] = {}
        """What every setting took; infinite where it does not fit."""
        self._at: Decisions | None = None
        self._best: Decisions | None = None
        self._since = 0
        self._told = 0

    def ask(self, count: int) -> list[Decisions]:
        """New settings; fewer where nothing is known yet, or nothing new is found near by."""
        found = [one for one in self._first if one not in self.known][:count]
        if self._at is None:
            return found
        self._moves.rng = np.random.default_rng([self._seed, self._told])
        moves, lost, at = self._moves, 0, self._at
        while len(found) < count and lost < LOST:
            to = moves.step(at)
            if to in self.known or to in found:
                lost, at = lost + 1, to  # a few steps at once, where one leads nowhere new
                continue
            found.append(to)
            lost, at = 0, self._at
        return found

    def tell(self, setting: Decisions, seconds: float) -> None:
        """What a setting took, asked for or not; infinite where it does not fit."""
        self._told += 1
        self.known[setting] = seconds
        if math.isinf(seconds):
            self._since += 1
            return
        if self._best is None or seconds < self.known[self._best]:
            self._best = self._at = setting
            self._since = 0
            return
        self._since += 1
        if self._at is None or self._accepted(self.known[self._at], seconds):
            self._at = setting
        if self._since >= RETURN:
            self._at, self._since = self._best, 0

    def _accepted(self, now: float, then: float) -> bool:
        rng = np.random.default_rng([self._seed, self._told, 1])
        return then <= now or bool(rng.random() < math.exp(-(then / now - 1) / self._heat))

    @property
    def _heat(self) -> float:
        """The loss that is taken once in e times now."""
        done = self._told
        for cycle in itertools.chain(CYCLES, itertools.repeat(CYCLES[-1])):
            if done < cycle:
                return float(HOT * (COLD / HOT) ** (done / cycle))
            done -= cycle
        return COLD


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
    search = Annealing(profiles, seed, starts)
    best: MachineMeasurement | None = None
    while len(search.known) < trials:
        asked = search.ask(min(ROUND, trials - len(search.known)))
        if not asked:
            break
        for setting in asked:
            outcome = measure_assignment(profiles, setting.assignment(profiles))
            if not isinstance(outcome, MachineMeasurement):
                search.tell(setting, math.inf)
                continue
            search.tell(setting, outcome.latency)
            if best is None or outcome.latency < best.latency:
                best = outcome
    return None if best is None else Found(best, tuple(search.known.values()))
