from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from autoturbo.search.constants import SEARCH
from autoturbo.search.optuna_parameters import OptunaParameters

LEVELS = SEARCH.plain_studies.float_levels
RANGES: list[BaseDistribution] = [
    FloatDistribution(-1, 3),
    FloatDistribution(1e-6, 1, log=True),
    FloatDistribution(-10.2, 10.2, step=0.1),
    IntDistribution(0, 21, step=7),
    IntDistribution(0, 99_999, step=3),
    IntDistribution(1, 100_000, log=True),
    CategoricalDistribution((1, True, None, "a")),
]


@pytest.mark.parametrize("distribution", RANGES, ids=str)
def test_every_level_gives_values_of_the_range(distribution: BaseDistribution) -> None:
    levels, rng = OptunaParameters({"x": distribution}), np.random.default_rng(0)
    for level in range(int(levels.space.widths[0])):
        value = levels.params_of((level,), rng)["x"]
        assert distribution._contains(distribution.to_internal_repr(value))
        assert type(value) in (int, float, bool, str, type(None))
        (found,) = levels.genes_of({"x": value}) or (None,)
        assert found is not None
        few = isinstance(distribution, CategoricalDistribution) or levels.space.size < LEVELS
        assert found == level or not few


@given(st.floats(-1, 3))
def test_every_value_has_a_level_that_it_lies_in(value: float) -> None:
    levels = OptunaParameters({"x": FloatDistribution(-1, 3)})
    (level,) = levels.genes_of({"x": value}) or (-1,)
    assert level / LEVELS * 4 - 1 - 1e-9 <= value <= (level + 1) / LEVELS * 4 - 1 + 1e-9


@pytest.mark.parametrize("params", [{}, {"x": 4.0}, {"x": "a"}, {"x": float("nan")}])
def test_what_is_missing_or_outside_has_none(params: dict[str, object]) -> None:
    assert OptunaParameters({"x": FloatDistribution(-1, 3)}).genes_of(params) is None


def test_a_number_outside_is_nearest_to_an_end() -> None:
    mixed = OptunaParameters({"x": FloatDistribution(-1, 3), "c": CategoricalDistribution((1, 2))})
    last = LEVELS - 1
    places = [mixed.nearest_of({"x": x, "c": c}) for x, c in ((4.0, 1), (-9, 2), (3, 2), (0.0, 3))]
    assert places == [(last, 0), (0, 1), (last, 1), None]
    assert mixed.nearest_of({"c": 1}) is None


def test_a_truth_value_is_no_number() -> None:
    levels = OptunaParameters({"x": CategoricalDistribution((1, True))})
    assert (levels.genes_of({"x": True}), levels.genes_of({"x": 1})) == ((1,), (0,))
