from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from autoturbo.commands.stored_runs import resume
from autoturbo.database import Database
from autoturbo.datasets import workloads
from autoturbo.errors import UsageError
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target, load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.schedule import Schedule
from autoturbo.search.progress import Progress
from autoturbo.search.warm_starts.starts import WarmStart, placed_starts
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement, Outcome
from autoturbo.simulator.measurers import measurement_of
from autoturbo.tuning.result import TuneResult
from autoturbo.tuning.tuner import tune
from autoturbo.verifier.findings import Check


@pytest.fixture(scope="module")
def model() -> Graph:
    return import_model(workloads.get("alexnet").file, batch=8)


def run(model: Graph, folder: Path, **changes: Any) -> TuneResult:
    values: dict[str, Any] = {"trials": 40, **changes}
    return tune(
        model,
        load_target("stcp920"),
        database=folder / "a.db",
        runs_folder=folder / "runs",
        **values,
    )


@pytest.mark.full
def test_a_real_model_is_tuned_the_same_way_by_any_number_of_workers(
    model: Graph, tmp_path: Path
) -> None:
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
    alone, shared = run(model, tmp_path / "1"), run(model, tmp_path / "2", jobs=2)
    assert alone.schedule_file.read_bytes() == shared.schedule_file.read_bytes()
    assert [t.knobs for t in alone.trials] == [t.knobs for t in shared.trials]
    assert alone.default is not None
    assert alone.best.measurement.latency <= alone.default.latency
    assert alone.default.latency < alone.baselines["tvm"].latency
    assert alone.baselines["graphturbo"].latency == alone.default.latency


@pytest.mark.full
def test_a_real_run_goes_on(model: Graph, tmp_path: Path) -> None:
    short = run(model, tmp_path, trials=25)
    longer = resume(short.run, database=tmp_path / "a.db", load_graph=lambda _: model, trials=50)
    assert longer.trials[: len(short.trials)] == short.trials
    assert longer.measured >= 50 > short.measured
    assert longer.best.measurement.latency <= short.best.measurement.latency


@pytest.mark.full
def test_real_schedules_are_verified(tmp_path: Path) -> None:
    model = import_model(
        workloads.get("squeezenet1_1").file, batch=8
    )  # alexnet's weights are large
    result = run(model, tmp_path, trials=2, baselines=())
    assert result.best.verified == (Check.REGIONS, Check.MEMORY)
    again = resume(result.run, database=tmp_path / "a.db", load_graph=lambda _: model, verify=True)
    assert again.best.verified == tuple(Check)
    with Database.open(tmp_path / "a.db") as store:
        (kept,) = store.best()
    assert kept.verified is not None
    assert kept.verified.checks == tuple(Check)


@pytest.mark.full
def test_most_real_settings_can_be_measured(model: Graph, tmp_path: Path) -> None:
    result = run(model, tmp_path, sampler="random", trials=60)
    measured = [t for t in result.trials if isinstance(t.outcome, Measurement)]
    assert len(measured) > 30


@pytest.mark.full
def test_ours_searches_sub_graphs_and_the_study_has_what_was_chosen(
    model: Graph, tmp_path: Path
) -> None:
    result = run(model, tmp_path, subgraphs=2)
    own = [bool(t.knobs.overrides) for t in result.trials]
    assert any(own)
    assert not own[0]
    for trial, mirrored in zip(result.trials, result.study.trials, strict=True):
        names = [name for name in mirrored.params if name.startswith("subgraph")]
        started = mirrored.params.get("start", "auto") != "auto"
        assert bool(names or started) == bool(trial.knobs.overrides)
        assert all(mirrored.params[name] != "auto" for name in names)
    assert len({t.knobs.id for t in result.trials}) == len(result.trials) > 40


@pytest.mark.full
@pytest.mark.parametrize(
    ("changes", "searched"),
    [
        ({"sampler": "random"}, False),
        ({"subgraphs": 0}, False),
        ({"sampler": "random", "subgraphs": 1}, True),
        ({"objective": "latency,ddr-bytes"}, True),
    ],
)
def test_others_search_sub_graphs_only_where_asked(
    model: Graph, tmp_path: Path, changes: dict[str, Any], *, searched: bool
) -> None:
    result = run(model, tmp_path, trials=20, baselines=(), **changes)
    names = {name for t in result.study.trials for name in t.params}
    assert any(name.startswith("subgraph") for name in names) == searched
    again = resume(result.run, database=tmp_path / "a.db", load_graph=lambda _: model, trials=24)
    begun = [t.knobs for t in result.trials]
    assert [t.knobs for t in again.trials[: len(begun)]] == begun


@pytest.mark.full
def test_placing_cuts_is_told_and_counts_as_time_of_the_run(
    model: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Progress] = []
    begin, clock = time.monotonic, [0.0]

    def slow(*args: Any, **named: Any) -> tuple[WarmStart, ...]:
        clock[0] += 1000.0
        return placed_starts(*args, **named)

    monkeypatch.setattr(time, "monotonic", lambda: begin() + clock[0])
    monkeypatch.setattr("autoturbo.search.warm_starts.beginning.placed_starts", slow)
    result = run(
        model, tmp_path, trials=40, time_budget=999.0, baselines=(), on_progress=seen.append
    )
    assert (seen[0].done, seen[0].phase) == (0, "planning")
    placing = [p for p in seen if p.phase]
    assert seen[: len(placing)] == placing
    assert any(p.phase == "planning 100 %" for p in placing)
    assert placing[-1].elapsed_s > 1000
    assert seen[len(placing)].elapsed_s > 1000
    assert result.measured == 1


@pytest.mark.full
def test_a_run_keeps_its_starts_and_goes_on_with_them(
    model: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "whole").mkdir()
    whole = run(model, tmp_path / "whole", trials=20)
    assert any(t.params["start"] != "auto" for t in whole.study.trials)
    begun = run(model, tmp_path, trials=20)
    with Database.open(tmp_path / "a.db") as store:
        assert store.run(begun.run).settings["starts"]
    monkeypatch.setattr("autoturbo.search.warm_starts.beginning.placed_starts", lambda *_, **__: ())
    again = resume(begun.run, database=tmp_path / "a.db", load_graph=lambda _: model, trials=40)
    assert [t.knobs for t in again.trials[: len(whole.trials)]] == [t.knobs for t in whole.trials]
    assert any(t.params["start"] != "auto" for t in again.study.trials if t.params)


# What is measured competes


@pytest.fixture(scope="module")
def small() -> Graph:
    return import_model(workloads.get("zfnet").file, batch=32)


SAMPLERS = ("cost-model", "random", "tpe", "nsgaii")


@pytest.mark.full
def test_trial_0_is_the_heuristic_at_its_own_best_batches_per_cluster(
    tmp_path: Path,
) -> None:
    large = import_model(workloads.get("mobilenet_v2").file, batch=128)
    result = run(large, tmp_path, trials=1)
    first = result.trials[0].knobs
    assert first == Knobs(batches_per_cluster=first.batches_per_cluster)
    assert first.batches_per_cluster == 16  # of 32
    assert result.default == result.trials[0].outcome
    assert result.default is not None
    assert result.best.measurement.latency == result.default.latency
    assert result.default.latency == result.baselines["graphturbo"].latency
    with Database.open(tmp_path / "a.db") as store:
        (info,) = store.runs()
    assert info.default_latency == result.default.latency


@pytest.mark.full
def test_all_samplers_begin_with_the_same_points(tmp_path: Path) -> None:
    """Trial 0, placed cuts and what the database decided, in the same order."""
    squeezed = import_model(workloads.get("squeezenet1_1").file, batch=32)
    known = run(squeezed, tmp_path, trials=20)
    found = {}
    for sampler in SAMPLERS:
        own = tmp_path / sampler
        own.mkdir()
        shutil.copy(tmp_path / "a.db", own)
        result = run(squeezed, own, trials=12, sampler=sampler, baselines=(), patience=None)
        begun = len(result.origins) + 1
        assert begun > 2
        assert f"run {known.run}" in result.origins[-1]
        found[sampler] = [t.knobs for t in result.trials][:begun]
        assert result.best.measurement.latency <= result.trials[0].outcome.latency  # type: ignore[union-attr]
    first = found["cost-model"]
    assert all(knobs == first for knobs in found.values())


@pytest.mark.full
@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_runs_of_other_samplers_with_starts_go_on(
    small: Graph, tmp_path: Path, sampler: str
) -> None:
    (tmp_path / "whole").mkdir()
    whole = run(small, tmp_path / "whole", trials=24, sampler=sampler, jobs=2, round=5)
    short = run(small, tmp_path, trials=3, sampler=sampler, round=5)
    longer = resume(short.run, database=tmp_path / "a.db", load_graph=lambda _: small, trials=24)
    assert [t.knobs for t in longer.trials] == [t.knobs for t in whole.trials]
    assert longer.schedule_file.read_bytes() == whole.schedule_file.read_bytes()


@pytest.mark.full
def test_another_objective_tries_the_heuristic_at_every_number_of_samples(
    small: Graph, tmp_path: Path
) -> None:
    result = run(small, tmp_path, trials=6, objective="ddr-bytes", sampler="random")
    published = [t.knobs for t in result.trials if t.knobs == Knobs(
        batches_per_cluster=t.knobs.batches_per_cluster)]  # fmt: skip
    assert {k.batches_per_cluster for k in published} >= {"auto", 4, 2, 1}
    assert result.best.measurement.ddr_bytes <= result.baselines["graphturbo"].ddr_bytes


@pytest.mark.full
def test_without_a_database_nothing_is_read_or_left(
    model: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(model, tmp_path, trials=20)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.db").rename(tmp_path / "autoturbo.db")
    before = sorted(tmp_path.rglob("*"))
    result = tune(model, load_target("stcp920"), trials=3)
    assert not [origin for origin in result.origins if "run" in origin]
    assert result.schedule_file.read_text() == result.best.schedule.text
    assert sorted(tmp_path.rglob("*")) == before
    folder = result.run_folder
    del result
    assert not folder.exists()


class LatencyAlone:
    """Measures nothing but latencies."""

    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        return [measurement_of(schedule, 1.0) for schedule in schedules]


def latency_alone(graph: Graph, target: Target, dtype: str) -> Evaluator:
    return Evaluator(graph, target, dtype, LatencyAlone())


def test_an_objective_that_the_measurer_does_not_give_is_refused(
    model: Graph, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="ddr-bytes"):
        run(model, tmp_path, trials=2, objective="latency,ddr-bytes", evaluator=latency_alone)
