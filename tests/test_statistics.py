"""Intervals that hold what they say, with one implementation for races, hosts and fits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from autoturbo.statistics import (
    FEWEST_RANKS,
    Gain,
    alike,
    differences,
    likeliest_shown,
    mean_interval,
    student,
)


def test_intervals_hold_the_gain_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        slower, faster = np.exp(0.1 * rng.standard_normal((2, 10)))
        gain = Gain.of((1.2 * slower).tolist(), faster.tolist())
        held += gain.low <= 1.2 <= gain.high
    assert 0.93 < held / 400 < 0.98


def test_the_interval_is_that_of_signed_ranks() -> None:
    """Its ends are the shifts at which SciPy's exact test just does not reject."""
    rng = np.random.default_rng(1)
    rounds = 0.05 * rng.standard_normal(9) + 0.1
    gain = Gain.of(np.exp(rounds).tolist(), [1.0] * 9)
    for end, inside in ((np.log(gain.low), 1e-9), (np.log(gain.high), -1e-9)):
        assert stats.wilcoxon(rounds - end - inside, method="exact").pvalue > 0.05
        assert stats.wilcoxon(rounds - end + inside, method="exact").pvalue <= 0.05


def test_one_disturbed_round_moves_little() -> None:
    calm = [1.0] * 10
    gain = Gain.of([1.1] * 9 + [30.0], calm)
    assert gain.ratio == pytest.approx(1.1)
    assert gain.low == pytest.approx(1.1)


def test_six_rounds_are_enough_for_a_statement_and_five_are_not() -> None:
    assert FEWEST_RANKS == 6
    assert Gain.of([1.1, 1.2, 1.1, 1.2, 1.1, 1.2], [1.0] * 6).demonstrated
    few = Gain.of([1.1, 1.2, 1.1, 1.2, 1.1], [1.0] * 5)
    assert (few.low, few.high) == (0.0, math.inf)
    assert few.ratio == pytest.approx(1.15, abs=0.01)
    assert not few.demonstrated


def test_the_interval_of_a_mean_is_students() -> None:
    taken = [0.1, 0.2, 0.15, 0.3]
    low, mean, high = mean_interval(taken)
    wanted = stats.t.interval(0.95, 3, np.mean(taken), stats.sem(taken))
    assert (low, high) == pytest.approx(wanted)
    assert mean == pytest.approx(np.mean(taken))
    assert mean_interval(taken, 0.2)[0] > low
    assert mean_interval([0.25, 0.5]) == (-math.inf, 0.375, math.inf)
    assert mean_interval([]) == (-math.inf, 0.0, math.inf)
    assert student(0.025, 10) == pytest.approx(2.228, abs=1e-3)


def test_what_showed_is_likeliest_smaller() -> None:
    """With one look, the mean of the truncated distribution is what was measured."""
    for measured in (0.52, 0.6, 0.8, 1.2):
        likeliest = likeliest_shown(measured, 0.2, 2.2)
        bar = (0.44 - likeliest) / 0.2
        assert likeliest + 0.2 * stats.norm.pdf(bar) / stats.norm.sf(bar) == pytest.approx(measured)
    assert likeliest_shown(0.45, 0.2, 2.2) == 0.0
    assert likeliest_shown(0.02, 0.0, 2.2) == 0.02
    assert likeliest_shown(-0.02, 0.0, 2.2) == likeliest_shown(-0.02, 0.1, 2.2) == 0.0


@pytest.mark.parametrize(("look", "looks"), [(1, 1), (1, 2), (2, 2), (1, 3), (2, 3), (3, 3)])
def test_more_is_likeliest_of_what_showed_more_clearly(look: int, looks: int) -> None:
    measured = np.linspace(2.3, 8, 40)
    likeliest = [likeliest_shown(mean, 1.0, 2.3, look, looks) for mean in measured]
    assert likeliest == sorted(likeliest)
    assert all(0 <= low <= high for low, high in zip(likeliest, measured, strict=True))
    assert likeliest[0] < measured[0] / 2
    assert likeliest[-1] == pytest.approx(measured[-1], rel=1e-4)


def test_several_looks_are_one_likelihood() -> None:
    """The likeliest mean makes what shows, by simulation, likelier than any mean beside it."""
    level, look, looks, measured = 2.3, 2, 3, 2.9
    sums = np.cumsum(np.random.default_rng(0).standard_normal((400_000, looks)), axis=1)

    def shown(drift: float) -> float:
        open_, share = np.ones(len(sums), bool), 0.0
        for turn in range(looks):
            at = sums[:, turn] + drift * (turn + 1)
            shows = at > level * math.sqrt(turn + 1)
            share += float(np.mean(open_ & shows))
            open_ &= ~shows & (at > 0)
        return share

    def fit(mean: float) -> float:
        return -((measured - mean) ** 2) / 2 - math.log(shown(mean / math.sqrt(look)))

    likeliest = likeliest_shown(measured, 1.0, level, look, looks)
    assert max((0.0, *np.linspace(0, measured, 30)), key=fit) == pytest.approx(likeliest, abs=0.12)
    assert fit(likeliest) > max(fit(likeliest - 0.15), fit(likeliest + 0.15))


def test_rounds_in_which_something_failed_do_not_count() -> None:
    assert differences([2.0, math.nan, 3.0, 9.0], [1.0, 1.0, 1.5]) == [1.0, 1.5]


@pytest.mark.parametrize(
    ("figures", "noise", "same"),
    [
        ((1.0, 1.0), 0.0, True),
        ((1.0, 1.0 + 1e-12), 0.0, False),
        ((1.0, 1.05), 0.01, True),
        ((1.0, 1.06), 0.01, False),
        ((1.02, 1.0, 0.98), 0.01, True),
    ],
)
def test_figures_of_one_thing_differ_by_what_noise_explains(
    figures: tuple[float, ...], noise: float, same: bool
) -> None:
    assert alike(figures, noise) == same
