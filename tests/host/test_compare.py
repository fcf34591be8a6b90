"""Comparisons: intervals that hold what they say, and what is handed out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from autoturbo.host.compare import CONTROL, Gain, HostComparison
from autoturbo.host.plan import LOOP, TUNED, WHOLE


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


def test_six_rounds_are_enough_for_a_statement() -> None:
    assert Gain.of([1.1, 1.2, 1.1, 1.2, 1.1, 1.2], [1.0] * 6).demonstrated


@pytest.mark.parametrize(
    ("loop", "tuned", "winner"),
    [(0.8, 0.7, TUNED), (0.8, 0.8, LOOP), (1.1, 1.0, WHOLE), (1.1, 0.9, TUNED), (0.8, 0.9, LOOP)],
)
def test_the_faster_baseline_is_handed_out_unless_the_tuned_plan_is_demonstrably_faster(
    loop: float, tuned: float, winner: str
) -> None:
    rng = np.random.default_rng(5)

    def rounds(seconds: float) -> tuple[float, ...]:
        return tuple((seconds * (1 + 0.005 * rng.standard_normal(12))).tolist())

    taken = {WHOLE: rounds(1.0), LOOP: rounds(loop), TUNED: rounds(tuned), CONTROL: rounds(1.0)}
    comparison = HostComparison(taken)
    assert comparison.winner == winner
    assert not comparison.noise.demonstrated
