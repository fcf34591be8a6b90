"""The cost model at work in one tuning run: it sees outcomes, and ranks candidates.

It learns a latency, from times of kernels where these are measured, or another figure that is a sum
over kernels, from its sums: energy, or bytes moved.

What it answers depends on the outcomes seen so far and on nothing else, not on when it was asked:
after the same outcomes in the same order the same candidates get the same figures. That is what
makes a resumed run go on as if nothing had happened.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from autoturbo.caches import GrowingArray
from autoturbo.cost_models.batch import Batch, BatchFeatures, EvaluatorStatistics
from autoturbo.cost_models.contract import Example, Kernels, MakeModel, ModelStart
from autoturbo.cost_models.model import FEWEST, CostModel, KernelTrees
from autoturbo.cost_models.predictions import Prediction
from autoturbo.cost_models.pretrained import Pretrained, folder_of, standard
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.schedule.work import Floats
from autoturbo.simulator.measurement import Failure, Measurement, Outcome
from autoturbo.simulator.plan import KernelStatistics

if TYPE_CHECKING:
    from autoturbo.cost_models.features import Rows
    from autoturbo.schedule.knobs import Knobs
    from autoturbo.simulator.contract import CandidateEvaluator

_GROWTH: Final = 1.15
"""The model is trained anew whenever this many times the candidates are known: a fixed ladder of
sizes, so that the model at any moment follows from the candidates known by then."""

_OPTIMISM: Final = 1.0
"""Standard deviations below its expectation that a candidate might be, where only latencies are
known: an acquisition by the lower confidence bound (Srinivas et al., ICML '10)."""


def prior_of(evaluator: CandidateEvaluator, folder: str | None = None) -> Pretrained | None:
    """Return a pretrained model, if an evaluator gives the plan that its features need.

    Args:
        evaluator: Evaluator of the run.
        folder: Folder of the model; the package's if None.

    Raises:
        InputError: That model is of other versions than this release, or there is none.
        UsageError: The package has none.
    """
    if not isinstance(getattr(evaluator, "model_scheduler", None), ModelScheduler):
        return None
    return standard() if folder is None else Pretrained.load(folder_of(folder))


@dataclass
class Ranker:
    """Ranks candidates of one model on one target by a predicted figure: latency, unless told.

    Attributes:
        evaluator: Gives statistics of candidates, where there is no prior.
        target: Figures of :func:`autoturbo.cost_models.features.target_vector`.
        share: Samples that ``batches_per_cluster="auto"`` stands for.
        seed: Seed of the trees.
        prior: What it starts from, where the evaluator has a ``model_scheduler``; then it can rank
            at once, and learns how far the prior is off.
        figure: What is ranked by, lower is better; the latency if None. The prior stands in for it
            until enough is measured.
        make: Makes what learns how far estimates of kernels are off; ours, or a plug-in's.
        examples: Candidates tried.
        screened: Candidates ranked so far.
    """

    evaluator: CandidateEvaluator
    target: Rows
    share: int
    seed: int = 0
    prior: Pretrained | None = None
    figure: Callable[[Measurement], float | None] | None = None
    make: MakeModel = KernelTrees
    examples: list[Example] = field(default_factory=list)
    screened: int = 0
    _blind: bool = False
    _model: CostModel | None = None
    _trained_at: int = 0
    _unit: float = 0.0

    def __post_init__(self) -> None:
        self._begin_anew()

    def by(self, figure: Callable[[Measurement], float | None] | None) -> Ranker:
        """Return a ranker by a figure that has learned nothing; what kernels are like is shared."""
        nothing: dict[str, Any] = {"examples": [], "_model": None, "_trained_at": 0, "_unit": 0.0}
        other = dataclasses.replace(self, figure=figure, **nothing)
        vars(other)["_features"] = self._features
        return other

    def observe(self, knobs: Knobs, outcome: Outcome) -> None:
        """Add an outcome to the examples.

        A failure of the machinery (a dead worker, nonsense from the measurer) teaches nothing
        about the candidate.
        """
        if isinstance(outcome, Failure) and outcome.reason in ("worker", "invalid"):
            return
        batch = self._batch([knobs])
        (example,) = self._features.examples(batch)
        if isinstance(outcome, Failure):
            if example is not None:
                self.examples.append(example)
        elif example is None:
            self._blind = True  # an evaluator that plans no candidates
        elif self.figure is None and len(outcome.subgraph_times) == len(example.rows):
            times = np.asarray(outcome.subgraph_times, np.float64)
            self.examples.append(dataclasses.replace(example, times=times))
        elif (total := self._total(outcome, example)) is not None:
            noise = outcome.noise or 0.0
            self.examples.append(dataclasses.replace(example, latency=total, noise=noise))

    def _total(self, outcome: Measurement, example: Example) -> float | None:
        """Return the latency, or another figure in a unit in which the first is the prior's sum."""
        if self.figure is None:
            return outcome.latency
        figure = self.figure(outcome)
        if not figure:  # nothing is moved, or it is not known
            return None
        # Trees begin with estimates of seconds: other figures are brought to that scale once.
        self._unit = self._unit or figure / float((example.launches * example.base).sum())
        return figure / self._unit

    @property
    def obstacle(self) -> str | None:
        """Return why it cannot rank; None where it can."""
        if self._blind:
            return "the evaluator gives no statistics of kernels"
        if self.prior is None and self._measured < FEWEST:
            return f"{self._measured} of {FEWEST} measured settings that a cost model needs"
        return None

    @property
    def _varies(self) -> bool:
        return any(example.noise for example in self.examples)

    @property
    def _measured(self) -> int:
        return sum(e.measured for e in self.examples)

    def rank(self, settings: Sequence[Knobs]) -> Floats | None:
        """Return ``log`` of predicted seconds, less the log-odds of feasibility; lower is better.

        None while :attr:`obstacle` says why; infinite for a candidate without a plan.
        """
        if self.obstacle:
            return None
        self.screened += len(settings)
        batch = self._batch(settings)
        return self._scores(batch, self._seconds(batch))

    def look(self, settings: Sequence[Knobs]) -> Prediction | None:
        """Return predictions in more detail than :meth:`rank`.

        None before there is a model of the run, or where the evaluator plans no candidates.
        """
        if self.prior is None or self.obstacle or self._measured < FEWEST:
            return None
        self.screened += len(settings)
        batch = self._batch(settings)
        factors, deviations = self._told_of(batch).T
        took = np.exp(factors) * self._features.weights(batch)
        scores, kinds = self._scores(batch, batch.sums(took)), self._features.kinds(batch)
        totals = self._current().sums
        if totals is None:
            unknown, lower = np.isnan(deviations), took * np.exp(-_OPTIMISM * deviations)
            least = np.where(unknown, self._features.least(batch), lower)
            return Prediction(scores, _logarithms(batch.sums(least)), kinds)
        rows = self._features.rows(batch, np.arange(len(batch.kernels)))
        deviations = totals.deviations(rows, batch.owner, took, len(settings))
        return Prediction(scores, scores - _OPTIMISM * deviations, kinds)

    def smoothed(self, settings: Sequence[Knobs]) -> Floats | None:
        """Return latencies of measured candidates, less of their noise; None where there is none.

        Candidates that have kernels in common say what each other takes.
        """
        known = self._varies and self._measured >= FEWEST
        return self.seconds(settings) if known else None

    @property
    def least(self) -> float:
        """Return the logarithm of the lowest figure so far, as :meth:`rank` counts; 0 for none."""
        return math.log(min((e.total for e in self.examples if e.measured), default=1.0))

    def seconds(self, settings: Sequence[Knobs]) -> Floats | None:
        """Return predicted latency alone, ``(settings,)``, as :meth:`rank` would see it now.

        None while :attr:`obstacle` says why; infinite for a candidate without a plan.
        """
        return None if self.obstacle else self._seconds(self._batch(settings))

    def _batch(self, settings: Sequence[Knobs]) -> Batch:
        """Return the kernels of candidates; older features are dropped when there are too many."""
        if self._features.full:
            self._begin_anew()
        return self._features.of(settings)

    def _begin_anew(self) -> None:
        """Reset the features of candidates; with a prior they cover unmeasured kernels too."""
        model_scheduler = getattr(self.evaluator, "model_scheduler", None)
        known = (
            KernelStatistics(model_scheduler)
            if self.prior is not None and isinstance(model_scheduler, ModelScheduler)
            else EvaluatorStatistics(self.evaluator)
        )
        self._features = BatchFeatures(known, self.prior, self.target, self.share)
        self._forget_told()

    def _forget_told(self) -> None:
        """Drop the run model's predictions for kernels, by number and candidate."""
        self._numbers: dict[tuple[int, int], int] = {}
        self._told = GrowingArray((2,), np.float64)

    def _seconds(self, batch: Batch) -> Floats:
        """Return predicted latency of candidates; by the prior alone while little is measured."""
        weights = self._features.weights(batch)
        if self._measured < FEWEST:
            return batch.sums(weights)
        return batch.sums(np.exp(self._told_of(batch)[:, 0]) * weights)

    def _scores(self, batch: Batch, seconds: Floats) -> Floats:
        """Return scores of candidates from their seconds, and from the failures so far."""
        scores = _logarithms(seconds)
        if self._measured < FEWEST or not batch.possible.any():
            return scores
        model = self._current()
        if model.feasible is not None:
            rows = np.stack(self._features.setting_rows(batch))[batch.possible]
            # Bounded: a model that has seen few failures must not rule anything out.
            scores[batch.possible] -= np.log(np.clip(model.feasibility(rows), 1e-3, 1.0))
        return scores

    def _told_of(self, batch: Batch) -> Floats:
        """Return the run model's predictions for a batch's kernels, each predicted once.

        Rows are those of :meth:`autoturbo.cost_models.contract.KernelModel.predict`.
        """
        model, numbers = self._current(), self._numbers
        settings = batch.settings[batch.owner].tolist()
        pairs = zip(batch.kernels.tolist(), settings, strict=True)
        rows = np.asarray([numbers.setdefault(pair, len(numbers)) for pair in pairs], np.int64)
        if fresh := len(numbers) - self._told.count:
            _, first = np.unique(rows, return_index=True)
            new = first[-fresh:]  # the last numbers
            kernels = Kernels(self._features.rows(batch, new), self._features.base(batch, new))
            self._told.add(np.column_stack(model.times.predict(kernels)))
        told: Floats = self._told.rows[rows]
        return told

    def _current(self) -> CostModel:
        """Return the model trained on the largest rung of the ladder that the examples reach.

        Where measurements vary it is trained on all of them: they take long, and every one counts.
        """
        # A ladder of sizes is enough for exact times, and the same whenever a run was interrupted.
        rung = len(self.examples) if self._varies else _rung(self.examples)
        if self._model is None or rung != self._trained_at:
            trees = None if self.prior is None else self.prior.factors
            start = ModelStart(self.seed, trees)
            self._model = CostModel.of(self.examples[:rung], start, self.make)
            self._trained_at = rung
            self._forget_told()
        return self._model


def _logarithms(seconds: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(seconds, 1e-12)), np.float64)


def _rung(examples: Sequence[Example]) -> int:
    """Return how many examples the model is trained on; the ladder starts at enough measured."""
    measured, start = 0, 0
    while measured < FEWEST:
        measured += examples[start].measured
        start += 1
    rung = start
    # Four at least, or the first rungs would be one example apart.
    while (larger := max(math.ceil(rung * _GROWTH), rung + 4)) <= len(examples):
        rung = larger
    return rung
