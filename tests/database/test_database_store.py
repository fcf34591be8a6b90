from __future__ import annotations

import dataclasses
import itertools
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoturbo.database import (
    BestFilter,
    Counts,
    Database,
    PairKey,
    RunInfo,
    TrialRecord,
)
from autoturbo.database.rows import TABLES
from autoturbo.database.tables import MIGRATIONS
from autoturbo.errors import DatabaseError, MeasurerError, RunError
from autoturbo.schedule.knobs import Knobs
from tests.database import database_samples as samples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PER_EXAMPLE = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None
)
FRESH = itertools.count()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(tmp_path / "at.db") as opened:
        yield opened


def fresh(folder: Path) -> Database:
    return Database.open(folder / f"fresh{next(FRESH)}.db")


def message(database: Database, error: Exception) -> str:
    return str(error).replace(str(database.path), "DB")


# Runs


def test_a_run_comes_back_as_it_was(database: Database) -> None:
    database.add_run(samples.run_info())
    assert database.run("aa00") == samples.run_info()
    assert database.runs() == (samples.run_info(),)


def test_what_follows_from_the_trials_is_filled_in(database: Database) -> None:
    database.add_run(samples.run_info(trials=99, best_latency=1e-9))
    assert database.run("aa00").trials == 0
    assert database.run("aa00").best_latency is None
    latencies = [0.02, None, 0.01, 0.01, 0.03]
    database.add_trials([samples.trial(n, latency) for n, latency in enumerate(latencies)])
    run = database.run("aa00")
    assert (run.trials, run.best_trial, run.best_latency, run.default_latency) == (5, 2, 0.01, 0.02)


def test_refused_trials_are_not_the_best(database: Database) -> None:
    database.add_run(samples.run_info())
    latencies = [0.02, None, 0.01, 0.015]
    database.add_trials([samples.trial(n, latency) for n, latency in enumerate(latencies)])
    database.set_refused("aa00", [samples.refused(2)])
    database.set_state("aa00", "done")
    run = database.run("aa00")
    assert run.refused == (samples.refused(2),)
    assert (run.state, run.trials, run.best_trial, run.best_latency) == ("done", 4, 3, 0.015)
    assert run.default_latency == 0.02
    database.set_refused("aa00", [samples.refused(n) for n in (0, 2, 3)])
    assert (database.run("aa00").best_trial, database.run("aa00").best_latency) == (None, None)
    assert database.run("aa00").default_latency is None  # no gain is stated over it either


def test_a_run_whose_trials_all_failed_has_no_best(database: Database) -> None:
    database.add_run(samples.run_info())
    database.add_trials([samples.trial(0, None)])
    run = database.run("aa00")
    assert (run.trials, run.best_trial, run.best_latency, run.default_latency) == (
        1,
        None,
        None,
        None,
    )


def test_runs_come_oldest_first(database: Database) -> None:
    for name, second in (("b", 2), ("a", 2), ("c", 1)):
        database.add_run(samples.run_info(name, created=f"2026-01-31T12:00:0{second}Z"))
    assert [run.id for run in database.runs()] == ["c", "a", "b"]


def test_a_state_is_set_and_nothing_else_changes(database: Database) -> None:
    database.add_run(samples.run_info())
    database.add_trials([samples.trial(0)])
    before = database.run("aa00")
    database.set_state("aa00", "done")
    assert database.run("aa00") == dataclasses.replace(before, state="done")


def test_a_taken_id_is_refused(database: Database) -> None:
    database.add_run(samples.run_info())
    with pytest.raises(RunError) as caught:
        database.add_run(samples.run_info(model="other"))
    expected = "DB: run 'aa00' exists already; 'autoturbo resume aa00' goes on with it"
    assert message(database, caught.value) == expected
    assert database.run("aa00").model == "resnet50"


def test_the_next_free_id(database: Database) -> None:
    for expected in ("aa00", "aa00-2", "aa00-3"):
        assert database.next_run_id("aa00") == expected
        database.add_run(samples.run_info(expected))


def test_a_run_is_found_by_the_start_of_its_id(database: Database) -> None:
    for name in ("aa00", "aa00-2", "ab11"):
        database.add_run(samples.run_info(name))
    assert database.run("ab").id == "ab11"
    assert database.run("aa00").id == "aa00"
    assert database.run("aa00-").id == "aa00-2"


@pytest.mark.parametrize("place", ["{}", "runs/{}", "/data/runs/{}/", "./runs/../runs/{}"])
def test_a_run_is_found_by_the_name_and_the_path_of_its_folder(
    database: Database, place: str
) -> None:
    for name in ("aa00", "aa00-2", "ab11"):
        database.add_run(samples.run_info(name))
    for name in ("aa00", "aa00-2", "ab11"):
        assert database.run(place.format(f"resnet50-stcp920-{name}")).id == name


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("a", "DB: 'a' is the start of 3 runs; one of aa00, aa00-2, ab11"),
        ("ab12", "DB: no run 'ab12'; did you mean 'ab11'?"),
        ("zz", "DB: no run 'zz'; 'autoturbo runs' lists them"),
        ("", "DB: no run ''; 'autoturbo runs' lists them"),
        ("%", "DB: no run '%'; 'autoturbo runs' lists them"),
        ("\udcff\n", "DB: no run '\\udcff\\n'; 'autoturbo runs' lists them"),
    ],
)
def test_a_run_that_is_not_there(database: Database, asked: str, expected: str) -> None:
    for name in ("aa00", "aa00-2", "ab11"):
        database.add_run(samples.run_info(name))
    with pytest.raises(RunError) as caught:
        database.run(asked)
    assert message(database, caught.value) == expected


def test_many_candidates_are_cut(database: Database) -> None:
    for number in range(7):
        database.add_run(samples.run_info(f"a{number}"))
    with pytest.raises(RunError) as caught:
        database.run("a")
    assert str(caught.value.hint).endswith("a3, a4, ...")


def test_only_whole_ids_may_be_written_to(database: Database) -> None:
    database.add_run(samples.run_info())
    for act in (
        lambda: database.set_state("aa", "done"),
        lambda: database.add_trials([samples.trial(0, run="aa")]),
        lambda: database.trials("aa"),
    ):
        with pytest.raises(RunError) as caught:
            act()
        assert "aa00" in str(caught.value.hint)
    assert database.counts() == Counts(runs=1)


# Trials


def test_trials_come_by_number(database: Database) -> None:
    database.add_run(samples.run_info())
    given_trials = [samples.trial(n, 0.01 if n % 2 else None) for n in range(6)]
    database.add_trials(given_trials[3:])
    database.add_trials(given_trials[:3])
    assert database.trials("aa00") == tuple(given_trials)
    assert database.trials("aa00", [4, 1, 9]) == (given_trials[1], given_trials[4])
    assert database.trials("aa00", []) == ()
    assert database.latencies("aa00") == tuple((n, 0.01 if n % 2 else None) for n in range(6))


def test_no_trials_are_no_trouble(database: Database) -> None:
    database.add_trials([])
    database.add_run(samples.run_info())
    assert database.trials("aa00") == ()


def test_the_same_trial_again_changes_nothing(database: Database) -> None:
    database.add_run(samples.run_info())
    database.add_trials([samples.trial(0), samples.trial(1)])
    later = dataclasses.replace(samples.trial(1), created="2027-01-01T00:00:00Z")
    database.add_trials([later, samples.trial(2)])
    assert database.trials("aa00") == tuple(samples.trial(n) for n in range(3))


def test_another_trial_of_the_same_number_is_refused_with_its_batch(database: Database) -> None:
    database.add_run(samples.run_info())
    database.add_trials([samples.trial(1)])
    other = dataclasses.replace(samples.trial(1), knobs=Knobs(max_layers=32))
    with pytest.raises(RunError) as caught:
        database.add_trials([samples.trial(0), other])
    expected = "DB: trial 1 of run 'aa00' is there with other knobs; is the run going on elsewhere?"
    assert message(database, caught.value) == expected
    assert database.trials("aa00") == (samples.trial(1),)


def test_a_batch_with_nan_leaves_nothing_behind(database: Database) -> None:
    database.add_run(samples.run_info())
    with pytest.raises(MeasurerError):
        database.add_trials([samples.trial(0), samples.trial(1, float("nan"))])
    assert database.trials("aa00") == ()


@PER_EXAMPLE
@given(batch=st.lists(samples.trials, max_size=4, unique_by=lambda trial: trial.number))
def test_any_trials_come_back(tmp_path: Path, batch: list[TrialRecord]) -> None:
    batch = [dataclasses.replace(trial, run="aa00") for trial in batch]
    with fresh(tmp_path) as database:
        database.add_run(samples.run_info())
        database.add_trials(batch)
        assert database.trials("aa00") == tuple(sorted(batch, key=lambda trial: trial.number))
        measured = [trial for trial in batch if trial.latency is not None]
        least = min(measured, key=lambda t: (t.latency or 0, t.number), default=None)
        assert database.run("aa00").best_trial == (least.number if least else None)


@PER_EXAMPLE
@given(given_runs=st.lists(samples.runs, max_size=4, unique_by=lambda run: run.id))
def test_any_runs_come_back(tmp_path: Path, given_runs: list[Any]) -> None:
    with fresh(tmp_path) as database:
        for run in given_runs:
            database.add_run(run)
        ordered = sorted(given_runs, key=lambda run: (run.created, run.id))
        assert tuple(map(stored, database.runs())) == tuple(ordered)
        assert all(stored(database.run(run.id)) == run for run in given_runs)


def stored(run: RunInfo) -> RunInfo:
    """What stands in the record, without what follows from it."""
    return RunInfo.from_dict(run.as_dict())


# Best schedules


def test_the_faster_schedule_stays(database: Database) -> None:
    assert database.put_best(samples.best(0.02, run="aa01"))
    assert database.put_best(samples.best(0.01))
    assert not database.put_best(samples.best(0.03, run="aa02"))
    assert not database.put_best(samples.best(0.01))
    assert database.best() == (samples.best(0.01),)


def test_what_a_run_hands_out_anew_replaces_what_it_did_before(database: Database) -> None:
    """Where measurements vary, its last race may find another trial, and a higher latency."""
    database.put_best(samples.best(0.01))
    assert database.put_best(samples.best(0.02, trial=3))
    assert database.best() == (samples.best(0.02, trial=3),)


def test_of_equals_the_smaller_knobs_stay(database: Database) -> None:
    small, large = Knobs(max_layers=2), Knobs(max_layers=4)
    assert small.canonical() < large.canonical()
    database.put_best(samples.best(knobs=large))
    assert database.put_best(samples.best(knobs=small))
    assert not database.put_best(samples.best(knobs=large))
    assert database.best() == (samples.best(knobs=small),)


@PER_EXAMPLE
@given(st.lists(samples.bests, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_putting_makes_no_difference(
    tmp_path: Path, bests: list[Any], random: Any
) -> None:
    shuffled = random.sample(bests, len(bests))
    contents = []
    for order in (bests, shuffled, [*bests, *shuffled]):
        with fresh(tmp_path) as database:
            for found in order:
                database.put_best(found)
            contents.append(samples.content(database, tmp_path / "out.jsonl"))
    assert contents[0] == contents[1] == contents[2]


def several(database: Database) -> None:
    for model, target, dtype in itertools.product(("r50", "bert"), ("stcp920", "goya"), ("fp16",)):
        key = PairKey(f"g-{model}", f"t-{target}", dtype, "1")
        database.put_best(samples.best(key=key, model=model, target=target))
    key = PairKey("g-r50", "t-stcp920", "int8", "1")
    database.put_best(samples.best(key=key, model="r50", target="stcp920", batch=8))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, 5),
        ({"model": "r50"}, 3),
        ({"model": "r50", "target": "stcp920"}, 2),
        ({"graph_hash": "g-r50", "target_hash": "t-goya"}, 1),
        ({"dtype": "int8", "batch": 8, "scheduler_version": "1"}, 1),
        ({"model": None, "dtype": "int8"}, 1),
        ({"model": "vgg"}, 0),
    ],
)
def test_filters(database: Database, filters: Any, expected: int) -> None:
    several(database)
    found = database.best(**filters)
    assert len(found) == expected
    assert list(found) == sorted(found, key=lambda best: (best.model, best.target, best.batch))


def test_a_filter_that_there_is_not(database: Database) -> None:
    with pytest.raises(TypeError, match="colour"):
        database.best(colour="blue")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (
            {"model": "r50", "target": "goya", "dtype": "int8"},
            "of r50 on goya in int8; there is one in fp16 or on stcp920",
        ),
        (
            {"model": "r50", "target": "stcp920", "dtype": "int8", "batch": 4},
            "of r50 at batch 4 on stcp920 in int8; there is one at batch 8",
        ),
        (
            {"model": "r50", "target": "goya", "scheduler_version": "2", "batch": 64},
            "of r50 at batch 64 on goya by version 2; there is one by version 1",
        ),
        ({"model": "bort", "target": None}, "of bort; there is one of bert"),
        ({"model": "alexnet"}, "of alexnet; there is one of bert or r50"),
        (
            {"graph_hash": "0123456789abcdef" * 4},
            "of graph 0123456789ab; there is one of bert or r50",
        ),
    ],
)
def test_why_nothing_matched(database: Database, filters: Any, expected: str) -> None:
    several(database)
    assert database.explain_miss(**filters).text == f"no best schedule {expected}"


def test_a_miss_by_hashes_is_told_by_names(database: Database) -> None:
    several(database)
    named = BestFilter(model="r50", target="goya", batch=4)
    miss = database.explain_miss(named, graph_hash="at-4", target_hash="t-goya", dtype="fp16")
    batch = samples.best().batch
    assert miss.text == f"no best schedule of r50 at batch 4 on goya; there is one at batch {batch}"
    assert (miss.batches, miss.measurers) == ((batch,), ())
    named["batch"] = batch
    other = database.explain_miss(named, graph_hash="changed", target_hash="t-goya")
    assert other.text.endswith("; there is one for other operators or shapes")
    moved = database.explain_miss(named, graph_hash="g-r50", target_hash="new")
    assert moved.text.endswith(" one for another description of that target or on stcp920")


@pytest.mark.parametrize(
    ("version", "expected", "measurers"),
    [
        ("1+board@2", "measured by board", ("board",)),
        ("1+board", "measured by board", ("board",)),
        ("1+evaluator", "of another evaluator", ()),
        ("1+pinned-00", "with settings that people fixed", ()),
        ("0+board@2", "by version 0+board@2", ()),
    ],
)
def test_a_miss_names_who_measured(
    database: Database, version: str, expected: str, measurers: tuple[str, ...]
) -> None:
    key = PairKey("g", "t", "fp16", version)
    database.put_best(samples.best(key=key, model="r50"))
    miss = database.explain_miss({"model": "r50"}, graph_hash="g", scheduler_version="1")
    assert miss == (f"no best schedule of r50; there is one {expected}", (), measurers)


def test_a_miss_of_a_board_names_the_simulator(database: Database) -> None:
    database.put_best(samples.best(key=PairKey("g", "t", "fp16", "1"), model="r50"))
    miss = database.explain_miss({"model": "r50"}, graph_hash="g", scheduler_version="1+board@2")
    said = "no best schedule of r50; there is one that is simulated"
    assert miss == (said, (), ("simulator",))


def test_a_miss_in_an_empty_database(database: Database) -> None:
    expected = "the database holds no best schedule yet; 'autoturbo tune' finds one"
    assert database.explain_miss(model="r50").text == expected


def test_odd_names_are_found_again(database: Database) -> None:
    odd = "r\udcff' OR 1=1 --"
    database.put_best(samples.best(model=odd))
    assert database.best(model=odd) == (samples.best(model=odd),)
    assert database.best(model="r50' OR 1=1 --") == ()


def test_that_the_best_was_verified_is_recorded(database: Database) -> None:
    database.put_best(samples.best())
    all_three = samples.verified("regions", "memory", "numbers")
    text = samples.best().schedule
    assert not database.set_verified(samples.KEY, "another", all_three)
    assert not database.set_verified(PairKey("x", "x", "x", "x"), text, all_three)
    assert database.set_verified(samples.KEY, text, all_three)
    assert not database.set_verified(samples.KEY, text, samples.verified())
    assert database.best() == (samples.best(verified=all_three),)


def test_a_best_schedule_that_failed_a_check_is_withdrawn(database: Database) -> None:
    other = PairKey("other", "77aa", "fp16", "1")
    database.put_best(samples.best())
    database.put_best(samples.best(key=other))
    assert not database.withdraw_best(samples.KEY, Knobs(max_layers=3))
    assert database.withdraw_best(samples.KEY, samples.trial(0).knobs)
    assert not database.withdraw_best(samples.KEY, samples.trial(0).knobs)
    assert database.best() == (samples.best(key=other),)


# The whole


def test_what_is_written_is_there_after_opening_again(tmp_path: Path) -> None:
    with samples.filled(tmp_path / "at.db") as database:
        before = samples.content(database, tmp_path / "before.jsonl")
    with Database.open(tmp_path / "at.db", create=False) as database:
        assert samples.content(database, tmp_path / "after.jsonl") == before
        assert database.counts() == Counts(runs=1, trials=3, best=1)


def test_health(tmp_path: Path) -> None:
    with samples.filled(tmp_path / "at.db") as database:
        health = database.health()
    assert health.pop("bytes") > 0
    assert health == {
        "path": str(tmp_path / "at.db"),
        "integrity": "ok",
        "user_version": len(MIGRATIONS),
        "journal_mode": "wal",
        "sqlite": sqlite3.sqlite_version,
        "counts": {"runs": 1, "trials": 3, "best": 1},
    }


def test_health_tells_of_trials_without_their_run(tmp_path: Path) -> None:
    samples.filled(tmp_path / "at.db").close()
    raw = sqlite3.connect(tmp_path / "at.db")
    raw.execute("DELETE FROM runs")
    raw.commit()
    raw.close()
    with Database.open(tmp_path / "at.db") as database:
        said = "trials of run 'aa00', which is not there: import its manifest.json first"
        assert database.health()["integrity"] == said


def test_reading_only(tmp_path: Path) -> None:
    samples.filled(tmp_path / "at.db").close()
    before = (tmp_path / "at.db").read_bytes()
    with Database.open(tmp_path / "at.db", read_only=True) as database:
        assert database.trials("aa00") == tuple(samples.trial(n, 0.01 / (n + 1)) for n in range(3))
        assert database.export(tmp_path / "out.jsonl").trials == 3
        with pytest.raises(DatabaseError):
            database.set_state("aa00", "done")
    assert (tmp_path / "at.db").read_bytes() == before


def test_each_commit_is_forced_to_the_disk(tmp_path: Path) -> None:
    """FULL is 2: without it a power loss could take back an acknowledged trial."""
    database, connection = samples.connected(tmp_path / "at.db")
    with database:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


class Interrupted(sqlite3.Connection):
    """Is interrupted right after it has written a run."""

    def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
        cursor = super().execute(sql, *given)
        if sql == TABLES[RunInfo].put:
            raise KeyboardInterrupt
        return cursor


def test_an_interrupt_within_a_write_rolls_it_back(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    Database.open(path).close()
    connection = sqlite3.connect(path, isolation_level=None, factory=Interrupted)
    with Database(connection, path, read_only=False) as database:
        with pytest.raises(KeyboardInterrupt):
            database.add_run(samples.run_info())
        assert not connection.in_transaction
        assert database.counts() == Counts()


def test_a_closed_database_is_a_mistake_of_the_caller(database: Database) -> None:
    database.close()
    database.close()
    with pytest.raises(sqlite3.ProgrammingError):
        database.runs()
