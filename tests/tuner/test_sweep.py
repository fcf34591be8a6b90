"""Sweeps over grids of targets: known, resumed, the same whoever measures."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import pytest

from autoturbo import sweeping
from autoturbo.config import ExecutionConfig, TuneConfig
from autoturbo.database import Database
from autoturbo.errors import InterruptedRunError, TargetError, UsageError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.hardware.target import Target
from autoturbo.report.sweep import Sweep
from autoturbo.sweeping import sweep
from autoturbo.tuner import tune, tune_all
from tests.search.search_doubles import Landscape, WalledIn, toy_graph

STCP920 = load_target("stcp920")
VARY = ("lb.capacity_kib=256..1024", "ddr.bandwidth_gb_s=60,120")


def land_of(graph: Graph, target: Target, dtype: str) -> Landscape:
    """Another landscape for every target; nothing fits the smallest buffers."""
    del graph, dtype
    if target.lb.capacity < 256 * 1024:
        return WalledIn()
    return Landscape(target.lb.capacity // 1024 + round(target.ddr.bandwidth / 1e9))


def swept(folder: Path, vary: tuple[str, ...] = VARY, **changes: Any) -> Sweep:
    values: dict[str, Any] = {
        "trials": 8, "sampler": "random", "evaluator": land_of, "database": folder / "a.db",
        "runs_folder": folder / "runs", **changes,
    }  # fmt: skip
    return sweep(toy_graph(), STCP920, vary, **values)


def told(found: Sweep) -> dict[str, Any]:
    """All that is said of a sweep but how much of it was known."""
    return {**found.as_json(), "known": 0}


def test_every_point_is_tuned_as_it_is_alone(tmp_path: Path) -> None:
    found = swept(tmp_path)
    assert [p.values for p in found.points] == [
        (256, 60), (256, 120), (512, 60), (512, 120), (1024, 60), (1024, 120),
    ]  # fmt: skip
    for point, (lb, ddr) in zip(found.points, [p.values for p in found.points], strict=True):
        buffer = dataclasses.replace(STCP920.lb, capacity=int(lb) * 1024)
        memory = dataclasses.replace(STCP920.ddr, bandwidth=float(ddr) * 1e9)
        alone = tune(
            toy_graph(), dataclasses.replace(STCP920, lb=buffer, ddr=memory), trials=8,
            evaluator=land_of, database=tmp_path / "alone.db", runs_folder=tmp_path / "r",
            baselines=(), transfer=False, sampler="random",
        )  # fmt: skip
        assert point.best is not None
        assert point.best.as_dict() == alone.best.measurement.as_dict()
        assert alone.default is not None
        assert (point.trials, point.default) == (8, alone.default.latency)


@pytest.mark.full
def test_it_is_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"sampler": "cost-model", "trials": 20}
    one, two = (
        swept(tmp_path, VARY[:1], jobs=jobs, database=tmp_path / f"{jobs}.db", **asked)
        for jobs in (1, 2)
    )
    assert told(one) == told(two)


def test_what_was_tuned_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = swept(tmp_path)
    assert first.known == 0
    monkeypatch.setattr(sweeping, "tune_all", _must_not)
    monkeypatch.setattr(sweeping, "resume_all", _must_not)
    again = swept(tmp_path, runs_folder=tmp_path / "other")
    assert again.known == 6
    assert told(again) == told(first)
    assert swept(tmp_path, ("lb.capacity_kib=512", "ddr.bandwidth_gb_s=120")).known == 1


def _must_not(*_: object, **__: object) -> None:
    pytest.fail("a known point was measured again")


@pytest.mark.full
def test_a_wider_grid_tunes_what_is_new(tmp_path: Path) -> None:
    narrow = swept(tmp_path, VARY[:1])
    wide = swept(tmp_path, ("lb.capacity_kib=256..2048",))
    assert (wide.known, len(wide.points)) == (3, 4)
    assert told(narrow)["points"][0]["run"] == told(wide)["points"][0]["run"]
    assert swept(tmp_path, VARY[:1], trials=9).known == 0
    assert swept(tmp_path, VARY[:1], seed=1).known == 0


def test_runs_of_tune_are_not_taken_for_those_of_a_sweep(tmp_path: Path) -> None:
    """They may have started from what the database knew."""
    tune(
        toy_graph(), STCP920, trials=8, evaluator=land_of, database=tmp_path / "a.db",
        runs_folder=tmp_path / "runs", sampler="random",
    )  # fmt: skip
    assert swept(tmp_path, ("lb.capacity_kib=1024",)).known == 0


def interrupting(after: int, seen: list[int], progress: Any) -> None:
    del progress
    seen.append(1)
    if len(seen) == after:
        raise KeyboardInterrupt


def test_an_interrupted_sweep_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "AT_ONCE", 2)
    whole = swept(tmp_path, database=tmp_path / "whole.db")
    stop = functools.partial(interrupting, 21, [])
    with pytest.raises(InterruptedRunError, match="the same command goes on from here"):
        swept(tmp_path, on_progress=stop)
    with Database.open(tmp_path / "a.db") as store:
        before = {info.id: info.trials for info in store.runs()}
        states = [info.state for info in store.runs()]
    assert "interrupted" in states
    assert "done" in states
    resumed = swept(tmp_path)
    assert resumed.known == states.count("done")
    assert told(resumed) == told(whole)
    assert set(before) <= {point.run for point in resumed.points}


def test_a_target_that_nothing_fits_is_a_point_that_says_so(tmp_path: Path) -> None:
    found = swept(tmp_path, ("lb.capacity_kib=128,256",))
    small, large = found.points
    assert (small.best, small.trials) == (None, 8)
    assert "none of 8 settings fits" in (small.failure or "")
    assert found.front == (large,)
    again = swept(tmp_path, ("lb.capacity_kib=128,256",))
    assert told(again) == told(found)
    with Database.open(tmp_path / "a.db") as store:
        assert len(store.runs()) == 2


def test_values_may_be_given_by_field(tmp_path: Path) -> None:
    by_text = swept(tmp_path, ("lb.capacity_kib=256,512",))
    by_field = sweep(
        toy_graph(), STCP920, {"lb.capacity_kib": [256, 512]}, trials=8, evaluator=land_of,
        database=tmp_path / "a.db", runs_folder=tmp_path / "runs", sampler="random",
    )  # fmt: skip
    assert (by_field.known, told(by_field)) == (2, told(by_text))


@pytest.mark.full
def test_what_is_asked_for_reaches_the_tuner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[TuneConfig, ExecutionConfig]] = []

    def noted(pairs: Any, config: TuneConfig, execution: ExecutionConfig) -> Any:
        given.append((config, execution))
        return tune_all(pairs, config, dataclasses.replace(execution, ray=None, jobs=1))

    monkeypatch.setattr(sweeping, "tune_all", noted)
    swept(tmp_path, VARY[:1], ray="local", jobs=3, timeout_s=9.0, patience=7, round=4)
    ((config, execution),) = given
    assert (execution.ray, execution.jobs, execution.timeout_s) == ("local", 3, 9.0)
    assert (config.patience, config.round, config.transfer) == (7, 4, False)


def test_bad_grids_are_refused_before_anything_is_tuned(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="did you mean 'capacity_kib'"):
        swept(tmp_path, ("lb.capacity_kib=256", "gb.capacity_kb=1"))
    with pytest.raises(UsageError, match="nothing is varied"):
        swept(tmp_path, ())
    assert not (tmp_path / "a.db").exists()
