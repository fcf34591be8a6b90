"""Comparisons: what is handed out, and one figure for one thing."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

import numpy as np
import pytest

from autoturbo.host.compare import CONTROL, HostComparison, Stopwatch, compare_plans, figure_s
from autoturbo.schedule.host_plan import LOOP, TUNED, WHOLE, HostChoice, HostPlan, distinct

PARTS = [range(3), range(3, 6)]
PLANS = {
    WHOLE: HostPlan.of(PARTS, HostChoice.loop(8, 2), 8),
    LOOP: HostPlan.of(PARTS, HostChoice.loop(2, 2), 8),
    TUNED: HostPlan.of(PARTS, HostChoice((1, 2), (False,)), 8),
}


class FakeWatch:
    """Gives figures from a list, and a clock that goes on with each."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self.figures, self.now = itertools.cycle(seconds), 0.0
        self.asked: list[HostPlan] = []

    def seconds(self, plan: HostPlan) -> float:
        self.asked.append(plan)
        taken = next(self.figures)
        self.now += figure_s(taken)
        return taken

    def clock(self) -> float:
        return self.now


def compared(
    watch: FakeWatch, plans: dict[str, HostPlan], deadline: float = 1e9, length: float = 1.0
) -> HostComparison | None:
    stopwatch: Stopwatch = watch  # type: ignore[assignment]
    lengths = dict.fromkeys(plans, length)
    return compare_plans(stopwatch, plans, lambda *_: None, lengths, deadline)


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
    assert comparison.noise is not None
    assert not comparison.noise.demonstrated


def test_a_gain_within_the_noise_of_the_control_is_none() -> None:
    """Two per cent, always: shown by its interval, but the whole batch does that to itself."""
    whole = [1.0, 1.1, 0.95, 1.05, 1.0, 1.02, 0.98, 1.0]
    again = [
        value * wobble for value, wobble in zip(whole, [0.9, 1.1, 0.92, 1.08] * 2, strict=True)
    ]
    seconds = {
        WHOLE: tuple(whole), LOOP: tuple(whole), TUNED: tuple(value / 1.02 for value in whole),
        CONTROL: tuple(again),
    }  # fmt: skip
    comparison = HostComparison(seconds)
    assert comparison.gain(WHOLE).demonstrated
    assert comparison.noise is not None
    assert comparison.noise.high > 1.02
    assert comparison.winner == WHOLE
    calm = HostComparison({**seconds, CONTROL: tuple(whole)})
    assert calm.winner == TUNED


@pytest.mark.parametrize("chosen", [WHOLE, LOOP, TUNED])
def test_the_table_and_the_line_of_one_thing_agree(chosen: str) -> None:
    """Medians of 756 and 520 ms over means of pairs: one ratio, whatever the rounds drift."""
    rng = np.random.default_rng(3)
    drift = np.linspace(1, 3, 10)
    seconds = {
        name: tuple((factor * drift * np.exp(0.2 * rng.standard_normal(10))).tolist())
        for name, factor in ((WHOLE, 1.5), (LOOP, 1.2), (TUNED, 1.0), (CONTROL, 1.5))
    }
    comparison = HostComparison(seconds)
    own = comparison.typical(chosen, chosen)
    assert own == statistics.median(seconds[chosen])
    for name, gain in comparison.gains(chosen).items():
        assert comparison.typical(name, chosen) / own == pytest.approx(gain.ratio, rel=1e-12)


def test_plans_are_measured_in_turn_each_once() -> None:
    twice = distinct({**PLANS, TUNED: PLANS[LOOP]})
    assert list(twice) == [WHOLE, LOOP]
    watch = FakeWatch([1.0])
    found = compared(watch, twice)
    assert found is not None
    assert list(found.seconds) == [WHOLE, LOOP, CONTROL]
    order = [PLANS[WHOLE], PLANS[LOOP], PLANS[WHOLE]]
    assert watch.asked[:6] == [*order, *order[::-1]]
    assert found.winner in (WHOLE, LOOP)


@pytest.mark.parametrize(
    ("left", "rounds"), [(0, None), (20, None), (27, 6), (31, 7), (50, 11), (1e9, 20)]
)
def test_rounds_are_as_many_as_there_is_time_for(left: float, rounds: int | None) -> None:
    """Four figures of a second each, and a tenth more for what is not expected."""
    watch = FakeWatch([1.0])
    found = compared(watch, PLANS, left)
    assert (found and found.rounds) == rounds
    assert watch.now <= left
    assert (rounds is None) == (not watch.asked)


def test_rounds_that_take_longer_than_expected_end_in_time() -> None:
    watch = FakeWatch([3.0])
    assert compared(watch, PLANS, 60.0) is None
    assert watch.now <= 63.0
    watch = FakeWatch([1.3])
    found = compared(watch, PLANS, 60.0)
    assert found is not None
    assert 6 <= found.rounds < 13
    assert watch.now <= 61.3
