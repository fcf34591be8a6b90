"""Samplers by name: ours, and Optuna's own. This module loads Optuna."""

from __future__ import annotations

import importlib
import math
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from autoturbo.errors import UsageError
from autoturbo.registry import COST_MODEL, SAMPLERS, broken
from autoturbo.search.constants import SEARCH
from autoturbo.search.encoding import Genes
from autoturbo.search.evolution import Advice, propose
from autoturbo.search.space import Dimension, Space
from autoturbo.search.surrogates.gaussian import Axes
from autoturbo.search.surrogates.modelled import ModelledProposer, is_turn
from autoturbo.search.surrogates.surrogate import ScoredCandidate

if TYPE_CHECKING:
    from autoturbo.cost_models.ranker import Ranker

_DONE = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


Told = tuple[tuple[int, ...], Sequence[float] | None]
"""A candidate and the values of its objectives; None for one that failed."""


class CostModelSampler(BaseSampler):
    """Evolution guided by a cost model, as an Optuna sampler.

    Works in any study: parameters that all trials have are sampled together, by trees
    trained on the study's trials (numbers in levels, :mod:`autoturbo.search.samplers`) and, for
    one objective, by a Gaussian process in turn; parameters that only some trials have
    independently, at random. Failed and pruned trials teach where not to look.
    Several objectives are weighed anew for each proposal, which covers a Pareto front. In a tuning
    run it knows the space beforehand, proposes whole batches and ranks their best by kernels.

    A proposal follows from the seed, the trial's number and the finished trials: the same study
    goes the same way, however many workers there are between asking and telling.

    Args:
        seed: Of all chance; None draws one.
        space: Of the knobs; None infers it from the study.
        batch: Trials asked before the next is told; 1 in a plain study.
        ranker: The kernel model of a tuning run.
    """

    def __init__(
        self,
        seed: int | None = None,
        *,
        space: Space | None = None,
        batch: int = 1,
        ranker: Ranker | None = None,
    ) -> None:
        self._seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self._space = space
        self._batch = batch
        self._ranker = ranker
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
        scores = _scores([values for _, values in finished], directions, rng)
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
        advice = None if self._ranker is None else _advice(self._ranker, params)
        return propose(params, rng, history, taken, count=self._batch, advice=advice)

    def _proposer(self, params: OptunaParameters) -> ModelledProposer:
        """Return what proposes by a Gaussian process, kept as long as parameters are the same."""
        if self._modelled is None or self._modelled[0] != params:
            self._modelled = params, ModelledProposer(params.space, params.axes, self._seed)
        return self._modelled[1]


def _advice(ranker: Ranker, space: Space) -> Advice:
    """Return the predictions of the kernel model for candidates of a space."""
    return Advice(
        lambda genes: ranker.rank(space.settings(genes)),
        lambda genes: ranker.look(space.settings(genes)),
    )


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
    rng: np.random.Generator,
) -> list[float | None]:
    """Return the scores of trials, lower is better; None for those that failed."""
    signs = np.asarray([-1.0 if d == StudyDirection.MAXIMIZE else 1.0 for d in directions])
    values = [None if figures is None else signs * figures for figures in told]
    if len(directions) == 1:
        return [None if v is None else float(v[0]) for v in values]
    weighed = iter(_weighed(np.asarray([v for v in values if v is not None]), rng).tolist())
    return [None if v is None else next(weighed) for v in values]


def _weighed(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return several objectives ``(trials, objectives)`` as one, with weights drawn at random.

    ParEGO's augmented Chebyshev norm (Knowles, 2006, equation 2, with its 0.05), on ranks in place
    of values, so that no outlier makes all others look the same. Every candidate of a Pareto front
    is the best one for some weights, on concave parts of the front too.
    """
    if not len(values):
        return np.zeros(0)
    ranks = np.argsort(np.argsort(values, axis=0, kind="stable"), axis=0, kind="stable")
    shares = rng.dirichlet(np.ones(values.shape[1])) * (ranks + 1) / len(values)
    weighed: NDArray[np.float64] = shares.max(axis=1) + 0.05 * shares.sum(axis=1)
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
        ranker: Learns kernels beside the study; ours only.
    """

    name: str
    sampler: BaseSampler
    ordinal: bool = False
    ranker: Ranker | None = None


def make_sampler(
    name: str,
    seed: int,
    space: Space | None = None,
    *,
    batch: int = 1,
    ranker: Ranker | None = None,
    objectives: int = 1,
) -> SamplerChoice:
    """Return a sampler by name.

    Args:
        name: One of :func:`autoturbo.registry.SAMPLERS`.
        seed: Of all chance.
        space: Of the knobs.
        batch: Trials asked before the next is told.
        ranker: The kernel model, for ours.
        objectives: How many; with several, ours asks for ``objective_weights_trials`` at once and
            takes no advice, which is on latency alone.

    Raises:
        UsageError: No sampler of that name, or a package that it needs is not installed.
        PluginError: It is a plug-in's, which cannot be had.
    """  # noqa: DOC501  broken() makes the error
    check_sampler(name, objectives)
    if name == COST_MODEL:
        ranker = ranker if objectives == 1 else None
        at_once = batch if objectives == 1 else min(batch, SEARCH.objective_weights_trials)
        ours = CostModelSampler(seed, space=space, batch=at_once, ranker=ranker)
        return SamplerChoice(name, ours, ranker=ranker)
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


# Parameters of any Optuna study as a space of levels.
#
# Categories are themselves. Whole numbers are themselves as long as there are few; all other
# numbers are cut into ``float_levels`` parts of their range (of its logarithm where the study says
# so), and a proposal is a number drawn from within a part. This module loads Optuna.


@dataclass(frozen=True)
class _OrderedSpace(Space):
    """A space with ordered dimensions, in which mutants mostly stay near.

    Attributes:
        ordered: Whether each dimension has.
    """

    ordered: tuple[bool, ...] = ()

    def mutate(self, rng: np.random.Generator, genes: Genes, rate: float = 0.0) -> Genes:
        """Return mutants, whose ordered choices move by steps with a uniform logarithm."""
        moved = super().mutate(rng, genes, rate)
        step = np.maximum(self.widths ** rng.random(genes.shape), 1).astype(np.int64)
        near = genes + step * rng.choice((-1, 1), genes.shape)
        inside = (near >= 0) & (near < self.widths)
        return np.where((moved != genes) & inside & np.asarray(self.ordered), near, moved)


@dataclass(frozen=True)
class OptunaParameters:
    """The parameters of a study.

    Attributes:
        distributions: By name; a parameter with one value alone is none.
    """

    distributions: Mapping[str, BaseDistribution]

    @cached_property
    def space(self) -> Space:
        """Return a space with a dimension for each parameter: its categories, or its levels."""
        dimensions = tuple(Dimension(n, _choices(d)) for n, d in self.distributions.items())
        numbers = [not isinstance(d, CategoricalDistribution) for d in self.distributions.values()]
        return _OrderedSpace(dimensions, ordered=tuple(numbers))

    @cached_property
    def axes(self) -> Axes:
        """Return how near levels are to each other."""
        values = [_numbers(distribution) for distribution in self.distributions.values()]
        return Axes.along(values, self.space.widths.tolist())

    def genes_of(self, params: Mapping[str, Any]) -> tuple[int, ...] | None:
        """Return the levels of parameters; None where one is missing or out of its range."""
        levels = [
            _level(distribution, params[name]) if name in params else None
            for name, distribution in self.distributions.items()
        ]
        return None if None in levels else tuple(level for level in levels if level is not None)

    def params_of(self, genes: tuple[int, ...], rng: np.random.Generator) -> dict[str, Any]:
        """Return parameters drawn from within levels."""
        pairs = zip(self.distributions.items(), genes, strict=True)
        return {name: _value(distribution, gene, rng) for (name, distribution), gene in pairs}


def _choices(distribution: BaseDistribution) -> tuple[Any, ...]:
    if isinstance(distribution, CategoricalDistribution):
        return tuple(distribution.choices)
    return tuple(range(_count(distribution)))


def _numbers(distribution: BaseDistribution) -> Sequence[float] | None:
    """Return the numbers that levels stand for; None where some category is none."""
    if isinstance(distribution, CategoricalDistribution):
        numbers = [c for c in distribution.choices if isinstance(c, int | float)]
        known = [c for c in numbers if not isinstance(c, bool) and math.isfinite(c)]
        return known if len(known) == len(distribution.choices) else None
    low, _, step = _range(distribution)
    steps = _steps(distribution)
    if step is None or steps is None or steps > SEARCH.float_levels:
        return [level + 0.5 for level in range(SEARCH.float_levels)]
    return [low + level * step for level in range(steps)]


def _count(distribution: BaseDistribution) -> int:
    """Return the number of levels of a range of numbers."""
    steps = _steps(distribution)
    return SEARCH.float_levels if steps is None else min(steps, SEARCH.float_levels)


def _steps(distribution: BaseDistribution) -> int | None:
    """Return the number of values of a parameter; None where there are infinitely many."""
    low, high, step = _range(distribution)
    return None if step is None else math.floor((high - low) / step + 1e-9) + 1


def _range(distribution: BaseDistribution) -> tuple[float, float, float | None]:
    if not isinstance(distribution, FloatDistribution | IntDistribution):
        raise TypeError(f"a range of numbers is needed, not {distribution!r}")
    return distribution.low, distribution.high, distribution.step


def _level(distribution: BaseDistribution, value: Any) -> int | None:
    """Return the level that a value lies in; None where it is out of the range."""
    if isinstance(distribution, CategoricalDistribution):
        return next(
            (i for i, c in enumerate(distribution.choices) if c == value and _alike(c, value)), None
        )
    low, high, step = _range(distribution)
    if not isinstance(value, int | float) or not low <= value <= high:
        return None
    steps = _steps(distribution)
    if step is not None and steps is not None and steps <= SEARCH.float_levels:
        return round((value - low) / step)
    lower, upper = _ends(distribution)
    share = (_scale(distribution, value) - lower) / (upper - lower)
    return min(int(share * SEARCH.float_levels), SEARCH.float_levels - 1)


def _value(distribution: BaseDistribution, level: int, rng: np.random.Generator) -> Any:
    """Return a value drawn from within a level."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[level]
    low, high, step = _range(distribution)
    steps = _steps(distribution)
    if step is not None and steps is not None and steps <= SEARCH.float_levels:
        value = low + level * step
    else:
        lower, upper = _ends(distribution)
        value = lower + (upper - lower) * (level + rng.random()) / SEARCH.float_levels
        value = math.exp(value) if _is_log(distribution) else value
        value = value if step is None else low + round((value - low) / step) * step
    value = min(max(value, low), high)
    return round(value) if isinstance(distribution, IntDistribution) else float(value)


def _alike(one: object, other: object) -> bool:
    """Return whether both or neither are booleans: ``True`` is no ``1``, though they are equal."""
    return isinstance(one, bool) == isinstance(other, bool)


def _is_log(distribution: BaseDistribution) -> bool:
    return bool(getattr(distribution, "log", False))


def _ends(distribution: BaseDistribution) -> tuple[float, float]:
    """Return the ends of a range on the scale of its levels."""
    low, high, _ = _range(distribution)
    return _scale(distribution, low), _scale(distribution, high)


def _scale(distribution: BaseDistribution, value: float) -> float:
    return math.log(value) if _is_log(distribution) else value
