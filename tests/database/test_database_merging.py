"""Merging databases: commutative, associative, idempotent, in every form of a file."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sqlite3
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import autoturbo
from autoturbo.database import Counts, Database, HandedOut, opening
from autoturbo.database.formats import encode
from autoturbo.database.records import Record, RunInfo, TrialRecord
from autoturbo.database.rows import merge
from autoturbo.errors import DatabaseError, Location, UsageError
from tests.database import database_samples as samples

FORMS = (".jsonl", ".db")

# Runs of one id are one run, so their settings are the same; their trials may be measured anew.
_runs = samples.runs.map(lambda run: samples.run_info(run.id, state=run.state, refused=run.refused))
_records = _runs | samples.agreeing_trials | samples.loose_bests
_lists = st.lists(_records, max_size=6)


def made(path: Path, records: list[Record]) -> None:
    """A database of records; trials get the runs that they are of."""
    path.unlink(missing_ok=True)
    given = {r.id for r in records if isinstance(r, RunInfo)}
    trials = (r for r in records if isinstance(r, TrialRecord) and r.run not in given)
    runs = [samples.run_info(trial.run) for trial in trials]
    database, connection = samples.connected(path)
    with database, opening.transaction(connection, "BEGIN IMMEDIATE"):
        for record in [*runs, *records]:
            merge(connection, record, Location())


def merged(folder: Path, *names: str) -> bytes:
    """The content of an empty database that takes in others, one after another."""
    path = folder / "merged.db"
    path.unlink(missing_ok=True)
    with Database.open(path) as database:
        for name in names:
            database.take_in(folder / name)
        return samples.content(database, folder / "merged.jsonl")


@settings(max_examples=8, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.tuples(_lists, _lists, _lists))
def test_in_any_order_and_any_number_of_times(
    tmp_path: Path, parts: tuple[list[Record], ...]
) -> None:
    for name, records in zip("abc", parts, strict=True):
        made(tmp_path / f"{name}.db", records)
    whole = merged(tmp_path, "a.db", "b.db", "c.db")
    assert merged(tmp_path, "c.db", "b.db", "a.db") == whole
    assert merged(tmp_path, "b.db", "b.db", "a.db", "c.db", "a.db") == whole
    with Database.open(tmp_path / "b.db") as database:  # (b, c) first, then a with both
        database.take_in(tmp_path / "c.db")
    assert merged(tmp_path, "a.db", "b.db") == whole


@settings(max_examples=8, suppress_health_check=list(HealthCheck), deadline=None)
@given(_lists)
def test_every_form_holds_everything(tmp_path: Path, records: list[Record]) -> None:
    made(tmp_path / "at.db", records)
    with Database.open(tmp_path / "at.db") as database:
        whole = samples.content(database, tmp_path / "at.jsonl")
        counts = database.counts()
        for form in FORMS:
            assert database.export(tmp_path / f"out{form}") == counts
    for form in FORMS:
        assert merged(tmp_path, f"out{form}") == whole


@pytest.mark.parametrize("form", FORMS)
def test_what_taking_in_reports(tmp_path: Path, form: str) -> None:
    with samples.filled(tmp_path / "at.db") as database:
        database.export(tmp_path / f"out{form}")
    everything = Counts(runs=1, trials=3, best=1)
    with Database.open(tmp_path / "new.db") as database:
        first, second = (database.take_in(tmp_path / f"out{form}") for _ in range(2))
    assert (first.read, first.changed) == (everything, everything)
    assert (second.read, second.changed) == (everything, Counts())


def another(run: str = "aa00", **changes: Any) -> list[Record]:
    """A run of two trials and its best schedule, which differs from that of the samples."""
    info = samples.run_info(run, **changes)
    found = [samples.trial(n, 0.02 / (n + 1), run) for n in range(2)]
    best = samples.best(0.01, run=run, trial=1, knobs=found[1].knobs)
    return [info, *found, best]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("changes", [{"settings": {"seed": 1}}, {}], ids=["settings", "figures"])
def test_a_run_that_is_another_one_is_taken_under_a_free_id(
    tmp_path: Path, form: str, changes: dict[str, Any]
) -> None:
    """Whatever tells it from ours, all else is merged, and a second time changes nothing."""
    theirs = [*another(**changes), samples.run_info("bb00"), samples.trial(0, 0.01, "bb00")]
    made(tmp_path / "theirs.db", theirs)
    with Database.open(tmp_path / "theirs.db") as database:
        database.export(tmp_path / f"out{form}")
    with samples.filled(tmp_path / "ours.db") as database:
        before = database.run("aa00"), database.trials("aa00")
        result = database.take_in(tmp_path / f"out{form}")
        assert (result.renamed, result.left_out) == ({"aa00": "aa00-2"}, Counts())
        assert (database.run("aa00"), database.trials("aa00")) == before
        assert [info.id for info in database.runs()] == ["aa00", "aa00-2", "bb00"]
        assert [trial.latency for trial in database.trials("aa00-2")] == [0.02, 0.01]
        whole = samples.content(database, tmp_path / "first.jsonl")
        again = database.take_in(tmp_path / f"out{form}")
        assert (again.renamed, again.changed) == ({"aa00": "aa00-2"}, Counts())
        assert samples.content(database, tmp_path / "second.jsonl") == whole


def test_the_place_where_a_run_was_begun_does_not_tell_it_from_another(tmp_path: Path) -> None:
    places = ("folder", "output", "runs_folder", "storage", "cost_model", "limits")
    for name in ("p", "q"):
        settings_of = {"seed": 0, **dict.fromkeys(places, name)}
        records = [samples.run_info(settings=settings_of, model_file=f"{name}/x.onnx")]
        made(tmp_path / f"{name}.db", [*records, samples.trial(0)])
    with Database.open(tmp_path / "p.db") as database:
        result = database.take_in(tmp_path / "q.db")
        assert (dict(result.renamed), database.counts().runs) == ({}, 1)


def test_runs_that_name_one_another_do_so_under_their_new_ids(tmp_path: Path) -> None:
    first = samples.run_info(settings={"seed": 1})
    second = samples.run_info("bb00", settings={"call": "aa00", "place": 1, "seed": 1})
    lent = samples.run_info("cc00", settings={"borrows": {"run": "aa00", "grid": "x"}})
    made(tmp_path / "theirs.db", [first, second, lent])
    with samples.filled(tmp_path / "ours.db") as database:
        database.take_in(tmp_path / "theirs.db")
        assert database.run("bb00").settings["call"] == "aa00-2"
        assert database.run("cc00").settings["borrows"]["run"] == "aa00-2"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_one_run_what_it_handed_out_last_stays(tmp_path: Path, order: tuple[int, ...]) -> None:
    """Where measurements vary, a race after a resume may find another trial, which takes longer."""
    found = [samples.trial(n) for n in range(2)]
    noisy = [dataclasses.replace(t, outcome=samples.measurement(0.01, noise=0.1)) for t in found]
    for number, latency in enumerate((0.008, 0.012)):
        figure = samples.measurement(latency, noise=0.1)
        handed = HandedOut(number, 1 + number, figure, varies=True)
        info = samples.run_info(handed_out=handed, settings={"measurer": "noisy"}, state="done")
        knobs = noisy[number].knobs
        best = samples.best(latency, trial=number, knobs=knobs, measurement=figure)
        made(tmp_path / f"{number}.db", [info, *noisy[: number + 1], best])
    with Database.open(tmp_path / "all.db") as database:
        for number in order:
            assert database.take_in(tmp_path / f"{number}.db").findings == ()
        (kept,) = database.best()
        assert (kept.trial, kept.measurement.latency) == (1, 0.012)


def test_a_trial_without_its_run_that_is_another_one_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(encode(samples.trial(1, 0.001)) + "\n")
    with samples.filled(tmp_path / "ours.db") as database:
        before = database.trials("aa00")
        result = database.take_in(tmp_path / "in.jsonl")
        assert (result.left_out, database.trials("aa00")) == (Counts(trials=1), before)
        assert result.findings == (
            "trials aa00 1: another one is in the database, with other knobs or figures",
        )


def test_what_is_no_export_and_damaged_ones(tmp_path: Path) -> None:
    (tmp_path / "other.parquet").write_bytes(b"PAR1\x15\x04\xff")
    large = sqlite3.connect(tmp_path / "other.db")
    large.execute("CREATE TABLE other (x)")
    large.close()
    with samples.filled(tmp_path / "damaged.db", trials=200):
        pass
    with (tmp_path / "damaged.db").open("r+b") as file:
        file.seek(8192)
        file.write(b"\xa5" * 8192)
    for name, expected in {
        "other.parquet": "other.parquet:1: not UTF-8 text; expected one JSON record a line",
        "other.db": "an SQLite database of another program",
        "damaged.db": "damaged.db: the database is damaged; 'autoturbo db check --db ",
    }.items():
        with Database.open(tmp_path / "new.db") as database:
            with pytest.raises(DatabaseError) as caught:
                database.take_in(tmp_path / name)
            assert expected in str(caught.value)
            assert database.counts() == Counts()


@pytest.mark.parametrize("name", ["out.parquet", "out.csv"])
def test_other_forms_are_refused_with_those_that_there_are(tmp_path: Path, name: str) -> None:
    with samples.filled(tmp_path / "at.db") as database, pytest.raises(UsageError) as caught:
        database.export(tmp_path / name)
    assert str(caught.value).endswith("ends in .jsonl (JSON lines), .db or .sqlite (a database)")
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_databases_of_earlier_versions_are_merged(tmp_path: Path, version: int) -> None:
    text = (Path(__file__).parent / f"version_{version}.sql").read_text(encoding="utf-8")
    with contextlib.closing(sqlite3.connect(tmp_path / "old.db")) as connection:
        connection.executescript(text)
    before = (tmp_path / "old.db").read_bytes()
    whole = merged(tmp_path, "old.db")
    assert (tmp_path / "old.db").read_bytes() == before
    with Database.open(tmp_path / "old.db") as old:
        assert samples.content(old, tmp_path / "old.jsonl") == whole


# Databases that were tuned apart


def small_model(path: Path, width: int) -> Path:
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["m"]),
        onnx.helper.make_node("Relu", ["m"], ["y"]),
    ]
    weights = onnx.helper.make_tensor("w", 1, [width, width], [1.0] * width**2)
    ends = [onnx.helper.make_tensor_value_info(name, 1, [8, width]) for name in ("x", "y")]
    graph = onnx.helper.make_graph(nodes, path.stem, ends[:1], ends[1:], [weights])
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset]), path)
    return path


def tuned(folder: Path, name: str, pairs: list[tuple[str, str, int]]) -> None:
    """A database of runs: model, target and seed of each."""
    for model, target, seed in pairs:
        autoturbo.tune(
            autoturbo.load_model(folder / model), autoturbo.load_target(target),
            trials=12, seed=seed, sampler="random", database=folder / name,
            runs_folder=folder / f"runs-{name}", baselines=(), transfer=False,
        )  # fmt: skip


@pytest.mark.full
def test_two_that_were_tuned_apart_give_the_same_best_set_in_either_order(tmp_path: Path) -> None:
    for name, width in (("one.onnx", 256), ("two.onnx", 384)):
        small_model(tmp_path / name, width)
    tuned(tmp_path, "a.db", [("one.onnx", "stcp920", 1), ("two.onnx", "stcp920", 1)])
    tuned(tmp_path, "b.db", [("one.onnx", "stcp920", 2), ("one.onnx", "goya", 2)])
    contents = {
        order: merged(tmp_path, *order) for order in itertools.permutations(("a.db", "b.db"))
    }
    assert len(set(contents.values())) == 1
    with Database.open(tmp_path / "merged.db") as database:
        best = {(b.model, b.target): b for b in database.best()}
        counts = database.counts()
        runs = database.runs()
    assert sorted(best) == [("one", "goya"), ("one", "stcp920"), ("two", "stcp920")]
    assert (counts.runs, counts.best) == (4, 3)
    assert counts.trials == sum(run.trials for run in runs)
    assert [run.schedules for run in runs] == [12] * 4
    for pair, found in best.items():
        mine = [run.best_latency for run in runs if (run.model, run.target) == pair]
        assert found.measurement.latency == min(latency for latency in mine if latency is not None)
    assert not any(isinstance(run, RunInfo) and run.state != "done" for run in runs)
