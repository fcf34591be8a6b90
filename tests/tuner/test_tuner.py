from __future__ import annotations

import functools
import json
import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from autoturbo.commands.stored_runs import resume
from autoturbo.config import EFFORTS
from autoturbo.database import Database, RunInfo
from autoturbo.errors import (
    InfeasibleError,
    InterruptedRunError,
    MeasurerError,
    RefusedError,
    RunError,
    UsageError,
)
from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.hardware.target import Target
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.constants import SEARCH
from autoturbo.search.progress import Progress
from autoturbo.search.stopping import Stop
from autoturbo.simulator.contract import Scheduled, TuningEvaluator
from autoturbo.simulator.measurement import Failure, Measurement
from autoturbo.tuning.keys import scheduler_version
from autoturbo.tuning.result import TuneResult
from autoturbo.tuning.tuner import tune
from autoturbo.verifier.findings import Check, Finding, Verification
from tests.compiled_later import compiled_later
from tests.search.search_doubles import (
    Landscape,
    interrupting,
    landscape,
    lingering,
    measurement,
    patchy,
    raising,
    toy_graph,
    toy_target,
    unsteady,
    walled_in,
)

Tune = Callable[..., TuneResult]


def toy(info: RunInfo | None = None) -> Graph:
    del info
    return toy_graph()


@pytest.fixture
def go(tmp_path: Path) -> Tune:
    """Tune the toy in a folder of its own."""

    def run(name: str = "a", **changes: Any) -> TuneResult:
        values: dict[str, Any] = {
            "trials": 40,
            "database": tmp_path / f"{name}.db",
            "runs_folder": tmp_path / f"{name}-runs",
            "evaluator": landscape,
            **changes,
        }
        return tune(toy_graph(), toy_target(), **values)

    return run


@pytest.fixture
def carry_on(tmp_path: Path) -> Tune:
    """Resume the only run of a database."""

    def run(name: str = "a", **changes: Any) -> TuneResult:
        path = tmp_path / f"{name}.db"
        with Database.open(path, create=False) as store:
            (info,) = store.runs()
        values: dict[str, Any] = {"load_graph": toy, "evaluator": landscape, **changes}
        return resume(info.id, database=path, **values)

    return run


def story(result: TuneResult) -> list[tuple[int, str, float | str]]:
    """All that happened, comparable."""
    return [
        (t.number, t.knobs.id,
         t.outcome.latency if isinstance(t.outcome, Measurement) else t.outcome.reason)
        for t in result.trials
    ]  # fmt: skip


def test_the_first_trial_is_the_published_heuristic_and_the_best_is_no_worse(go: Tune) -> None:
    result = go()
    assert result.trials[0].knobs == Knobs()
    assert result.default == result.trials[0].outcome
    assert result.default is not None
    assert result.best.measurement.latency < result.default.latency
    fastest = min(
        (t.outcome.latency, t.number) for t in result.trials if isinstance(t.outcome, Measurement)
    )
    assert (result.best.measurement.latency, result.best.trial) == fastest
    assert (result.state, result.measured, result.seed) == ("done", 40, 0)
    assert [t.number for t in result.trials] == list(range(40))


def test_nothing_is_measured_twice_but_the_best(go: Tune) -> None:
    lands: list[Landscape] = []

    def make(graph: Graph, target: Target, dtype: str) -> Landscape:
        lands.append(landscape(graph, target, dtype))
        return lands[-1]

    result = go(evaluator=make, baselines=())
    (land,) = lands
    *measured, again = [k.id for k in land.calls]
    assert len(set(measured)) == len(measured) == 40
    assert again == result.best.knobs.id


def test_what_is_kept(go: Tune, tmp_path: Path) -> None:
    result = go(model_file="toy.onnx", settings={"shapes": {"x": [64, 8]}})
    with Database.open(tmp_path / "a.db") as store:
        info = store.run(result.run)
        records = store.trials(result.run)
        (best,) = store.best()
    assert (info.state, info.model, info.model_file, info.batch) == ("done", "toy", "toy.onnx", 64)
    assert info.key.scheduler_version == f"{scheduler_version()}+evaluator"
    assert info.settings["shapes"] == {"x": [64, 8]}
    assert [(r.number, r.knobs, r.outcome) for r in records] == [
        (t.number, t.knobs, t.outcome) for t in result.trials
    ]
    assert (best.trial, best.knobs, best.run) == (result.best.trial, result.best.knobs, result.run)
    assert best.schedule == result.schedule_file.read_text() == result.best.schedule.text
    manifest = json.loads((result.run_folder / "manifest.json").read_text())
    assert manifest["settings"]["seed"] == 0
    assert {"autoturbo", "numpy", "optuna"} <= set(manifest["versions"])
    assert manifest["versions"]["python"] == platform.python_version()
    assert manifest["versions"]["platform"] == f"{sys.platform} {platform.machine()}"
    assert "40/40 trials" in (result.run_folder / "log.txt").read_text()


def test_the_study_holds_every_trial_once(go: Tune) -> None:
    result = go()
    study = result.study
    assert [t.user_attrs["trial"] for t in study.trials] == list(range(40))
    assert study.best_value == result.best.measurement.latency
    failed = [t.number for t in result.trials if isinstance(t.outcome, Failure)]
    pruned = [t.number for t in study.trials if t.state == optuna.trial.TrialState.PRUNED]
    assert pruned == failed


def test_a_database_of_ours_is_no_storage(go: Tune, tmp_path: Path) -> None:
    go(trials=1)
    for own in tmp_path.glob("*.db"):
        before = own.read_bytes()
        with pytest.raises(UsageError, match="tuned schedules"):
            go(trials=1, storage=f"sqlite:///{own}")
        assert own.read_bytes() == before
    with pytest.raises(UsageError):
        go(trials=1, storage=f"sqlite:///{tmp_path}/none/study.db")


def test_a_storage_mirrors_the_study(go: Tune, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    result = go(trials=6, storage=url)
    mirrored = optuna.load_study(study_name=result.run, storage=url)
    assert [t.params for t in mirrored.trials] == [t.params for t in result.study.trials]
    mirrored._storage.remove_session()
    result.study._storage.remove_session()


def test_baselines_that_do_not_fit_are_left_out(go: Tune) -> None:
    result = go(trials=1, baselines=("tvm", "graphturbo", "O9"))
    assert set(result.baselines) == {"tvm", "graphturbo"}
    assert result.info.lacking["O9"] == "too small"
    assert "no gain over O9 is stated: too small" in (result.run_folder / "log.txt").read_text()


def test_the_same_seed_gives_the_same_run_and_another_id(go: Tune) -> None:
    first, second = go(), go()
    assert story(first) == story(second)
    assert first.schedule_file.read_bytes() == second.schedule_file.read_bytes()
    assert second.run == f"{first.run}-2"
    assert story(go(seed=1)) != story(first)


@pytest.mark.parametrize("sampler", ["cost-model", pytest.param("tpe", marks=pytest.mark.full)])
def test_workers_make_no_difference(go: Tune, sampler: str) -> None:
    alone, shared = go("a", sampler=sampler), go("b", sampler=sampler, jobs=2)
    assert story(alone) == story(shared)
    assert alone.schedule_file.read_bytes() == shared.schedule_file.read_bytes()


@pytest.mark.full
@pytest.mark.ray
def test_a_cluster_makes_no_difference(go: Tune) -> None:
    alone, cluster = go("a"), go("b", ray="local", jobs=2)
    assert story(alone) == story(cluster)
    assert alone.schedule_file.read_bytes() == cluster.schedule_file.read_bytes()


@pytest.mark.parametrize(
    "sampler", ["tpe", *(pytest.param(name, marks=pytest.mark.full) for name in ("nsgaii", "qmc"))]
)
def test_samplers_by_name(go: Tune, sampler: str) -> None:
    result = go(sampler=sampler, trials=24)
    assert len({t.knobs.id for t in result.trials}) == 24


def test_failures_and_missing_statistics_do_not_stop_a_run(go: Tune) -> None:
    result = go(evaluator=patchy, trials=100)
    reasons = {t.outcome.reason for t in result.trials if isinstance(t.outcome, Failure)}
    assert {"raised", "invalid"} <= reasons
    assert result.default is not None
    assert result.best.measurement.latency < result.default.latency


def test_a_model_that_does_not_fit_is_reported(go: Tune, tmp_path: Path) -> None:
    with pytest.raises(InfeasibleError) as caught:
        go(evaluator=walled_in, baselines=())
    assert "none of 40 settings fits" in str(caught.value)
    assert "conv1" in str(caught.value)
    assert caught.value.hint == "a smaller batch"
    with Database.open(tmp_path / "a.db") as store:
        (info,) = store.runs()
    assert (info.state, info.trials) == ("failed", 40)


def test_a_measurer_that_always_fails_ends_the_run_early(go: Tune, tmp_path: Path) -> None:
    with pytest.raises(MeasurerError):
        go(evaluator=raising, baselines=(), trials=1000)
    with Database.open(tmp_path / "a.db") as store:
        (info,) = store.runs()
    assert (info.state, info.trials) == ("failed", 33)


def test_a_measurer_that_changes_its_mind_is_taken_to_vary(go: Tune) -> None:
    result = go(evaluator=unsteady, baselines=())
    assert result.state == "done"
    assert result.best.race is not None
    assert any("measurements are taken to vary" in note for note in result.notes)


def test_the_space_ends_before_the_budget(go: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    from autoturbo.search.space import Space
    from tests.search.search_doubles import small_space

    monkeypatch.setattr(Space, "of", staticmethod(lambda *_, **__: small_space()))
    result = go(trials=500)
    assert (result.measured, result.state, result.stopped) == (18, "done", Stop.SPACE)
    assert len({t.knobs.id for t in result.trials}) == 18


def test_time_ends_a_run(go: Tune) -> None:
    assert go(trials=None, time_budget=0.3).stopped is Stop.TIME
    assert go(trials=5, time_budget=60.0).measured == 5


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.full)])
def test_time_ends_a_round_as_well(go: Tune, carry_on: Tune, jobs: int) -> None:
    """A tenth of a second for a measurement: a round takes longer than there is."""
    flags = {"evaluator": lingering, "jobs": jobs, "baselines": ()}
    result = go(trials=200, time_budget=1.0, **flags)
    assert (result.stopped, result.state) == (Stop.TIME, "done")
    assert result.measured < 200  # which take 20 s
    more = result.measured + 20
    rest = carry_on(trials=more, time_budget=600.0)
    assert story(rest) == story(go("whole", trials=more, time_budget=600.0, baselines=()))


@pytest.mark.full
def test_each_part_of_a_run_measures_something_however_little_time_it_has(
    go: Tune, carry_on: Tune
) -> None:
    assert go(time_budget=1e-9).measured == 1
    assert [carry_on(trials=40, time_budget=1e-9).measured for _ in range(3)] == [2, 3, 4]
    assert story(carry_on(trials=40, time_budget=60.0)) == story(go("whole", time_budget=60.0))


def near_bound(graph: Graph, target: Target, dtype: str) -> Landscape:
    del graph, target, dtype
    return NearBound()


class NearBound(Landscape):
    """The published heuristic is at twice the lower bound of 1 us, small tiles at the bound."""

    def evaluate(self, knobs: Knobs) -> Any:
        return measurement(1e-6 if knobs.tile_subdivision == 2 else 2e-6)


def test_it_stops_where_nothing_better_is_found(go: Tune) -> None:
    result = go(trials=2000, patience=40)
    better, best = 0, float("inf")
    for trial in result.trials:
        if isinstance(trial.outcome, Measurement) and trial.outcome.latency < best:
            better, best = trial.number, trial.outcome.latency
    waited = result.measured - 1 - better
    assert 40 <= waited < 40 + SEARCH.rounds.round_trials
    assert (result.stopped, result.state) == (Stop.NO_PROGRESS, "done")
    assert "done (no-progress)" in (result.run_folder / "log.txt").read_text()


def test_it_stops_near_the_lower_bound(go: Tune) -> None:
    result = go(trials=400, bound_gap=0.5, evaluator=near_bound)
    assert result.stopped is Stop.BOUND
    assert result.best.measurement.latency == 1e-6
    assert result.measured - 1 - result.best.trial < SEARCH.rounds.round_trials
    first = go("b", trials=400, bound_gap=1.0, evaluator=near_bound)
    assert (first.measured, first.stopped) == (1, Stop.BOUND)


def test_why_it_stopped(go: Tune) -> None:
    assert go(trials=5).stopped is Stop.TRIALS
    assert go(trials=None, time_budget=1e-9).stopped is Stop.TIME


@pytest.mark.full
def test_early_stopping_is_the_same_after_a_resumption(go: Tune, carry_on: Tune) -> None:
    rules = {"trials": 2000, "patience": 40, "baselines": ()}
    whole = go("whole", **rules)
    with pytest.raises(Killed):
        go(**rules, evaluator=functools.partial(mortal, 30))
    result = carry_on()
    assert story(result) == story(whole)
    assert (result.stopped, carry_on().measured) == (Stop.NO_PROGRESS, whole.measured)
    more = carry_on(trials=whole.measured + 16)
    assert (more.measured, more.stopped) == (whole.measured + 16, Stop.TRIALS)
    assert carry_on(patience=1).stopped is Stop.TRIALS  # the new total is kept
    assert carry_on(trials=2000, patience=1).stopped is Stop.NO_PROGRESS


def test_a_new_total_survives_a_kill(go: Tune, carry_on: Tune, tmp_path: Path) -> None:
    """``resume --trials 50`` that is killed, then ``resume``: it goes on to 50."""
    go("whole", trials=20, baselines=())
    whole = carry_on("whole", trials=50)
    first = go(trials=20, baselines=())
    with pytest.raises(Killed):
        carry_on(trials=50, evaluator=functools.partial(mortal, 10))
    with Database.open(tmp_path / "a.db") as store:
        info = store.run(first.run)
    assert (info.trials < 50, info.asked["trials"], info.settings["trials"]) == (True, 50, 20)
    manifest = json.loads((first.run_folder / "manifest.json").read_text())
    assert manifest["settings"]["limits"]["trials"] == 50
    result = carry_on()
    assert (result.measured, result.stopped) == (50, Stop.TRIALS)
    assert story(result) == story(whole)


def compiling(
    function: Callable[[int], int], graph: Graph, target: Target, dtype: str
) -> TuningEvaluator:
    """A workshop whose making compiles a function."""
    function(1)
    return landscape(graph, target, dtype)


def test_progress_tells_of_what_is_compiled(
    go: Tune, carry_on: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = compiled_later(2, monkeypatch)
    for function, call, trials in ((first, go, 5), (second, carry_on, 10)):
        seen: list[Progress] = []
        make = functools.partial(compiling, function)
        result = call(on_progress=seen.append, trials=trials, evaluator=make)
        assert result.measured == trials
        told = [p for p in seen if p.to_compile]
        assert told
        assert {(p.model, p.target, p.compiled) for p in told} == {("toy", "stcp920", 0)}
        start = f"compiling 0 of {told[0].to_compile} functions, once per installation, about "
        assert told[0].phase.startswith(start)
        assert seen[-1].phase == ""


def test_what_a_listener_raises_while_functions_are_compiled(
    go: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It arrives as it was raised: Numba would call it a mistake in a function of ours."""
    (function,) = compiled_later(1, monkeypatch)

    def refuse(progress: Progress) -> None:
        if progress.to_compile:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        go(on_progress=refuse, trials=5, evaluator=functools.partial(compiling, function))


def test_progress_is_reported_after_every_outcome(go: Tune) -> None:
    seen: list[Progress] = []
    result = go(on_progress=seen.append, trials=100)
    assert [p.done for p in seen] == [*range(1, 101), 100]
    assert [p.ended for p in seen] == [False] * 100 + [True]
    last = seen[-1]
    assert (last.model, last.target, last.total) == ("toy", "stcp920", 100)
    assert last.default_latency is not None
    assert last.best_latency is not None
    assert last.screened > 0
    assert last.measured_per_s > 0
    assert last.remaining_s == 0
    # the published heuristic and a first round may have had to compile: they tell nothing yet
    known = [p.done for p in seen[:-1] if p.remaining_s is not None]
    assert known == list(range(2 + SEARCH.rounds.round_trials, 101))
    assert seen[0].best_latency == last.default_latency
    failed = sum(isinstance(t.outcome, Failure) for t in result.trials)
    assert sum(last.infeasible.values()) == failed


@pytest.mark.parametrize("objective", ["ddr-bytes", "energy"])
def test_other_objectives(go: Tune, objective: str) -> None:
    with_energy = load_target("stcp920")
    if objective == "energy" and with_energy.energy is None:
        with pytest.raises(UsageError):
            go(objective=objective)
        return
    assert go(objective=objective).state == "done"


@pytest.mark.full
def test_throughput_is_latency_the_other_way_round(go: Tune) -> None:
    result = go(objective="throughput", trials=60)
    assert result.default is not None
    latencies = [t.outcome.latency for t in result.trials if isinstance(t.outcome, Measurement)]
    assert result.best.measurement.latency == min(latencies) < result.default.latency
    assert result.study.best_value == result.best.measurement.throughput


def test_several_objectives_give_a_front(go: Tune, tmp_path: Path) -> None:
    result = go(objective=("ddr-bytes", "latency"), trials=50)
    assert len(result.study.directions) == 2
    assert result.front
    assert result.best.trial in {t.number for t in result.front}
    with Database.open(tmp_path / "a.db") as store:
        (kept,) = store.best()
    latencies = [t.outcome.latency for t in result.trials if isinstance(t.outcome, Measurement)]
    assert kept.measurement.latency == min(latencies)


# What is handed out


class Picky:
    """A verifier that finds fault with the schedules of some settings."""

    def __init__(self, *bad: Knobs) -> None:
        self.bad = {knobs.canonical() for knobs in bad}

    def __call__(self, schedule: Scheduled) -> Verification:
        wrong = schedule.text.strip() in self.bad
        return Verification((), (Finding(Check.MEMORY, "race", "on x"),) if wrong else ())


def test_what_is_handed_out_is_verified_and_the_database_says_so(go: Tune, tmp_path: Path) -> None:
    result = go(verifier=Picky())
    assert result.best.verified == (Check.REGIONS, Check.MEMORY)
    assert result.refused == ()
    with Database.open(tmp_path / "a.db") as store:
        (kept,) = store.best()
    assert kept.verified is not None
    assert kept.verified.checks == result.best.verified


def test_a_measurer_of_others_is_not_said_to_be_verified(go: Tune, tmp_path: Path) -> None:
    assert go().best.verified == ()
    with Database.open(tmp_path / "a.db") as store:
        assert store.best()[0].verified is None


def test_a_schedule_that_fails_is_not_handed_out(go: Tune, carry_on: Tune, tmp_path: Path) -> None:
    whole = go("whole")
    result = go(verifier=Picky(whole.best.knobs))
    assert result.best.trial != whole.best.trial
    assert result.best.measurement.latency >= whole.best.measurement.latency
    assert [r.trial for r in result.refused] == [whole.best.trial]
    assert result.schedule_file.read_text() == result.best.knobs.canonical() + "\n"
    assert story(result) == story(whole)
    with Database.open(tmp_path / "a.db") as store:
        info = store.run(result.run)
        (kept,) = store.best()
    assert info.refused == result.refused
    assert (info.best_trial, kept.trial) == (result.best.trial, result.best.trial)
    log = (result.run_folder / "log.txt").read_text()
    assert f"trial {whole.best.trial} is refused: memory: race: on x" in log
    again = carry_on(verifier=Picky(whole.best.knobs))
    assert (again.best.trial, again.refused) == (result.best.trial, result.refused)


def test_a_heuristic_that_fails_is_no_reference(go: Tune, tmp_path: Path) -> None:
    """It is checked though it is not the best; no gain is stated over it, here or by the record."""
    whole = go("whole")
    assert whole.best.trial != 0
    result = go(verifier=Picky(whole.trials[0].knobs))
    assert [r.trial for r in result.refused] == [0]
    assert result.default is None
    assert "default" not in result.outcomes()
    assert result.best.trial == whole.best.trial
    with Database.open(tmp_path / "a.db") as store:
        info = store.run(result.run)
    assert (info.best_trial, info.default_latency) == (result.best.trial, None)


@pytest.mark.full
def test_a_resumed_run_is_checked_anew_and_takes_back_what_fails(
    go: Tune, carry_on: Tune, tmp_path: Path
) -> None:
    first = go(verifier=Picky())
    again = carry_on(verifier=Picky(first.best.knobs))
    with Database.open(tmp_path / "a.db") as store:
        (kept,) = store.best()
        (info,) = store.runs()
    assert kept.trial == again.best.trial == info.best_trial != first.best.trial
    mended = carry_on(verifier=Picky())
    assert (mended.best.trial, mended.refused) == (first.best.trial, ())
    with Database.open(tmp_path / "a.db") as store:
        assert store.runs()[0].refused == ()
        assert store.best()[0].trial == first.best.trial


@pytest.mark.full
def test_no_member_of_a_front_fails(go: Tune) -> None:
    asked = {"objective": ("ddr-bytes", "latency"), "trials": 50}
    whole = go("whole", **asked)
    member = whole.front[-1]
    result = go(verifier=Picky(member.knobs), **asked)
    assert member.number not in {trial.number for trial in result.front}
    assert member.number in {refused.trial for refused in result.refused}


def test_a_run_of_which_nothing_passes_has_failed(go: Tune, tmp_path: Path) -> None:
    class Never(Picky):
        def __call__(self, schedule: Scheduled) -> Verification:
            self.bad.add(schedule.text.strip())
            return super().__call__(schedule)

    with pytest.raises(RefusedError):
        go(verifier=Never())
    with Database.open(tmp_path / "a.db") as store:
        (info,) = store.runs()
        assert (info.state, info.trials, len(info.refused)) == ("failed", 40, 16)
        assert store.best() == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"jobs": 0},
        {"sampler": "nope"},
        {"objective": ("latency", "energy", "latency")},
        {"subgraphs": -1},
        {"storage": "nonsense://"},
        {"ray": "nowhere"},
    ],
)
def test_what_cannot_be_is_refused(go: Tune, changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        go(**changes)


def test_efforts_are_documented_numbers() -> None:
    assert EFFORTS == {"quick": 64, "standard": 400, "thorough": 2000}


# Going on


class Killed(BaseException):
    """Stands for the end of the process."""


class Mortal(Landscape):
    """Ends the process after some settings; what was recorded stays."""

    def __init__(self, life: int) -> None:
        super().__init__()
        self.life = life

    def evaluate(self, knobs: Knobs) -> Any:
        if len(self.calls) >= self.life:
            raise Killed
        return super().evaluate(knobs)


def mortal(life: int, graph: Graph, target: Target, dtype: str) -> Mortal:
    del graph, target, dtype
    return Mortal(life)


@pytest.mark.parametrize(
    ("sampler", "life"),
    [
        ("cost-model", 17),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (("cost-model", 0), ("cost-model", 49), ("tpe", 30), ("random", 1))
        ),
    ],
)
def test_a_resumed_run_is_as_if_it_had_not_stopped(
    go: Tune, carry_on: Tune, sampler: str, life: int, tmp_path: Path
) -> None:
    whole = go("whole", sampler=sampler, trials=50, baselines=())
    with pytest.raises(Killed):
        go(sampler=sampler, trials=50, baselines=(), evaluator=functools.partial(mortal, life))
    with Database.open(tmp_path / "a.db") as store:
        (info,) = store.runs()
        assert info.trials == life
    result = carry_on()
    assert story(result) == story(whole)
    assert result.schedule_file.read_bytes() == whole.schedule_file.read_bytes()
    assert result.run == info.id


@pytest.mark.full
def test_holes_in_a_round_are_filled(go: Tune, carry_on: Tune, tmp_path: Path) -> None:
    whole = go("whole")
    rng = np.random.default_rng(0)
    with Database.open(tmp_path / "whole.db") as store:
        (info,) = store.runs()
        records = [r for r in store.trials(info.id) if r.number < 20 or rng.random() < 0.5]
    with Database.open(tmp_path / "a.db") as store:
        store.add_run(info)
        store.add_trials(records)
    assert story(carry_on()) == story(whole)


@pytest.mark.full
def test_a_larger_total_goes_on_from_where_it_ended(go: Tune, carry_on: Tune) -> None:
    first = go(trials=22)
    assert story(carry_on(trials=60))[: len(story(first))] == story(first)


def test_a_finished_run_is_only_told_again(go: Tune, carry_on: Tune) -> None:
    result = go()
    again = carry_on(evaluator=functools.partial(mortal, 3))  # baseline, best, its schedule
    assert story(again) == story(result)
    assert again.schedule_file == result.schedule_file


@pytest.mark.full
def test_a_run_goes_on_with_other_workers(go: Tune, carry_on: Tune) -> None:
    whole = go("whole", baselines=())
    with pytest.raises(Killed):
        go(baselines=(), evaluator=functools.partial(mortal, 20))
    assert story(carry_on(jobs=2)) == story(whole)


def test_a_changed_model_or_target_is_refused(go: Tune, carry_on: Tune) -> None:
    go(trials=2)
    with pytest.raises(RunError, match="the model "):
        carry_on(load_graph=lambda _: toy_graph(32))
    with pytest.raises(RunError, match="the target "):
        carry_on(load_target=lambda _: load_target("goya"))


def test_a_changed_scheduler_is_refused(
    go: Tune, carry_on: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(trials=2)
    monkeypatch.setattr("autoturbo.tuning.keys.VERSION", "5.2000.2")
    with pytest.raises(RunError, match="the scheduler's version "):
        carry_on()


def test_proposals_that_no_longer_coincide_are_refused(
    go: Tune, carry_on: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(trials=30)
    monkeypatch.setattr("autoturbo.search.evolution.promising_mutants", lambda *_: [])
    with pytest.raises(RunError, match=r"trial \d+"):
        carry_on(trials=40)


def test_an_unknown_run_is_refused(go: Tune, tmp_path: Path) -> None:
    go(trials=1)
    with pytest.raises(RunError) as caught:
        resume("zzz", database=tmp_path / "a.db", load_graph=toy)
    assert caught.value.at.file == tmp_path / "a.db"


# Interrupting


def test_ctrl_c_inside_a_measurement_keeps_what_was_measured(
    go: Tune, carry_on: Tune, tmp_path: Path
) -> None:
    result = go(evaluator=interrupting, baselines=())
    assert result.state == "interrupted"
    assert result.measured == 30
    with Database.open(tmp_path / "a.db") as store:
        (info,) = store.runs()
    assert (info.state, info.trials) == ("interrupted", 30)
    assert story(carry_on()) == story(go("whole"))


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.full)])
def test_one_ctrl_c_lets_what_is_measured_finish(go: Tune, carry_on: Tune, jobs: int) -> None:
    def press(progress: Progress) -> None:
        if progress.done == 20:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)  # a shell ignores it for what it runs behind itself
    result = go(on_progress=press, jobs=jobs)
    assert result.state == "interrupted"
    assert signal.getsignal(signal.SIGINT) is before
    assert story(carry_on()) == story(go("whole"))


def test_a_run_that_made_its_last_trial_is_done_whatever_was_pressed(
    go: Tune, tmp_path: Path
) -> None:
    def press(progress: Progress) -> None:
        if progress.done == 40:
            os.kill(os.getpid(), signal.SIGINT)

    result = go(on_progress=press)
    assert (result.state, result.measured) == ("done", 40)
    with Database.open(tmp_path / "a.db") as store:
        assert store.runs()[0].state == "done"


@pytest.mark.full
def test_a_second_ctrl_c_leaves_at_once(go: Tune, carry_on: Tune) -> None:
    def press(progress: Progress) -> None:
        if progress.done == 20:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    assert go(on_progress=press).state == "interrupted"
    assert story(carry_on()) == story(go("whole"))


def test_ctrl_c_before_anything_is_measured(go: Tune, tmp_path: Path) -> None:
    class Pressed(Landscape):
        def evaluate(self, knobs: Knobs) -> Any:
            del knobs
            raise KeyboardInterrupt

    with pytest.raises(InterruptedRunError):
        go(evaluator=lambda *_: Pressed(), baselines=())
    with Database.open(tmp_path / "a.db") as store:
        assert store.runs()[0].state == "interrupted"


def test_a_run_outside_the_main_thread(go: Tune) -> None:
    found: list[TuneResult] = []
    thread = threading.Thread(target=lambda: found.append(go(trials=18)))
    thread.start()
    thread.join()
    assert found[0].measured == 18


_DRIVER = """
import sys
sys.path.append(sys.argv[1])
from tests.search.search_doubles import slow, toy_graph, toy_target
from autoturbo.tuning.tuner import tune

if __name__ == "__main__":
    tune(toy_graph(), toy_target(), trials=60, evaluator=slow, baselines=(),
         database=sys.argv[2] + "/a.db", runs_folder=sys.argv[2] + "/a-runs",
         jobs=int(sys.argv[3]), on_progress=lambda p: print(p.done, flush=True))
"""


@pytest.mark.parametrize(("jobs", "after"), [(1, 3), pytest.param(2, 44, marks=pytest.mark.full)])
def test_kill_9_of_the_tuner_loses_nothing_that_matters(
    go: Tune, carry_on: Tune, tmp_path: Path, jobs: int, after: int
) -> None:
    script = tmp_path / "driver.py"
    script.write_text(_DRIVER)
    doubles = str(Path(__file__).parents[2])
    command = [sys.executable, str(script), doubles, str(tmp_path), str(jobs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        for line in driver.stdout:
            if int(line) >= after:
                break
        driver.kill()
    with Database.open(tmp_path / "a.db") as store:
        (info,) = store.runs()
    assert info.state == "running"
    assert info.trials < 60
    assert story(carry_on()) == story(go("whole", trials=60))


def test_schedules_of_another_evaluator_are_kept_and_not_mixed_with_ours(tmp_path: Path) -> None:
    from ray_measurers import making, toy_graph, toy_target

    from autoturbo.database import check

    theirs, ours = tmp_path / "theirs.db", tmp_path / "ours.db"
    result = tune(
        toy_graph(), toy_target(), trials=3, sampler="random", baselines=(), evaluator=making(),
        database=theirs, runs_folder=tmp_path / "runs",
    )  # fmt: skip
    found = check(theirs)
    assert (found.findings, found.unchecked) == ((), 1)
    with Database.open(ours) as database:
        merged = database.take_in(theirs)
        assert (merged.findings, merged.changed.best) == ((), 1)
        (best,) = database.best()
    assert best.schedule == result.best.schedule.text
    assert best.key.scheduler_version == f"{scheduler_version()}+evaluator"
