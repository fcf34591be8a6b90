"""Kernel factors learned from latencies of whole schedules, against the truth that made these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost

from autoturbo.cost_models.booster import Booster
from autoturbo.cost_models.totals import Total, TotalsModel

KERNELS = 40


def trees() -> Booster:
    """What was learned from other kernels, whose factors are others, too."""
    chance = np.random.default_rng(9)
    rows = chance.normal(size=(2000, 6)).astype(np.float32)
    labels = np.tanh(2 * rows[:, 0]) - 0.3 * rows[:, 1] + chance.normal(0, 0.1, len(rows))
    return Booster.of(rows, labels, trees=60)


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
        model = TotalsModel.of(World(0).totals(count, noise), trees())
        expected, seen = model.told(world.rows)
        assert seen.sum() > KERNELS / 2
        error[count] = float(np.abs(expected - world.factors).mean())
    assert error[160] < error[40] < error[10] < 0.3
    assert error[160] < 0.06


def test_new_candidates_are_ranked_and_their_uncertainty_is_honest() -> None:
    world = World(1)
    model = TotalsModel.of(world.totals(60, 0.02), trees())
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
    model = TotalsModel.of(world.totals(60, 0.02), trees())
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


def test_alike_kernels_are_those_that_trees_do_not_tell_apart() -> None:
    rows = World(4).rows
    alike = (trees().leaves(rows) @ trees().leaves(rows).T).toarray()
    assert np.diag(alike) == pytest.approx(1.0)
    ends = trees().trees.predict(xgboost.DMatrix(rows), pred_leaf=True)
    assert alike[0, 1] == pytest.approx((ends[0] == ends[1]).mean())
    seen = np.concatenate([rows, np.zeros_like(rows)], axis=1)
    assert (trees().leaves(seen) != trees().leaves(rows)).nnz == 0  # columns that they do not know


@pytest.mark.parametrize("depth", [1, 6, 9])
def test_leaves_of_trees_of_any_depth_are_told_apart(depth: int) -> None:
    rows = np.random.default_rng(0).uniform(size=(2000, 3)).astype(np.float32)
    deep = Booster.of(rows, rows.sum(axis=1) + np.sin(40 * rows[:, 0]), trees=5, max_depth=depth)
    leaves = deep.leaves(rows)
    assert leaves.indices.max() < leaves.shape[1]
    assert (np.diff(leaves.indptr) == 5).all()
    matrix = xgboost.DMatrix(rows)
    ends = deep.trees.predict(matrix, pred_leaf=True).reshape(len(rows), 5)
    alike = (ends[:50, None] == ends[None, :50]).mean(axis=2)
    assert np.allclose((leaves[:50] @ leaves[:50].T).toarray(), alike)


def test_trees_of_other_kernels_say_more_than_those_of_chance() -> None:
    world = World(5)
    learned = world.totals(12, 0.02)
    made = [world.total() for _ in range(100)]
    error = {}
    for name, given in (("others", trees()), ("chance", None)):
        factors = TotalsModel.of(learned, given).told(world.rows)[0]
        off = [
            np.log((world.seconds[chosen] * np.exp(factors[chosen])).sum() / latency)
            for chosen, latency in made
        ]
        error[name] = np.std(off)
    assert error["others"] < 0.8 * error["chance"]


def test_factors_far_from_the_expected_are_found() -> None:
    world = World(6)
    world.factors = 4 * world.factors - 3
    totals = world.totals(80, 0.01)
    model = TotalsModel.of(totals, trees())
    for total in totals:
        factors = model.told(total.rows)[0]
        assert np.log((total.seconds * np.exp(factors)).sum() / total.latency) < 0.05


def test_candidates_without_kernels_are_no_error() -> None:
    model = TotalsModel.of(World(7).totals(20, 0.02), trees())
    nothing = np.zeros(0)
    assert len(model.deviations(np.zeros((0, 6), np.float32), nothing.astype(int), nothing, 3)) == 3
