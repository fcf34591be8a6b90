"""Simulated annealing over units and cuts, from the assignments of published schedulers.

The space is discrete and a step changes little of a schedule, whose measurement costs about a
millisecond once its parts are known: as where SET and SoMa (baselines.md, section 4) search
by annealing. Candidates are proposed a round at a time, all of them steps from where
the search stands, so that they can be measured side by side; what follows from them is the same
on any worker. The temperature falls in cycles for any budget, so that a search that goes on
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
    """A candidate: a unit for each layer, and the cuts between parts.

    Attributes:
        units: Per layer, its unit.
        cuts: Layers that open a part.
    """

    units: tuple[int, ...]
    cuts: frozenset[int]

    def assignment(self, profiles: Profiles) -> Assignment:
        """Return the assignment of the decisions."""
        return assign(profiles.graph, profiles.layers, self.units, self.cuts)


def decisions_of(profiles: Profiles, assignment: Assignment) -> Decisions:
    """Return decisions that give an assignment back, or one whose parts are no smaller."""
    heads = frozenset(part.layers[0] for part in assignment.parts)
    return Decisions(assignment.units, heads & may_be_cut(profiles))


def may_be_cut(profiles: Profiles) -> frozenset[int]:
    """Return the layers that read from others: those without inputs open a part anyway."""
    producers = layer_producers(profiles.graph, profiles.layers)
    return frozenset(layer for layer, read in enumerate(producers) if read)


def first_settings(profiles: Profiles, starts: Sequence[Assignment]) -> Iterator[Decisions]:
    """Yield each unit with all that it takes, then the given starts, cut and whole."""
    for unit in range(len(profiles.machine.units)):
        units = tuple(unit if unit in possible else possible[0] for possible in profiles.units)
        yield Decisions(units, frozenset())
    for start in starts:
        yield decisions_of(profiles, start)
        yield Decisions(start.units, frozenset())


class Moves:
    """Steps from one candidate to another.

    Args:
        profiles: Profiles of the model on the machine.
        rng: Generator of random numbers.
    """

    def __init__(self, profiles: Profiles, rng: np.random.Generator) -> None:
        self.profiles, self.rng = profiles, rng
        producers = layer_producers(profiles.graph, profiles.layers)
        self.branches = [branch.layers for branch in branches_of(producers)]
        self.cuts = may_be_cut(profiles)

    def step(self, at: Decisions) -> Decisions:
        """Return a neighbour: a cut, a layer, several in a row, a branch or a part moved."""
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
        """Return a candidate with some layers on another unit, as far as it takes them."""
        unit = int(self.rng.integers(len(self.profiles.machine.units)))
        units = list(at.units)
        for layer in layers:
            if unit in self.profiles.units[layer]:
                units[layer] = unit
        return Decisions(tuple(units), at.cuts)


HOT, COLD = 0.03, 0.0005
"""Relative losses that are taken once in e times at the start and at the end of a cycle."""

CYCLES = (400, 1600, 8000)
"""Candidates of each cycle, the last one repeated; one ends where an effort of ``tune`` does."""

RETURN = 60
"""Candidates without a new best after which the search goes back to the best."""

LOST = 50
"""Steps in a row to candidates that are known, after which no more are proposed."""

ROUND = 4
"""Candidates proposed at a time: they start from one place, so more of them know less."""


class Annealing:
    """An annealing search, asked for candidates and told their times.

    Args:
        profiles: Profiles of the model on the machine.
        seed: Seed of all random draws.
        starts: Assignments to begin with besides each unit taking all it can.
    """

    def __init__(self, profiles: Profiles, seed: int, starts: Sequence[Assignment] = ()) -> None:
        self._seed = seed
        self._moves = Moves(profiles, np.random.default_rng(seed))
        self._first = list(dict.fromkeys(first_settings(profiles, starts)))
        self.known: dict[Decisions, float] = {}
        """What every candidate took; infinite where it does not fit."""
        self._at: Decisions | None = None
        self._best: Decisions | None = None
        self._since = 0
        self._told = 0

    def ask(self, count: int) -> list[Decisions]:
        """Return new candidates; fewer where none is known yet, or no new neighbour is found."""
        proposed = [candidate for candidate in self._first if candidate not in self.known][:count]
        if self._at is None:
            return proposed
        # by what was told, not by what was drawn: a run that goes on proposes the same
        self._moves.rng = np.random.default_rng([self._seed, self._told])
        moves, lost, position = self._moves, 0, self._at
        while len(proposed) < count and lost < LOST:
            to = moves.step(position)
            if to in self.known or to in proposed:
                lost, position = lost + 1, to  # a few steps at once, where one leads nowhere new
                continue
            proposed.append(to)
            lost, position = 0, self._at
        return proposed

    def tell(self, setting: Decisions, seconds: float) -> None:
        """Take the seconds of a candidate, asked for or not; infinite where it does not fit."""
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
        # the 1 keeps these draws apart from those of ask()
        rng = np.random.default_rng([self._seed, self._told, 1])
        return then <= now or bool(rng.random() < math.exp(-(then / now - 1) / self._heat))

    @property
    def _heat(self) -> float:
        """Return the temperature: the loss that is now accepted with probability 1/e."""
        trials = self._told
        for cycle in itertools.chain(CYCLES, itertools.repeat(CYCLES[-1])):
            if trials < cycle:
                return float(HOT * (COLD / HOT) ** (trials / cycle))
            trials -= cycle
        return COLD


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search.

    Attributes:
        best: The fastest candidate, measured.
        latencies: Seconds of each candidate in the order of measuring; infinite where it fails.
    """

    best: MachineMeasurement
    latencies: tuple[float, ...] = field(repr=False)


def best_assignment(
    profiles: Profiles, *, trials: int, seed: int = 0, starts: Sequence[Assignment] = ()
) -> Found | None:
    """Return the fastest assignment found; None where none fits.

    Args:
        profiles: Profiles of the model on the machine.
        trials: Candidates to measure at most, those it starts from included.
        seed: Seed of all random draws.
        starts: Assignments to begin with besides each unit taking all it can; the result is no
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
