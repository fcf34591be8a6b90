"""Models, targets and runs by what the user calls them, and the calls of the Python interface."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import autoturbo
from autoturbo.commands.loading import chosen_dtype, load_model, load_targets
from autoturbo.datasets import workloads
from autoturbo.errors import ModelError, RunError, UsageError
from autoturbo.hardware import load_target

MODEL = "alexnet"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_workload_by_name_and_by_file_are_one_model() -> None:
    assert load_model(MODEL).hash == load_model(workloads.get(MODEL).file).hash


def test_batch_and_shapes() -> None:
    assert load_model(MODEL, batch=3).batch == 3
    shape = (2, 3, 224, 224)
    model = load_model(MODEL)
    name = model.tensors[model.inputs[0]].name
    assert load_model(MODEL, shapes={name: shape}).hash == load_model(MODEL, batch=2).hash


def test_a_path_is_never_a_workload() -> None:
    for name in (f"./{MODEL}", f"{MODEL}.onnx", Path(MODEL).absolute()):
        with pytest.raises(ModelError, match="no such file") as raised:
            load_model(name)
        assert str(raised.value.at.file) == str(name).removeprefix("./")


def test_a_name_that_no_file_can_have_is_told_as_any_other() -> None:
    with pytest.raises(ModelError, match="no such file"):
        load_model("x" * 5000)


def test_each_target_once() -> None:
    names = ["goya", "stcp920", "goya"]
    assert [target.name for target in load_targets(names)] == ["goya", "stcp920"]


def test_data_types() -> None:
    target = load_target("goya")
    assert chosen_dtype(target, None) == target.default_dtype
    assert chosen_dtype(target, "float32") == "float32"
    with pytest.raises(UsageError, match="goya does not compute in 'bfloat16'"):
        chosen_dtype(target, "bfloat16")


@pytest.mark.full
def test_tune_and_resume_in_python() -> None:
    model = autoturbo.load_model(MODEL, batch=2)
    target = autoturbo.load_target("stcp920")
    first = autoturbo.tune(model, target, trials=1, seed=3, database="autoturbo.db")
    again = autoturbo.resume(first.run[:8], trials=3)
    assert (again.run, again.measured, again.seed) == (first.run, 3, 3)
    whole = autoturbo.tune(model, target, trials=3, seed=3, database="other.db")
    assert again.best.measurement == whole.best.measurement
    again.best.schedule.save("best.json")
    assert Path("best.json").read_bytes() == whole.schedule_file.read_bytes()


@pytest.mark.full
def test_a_run_without_its_file_cannot_be_found_again() -> None:
    model = dataclasses.replace(autoturbo.load_model(MODEL, batch=1), source="")
    target = autoturbo.load_target("stcp920")
    first = autoturbo.tune(model, target, trials=1, database="autoturbo.db")
    with pytest.raises(RunError, match=f"run {first.run}: the file of its model is not recorded"):
        autoturbo.resume(first.run)


def test_results_hold_what_the_documentation_says() -> None:
    model = autoturbo.load_model(MODEL, batch=1)
    result = autoturbo.tune(model, autoturbo.load_target("stcp920"), trials=2)
    best = result.best.measurement
    assert isinstance(best, autoturbo.Measurement)
    assert isinstance(result.best.knobs, autoturbo.Knobs)
    assert best.latency == pytest.approx(result.study.best_value)
    assert result.measured == 2 <= len(result.study.trials) == result.settings
