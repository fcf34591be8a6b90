"""Best schedules and trials that claim what they do not show: nothing is gained by them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from autoturbo.database import BestSchedule, Database, RunInfo, TrialRecord
from autoturbo.database.rows import TABLES, row_of
from autoturbo.simulator.measurement import Measurement
from tests.cli.bad_files import saved, tiny, tuned_in
from tests.cli.command_line import Cli, cli_in


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuned_in(tmp_path_factory.mktemp("tuned"))


@pytest.fixture
def here(cli: Cli, tuned: Path) -> Cli:
    """The command line in a copy of that folder."""
    shutil.copytree(tuned, cli.folder, dirs_exist_ok=True)
    return cli


def records(folder: Path) -> tuple[RunInfo, tuple[TrialRecord, ...], BestSchedule]:
    with Database.open(folder / "autoturbo.db") as database:
        (info,) = database.runs()
        (best,) = database.best()
        return info, database.trials(info.id), best


def put(path: Path, *found: RunInfo | TrialRecord | BestSchedule) -> None:
    """Put records into a file as another program could, past every check."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for one in found:
            connection.execute(TABLES[type(one)].put, row_of(one))


def faster(found: Measurement, share: float = 0.6) -> Measurement:
    latency = found.latency - (found.latency - found.bound.seconds) * share
    assert found.bound.seconds <= latency < found.latency
    return dataclasses.replace(found, latency=latency)


def forged_best(folder: Path) -> BestSchedule:
    """The best schedule with a figure that its trial does not have, above the bound."""
    _, _, best = records(folder)
    return dataclasses.replace(best, measurement=faster(best.measurement))


def of_other_knobs(folder: Path) -> BestSchedule:
    """Another trial's figure under the knobs of this one."""
    _, trials, best = records(folder)
    other = next(t for t in trials if t.knobs != best.knobs)
    return dataclasses.replace(best, trial=other.number)


FORGERIES: dict[str, Callable[[Path], BestSchedule]] = {
    "figure": forged_best,
    "knobs": of_other_knobs,
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_a_best_schedule_that_contradicts_its_trial(
    here: Cli, forgery: Callable[[Path], BestSchedule]
) -> None:
    _, trials, honest = records(here.folder)
    shutil.copy(here.folder / "autoturbo.db", here.folder / "theirs.db")
    put(here.folder / "theirs.db", forgery(here.folder))
    ran = here("db", "check", "--db", "theirs.db")
    assert (ran.status, ran.out.count("\n")) == (1, 2)
    assert ran.out.startswith("theirs.db: best ")
    ran = here("db", "best", "--db", "theirs.db")
    assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert ran.err.startswith(
        "error: theirs.db: the best schedule is not believed, and a new 'tune' replaces it: "
        "tiny on stcp920: "
    )
    assert here("apply", "tiny.onnx", "--db", "theirs.db", "-o", "a.json").status == 2
    for trust in ([], ["--trust"]):
        ran = here("--db", "autoturbo.db", "db", "merge", "theirs.db", *trust)
        assert ran.status == 1
        assert "\ntheirs.db: best " in ran.out
        assert records(here.folder)[1:] == (trials, honest)
    assert here("--db", "theirs.db", "db", "export", "theirs.jsonl").status == 0
    ran = here("db", "import", "theirs.jsonl")
    assert (ran.status, "left out 0 runs, 0 trials, 1 best schedule" in ran.out) == (1, True)
    assert records(here.folder)[1:] == (trials, honest)


def test_a_new_run_replaces_a_forged_best_schedule(here: Cli) -> None:
    _, _, honest = records(here.folder)
    best = forged_best(here.folder)
    alone = dataclasses.replace(best, run="elsewhere")  # nothing here contradicts it
    below = dataclasses.replace(alone, measurement=faster(best.measurement, 0.9))
    for forged in (best, alone, below):
        put(here.folder / "autoturbo.db", forged)
        ran = here("tune", "tiny.onnx", "--trials", "3", "-q", "--no-transfer", "--seed", "5")
        assert ran.status == 0, ran.err
        with Database.open(here.folder / "autoturbo.db") as database:
            (kept,) = database.best()
            assert kept.measurement.latency >= honest.measurement.latency


def test_a_best_schedule_below_its_bound_is_not_handed_out(here: Cli) -> None:
    _, _, honest = records(here.folder)
    found = honest.measurement
    below = dataclasses.replace(found, latency=found.bound.seconds / 2)
    put(here.folder / "autoturbo.db", dataclasses.replace(honest, measurement=below, run="gone"))
    for words in (["db", "best"], ["db", "best", "--explain-miss"], ["db", "best", "-o", "a.json"]):
        ran = here(*words)
        assert (ran.status, "below the lower bound" in ran.err) == (1, True)
    assert not (here.folder / "a.json").exists()
    ran = here("compare", "tiny.onnx")
    assert (ran.status, "tuned schedule is not believed" in ran.out) == (0, True)


def test_compare_measures_the_tuned_schedule(here: Cli) -> None:
    """Whatever the record says, its row is what measuring its schedule gives now."""
    _, _, honest = records(here.folder)
    put(here.folder / "autoturbo.db", dataclasses.replace(forged_best(here.folder), run="gone"))
    ran = here("--json", "compare", "tiny.onnx")
    assert ran.object["schedulers"]["tuned"]["latency_s"] == honest.measurement.latency
    assert ran.object["tuned_recorded_s"] < honest.measurement.latency
    assert "tuned: autoturbo.db says " in here("compare", "tiny.onnx").err
    shutil.rmtree(here.folder / "runs")


@pytest.mark.parametrize("name", ["theirs.db", "theirs.jsonl"])
def test_a_merge_simulates_again_what_a_file_claims(here: Cli, name: str) -> None:
    """A trial and a best schedule that agree with each other, and with no simulation."""
    info, trials, honest = records(here.folder)
    forged = []
    for trial in trials:
        assert isinstance(trial.outcome, Measurement)
        forged.append(dataclasses.replace(trial, outcome=faster(trial.outcome)))
    best = dataclasses.replace(
        honest, measurement=faster(honest.measurement), run=info.id, trial=honest.trial
    )
    shutil.copy(here.folder / "autoturbo.db", here.folder / "theirs.db")
    put(here.folder / "theirs.db", dataclasses.replace(info, handed_out=None), *forged, best)
    assert here("db", "check", "--db", "theirs.db").status == 0
    here("--db", "theirs.db", "db", "export", "theirs.jsonl")
    ran = here("--json", "--db", "new.db", "db", "merge", name)
    assert (ran.status, ran.object["left_out"]["best"]) == (1, 1)
    assert "simulated again it takes" in " ".join(ran.object["findings"])
    assert here("--json", "--db", "new.db", "db", "best").object["best"] == []
    assert ran.object["simulated"] >= 2
    ran = here("--json", "--db", "trusting.db", "db", "merge", name, "--trust")
    assert (ran.status, ran.object["simulated"]) == (0, 0)
    assert len(here("--json", "--db", "trusting.db", "db", "best").object["best"]) == 1


def test_what_cannot_be_simulated_is_said(cli: Cli) -> None:
    here = cli
    here("tune", saved(here, tiny()), "--trials", "3", "-q", "--no-transfer")
    (here.folder / "tiny.onnx").unlink()
    ran = here("--db", "new.db", "db", "merge", "autoturbo.db")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.endswith(
        "autoturbo.db: its schedules cannot be simulated again: their models are not here\n"
    )
    found = json.loads(here("--json", "--db", "other.db", "db", "merge", "autoturbo.db").out)
    assert (found["simulated"], found["not_simulated"]) == (0, 2)
