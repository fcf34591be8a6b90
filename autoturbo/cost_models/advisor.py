"""The cost model at work in one tuning run: it sees outcomes, and ranks settings.

What it answers depends on the outcomes seen so far and on nothing else, not on when it was asked:
after the same outcomes in the same order the same settings get the same figures. That is what
makes a resumed run go on as if nothing had happened.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autoturbo.cost_models.features import (
    Rows,
    feature_names,
    kernel_rows,
    knob_vector,
    override_rows,
    setting_row,
)
from autoturbo.cost_models.model import FEWEST, CostModel, Example
from autoturbo.cost_models.ratios import base_seconds, is_planned
from autoturbo.simulate.measurement import Failure, Measurement, Outcome
from autoturbo.simulate.plan import COLUMNS

if TYPE_CHECKING:
    from autoturbo.schedule.knobs import Knobs
    from autoturbo.simulate.contract import Evaluates

_GROWTH = 1.15
"""The model is trained anew whenever this many times the settings are known: a fixed ladder of
sizes, so that the model at any moment follows from the settings known by then."""

_SEEN = 4096
"""Examples of settings kept for asking again."""


@dataclass
class KernelAdvisor:
    """Ranks settings of one model on one target by predicted latency.

    Attributes:
        evaluator: gives statistics of settings.
        target: of :func:`autoturbo.cost_models.features.target_vector`.
        share: samples that ``batches_per_cluster="auto"`` stands for.
        statistics: names of the statistics' columns, where they are not the evaluator's.
        seed: of the trees.
    """

    evaluator: Evaluates
    target: Rows
    share: int
    statistics: tuple[str, ...] = ()
    seed: int = 0
    examples: list[Example] = field(default_factory=list)
    screened: int = 0
    _blind: bool = False
    _columns: int = 0
    _model: CostModel | None = None
    _trained_at: int = 0
    _memory: dict[str, Example | None] = field(default_factory=dict)

    def observe(self, knobs: Knobs, outcome: Outcome) -> None:
        """Take note of an outcome.

        A failure of the machinery (a dead worker, nonsense from the measurer) teaches nothing
        about the setting.
        """
        if isinstance(outcome, Failure) and outcome.reason in ("worker", "invalid"):
            return
        example = self._example(knobs)
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
        measured = sum(e.times is not None for e in self.examples)
        if measured < FEWEST:
            return f"{measured} of {FEWEST} measured settings that a cost model needs"
        return None

    def rank(self, settings: Sequence[Knobs]) -> NDArray[np.float64] | None:
        """``log`` of predicted seconds, less the log-odds of being feasible; lower is better.

        None while :attr:`obstacle` says why; infinite for a setting without a plan.
        """
        if self.obstacle:
            return None
        model = self._current()
        found = [self._example(knobs) for knobs in settings]
        planned = [e for e in found if e is not None]
        self.screened += len(settings)
        scores = np.full(len(settings), np.inf)
        seconds = np.maximum(model.predict(planned), 1e-12)
        chance = np.clip(model.feasibility(planned), 1e-3, 1.0)
        scores[[e is not None for e in found]] = np.log(seconds) - np.log(chance)
        return scores

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

    def _example(self, knobs: Knobs) -> Example | None:
        key = knobs.canonical()
        if key not in self._memory:
            if len(self._memory) >= _SEEN:
                self._memory.clear()
            self._memory[key] = self._build(knobs)
        return self._memory[key]

    def _build(self, knobs: Knobs) -> Example | None:
        plan = self.evaluator.statistics(knobs)
        if plan is None:
            return None
        self._columns = plan.values.shape[1]
        vector = knob_vector(knobs, self.share)
        own = override_rows(knobs, plan.overrides, len(plan.values))
        rows = kernel_rows(plan.values, own, vector, self.target)
        setting = setting_row(plan.values, plan.launches, own, vector, self.target)
        return Example(rows, plan.launches, setting, base=base_seconds(plan.values))


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
