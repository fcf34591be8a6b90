"""Schedule files of machines: read back as written; what is wrong with one is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from autoturbo.errors import ScheduleFileError
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware.machine_files import load_machine
from autoturbo.heterogeneous.evaluator import MachineEvaluator
from autoturbo.heterogeneous.files import decided, machine_schedule_schema
from autoturbo.heterogeneous.machine_schedule import MachineSchedule
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.unit_knobs import UnitKnobs
from tests.search.fork_model import save_fork

KNOBS = Knobs(units=UnitKnobs((("b", "npu"),), ("y",)))


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> MachineEvaluator:
    graph = import_model(save_fork(tmp_path_factory.mktemp("fork")))
    return MachineEvaluator(graph, load_machine("zcu102-vta"), "int8")


@pytest.fixture(scope="module")
def schedule(evaluator: MachineEvaluator) -> MachineSchedule:
    return evaluator.schedule(KNOBS)


def test_a_file_is_read_back_as_it_was_written(
    evaluator: MachineEvaluator, schedule: MachineSchedule, tmp_path: Path
) -> None:
    file = tmp_path / "s.json"
    schedule.save(file)
    jsonschema.Draft202012Validator(machine_schedule_schema()).validate(
        json.loads(file.read_text())
    )
    stored = decided(file.read_text(), schedule.model, schedule.machine, file)
    assert (stored.knobs, stored.scheduler) == (KNOBS, "units")
    assert stored.assignment == schedule.assignment
    assert evaluator.rebuilt(stored, file).text == file.read_text()


def changed(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.update(fields)


def no_copy(document: dict[str, Any]) -> None:
    document["runs"] = [run for run in document["runs"] if "copied_bytes" not in run]


def swapped(document: dict[str, Any]) -> None:
    document["parts"].reverse()


def lost(document: dict[str, Any]) -> None:
    document["parts"].pop()


def elsewhere(document: dict[str, Any]) -> None:
    document["parts"][-1]["unit"] = "npu"


def unknown(document: dict[str, Any]) -> None:
    document["parts"][0]["unit"] = "gpu"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (changed(format="x"), "format"),
        pytest.param(
            changed(format="autoturbo-schedule"),
            "format",
            marks=pytest.mark.full,
        ),
        pytest.param(
            changed(dtype="float32"),
            "dtype",
            marks=pytest.mark.full,
        ),
        (
            changed(model={"name": "x", "hash": "0", "batch": 2}),
            "model.hash",
        ),
        (changed(target={"name": "x", "hash": "0"}), "target.hash"),
        (changed(layers=[]), "layers"),
        pytest.param(changed(parts=5), "parts", marks=pytest.mark.full),
        (swapped, "parts[0]"),
        (lost, "parts"),
        (elsewhere, "parts[2].unit"),
        pytest.param(unknown, "parts[0].unit", marks=pytest.mark.full),
        (no_copy, "runs"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    evaluator: MachineEvaluator,
    schedule: MachineSchedule,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], None],
    field: str,
) -> None:
    document = json.loads(schedule.text)
    change(document)
    file = tmp_path / "s.json"
    file.write_text(json.dumps(document))
    with pytest.raises(ScheduleFileError) as caught:
        evaluator.rebuilt(decided(file.read_text(), schedule.model, schedule.machine, file), file)
    assert caught.value.at.field == field


def test_times_may_be_left_out(
    evaluator: MachineEvaluator, schedule: MachineSchedule, tmp_path: Path
) -> None:
    document = json.loads(schedule.text)
    del document["runs"], document["branches"]
    file = tmp_path / "s.json"
    file.write_text(json.dumps(document))
    stored = decided(file.read_text(), schedule.model, schedule.machine, file)
    assert evaluator.rebuilt(stored, file).runs == schedule.runs
