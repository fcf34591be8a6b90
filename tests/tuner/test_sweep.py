"""Sweeps over grids of targets: known, resumed, the same whoever measures."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from pathlib import Path
from typing import Any

import pytest

from autoturbo.commands.stored_runs import resume
from autoturbo.config import ExecutionConfig, TuneConfig
from autoturbo.database import Database
from autoturbo.errors import InterruptedRunError, RunError, TargetError, UsageError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.hardware.target import Target
from autoturbo.report.sweep import Sweep
from autoturbo.search.executors import measured
from autoturbo.tuning import sweeping
from autoturbo.tuning.sweeping import sweep
from autoturbo.tuning.tuner import tune, tune_all
from tests.schedule.schedule_samples import Net, chain
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
    with pytest.raises(InterruptedRunError):
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
    swept(tmp_path, VARY[:1], ray="local", jobs=3, timeout=9.0, patience=7, round=4)
    ((config, execution),) = given
    assert (execution.ray, execution.jobs, execution.timeout) == ("local", 3, 9.0)
    assert (config.patience, config.round, config.transfer) == (7, 4, False)


def test_bad_grids_are_refused_before_anything_is_tuned(tmp_path: Path) -> None:
    with pytest.raises(TargetError) as caught:
        swept(tmp_path, ("lb.capacity_kib=256", "gb.capacity_kb=1"))
    assert caught.value.at.field == "gb.capacity_kb"
    with pytest.raises(UsageError) as nothing:
        swept(tmp_path, ())
    assert nothing.value.at.field == "--vary"
    assert not (tmp_path / "a.db").exists()


def inverted(blocks: int, size: int, width: int, batch: int = 1) -> Graph:
    """A stem and blocks that are wide inside, as those of mobile networks."""
    net = Net(x=(batch, 8, size, size))
    at = net.relu(net.conv("x", width))
    for _ in range(blocks):
        wide = net.relu(net.conv(at, 4 * width, kernel=1))
        deep = net.relu(net.conv(wide, 4 * width, group=4 * width))
        at = net.conv(deep, width, kernel=1)
    return net.graph()


def small(name: str) -> Graph:
    """A small network; a search of three trials misses much of each."""
    if name == "chain":
        return chain("conv", "relu", "conv", "relu", "pool", "conv", shape=(2, 32, 32, 32))
    return inverted(1, 64, 32, batch=4)


GRIDS = (
    ("chain", ("lb.capacity_kib=32..128",)),
    ("chain", ("lb.capacity_kib=64,128", "gb.bandwidth_gb_s=64,256")),
    ("batch", ("lb.capacity_kib=48,64,96",)),
    ("chain", ("lb.capacity_kib=64..256",)),
)


@pytest.mark.full
def test_a_larger_machine_runs_the_very_schedule_of_the_smaller(tmp_path: Path) -> None:
    """Alone it takes other cores and other tiles; what it begins with is measured exactly."""
    less = dataclasses.replace(
        STCP920, transfer=dataclasses.replace(STCP920.transfer, broadcast=False)
    )
    vary = ("cores_per_cluster=2..16", "lb.weight_capacity_kib=32,64")
    asked: dict[str, Any] = {"trials": 2, "database": tmp_path / "a.db", "runs_folder": tmp_path}
    found = sweep(small("chain"), less, vary, **asked)
    assert not found.faster_lesser
    for point in found.points:
        assert point.course is not None
        assert 0 <= point.course.idle < 2
        assert 0 <= point.course.late_gain < 1


@pytest.mark.parametrize(
    ("name", "vary"), [GRIDS[0], *(pytest.param(*g, marks=pytest.mark.full) for g in GRIDS[1:])]
)
def test_more_of_what_only_helps_is_never_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, vary: tuple[str, ...]
) -> None:
    asked: dict[str, Any] = {
        "trials": 3, "database": tmp_path / "a.db", "runs_folder": tmp_path,
        "fixed": {"used_cores": STCP920.cores},  # else each takes the part that suits it
        "warm_starts": False,  # else few trials miss little
    }  # fmt: skip
    with monkeypatch.context() as alone:
        alone.setattr(sweeping, "neighbours", lambda *_: ())
        before = sweep(small(name), STCP920, vary, **asked)
    assert before.faster_lesser or name != GRIDS[0][0]  # what this is for
    found = sweep(small(name), STCP920, vary, **asked)
    assert found.known == len(found.points)
    assert not found.faster_lesser
    for old, new in zip(before.points, found.points, strict=True):
        assert old.best is not None
        assert new.best is not None
        assert new.best.latency <= old.best.latency
        assert new.trials >= old.trials
        assert (new.source is None) == (new.run == old.run)


def test_what_neighbours_found_is_measured_once_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, vary = GRIDS[0]
    asked: dict[str, Any] = {
        "trials": 4, "database": tmp_path / "a.db", "runs_folder": tmp_path,
        "fixed": {"used_cores": STCP920.cores},  # else each takes the part that suits it
        "warm_starts": False,  # else few trials miss little
    }  # fmt: skip
    first = sweep(small(name), STCP920, vary, **asked)
    better = next(point for point in first.points if point.source is not None)
    with Database.open(tmp_path / "a.db") as store:
        info = store.run(str(better.run))
        (base,) = (i for i in store.runs() if i.id == info.settings["borrows"]["run"])
        assert (info.key, info.state, info.default_latency) == (base.key, "done", better.default)
        assert info.best_latency is not None
        assert base.best_latency is not None
        assert info.best_latency < base.best_latency
        assert store.trials(info.id)[0].knobs == store.trials(base.id)[0].knobs
        (best,) = store.best(target_hash=info.key.target_hash)
        assert (best.run, best.trial) == (info.id, info.best_trial)
        before = {i.id: i.trials for i in store.runs()}
    with monkeypatch.context() as known:
        known.setattr(sweeping, "measured", _must_not)
        assert told(sweep(small(name), STCP920, vary, **asked)) == told(first)
    with Database.open(tmp_path / "a.db") as store:
        assert {i.id: i.trials for i in store.runs()} == before
    with pytest.raises(RunError, match="sweep"):
        resume(info.id, database=tmp_path / "a.db", load_graph=lambda _: small(name))


@pytest.mark.full
def test_an_interrupted_look_at_neighbours_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, vary = GRIDS[0]
    asked: dict[str, Any] = {"trials": 4, "runs_folder": tmp_path}
    whole = sweep(small(name), STCP920, vary, database=tmp_path / "whole.db", **asked)

    def stopped(*given: Any) -> Any:
        yield from itertools.islice(measured(*given), 3)
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(sweeping, "measured", stopped)
        with pytest.raises(InterruptedRunError):
            sweep(small(name), STCP920, vary, database=tmp_path / "a.db", **asked)
    again = sweep(small(name), STCP920, vary, database=tmp_path / "a.db", **asked)
    assert told(again) == told(whole)
