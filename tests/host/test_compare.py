"""Comparisons: what is handed out."""

from __future__ import annotations

import numpy as np
import pytest

from autoturbo.host.compare import CONTROL, HostComparison
from autoturbo.host.plan import LOOP, TUNED, WHOLE


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
