from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from autoturbo.cost_models import booster
from autoturbo.cost_models.booster import Booster
from autoturbo.cost_models.features import Rows
from autoturbo.cost_models.model import FEWEST, CostModel, Example, merged
from autoturbo.errors import InputError

NAMES = ("a", "b", "c")


def example(rng: np.random.Generator, *, feasible: bool = True) -> Example:
    """Kernels whose time is ``exp(2 a + b)``; infeasible where the setting says 1."""
    kernels = int(rng.integers(1, 5))
    rows = rng.uniform(0, 1, (kernels, 3)).astype(np.float32)
    launches = rng.integers(1, 9, kernels)
    times = np.exp(2 * rows[:, 0] + rows[:, 1]).astype(np.float64) if feasible else None
    setting = np.asarray([0.0 if feasible else 1.0, rng.random()], np.float32)
    return Example(rows, launches, setting, times)


def examples(count: int, seed: int = 0, failed: int = 0) -> list[Example]:
    rng = np.random.default_rng(seed)
    return [example(rng, feasible=i >= failed) for i in range(count + failed)]


def settings_of(chosen: list[Example]) -> Rows:
    return np.stack([e.setting for e in chosen])


def truth(example: Example) -> float:
    assert example.times is not None
    return float(example.times @ example.launches)


def trained(count: int = 300, failed: int = 0) -> CostModel:
    model = CostModel(NAMES)
    assert model.fit(examples(count, failed=failed))
    return model


def test_too_few_measured_settings_train_nothing() -> None:
    model = CostModel(NAMES)
    assert not model.fit(examples(FEWEST - 1, failed=20))
    assert not model.trained
    with pytest.raises(ValueError, match="before fit"):
        model.predict(examples(1))


def test_kernels_that_take_long_matter_more() -> None:
    """Two kernels that look the same: what is said of a third is nearer to the heavier one's."""
    rows = np.asarray([[0.5, 0.1, 0.0], [0.5, 0.1, 0.1]], np.float32)
    between = Example(
        np.asarray([[0.5, 0.1, 0.05]], np.float32), np.asarray([1]), np.zeros(2, np.float32)
    )
    said = []
    for launches in ([1, 100], [100, 1]):
        model = CostModel(NAMES)
        times = np.asarray([1.0, 4.0])
        one = Example(rows, np.asarray(launches), np.zeros(2, np.float32), times)
        assert model.fit([one] * FEWEST)
        said.append(float(model.predict([between])[0]))
    assert said[0] > said[1]


def test_a_setting_is_the_sum_over_its_kernels() -> None:
    fresh = examples(200, seed=1)
    predicted = trained().predict(fresh)
    errors = np.abs(np.log(predicted / np.asarray([truth(e) for e in fresh])))
    assert np.median(errors) < 0.1
    one = fresh[0]
    twice = Example(one.rows, 2 * one.launches, one.setting)
    assert trained().predict([twice])[0] == pytest.approx(2 * predicted[0])


def test_a_kernel_that_was_measured_is_not_guessed() -> None:
    data = examples(60)
    rows, launches = data[0].rows, data[0].launches
    odd = Example(rows, launches, data[0].setting, 40 * np.exp(rows[:, 0]).astype(np.float64))
    often = Example(rows[:1], launches[:1], odd.setting, np.exp(np.full(1, 1.0)))
    model = CostModel(NAMES)
    assert model.fit([*data[1:], odd])
    assert model.predict([odd])[0] == pytest.approx(truth(odd))
    # measured differently, it takes what it took in the mean, of logarithms
    slower = dataclasses.replace(often, times=np.exp(np.full(1, 3.0)))
    assert model.fit([*data[1:], often, slower])
    assert model.predict([often])[0] == pytest.approx(np.exp(2.0) * launches[0])
    # a neighbour is guessed, by trees that one odd kernel does not turn
    near = Example(odd.rows + np.float32(1e-3), launches, odd.setting)
    assert model.predict([near])[0] < truth(odd) / 2


def test_order_of_unseen_settings() -> None:
    fresh = examples(100, seed=2)
    predicted, real = trained().predict(fresh), np.asarray([truth(e) for e in fresh])
    pairs = [(i, j) for i in range(100) for j in range(i) if real[i] != real[j]]
    right = sum((predicted[i] < predicted[j]) == (real[i] < real[j]) for i, j in pairs)
    assert right / len(pairs) > 0.95


def test_the_same_examples_give_the_same_model_to_the_bit() -> None:
    fresh = examples(50, seed=3)
    assert trained(failed=9).predict(fresh).tobytes() == trained(failed=9).predict(fresh).tobytes()


def test_failed_settings_teach_feasibility() -> None:
    model = trained(count=60, failed=30)
    good, bad = examples(20, seed=4), examples(0, seed=5, failed=20)
    assert model.feasibility(settings_of(good)).min() > 0.8
    assert model.feasibility(settings_of(bad)).max() < 0.2
    assert model.trained_on == {"measured": 60, "failed": 30}


@pytest.mark.full
def test_without_failures_everything_is_feasible() -> None:
    assert trained().feasibility(settings_of(examples(3))).tolist() == [1.0, 1.0, 1.0]


def test_more_examples_can_be_learned_on_top() -> None:
    model = trained(count=20)
    fresh = examples(200, seed=6)
    real = np.asarray([truth(e) for e in fresh])
    before = np.abs(np.log(model.predict(fresh) / real)).mean()
    model.fit(examples(300, seed=7), more=True)
    assert np.abs(np.log(model.predict(fresh) / real)).mean() < before


@pytest.mark.full
def test_a_kernel_without_time_is_left_out() -> None:
    some = examples(20)
    idle = Example(some[0].rows, some[0].launches, some[0].setting, np.zeros(len(some[0].rows)))
    model = CostModel(NAMES)
    assert model.fit([*some, idle])
    assert np.isfinite(model.predict(some)).all()


@pytest.mark.full
def test_nothing_to_predict() -> None:
    assert trained().predict([]).shape == (0,)
    empty = Example(np.zeros((0, 3), np.float32), np.zeros(0, np.int64), np.zeros(2, np.float32))
    assert trained().predict([empty, examples(1)[0]])[0] == 0.0


def test_a_saved_model_predicts_the_same(tmp_path: Path) -> None:
    model = trained(failed=20)
    model.save(tmp_path / "model", {"data": "made up"})
    again = CostModel.load(tmp_path / "model")
    fresh = examples(20, seed=8)
    assert again.predict(fresh).tobytes() == model.predict(fresh).tobytes()
    assert (
        again.feasibility(settings_of(fresh)).tobytes()
        == model.feasibility(settings_of(fresh)).tobytes()
    )
    assert (again.names, again.trained_on) == (model.names, model.trained_on)
    names = sorted(p.name for p in (tmp_path / "model").iterdir())
    assert names == ["card.json", "feasible.ubj", "times.ubj"]
    assert json.loads((tmp_path / "model/card.json").read_text())["data"] == "made up"


@pytest.mark.full
def test_a_model_without_failures_is_saved_too(tmp_path: Path) -> None:
    trained().save(tmp_path)
    assert CostModel.load(tmp_path).feasibility(settings_of(examples(1))).tolist() == [1.0]


def test_a_model_of_other_features_is_refused(tmp_path: Path) -> None:
    trained().save(tmp_path)
    card = json.loads((tmp_path / "card.json").read_text())
    (tmp_path / "card.json").write_text(json.dumps({**card, "features_schema": 99}))
    with pytest.raises(InputError, match="features of version 99"):
        CostModel.load(tmp_path)


@pytest.mark.parametrize("text", ["", '{"names": []}'])
def test_a_damaged_card_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "card.json").write_text(text)
    with pytest.raises(InputError, match=r"card\.json"):
        CostModel.load(tmp_path)


def test_damaged_trees_are_refused(tmp_path: Path) -> None:
    trained().save(tmp_path)
    (tmp_path / "times.ubj").write_bytes(b"not trees")
    with pytest.raises(InputError, match=r"times\.ubj"):
        CostModel.load(tmp_path)
    with pytest.raises(InputError, match="missing"):
        Booster.load(tmp_path / "missing.ubj", "reg:squarederror", "")


@pytest.mark.full
def test_an_untrained_booster_has_nothing_to_say(tmp_path: Path) -> None:
    booster = Booster("reg:squarederror")
    with pytest.raises(ValueError, match="before fit"):
        booster.save(tmp_path / "x.ubj")
    with pytest.raises(ValueError, match="before fit"):
        booster.predict(np.zeros((1, 1), np.float32))


@pytest.mark.full
def test_equal_kernels_are_learned_as_one() -> None:
    rng = np.random.default_rng(3)
    few = rng.uniform(0, 1, (40, 5)).astype(np.float32)
    rows = few[rng.integers(0, len(few), 400)]
    labels = rows[:, 0] + rng.normal(0, 0.1, len(rows))
    weights = rng.uniform(0.5, 2, len(rows))
    ours, means, total = merged(rows, labels, weights)
    seen = dict.fromkeys(map(bytes, rows))
    assert [bytes(row) for row in ours] == list(seen)  # each once, as they came
    first = (rows == ours[0]).all(axis=1)
    assert total[0] == pytest.approx(weights[first].sum())
    assert means[0] == pytest.approx(np.average(labels[first], weights=weights[first]))
    whole, short = Booster("reg:squarederror"), Booster("reg:squarederror")
    whole.fit(rows, labels, weights)
    short.fit(ours, means, total)
    np.testing.assert_allclose(short.predict(few), whole.predict(few), atol=1e-5)


@pytest.mark.full
def test_nothing_to_merge() -> None:
    rows, labels = np.zeros((0, 5), np.float32), np.zeros(0)
    assert [len(part) for part in merged(rows, labels, labels)] == [0, 0, 0]


@pytest.mark.full
def test_rows_held_whole_or_in_bins_give_the_same_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    rows = rng.uniform(0, 1, (600, 4)).astype(np.float32)  # more values than bins
    labels = (rows[:, 0] * rows[:, 1]).astype(np.float64)
    weights = rng.uniform(0.5, 2, len(rows))
    whole, binned = Booster("reg:squarederror"), Booster("reg:squarederror")
    whole.fit(rows, labels, weights)
    monkeypatch.setattr(booster, "_WHOLE", 0)
    binned.fit(rows, labels, weights)
    assert whole.predict(rows).tolist() == binned.predict(rows).tolist()
