"""A sampler whose proposals are checked, and studies to use it in. This module loads Optuna."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.search.encoding import dimension_name
from autoturbo.search.space import Dimension, Space
from autoturbo.search.subgraphs import Block
from autoturbo.simulator.measurement import Failure, LowerBound, Measurement, Outcome
from autoturbo.testing.contract import ContractError


class WatchedSampler(BaseSampler):
    """A sampler that forwards to another one and checks its proposals.

    Optuna itself draws anew, without a word, where a sampler proposes what is out of range.

    Raises:
        ContractError: A value out of its range, or of a parameter that was not asked for.
    """

    def __init__(self, sampler: BaseSampler) -> None:
        self.sampler = sampler

    def reseed_rng(self) -> None:
        """Forward to the sampler."""
        self.sampler.reseed_rng()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Forward to the sampler."""
        return self.sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Forward to the sampler, and check the values."""
        params = self.sampler.sample_relative(study, trial, search_space)
        for name, value in params.items():
            if name not in search_space:
                raise ContractError(f"it proposes {name!r}, which was not asked for")
            _look_at(name, value, search_space[name])
        return params

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Forward to the sampler, and check the value."""
        value = self.sampler.sample_independent(study, trial, param_name, param_distribution)
        _look_at(param_name, value, param_distribution)
        return value

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Forward to the sampler."""
        self.sampler.before_trial(study, trial)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Forward to the sampler."""
        self.sampler.after_trial(study, trial, state, values)


def _look_at(name: str, value: Any, distribution: BaseDistribution) -> None:
    if not _lies_in(value, distribution):
        raise ContractError(f"it proposes {name}={value!r}, which is not in {distribution}")


def _lies_in(value: Any, distribution: BaseDistribution) -> bool:
    if isinstance(distribution, CategoricalDistribution):
        return any(value is c or value == c for c in distribution.choices)
    if not isinstance(distribution, FloatDistribution | IntDistribution):
        return False
    if not isinstance(value, int | float) or not distribution.low <= value <= distribution.high:
        return False
    steps = 0.0 if distribution.step is None else (value - distribution.low) / distribution.step
    return math.isclose(steps, round(steps), abs_tol=1e-6)


def mixed(*, floats: bool) -> dict[str, BaseDistribution]:
    """Return parameters of every kind; without ``floats`` only those of finitely many values."""
    parameters: dict[str, BaseDistribution] = {
        "kind": CategoricalDistribution(("a", None, True, 2.5)),
        "n": IntDistribution(0, 20, step=5),
        "large": IntDistribution(1, 4096, log=True),
        "grid": FloatDistribution(-1, 1, step=0.25),
    }
    if floats:
        parameters |= {"x": FloatDistribution(-1, 1), "rate": FloatDistribution(1e-6, 1, log=True)}
    return parameters


def categories(count: int = 4, choices: int = 5) -> dict[str, BaseDistribution]:
    """Return parameters of a plain study, like those of a search over knobs."""
    return {f"x{i}": CategoricalDistribution(tuple(range(choices))) for i in range(count)}


def bowl(params: Mapping[str, Any]) -> float:
    """Return a score that is lowest at 3 in every number; anything else counts as 0."""
    numbers = [v if isinstance(v, int | float) else 0.0 for v in params.values()]
    return sum((float(n) - 3.0) ** 2 for n in numbers)


def knob_space(*, large: bool = False) -> Space:
    """Return a space with a condition: a sub-graph's depth has no effect if it is the model's.

    Args:
        large: 1,728 forms of 1,296 points, instead of 36 of 27.
    """
    choices: dict[str, tuple[Any, ...]] = {"prefetch_depth": (2, 3), "scope": ("GB",)}
    block = Block(("layer",), choices if large else {"prefetch_depth": (2,)}, {})
    model: dict[str, tuple[Any, ...]] = {"prefetch_depth": (2, 3), "tile_subdivision": (2, 4)}
    if large:
        model |= {"binding": ("always",), "instance_multiplier": (2, 4, 8), "max_layers": (1, 2, 4)}
    else:
        model |= {"binding": ("always",)}
    names = [Dimension(name, (AUTO, *values)) for name, values in model.items()]
    names += [
        Dimension(dimension_name(block, field), (AUTO, *values))
        for field, values in block.choices.items()
    ]
    return Space(tuple(names), blocks=(block,))


def outcome_of(knobs: Knobs) -> Outcome:
    """Return the outcome of a candidate of :func:`knob_space`; some do not fit."""
    if knobs.prefetch_depth == 3 and knobs.tile_subdivision == 2:  # noqa: PLR2004
        return Failure("LB", "too full", 200, 100)
    values = [
        knobs.prefetch_depth,
        knobs.tile_subdivision,
        knobs.instance_multiplier,
        knobs.max_layers,
    ]
    figures = [1 if value == AUTO else int(value) for value in values]
    count = sum(len(override.as_dict()) for override in knobs.overrides)
    seconds = 1e-3 * (1 + abs(figures[0] - 2) + figures[2] / figures[1] + 0.1 * count)
    seconds *= 1.0 + 0.01 * figures[3] + (0.05 if knobs.binding == "always" else 0.0)
    bound = LowerBound(1e-6, 1e-7, 1e-7)
    return Measurement(seconds, 8, 1000 * figures[1], 0, 0.5, 0.1, 1, 1, 1, bound)
