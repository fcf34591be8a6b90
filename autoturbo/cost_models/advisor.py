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

from autoturbo.cost_models.features import (
    Rows,
    feature_names,
    kernel_rows,
    knob_vector,
    override_rows,
    portable_rows,
    setting_row,
)
from autoturbo.cost_models.looks import Look
from autoturbo.cost_models.model import FEWEST, CostModel, Example, latencies
from autoturbo.cost_models.numbering import mark
from autoturbo.cost_models.ratios import base_seconds, is_planned
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.pipeline import Workbench
from autoturbo.schedule.stores import Store
from autoturbo.simulate.measurement import Failure, Measurement, Outcome
from autoturbo.simulate.plan import COLUMNS

if TYPE_CHECKING:
    from autoturbo.cost_models.choices import Candidates, Choices
    from autoturbo.cost_models.pretrained import Pretrained
    from autoturbo.cost_models.screened_examples import Numbered, ScreenedExamples
    from autoturbo.schedule.knobs import Knobs
    from autoturbo.simulate.contract import Evaluates, PlanStatistics

_GROWTH = 1.15
"""The model is trained anew whenever this many times the settings are known: a fixed ladder of
sizes, so that the model at any moment follows from the settings known by then."""

_SEEN = 4096
"""Examples of settings kept for asking again."""


@dataclass(frozen=True, eq=False)
class Prior:
    """What is known of kernels before a run has measured any.

    Attributes:
        anchored: statistics with what kernels take alone; None for a setting without a plan.
        model: trained beforehand.
        bench: what those statistics follow from, where candidates can be looked up by number; None
            where each setting has to be asked for.
    """

    anchored: Callable[[Knobs], PlanStatistics | None]
    model: Pretrained
    bench: Workbench | None = None

    @staticmethod
    def of(evaluator: Evaluates) -> Prior | None:
        """The model in the package, where an evaluator tells what kernels take alone.

        Raises:
            InputError: that model is of other versions than this release.
            UsageError: there is none.
        """
        from autoturbo.cost_models.pretrained import standard

        anchored, bench = (getattr(evaluator, name, None) for name in ("anchored", "bench"))
        if anchored is None:
            return None
        return Prior(anchored, standard(), bench if isinstance(bench, Workbench) else None)

    def factors(self, statistics: NDArray[np.float64], own: Rows) -> NDArray[np.float64]:
        """Times of kernels over what they take alone, ``(sub-graphs,)``."""
        found: NDArray[np.float64] = np.exp(
            self.model.factors.predict(portable_rows(statistics, own))
        )
        return found


class _Said:
    """What a model said of kernels, by number of their rows: it is asked once.

    Args:
        model: trained.
        examples: what numbers the rows.
    """

    def __init__(self, model: CostModel, examples: ScreenedExamples) -> None:
        self.model, self.examples = model, examples
        self._factors, self._seen = Store((), np.float64), Store((), np.bool_)
        self._asked = Store((), np.bool_)

    def factors(self, numbers: Ints) -> NDArray[np.float64]:
        """Of :meth:`autoturbo.cost_models.model.CostModel.factors`, ``(kernels,)``."""
        self._ask(numbers)
        found: NDArray[np.float64] = self._factors.rows[numbers]
        return found

    def seen(self, numbers: Ints) -> NDArray[np.bool_]:
        """Which kernels were measured, ``(kernels,)``."""
        self._ask(numbers)
        found: NDArray[np.bool_] = self._seen.rows[numbers]
        return found

    def _ask(self, numbers: Ints) -> None:
        count = int(numbers.max(initial=-1)) + 1
        for known in (self._factors, self._seen, self._asked):
            known.reach(count, 0)
        new = mark(numbers, self._asked.rows)
        if len(new):
            told = self.model.told(self.examples.rows(new))
            self._factors.rows[new], self._seen.rows[new] = told


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
    _screened: ScreenedExamples | None = None
    _said: _Said | None = None

    def observe(self, knobs: Knobs, outcome: Outcome) -> None:
        """Take note of an outcome.

        A failure of the machinery (a dead worker, nonsense from the measurer) teaches nothing
        about the setting.
        """
        self._enter(self._example(knobs), outcome)

    def observe_candidates(self, candidates: Candidates, outcomes: Sequence[Outcome]) -> None:
        """:meth:`observe` of settings of a search in turn, where possible from their numbers."""
        for example, outcome in zip(self._numbered(candidates), outcomes, strict=True):
            self._enter(example, outcome)

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
        return self._ranked(self._examples(settings))

    def _ranked(self, found: Sequence[Example | None]) -> NDArray[np.float64]:
        scores = np.full(len(found), np.inf)
        planned = [e for e in found if e is not None]
        scores[[e is not None for e in found]] = self._scores(planned)
        return scores

    def rank_candidates(self, candidates: Candidates) -> NDArray[np.float64] | None:
        """:meth:`rank` of settings of a search, where possible from their numbers alone."""
        if self.obstacle:
            return None
        examples = self._examples_of(candidates.choices)
        if examples is None:
            return self.rank(candidates.settings)
        self.screened += len(candidates.genes)
        if self._measured < FEWEST:
            return _logarithms(examples.seconds(candidates.genes))
        return self._ranked_by_number(examples, candidates.genes)

    def _ranked_by_number(self, examples: ScreenedExamples, genes: Ints) -> NDArray[np.float64]:
        """:meth:`_ranked`, where every kernel is predicted once by each model."""
        numbered = examples.numbered(genes)
        factors = self._said_of(examples).factors(numbered.rows)
        seconds = latencies(numbered.owner, factors, numbered.weights, len(genes))
        return self._scored(examples, genes, numbered, seconds)

    def _scored(
        self,
        examples: ScreenedExamples,
        genes: Ints,
        numbered: Numbered,
        seconds: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        model = self._current()
        scores = np.where(numbered.possible, _logarithms(seconds), np.inf)
        if not model.all_feasible:
            scores[numbered.possible] -= _log_chance(model, examples.settings(genes))
        return scores

    def _said_of(self, examples: ScreenedExamples) -> _Said:
        model, said = self._current(), self._said
        if said is None or said.model is not model or said.examples is not examples:
            self._said = said = _Said(model, examples)
        return said

    def look_candidates(self, candidates: Candidates) -> Look | None:
        """More than :meth:`rank_candidates` says.

        None before there is a model of the run, or where candidates cannot be looked up by number.
        """
        blind = self.obstacle or self._measured < FEWEST
        examples = None if blind else self._examples_of(candidates.choices)
        if examples is None:
            return None
        genes = candidates.genes
        self.screened += len(genes)
        numbered, said = examples.numbered(genes), self._said_of(examples)
        took = np.exp(said.factors(numbered.rows)) * numbered.weights
        least = np.where(said.seen(numbered.rows), took, examples.least(numbered.rows))
        seconds = np.bincount(numbered.owner, took, len(genes)).astype(np.float64)
        hopes = np.bincount(numbered.owner, least, len(genes)).astype(np.float64)
        return Look(
            self._scored(examples, genes, numbered, seconds),
            np.where(numbered.possible, _logarithms(hopes), np.inf),
            examples.kinds(numbered, len(genes)),
        )

    def seconds(self, settings: Sequence[Knobs]) -> NDArray[np.float64] | None:
        """Predicted latency alone, ``(settings,)``, as :meth:`rank` would see it now.

        None while :attr:`obstacle` says why; infinite for a setting without a plan.
        """
        if self.obstacle:
            return None
        found = self._examples(settings)
        seconds = np.full(len(settings), np.inf)
        there = [example is not None for example in found]
        seconds[there] = self._seconds([e for e in found if e is not None])
        return seconds

    def _scores(self, planned: Sequence[Example]) -> NDArray[np.float64]:
        logarithms = _logarithms(self._seconds(planned))
        if self._measured < FEWEST:
            return logarithms
        model = self._current()
        if model.all_feasible or not planned:
            return logarithms
        return logarithms - _log_chance(model, np.stack([e.setting for e in planned]))

    def _seconds(self, planned: Sequence[Example]) -> NDArray[np.float64]:
        if self._measured < FEWEST:  # the prior alone
            return np.asarray([example.weights.sum() for example in planned], np.float64)
        return self._current().predict(planned)

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
        return self._examples([knobs])[0]

    def _examples(self, settings: Sequence[Knobs]) -> list[Example | None]:
        """Examples of settings, each built once; None for a setting without a plan."""
        keys = [knobs.canonical() for knobs in settings]
        asked = dict(zip(keys, settings, strict=True))
        new = {key: knobs for key, knobs in asked.items() if key not in self._memory}
        known = {key: self._memory[key] for key in asked if key not in new}
        built = dict(zip(new, self._build(list(new.values())), strict=True))
        if len(self._memory) + len(built) > _SEEN:
            self._memory.clear()
        self._memory |= built
        return [built[key] if key in built else known[key] for key in keys]

    def _numbered(self, candidates: Candidates) -> list[Example | None]:
        """Examples of candidates, looked up where possible; None for one without a plan."""
        examples = self._examples_of(candidates.choices)
        if examples is None:
            return self._examples(candidates.settings)
        self._columns = len(COLUMNS)
        return examples.of(candidates.genes)

    def _examples_of(self, choices: Choices) -> ScreenedExamples | None:
        """What looks candidates up; None without a prior that tells how."""
        if self.prior is None or self.prior.bench is None:
            return None
        known = self._screened
        if known is None or known.choices is not choices or known.full:
            from autoturbo.cost_models.screened_examples import ScreenedExamples
            from autoturbo.cost_models.screening import Screen

            screen = Screen(self.prior.bench, self.prior.model, choices)
            known = ScreenedExamples(screen, choices, self.target, self.share)
            self._screened = known
        return known

    def _build(self, settings: Sequence[Knobs]) -> list[Example | None]:
        """Examples of new settings; the prior is asked once for all."""
        statistics = self.prior.anchored if self.prior else self.evaluator.statistics
        plans = [statistics(knobs) for knobs in settings]
        there = [(k, plan) for k, plan in zip(settings, plans, strict=True) if plan is not None]
        if not there:
            return [None] * len(settings)
        own = [override_rows(k, plan.overrides, len(plan.values)) for k, plan in there]
        values = np.concatenate([plan.values for _, plan in there])
        base = base_seconds(values)
        if self.prior is not None:
            base = base * self.prior.factors(values, np.concatenate(own))
        bases = np.split(base, np.cumsum([len(rows) for rows in own])[:-1])
        built = (
            self._one(knobs, plan, rows, seconds)
            for (knobs, plan), rows, seconds in zip(there, own, bases, strict=True)
        )
        return [None if plan is None else next(built) for plan in plans]

    def _one(
        self, knobs: Knobs, plan: PlanStatistics, own: Rows, base: NDArray[np.float64]
    ) -> Example:
        self._columns = plan.values.shape[1]
        vector = knob_vector(knobs, self.share)
        rows = kernel_rows(plan.values, own, vector, self.target)
        setting = setting_row(plan.values, plan.launches, own, vector, self.target)
        return Example(rows, plan.launches, setting, base=base)


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
