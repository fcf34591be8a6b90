"""What is learned of parts from whole batches, and the best choice under it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.host.learning import PartTimes, cheapest
from autoturbo.schedule.host_plan import BREADTH_FIRST, DEPTH_FIRST, HostChoice

seconds = st.floats(0.1, 10)


@given(
    st.lists(
        st.dictionaries(st.sampled_from([1, 2, 4]), seconds, min_size=1), min_size=1, max_size=4
    ),
    st.data(),
)
def test_the_cheapest_choice_is_the_best_of_all(
    table: list[dict[int, float]], data: st.DataObject
) -> None:
    joins = data.draw(st.lists(st.floats(-1, 1), min_size=len(table) - 1, max_size=len(table) - 1))

    def total(samples: tuple[int, ...], joined: tuple[bool, ...]) -> float:
        costs = [row[one] for row, one in zip(table, samples, strict=True)]
        return sum(costs) + sum(join for join, chosen in zip(joins, joined, strict=True) if chosen)

    every = [
        (samples, joined)
        for samples in itertools.product(*table)
        for joined in itertools.product((False, True), repeat=len(joins))
        if all(not j or a == b for j, a, b in zip(joined, samples, samples[1:], strict=False))
    ]
    samples, joined, found = cheapest(table, joins)
    assert (samples, joined) in every
    assert found == pytest.approx(min(total(*one) for one in every))
    assert found == pytest.approx(total(samples, joined))


def test_batches_teach_what_parts_take_within_them() -> None:
    """Parts take a tenth more or less than alone; a few trials find the best choice."""
    rng = np.random.default_rng(3)
    alone = [{n: 1 + 0.1 * rng.random() for n in (1, 2, 4, 8)} for _ in range(6)]
    truth = [
        {n: float(s * (1 + 0.1 * rng.standard_normal())) for n, s in row.items()} for row in alone
    ]
    joins = (0.05 * rng.standard_normal(5)).tolist()
    orders = {DEPTH_FIRST: 0.2, BREADTH_FIRST: 0.0}

    def measured(choice: HostChoice) -> float:
        cost: float = sum(row[n] for row, n in zip(truth, choice.samples, strict=True))
        cost += sum(j for j, chosen in zip(joins, choice.joined, strict=True) if chosen)
        return cost + (0.0 if all(choice.joined) else orders[choice.order])

    times = PartTimes.of((1, 1), alone)
    taken: list[float] = []
    for _ in range(40):
        choice, _ = times.best(rng if taken else None)
        taken.append(measured(choice))
        times.learn(choice, taken[-1] * (1 + 0.01 * rng.standard_normal()))
    best = min(cheapest(truth, joins)[2], sum(min(row.values()) for row in truth))
    assert min(taken) < 1.02 * best
    assert min(taken) < taken[0] - 0.3 * (taken[0] - best)
    assert times.best()[0].order == BREADTH_FIRST or all(times.best()[0].joined)


def test_samples_that_were_not_timed_teach_nothing() -> None:
    times = PartTimes.of((2, 1), [{1: 1.0}, {1: 1.0, 2: 0.5}])
    before = times.mean.copy()
    times.learn(HostChoice.loop(4, 2), 9.0)
    assert (times.mean == before).all()
    assert times.best()[0].samples == (1, 2)
