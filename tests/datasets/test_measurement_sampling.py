"""Which settings a sample has, judged with measurements that cost nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from autoturbo.datasets.measurements.sampling import (
    ELITE,
    TURNS,
    DrawnCandidate,
    Origin,
    Reading,
    Sample,
)
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.simulator.measurement import Failure, LowerBound, Measurement, Outcome
from tests.datasets.measurement_samples import CHOICES, FewDraws

POINTS = 3 ** len(CHOICES)


def _distance(knobs: Knobs) -> int:
    """Choices between a setting and the best one."""
    return sum(getattr(knobs, name) != values[-1] for name, values in CHOICES)


def _measurement(latency: float) -> Measurement:
    return Measurement(latency, 1, 0, 0, 0.0, 0.0, 0, 0, 1, LowerBound(1.0, 0.0, 0.0))


def _reading(knobs: Knobs, outcome: Outcome, schedule: str) -> Reading:
    return Reading(knobs, outcome, schedule.encode())


def by_distance(knobs: Knobs) -> Reading:
    return _reading(knobs, _measurement(1.0 + _distance(knobs)), knobs.canonical())


def sample(
    count: int, measure: Callable[[Knobs], Reading] = by_distance, seed: int = 0
) -> list[DrawnCandidate]:
    return list(Sample(FewDraws(), measure, np.random.default_rng(seed)).take(count))


def latency(drawn: DrawnCandidate) -> float:
    assert isinstance(drawn.reading.outcome, Measurement)
    return drawn.reading.outcome.latency


def test_starts_come_first_and_kinds_take_turns() -> None:
    found = sample(10)
    origins = [drawn.origin for drawn in found]
    assert origins == [Origin.DEFAULT, Origin.START, *TURNS, *TURNS]
    assert [drawn.number for drawn in found] == list(range(10))
    assert found[0].reading.knobs == Knobs()


@pytest.mark.parametrize("seed", range(2))
def test_a_sample_follows_from_its_seed(seed: int) -> None:
    once, again = ([d.reading.knobs for d in sample(20, seed=seed)] for _ in range(2))
    assert once == again
    assert once != [d.reading.knobs for d in sample(20, seed=seed + 1)]


@pytest.mark.parametrize("seed", range(2))
def test_a_longer_sample_begins_with_the_shorter_one(seed: int) -> None:
    short, long = (sample(count, seed=seed) for count in (10, 30))
    assert [d.reading.knobs for d in short] == [d.reading.knobs for d in long[:10]]


@pytest.mark.parametrize("seed", range(2))
def test_a_small_space_ends_the_sample(seed: int) -> None:
    found = sample(1000, seed=seed)
    assert len({drawn.reading.knobs for drawn in found}) == len(found)
    assert POINTS * 0.8 < len(found) <= POINTS


@pytest.mark.parametrize("seed", range(2))
def test_mutants_are_of_what_they_say(seed: int) -> None:
    found = sample(40, seed=seed)
    for drawn in found:
        if drawn.origin is Origin.NEAR_START:
            assert found[drawn.parent].origin in (Origin.DEFAULT, Origin.START)
        elif drawn.origin is Origin.NEAR_BEST:
            before = sorted(latency(d) for d in found[: drawn.number])
            assert latency(found[drawn.parent]) <= before[:ELITE][-1]
        else:
            assert drawn.parent == -1


def test_mutants_of_the_best_are_better_than_random_ones() -> None:
    latencies: dict[Origin, list[float]] = {origin: [] for origin in Origin}
    for seed in range(20):
        for drawn in sample(40, seed=seed):
            latencies[drawn.origin].append(latency(drawn))
    near, anywhere = latencies[Origin.NEAR_BEST], latencies[Origin.DENSE]
    assert np.mean(near) < np.mean(anywhere) - 0.25


def test_settings_of_one_schedule_are_one_and_are_counted() -> None:
    def coarse(knobs: Knobs) -> Reading:
        return _reading(knobs, _measurement(1.0 + _distance(knobs)), str(knobs.prefetch_depth))

    made = Sample(FewDraws(), coarse, np.random.default_rng(0))
    found = list(made.take(20))
    assert [d.reading.knobs.prefetch_depth for d in found[:1]] == [AUTO]
    assert len(found) == 3
    assert made.repeats > 20


def test_failures_are_kept_and_never_bred_from() -> None:
    def fussy(knobs: Knobs) -> Reading:
        if knobs.output_scope == AUTO:
            return by_distance(knobs)
        return _reading(knobs, Failure("GB", "too large"), "")

    found = sample(60, fussy)
    outcomes = Counter(isinstance(drawn.reading.outcome, Measurement) for drawn in found)
    assert outcomes[False] > 10
    parents = {d.parent for d in found if d.origin is Origin.NEAR_BEST}
    assert all(isinstance(found[parent].reading.outcome, Measurement) for parent in parents)


def test_a_default_that_fails_is_no_end() -> None:
    def nothing(knobs: Knobs) -> Reading:
        return _reading(knobs, Failure("DDR", "too large"), "")

    found = sample(12, nothing)
    assert len(found) == 12
    assert {d.parent for d in found if d.origin is Origin.NEAR_BEST} <= {0, 1}
