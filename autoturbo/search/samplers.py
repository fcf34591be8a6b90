"""Samplers by name: ours, and Optuna's own. This module loads Optuna."""

from __future__ import annotations

import difflib
import importlib
import math
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from autoturbo.errors import UsageError
from autoturbo.search.conditions import Genes
from autoturbo.search.evolution import Evolution, Tried
from autoturbo.search.names import SAMPLERS
from autoturbo.search.space import Dimension, Space

if TYPE_CHECKING:
    from autoturbo.cost_models.advisor import KernelAdvisor


class CostModelSampler(BaseSampler):
    """Evolution guided by a cost model, as an Optuna sampler.

    Works in any single-objective study: categorical parameters are sampled together, by trees
    trained on the study's trials; other parameters independently at random. Failed and pruned
    trials teach where not to look. In a tuning run it knows the space beforehand, proposes whole
    batches and ranks their best by kernels.

    A proposal follows from the seed, the trial's number and the finished trials: the same study
    goes the same way, however many workers there are between asking and telling.

    Args:
        seed: of all chance; None draws one.
        space: of the knobs; None infers it from the study.
        batch: trials asked before the next is told; 1 in a plain study.
        advisor: the kernel model of a tuning run.
        evolution: how much is looked at.
    """

    def __init__(
        self,
        seed: int | None = None,
        *,
        space: Space | None = None,
        batch: int = 1,
        advisor: KernelAdvisor | None = None,
        evolution: Evolution | None = None,
    ) -> None:
        self._seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self._space = space
        self._batch = batch
        self._advisor = advisor
        self._evolution = evolution or Evolution()
        self._inferred = IntersectionSearchSpace()
        self._queue: list[tuple[int, ...]] = []
        self._handed: dict[int, tuple[int, ...]] = {}
        self._lock = threading.Lock()
        self._independent = optuna.samplers.RandomSampler(self._seed)

    def reseed_rng(self) -> None:
        """Go another way than the sampler this one was copied from."""
        self._seed = int(np.random.SeedSequence().generate_state(1)[0])
        self._independent.reseed_rng()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The categorical parameters that all finished trials have, or those of the space."""
        del trial
        if self._space is not None:
            return self._space.distributions()
        found = self._inferred.calculate(study)
        categorical = {n: d for n, d in found.items() if isinstance(d, CategoricalDistribution)}
        return {n: d for n, d in categorical.items() if not d.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The next of the batch; a new batch where there is none.

        Raises:
            ValueError: the study has several objectives.
        """
        if len(study.directions) > 1:
            raise ValueError("CostModelSampler works on one objective")
        if not search_space:
            return {}
        space = self._space or _space_of(search_space)
        if self._batch == 1:
            return self._one(study, trial, space)
        if not self._queue:
            self._queue = self._propose(study, trial, space)
        return space.params_of(self._queue.pop(0)) if self._queue else {}

    def _one(self, study: Study, trial: FrozenTrial, space: Space) -> dict[str, Any]:
        """A proposal for one trial; several threads may ask at once.

        A trial's parameters are in the study a little after they were proposed; until then nobody
        else may be given them.
        """
        with self._lock:
            points = self._propose(study, trial, space)
            if not points:
                return {}
            self._handed[trial.number] = points[0]
            return space.params_of(points[0])

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the lock: other processes have their own."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """With a lock of its own."""
        vars(self).update(state, _lock=threading.Lock())

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """At random."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def _propose(self, study: Study, trial: FrozenTrial, space: Space) -> list[tuple[int, ...]]:
        rng = np.random.default_rng([self._seed, trial.number])
        history, taken = _history(study, space)
        taken |= set(self._handed.values())
        rerank = None if self._advisor is None else self._rank
        return self._evolution.propose(space, rng, history, taken, count=self._batch, rerank=rerank)

    def _rank(self, genes: Genes) -> NDArray[np.float64] | None:
        if self._advisor is None or self._space is None:
            return None
        return self._advisor.rank([self._space.knobs_of(point) for point in genes])


def _space_of(search_space: dict[str, BaseDistribution]) -> Space:
    dimensions = [
        Dimension(name, tuple(distribution.choices))
        for name, distribution in search_space.items()
        if isinstance(distribution, CategoricalDistribution)
    ]
    return Space(tuple(dimensions))


def _history(study: Study, space: Space) -> tuple[list[Tried], set[tuple[int, ...]]]:
    """Finished trials as points, and the points of trials that are still running."""
    sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
    history: list[Tried] = []
    running: set[tuple[int, ...]] = set()
    for trial in study.get_trials(deepcopy=False):
        genes = space.genes_of(trial.params)
        if genes is None:
            continue
        if trial.state == TrialState.RUNNING:
            running.add(genes)
        elif trial.state.is_finished():
            history.append(Tried(genes, _score(trial, sign)))
    return history, running


def _score(trial: FrozenTrial, sign: float) -> float | None:
    if trial.state != TrialState.COMPLETE or trial.value is None or not math.isfinite(trial.value):
        return None
    return sign * trial.value


@dataclass(frozen=True, slots=True)
class SamplerChoice:
    """A sampler made for a run.

    Attributes:
        name: as it was asked for.
        sampler: ready for a study.
        ordinal: it wants choices as integers (:meth:`Space.distributions`).
        advisor: learns kernels beside the study; ours only.
    """

    name: str
    sampler: BaseSampler
    ordinal: bool = False
    advisor: KernelAdvisor | None = None


def make_sampler(
    name: str,
    seed: int,
    space: Space | None = None,
    *,
    batch: int = 1,
    advisor: KernelAdvisor | None = None,
    objectives: int = 1,
) -> SamplerChoice:
    """A sampler by name.

    Args:
        name: one of :data:`autoturbo.search.names.SAMPLERS`.
        seed: of all chance.
        space: of the knobs.
        batch: trials asked before the next is told.
        advisor: the kernel model, for ours.
        objectives: how many; ours works on one and hands over to NSGA-II.

    Raises:
        UsageError: no sampler of that name, or a package that it needs is not installed.
    """
    check_sampler(name, objectives)
    if name == "cost-model" and objectives == 1:
        ours = CostModelSampler(seed, space=space, batch=batch, advisor=advisor)
        return SamplerChoice(name, ours, advisor=advisor)
    make, ordinal = _OPTUNA["nsgaii" if name == "cost-model" else name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        try:
            sampler = make(seed)
        except ImportError as error:
            missing = error.name or "a package"
            hint = "install what Optuna's documentation names for it, or take cost-model"
            raise UsageError(f"sampler {name!r} needs {missing}", hint=hint) from None
    return SamplerChoice(name, sampler, ordinal)


def check_sampler(name: str, objectives: int = 1) -> None:
    """Refuse what is not there before any work is done.

    Raises:
        UsageError: no sampler of that name, or not for several objectives.
    """
    if name not in SAMPLERS:
        close = difflib.get_close_matches(name, SAMPLERS, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"one of {', '.join(SAMPLERS)}"
        raise UsageError(f"no sampler is called {name!r}", hint=hint)
    if objectives > 1 and name in ("cmaes", "grid"):
        raise UsageError(
            f"sampler {name!r} works on one objective", hint="take nsgaii, tpe or random"
        )


class _EveryPoint(optuna.samplers.BruteForceSampler):
    """Brute force between asking and telling: Optuna's would stop a loop that there is not."""

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Nothing: whoever asks knows the size of the space."""


def _tpe(seed: int) -> BaseSampler:
    # constant_liar keeps the points of one batch apart
    return optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)


def _cmaes(seed: int) -> BaseSampler:
    importlib.import_module("cmaes")  # Optuna would look for it at the first proposal only
    return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)


def _gp(seed: int) -> BaseSampler:
    importlib.import_module("torch")  # likewise
    return optuna.samplers.GPSampler(seed=seed)


def _qmc(seed: int) -> BaseSampler:
    importlib.import_module("scipy")  # likewise
    return optuna.samplers.QMCSampler(
        seed=seed, scramble=True, warn_independent_sampling=False, warn_asynchronous_seeding=False
    )


_OPTUNA: dict[str, tuple[Callable[[int], BaseSampler], bool]] = {
    "random": (optuna.samplers.RandomSampler, False),
    "tpe": (_tpe, False),
    "cmaes": (_cmaes, True),  # knows no categories
    "gp": (_gp, False),
    "nsgaii": (lambda seed: optuna.samplers.NSGAIISampler(seed=seed, population_size=32), False),
    "qmc": (_qmc, True),  # categories would be drawn at random
    "grid": (_EveryPoint, False),
}

__all__: Sequence[str] = (
    "CostModelSampler",
    "SamplerChoice",
    "check_sampler",
    "make_sampler",
)
