"""Exhaustive search of a small space: an oracle to judge searches by.

Looks at every point of a space but those that bounds rule out or that build a known schedule.

A kernel takes no less than its work on the matrix engine, its work on the vector engine, or what it
reads from DDR takes at full rate. A sub-graph's parts together do at least the work that the
outputs depend on, and load its weights at least once a pass: kept weights are kept within a pass
only. A launch and a barrier are paid for every kernel. So one pass of a cluster takes at least

    sum over sub-graphs of max(matrix, vector, weights) + instances x (launch + barrier).

Movements between kernels are seconds on top of both. The model's own bound
(:func:`autoturbo.simulator.bound.lower_bound`) counts DDR traffic of kernels and movements alike:
launches are on top of it too. Where clusters work on the same samples neither sum holds: there only
the model's bound does.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoturbo.errors import KnobsError, UsageError
from autoturbo.schedule.context import BATCH, SchedulingContext
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule, plan
from autoturbo.schedule.schedule import Schedule
from autoturbo.search.encoding import Genes, dimension_name
from autoturbo.search.space import Dimension, Space
from autoturbo.search.subgraphs import Block
from autoturbo.search.warm_starts.costs import SLACK, least_seconds
from autoturbo.simulator.bound import lower_bound
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement, Outcome

_TOGETHER = 1 << 14
"""Combinations of choices brought into their one form at once."""


def restricted(space: Space, choices: Mapping[str, Sequence[Any] | None]) -> Space:
    """The part of a space with some dimensions only, and some of their choices.

    Args:
        space: the whole.
        choices: by dimension, what is tried besides ``"auto"``; None for everything. Dimensions
            that are not named are ``"auto"``.

    Raises:
        UsageError: a dimension or a choice that the space has not.
    """
    known = {d.name: d for d in space.dimensions}
    for name in choices:
        if name not in known:
            raise UsageError(f"the space has no dimension {name!r}", hint=", ".join(known))
    kept = [
        _narrowed(known[d.name], choices[d.name]) for d in space.dimensions if d.name in choices
    ]
    dimensions = tuple(d for d in kept if len(d.choices) > 1)
    left = {d.name: d.choices[1:] for d in dimensions}
    blocks = tuple(b for block in space.blocks if (b := _block(block, left)).choices)
    if "batches_per_cluster" not in left:
        blocks = tuple(_at_first_batch(b) for b in blocks)
    return Space(dimensions, space.here, blocks)


def _narrowed(dimension: Dimension, wanted: Sequence[Any] | None) -> Dimension:
    if wanted is None:
        return dimension
    strange = [c for c in wanted if c not in dimension.choices]
    if strange:
        hint = f"it has {', '.join(map(str, dimension.choices))}"
        raise UsageError(f"{dimension.name} has no choice {strange[0]!r}", hint=hint)
    if "batches_per_cluster" in dimension.name and len(wanted) < len(dimension.choices) - 1:
        # Extents are listed by the position of the choice.
        raise UsageError("batches_per_cluster is searched with all choices or not at all")
    kept = tuple(c for c in dimension.choices if c in wanted and c != AUTO)
    return Dimension(dimension.name, (AUTO, *kept))


def _block(block: Block, left: Mapping[str, tuple[Any, ...]]) -> Block:
    own = {f: left[n] for f in block.choices if (n := dimension_name(block, f)) in left}
    return dataclasses.replace(block, choices=own)


def _at_first_batch(block: Block) -> Block:
    extents = {depth: sizes[:1] for depth, sizes in block.extents.items()}
    return dataclasses.replace(block, extents=extents)


def points_of(space: Space) -> Iterator[tuple[int, ...]]:
    """Every point once, in lexical order of its choices; settings that mean the same are one."""
    widths = space.widths
    total = math.prod(widths.tolist())
    for first in range(0, total, _TOGETHER):
        genes = _digits(first, min(first + _TOGETHER, total), widths)
        normal = space.normal(genes)
        yield from map(tuple, genes[(normal == genes).all(axis=1)].tolist())


def _digits(first: int, last: int, widths: Genes) -> Genes:
    """Numbers in the mixed radix of the widths, the last dimension fastest."""
    found = np.zeros((last - first, len(widths)), np.int64)
    rest: list[int] = list(range(first, last))
    for position in range(len(widths) - 1, -1, -1):
        width = int(widths[position])
        found[:, position] = [number % width for number in rest]
        rest = [number // width for number in rest]
    return found


@dataclass(eq=False)
class PlanBound:
    """Bounds of one model on one target.

    Attributes:
        model_scheduler: model and target.
    """

    model_scheduler: ModelScheduler

    def __post_init__(self) -> None:
        model_scheduler = self.model_scheduler
        self.model = (
            lower_bound(
                model_scheduler.model, model_scheduler.target, model_scheduler.dtype
            ).seconds
            * SLACK
        )

    def seconds(self, knobs: Knobs) -> float:
        """No schedule of the setting is faster.

        Raises:
            KnobsError: the setting does not fit the model.
        """
        planned = plan(self.model_scheduler, knobs)
        context, share, subgraphs = planned.context, planned.share, planned.subgraphs
        if share.split != BATCH:
            return self.model
        overheads = context.target.overheads
        parts = sum(s.split.instances for s in subgraphs)
        launches = share.loops * parts * overheads.per_kernel
        work = share.loops * sum(_least_seconds(context, s) for s in subgraphs)
        return max(work * SLACK, self.model) + launches * SLACK


def _least_seconds(context: SchedulingContext, subgraph: SubGraph) -> float:
    rows = least_seconds(context)
    own = [op for layer in subgraph.layers for op in context.layers[layer].operators]
    return float(rows[own].sum(axis=0).max())


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
        space: looked at whole.
        budget: where to stop.
        prune: whether to leave out points by their bounds.
    """
    look = _Look(evaluator, space, PlanBound(evaluator.model_scheduler) if prune else None)
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
            outcome = self._outcome(build_schedule(self.evaluator.model_scheduler, knobs))
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
    state.update(repr(schedule.instances.producers).encode())
    return state.digest()


def _arrays(buffers: object) -> Iterator[np.ndarray]:
    for name in ("birth", "death", "core_bytes", "cluster_bytes", "scope", "address"):
        yield getattr(buffers, name)


def statement(space: Space) -> str:
    """A space in words."""
    parts = [f"{d.name} in {', '.join(map(str, d.choices))}" for d in space.dimensions]
    return "; ".join(parts) + ("; all else auto" if parts else "everything auto")
