"""Searches for the plan under which a batch runs fastest on this computer.

The whole batch and loops over equal shares of it come first: they are the baselines. Then every
part of the model is timed by itself for each number of samples. That a batch takes the sum of its
parts' times is only where the search starts from: caches are warm or cold, calls cost something.
How far parts are from what they took alone is learned from every batch that is measured
(:mod:`autoturbo.host.learning`), and each trial is the best plan under a draw of what is known.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from autoturbo.errors import VerifyError
from autoturbo.host.compare import Stopwatch, timed
from autoturbo.host.cpu import Cpu
from autoturbo.host.learning import PartTimes
from autoturbo.host.plan import HostChoice, HostPlan, HostSubGraph
from autoturbo.host.runner import Runner
from autoturbo.search.selection.racing import lead

_REPEATS = 3
"""Figures of a plan that is not much slower than the best one; the median counts."""

_HOPELESS = 1.15
"""Times the seconds of the best plan, beyond which a plan is measured once."""

_LAYOUTS = 2
"""Workers and threads for which parts are timed: those of the best loops."""

_PART_REPEATS, _PART_S = 6, 0.05
"""Runs of a part at most, and seconds that are enough; the median counts, without the first."""

_RACED = 4
"""Best plans that are measured again, in turn."""

_DRAWS = 50
"""Draws without a plan that was not measured yet, after which there seems to be none."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A plan and its time.

    Attributes:
        plan: What was measured.
        seconds: Of a batch.
        number: Of the trial, from 0.
    """

    plan: HostPlan
    seconds: float
    number: int


@dataclass(eq=False)
class HostSearch:
    """A search on one model.

    Attributes:
        stopwatch: Measures.
        cpu: What it runs on.
        trials: Plans that are measured, baselines not counted.
        seed: Of the sampler.
        patience: Trials without a better plan that end it; None for no end.
        deadline: By the monotonic clock; proposing ends there.
        told: Is told what goes on, trials made, and the best so far.
    """

    stopwatch: Stopwatch
    cpu: Cpu
    trials: int
    seed: int = 0
    patience: int | None = None
    deadline: float = math.inf
    told: Callable[[str, int, Timed | None], object] = lambda *_: None
    history: list[Timed] = field(default_factory=list)

    def __post_init__(self) -> None:
        model = self.stopwatch.model
        self.parts, self.sizes, self.batch = model.parts, model.sizes, model.graph.batch
        self.layouts = [
            layout for layout in self.cpu.layouts() if not model.obstacle or layout[0] == 1
        ]
        self._known: dict[HostPlan, float] = {}

    # -------------------------------------------------------------------------------- baselines

    def whole_batch(self) -> HostPlan:
        """Return the whole batch in one call, with the threads that suit it best."""
        plans = [self._loop(self.batch, layout) for layout in self.layouts if layout[0] == 1]
        return min(plans, key=self._seconds)

    def best_loop(self) -> HostPlan:
        """Return the fastest loop over equal shares of the batch: any workers and threads."""
        plans = self._loops()
        for plan in plans:
            self.told("timing loops", 0, None)
            self._seconds(plan)
        able = [plan for plan in plans if math.isfinite(self._seconds(plan))]
        return self._raced(sorted(able, key=self._seconds) or [self.whole_batch()])[0]

    def _loops(self) -> list[HostPlan]:
        """Return loops over shares; the whole batch where there is none."""
        loops = [self._loop(samples, layout) for layout, samples in self._shares()]
        return loops or [self.whole_batch()]

    def _shares(self) -> list[tuple[tuple[int, int], int]]:
        """Return layouts, and samples of which each worker has a call or more."""
        return [
            (layout, samples)
            for layout in self.layouts
            for samples in self.sizes
            if samples * max(layout[0], 2) <= self.batch
        ]

    def _loop(self, samples: int, layout: tuple[int, int]) -> HostPlan:
        choice = HostChoice.loop(samples, len(self.parts))
        return HostPlan.of(self.parts, choice, self.batch, *layout)

    def _seconds(self, plan: HostPlan) -> float:
        """Return the seconds of a plan: of one that promises something, a median.

        Infinite where it cannot be run; the whole batch has to.

        Raises:
            VerifyError: The first plan of all cannot be run.
        """
        if plan not in self._known:
            try:
                self._known[plan] = self._median(plan)
            except VerifyError:
                if not self._known:
                    raise
                self._known[plan] = math.inf
        return self._known[plan]

    def _median(self, plan: HostPlan) -> float:
        best = min(self._known.values(), default=math.inf)
        before = self.stopwatch.journal.known(plan)
        taken = [self.stopwatch.seconds(plan)] if before is None else [before] * _REPEATS
        while len(taken) < _REPEATS and min(taken) < _HOPELESS * best:
            taken.append(self.stopwatch.seconds(plan))
        return statistics.median(taken)

    # ------------------------------------------------------------------------------------ parts

    def _models(self) -> list[PartTimes]:
        """Return what is known of parts, timed by themselves, with the best loops' layouts."""
        best = dict.fromkeys(self.layouts, math.inf)
        for plan in self._loops():
            layout = plan.workers, plan.threads
            best[layout] = min(best[layout], self._seconds(plan))
        least = min(best.values())
        chosen = sorted(self.layouts, key=best.__getitem__)[:_LAYOUTS]
        tables = {
            layout: [self._part_seconds(part, layout) for part in self.parts]
            for layout in chosen
            if best[layout] < _HOPELESS * least
        }
        return [PartTimes.of(layout, table) for layout, table in tables.items() if all(table)]

    def _part_seconds(self, part: range, layout: tuple[int, int]) -> dict[int, float]:
        """Return the seconds that a part takes for the whole batch, by samples at once.

        Numbers of samples with which it cannot be run are left out.
        """
        found = {}
        for samples in self.sizes:
            if samples * layout[0] > self.batch:
                break
            self.told("timing parts", 0, None)
            subgraph = HostSubGraph(part.start, part.stop, samples)
            plan = HostPlan((subgraph,), samples, workers=layout[0], threads=layout[1])
            before = self.stopwatch.journal.known(plan)
            with suppress(VerifyError):
                found[samples] = self._alone(plan) if before is None else before
        return found

    def _alone(self, plan: HostPlan) -> float:
        """Return the seconds of a plan for a part."""
        with Runner(self.stopwatch.model, plan, self.stopwatch.sessions) as runner:
            taken = [timed(runner), timed(runner)]
            while len(taken) < _PART_REPEATS and sum(taken) < _PART_S:
                taken.append(timed(runner))
        seconds = statistics.median(taken[1:])
        self.stopwatch.journal.add(plan, seconds)
        return seconds

    # ----------------------------------------------------------------------------------- search

    def run(self) -> list[HostPlan]:
        """Return the best plans that a search finds, without baselines, the fastest first."""
        if len(self.sizes) > 1 and self.trials:
            self._search()
        able = (one for one in self.history if math.isfinite(one.seconds))
        return self._raced([one.plan for one in sorted(able, key=lambda one: one.seconds)])

    def _raced(self, plans: Sequence[HostPlan]) -> list[HostPlan]:
        """Return the first few plans, in front the fastest when they are measured in turn."""
        plans = list(plans[:_RACED])
        if len(plans) < 2:  # noqa: PLR2004  nobody to race with
            return plans
        self.told("measuring the best again", len(self.history), self.best())
        known = {i: self._known[plan] for i, plan in enumerate(plans)}
        first, _ = lead(lambda i: self.stopwatch.seconds(plans[i]), known)
        return [plans[first], *(plan for plan in plans if plan != plans[first])]

    def _search(self) -> None:
        models, rng = self._models(), np.random.default_rng(self.seed)
        for layout, samples in self._shares():
            plan = self._loop(samples, layout)
            for model in models:
                if model.layout == layout and math.isfinite(self._known[plan]):
                    model.learn(HostChoice.loop(samples, len(self.parts)), self._known[plan])
        stale = 0
        while models and stale < _DRAWS and not self._is_over():
            drawn = [(model, *model.best(rng if self.history else None)) for model in models]
            model, choice, _ = min(drawn, key=lambda one: one[2])
            plan, stale = HostPlan.of(self.parts, choice, self.batch, *model.layout), stale + 1
            if plan in self._known:
                continue
            seconds, stale = self._seconds(plan), 0
            if math.isfinite(seconds):
                model.learn(choice, seconds)
            self.history.append(Timed(plan, seconds, len(self.history)))
            self.told("", len(self.history), self.best())

    def _is_over(self) -> bool:
        """Return whether enough was tried, or the time is up."""
        best, made = self.best(), len(self.history)
        idle = 0 if best is None else made - 1 - best.number
        late = time.monotonic() >= self.deadline
        return made >= self.trials or late or (self.patience is not None and idle >= self.patience)

    def best(self) -> Timed | None:
        """Return the best trial so far."""
        able = (one for one in self.history if math.isfinite(one.seconds))
        return min(able, key=lambda one: one.seconds, default=None)
