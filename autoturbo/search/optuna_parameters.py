"""Parameters of any Optuna study as a space of levels. This module loads Optuna.

Categories are themselves. Whole numbers are themselves as long as there are few; all other numbers
are cut into ``float_levels`` parts of their range (of its logarithm where the study says so), and a
proposal is a number drawn from within a part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from autoturbo.search.constants import SEARCH
from autoturbo.search.encoding import Genes
from autoturbo.search.space import Dimension, Space
from autoturbo.search.surrogates.gaussian import Axes


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
