"""Parameters of any Optuna study as a space of levels. This module loads Optuna.

Categories are themselves. Whole numbers are themselves as long as there are few; all other numbers
are cut into equal parts of their range (of its logarithm where the study says so), and a
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

from autoturbo.search.constants import SEARCH, Draws
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

    def mutate(
        self,
        rng: np.random.Generator,
        genes: Genes,
        rate: float = 0.0,
        draws: Draws = SEARCH.draws,
    ) -> Genes:
        """Return mutants, whose ordered choices move by steps with a uniform logarithm."""
        moved = super().mutate(rng, genes, rate, draws)
        step = np.maximum(self.widths ** rng.random(genes.shape), 1).astype(np.int64)
        near = genes + step * rng.choice((-1, 1), genes.shape)
        inside = (near >= 0) & (near < self.widths)
        return np.where((moved != genes) & inside & np.asarray(self.ordered), near, moved)


@dataclass(frozen=True)
class OptunaParameters:
    """The parameters of a study.

    Attributes:
        distributions: By name; a parameter with one value alone is none.
        levels: Parts into which a range of many numbers is cut.
    """

    distributions: Mapping[str, BaseDistribution]
    levels: int = SEARCH.plain_studies.float_levels

    @cached_property
    def space(self) -> Space:
        """Return a space with a dimension for each parameter: its categories, or its levels."""
        dimensions = tuple(
            Dimension(n, _choices(d, self.levels)) for n, d in self.distributions.items()
        )
        numbers = [not isinstance(d, CategoricalDistribution) for d in self.distributions.values()]
        return _OrderedSpace(dimensions, ordered=tuple(numbers))

    @cached_property
    def axes(self) -> Axes:
        """Return how near levels are to each other."""
        values = [_numbers(own, self.levels) for own in self.distributions.values()]
        return Axes.along(values, self.space.widths.tolist())

    def genes_of(self, params: Mapping[str, Any]) -> tuple[int, ...] | None:
        """Return the levels of parameters; None where one is missing or out of its range."""
        levels = [
            _level(distribution, params[name], self.levels) if name in params else None
            for name, distribution in self.distributions.items()
        ]
        return None if None in levels else tuple(level for level in levels if level is not None)

    def nearest_of(self, params: Mapping[str, Any]) -> tuple[int, ...] | None:
        """Return levels as :meth:`genes_of` does; a number out of its range is at the nearer end.

        What such a trial says of the other parameters is worth more than what is wrong about it.
        """
        found = dict(params)
        for name, distribution in self.distributions.items():
            value = params.get(name)
            if isinstance(value, int | float) and not isinstance(
                distribution, CategoricalDistribution
            ):
                low, high, _ = _range(distribution)
                found[name] = min(max(value, low), high)
        return self.genes_of(found)

    def params_of(self, genes: tuple[int, ...], rng: np.random.Generator) -> dict[str, Any]:
        """Return parameters drawn from within levels."""
        pairs = zip(self.distributions.items(), genes, strict=True)
        return {name: _value(own, gene, self.levels, rng) for (name, own), gene in pairs}


def _choices(distribution: BaseDistribution, levels: int) -> tuple[Any, ...]:
    if isinstance(distribution, CategoricalDistribution):
        return tuple(distribution.choices)
    return tuple(range(_count(distribution, levels)))


def _numbers(distribution: BaseDistribution, levels: int) -> Sequence[float] | None:
    """Return the numbers that levels stand for; None where some category is none."""
    if isinstance(distribution, CategoricalDistribution):
        numbers = [c for c in distribution.choices if isinstance(c, int | float)]
        known = [c for c in numbers if not isinstance(c, bool) and math.isfinite(c)]
        return known if len(known) == len(distribution.choices) else None
    low, _, step = _range(distribution)
    steps = _steps(distribution)
    if step is None or steps is None or steps > levels:
        return [level + 0.5 for level in range(levels)]
    return [low + level * step for level in range(steps)]


def _count(distribution: BaseDistribution, levels: int) -> int:
    """Return the number of levels of a range of numbers."""
    steps = _steps(distribution)
    return levels if steps is None else min(steps, levels)


def _steps(distribution: BaseDistribution) -> int | None:
    """Return the number of values of a parameter; None where there are infinitely many."""
    low, high, step = _range(distribution)
    return None if step is None else math.floor((high - low) / step + 1e-9) + 1


def _range(distribution: BaseDistribution) -> tuple[float, float, float | None]:
    if not isinstance(distribution, FloatDistribution | IntDistribution):
        raise TypeError(f"a range of numbers is needed, not {distribution!r}")
    return distribution.low, distribution.high, distribution.step


def _level(distribution: BaseDistribution, value: Any, levels: int) -> int | None:
    """Return the level that a value lies in; None where it is out of the range."""
    if isinstance(distribution, CategoricalDistribution):
        return next(
            (i for i, c in enumerate(distribution.choices) if c == value and _alike(c, value)), None
        )
    low, high, step = _range(distribution)
    if not isinstance(value, int | float) or not low <= value <= high:
        return None
    steps = _steps(distribution)
    if step is not None and steps is not None and steps <= levels:
        return round((value - low) / step)
    lower, upper = _ends(distribution)
    share = (_scale(distribution, value) - lower) / (upper - lower)
    return min(int(share * levels), levels - 1)


def _value(
    distribution: BaseDistribution, level: int, levels: int, rng: np.random.Generator
) -> Any:
    """Return a value drawn from within a level."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[level]
    low, high, step = _range(distribution)
    steps = _steps(distribution)
    if step is not None and steps is not None and steps <= levels:
        value = low + level * step
    else:
        lower, upper = _ends(distribution)
        value = lower + (upper - lower) * (level + rng.random()) / levels
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
