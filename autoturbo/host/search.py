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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from autoturbo.errors import VerifyError
from autoturbo.host.compare import Stopwatch, comparison_s, figure_s, timed
from autoturbo.host.cpu import Cpu
from autoturbo.host.divided import DividedModel
from autoturbo.host.learning import PartTimes
from autoturbo.host.ledger import HostLedger
from autoturbo.host.runner import Runner
from autoturbo.schedule.host_plan import LOOP, TUNED, WHOLE, HostChoice, HostPlan, HostSubGraph
from autoturbo.search.constants import SEARCH, Racing
from autoturbo.search.selection.racing import lead

_REPEATS = 3
"""Figures of a plan that is not much slower than the best one; the median counts."""

HOPELESS = 1.15
"""Times the seconds of the best plan, beyond which a plan is measured once, and not compared."""

_LAYOUTS = 2
"""Workers and threads for which parts are timed: those of the best loops."""

_PART_REPEATS, _PART_S = 6, 0.05
"""Runs of a part at most, and seconds that are enough; the median counts, without the first."""

_RACED = 4
"""Best plans that are measured again, in turn."""

_DRAWS = 50
"""Draws without a plan that was not measured yet, after which there seems to be none."""

_RESERVE = 1 / 2
"""Share of a time budget that is kept back at most for the last rounds: without them nothing can be
stated."""

_LAST = 4
"""Runs of a batch for which there is time beside that: what a trial takes, and one more."""

_LOOPS = 1 / 2
"""Share of the rest that loops may take."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A plan and its time.

    Attributes:
        plan: The measured plan.
        seconds: Seconds of a batch.
        number: Number of the trial.
    """

    plan: HostPlan
    seconds: float
    number: int


Layout = tuple[int, int]
"""Workers, and the threads of each."""


def layouts_of(model: DividedModel, cpu: Cpu) -> list[Layout]:
    """Return the workers and threads that a model may run with."""
    return [layout for layout in cpu.layouts() if not model.obstacle or layout[0] == 1]


def shares_of(model: DividedModel, cpu: Cpu) -> list[tuple[Layout, int]]:
    """Return layouts, and samples of which each worker has a call or more."""
    return [
        (layout, samples)
        for layout in layouts_of(model, cpu)
        for samples in model.sizes
        if samples * max(layout[0], 2) <= model.graph.batch
    ]


def baselines_of(model: DividedModel, cpu: Cpu) -> int:
    """Return how many plans a search measures at first: those that the baselines are chosen of."""
    wholes = [layout for layout in layouts_of(model, cpu) if layout[0] == 1]
    return len(wholes) + len(shares_of(model, cpu))


@dataclass(eq=False)
class HostSearch:
    """A search on one model.

    Attributes:
        stopwatch: Measures.
        cpu: The processor that it runs on.
        ledger: Knows the plans that were measured, of an earlier part of the run too.
        trials: Plans that are measured, baselines not counted.
        seed: Seed of the sampler.
        patience: Trials without a better plan that end it; None for no end.
        time_budget: Seconds of all that is done, with the last rounds; None for no limit.
        began: When they began, by the stopwatch's clock.
        told: Is told what goes on, trials made, and the best so far.
        racing: Rules by which the best plans are raced.
        history: The plans that were tried, without baselines, in their order.
    """

    stopwatch: Stopwatch
    cpu: Cpu
    ledger: HostLedger
    trials: int
    seed: int = 0
    patience: int | None = None
    time_budget: float | None = None
    began: float = 0.0
    told: Callable[[str, int, Timed | None], object] = lambda *_: None
    racing: Racing = SEARCH.racing
    history: list[Timed] = field(default_factory=list)

    def __post_init__(self) -> None:
        model = self.stopwatch.model
        self.parts, self.sizes, self.batch = model.parts, model.sizes, model.graph.batch
        self.layouts = layouts_of(model, self.cpu)
        self._known: dict[HostPlan, float] = {}
        self.deadline = self.began + (self.time_budget or math.inf)

    # ----------------------------------------------------------------------------------- time

    @property
    def _race_figures(self) -> int:
        """Return how many figures a race takes at most."""
        return sum(min(most, _RACED) for most in self.racing.rounds)

    @property
    def _kept_back(self) -> tuple[float, float]:
        """Return the seconds of a last race, and of the comparison after it."""
        best = min(self._known.values(), default=math.inf)
        if self.time_budget is None or not math.isfinite(best):
            return 0.0, 0.0
        whole = min(self._known.get(plan, math.inf) for plan in self._wholes())
        last = _LAST * best  # a trial that begins just before the time is up; the check of outputs
        compared = comparison_s({WHOLE: whole, LOOP: best, TUNED: best}) + last
        most = _RESERVE * self.time_budget
        return min(self._race_figures * figure_s(best), max(most - compared, 0.0)), min(
            compared, most
        )

    def _is_late(self, share: float = 1.0, *, of: float = 0.0) -> bool:
        """Return whether the time is up, but for what is kept back.

        Args:
            share: Share of that time that may be used.
            of: Seconds that will be needed more.
        """
        left = self.deadline - sum(self._kept_back) - self.began
        return self.stopwatch.clock() + of >= self.began + share * left

    # -------------------------------------------------------------------------------- baselines

    def whole_batch(self) -> HostPlan:
        """Return the whole batch in one call, with the threads that suit it best."""
        first, *others = self._wholes()
        self._seconds(first)
        for plan in others:
            if not self._is_late(_LOOPS):
                self._seconds(plan)
        return min((p for p in self._wholes() if p in self._known), key=self._known.__getitem__)

    def best_loop(self) -> HostPlan:
        """Return the fastest loop over equal shares of the batch: any workers and threads."""
        for plan in self._loops():
            self.told("timing loops", len(self.ledger.trials), self.fastest())
            if not self._is_late(_LOOPS):
                self._seconds(plan)
        able = [plan for plan in self._loops() if self._is_able(plan)]
        ordered = sorted(able, key=self._known.__getitem__)
        return self._raced(ordered or [self.whole_batch()], _LOOPS)[0]

    def _is_able(self, plan: HostPlan) -> bool:
        """Return whether a plan was measured."""
        return math.isfinite(self._known.get(plan, math.inf))

    def _wholes(self) -> list[HostPlan]:
        """Return the whole batch in one call, with any threads."""
        return [self._loop(self.batch, layout) for layout in self.layouts if layout[0] == 1]

    def _loops(self) -> list[HostPlan]:
        """Return loops over shares; none where the batch cannot be shared."""
        return [self._loop(samples, layout) for layout, samples in self._shares()]

    def _shares(self) -> list[tuple[Layout, int]]:
        return shares_of(self.stopwatch.model, self.cpu)

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
            known = self.ledger.seconds(plan)
            try:
                self._known[plan] = self._measured(plan) if known is None else known
            except VerifyError as error:
                if not self._known:
                    raise
                self._known[plan] = self.ledger.fail(plan, str(error))
        return self._known[plan]

    def _measured(self, plan: HostPlan) -> float:
        best = min(self._known.values(), default=math.inf)
        taken = [self.stopwatch.seconds(plan)]
        # What is far behind is not measured again: its figure decides nothing.
        while len(taken) < _REPEATS and min(taken) < HOPELESS * best and not self._is_late():
            taken.append(self.stopwatch.seconds(plan))
        return self.ledger.enter(plan, taken)

    # ------------------------------------------------------------------------------------ parts

    def _models(self) -> list[PartTimes]:
        """Return beliefs of parts, timed by themselves, for the layouts of the best loops."""
        best = dict.fromkeys(self.layouts, math.inf)
        for plan in self._loops() or self._wholes():
            layout = plan.workers, plan.threads
            best[layout] = min(best[layout], self._known.get(plan, math.inf))
        least = min(best.values())
        chosen = sorted(self.layouts, key=best.__getitem__)[:_LAYOUTS]
        tables = {
            layout: [self._part_seconds(part, layout) for part in self.parts]
            for layout in chosen
            if best[layout] < HOPELESS * least
        }
        return [PartTimes.of(layout, table) for layout, table in tables.items() if all(table)]

    def _part_seconds(self, part: range, layout: tuple[int, int]) -> dict[int, float]:
        """Return the seconds that a part takes for the whole batch, by samples at once.

        Numbers of samples with which it cannot be run are left out.
        """
        found = {}
        for samples in self.sizes:
            # Sizes ascend: from here on some workers would have nothing.
            if samples * layout[0] > self.batch or self._is_late():
                break
            self.told("timing parts", len(self.ledger.trials), self.fastest())
            subgraph = HostSubGraph(part.start, part.stop, samples)
            plan = HostPlan((subgraph,), samples, workers=layout[0], threads=layout[1])
            before = self.ledger.part_seconds(plan)
            with suppress(VerifyError):
                found[samples] = self.time_part(plan) if before is None else before
        return found

    def time_part(self, plan: HostPlan) -> float:
        """Time a part of the model by itself, and note its seconds in the ledger.

        Args:
            plan: The part alone, with its samples at once, workers and threads.

        Returns:
            The seconds for the whole batch.

        Raises:
            VerifyError: The part cannot be run so.
        """
        with Runner(self.stopwatch.model, plan, self.stopwatch.sessions) as runner:
            taken = [timed(runner), timed(runner)]
            while len(taken) < _PART_REPEATS and sum(taken) < _PART_S:
                taken.append(timed(runner))
        # The first run prepares buffers and is no part of the figure.
        seconds = statistics.median(taken[1:])
        self.ledger.enter_part(plan, seconds)
        return seconds

    # ----------------------------------------------------------------------------------- search

    def run(self) -> list[HostPlan]:
        """Return the best plans that a search finds, without baselines, the fastest first."""
        if len(self.sizes) > 1 and self.trials:
            self.search()
        able = (one for one in self.history if math.isfinite(one.seconds))
        return self._raced([one.plan for one in sorted(able, key=lambda one: one.seconds)])

    def _raced(self, plans: Sequence[HostPlan], share: float = 1.0) -> list[HostPlan]:
        """Return the first few plans, in front the fastest when they are measured in turn.

        Args:
            plans: The fastest first, as far as is known.
            share: Share of the time up to the comparison, within which they are.
        """
        plans = list(plans[:_RACED])
        if len(plans) < 2:  # noqa: PLR2004  nobody to race with
            return plans
        kept_back = self._kept_back[0] if share == 1 else 0.0
        if self._is_late(
            share, of=self._race_figures * figure_s(self._known[plans[0]]) - kept_back
        ):
            return plans
        self.told("measuring the best again", len(self.ledger.trials), self.fastest())
        known = {i: self._known[plan] for i, plan in enumerate(plans)}
        first, _ = lead(lambda i: self.stopwatch.seconds(plans[i]), known, racing=self.racing)
        return [plans[first], *(plan for plan in plans if plan != plans[first])]

    def _recorded(self, models: Sequence[PartTimes]) -> None:
        """Take note of what an earlier part of the run has tried."""
        for trial in self.ledger.trials:
            plan = trial.knobs.host
            operators = len(self.stopwatch.model.graph.operators)
            if plan is None or plan in self._known or plan.fault(operators, self.batch):
                continue
            seconds = self._seconds(plan)
            self.history.append(Timed(plan, seconds, trial.number))
            for model in models:
                if model.layout == (plan.workers, plan.threads) and math.isfinite(seconds):
                    model.learn(plan.choice(self.parts), seconds)

    def search(self) -> None:
        """Measure plans until enough are tried or the time is up; :attr:`history` has them.

        Parts of the model are timed first. What an earlier part of the run has tried is not
        measured again.
        """
        models, rng = self._models(), np.random.default_rng(self.seed)
        for layout, samples in self._shares():
            plan = self._loop(samples, layout)
            for model in models:
                if model.layout == layout and self._is_able(plan):
                    model.learn(HostChoice.loop(samples, len(self.parts)), self._known[plan])
        self._recorded(models)
        stale = 0
        while models and stale < _DRAWS and not self._is_over():
            # The first trial is what is expected to be best; later ones draw from what is believed.
            drawn = [(model, *model.best(rng if self.history else None)) for model in models]
            model, choice, _ = min(drawn, key=lambda one: one[2])
            # Draws of plans that are known count until one is new: beliefs may have settled.
            plan, stale = HostPlan.of(self.parts, choice, self.batch, *model.layout), stale + 1
            if plan in self._known:
                continue
            seconds, stale = self._seconds(plan), 0
            if math.isfinite(seconds):
                model.learn(choice, seconds)
            self.history.append(Timed(plan, seconds, self.ledger.number(plan)))
            self.told("", len(self.ledger.trials), self.fastest())

    def _is_over(self) -> bool:
        """Return whether enough was tried, or the time is up."""
        made, best = len(self.history), self.best()
        idle = 0 if best is None else made - 1 - self.history.index(best)
        out = self.patience is not None and idle >= self.patience
        return made >= self.trials or self._is_late() or out

    def best(self) -> Timed | None:
        """Return the best trial so far."""
        able = (one for one in self.history if math.isfinite(one.seconds))
        return min(able, key=lambda one: one.seconds, default=None)

    def fastest(self) -> Timed | None:
        """Return the fastest plan so far, baselines among them."""
        able = [plan for plan in self._known if self._is_able(plan)]
        if not able:
            return None
        plan = min(able, key=self._known.__getitem__)
        return Timed(plan, self._known[plan], self.ledger.number(plan))
