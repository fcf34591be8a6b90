"""A sampler: the best setting so far with a few choices drawn anew."""

from __future__ import annotations

from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState


class HillClimb(BaseSampler):
    """An Optuna sampler; it works in any study of one objective.

    A proposal follows from the seed, the trial's number and the best finished trial, so that the
    same study goes the same way whatever the order in which results arrive.

    Args:
        seed: Of all chance.
    """

    several = False
    """AutoTurbo refuses it for several objectives, before anything is measured."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = RandomSampler(seed)
        self._common = IntersectionSearchSpace()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the parameters that all finished trials have."""
        del trial
        if len(study.directions) > 1:
            raise ValueError("hillclimb works on one objective")
        found = self._common.calculate(study)
        return {name: d for name, d in found.items() if not d.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the best trial's parameters, about two of them drawn anew."""
        best = _best(study)
        if best is None or not search_space:
            return {}
        rng = np.random.default_rng([self._seed, trial.number])
        drawn = rng.random(len(search_space)) < 2 / len(search_space)
        drawn[rng.integers(len(search_space))] = True
        return {
            name: self.sample_independent(study, trial, name, distribution)
            if anew
            else best.params[name]
            for (name, distribution), anew in zip(search_space.items(), drawn, strict=True)
        }

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw a value at random."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)


def _best(study: Study) -> FrozenTrial | None:
    """Return the best trial, of equals the earliest; None where no trial has a finite value."""
    sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    found = [(sign * trial.values[0], trial.number, trial) for trial in done]
    measured = [one for one in found if np.isfinite(one[0])]
    return min(measured)[2] if measured else None
