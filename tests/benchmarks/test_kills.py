"""Random kills: the bounded form of ``benchmarks/kills.py``."""

from __future__ import annotations

import random
from pathlib import Path

import kills
import pytest

from autoturbo.search import journal

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


@pytest.mark.full
def test_kills_of_drivers_and_workers_lose_nothing(tmp_path: Path) -> None:
    ground = kills.Ground("processes", random.Random(0))  # noqa: S311
    kills.strike(ground, tmp_path / "all", 3)
    assert ground.killed.total() >= 3
    assert ground.finished >= 1


@pytest.mark.full
@pytest.mark.ray
def test_kills_on_a_cluster_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert kills.kill_in("ray", 2, 3, tmp_path / "all").killed.total() >= 2


def test_a_run_draws_settings_that_misbehave_in_every_way(tmp_path: Path) -> None:
    from ray_measurers import SIDES, lot, making, toy_graph, toy_target

    from autoturbo.database import Database
    from autoturbo.tuning.tuner import tune

    path = tmp_path / "tuned.db"
    tune(
        toy_graph(), toy_target(), trials=kills.TRIALS, sampler="random", baselines=(),
        evaluator=making(), database=path, runs_folder=tmp_path / "runs",
    )  # fmt: skip
    with Database.open(path) as database:
        trials = database.trials(database.runs()[0].id)[1:]  # the first is never spoilt
    drawn = {lot(trial.knobs, SIDES) for trial in trials}
    assert drawn >= kills.SPOILT.keys()


def test_what_is_acknowledged_and_not_there_is_found(tmp_path: Path) -> None:
    """The check can fail: a log that acknowledges more than the database has."""
    from ray_measurers import making, toy_graph, toy_target

    from autoturbo.tuning.tuner import tune

    result = tune(
        toy_graph(), toy_target(), trials=3, sampler="random", baselines=(), evaluator=making(),
        database=tmp_path / "tuned.db", runs_folder=tmp_path / "runs",
    )  # fmt: skip
    ground = kills.Ground("processes", random.Random(0))  # noqa: S311
    found = ground.checked(tmp_path, {})
    assert len(found) == ground.lines == 3
    with (result.run_folder / "log.txt").open("a", encoding="utf-8") as log:
        log.write("2026-01-01T00:00:00Z 4/4 trials, best #0\n")
    with pytest.raises(AssertionError, match="4 acknowledged"):
        ground.checked(tmp_path, {})


def test_the_clock_jumps_by_days(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setattr(time, "time", time.time)
    monkeypatch.setattr(journal, "datetime", journal.datetime)  # type: ignore[attr-defined]
    kills.make_the_clock_jump()
    moments = [journal.now() for _ in range(20)]
    assert sorted(moments) not in (moments, moments[::-1])
    assert max(moments)[:10] != min(moments)[:10]
