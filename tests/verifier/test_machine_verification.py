"""Schedules on machines compute the model: regions, memory of parts and units, times, numbers."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoturbo.datasets import workloads
from autoturbo.errors import VerifyError
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware.machine_files import load_machine
from autoturbo.heterogeneous.evaluator import MachineEvaluator
from autoturbo.heterogeneous.machine_schedule import MachineSchedule
from autoturbo.heterogeneous.measurement import MachineMeasurement, measure_assignment
from autoturbo.heterogeneous.parts import Assignment, assign
from autoturbo.heterogeneous.verification import check_runs
from autoturbo.schedule.knobs import Knobs
from autoturbo.verifier import verify_schedule
from autoturbo.verifier.onnx_writer.scheduled_model import write_scheduled_model

FILE = workloads.get("squeezenet1_1").file


@pytest.fixture(scope="module")
def evaluator() -> MachineEvaluator:
    return MachineEvaluator(import_model(FILE, batch=1), load_machine("zcu102-vta4"), "int8")


def scheduled(evaluator: MachineEvaluator, seed: int) -> MachineSchedule:
    return evaluator.schedule_of(drawn(evaluator, seed), Knobs(), "drawn")


def drawn(evaluator: MachineEvaluator, seed: int) -> Assignment:
    profiles = evaluator.profiles
    rng = np.random.default_rng(seed)
    units = [int(rng.choice(may)) for may in profiles.units]
    cuts = set(rng.integers(0, len(units), 3).tolist())
    return assign(profiles.graph, profiles.layers, units, cuts)


@pytest.fixture(scope="module")
def one(evaluator: MachineEvaluator) -> MachineSchedule:
    return scheduled(evaluator, 0)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
def test_a_random_assignment_computes_the_model(evaluator: MachineEvaluator, seed: int) -> None:
    found = verify_schedule(scheduled(evaluator, seed), path=FILE)
    assert found.ok
    assert found.numbers is not None
    assert found.numbers.skipped is None


def kinds(schedule: MachineSchedule) -> set[str]:
    return {finding.kind for finding in check_runs(schedule)}


def test_parts_in_the_wrong_order_are_found(one: MachineSchedule) -> None:
    turned = dataclasses.replace(one.assignment, parts=one.assignment.parts[::-1])
    wrong = dataclasses.replace(one, assignment=turned, schedules=one.schedules[::-1])
    assert "order" in {finding.kind for finding in verify_schedule(wrong).regions}


def test_a_part_that_begins_too_early_is_found(one: MachineSchedule) -> None:
    last = max(one.runs, key=lambda run: run.begin)
    early = dataclasses.replace(last, begin=0.0, end=last.end - last.begin)
    runs = tuple(early if run is last else run for run in one.runs)
    assert "early" in kinds(dataclasses.replace(one, runs=runs))


def test_a_copy_that_is_missing_is_found(one: MachineSchedule) -> None:
    copy = next(run for run in one.runs if run.copied)
    runs = tuple(run for run in one.runs if run is not copy)
    assert kinds(dataclasses.replace(one, runs=runs)) == {"not there"}


def test_a_unit_that_does_two_things_at_once_is_found(one: MachineSchedule) -> None:
    on_cpu = [run for run in one.runs if run.unit == 0 and not run.copied]
    longer = dataclasses.replace(on_cpu[0], end=on_cpu[1].begin + 1e-6)
    runs = tuple(longer if run is on_cpu[0] else run for run in one.runs)
    assert "overlap" in kinds(dataclasses.replace(one, runs=runs))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
def test_what_units_hold_is_what_the_simulator_says(evaluator: MachineEvaluator, seed: int) -> None:
    found = measure_assignment(evaluator.profiles, drawn(evaluator, seed))
    assert isinstance(found, MachineMeasurement)
    schedule = scheduled(evaluator, seed)
    for unit, (name, held) in enumerate(found.held.items()):
        for memory, wrong in ((held, False), (held - 1, held > 0)):
            units = list(schedule.machine.units)
            units[unit] = dataclasses.replace(units[unit], memory=memory)
            machine = dataclasses.replace(schedule.machine, units=tuple(units))
            findings = check_runs(dataclasses.replace(schedule, machine=machine))
            assert bool(findings) == wrong
            assert all(f.kind == "memory" and f.message.startswith(name) for f in findings)


def test_several_passes_are_refused(one: MachineSchedule) -> None:
    share = dataclasses.replace(one.schedules[0].share, samples=2)
    first = dataclasses.replace(one.schedules[0], share=share)
    wrong = dataclasses.replace(one, schedules=(first, *one.schedules[1:]))
    with pytest.raises(VerifyError):
        _ = wrong.whole


def test_the_scheduled_model_names_the_unit_of_every_call(
    one: MachineSchedule, tmp_path: Path
) -> None:
    write_scheduled_model(one.whole, FILE, tmp_path / "out.onnx")
    model = onnx.load(tmp_path / "out.onnx", load_external_data=False)
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert facts["autoturbo.target"] == "zcu102-vta4"
    assert json.loads(facts["autoturbo.units"]) == ["cpu", "npu0", "npu1", "npu2", "npu3"]
    assert len(json.loads(facts["autoturbo.runs"])) == len(one.runs)
    calls = [
        {entry.key: entry.value for entry in node.metadata_props}
        for node in model.graph.node
        if any(entry.key == "autoturbo.unit" for entry in node.metadata_props)
    ]
    assert len(calls) == sum(len(part.order) for part in one.schedules)
    for call in calls:
        part = one.assignment.parts[int(call["autoturbo.unit_part"])]
        assert call["autoturbo.unit"] == one.machine.units[part.unit].name
