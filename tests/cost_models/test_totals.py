"""Kernel factors learned from latencies of whole schedules, against the truth that made these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoturbo.cost_models.totals import Total, TotalsModel

KERNELS = 40


class World:
    """Kernels with features, predicted seconds and true factors that follow from the features."""

    def __init__(self, seed: int, offset: float = 0.7) -> None:
        self.chance = np.random.default_rng(seed)
        self.rows = self.chance.normal(size=(KERNELS, 6)).astype(np.float32)
        self.seconds = np.exp(self.chance.normal(size=KERNELS))
        self.factors = offset + 0.3 * np.tanh(self.rows[:, 0]) + 0.1 * self.rows[:, 1]

    def total(self, noise: float = 0.0) -> tuple[Any, float]:
        """Some kernels and the latency of all of them."""
        chosen = self.chance.choice(KERNELS, 10, replace=False)
        took = float((self.seconds[chosen] * np.exp(self.factors[chosen])).sum())
        return chosen, took * float(np.exp(self.chance.normal(0, noise)))

    def totals(self, count: int, noise: float) -> list[Total]:
        made = [self.total(noise) for _ in range(count)]
        return [Total(self.rows[c], self.seconds[c], latency, noise) for c, latency in made]


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_factors_are_learned_from_sums(noise: float) -> None:
    world = World(0)
    error = {}
    for count in (10, 40, 160):
        model = TotalsModel.of(World(0).totals(count, noise))
        expected, seen = model.told(world.rows)
        assert seen.sum() > KERNELS / 2
        error[count] = float(np.abs(expected - world.factors).mean())
    assert error[160] < error[40] < error[10] < 0.3
    assert error[160] < 0.06


def test_new_candidates_are_ranked_and_their_uncertainty_is_honest() -> None:
    world = World(1)
    model = TotalsModel.of(world.totals(60, 0.02))
    made = [world.total() for _ in range(200)]
    chosen = np.concatenate([kernels for kernels, _ in made])
    owner = np.repeat(np.arange(200), 10)
    took = world.seconds[chosen] * np.exp(model.told(world.rows[chosen])[0])
    expected = np.log(np.bincount(owner, took))
    truth = np.log([latency for _, latency in made])
    deviations = model.deviations(world.rows[chosen], owner, took, 200)
    assert np.corrcoef(expected, truth)[0, 1] > 0.98
    assert (np.abs(expected - truth) < 2 * deviations).mean() > 0.85
    assert (deviations < 0.15).all()


def test_what_was_measured_often_is_surer_than_what_nobody_saw() -> None:
    world = World(2)
    model = TotalsModel.of(world.totals(60, 0.02))
    far = np.full((1, 6), 6.0, np.float32)
    one = np.zeros(1, np.int64)
    known, new = (
        float(model.deviations(rows, one, np.ones(1), 1)[0]) for rows in (world.rows[:1], far)
    )
    assert new > 1.2 * known
    assert not model.told(far)[1].any()


def test_nothing_depends_on_the_order_of_measurements() -> None:
    totals = World(3).totals(30, 0.02)
    forth, back = TotalsModel.of(totals), TotalsModel.of(totals[::-1])
    rows = World(3).rows
    assert forth.told(rows)[0] == pytest.approx(back.told(rows)[0], abs=1e-6)
