from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from autoturbo.cost_models import booster
from autoturbo.cost_models.booster import Booster
from autoturbo.cost_models.contract import Example, Kernels
from autoturbo.cost_models.features import Rows
from autoturbo.cost_models.model import FEWEST, CostModel, merged
from autoturbo.errors import InputError


def example(rng: np.random.Generator, *, feasible: bool = True) -> Example:
    """Kernels whose time is ``exp(2 a + b)``; infeasible where the setting says 1."""
    kernels = int(rng.integers(1, 5))
    rows = rng.uniform(0, 1, (kernels, 3)).astype(np.float32)
    launches = rng.integers(1, 9, kernels)
    times = np.exp(2 * rows[:, 0] + rows[:, 1]).astype(np.float64) if feasible else None
    setting = np.asarray([0.0 if feasible else 1.0, rng.random()], np.float32)
    return Example(rows, launches, setting, np.ones(kernels), times)


def examples(count: int, seed: int = 0, failed: int = 0) -> list[Example]:
    rng = np.random.default_rng(seed)
    return [example(rng, feasible=i >= failed) for i in range(count + failed)]


def settings_of(chosen: list[Example]) -> Rows:
    return np.stack([e.setting for e in chosen])


def truth(example: Example) -> float:
    assert example.times is not None
    return float(example.times @ example.launches)


def trained(count: int = 300, failed: int = 0) -> CostModel:
    return CostModel.of(examples(count, failed=failed))


def told(model: CostModel, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return model.times.predict(Kernels(rows, np.ones(len(rows))))


def predicted(model: CostModel, chosen: list[Example]) -> np.ndarray:
    """Latencies as the model of a run is asked for them."""
    return np.asarray([np.exp(told(model, e.rows)[0]) @ (e.launches * e.base) for e in chosen])


def test_kernels_that_take_long_matter_more() -> None:
    """Two kernels that look the same: what is said of a third is nearer to the heavier one's."""
    rows = np.asarray([[0.5, 0.1, 0.0], [0.5, 0.1, 0.1]], np.float32)
    between = np.asarray([[0.5, 0.1, 0.05]], np.float32)
    said = []
    for launches in ([1, 100], [100, 1]):
        times, setting = np.asarray([1.0, 4.0]), np.zeros(2, np.float32)
        one = Example(rows, np.asarray(launches), setting, np.ones(2), times)
        said.append(float(told(CostModel.of([one] * FEWEST), between)[0][0]))
    assert said[0] > said[1]


def test_a_setting_is_the_sum_over_its_kernels() -> None:
    fresh = examples(200, seed=1)
    said = predicted(trained(), fresh)
    errors = np.abs(np.log(said / np.asarray([truth(e) for e in fresh])))
    assert np.median(errors) < 0.1


def test_a_kernel_that_was_measured_is_not_guessed() -> None:
    data = examples(60)
    rows, launches = data[0].rows, data[0].launches
    times = 40 * np.exp(rows[:, 0]).astype(np.float64)
    odd = dataclasses.replace(data[0], times=times)
    often = Example(rows[:1], launches[:1], odd.setting, np.ones(1), np.exp(np.full(1, 1.0)))
    model = CostModel.of([*data[1:], odd])
    assert predicted(model, [odd])[0] == pytest.approx(truth(odd))
    assert not told(model, rows)[1].any()
    # measured differently, it takes what it took in the mean, of logarithms
    slower = dataclasses.replace(often, times=np.exp(np.full(1, 3.0)))
    model = CostModel.of([*data[1:], often, slower])
    assert predicted(model, [often])[0] == pytest.approx(np.exp(2.0) * launches[0])
    # a neighbour is guessed, by trees that one odd kernel does not turn
    near = dataclasses.replace(odd, rows=odd.rows + np.float32(1e-3))
    assert predicted(model, [near])[0] < truth(odd) / 2
    assert np.isnan(told(model, near.rows)[1]).all()


def test_order_of_unseen_settings() -> None:
    fresh = examples(100, seed=2)
    said, real = predicted(trained(), fresh), np.asarray([truth(e) for e in fresh])
    pairs = [(i, j) for i in range(100) for j in range(i) if real[i] != real[j]]
    right = sum((said[i] < said[j]) == (real[i] < real[j]) for i, j in pairs)
    assert right / len(pairs) > 0.95


def test_the_same_examples_give_the_same_model_to_the_bit() -> None:
    fresh = examples(50, seed=3)
    first, second = trained(failed=9), trained(failed=9)
    assert predicted(first, fresh).tobytes() == predicted(second, fresh).tobytes()
    rows = settings_of(fresh)
    assert first.feasibility(rows).tobytes() == second.feasibility(rows).tobytes()


def test_failed_settings_teach_feasibility() -> None:
    model = trained(count=60, failed=30)
    good, bad = examples(20, seed=4), examples(0, seed=5, failed=20)
    assert model.feasibility(settings_of(good)).min() > 0.8
    assert model.feasibility(settings_of(bad)).max() < 0.2


@pytest.mark.full
def test_without_failures_everything_is_feasible() -> None:
    assert trained().feasibility(settings_of(examples(3))).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.full
def test_a_kernel_without_time_is_left_out() -> None:
    some = examples(20)
    idle = dataclasses.replace(some[0], times=np.zeros(len(some[0].rows)))
    assert np.isfinite(predicted(CostModel.of([*some, idle]), some)).all()


@pytest.mark.full
def test_nothing_to_predict() -> None:
    model = trained(failed=9)
    assert [len(part) for part in told(model, np.zeros((0, 3), np.float32))] == [0, 0]
    assert model.feasibility(np.zeros((0, 2), np.float32)).shape == (0,)


def grown() -> Booster:
    rows = np.concatenate([example.rows for example in examples(40)])
    return Booster.of(rows, rows[:, 0].astype(np.float64))


def test_saved_trees_say_the_same(tmp_path: Path) -> None:
    trees, rows = grown(), examples(1)[0].rows
    again = Booster.load(tmp_path / "times.ubj", trees.save(tmp_path / "times.ubj"))
    assert again.predict(rows).tobytes() == trees.predict(rows).tobytes()


def test_damaged_trees_are_refused(tmp_path: Path) -> None:
    trees = grown()
    checksum = trees.save(tmp_path / "times.ubj")
    (tmp_path / "times.ubj").write_bytes(b"not trees")
    with pytest.raises(InputError) as caught:
        Booster.load(tmp_path / "times.ubj", checksum)
    assert caught.value.at.file == tmp_path / "times.ubj"
    with pytest.raises(InputError) as caught:
        Booster.load(tmp_path / "missing.ubj", "")
    assert caught.value.at.file == tmp_path / "missing.ubj"


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
    whole, short = Booster.of(rows, labels, weights), Booster.of(ours, means, total)
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
    whole = Booster.of(rows, labels, weights)
    monkeypatch.setattr(booster, "WHOLE", 0)
    binned = Booster.of(rows, labels, weights)
    assert whole.predict(rows).tolist() == binned.predict(rows).tolist()
