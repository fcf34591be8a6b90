"""Collections: what is in them does not depend on how they came about."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from autoturbo.datasets.measurements import Progress, collect, load_measurements, parts_of
from autoturbo.datasets.measurements import shards as shard_files
from autoturbo.datasets.measurements.collect import begin, make_shard
from autoturbo.datasets.measurements.sampling import CandidateSource
from autoturbo.errors import ExecutorError, InputError, UsageError
from autoturbo.extras import how_to_install
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from tests.datasets.measurement_samples import (
    collection,
    content,
    few_draws,
    two_targets,
    write_models,
)

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def whole(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set made in one go."""
    folder = tmp_path_factory.mktemp("whole")
    collect(collection(models), folder)
    return folder


def test_it_has_a_shard_for_every_model_and_target(whole: Path) -> None:
    names = {path.split("/")[1].rsplit(".", 1)[0] for path in content(whole) if "/" in path}
    assert names == {
        f"chain{layers}-b4-{target}-float16"
        for layers in (3, 4)
        for target in ("stcp920", "ascend-910")
    }


@pytest.mark.full
def test_several_processes_make_the_same_files(whole: Path, models: Path, tmp_path: Path) -> None:
    collect(collection(models), tmp_path, jobs=2)
    assert content(tmp_path) == content(whole)


@pytest.mark.full
def test_the_order_of_models_changes_no_shard(whole: Path, models: Path, tmp_path: Path) -> None:
    asked = collection(models)
    collect(replace(asked, parts=asked.parts[:0:-1]), tmp_path)
    found = content(tmp_path)
    found.pop("collection.json")
    assert len(found) == 9
    assert found.items() <= content(whole).items()


def test_another_seed_makes_another_sample(whole: Path, models: Path, tmp_path: Path) -> None:
    collect(collection(models, seed=1), tmp_path)
    one, other = load_measurements(whole), load_measurements(tmp_path)
    assert one.settings["knobs"].tolist() != other.settings["knobs"].tolist()
    assert one.settings["knobs"][0] == other.settings["knobs"][0] == "{}"


@pytest.mark.full
def test_killed_in_the_middle_it_goes_on_where_it_was(
    whole: Path, models: Path, tmp_path: Path
) -> None:
    script = f"""
import sys, time
sys.path.append({str(Path(__file__).parents[2])!r})
from pathlib import Path
from tests.datasets.measurement_samples import collection
from autoturbo.datasets.measurements import collect
from autoturbo.datasets.measurements import shards
made = []
real = shards.atomic_write
def slow(path, data, *rest):
    made.append(path)
    if len(made) == 5:  # the second table of the second shard
        print("now", flush=True)
        time.sleep(60)
    real(path, data, *rest)
shards.atomic_write = slow
collect(collection(Path({str(models)!r})), Path({str(tmp_path)!r}))
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    left = content(tmp_path)
    assert len(left) == 5  # the collection, a shard, and a table of the second one
    seen: list[Progress] = []
    collect(collection(models), tmp_path, on_shard=seen.append)
    assert content(tmp_path) == content(whole)
    assert [step.made for step in seen] == [False, True, True, True]
    assert [step.done for step in seen] == [1, 2, 3, 4]


@pytest.mark.full
def test_processes_end_with_the_one_that_started_them(models: Path, tmp_path: Path) -> None:
    script = f"""
import sys, time
sys.path.append({str(Path(__file__).parents[2])!r})
from pathlib import Path
from tests.datasets.measurement_samples import collection
from autoturbo.datasets.measurements import collect
def wait(_progress):
    print("now", flush=True)
    time.sleep(60)
if __name__ == "__main__":
    asked = collection(Path({str(models)!r}), settings=2)
    collect(asked, Path({str(tmp_path / "data")!r}), jobs=2, on_shard=wait)
"""
    path = tmp_path / "begin.py"
    path.write_text(script)
    process = subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    process.send_signal(signal.SIGKILL)
    assert process.communicate(timeout=300)[0] == ""  # no one has its output open any more


def test_what_is_there_is_not_made_again(models: Path, tmp_path: Path) -> None:
    asked = collection(models, settings=3)
    collect(asked, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    collect(asked, tmp_path)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}


def test_a_file_that_is_deleted_is_made_again(models: Path, tmp_path: Path) -> None:
    asked = collection(models, settings=3)
    collect(asked, tmp_path)
    before = content(tmp_path)
    next((tmp_path / "kernels").iterdir()).unlink()
    collect(asked, tmp_path)
    assert content(tmp_path) == before


def test_a_folder_with_another_data_set_is_refused(models: Path, tmp_path: Path) -> None:
    begin(collection(models), tmp_path)
    with pytest.raises(InputError, match="seed, settings"):
        collect(collection(models, settings=4, seed=1), tmp_path)


def test_a_folder_that_cannot_be_made_is_named(models: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as caught:
        collect(collection(models), tmp_path / "file" / "data")
    assert caught.value.at.file == tmp_path / "file" / "data"


def test_a_model_that_changes_meanwhile_is_measured_as_it_was_read(tmp_path: Path) -> None:
    asked = collection(tmp_path / "models", settings=2)
    shutil.copy(tmp_path / "models" / "chain4.onnx", tmp_path / "models" / "chain3.onnx")
    collect(asked, tmp_path / "data")
    data = load_measurements(tmp_path / "data")
    assert set(data.settings["model"]) == {"chain3", "chain4"}
    assert set(data.settings["graph_hash"]) == {part.graph.hash for part in asked.parts}


def test_two_models_of_one_name_are_refused(tmp_path: Path) -> None:
    first, _ = write_models(tmp_path)
    (tmp_path / "other").mkdir()
    _, second = write_models(tmp_path / "other")
    renamed = second.rename(second.with_name(first.name))
    text = renamed.read_bytes().replace(b"chain4", b"chain3")
    renamed.write_bytes(text)
    with pytest.raises(UsageError, match="chain3-b4-"):
        parts_of([first, renamed], (None,), two_targets())


def test_a_model_named_twice_is_one(models: Path) -> None:
    files = write_models(models)
    assert len(parts_of([*files, *files], (None, 4), two_targets())) == 4


@pytest.mark.full
def test_a_process_that_dies_is_reported(models: Path, tmp_path: Path) -> None:
    asked = replace(collection(models), draws=_deadly)
    with pytest.raises(ExecutorError):
        collect(asked, tmp_path, jobs=2)
    collect(replace(asked, draws=few_draws), tmp_path)
    assert len(load_measurements(tmp_path)) > 0


def _deadly(_graph: Graph, _target: Target, _dtype: str) -> CandidateSource:
    time.sleep(0.1)
    os._exit(9)


def test_without_pyarrow_it_says_what_to_install(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError) as caught:
        collect(collection(models), tmp_path)
    assert str(caught.value) == (
        "data sets are Parquet files, which need pyarrow, which is not installed;"
        f" {how_to_install('parquet')}"
    )
    with pytest.raises(UsageError):
        load_measurements(tmp_path)
    assert content(tmp_path) == {}


def test_a_shard_is_there_when_its_seal_is(models: Path, tmp_path: Path) -> None:
    asked = collection(models, settings=2)
    name = asked.parts[0].name
    assert not shard_files.is_there(tmp_path, name)
    seal = make_shard(asked, asked.parts[0], tmp_path)
    assert shard_files.is_there(tmp_path, name)
    assert shard_files.read_seal(tmp_path, name) == seal
