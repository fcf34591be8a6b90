"""Races between noisy candidates: who wins, and what may be claimed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest

from autoturbo.database import HandedOut, Race
from autoturbo.search.constants import SEARCH
from autoturbo.search.selection.racing import ERROR_SHARES, corrected_gain, race
from autoturbo.statistics import student
from tests.database.database_samples import measurement


def measured(
    seconds: dict[int, float], noise: float, seed: int, drift: float = 0.0
) -> Callable[[int], float | None]:
    """What measures entrants with noise, on a machine that slows down at every measurement."""
    chance, slower = np.random.default_rng(seed), [1.0]

    def measure(entrant: int) -> float | None:
        slower[0] *= 1 + drift
        return seconds[entrant] * slower[0] * math.exp(chance.normal(0, noise))

    return measure


def test_without_noise_the_fastest_wins_with_its_gain() -> None:
    result = race(measured({0: 2.0, 1: 1.6, 2: 1.5}, 0.0, 0), {1: 1.6, 2: 1.5}, 0)
    assert result is not None
    assert (result.winner, result.demonstrated) == (2, True)
    assert result.gain == result.low == result.high == pytest.approx(2 / 1.5)
    assert result.rounds == SEARCH.racing.confirm_rounds


def test_repeats_go_to_those_that_may_still_win() -> None:
    clear = race(
        measured({0: 2.0, 1: 1.0, 2: 1.5, 3: 1.6}, 0.01, 0), dict.fromkeys([1, 2, 3], 1.0), 0
    )
    close = race(
        measured({0: 2.0, 1: 1.0, 2: 1.001, 3: 1.002}, 0.01, 0), dict.fromkeys([1, 2, 3], 1.0), 0
    )
    assert clear is not None
    assert close is not None
    assert clear.measurements < close.measurements
    rounds = sum(min(3, most) for most in SEARCH.racing.rounds)
    assert close.measurements <= rounds + 2 * SEARCH.racing.confirm_rounds


def test_equal_schedules_rarely_show_a_gain() -> None:
    """Five that are as fast as the reference: one may be claimed to be faster in 5 % of races."""
    false = 0
    for seed in range(200):
        result = race(
            measured(dict.fromkeys(range(6), 1.0), 0.03, seed), dict.fromkeys(range(1, 6), 0.97), 0
        )
        assert result is not None
        false += result.demonstrated
        assert result.demonstrated == (result.winner != 0)
    assert false <= 16


def test_a_long_run_shows_smaller_gains() -> None:
    shown = {0: 0, 400: 0}
    for trials in shown:
        for seed in range(40):
            result = race(measured({0: 1.0, 1: 0.99}, 0.02, seed), {1: 0.97}, 0, trials=trials)
            shown[trials] += result is not None and result.demonstrated
    assert shown[400] > 2 * shown[0]


def test_three_looks_claim_no_more_than_one_would() -> None:
    """Equal schedules: 2.5 % of races end above zero; three looks at that level would make it 5."""
    false = 0
    for seed in range(1000):
        result = race(measured({0: 1.0, 1: 1.0}, 0.02, seed), {1: 0.97}, 0, trials=200)
        assert result is not None
        assert result.measurements <= 200
        false += result.demonstrated
    assert false <= 37


def test_a_run_is_measured_longer_where_a_gain_is_nearly_shown() -> None:
    rounds = {1.01: 0, 1.1: 0}
    for reference in rounds:
        for seed in range(40):
            result = race(measured({0: reference, 1: 1.0}, 0.02, seed), {1: 0.97}, 0, trials=200)
            assert result is not None
            assert result.demonstrated or reference < 1.1
            rounds[reference] += result.rounds
    assert rounds[1.01] > rounds[1.1] == 40 * 200 // SEARCH.racing.confirm_trials


def test_one_look_is_at_the_stated_confidence() -> None:
    result = race(measured({0: 1.1, 1: 1.0}, 0.02, 0), {1: 0.97}, 0)
    assert result is not None
    again, pairs = measured({0: 1.1, 1: 1.0}, 0.02, 0), []
    for turn in range(result.rounds):
        order = (0, 1) if turn % 2 == 0 else (1, 0)
        taken = {entrant: again(entrant) or 0.0 for entrant in order}
        pairs.append(math.log(taken[0] / taken[1]))
    error = float(np.std(pairs, ddof=1)) / math.sqrt(len(pairs))
    half = student((1 - SEARCH.racing.confidence) / 2, len(pairs) - 1) * error
    assert result.high is not None
    assert math.log(result.high / result.low) == pytest.approx(2 * half)
    assert result.confidence == SEARCH.racing.confidence
    assert sorted(ERROR_SHARES, reverse=True) == [*ERROR_SHARES]


def test_drift_is_no_gain_and_hides_none() -> None:
    for seed in range(20):
        same = race(measured({0: 1.0, 1: 1.0}, 0.002, seed, drift=0.01), {1: 0.97}, 0)
        faster = race(measured({0: 1.0, 1: 0.95}, 0.002, seed, drift=0.01), {1: 0.97}, 0)
        assert same is not None
        assert faster is not None
        assert same.low < 1.002
        assert faster.demonstrated


def test_failures_are_left_out_and_a_dead_entrant_loses() -> None:
    alive = measured({0: 2.0, 1: 1.0, 2: 1.5}, 0.01, 0)
    calls = [0]

    def measure(entrant: int) -> float | None:
        calls[0] += 1
        return None if entrant == 1 or calls[0] % 7 == 0 else alive(entrant)

    result = race(measure, {1: 1.6, 2: 1.5}, 0)
    assert result is not None
    assert (result.winner, result.demonstrated) == (2, True)
    assert race(lambda _: None, {1: 1.6, 2: 1.5}, 0) is None


def test_the_reference_alone() -> None:
    result = race(measured({0: 2.0}, 0.01, 0), {0: 2.0}, 0)
    assert result is not None
    assert (result.winner, result.demonstrated, result.gain) == (0, False, 1.0)


def handed(result: Race, trials: int) -> HandedOut:
    return HandedOut(result.winner, trials, measurement(), race=result, varies=True)


@pytest.mark.parametrize(
    ("trials", "percent", "races", "before", "after"),
    [  # some 40 to 140 that show of each; biases in percent, give or take three errors
        (0, 0.2, 1600, (1.4, 1.9), (0.2, 0.8)),
        (0, 0.5, 1000, (1.2, 1.7), (0.0, 0.6)),
        (0, 1.0, 400, (0.8, 1.3), (-0.3, 0.4)),
        (0, 3.0, 150, (-0.1, 0.4), (-0.5, 0.1)),
        (200, 0.2, 700, (0.8, 1.1), (0.1, 0.6)),
        (200, 0.5, 200, (0.5, 0.8), (-0.1, 0.4)),
        (200, 1.0, 100, (0.1, 0.5), (-0.4, 0.2)),
        (200, 3.0, 40, (-0.2, 0.2), (-0.2, 0.2)),
    ],
)
def test_what_shows_is_too_high_and_corrected_is_not(
    trials: int,
    percent: float,
    races: int,
    before: tuple[float, float],
    after: tuple[float, float],
) -> None:
    measure = measured({0: 1 + percent / 100, 1: 1.0}, 0.02, 0)
    plain, corrected = [], []
    for _ in range(races):
        result = race(measure, {1: 0.97}, 0, trials=trials)
        assert result is not None
        gain = corrected_gain(handed(result, trials))
        assert (gain is not None) == result.demonstrated
        if gain is not None:
            assert 1 <= gain <= result.gain
            plain.append(100 * (result.gain - 1))
            corrected.append(100 * (gain - 1))
    assert before[0] < np.mean(plain) - percent < before[1]
    assert after[0] < np.mean(corrected) - percent < after[1]


def test_a_gain_is_corrected_by_the_looks_that_the_run_had() -> None:
    """The same interval: of one look, of the second of three, and of the last of three."""
    result = race(measured({0: 1.02, 1: 1.0}, 0.02, 0), {1: 0.97}, 0)
    assert result is not None
    barely = dataclasses.replace(result, gain=1.02, low=1.003, high=1.0373)
    early = dataclasses.replace(barely, rounds=50)
    late = dataclasses.replace(barely, rounds=75)
    found = ((barely, 0), (early, 200), (late, 200))
    gains = [corrected_gain(handed(result, trials)) for result, trials in found]
    assert gains == pytest.approx([1.0028, 1.0138, 1.0121], abs=1e-4)
    short_of_time = dataclasses.replace(barely, rounds=7)
    assert corrected_gain(handed(short_of_time, 200)) == corrected_gain(handed(short_of_time, 0))


def test_what_is_not_of_a_race_is_not_corrected() -> None:
    result = race(measured({0: 1.1, 1: 1.0}, 0.02, 0), {1: 0.97}, 0)
    assert result is not None
    known = handed(result, 0)
    assert corrected_gain(known) is not None
    others = [
        dataclasses.replace(known, race=None),
        dataclasses.replace(known, entrants={"whole": 0}),  # plans on this computer
        handed(dataclasses.replace(result, low=1.0), 0),
        handed(dataclasses.replace(result, gain=1.0), 0),
        handed(dataclasses.replace(result, confidence=1.0), 0),
        handed(dataclasses.replace(result, confidence=0.0), 0),
    ]
    assert [corrected_gain(one) for one in others] == [None] * len(others)


@pytest.mark.parametrize(
    ("tail", "freedom", "quantile"),
    [(0.025, 3, 3.182), (0.025, 9, 2.262), (0.005, 9, 3.250), (0.05, 30, 1.697)],
)
def test_students_t(tail: float, freedom: int, quantile: float) -> None:
    """Quantiles of any table."""
    assert student(tail, freedom) == pytest.approx(quantile, rel=0.01)
