"""Several pairs in one call."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from autoturbo.config import ExecutionConfig, ResumeConfig, TuneConfig, options_of
from autoturbo.database import Database
from autoturbo.errors import AutoTurboError, InfeasibleError, RunError, UsageError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.hardware.target import Target
from autoturbo.simulator.measurement import Measurement
from autoturbo.tuning.result import TuneResult
from autoturbo.tuning.tuner import Pair, resume_all, tune, tune_all
from tests.search.search_doubles import Landscape, WalledIn, toy_graph

TARGETS = ("stcp920", "goya", "mlu100")


def land_of(graph: Graph, target: Target, dtype: str) -> Landscape:
    """Another landscape for every target; nothing fits the last one."""
    del graph, dtype
    return WalledIn() if target.name == "tpu-v4i" else Landscape(TARGETS.index(target.name))


class Killed(BaseException):
    """Stands for the end of the process."""


def killing(after: int, progress: Any) -> None:
    killing.seen += 1  # type: ignore[attr-defined]
    if killing.seen == after:  # type: ignore[attr-defined]
        raise Killed
    del progress


def pairs(*names: str) -> list[Pair]:
    return [Pair(toy_graph(), load_target(name)) for name in names or TARGETS]


def options(folder: Path, name: str = "a", **changes: Any) -> tuple[TuneConfig, ExecutionConfig]:
    values: dict[str, Any] = {
        "trials": 40, "baselines": (), "evaluator": land_of, "database": folder / f"{name}.db",
        "runs_folder": folder / f"{name}-runs", **changes,
    }  # fmt: skip
    decisive = {field: values.pop(field) for field in options_of(TuneConfig) if field in values}
    return TuneConfig(**decisive), ExecutionConfig(**values)


def going_on(*runs: str, folder: Path, together: bool = True, **changes: Any) -> list[Any]:
    execution = ExecutionConfig(evaluator=land_of, database=folder / "a.db")
    load_graph = changes.pop("load_graph", lambda _: toy_graph())
    config = ResumeConfig(**changes)
    return resume_all(runs, config, execution, load_graph=load_graph, together=together)


def results(ended: list[TuneResult | AutoTurboError]) -> list[TuneResult]:
    assert all(isinstance(result, TuneResult) for result in ended), ended
    return [result for result in ended if isinstance(result, TuneResult)]


def story(result: TuneResult) -> list[tuple[int, str, float | str]]:
    return [
        (t.number, t.knobs.id,
         t.outcome.latency if isinstance(t.outcome, Measurement) else t.outcome.reason)
        for t in result.trials
    ]  # fmt: skip


def test_each_pair_ends_as_it_does_alone(tmp_path: Path) -> None:
    together = results(tune_all(pairs(), *options(tmp_path)))
    assert [result.target for result in together] == list(TARGETS)
    for pair, result in zip(pairs(), together, strict=True):
        alone = tune(
            pair.graph, pair.target, trials=40, baselines=(), evaluator=land_of,
            database=tmp_path / "alone.db", runs_folder=tmp_path / "alone",
        )  # fmt: skip
        assert story(result) == story(alone)
        assert result.run == alone.run
        assert result.schedule_file.read_bytes() == alone.schedule_file.read_bytes()


@pytest.mark.full
def test_workers_make_no_difference_to_several_pairs(tmp_path: Path) -> None:
    alone = results(tune_all(pairs(), *options(tmp_path)))
    shared = results(tune_all(pairs(), *options(tmp_path, "b", jobs=2)))
    assert [story(r) for r in shared] == [story(r) for r in alone]


def test_a_pair_without_a_result_leaves_the_others_theirs(tmp_path: Path) -> None:
    ended = tune_all(pairs("tpu-v4i", "goya"), *options(tmp_path))
    assert isinstance(ended[0], InfeasibleError)
    assert isinstance(ended[1], TuneResult)
    with Database.open(tmp_path / "a.db") as store:
        states = {info.target: info.state for info in store.runs()}
    assert states == {"tpu-v4i": "failed", "goya": "done"}


@pytest.mark.full
def test_a_call_that_was_killed_goes_on_together(tmp_path: Path) -> None:
    whole = results(tune_all(pairs(), *options(tmp_path, "whole")))
    killing.seen = 0  # type: ignore[attr-defined]
    with pytest.raises(Killed):
        tune_all(pairs(), *options(tmp_path, on_progress=functools.partial(killing, 57)))
    with Database.open(tmp_path / "a.db") as store:
        infos = store.runs()
        assert sum(info.trials for info in infos) == 57
    for member in infos:  # any of them stands for all
        found = results(going_on(member.id, folder=tmp_path))
        assert [story(r) for r in found] == [story(r) for r in whole]
        assert [r.target for r in found] == list(TARGETS)
    (one,) = going_on(infos[0].id, folder=tmp_path, together=False)
    assert isinstance(one, TuneResult)


def test_a_time_budget_is_that_of_the_call(tmp_path: Path) -> None:
    ended = results(tune_all(pairs(), *options(tmp_path, trials=None, time_budget=1e-9)))
    assert [result.measured for result in ended] == [1, 1, 1]


@pytest.mark.full
def test_rounds_of_another_size_are_kept_with_the_run(tmp_path: Path) -> None:
    (first,) = results(tune_all(pairs("goya"), *options(tmp_path, round=5, trials=30)))
    (usual,) = results(tune_all(pairs("goya"), *options(tmp_path, "b", trials=30)))
    assert story(first)[1:6] != story(usual)[1:6] or story(first)[6:] != story(usual)[6:]
    (again,) = results(going_on(first.run, folder=tmp_path, trials=40))
    assert story(again)[: len(story(first))] == story(first)


def test_what_cannot_be_is_refused_before_anything_is_kept(tmp_path: Path) -> None:
    bad: list[dict[str, Any]] = [{"round": 0}, {"runtime_env": {"pip": ["x"]}}, {"jobs": 0}]
    for changes in bad:
        with pytest.raises(UsageError):
            tune_all(pairs(), *options(tmp_path, **changes))
    assert not (tmp_path / "a.db").exists()


def test_a_run_of_a_call_that_no_longer_fits_refuses_all(tmp_path: Path) -> None:
    (first, _) = results(tune_all(pairs("goya", "mlu100"), *options(tmp_path, trials=2)))
    with pytest.raises(RunError, match="the model "):
        going_on(first.run, folder=tmp_path, load_graph=lambda _: toy_graph(32))
    with Database.open(tmp_path / "a.db") as store:
        assert {info.state for info in store.runs()} == {"done"}
