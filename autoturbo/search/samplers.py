"""Samplers by name: ours, and Optuna's own. This module loads Optuna."""

from __future__ import annotations

import importlib
import logging
import math
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from autoturbo.cost_models.predictions import Prediction
from autoturbo.errors import UsageError
from autoturbo.extras import how_to_install
from autoturbo.registry import COST_MODEL, SAMPLERS, broken
from autoturbo.search.constants import SEARCH, Draws, SearchConstants
from autoturbo.search.encoding import Genes
from autoturbo.search.evolution import Advice, propose
from autoturbo.search.optuna_parameters import OptunaParameters
from autoturbo.search.optuna_trials import (
    common_parameters,
    feasible_first,
    scores_of,
    violation_of,
    weighed,
    without_nonsense,
)
from autoturbo.search.space import Space
from autoturbo.search.surrogates.modelled import ModelledProposer, is_turn
from autoturbo.search.surrogates.surrogate import ScoredCandidate

if TYPE_CHECKING:
    from autoturbo.cost_models.ranker import Ranker
    from autoturbo.schedule.work import Floats

LOG = logging.getLogger("autoturbo")

_HANDED_OVER = (
    "study %r: %s; CostModelSampler models trials that all have the same parameters and ranges, so "
    "Optuna's TPESampler takes over"
)

_QUIETING = threading.Lock()
"""Held while warnings are off, which is for all threads."""

_DONE = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


Told = tuple[tuple[int, ...], Sequence[float] | None]
"""A candidate and the values of its objectives; None for one that failed."""

Constraints = Callable[[FrozenTrial], Sequence[float]]
"""The constraints of a trial that has ended; above 0 one is broken."""


class CostModelSampler(BaseSampler):
    """Evolution guided by a cost model, as an Optuna sampler.

    It is for studies whose trials all have the same parameters and ranges. These are sampled
    together, by trees trained on the study's trials (numbers in levels,
    :mod:`autoturbo.search.optuna_parameters`) and, for one objective, by a Gaussian process in
    turn. Failed and pruned trials teach where not to look, and so do values far beyond all others.
    Once completed trials differ in their parameters, or often in their ranges, it says so once and
    Optuna's TPESampler goes on in its place, with a seed that follows from this one's.

    Several objectives are weighed anew for each proposal, which covers a Pareto front. In a tuning
    run it knows the space beforehand, proposes whole batches and ranks their best by kernels.

    A proposal follows from the seed, the trial's number and the finished trials: the same study
    goes the same way, however many workers there are between asking and telling.

    Args:
        seed: Of all chance; None draws one.
        space: Of the knobs; None infers it from the study.
        batch: Trials asked before the next is told; 1 in a plain study.
        rankers: Kernel models of a tuning run, one for each objective.
        constraints_func: As Optuna's samplers take it: of a trial that has ended, numbers of which
            one above 0 means that a constraint is broken. Feasible trials are preferred, and among
            others those that break the constraints less. ``Trial.set_constraint`` counts likewise.
        constants: Of what it proposes by.
    """

    def __init__(
        self,
        seed: int | None = None,
        *,
        space: Space | None = None,
        batch: int = 1,
        rankers: Sequence[Ranker] = (),
        constraints_func: Constraints | None = None,
        constants: SearchConstants = SEARCH,
    ) -> None:
        self._seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self._space = space
        self._batch = batch
        self._rankers = tuple(rankers)
        self._constraints_func = constraints_func
        self._constants = constants
        self._begin()

    def _begin(self) -> None:
        """Begin without anything of any study."""
        self._lock = threading.RLock()
        self._studies: weakref.WeakKeyDictionary[BaseStorage, dict[int, _StudyState]] = (
            weakref.WeakKeyDictionary()
        )

    def reseed_rng(self) -> None:
        """Draw a new seed, so that a copy does not repeat the original's proposals."""
        self._seed = int(np.random.SeedSequence().generate_state(1)[0])

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy in another process needs: it sees what studies hold by itself."""
        return {n: own for n, own in vars(self).items() if n not in ("_lock", "_studies")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state, without any study's."""
        vars(self).update(state)
        self._begin()

    def _state(self, study: Study) -> _StudyState:
        """Return what is kept of a study, which may come as several objects."""
        storage, number = study._storage, study._study_id  # noqa: SLF001  nothing else tells them apart
        with self._lock:
            return self._studies.setdefault(storage, {}).setdefault(number, _StudyState())

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the parameters that all trials have, or those of the space."""
        if self._space is not None:
            return self._space.distributions()
        completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        common = common_parameters(completed)
        if not common.obstacle:
            return common.distributions
        state = self._state(study)
        with self._lock:
            tpe = state.successors[trial.number] = self._tpe(trial)
            if not state.warned:
                state.warned = True
                LOG.warning(_HANDED_OVER, study.study_name, common.obstacle)
        return tpe.infer_relative_search_space(study, trial)

    def _tpe(self, trial: FrozenTrial) -> TPESampler:
        """Return Optuna's sampler for a trial; its chance follows from seed and number alone.

        Parameters that the same trials have are sampled together. It is quiet about what is new in
        it and what is old.
        """
        seed, limits = _seed_of(self._seed, trial), self._constraints_func
        with _QUIETING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return TPESampler(seed=seed, multivariate=True, group=True, constraints_func=limits)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the next proposal of the round; a new round is proposed where none is left."""
        state = self._state(study)
        successor = state.successors.get(trial.number)
        if successor is not None:
            return successor.sample_relative(study, trial, search_space)
        if not search_space:
            return {}
        levels = self._constants.plain_studies.float_levels
        space = OptunaParameters(search_space, levels) if self._space is None else self._space
        with self._lock:
            if isinstance(space, OptunaParameters) or self._batch == 1:
                return self._one(study, state, trial, space)
            if not state.queue:
                state.queue = self._propose(study, state, trial, space)
            return space.params_of(state.queue.pop(0)) if state.queue else {}

    def _one(
        self, study: Study, state: _StudyState, trial: FrozenTrial, space: Space | OptunaParameters
    ) -> dict[str, Any]:
        """Return a proposal for one trial; several threads may ask at once.

        A trial's parameters are in the study a little after they were proposed; until then nobody
        else may be given them.
        """
        points = self._propose(study, state, trial, space)
        if not points:
            points = [_any_point(space, self._rng(trial, 2), self._constants.draws)]
        params = self._params(space, points[0], trial)
        state.handed[trial.number] = params
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

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return a value of a parameter that not all trials have: at random, or Optuna's."""
        state = self._state(study)
        with self._lock:
            sampler = state.successors.get(trial.number) or state.random.setdefault(
                trial.number, RandomSampler(_seed_of(self._seed, trial))
            )
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Keep the constraints of a trial that has ended, where Optuna's samplers keep theirs."""
        if self._constraints_func is not None:
            self._tpe(trial).after_trial(study, trial, state, values)
        with self._lock:
            self._state(study).forget({trial.number})

    def _propose(
        self, study: Study, state: _StudyState, trial: FrozenTrial, params: Space | OptunaParameters
    ) -> list[tuple[int, ...]]:
        trials = _trials_of(study, params)
        state.forget({own.number for own in study.get_trials(deepcopy=False, states=_DONE)})
        handed = [params.genes_of(own) for own in state.handed.values()]
        taken = trials.running.union(genes for genes in handed if genes is not None)
        rng, weights = self._chance(trial.number, study.directions)
        if isinstance(params, Space):
            history = self._history(params, trials, study.directions, weights)
            return self._round(params, rng, history, taken, weights)
        values = without_nonsense([own for _, own in trials.told], study.directions)
        scores = scores_of(values, study.directions, weights)
        history = _scored(trials.told, feasible_first(scores, trials.violations))
        measured = sum(own.score is not None for own in history)
        constants = self._constants
        trees, process = constants.choice_model.trials, constants.plain_studies.process_trials
        if weights is None and is_turn(measured, trees, process):
            proposer = state.proposer(params, self._seed, constants)
            point = proposer.propose(trial.number, history, taken)
            if point is not None:
                return [point]
        # of a plain study's parameters it is not known that small ones are the better ones
        return propose(
            params.space, rng, history, taken, count=1, shuffled=True, constants=constants
        )

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
        rng, weights = self._chance(number, directions)
        trials = _Trials(finished, taken, [0.0] * len(finished))
        history = self._history(self._space, trials, directions, weights)
        return self._round(self._space, rng, history, taken, weights)

    def _chance(
        self, number: int, directions: Sequence[StudyDirection]
    ) -> tuple[np.random.Generator, Floats | None]:
        """Return the chance of a proposal, and weights of several objectives drawn from it."""
        rng = np.random.default_rng([self._seed, number])
        several = len(directions) > 1
        return rng, rng.dirichlet(np.ones(len(directions))) if several else None

    def _history(
        self,
        space: Space,
        trials: _Trials,
        directions: Sequence[StudyDirection],
        weights: Floats | None,
    ) -> list[ScoredCandidate]:
        """Return trials with their scores, less of their noise where they have any."""
        scores = scores_of([values for _, values in trials.told], directions, weights)
        scores = feasible_first(scores, trials.violations)
        at = [index for index, score in enumerate(scores) if score is not None]
        if len(self._rankers) == 1 and at:
            points = np.asarray([trials.told[index][0] for index in at], np.int64)
            smoothed = self._rankers[0].smoothed(space.settings(points))
            if smoothed is not None:
                for index, seconds in zip(at, smoothed.tolist(), strict=True):
                    scores[index] = seconds
        return _scored(trials.told, scores)

    def _round(
        self,
        space: Space,
        rng: np.random.Generator,
        history: Sequence[ScoredCandidate],
        taken: set[tuple[int, ...]],
        weights: Floats | None,
    ) -> list[tuple[int, ...]]:
        """Return a round of proposals in a space that is known beforehand."""
        advice = _advice(self._rankers, space, weights) if self._rankers else None
        return propose(
            space, rng, history, taken, count=self._batch, advice=advice, constants=self._constants
        )


class _Trials(NamedTuple):
    """The trials of a study.

    Attributes:
        told: Those that have ended.
        running: Encodings of the others.
        violations: What constraints of the ended ones are broken by; 0 where none is.
    """

    told: Sequence[Told]
    running: set[tuple[int, ...]]
    violations: Sequence[float]


@dataclass
class _StudyState:
    """What is kept of one study; but for warnings it saves time, or covers a moment.

    Attributes:
        queue: Proposals of the round that are left.
        handed: Parameters of trials that may not be in the study yet, by number.
        random: What draws the parameters of a running trial that no other has, by number.
        successors: Optuna's sampler of each running trial that is not modelled, by number.
        warned: Whether it was said that there are such.
    """

    queue: list[tuple[int, ...]] = field(default_factory=list)
    handed: dict[int, dict[str, Any]] = field(default_factory=dict)
    random: dict[int, RandomSampler] = field(default_factory=dict)
    successors: dict[int, TPESampler] = field(default_factory=dict)
    warned: bool = False
    _modelled: tuple[OptunaParameters, ModelledProposer] | None = None

    def forget(self, ended: set[int]) -> None:
        """Drop what is kept of trials that have ended."""
        kept: tuple[dict[int, Any], ...] = (self.handed, self.random, self.successors)
        for own in kept:
            for number in ended.intersection(own):
                del own[number]

    def proposer(
        self, params: OptunaParameters, seed: int, constants: SearchConstants
    ) -> ModelledProposer:
        """Return what proposes by a Gaussian process, kept as long as parameters are the same."""
        known = self._modelled
        if known is None or known[0] != params or known[1].seed != seed:
            own = constants.choice_model, constants.draws
            known = params, ModelledProposer(params.space, params.axes, seed, *own)
            self._modelled = known
        return known[1]


def _seed_of(seed: int, trial: FrozenTrial) -> int:
    """Return the seed of a sampler for one trial alone."""
    return int(np.random.SeedSequence([seed, trial.number]).generate_state(1)[0])


def _scored(told: Sequence[Told], scores: Sequence[float | None]) -> list[ScoredCandidate]:
    """Return trials with their scores."""
    pairs = zip(told, scores, strict=True)
    return [ScoredCandidate(genes, score) for (genes, _), score in pairs]


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
        return weighed(np.column_stack([own - r.least for r, own in pairs]), weights)

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


def _any_point(
    params: Space | OptunaParameters, rng: np.random.Generator, draws: Draws
) -> tuple[int, ...]:
    """Return a random candidate once the space is exhausted."""
    space = params if isinstance(params, Space) else params.space
    return tuple(space.random(rng, 1, draws)[0].tolist())


def _trials_of(study: Study, space: Space | OptunaParameters) -> _Trials:
    """Return the trials that have a place in a space."""
    told, running, violations = list[Told](), set[tuple[int, ...]](), list[float]()
    for trial in study.get_trials(deepcopy=False):
        if trial.state == TrialState.RUNNING:
            running.update(filter(None, [space.genes_of(trial.params)]))
            continue
        place = space.genes_of if isinstance(space, Space) else space.nearest_of
        genes = place(trial.params)
        if genes is not None and trial.state.is_finished():
            told.append((genes, trial.values if _is_measured(trial) else None))
            violations.append(violation_of(trial))
    return _Trials(told, running, violations)


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
    constants: SearchConstants = SEARCH,
) -> SamplerChoice:
    """Return a sampler by name.

    Args:
        name: One of :func:`autoturbo.registry.SAMPLERS`.
        seed: Of all chance.
        space: Of the knobs.
        batch: Trials asked before the next is told.
        rankers: Kernel models for ours, one for each objective.
        objectives: How many; with several, ours asks for ``objective_weights_trials`` at once.
        constants: Of what ours proposes by.

    Raises:
        UsageError: No sampler of that name, or a package that it needs is not installed.
        PluginError: It is a plug-in's, which cannot be had.
    """  # noqa: DOC501  broken() makes the error
    check_sampler(name, objectives)
    if name == COST_MODEL:
        few = constants.rounds.objective_weights_trials
        ours = CostModelSampler(
            seed, space=space, batch=batch if objectives == 1 else min(batch, few),
            rankers=rankers, constants=constants,
        )  # fmt: skip
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
    return f"{how_to_install('samplers')}; or take cost-model"


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
