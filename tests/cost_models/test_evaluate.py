"""Groups are held out whole, and what generalises is found."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from judge import (
    BEST,
    KINDS,
    METHODS,
    NEARLY,
    JudgedTable,
    NearScores,
    accuracy,
    evaluate,
)

from autoturbo.cost_models.features import PORTABLE
from autoturbo.cost_models.pretrained import (
    STANDARD,
    Pretrained,
    bundled,
    read_card,
    standard,
    train,
)
from autoturbo.datasets.measurements.shards import VERSIONS
from autoturbo.errors import InputError, UsageError
from autoturbo.schedule.work import Floats
from autoturbo.simulator.plan import COLUMNS

SETTINGS, KERNELS = 32, 5


def table(models: int = 3, targets: int = 2, failed: int = 0) -> JudgedTable:
    """Kernels that take longer than alone as their first column says, on every model and target."""
    rng = np.random.default_rng(0)
    pools = models * targets
    count = pools * SETTINGS
    rows = rng.uniform(0, 1, (count * KERNELS, len(PORTABLE))).astype(np.float32)
    base = rng.uniform(1, 2, len(rows)) * 1e-3
    times = base * np.exp(2 * rows[:, 0])
    owner = np.repeat(np.arange(count), KERNELS)
    latency = np.bincount(owner, times)
    measured = np.arange(count) >= failed
    pool = np.repeat(np.arange(pools), SETTINGS)
    return JudgedTable(
        rows=rows,
        base=base,
        launches=np.ones(len(rows), np.int64),
        times=np.where(measured[owner], times, np.nan),
        statistics=rng.uniform(1, 2, (len(rows), len(COLUMNS))),
        owner=owner,
        latency=np.where(measured, latency, np.nan),
        measured=measured,
        default=np.arange(count) % SETTINGS == 0,
        parent=np.where(np.arange(count) % SETTINGS, pool * SETTINGS, -1),
        bound=np.full(count, 1e-3),
        pool=pool,
        groups={
            "model": np.asarray([f"m{p // targets}" for p in pool], object),
            "target": np.asarray([f"t{p % targets}" for p in pool], object),
        },
    )


def test_the_cost_model_finds_what_holds_for_all() -> None:
    for result in evaluate(table(), ["squared"], KINDS):
        assert result.mean.pairwise > 0.94  # a split sees a third of the columns
        assert result.mean.error < 0.05
        assert result.guesses.better > result.guesses.pools // 2
        assert list(result.groups) == (
            ["m0", "m1", "m2"] if result.kind == "model" else ["t0", "t1"]
        )


@pytest.mark.full
def test_good_settings_weigh_more_and_failed_ones_nothing() -> None:
    some = table(failed=3)
    worth = np.bincount(some.owner, some.weights**2)  # weights of kernels are roots of shares
    assert (worth[:3] == 0).all()
    for pool in np.unique(some.pool):
        own = np.flatnonzero((some.pool == pool) & some.measured)
        best = own[some.latency[own].argmin()]
        assert worth[best] == pytest.approx(1)
        ratio = some.latency[own] / some.latency[best]
        assert worth[own] == pytest.approx(ratio**-2)
    kernels = some.owner == SETTINGS - 1
    share = some.times[kernels] / some.times[kernels].sum()
    assert some.weights[kernels] ** 2 == pytest.approx(share * worth[SETTINGS - 1])


def test_a_ranking_near_the_best_has_a_rank_a_recall_and_a_regret() -> None:
    measured = np.arange(1.0, 13.0)
    assert NearScores.of(measured**2, measured) == pytest.approx((1, 1, 0))
    assert NearScores.of(-measured, measured) == pytest.approx((-1, 0, 11))
    swapped = measured.copy()
    swapped[[0, 11]] = swapped[[11, 0]]  # the slowest first, the fastest last
    rank, recall, regret = NearScores.of(swapped, measured)
    assert rank == pytest.approx(1 - 6 * 2 * 11**2 / (12 * (12**2 - 1)))
    assert recall == pytest.approx(4 / BEST)
    assert regret == 11


def test_equal_predictions_and_equal_latencies_have_no_rank() -> None:
    measured = np.arange(1.0, 13.0)
    assert NearScores.of(np.ones(12), measured[::-1]).rank == 0
    assert NearScores.of(measured, np.ones(12)) == (0, 1, 0)
    assert NearScores.mean([]) == (0, 0, 0)


def neighbours(
    predicted: Sequence[float] | Floats, latency: Sequence[float] | Floats, parent: Sequence[int]
) -> JudgedTable:
    """A pool of settings of a kernel each, on two models; estimates alone predict what is given."""
    size = len(latency)
    pool = np.repeat([0, 1], size)
    seconds = np.tile(latency, 2)
    measured = np.isfinite(seconds)
    return JudgedTable(
        rows=np.zeros((2 * size, len(PORTABLE)), np.float32),
        base=np.tile(np.asarray(predicted, np.float64), 2),
        launches=np.ones(2 * size, np.int64),
        times=seconds,
        statistics=np.ones((2 * size, len(COLUMNS))),
        owner=np.arange(2 * size),
        latency=seconds,
        measured=measured,
        default=np.arange(2 * size) % size == 0,
        parent=np.where(np.tile(parent, 2) >= 0, np.tile(parent, 2) + pool * size, -1),
        bound=np.full(2 * size, 1e-3),
        pool=pool,
        groups={
            "model": np.asarray([f"m{p}" for p in pool], object),
            "target": np.full(2 * size, "t", object),
        },
    )


def near(known: JudgedTable) -> NearScores:
    """How what kernels take alone ranks near the best."""
    (result,) = evaluate(known, ["alone"], ["model"])
    assert all(scores == pytest.approx(result.near) for scores in result.near_groups.values())
    return result.near


ENOUGH = 2 * BEST + 1
"""Neighbours of which there is something to say."""


def test_only_neighbours_that_are_nearly_as_fast_as_the_best_count() -> None:
    good = np.linspace(1.01, NEARLY - 0.01, ENOUGH).tolist()
    slow = np.linspace(NEARLY + 0.01, 2, ENOUGH).tolist()
    # slow ones, and those that are drawn at random, are predicted the wrong way round
    predicted = [1.0, *good, *(1 / t for t in slow), *(1 / t for t in good)]
    parent = [-1, *[0] * (2 * ENOUGH), *[-1] * ENOUGH]
    assert near(neighbours(predicted, [1.0, *good, *slow, *good], parent)) == (1, 1, 0)
    all_near = [-1, *[0] * (3 * ENOUGH)]
    assert near(neighbours(predicted, [1.0, *good, *slow, *good], all_near)).rank < 0.5
    # a neighbour less, and too few are left to tell
    parent[1] = -1
    assert near(neighbours(predicted, [1.0, *good, *slow, *good], parent)) == (0, 0, 0)


@pytest.mark.parametrize("failed", [False, True])
def test_neighbours_are_ranked_from_what_their_parents_took(failed: bool) -> None:
    """One parent's kernels are predicted to take twice as long as they do."""
    fast, slow = np.linspace(1.01, 1.09, ENOUGH), np.linspace(1.11, 1.2, ENOUGH)
    latency = np.asarray([1.0, 1.1, *fast, *slow])
    predicted = np.asarray([2.0, 1.1, *(2 * fast), *slow])
    parent = [-1, -1, *[0] * ENOUGH, *[1] * ENOUGH]
    as_predicted = NearScores.of(predicted[2:], latency[2:])
    assert as_predicted.rank < 0
    assert as_predicted.recall == 0
    if failed:  # nothing is known of it: its neighbours are predicted as they are
        latency[0] = np.nan
        assert near(neighbours(predicted, latency, parent)) == pytest.approx(as_predicted)
    else:
        assert near(neighbours(predicted, latency, parent)) == pytest.approx((1, 1, 0))


@pytest.mark.full
def test_every_method_answers() -> None:
    found = {r.method: r for r in evaluate(table(failed=3), list(METHODS), ["model"])}
    assert list(found) == list(METHODS)
    assert found["squared"].mean.tau > found["alone"].mean.tau > found["macs"].mean.tau
    assert found["bound"].mean.pairwise == 0.5
    assert all(0 <= r.mean.top1 <= 1 for r in found.values())
    said = json.loads(json.dumps([r.as_json() for r in found.values()], allow_nan=False))
    without = {r["method"] for r in said if r["mean"]["error"] is None}
    assert without == {"pairwise", "ndcg"}  # they rank and predict no seconds


@pytest.mark.full
def test_what_is_held_out_is_not_learned_from() -> None:
    whole = table()
    spoilt = np.where(whole.groups["model"][whole.owner] == "m0", 1.0, whole.times)
    other = dataclasses.replace(whole, times=spoilt)
    held = whole.groups["model"] == "m0"
    for name in METHODS:
        learn = whole.measured & ~held
        first, second = METHODS[name](whole, learn), METHODS[name](other, learn)
        assert (first[held] == second[held]).all(), name


def test_one_group_alone_cannot_be_held_out() -> None:
    with pytest.raises(UsageError):
        list(evaluate(table(models=1), ["alone"], ["model"]))


def test_a_model_is_read_as_it_was_written(tmp_path: Path) -> None:
    known = table()
    model = train(known, {"note": 1})
    model.save(tmp_path / "m")
    again = Pretrained.load(tmp_path / "m")
    assert {**again.card, **model.card} == again.card
    assert set(again.card) - set(model.card) == {"factors_sha256"}
    assert again.card["settings"] == len(known.latency)
    assert (again.factors.predict(known.rows) == model.factors.predict(known.rows)).all()


@pytest.mark.parametrize("text", ["{", "[]", '{"features_schema": 0}'])
def test_a_damaged_card_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "card.json").write_text(text)
    with pytest.raises(InputError) as caught:
        Pretrained.load(tmp_path)
    assert caught.value.at.file == tmp_path / "card.json"


def test_a_model_of_other_columns_is_refused(tmp_path: Path) -> None:
    train(table(), {}).save(tmp_path)
    _edit(tmp_path, names=["ratio.other"])
    with pytest.raises(InputError) as caught:
        Pretrained.load(tmp_path)
    assert caught.value.at.file == tmp_path / "card.json"


def test_a_model_with_earlier_names_of_knobs_is_read(tmp_path: Path) -> None:
    train(table(), {}).save(tmp_path)
    text = (tmp_path / "card.json").read_text()
    assert "subgraph.tile_subdivision" in text
    (tmp_path / "card.json").write_text(text.replace("tile_subdivision", "tile_divisor"))
    assert Pretrained.load(tmp_path).card["settings"] > 0


@pytest.mark.parametrize("versions", [{**VERSIONS, "simulator": "0"}, {}, None])
def test_a_model_of_other_measurements_is_refused(tmp_path: Path, versions: object) -> None:
    train(table(), {"versions": VERSIONS}).save(tmp_path)
    assert Pretrained.load(tmp_path).card["versions"] == VERSIONS
    _edit(tmp_path, versions=versions)
    with pytest.raises(InputError) as caught:
        Pretrained.load(tmp_path)
    assert caught.value.at.file == tmp_path / "card.json"


def _edit(folder: Path, **changes: object) -> None:
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps({**card, **changes}))


@pytest.mark.full
def test_a_part_can_be_learned_from() -> None:
    known = table()
    model = train(known, {}, known.groups["model"] != "m0")
    assert model.card["models"] == ["m1", "m2"]
    assert model.card["settings"] == 4 * SETTINGS
    spoilt = np.where(known.groups["model"][known.owner] == "m0", 1.0, known.times)
    other = train(dataclasses.replace(known, times=spoilt), {}, known.groups["model"] != "m0")
    assert (other.factors.predict(known.rows) == model.factors.predict(known.rows)).all()


def test_the_model_in_the_package_says_what_it_is() -> None:
    card = standard().card
    assert STANDARD in bundled()
    assert standard() is standard()
    assert tuple(card["names"]) == PORTABLE
    assert set(card["versions"]) == set(VERSIONS)  # those that it is read with: the loader says
    assert card["versions"]["simulator"] == VERSIONS["simulator"]
    assert len(card["models"]) >= 10
    models, targets = (card["accuracy"][kind] for kind in KINDS)
    assert models["pairwise"] > 0.94
    assert targets["pairwise"] > 0.93
    assert models["near"]["rank"] > 0.69
    assert models["near"]["recall"] > 0.59
    assert targets["near"]["rank"] > 0.65
    assert targets["near"]["recall"] > 0.55
    assert [line.split()[2] for line in card["reproduce"]] == ["collect", "train", "measurements"]


@pytest.mark.full
def test_the_models_in_the_package_are_small_and_no_pickles() -> None:
    for folder in bundled().values():
        assert read_card(folder / "card.json")
        assert sorted(f.name for f in folder.iterdir()) == ["card.json", "factors.ubj"]
        assert sum(f.stat().st_size for f in folder.iterdir()) < 2e6


@pytest.mark.full
def test_accuracy_is_told_by_what_was_held_out() -> None:
    found = accuracy(table(), "squared")
    assert list(found) == list(KINDS)
    assert found["target"]["pairwise"] > 0.94
    assert found["model"]["first_guess"]["pools"] == 6
    assert set(found["target"]["near"]) == set(NearScores._fields)


def test_nothing_measured_is_nothing_to_learn() -> None:
    with pytest.raises(UsageError):
        train(table(failed=6 * SETTINGS), {})
