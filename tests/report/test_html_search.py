"""What a report says of a search, and what it leaves out of a long one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.report.filling import Columns, evenly
from autoturbo.report.search_course import (
    MOST_POINTS,
    convergence,
    front,
    predictions,
    spearman,
    unbeaten,
)
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.objectives import find_objectives, pareto
from autoturbo.search.openings import make_ranker
from autoturbo.search.progress import Trial
from autoturbo.simulator.measurement import Failure, Measurement
from tests.report.report_samples import small_facts
from tests.search.search_doubles import Landscape, measurement, toy_graph, toy_target

(LATENCY,) = find_objectives("latency")


def trials_of(seconds: Sequence[float | None]) -> list[Trial]:
    failed = Failure("GB", "too full")
    outcomes = [failed if s is None else measurement(s) for s in seconds]
    return [Trial(n, Knobs(), outcome) for n, outcome in enumerate(outcomes)]


def test_every_best_so_far_is_drawn_of_many_trials() -> None:
    rng = np.random.default_rng(0)
    seconds = [float(s) for s in 1e-3 * (1 + rng.exponential(1, 10_000))]
    found = convergence(trials_of(seconds), LATENCY)
    records = np.flatnonzero(np.asarray(seconds) <= np.minimum.accumulate(seconds))
    assert found.improvements == len(records) == len(found.best) - 1
    assert set(records.tolist()) <= set(found.points.values["trial"])
    assert len(found.points) <= MOST_POINTS + len(records)
    assert f"{len(found.points)} of 10000" in found.points.note
    assert found.best.values["trial"][-1] == 9_999
    assert found.best.values["value"][-1] == pytest.approx(1e3 * min(seconds))


def test_failures_are_counted_and_not_drawn() -> None:
    found = convergence(trials_of([None, 2e-3, None, 1e-3]), LATENCY)
    assert found.failures == {"GB": 2}
    assert found.points.values["trial"] == [1, 3]
    assert found.points.note == ""


def test_what_is_maximised_is_drawn_as_it_is() -> None:
    (throughput,) = find_objectives("throughput")
    found = convergence(trials_of([2e-3, 1e-3]), throughput)
    assert found.best.values["value"] == pytest.approx([32_000, 64_000, 64_000])


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20))
def test_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    values = np.asarray(points, np.float64).reshape(-1, 2)
    assert sorted(unbeaten(values)) == pareto(points)


def test_the_front_has_what_no_trial_beats_in_both() -> None:
    latency, traffic = find_objectives("latency,ddr-bytes")
    found = front(trials_of([3e-6, 1e-6]), (latency, traffic))
    assert found.members.values["trial"] == [1, 0]


def test_the_course_is_in_gains_over_the_heuristic() -> None:
    trials = trials_of([2e-3, 1e-3, 4e-3])
    base = trials[0].outcome
    assert isinstance(base, Measurement)
    for objective in find_objectives("latency,throughput"):
        found = convergence(trials, objective, base)
        assert found.title == "times as fast as the heuristic"
        assert found.points.values["value"] == pytest.approx([1.0, 2.0, 0.5])
        assert found.best.values["value"] == pytest.approx([1.0, 2.0, 2.0])
        assert found.bound.values["value"] == pytest.approx([2e-3 / base.bound.seconds])
    (traffic,) = find_objectives("ddr-bytes")
    assert "less DDR traffic" in convergence(trials, traffic, base).title
    assert not len(convergence(trials, traffic, base).bound)


@given(st.integers(0, 50), st.integers(2, 20))
def test_an_even_share(count: int, most: int) -> None:
    chosen = evenly(count, most)
    assert len(chosen) == min(count, most)
    if count:
        assert (chosen[0], chosen[-1]) == (0, count - 1)


def test_columns_are_short_and_whole() -> None:
    packed = Columns({"what": ["a\x1b", "b", "a\x1b", None], "n": [1 / 3, 2.0, np.inf, None]})
    assert packed.as_json() == {
        "what": {"of": ["a\\x1b", "b", None], "at": [0, 1, 0, 2]},
        "n": [0.333333, 2, None, None],
    }


def test_spearman_is_the_correlation_of_ranks() -> None:
    """The textbook's example with ties: ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4."""
    first, second = np.asarray([1.0, 5.0, 5.0, 9.0]), np.asarray([10.0, 11.0, 12.0, 99.0])
    assert spearman(first, second) == pytest.approx(0.9486832980505138)
    assert spearman(first, -first) == pytest.approx(-1.0)


def test_predictions_are_those_of_the_time() -> None:
    """A round is predicted from the rounds before it, never from itself."""
    space = np.random.default_rng(0)
    knobs = [Knobs(prefetch_depth=int(d), tile_subdivision=int(t)) for d in (1, 2, 3) for t in
             (1, 2, 4, 8)]  # fmt: skip
    knobs = [Knobs(), *(knobs[i] for i in space.permutation(len(knobs)))]
    doubles = Landscape(walls=False)
    trials = [Trial(n, k, doubles.evaluate(k)) for n, k in enumerate(knobs)]

    def ranker() -> object:
        return make_ranker(doubles, toy_graph(), toy_target(), "float16", 0, print)

    found = predictions(trials, ranker(), 4)  # type: ignore[arg-type]
    assert found is not None
    assert found.points.values["trial"] == [9, 10, 11, 12]  # eight are needed before
    changed = [*trials[:9], *(Trial(t.number, t.knobs, trials[1].outcome) for t in trials[9:])]
    again = predictions(changed, ranker(), 4)  # type: ignore[arg-type]
    assert again is not None
    assert again.points.values["predicted"] == found.points.values["predicted"]
    assert predictions(trials[:5], ranker(), 4) is None  # type: ignore[arg-type]


@pytest.mark.full
def test_a_run_is_predicted_whole_from_the_package_model() -> None:
    facts = small_facts()
    assert facts.predictions is not None
    measured = sum(not isinstance(t.outcome, Failure) for t in facts.trials)
    assert facts.predictions.count == measured
    assert facts.predictions.spearman is not None
    assert -1 <= facts.predictions.spearman <= 1
