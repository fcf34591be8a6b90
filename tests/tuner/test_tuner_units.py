"""Tuning on a machine of several units: recorded, resumed, handed out as on a target."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from autoturbo.commands.stored_runs import resume
from autoturbo.database import Database
from autoturbo.errors import InfeasibleError, UsageError
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine import Machine
from autoturbo.hardware.machine_files import load_machine
from autoturbo.heterogeneous.evaluator import MachineEvaluator
from autoturbo.heterogeneous.files import decided
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.progress import Progress
from autoturbo.tuning.result import TuneResult
from autoturbo.tuning.tuner import tune
from autoturbo.verifier.findings import Check
from tests.search.fork_model import save_fork


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return import_model(save_fork(tmp_path_factory.mktemp("fork")))


@pytest.fixture(scope="module")
def machine() -> Machine:
    return load_machine("zcu102-vta4")


def run(model: Graph, machine: Machine, folder: Path, **changes: Any) -> TuneResult:
    folder.mkdir(exist_ok=True)
    values: dict[str, Any] = {"trials": 30, **changes}
    return tune(model, machine, database=folder / "a.db", runs_folder=folder / "runs", **values)


def test_the_best_assignment_is_kept_and_read_back(
    model: Graph, machine: Machine, tmp_path: Path
) -> None:
    result = run(model, machine, tmp_path, verify=True)
    assert set(result.baselines) == {"cpu", "static", "profiled", "partition_tuner"}
    assert result.default == result.baselines["partition_tuner"]
    assert result.best.measurement.latency <= min(m.latency for m in result.baselines.values())
    assert result.best.verified == tuple(Check)
    with Database.open(tmp_path / "a.db", create=False) as database:
        (best,) = database.best()
        assert [t.knobs for t in database.trials(result.run)] == [t.knobs for t in result.trials]
    assert (best.target, best.knobs) == ("zcu102-vta4", result.best.knobs)
    stored = decided(best.schedule, model, machine, "a.db")
    again = MachineEvaluator(model, machine, "int8").rebuilt(stored, "a.db")
    assert again.text == best.schedule == result.schedule_file.read_text()


@pytest.mark.full
def test_a_run_goes_on_as_if_it_had_never_stopped(
    model: Graph, machine: Machine, tmp_path: Path
) -> None:
    short = run(model, machine, tmp_path / "short", trials=11)
    longer = resume(
        short.run, database=tmp_path / "short/a.db", load_graph=lambda _: model, trials=30
    )
    whole = run(model, machine, tmp_path / "whole")
    assert [t.knobs for t in longer.trials] == [t.knobs for t in whole.trials]
    assert longer.schedule_file.read_bytes() == whole.schedule_file.read_bytes()


@pytest.mark.full
def test_all_samplers_begin_with_the_same_assignments(
    model: Graph, machine: Machine, tmp_path: Path
) -> None:
    """Trial 0, every unit alone, and what the baselines decide: the best of them is handed out."""
    annealed = run(model, machine, tmp_path / "annealing", trials=12)
    for sampler in ("random", "tpe"):
        other = run(model, machine, tmp_path / sampler, trials=12, sampler=sampler)
        best = min(m.latency for m in other.baselines.values())
        assert other.best.measurement.latency <= best
        with_starts = [t.knobs for t in other.trials][:5]
        assert with_starts == [t.knobs for t in annealed.trials][:5]


@pytest.mark.full
def test_what_was_measured_before_a_kill_is_not_measured_again(
    model: Graph, machine: Machine, tmp_path: Path
) -> None:
    class KilledError(BaseException):
        pass

    def kill(progress: Progress) -> None:
        if progress.done == 14:
            raise KilledError

    with pytest.raises(KilledError):
        run(model, machine, tmp_path / "killed", on_progress=kill)
    file = tmp_path / "killed/a.db"
    with Database.open(file, create=False) as database:
        (info,) = database.runs()
    assert info.trials >= 13
    fresh: list[int] = []
    longer = resume(
        info.id, database=file, load_graph=lambda _: model,
        on_progress=lambda progress: None if progress.ended else fresh.append(progress.done),
    )  # fmt: skip
    assert len(fresh) == 30 - info.trials
    whole = run(model, machine, tmp_path / "whole")
    assert [t.knobs for t in longer.trials] == [t.knobs for t in whole.trials]


def test_other_samplers_work_on_the_same_space(
    model: Graph, machine: Machine, tmp_path: Path
) -> None:
    result = run(model, machine, tmp_path, sampler="random", trials=8)
    assert result.measured == 8
    assert len({trial.knobs for trial in result.trials}) == 8
    assert result.study.trials[0].params["cut before b"] in (True, False)


@pytest.mark.full
def test_any_number_of_workers_gives_the_same(
    model: Graph, machine: Machine, tmp_path: Path
) -> None:
    alone = run(model, machine, tmp_path / "1")
    shared = run(model, machine, tmp_path / "2", jobs=2)
    assert [t.knobs for t in alone.trials] == [t.knobs for t in shared.trials]
    assert alone.schedule_file.read_bytes() == shared.schedule_file.read_bytes()


def test_what_a_machine_cannot_be_asked_for(model: Graph, machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="energy"):
        run(model, machine, tmp_path, objective="energy")
    with pytest.raises(UsageError, match="one objective"):
        run(model, machine, tmp_path, objective="latency,ddr-bytes")
    units = tuple(dataclasses.replace(unit, memory=1000) for unit in machine.units)
    small = dataclasses.replace(machine, units=units)
    with pytest.raises(InfeasibleError):
        run(model, small, tmp_path)


def test_knobs_of_units_are_for_machines(model: Graph) -> None:
    from autoturbo.hardware import load_target
    from autoturbo.simulator.evaluator import Evaluator
    from autoturbo.simulator.measurement import Failure

    knobs = Knobs.from_dict({"units": {"layers": {"b": "npu0"}}})
    found = Evaluator(model, load_target("stcp920"), "float16").evaluate(knobs)
    assert isinstance(found, Failure)
    assert "for machines of several processing units" in found.message
