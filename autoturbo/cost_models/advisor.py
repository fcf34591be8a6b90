"""The cost model at work in one tuning run: it sees outcomes, and ranks settings.

What it answers depends on the outcomes seen so far and on nothing else, not on when it was asked:
after the same outcomes in the same order the same settings get the same figures. That is what
makes a resumed run go on as if nothing had happened.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autoturbo.cost_models.batch import Batch, BatchFeatures
from autoturbo.cost_models.features import (
    Rows,
    feature_names,
    kernel_rows,
    knob_vector,
    override_rows,
    setting_row,
)
from autoturbo.cost_models.looks import Look
from autoturbo.cost_models.model import FEWEST, CostModel, Example
from autoturbo.cost_models.ratios import base_seconds, is_planned
from autoturbo.schedule.pipeline import Workbench
from autoturbo.schedule.stores import Store
from autoturbo.simulate.measurement import Failure, Measurement, Outcome
from autoturbo.simulate.plan import COLUMNS

if TYPE_CHECKING:
    from autoturbo.cost_models.pretrained import Pretrained
    from autoturbo.schedule.knobs import Knobs
    from autoturbo.simulate.contract import Evaluates, PlanStatistics

_GROWTH = 1.15
"""The model is trained anew whenever this many times the settings are known: a fixed ladder of
sizes, so that the model at any moment follows from the settings known by then."""

_SEEN = 4096
"""Examples of settings kept for asking again, where the evaluator has their statistics."""


@dataclass(frozen=True, eq=False)
class Prior:
    """What is known of kernels before a run has measured any.

    Attributes:
        model: trained beforehand.
        bench: the model on the target, whose kernels it predicts.
    """

    model: Pretrained
    bench: Workbench

    @staticmethod
    def of(evaluator: Evaluates) -> Prior | None:
        """The model in the package, where an evaluator tells what its settings are planned with.

        Raises:
            InputError: that model is of other versions than this release.
            UsageError: there is none.
        """
        from autoturbo.cost_models.pretrained import standard

        bench = getattr(evaluator, "bench", None)
        return Prior(standard(), bench) if isinstance(bench, Workbench) else None


class _Told:
    """What a model says of kernels of batches, each asked for once.

    Args:
        model: trained.
        features: of the batches.
    """

    def __init__(self, model: CostModel, features: BatchFeatures) -> None:
        self.model, self.features = model, features
        self._numbers: dict[tuple[int, int], int] = {}
        self._told = Store((2,), np.float64)

    def of(self, batch: Batch) -> NDArray[np.float64]:
        """Return :meth:`autoturbo.cost_models.model.CostModel.told` of kernels, one row each."""
        known, new = self._numbers, list[int]()
        settings = batch.settings[batch.owner].tolist()
        numbers = np.empty(len(batch.kernels), np.int64)
        for at, key in enumerate(zip(batch.kernels.tolist(), settings, strict=True)):
            if key not in known:
                known[key] = len(known)
                new.append(at)
            numbers[at] = known[key]
        if new:
            rows = self.features.rows(batch, np.asarray(new))
            self._told.add(np.column_stack(self.model.told(rows)))
        found: NDArray[np.float64] = self._told.rows[numbers]
        return found


@dataclass
class KernelAdvisor:
    """Ranks settings of one model on one target by predicted latency.

    Attributes:
        evaluator: gives statistics of settings.
        target: of :func:`autoturbo.cost_models.features.target_vector`.
        share: samples that ``batches_per_cluster="auto"`` stands for.
        statistics: names of the statistics' columns, where they are not the evaluator's.
        seed: of the trees.
        prior: what it starts from; then it can rank at once, and learns how far the prior is off.
    """

    evaluator: Evaluates
    target: Rows
    share: int
    statistics: tuple[str, ...] = ()
    seed: int = 0
    prior: Prior | None = None
    examples: list[Example] = field(default_factory=list)
    screened: int = 0
    _blind: bool = False
    _columns: int = 0
    _model: CostModel | None = None
    _trained_at: int = 0
    _memory: dict[str, Example | None] = field(default_factory=dict)
    _known: BatchFeatures | None = None
    _told: _Told | None = None

    def observe(self, knobs: Knobs, outcome: Outcome) -> None:
        """Take note of an outcome.

        A failure of the machinery (a dead worker, nonsense from the measurer) teaches nothing
        about the setting.
        """
        self._enter(self._examples([knobs])[0], outcome)

    def _enter(self, example: Example | None, outcome: Outcome) -> None:
        if isinstance(outcome, Failure) and outcome.reason in ("worker", "invalid"):
            return
        if example is None:
            self._blind = self._blind or isinstance(outcome, Measurement)
            return
        times = _times(outcome, len(example.rows))
        if isinstance(outcome, Measurement) and times is None:
            self._blind = True  # a measurer that does not tell kernels apart
            return
        self.examples.append(dataclasses.replace(example, times=times))

    @property
    def obstacle(self) -> str | None:
        """Why it cannot rank, or None where it can."""
        if self._blind:
            return "the evaluator gives no statistics of kernels"
        if self.prior is None and self._measured < FEWEST:
            return f"{self._measured} of {FEWEST} measured settings that a cost model needs"
        return None

    @property
    def _measured(self) -> int:
        return sum(e.times is not None for e in self.examples)

    def rank(self, settings: Sequence[Knobs]) -> NDArray[np.float64] | None:
        """``log`` of predicted seconds, less the log-odds of being feasible; lower is better.

        None while :attr:`obstacle` says why; infinite for a setting without a plan.
        """
        if self.obstacle:
            return None
        self.screened += len(settings)
        batch = self._batch(settings)
        if batch is None:
            examples = self._examples(settings)
            return self._scores(
                self._seconds(examples),
                lambda: [None if e is None else e.setting for e in examples],
            )
        return self._batch_scores(batch, self._batch_seconds(batch))

    def _batch_scores(self, batch: Batch, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._scores(seconds, lambda: self._features.setting_rows(batch))

    def _scores(
        self, seconds: NDArray[np.float64], rows: Callable[[], Sequence[Rows | None]]
    ) -> NDArray[np.float64]:
        """Scores of settings from their seconds, and from rows of features if some failed."""
        scores, there = _logarithms(seconds), np.isfinite(seconds)
        if self._measured >= FEWEST and not self._current().all_feasible and there.any():
            planned = [row for row, fits in zip(rows(), there, strict=True) if fits]
            scores[there] -= _log_chance(self._current(), np.stack(planned))  # type: ignore[arg-type]
        return scores

    def look(self, settings: Sequence[Knobs]) -> Look | None:
        """More than :meth:`rank` says.

        None before there is a model of the run, or where the evaluator plans no settings.
        """
        blind = self.obstacle or self._measured < FEWEST
        batch = None if blind else self._batch(settings)
        if batch is None:
            return None
        self.screened += len(settings)
        factors, seen = self._told_of(batch).T
        took = np.exp(factors) * self._features.weights(batch)
        least = np.where(seen > 0, took, self._features.least(batch))
        return Look(
            self._batch_scores(batch, batch.sums(took)), _logarithms(batch.sums(least)),
            self._features.kinds(batch),
        )  # fmt: skip

    def seconds(self, settings: Sequence[Knobs]) -> NDArray[np.float64] | None:
        """Predicted latency alone, ``(settings,)``, as :meth:`rank` would see it now.

        None while :attr:`obstacle` says why; infinite for a setting without a plan.
        """
        if self.obstacle:
            return None
        batch = self._batch(settings)
        return (
            self._seconds(self._examples(settings)) if batch is None else self._batch_seconds(batch)
        )

    def _seconds(self, examples: Sequence[Example | None]) -> NDArray[np.float64]:
        """Predicted latency of settings; infinite for those without a plan."""
        seconds = np.full(len(examples), np.inf)
        there = [e is not None for e in examples]
        seconds[there] = self._current().predict([e for e in examples if e is not None])
        return seconds

    def _batch_seconds(self, batch: Batch) -> NDArray[np.float64]:
        """:meth:`_seconds` of a batch; by the prior alone while little is measured."""
        weights = self._features.weights(batch)
        if self._measured < FEWEST:
            return batch.sums(weights)
        return batch.sums(np.exp(self._told_of(batch)[:, 0]) * weights)

    @property
    def _features(self) -> BatchFeatures:
        if self._known is None:
            raise ValueError("no batch was asked for")
        return self._known

    def _told_of(self, batch: Batch) -> NDArray[np.float64]:
        """What the model of the run says of the kernels of a batch."""
        model, told = self._current(), self._told
        if told is None or told.model is not model or told.features is not self._features:
            self._told = told = _Told(model, self._features)
        return told.of(batch)

    def _current(self) -> CostModel:
        """The model of the largest rung of the ladder that the examples reach."""
        rung = _rung(self.examples)
        if self._model is None or rung != self._trained_at:
            model = CostModel(feature_names(self._names()), self.seed)
            model.fit(self.examples[:rung])
            self._model, self._trained_at = model, rung
        return self._model

    def _names(self) -> tuple[str, ...]:
        if is_planned(self._columns):
            return COLUMNS
        if len(self.statistics) == self._columns:
            return self.statistics
        return tuple(str(number) for number in range(self._columns))

    def _batch(self, settings: Sequence[Knobs]) -> Batch | None:
        """The kernels of settings; None without a prior, which knows how settings are planned."""
        if self.prior is None:
            return None
        if self._known is None or self._known.full:
            bench, model = self.prior.bench, self.prior.model
            self._known = BatchFeatures(bench, model, self.target, self.share)
        return self._known.of(settings)

    def _examples(self, settings: Sequence[Knobs]) -> list[Example | None]:
        """Examples of settings; None for a setting without a plan."""
        batch = self._batch(settings)
        if batch is not None:
            self._columns = len(COLUMNS)
            return self._features.examples(batch)
        return [self._example(knobs) for knobs in settings]

    def _example(self, knobs: Knobs) -> Example | None:
        """The example of a setting as the evaluator has its statistics, built once."""
        key = knobs.canonical()
        if key not in self._memory:
            if len(self._memory) >= _SEEN:
                self._memory.clear()
            plan = self.evaluator.statistics(knobs)
            self._memory[key] = None if plan is None else self._made(knobs, plan)
        return self._memory[key]

    def _made(self, knobs: Knobs, plan: PlanStatistics) -> Example:
        self._columns = plan.values.shape[1]
        own, vector = (
            override_rows(knobs, plan.overrides, len(plan.values)),
            knob_vector(knobs, self.share),
        )
        rows = kernel_rows(plan.values, own, vector, self.target)
        setting = setting_row(plan.values, plan.launches, own, vector, self.target)
        return Example(rows, plan.launches, setting, base=base_seconds(plan.values))


def _log_chance(model: CostModel, settings: Rows) -> NDArray[np.float64]:
    chance = np.clip(model.feasibility(settings), 1e-3, 1.0)
    return np.asarray(np.log(chance), np.float64)


def _logarithms(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.log(np.maximum(seconds, 1e-12)), np.float64)


def _times(outcome: Outcome, kernels: int) -> NDArray[np.float64] | None:
    """Kernel times where the measurement has one per sub-graph of the plan."""
    if isinstance(outcome, Failure) or len(outcome.subgraph_times) != kernels:
        return None
    return np.asarray(outcome.subgraph_times, np.float64)


def _rung(examples: Sequence[Example]) -> int:
    """How many examples the model is trained on: the first ladder starts at enough measured."""
    measured, start = 0, 0
    while measured < FEWEST:
        measured += examples[start].times is not None
        start += 1
    rung = start
    while (larger := max(math.ceil(rung * _GROWTH), rung + 4)) <= len(examples):
        rung = larger
    return rung
