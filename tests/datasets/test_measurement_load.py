"""What is read is what was measured, and nothing that is damaged is read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from autoturbo.datasets.measurements import (
    Measurements,
    collect,
    load_measurements,
    make_card,
)
from autoturbo.datasets.measurements.sampling import TURNS
from autoturbo.datasets.measurements.shards import MEASURES, VERSIONS
from autoturbo.errors import InputError
from autoturbo.graph.onnx_import import import_model
from autoturbo.schedule.knobs import AUTO
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure
from tests.datasets.measurement_samples import collection, content, two_targets

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def folder(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("data")
    collect(collection(models), found)
    return found


@pytest.fixture(scope="module")
def data(folder: Path) -> Measurements:
    return load_measurements(folder)


def test_settings_measure_again_what_the_data_set_says(data: Measurements, models: Path) -> None:
    targets = {target.hash: target for target, _ in two_targets()}
    evaluators = {
        (layers, key): Evaluator(import_model(models / f"chain{layers}.onnx"), target, "float16")
        for layers in (3, 4)
        for key, target in targets.items()
    }
    assert len(data) == 64
    assert 0 < (~data.measured).sum() < 32
    for row in range(len(data)):
        layers = int(data.settings["model"][row].removeprefix("chain"))
        evaluator = evaluators[layers, data.settings["target_hash"][row]]
        knobs = data.setting(row)
        outcome = evaluator.evaluate(knobs)
        low, high = data.offsets[row : row + 2]
        if isinstance(outcome, Failure):
            assert (data.settings["outcome"][row], data.settings["message"][row]) == (
                "invalid",
                outcome.message,
            )
            assert low == high
            continue
        assert data.settings["message"][row] is None
        assert tuple(data.times[low:high].tolist()) == outcome.subgraph_times
        for name in MEASURES:
            expected = dict(outcome.as_json())[name]
            found = data.settings[name][row]
            assert found == expected or (expected is None and np.isnan(found))
        plan, again = data.plan(row), evaluator.statistics(knobs)
        assert plan is not None
        assert again is not None
        assert np.array_equal(plan.values, again.values)
        assert plan.launches.tolist() == again.launches.tolist()
        assert plan.overrides == again.overrides


def test_kernels_sum_up_to_the_latency_where_clusters_work_alike(data: Measurements) -> None:
    alike = data.settings["alike"] == 1
    assert 0 < alike.sum() < data.measured.sum()
    assert data.sums[alike] == pytest.approx(data.latency[alike], rel=1e-12)


def test_a_pipeline_replayed_is_near_its_latency(data: Measurements) -> None:
    alike = data.settings["alike"] == 1
    pipeline = np.asarray(
        [data.setting(row).cluster_partitioning == "pipeline" for row in range(len(data))]
    )
    pipeline &= data.measured & ~alike
    assert data.replayed[alike].tolist() == data.sums[alike].tolist()
    assert pipeline.sum() > 3
    assert data.replayed[pipeline] == pytest.approx(data.latency[pipeline], rel=0.02)
    assert data.settings["loops"][pipeline].max() > 1
    assert (data.sums[pipeline] > 1.2 * data.latency[pipeline]).any()


def test_times_are_kernels_and_what_comes_before_them(data: Measurements) -> None:
    fixed = {
        target.hash: target.overheads.kernel_launch + target.overheads.barrier
        for target, _ in two_targets()
    }
    paid = np.asarray([fixed[data.settings["target_hash"][row]] for row in data.owner.tolist()])
    assert (data.kernels["kernel_s"] > 0).all()
    before = data.times - data.kernels["kernel_s"] - paid
    assert (before > -1e-12).all()
    assert (before > 1e-9).any()


def test_sub_graphs_read_from_earlier_ones(data: Measurements) -> None:
    place = np.arange(len(data.times)) - data.offsets[data.owner]
    reads = data.kernels["reads"]
    assert any(map(len, reads))
    assert all((made < reader).all() for made, reader in zip(reads, place, strict=True))


def test_a_chain_cut_everywhere_reads_link_by_link(data: Measurements) -> None:
    cut = [row for row in range(len(data)) if data.setting(row).max_layers == 1]
    assert cut
    for row in cut:
        low, high = data.offsets[row : row + 2]
        reads = [made.tolist() for made in data.kernels["reads"][low:high]]
        assert reads == [[], *([at] for at in range(high - low - 1))][: high - low]


def test_clusters_of_kernels_are_clusters_of_the_target(data: Measurements) -> None:
    clusters = np.asarray([data.target(row).clusters for row in data.owner.tolist()])
    first, own = data.kernels["first_cluster"], data.kernels["clusters"]
    assert (first + own <= clusters).all()
    assert (own >= 1).all()
    assert first.max() > 0


def test_targets_come_with_all_their_figures(data: Measurements) -> None:
    assert {t.hash for t in data.targets.values()} == {t.hash for t, _ in two_targets()}
    assert data.target(0).as_dict() == two_targets()[0][0].as_dict()


def test_every_row_names_the_versions(data: Measurements) -> None:
    for name, version in VERSIONS.items():
        assert data.settings[f"{name}_version"].tolist() == [version] * len(data)


def test_starts_come_first_and_half_of_the_others_are_mutants(data: Measurements) -> None:
    first = np.flatnonzero(data.settings["number"] == 0)
    assert first.tolist() == [0, 16, 32, 48]
    assert {data.settings["origin"][row] for row in first.tolist()} == {"default"}
    assert {data.settings["origin"][row + 1] for row in first.tolist()} == {"start"}
    assert set(data.settings["origin"][data.settings["number"] > 1]) == {*TURNS}
    mutants = data.settings["parent"] >= 0
    assert 24 <= mutants.sum() <= 40
    near = np.isin(data.settings["origin"], ["near start", "near best"])
    assert mutants.tolist() == near.tolist()
    assert (data.settings["parent"][mutants] < data.settings["number"][mutants]).all()


def test_no_setting_and_no_measurement_is_there_twice(data: Measurements) -> None:
    for pair in range(4):
        rows = data.pairs == pair
        assert len(set(data.settings["knobs"][rows])) == rows.sum()
    assert sum(data.repeats.values()) > 0


def test_what_a_target_has_no_place_for_is_not_measured(data: Measurements) -> None:
    """A single cluster has nothing to share out."""
    single = np.flatnonzero(data.settings["target"] == "ascend-910")
    assert len(single) == 32
    asking = [row for row in single.tolist() if data.setting(row).cluster_partitioning != AUTO]
    assert asking
    assert not data.measured[asking].any()


EARLIER = Path(__file__).parent / "earlier"
"""Collected by a release whose reading and writing were other code."""


def test_a_data_set_of_an_earlier_release_is_read() -> None:
    data, card = load_measurements(EARLIER), json.loads((EARLIER / "card.json").read_text())
    names = ("rows", "outcomes", "pairs", "origins", "latency_over_default", "repeats_left_out")
    assert "near default" in data.settings["origin"]  # as that release called it
    made = dict(make_card(data))
    assert {name: made[name] for name in names} == {name: card[name] for name in names}
    for row in range(len(data)):
        plan = data.plan(row)
        assert plan is not None
        assert len(plan.values) == len(plan.launches) > 0


def _damage(folder: Path, copy: Path, change: str) -> Path:
    """A copy of a data set with one file changed."""
    for name, text in content(folder).items():
        path = copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text[:-1] + bytes([text[-1] ^ 1]) if name == change else text)
    return copy


@pytest.mark.parametrize("table", ["settings", "kernels"])
def test_a_damaged_file_is_named(folder: Path, tmp_path: Path, table: str) -> None:
    name = f"{table}/chain4-b4-ascend-910-float16.parquet"
    copy = _damage(folder, tmp_path, name)
    with pytest.raises(InputError) as caught:
        load_measurements(copy)
    assert str(caught.value) == (
        f"{copy / name}: a damaged shard: its checksum is not the one it was written with; "
        "delete it, and 'autoturbo dataset collect' makes the shard again"
    )


def test_a_damaged_seal_is_named(folder: Path, tmp_path: Path) -> None:
    name = "shards/chain3-b4-stcp920-float16.json"
    copy = _damage(folder, tmp_path, "")
    (copy / name).write_text("{")
    with pytest.raises(InputError) as caught:
        load_measurements(copy)
    assert caught.value.at.file == copy / name


def test_counts_are_checked(folder: Path, tmp_path: Path) -> None:
    copy = _damage(folder, tmp_path, "")
    path = copy / "shards/chain3-b4-stcp920-float16.json"
    seal = json.loads(path.read_text())
    path.write_text(json.dumps({**seal, "kernels": seal["kernels"] + 1}))
    with pytest.raises(InputError) as caught:
        load_measurements(copy)
    assert caught.value.at.file == copy / "kernels/chain3-b4-stcp920-float16.parquet"


@pytest.mark.parametrize("name", ["collection.json", "shards/chain3-b4-stcp920-float16.json"])
def test_another_version_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    copy = _damage(folder, tmp_path, "")
    values = json.loads((copy / name).read_text())
    (copy / name).write_text(json.dumps({**values, "schema": 99}))
    with pytest.raises(InputError) as caught:
        load_measurements(copy)
    assert caught.value.at.file == copy / name


def test_a_missing_shard_is_an_incomplete_data_set(folder: Path, tmp_path: Path) -> None:
    copy = _damage(folder, tmp_path, "")
    (copy / "shards/chain3-b4-stcp920-float16.json").unlink()
    with pytest.raises(InputError, match="3 of 4 shards"):
        load_measurements(copy)
    assert len(load_measurements(copy, partial=True)) == 48


def test_a_folder_without_a_data_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_measurements(tmp_path)
    assert caught.value.at.file == tmp_path / "collection.json"
    (tmp_path / "collection.json").write_text("[]")
    with pytest.raises(InputError) as caught:
        load_measurements(tmp_path)
    assert caught.value.at.file == tmp_path / "collection.json"
