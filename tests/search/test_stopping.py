from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.config import ResumeConfig, TuneConfig
from autoturbo.errors import UsageError
from autoturbo.search.objectives import pareto
from autoturbo.search.stopping import EarlyStopping


def test_failures_and_equals_are_no_progress() -> None:
    drought, lengths = EarlyStopping(), []
    for scores in (None, (3.0,), (3.0,), None, (2.0,), (4.0,)):
        drought.enter(scores)
        lengths.append(drought.length)
    assert lengths == [1, 0, 1, 2, 0, 1]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20))
def test_a_new_point_of_the_front_is_progress(points: list[tuple[int, int]]) -> None:
    drought = EarlyStopping()
    for count, point in enumerate(points, 1):
        drought.enter(point)
        assert (drought.length == 0) == (count - 1 in pareto(points[:count]))


def test_new_limits_take_the_place_of_old_ones_but_for_the_time() -> None:
    asked = TuneConfig(trials=10, time_budget=5.0, patience=3, bound_gap=0.1)
    assert asked.extended(ResumeConfig()) is asked

    def limits(**new: Any) -> tuple[float | None, ...]:
        found = asked.extended(ResumeConfig(**new))
        return found.trials, found.time_budget, found.patience, found.bound_gap

    assert limits(trials=20) == (20, 5.0, None, None)
    assert limits(time_budget=9.0, patience=4) == (None, 9.0, 4, None)
    assert limits(bound_gap=0.2) == (10, 5.0, None, 0.2)
    assert limits(verify=True) == (10, 5.0, 3, 0.1)


@pytest.mark.parametrize(
    ("objective", "patience", "gap", "name"),
    [
        ("latency", 0, None, "^patience: "),
        ("latency", None, -0.1, "^bound_gap: "),
        ("latency", None, float("nan"), "^bound_gap: "),
        ("ddr-bytes", None, 0.1, "a gap "),
    ],
)
def test_limits_that_make_no_sense(
    objective: str, patience: int | None, gap: float | None, name: str
) -> None:
    asked = TuneConfig(objective=objective, patience=patience, bound_gap=gap)
    with pytest.raises(UsageError, match=name):
        asked.check()
