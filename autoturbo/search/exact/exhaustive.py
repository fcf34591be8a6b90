"""Every point of a small space, less what bounds rule out and what builds a known schedule."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from autoturbo.errors import KnobsError
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.search.exact.bounds import PlanBound
from autoturbo.search.exact.listing import points_of
from autoturbo.search.space import Space
from autoturbo.simulate.evaluator import Evaluator
from autoturbo.simulate.measurement import Measurement, Outcome


@dataclass(frozen=True, slots=True)
class Budget:
    """Where an exhaustive search stops although points are left; None for never.

    Attributes:
        points: looked at.
        measurements: made.
        seconds: of the wall clock.
    """

    points: int | None = None
    measurements: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ExactAnswer:
    """What looking at all points gave.

    Attributes:
        knobs: the fastest setting, the first of equals in lexical order; None if nothing runs.
        measurement: of it.
        points: looked at.
        schedules: different ones that were measured.
        pruned: points whose bound was no better than what was known; they were not built.
        same: points that build a schedule which was known.
        infeasible: points that do not run.
        exact: whether nothing in the space is faster.
        space: what was searched, for people.
    """

    knobs: Knobs | None
    measurement: Measurement | None
    points: int
    schedules: int
    pruned: int
    same: int
    infeasible: int
    exact: bool
    space: str


def search_all(
    evaluator: Evaluator, space: Space, budget: Budget | None = None, *, prune: bool = True
) -> ExactAnswer:
    """The lowest latency of a space.

    Args:
        evaluator: of the model on the target.
        space: looked at whole; see :func:`autoturbo.search.exact.listing.restricted`.
        budget: where to stop.
        prune: whether to leave out points by their bounds.
    """
    look = _Look(evaluator, space, PlanBound(evaluator.bench) if prune else None)
    budget, started = budget or Budget(), time.monotonic()
    exact = True
    for genes in points_of(space):
        if look.spent(budget) or time.monotonic() - started > (budget.seconds or math.inf):
            exact = False
            break
        look.at(space.knobs_of(genes))
    return look.answer(exact)


@dataclass(eq=False)
class _Look:
    """What is known while points are looked at."""

    evaluator: Evaluator
    space: Space
    bound: PlanBound | None
    best: tuple[Knobs, Measurement] | None = None
    points: int = 0
    pruned: int = 0
    same: int = 0
    infeasible: int = 0
    known: dict[bytes, Outcome] = field(default_factory=dict)

    def spent(self, budget: Budget) -> bool:
        """Whether a budget of counts is used up."""
        points, measured = budget.points, budget.measurements
        return (points is not None and self.points >= points) or (
            measured is not None and len(self.known) >= measured
        )

    def at(self, knobs: Knobs) -> None:
        """Look at one point."""
        self.points += 1
        try:
            if self._hopeless(knobs):
                self.pruned += 1
                return
            outcome = self._outcome(build_schedule(self.evaluator.bench, knobs))
        except KnobsError:
            self.infeasible += 1
            return
        if not isinstance(outcome, Measurement):
            self.infeasible += 1
        elif self.best is None or outcome.latency < self.best[1].latency:
            self.best = knobs, outcome

    def _hopeless(self, knobs: Knobs) -> bool:
        if self.bound is None or self.best is None:
            return False
        return self.bound.seconds(knobs) >= self.best[1].latency

    def _outcome(self, schedule: Schedule) -> Outcome:
        key = fingerprint(schedule)
        if key in self.known:
            self.same += 1
        else:
            self.known[key] = self.evaluator.measure(schedule)
        return self.known[key]

    def answer(self, exact: bool) -> ExactAnswer:
        """Put together."""
        knobs, measurement = self.best or (None, None)
        return ExactAnswer(
            knobs, measurement, self.points, len(self.known), self.pruned, self.same,
            self.infeasible, exact, statement(self.space),
        )  # fmt: skip


def fingerprint(schedule: Schedule) -> bytes:
    """Equal for schedules that measure the same: kernels, movements and buffers in order."""
    state = hashlib.blake2b(digest_size=16)
    rules = (schedule.rules, sorted(schedule.own_rules.items(), key=lambda item: item[0]))
    state.update(repr((schedule.share, rules, schedule.order, schedule.cluster)).encode())
    for cluster, timeline in enumerate(schedule.timelines):
        state.update(b"".join(schedule.signatures(cluster)))
        for array in (timeline.copied, timeline.crossing, *_arrays(timeline.buffers)):
            state.update(np.ascontiguousarray(array).tobytes())
    state.update(schedule.instances.producer.tobytes())
    return state.digest()


def _arrays(buffers: object) -> Iterator[np.ndarray]:
    for name in ("birth", "death", "core_bytes", "cluster_bytes", "scope", "address"):
        yield getattr(buffers, name)


def statement(space: Space) -> str:
    """A space in words."""
    parts = [f"{d.name} in {', '.join(map(str, d.choices))}" for d in space.dimensions]
    return "; ".join(parts) + ("; all else auto" if parts else "everything auto")
