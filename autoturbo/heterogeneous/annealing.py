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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from autoturbo.heterogeneous.measurement import MachineMeasurement, measure_assignment
from autoturbo.heterogeneous.parts import Assignment, assign, branches_of, layer_producers
from autoturbo.heterogeneous.profiles import Profiles

LONGEST_RUN = 8
"""Layers in a row that one step may move to another unit."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """A setting.

    Attributes:
        units: per layer, its unit.
        cuts: layers that open a part.
    """

    units: tuple[int, ...]
    cuts: frozenset[int]

    def assignment(self, profiles: Profiles) -> Assignment:
        """The parts that follow."""
        return assign(profiles.graph, profiles.layers, self.units, self.cuts)


def decisions_of(profiles: Profiles, assignment: Assignment) -> Decisions:
    """A setting that gives an assignment back, or one whose parts are no smaller."""
    heads = frozenset(part.layers[0] for part in assignment.parts)
    return Decisions(assignment.units, heads & may_be_cut(profiles))


def may_be_cut(profiles: Profiles) -> frozenset[int]:
    """Layers that read from others: what reads from none opens a part anyway."""
    producers = layer_producers(profiles.graph, profiles.layers)
    return frozenset(layer for layer, read in enumerate(producers) if read)


def first_settings(profiles: Profiles, starts: Sequence[Assignment]) -> Iterator[Decisions]:
    """Everything on each unit as far as it takes it, and the given starts, cut and whole."""
    for unit in range(len(profiles.machine.units)):
        units = tuple(unit if unit in may else may[0] for may in profiles.units)
        yield Decisions(units, frozenset())
    for start in starts:
        yield decisions_of(profiles, start)
        yield Decisions(start.units, frozenset())


class Moves:
    """Steps from one setting to another.

    Args:
        profiles: of the model on the machine.
        rng: where chance comes from.
    """

    def __init__(self, profiles: Profiles, rng: np.random.Generator) -> None:
        self.profiles, self.rng = profiles, rng
        producers = layer_producers(profiles.graph, profiles.layers)
        self.branches = [branch.layers for branch in branches_of(producers)]
        self.cuts = may_be_cut(profiles)

    def step(self, at: Decisions) -> Decisions:
        """A setting near another one: a cut, a layer, some in a row, a branch or a part moved."""
        kind = int(self.rng.integers(5))
        count = len(self.profiles.layers)
        layer = int(self.rng.integers(count))
        if kind == 0:
            return Decisions(at.units, at.cuts ^ (self.cuts & {layer}))
        if kind == 1:
            return self._moved(at, [layer])
        if kind == 2:  # noqa: PLR2004  kinds of steps
            end = layer + int(self.rng.integers(2, LONGEST_RUN + 1))
            return self._moved(at, range(layer, min(end, count)))
        if kind == 3:  # noqa: PLR2004  kinds of steps
            return self._moved(at, self.branches[int(self.rng.integers(len(self.branches)))])
        parts = at.assignment(self.profiles).parts
        return self._moved(at, parts[int(self.rng.integers(len(parts)))].layers)

    def _moved(self, at: Decisions, layers: Sequence[int]) -> Decisions:
        """Some layers on another unit, as far as it takes them."""
        unit = int(self.rng.integers(len(self.profiles.machine.units)))
        units = list(at.units)
        for layer in layers:
            if unit in self.profiles.units[layer]:
                units[layer] = unit
        return Decisions(tuple(units), at.cuts)


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
