"""Parameters of any Optuna study as a space of levels.

Categories are themselves. Whole numbers are themselves as long as there are few; all other numbers
are cut into :data:`LEVELS` parts of their range (of its logarithm where the study says so), and a
proposal is a number drawn from within a part. This module loads Optuna.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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

from autoturbo.search.conditions import Genes
from autoturbo.search.space import Dimension, Space

LEVELS = 64
"""Parts of a range: fine enough, since a proposal may be anywhere within one."""


@dataclass(frozen=True)
class _LevelSpace(Space):
    """A space of which some dimensions have an order: there, mutants mostly stay near.

    Attributes:
        ordered: whether each dimension has.
    """

    ordered: tuple[bool, ...] = ()

    def mutate(self, rng: np.random.Generator, genes: Genes, rate: float = 0.0) -> Genes:
        """As in any space, but numbers move by steps whose logarithm is uniform."""
        moved = super().mutate(rng, genes, rate)
        step = np.maximum(self.widths ** rng.random(genes.shape), 1).astype(np.int64)
        near = genes + step * rng.choice((-1, 1), genes.shape)
        inside = (near >= 0) & (near < self.widths)
        return np.where((moved != genes) & inside & np.asarray(self.ordered), near, moved)


@dataclass(frozen=True)
class Levels:
    """The parameters of a study.

    Attributes:
        distributions: by name; a parameter with one value alone is none.
    """

    distributions: Mapping[str, BaseDistribution]

    @cached_property
    def space(self) -> Space:
        """One dimension for each parameter: its categories, or numbers of its levels."""
        dimensions = tuple(Dimension(n, _choices(d)) for n, d in self.distributions.items())
        numbers = [not isinstance(d, CategoricalDistribution) for d in self.distributions.values()]
        return _LevelSpace(dimensions, ordered=tuple(numbers))

    def genes_of(self, params: Mapping[str, Any]) -> tuple[int, ...] | None:
        """Levels of parameters; None where one is missing or out of its range."""
        found = [
            _level(distribution, params[name]) if name in params else None
            for name, distribution in self.distributions.items()
        ]
        return None if None in found else tuple(level for level in found if level is not None)

    def params_of(self, genes: tuple[int, ...], rng: np.random.Generator) -> dict[str, Any]:
        """Parameters of levels, drawn from within them."""
        pairs = zip(self.distributions.items(), genes, strict=True)
        return {name: _value(distribution, gene, rng) for (name, distribution), gene in pairs}


def _choices(distribution: BaseDistribution) -> tuple[Any, ...]:
    if isinstance(distribution, CategoricalDistribution):
        return tuple(distribution.choices)
    return tuple(range(_count(distribution)))


def _count(distribution: BaseDistribution) -> int:
    """Levels of a range of numbers."""
    steps = _steps(distribution)
    return LEVELS if steps is None else min(steps, LEVELS)


def _steps(distribution: BaseDistribution) -> int | None:
    """Values of a parameter, None where there are infinitely many."""
    low, high, step = _range(distribution)
    return None if step is None else math.floor((high - low) / step + 1e-9) + 1


def _range(distribution: BaseDistribution) -> tuple[float, float, float | None]:
    if not isinstance(distribution, FloatDistribution | IntDistribution):
        raise TypeError(f"a range of numbers is needed, not {distribution!r}")
    return distribution.low, distribution.high, distribution.step


def _level(distribution: BaseDistribution, value: Any) -> int | None:
    """The level that a value lies in; None where it is out of the range."""
    if isinstance(distribution, CategoricalDistribution):
        return next(
            (i for i, c in enumerate(distribution.choices) if c == value and _alike(c, value)), None
        )
    low, high, step = _range(distribution)
    if not isinstance(value, int | float) or not low <= value <= high:
        return None
    steps = _steps(distribution)
    if step is not None and steps is not None and steps <= LEVELS:
        return round((value - low) / step)
    lower, upper = _ends(distribution)
    share = (_scale(distribution, value) - lower) / (upper - lower)
    return min(int(share * LEVELS), LEVELS - 1)


def _value(distribution: BaseDistribution, level: int, rng: np.random.Generator) -> Any:
    """A value from within a level."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[level]
    low, high, step = _range(distribution)
    steps = _steps(distribution)
    if step is not None and steps is not None and steps <= LEVELS:
        value = low + level * step
    else:
        lower, upper = _ends(distribution)
        value = lower + (upper - lower) * (level + rng.random()) / LEVELS
        value = math.exp(value) if _is_log(distribution) else value
        value = value if step is None else low + round((value - low) / step) * step
    value = min(max(value, low), high)
    return round(value) if isinstance(distribution, IntDistribution) else float(value)


def _alike(one: object, other: object) -> bool:
    """``True`` is no ``1``, although they are equal."""
    return isinstance(one, bool) == isinstance(other, bool)


def _is_log(distribution: BaseDistribution) -> bool:
    return bool(getattr(distribution, "log", False))


def _ends(distribution: BaseDistribution) -> tuple[float, float]:
    """The ends of a range on the scale that it is cut on."""
    low, high, _ = _range(distribution)
    return _scale(distribution, low), _scale(distribution, high)


def _scale(distribution: BaseDistribution, value: float) -> float:
    return math.log(value) if _is_log(distribution) else value
