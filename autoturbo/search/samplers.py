"""Samplers by name: ours, and Optuna's own. This module loads Optuna."""

from __future__ import annotations

import importlib
import math
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from autoturbo.cost_models.predictions import Prediction
from autoturbo.errors import UsageError
from autoturbo.registry import COST_MODEL, SAMPLERS, broken
from autoturbo.search.constants import SEARCH
from autoturbo.search.encoding import Genes
from autoturbo.search.evolution import Advice, propose
from autoturbo.search.optuna_parameters import OptunaParameters
from autoturbo.search.space import Space
from autoturbo.search.surrogates.modelled import ModelledProposer, is_turn
from autoturbo.search.surrogates.surrogate import ScoredCandidate, levelled

if TYPE_CHECKING:
    from autoturbo.cost_models.ranker import Ranker
    from autoturbo.schedule.codegen.work import Floats

_DONE = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


Told = tuple[tuple[int, ...], Sequence[float] | None]
"""A candidate and the values of its objectives; None for one that failed."""


class CostModelSampler(BaseSampler):
    """Evolution guided by a cost model, as an Optuna sampler.

    Works in any study: parameters that all trials have are sampled together, by trees trained on
    the study's trials (numbers in levels, :mod:`autoturbo.search.optuna_parameters`) and, for one
    objective, by a Gaussian process in turn; parameters that only some trials have independently,
    at random. Failed and pruned trials teach where not to look.
    Several objectives are weighed anew for each proposal, which covers a Pareto front. In a tuning
    run it knows the space beforehand, proposes whole batches and ranks their best by kernels.

    A proposal follows from the seed, the trial's number and the finished trials: the same study
    goes the same way, however many workers there are between asking and telling.

    Args:
        seed: Of all chance; None draws one.
        space: Of the knobs; None infers it from the study.
        batch: Trials asked before the next is told; 1 in a plain study.
        rankers: Kernel models of a tuning run, one for each objective.
    """

    def __init__(
        self,
        seed: int | None = None,
        *,
        space: Space | None = None,
        batch: int = 1,
        rankers: Sequence[Ranker] = (),
    ) -> None:
        self._seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self._space = space
        self._batch = batch
        self._rankers = tuple(rankers)
        self._inferred = IntersectionSearchSpace()
        self._queue: list[tuple[int, ...]] = []
        self._modelled: tuple[OptunaParameters, ModelledProposer] | None = None
        self._handed: dict[int, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._independent = optuna.samplers.RandomSampler(self._seed)

    def reseed_rng(self) -> None:
        """Draw a new seed, so that a copy does not repeat the original's proposals."""
        self._seed = int(np.random.SeedSequence().generate_state(1)[0])
        self._modelled = None
        self._independent.reseed_rng()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the parameters that all finished trials have, or those of the space."""
        del trial
        if self._space is not None:
            return self._space.distributions()
        inferred = self._inferred.calculate(study)
        return {n: d for n, d in inferred.items() if not d.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the next proposal of the round; a new round is proposed where none is left."""
        if not search_space:
            return {}
        if self._space is None:
            return self._one(study, trial, OptunaParameters(search_space))
        space = self._space
        if self._batch == 1:
            return self._one(study, trial, space)
        if not self._queue:
            self._queue = self._propose(study, trial, space)
        return space.params_of(self._queue.pop(0)) if self._queue else {}

    def _one(
        self, study: Study, trial: FrozenTrial, space: Space | OptunaParameters
    ) -> dict[str, Any]:
        """Return a proposal for one trial; several threads may ask at once.

        A trial's parameters are in the study a little after they were proposed; until then nobody
        else may be given them.
        """
        with self._lock:
            points = self._propose(study, trial, space) or [_any_point(space, self._rng(trial, 2))]
            params = self._params(space, points[0], trial)
            self._handed[trial.number] = params
            return params

    def _params(
        self, space: Space | OptunaParameters, point: tuple[int, ...], trial: FrozenTrial
    ) -> dict[str, Any]:
        if isinstance(space, Space):
            return space.params_of(point)
        return space.params_of(point, self._rng(trial, 1))

    def _rng(self, trial: FrozenTrial, purpose: int) -> np.random.Generator:
        """Return a generator that follows from the seed and the trial's number."""
        return np.random.default_rng([self._seed, trial.number, purpose])

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the lock: other processes have their own."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state, with a new lock."""
        vars(self).update(state, _lock=threading.Lock())

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return a random value of one parameter."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def _propose(
        self, study: Study, trial: FrozenTrial, params: Space | OptunaParameters
    ) -> list[tuple[int, ...]]:
        finished, running = _told(study, params)
        done = {trial.number for trial in study.get_trials(deepcopy=False, states=_DONE)}
        self._handed = {n: p for n, p in self._handed.items() if n not in done}
        running |= {g for p in self._handed.values() if (g := params.genes_of(p)) is not None}
        return self._proposed(params, trial.number, finished, running, study.directions)

    def batch_of(
        self,
        number: int,
        finished: Sequence[Told],
        taken: set[tuple[int, ...]],
        directions: Sequence[StudyDirection],
    ) -> list[tuple[int, ...]]:
        """Return the candidates that a study would be given, for callers without a study.

        Args:
            number: Of the first trial.
            finished: Trials told so far, in order.
            taken: Candidates that are being tried.
            directions: Of the objectives.

        Raises:
            ValueError: It was made without a space.
        """
        if self._space is None:
            raise ValueError("a sampler without a space works in a study only")
        return self._proposed(self._space, number, finished, taken, directions)

    def _proposed(
        self,
        params: Space | OptunaParameters,
        number: int,
        finished: Sequence[Told],
        taken: set[tuple[int, ...]],
        directions: Sequence[StudyDirection],
    ) -> list[tuple[int, ...]]:
        rng = np.random.default_rng([self._seed, number])
        weights = rng.dirichlet(np.ones(len(directions))) if len(directions) > 1 else None
        scores = self._scores(params, finished, directions, weights)
        history = [
            ScoredCandidate(g, score) for (g, _), score in zip(finished, scores, strict=True)
        ]
        if isinstance(params, OptunaParameters):
            measured = sum(score is not None for score in scores)
            if len(directions) == 1 and is_turn(measured):
                point = self._proposer(params).propose(number, history, taken)
                if point is not None:
                    return [point]
            # of a plain study's parameters it is not known that small ones are the better ones
            return propose(params.space, rng, history, taken, count=1, shuffled=True)
        advice = _advice(self._rankers, params, weights) if self._rankers else None
        return propose(params, rng, history, taken, count=self._batch, advice=advice)

    def _scores(
        self,
        params: Space | OptunaParameters,
        finished: Sequence[Told],
        directions: Sequence[StudyDirection],
        weights: Floats | None,
    ) -> list[float | None]:
        """Return the scores of trials, less of their noise where they have any."""
        scores = _scores([values for _, values in finished], directions, weights)
        if len(self._rankers) != 1 or isinstance(params, OptunaParameters):
            return scores
        at = [index for index, score in enumerate(scores) if score is not None]
        points = np.asarray([finished[index][0] for index in at], np.int64)
        smoothed = self._rankers[0].smoothed(params.settings(points)) if at else None
        if smoothed is not None:
            for index, seconds in zip(at, smoothed.tolist(), strict=True):
                scores[index] = seconds
        return scores

    def _proposer(self, params: OptunaParameters) -> ModelledProposer:
        """Return what proposes by a Gaussian process, kept as long as parameters are the same."""
        if self._modelled is None or self._modelled[0] != params:
            self._modelled = params, ModelledProposer(params.space, params.axes, self._seed)
        return self._modelled[1]


def _advice(rankers: Sequence[Ranker], space: Space, weights: Floats | None) -> Advice:
    """Return the predictions of the kernel models for candidates of a space.

    Args:
        rankers: One for each objective.
        space: Of the candidates.
        weights: Of the objectives; None for one alone.
    """

    def mixed(scores: Sequence[Floats]) -> Floats:
        """Return several objectives' scores as one, on the scale of the history's."""
        if weights is None:
            return scores[0]
        pairs = zip(rankers, scores, strict=True)
        return _weighed(np.column_stack([own - r.least for r, own in pairs]), weights)

    def rank(genes: Genes) -> Floats | None:
        settings = space.settings(genes)
        scores = [own for r in rankers if (own := r.rank(settings)) is not None]
        return mixed(scores) if len(scores) == len(rankers) else None

    def look(genes: Genes) -> Prediction | None:
        settings = space.settings(genes)
        seen = [own for r in rankers if (own := r.look(settings)) is not None]
        if len(seen) < len(rankers):
            return None
        expected, hoped = (mixed([getattr(p, n) for p in seen]) for n in ("expected", "optimistic"))
        return Prediction(expected, hoped, seen[0].kinds)

    return Advice(rank, look)


def _any_point(params: Space | OptunaParameters, rng: np.random.Generator) -> tuple[int, ...]:
    """Return a random candidate once the space is exhausted."""
    space = params if isinstance(params, Space) else params.space
    return tuple(space.random(rng, 1)[0].tolist())


def _told(study: Study, space: Space | OptunaParameters) -> tuple[list[Told], set[tuple[int, ...]]]:
    """Return finished trials with their values, and the encodings of running ones."""
    finished: list[Told] = []
    running: set[tuple[int, ...]] = set()
    for trial in study.get_trials(deepcopy=False):
        genes = space.genes_of(trial.params)
        if genes is None:
            continue
        if trial.state == TrialState.RUNNING:
            running.add(genes)
        elif trial.state.is_finished():
            finished.append((genes, trial.values if _is_measured(trial) else None))
    return finished, running


def _scores(
    told: Sequence[Sequence[float] | None],
    directions: Sequence[StudyDirection],
    weights: Floats | None,
) -> list[float | None]:
    """Return the scores of trials, lower is better; None for those that failed.

    Args:
        told: Values of their objectives.
        directions: Of the objectives.
        weights: Of the objectives; None for one alone.
    """
    signs = np.asarray([-1.0 if d == StudyDirection.MAXIMIZE else 1.0 for d in directions])
    values = [None if figures is None else signs * figures for figures in told]
    if weights is None:
        return [None if v is None else float(v[0]) for v in values]
    columns = zip(*(v for v in values if v is not None), strict=True)
    behind = [own - own.min() for own in (levelled(np.asarray(column)) for column in columns)]
    weighed = iter(_weighed(np.column_stack(behind), weights).tolist() if behind else ())
    return [None if v is None else next(weighed) for v in values]


def _weighed(behind: Floats, weights: Floats) -> Floats:
    """Return several objectives ``(trials, objectives)`` as one, lower is better.

    ParEGO's augmented Chebyshev norm (Knowles, 2006, equation 2, with its 0.05), on logarithms, so
    that a percent of one objective counts as much as one of another. Every candidate of a Pareto
    front is the best one for some weights, on concave parts of the front too.

    Args:
        behind: How far each is behind the best in each objective.
        weights: Of the objectives, drawn at random.
    """
    shares = weights * behind
    weighed: Floats = shares.max(axis=1) + 0.05 * shares.sum(axis=1)
    return weighed


def _is_measured(trial: FrozenTrial) -> bool:
    return trial.state == TrialState.COMPLETE and all(map(math.isfinite, trial.values))


@dataclass(frozen=True, slots=True)
class SamplerChoice:
    """A sampler made for a run.

    Attributes:
        name: As it was asked for.
        sampler: Ready for a study.
        ordinal: It wants choices as integers (:meth:`Space.distributions`).
        rankers: Learn kernels beside the study; ours only.
    """

    name: str
    sampler: BaseSampler
    ordinal: bool = False
    rankers: tuple[Ranker, ...] = ()


def make_sampler(
    name: str,
    seed: int,
    space: Space | None = None,
    *,
    batch: int = 1,
    rankers: Sequence[Ranker] = (),
    objectives: int = 1,
) -> SamplerChoice:
    """Return a sampler by name.

    Args:
        name: One of :func:`autoturbo.registry.SAMPLERS`.
        seed: Of all chance.
        space: Of the knobs.
        batch: Trials asked before the next is told.
        rankers: Kernel models for ours, one for each objective.
        objectives: How many; with several, ours asks for ``objective_weights_trials`` at once.

    Raises:
        UsageError: No sampler of that name, or a package that it needs is not installed.
        PluginError: It is a plug-in's, which cannot be had.
    """  # noqa: DOC501  broken() makes the error
    check_sampler(name, objectives)
    if name == COST_MODEL:
        at_once = batch if objectives == 1 else min(batch, SEARCH.objective_weights_trials)
        ours = CostModelSampler(seed, space=space, batch=at_once, rankers=rankers)
        return SamplerChoice(name, ours, rankers=tuple(rankers))
    try:
        sampler = SAMPLERS.make(name, seed)
    except ImportError as error:
        missing = error.name or "a package"
        raise UsageError(f"sampler {name!r} needs {missing}", hint=_remedy(missing)) from None
    if not isinstance(sampler, BaseSampler):
        what = f"gives a value of type {type(sampler).__name__!r}, no Optuna sampler"
        raise broken(SAMPLERS.find(name), what)
    return SamplerChoice(name, sampler, bool(getattr(SAMPLERS.load(name), "ordinal", False)))


def check_sampler(name: str, objectives: int = 1) -> None:
    """Refuse an unknown or unsuitable sampler before any work is done.

    Raises:
        UsageError: No sampler of that name, or not for several objectives.
        PluginError: It is a plug-in's, which cannot be loaded.
    """
    several = bool(getattr(SAMPLERS.load(name), "several", True))
    if objectives > 1 and not several:
        raise UsageError(
            f"sampler {name!r} works on one objective", hint="take nsgaii, tpe or random"
        )


@dataclass(frozen=True, slots=True)
class _Optuna:
    """A sampler of Optuna's, as a plug-in would register it.

    Attributes:
        made: Of a seed.
        needs: The package without which it would fail at the first proposal only.
        ordinal: It wants choices as integers.
        several: It works on several objectives.
    """

    made: Callable[[int], BaseSampler]
    needs: str = "optuna"
    ordinal: bool = False
    several: bool = True

    def __call__(self, seed: int) -> BaseSampler:
        """Return the sampler; raises ImportError where a package is not installed."""
        importlib.import_module(self.needs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return self.made(seed)


def _remedy(missing: str) -> str:
    """Return how to install a package; torch is too large for an extra of ours."""
    if missing == "torch":
        return "'pip install torch' (large), or take cost-model"
    return "'pip install \"autoturbo[samplers]\"', or take cost-model"


class _BruteForce(optuna.samplers.BruteForceSampler):
    """Brute force by ask and tell: Optuna's would stop an optimisation loop that does not exist."""

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Do nothing: the caller knows the size of the space."""


random = _Optuna(optuna.samplers.RandomSampler)
tpe = _Optuna(  # constant_liar keeps the points of one batch apart
    lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
)
cmaes = _Optuna(
    lambda seed: optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False),
    "cmaes",
    ordinal=True,  # knows no categories
    several=False,
)
gp = _Optuna(lambda seed: optuna.samplers.GPSampler(seed=seed), "torch")
nsgaii = _Optuna(lambda seed: optuna.samplers.NSGAIISampler(seed=seed, population_size=32))
qmc = _Optuna(
    lambda seed: optuna.samplers.QMCSampler(
        seed=seed, scramble=True, warn_independent_sampling=False, warn_asynchronous_seeding=False
    ),
    "scipy",
    ordinal=True,  # categories would be drawn at random
)
grid = _Optuna(_BruteForce, several=False)


__all__: Sequence[str] = (
    "CostModelSampler",
    "SamplerChoice",
    "check_sampler",
    "make_sampler",
)
