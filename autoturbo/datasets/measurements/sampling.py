"""The sampling of settings of a pair, and what is stored of each.

Settings drawn at random are nearly all bad, and a model that knows only those cannot tell good ones
apart. So a sample begins with what a search begins with, and every second setting is a mutant: of
one of these, or of one of the best that the sample has seen so far.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from autoturbo.datasets.measurements.shards import MEASURED, Row
from autoturbo.errors import KnobsError
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import build_schedule, plan
from autoturbo.schedule.place.instances import InstanceGraph
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure, Measurement, Outcome
from autoturbo.simulator.plan import COLUMNS as PLAN_COLUMNS

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
    """The origin of a setting in the sample."""

    DEFAULT = "default"
    START = "start"
    NEAR_START = "near start"
    SPARSE = "sparse"
    NEAR_BEST = "near best"
    DENSE = "dense"


TURNS = (Origin.NEAR_START, Origin.SPARSE, Origin.NEAR_BEST, Origin.DENSE)
"""Who is next, over and over, after the starts."""


class CandidateSource(Protocol):
    """A source of candidates: a search space of one model on one target."""

    @property
    def starts(self) -> Sequence[Point]:
        """Return what a search begins with, the published heuristic first."""
        ...

    def random(self, rng: np.random.Generator, *, dense: bool) -> Point:
        """Return a random candidate; ``dense`` chooses knobs for every sub-graph, not for a few."""
        ...

    def mutant(self, rng: np.random.Generator, point: Point, rate: float) -> Point:
        """Return a neighbour; ``rate`` is the chance of each further choice to change."""
        ...

    def knobs(self, point: Point) -> Knobs:
        """Return the candidate of an encoding."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """A setting, what came of it, and what the tables say of it.

    Attributes:
        knobs: The setting.
        outcome: Measurement or failure.
        schedule: Equal for settings whose schedules measure the same in every respect.
        shared: How clusters share out the work; empty where it does not fit the model.
        kernels: A row for each of its sub-graphs; none likewise.
    """

    knobs: Knobs
    outcome: Outcome
    schedule: bytes = b""
    shared: Row = field(default_factory=dict)
    kernels: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class DrawnCandidate:
    """A setting of a sample.

    Attributes:
        number: Its place.
        origin: How it came in.
        parent: Place of what it is a mutant of, -1 for none.
        reading: The setting and what it measures.
    """

    number: int
    origin: Origin
    parent: int
    reading: Reading

    @property
    def row(self) -> Row:
        """Return its row in the table of settings."""
        outcome = self.reading.outcome
        if isinstance(outcome, Failure):
            sizes = {"demand_bytes": outcome.demand, "capacity_bytes": outcome.capacity}
            measured: dict[str, Any] = {
                "outcome": outcome.reason,
                "message": outcome.message,
                **sizes,
            }
        else:
            measured = {**outcome.as_json(), "outcome": MEASURED}
        place = {"number": self.number, "origin": self.origin.value, "parent": self.parent}
        return {**measured, **place, **self.reading.shared, "knobs": self.reading.knobs.canonical()}


@dataclass
class Sample:
    """Draws settings, measures them, and leaves out what it has had.

    Attributes:
        draws: Where settings come from.
        measure: Measures one.
        rng: Where chance comes from.
        repeats: Settings left out because their schedule was there already.
    """

    draws: CandidateSource
    measure: Callable[[Knobs], Reading]
    rng: np.random.Generator
    repeats: int = 0
    _numbers: dict[Point, int] = field(default_factory=dict)
    _schedules: set[object] = field(default_factory=set)
    _best: list[tuple[float, int, Point]] = field(default_factory=list)

    def take(self, count: int) -> Iterator[DrawnCandidate]:
        """Yield as many settings, or as many as there are."""
        for point in self.draws.starts[:count]:
            origin = Origin.START if self._numbers else Origin.DEFAULT
            yield self._keep(origin, -1, point, self.measure(self.draws.knobs(point)))
        exhausted = 0
        for origin in itertools.cycle(TURNS):
            if len(self._numbers) >= count or exhausted == len(TURNS):
                return
            found = self._next(origin)
            exhausted = 0 if found else exhausted + 1
            if found:
                yield found

    def _next(self, origin: Origin) -> DrawnCandidate | None:
        """Return the first new one of a few."""
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
        from_best = origin is Origin.NEAR_BEST and self._best
        parents = [point for _, _, point in self._best] if from_best else self.draws.starts
        parent = parents[int(self.rng.integers(len(parents)))]
        rate = FAR if self.rng.random() < FAR_SHARE else 0.0
        return self.draws.mutant(self.rng, parent, rate), self._numbers[parent]

    def _keep(self, origin: Origin, parent: int, point: Point, reading: Reading) -> DrawnCandidate:
        number = len(self._numbers)
        self._numbers[point] = number
        if isinstance(reading.outcome, Measurement):
            self._schedules.add(reading.schedule)
            ranked = [*self._best, (reading.outcome.latency, number, point)]
            self._best = heapq.nsmallest(ELITE, ranked)
        return DrawnCandidate(number, origin, parent, reading)


def read_setting(evaluator: Evaluator, knobs: Knobs) -> Reading:
    """Build the schedule of a setting and measure it; a failure is a value."""
    try:
        schedule = build_schedule(evaluator.model_scheduler, knobs)
    except KnobsError as error:
        return Reading(knobs, Failure("invalid", str(error)))
    outcome, share = evaluator.measure(schedule), schedule.share
    # one cluster's kernels in a row are the latency where no other does otherwise
    alike = len(schedule.timelines) == 1
    return Reading(
        schedule.knobs,
        outcome,
        _identity(outcome, schedule) if isinstance(outcome, Measurement) else b"",
        {"loops": share.loops, "clusters": share.clusters, "alike": alike},
        tuple(_kernels(evaluator, schedule, outcome)),
    )


def _identity(outcome: Measurement, schedule: Schedule) -> bytes:
    """Return a hash of all measures, every kernel's signature among them.

    Schedules that differ in nothing that can be measured are one here, whatever led to them; where
    a measurer gives a latency alone, these are equal schedules.
    """
    text = repr(sorted(outcome.as_dict().items())) if outcome.kernel_times else schedule.text
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _kernels(evaluator: Evaluator, schedule: Schedule, outcome: Outcome) -> Iterator[Row]:
    """Yield a row per sub-graph."""
    known = evaluator.statistics(schedule.knobs)
    if known is None:
        return
    count = len(known.values)
    # all clusters that work have all sub-graphs, where they work alike or there is only one
    everywhere = ((0, schedule.share.clusters),) * count
    homes = plan(evaluator.model_scheduler, schedule.knobs).homes or everywhere
    times: list[Row] = [{}] * count
    if isinstance(outcome, Measurement) and outcome.kernel_times:
        times = _times(schedule, outcome)
    for at, reads in enumerate(_reads(schedule.instances)):
        own = known.overrides.get(at)
        yield {
            "subgraph": at,
            **dict(zip(PLAN_COLUMNS, known.values[at].tolist(), strict=True)),
            "launches": int(known.launches[at]),
            "first_cluster": homes[at][0],
            "clusters": homes[at][1],
            "reads": reads,
            "own": own and json.dumps(own.as_dict(), sort_keys=True, separators=(",", ":")),
            **times[at],
        }


def _reads(instances: InstanceGraph) -> list[list[int]]:
    """Return the edges between sub-graphs, from those between instances."""
    owner = instances.subgraph.tolist()
    found: list[set[int]] = [set() for _ in instances.subgraphs]
    for reader, makers in zip(owner, instances.producers, strict=True):
        found[reader].update(owner[maker] for maker in makers)
    return [sorted(makers - {reader}) for reader, makers in enumerate(found)]


def _times(schedule: Schedule, outcome: Measurement) -> list[Row]:
    """Return a measurement's time of each sub-graph, from the kernels of all clusters."""
    order = np.concatenate([timeline.order for timeline in schedule.timelines])
    owner = schedule.instances.subgraph[order]
    signatures = [s for at in range(len(schedule.timelines)) for s in schedule.signatures(at)]
    seconds = np.asarray([outcome.kernel_times[s.hex()] for s in signatures], np.float64)
    count = len(schedule.instances.subgraphs)
    kernels = np.maximum(np.bincount(owner, minlength=count), 1)
    own: list[dict[bytes, None]] = [{} for _ in range(count)]
    for subgraph, signature in zip(owner.tolist(), signatures, strict=True):
        own[subgraph][signature] = None
    means = (np.bincount(owner, seconds, count) / kernels).tolist()
    return [
        {"time_s": t, "kernel_s": s, "signature": next(iter(found), b""), "signatures": len(found)}
        for t, s, found in zip(outcome.subgraph_times, means, own, strict=True)
    ]
