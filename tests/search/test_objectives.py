from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.config import EFFORTS, TuneConfig
from autoturbo.errors import UsageError
from autoturbo.search.objectives import OBJECTIVES, find_objectives, pareto
from autoturbo.simulator.measurement import Failure
from tests.search.search_doubles import measurement

POINTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20)


def test_lower_scores_are_better_whatever_the_direction() -> None:
    fast, slow = measurement(1.0), measurement(2.0)
    for name in ("latency", "throughput"):
        scores = [OBJECTIVES[name].score(m) for m in (fast, slow)]
        assert scores[0] is not None
        assert scores[1] is not None
        assert scores[0] < scores[1]


def test_a_failure_has_no_score() -> None:
    assert OBJECTIVES["latency"].score(Failure("LB", "full")) is None


def test_names_come_as_text_or_in_a_sequence() -> None:
    assert [o.name for o in find_objectives("latency, energy")] == ["latency", "energy"]
    assert [o.name for o in find_objectives(["ddr-bytes"])] == ["ddr-bytes"]


@pytest.mark.parametrize("names", ["latencey", "latency,latency", []])
def test_what_is_not_an_objective_is_refused(names: str | list[str]) -> None:
    with pytest.raises(UsageError):
        find_objectives(names)


@given(POINTS)
def test_the_front_beats_all_and_nothing_on_it_is_beaten(points: list[tuple[int, int]]) -> None:
    front = [points[i] for i in pareto(points)]
    assert len(set(front)) == len(front)
    for point in points:
        assert any(all(f <= p for f, p in zip(best, point, strict=True)) for best in front)
    for one in front:
        assert not any(
            other != one and all(o <= f for o, f in zip(other, one, strict=True)) for other in front
        )


def test_an_effort_is_a_number_of_trials() -> None:
    assert [TuneConfig(effort=e).total for e in EFFORTS] == [64, 400, 2000]
    assert TuneConfig(trials=7).total == 7
    assert TuneConfig(time_budget=5.0).total is None
    assert TuneConfig(time_budget=5.0, trials=9).total == 9


@pytest.mark.parametrize(
    "changes",
    [
        {"effort": "heroic"},
        {"time_budget": float("nan")},
        {"objective": "speed"},
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        TuneConfig(**changes).check()
