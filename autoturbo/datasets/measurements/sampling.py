"""Which settings of a pair are measured: half at random, half such as a search will ask about.

Settings drawn at random are nearly all bad, and a model that knows only those cannot tell good ones
apart. So every second setting is a mutant: of the default schedule, or of one of the best that the
sample has seen so far.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np

from autoturbo.datasets.measurements.reading import Reading
from autoturbo.schedule.knobs import Knobs

Point = tuple[int, ...]
"""A setting as the sampler has it."""

ELITE = 4
"""The best so far, of which one is mutated: as many as one takes to not be stuck at the first."""

FAR = 0.15
"""Chance of every further choice to change in mutants that go far, as the search has it."""

FAR_SHARE = 0.25
"""Share of such mutants: half of the search's, since the sample has enough bad settings."""

TRIES = 24
"""Draws of one kind in a row that may all be known before the kind is taken to be exhausted."""


class Origin(StrEnum):
    """How a setting came into the sample."""

    DEFAULT = "default"
    NEAR_DEFAULT = "near default"
    SPARSE = "sparse"
    NEAR_BEST = "near best"
    DENSE = "dense"


TURNS = (Origin.NEAR_DEFAULT, Origin.SPARSE, Origin.NEAR_BEST, Origin.DENSE)
"""Who is next, over and over, after the default schedule."""


class Draws(Protocol):
    """Where settings come from: a search space of one model on one target."""

    @property
    def default(self) -> Point:
        """The published heuristic."""
        ...

    def random(self, rng: np.random.Generator, *, dense: bool) -> Point:
        """Any point; ``dense`` chooses knobs for every sub-graph and not only for a few."""
        ...

    def mutant(self, rng: np.random.Generator, point: Point, rate: float) -> Point:
        """A point near another one; ``rate`` is the chance of each further choice to change."""
        ...

    def knobs(self, point: Point) -> Knobs:
        """The setting of a point."""
        ...


@dataclass(frozen=True, slots=True)
class Drawn:
    """A setting of a sample.

    Attributes:
        number: its place.
        origin: how it came in.
        parent: place of what it is a mutant of, -1 for none.
        reading: the setting and what it measures.
    """

    number: int
    origin: Origin
    parent: int
    reading: Reading


@dataclass
class Sample:
    """Draws settings, measures them, and leaves out what it has had.

    Attributes:
        draws: where settings come from.
        measure: measures one.
        rng: where chance comes from.
        repeats: settings left out because their schedule was there already.
    """

    draws: Draws
    measure: Callable[[Knobs], Reading]
    rng: np.random.Generator
    repeats: int = 0
    _numbers: dict[Point, int] = field(default_factory=dict)
    _schedules: set[object] = field(default_factory=set)
    _best: list[tuple[float, int, Point]] = field(default_factory=list)

    def take(self, count: int) -> Iterator[Drawn]:
        """As many settings, or as many as there are."""
        default = self.draws.default
        yield self._keep(Origin.DEFAULT, -1, default, self.measure(self.draws.knobs(default)))
        turn = exhausted = 0
        while len(self._numbers) < count and exhausted < len(TURNS):
            found = self._next(TURNS[turn % len(TURNS)])
            turn += 1
            exhausted = 0 if found else exhausted + 1
            if found:
                yield found

    def _next(self, origin: Origin) -> Drawn | None:
        """The first new one of a few."""
        for _ in range(TRIES):
            point, parent = self._draw(origin)
            if point in self._numbers:
                continue
            reading = self.measure(self.draws.knobs(point))
            if reading.schedule in self._schedules:
                self.repeats += 1
                continue
            return self._keep(origin, parent, point, reading)
        return None

    def _draw(self, origin: Origin) -> tuple[Point, int]:
        if origin in (Origin.SPARSE, Origin.DENSE):
            return self.draws.random(self.rng, dense=origin is Origin.DENSE), -1
        parent = self.draws.default
        if origin is Origin.NEAR_BEST and self._best:
            parent = self._best[int(self.rng.integers(len(self._best)))][2]
        rate = FAR if self.rng.random() < FAR_SHARE else 0.0
        return self.draws.mutant(self.rng, parent, rate), self._numbers[parent]

    def _keep(self, origin: Origin, parent: int, point: Point, reading: Reading) -> Drawn:
        number = len(self._numbers)
        self._numbers[point] = number
        if reading.measured:
            self._schedules.add(reading.schedule)
            ranked = [*self._best, (reading.latency, number, point)]
            self._best = heapq.nsmallest(ELITE, ranked)
        return Drawn(number, origin, parent, reading)
