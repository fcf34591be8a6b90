"""Damaged databases: what is recovered is what is left, and what is lost is said."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoturbo.database import (
    Counts,
    Database,
    PairKey,
    RunFolder,
    TrialRecord,
    check,
    holding,
    repair,
    salvage,
)
from autoturbo.database.pages import Pages, page_size, rows_of
from autoturbo.errors import DatabaseError
from tests.database import database_samples as samples

PAGE = 4096


def large(path: Path, trials: int = 400) -> bytes:
    """A closed database of many pages, one record on several; its export."""
    with samples.filled(path, trials=trials) as database:
        key = PairKey("other", "77aa", "fp16", "0.1.0/1/1")
        noise = random.Random(0).randbytes(40_000).hex()  # noqa: S311  does not pack
        schedule = samples.schedule_text(key, note=noise)
        database.put_best(samples.best(key=key, schedule=schedule))
        return samples.content(database, path.with_suffix(".jsonl"))


def overwrite(path: Path, *pages: int) -> None:
    """Fill pages, counted from 1, with what makes no sense."""
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * PAGE)
            file.write(b"\xa5" * PAGE)


def lines(path: Path) -> set[bytes]:
    """The records of a database, as an export has them."""
    with Database.open(path) as database:
        return set(samples.content(database, path.with_suffix(".out")).splitlines())


def test_a_sound_database_is_saved_whole(tmp_path: Path) -> None:
    export = large(tmp_path / "at.db")
    found = salvage(tmp_path / "at.db", tmp_path / "new.db")
    assert found.saved == Counts(runs=1, trials=400, best=2, kernels=1)
    assert (found.missing, found.orphans, found.orphans_file, found.lost_best) == ({}, 0, None, ())
    with Database.open(tmp_path / "new.db") as database:
        assert samples.content(database, tmp_path / "new.jsonl") == export
    assert check(tmp_path / "new.db").sound
    assert not list(tmp_path.glob("*.orphans*"))


@pytest.mark.parametrize("version", [1, 2])
def test_earlier_versions_are_saved_too(tmp_path: Path, version: int) -> None:
    text = (Path(__file__).parent / f"version_{version}.sql").read_text(encoding="utf-8")
    with contextlib.closing(sqlite3.connect(tmp_path / "at.db")) as connection:
        connection.executescript(text)
    shutil.copy(tmp_path / "at.db", tmp_path / "copy.db")
    found = salvage(tmp_path / "at.db", tmp_path / "new.db")
    assert found.saved == Counts(runs=1, trials=3, best=1, kernels=1)
    assert lines(tmp_path / "new.db") == lines(tmp_path / "copy.db")


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 2))])
def test_overwritten_pages_lose_what_stood_on_them_and_nothing_else(
    tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "at.db"
    whole = set(large(path).splitlines())
    count = path.stat().st_size // PAGE
    chosen = random.Random(seed).sample(range(1, count + 1), 8)  # noqa: S311
    overwrite(path, *chosen)
    assert damaged(path)
    found = salvage(path, tmp_path / "new.db")
    saved = lines(tmp_path / "new.db")
    assert saved <= whole
    assert len(saved) + found.orphans > len(whole) - 8 * 20  # trials on a page
    numbers = found.missing.get("aa00", ())
    there = {t.number for t in trials_of(tmp_path / "new.db")}
    assert there.isdisjoint(numbers)
    assert set(range(max(there, default=-1))) == {*numbers, *there} - {max(there, default=-1)}


def damaged(path: Path) -> bool:
    try:
        return not check(path).sound
    except DatabaseError:
        return True


def trials_of(path: Path) -> tuple[TrialRecord, ...]:
    with Database.open(path) as database:
        return database.trials("aa00") if database.runs() else ()


def test_without_its_first_page_nothing_else_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    whole = set(large(path).splitlines())
    overwrite(path, 1)
    with pytest.raises(DatabaseError, match="not an SQLite database"):
        Database.open(path)
    salvage(path, tmp_path / "new.db")
    assert lines(tmp_path / "new.db") == whole


@pytest.mark.parametrize("share", [0.5, pytest.param(0.2, marks=pytest.mark.full)])
def test_of_a_file_that_was_cut_the_beginning_is_saved(tmp_path: Path, share: float) -> None:
    path = tmp_path / "at.db"
    whole = set(large(path).splitlines())
    os.truncate(path, int(path.stat().st_size * share))
    found = salvage(path, tmp_path / "new.db")
    saved = lines(tmp_path / "new.db")
    assert saved < whole
    assert len(saved) + found.orphans > len(whole) * (share - 0.25)


def copied_while_open(tmp_path: Path, *, with_log: bool) -> Path:
    """A database as a crash leaves it: 20 trials are in the file, 30 in its log."""
    path = tmp_path / "at.db"
    with samples.filled(path, trials=20) as database:
        database._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.add_trials([samples.trial(n) for n in range(20, 50)])
        shutil.copy(path, tmp_path / "crashed.db")
        if with_log:
            shutil.copy(f"{path}-wal", tmp_path / "crashed.db-wal")
    return tmp_path / "crashed.db"


@pytest.mark.parametrize(("with_log", "trials"), [(True, 50), (False, 20)])
def test_what_only_the_log_holds_is_saved_with_it_and_lost_without(
    tmp_path: Path, trials: int, *, with_log: bool
) -> None:
    path = copied_while_open(tmp_path, with_log=with_log)
    overwrite(path, 1)
    found = salvage(path, tmp_path / "new.db")
    assert found.saved.trials == trials
    assert {t.number for t in trials_of(tmp_path / "new.db")} == set(range(trials))


def test_a_lost_log_leaves_a_sound_database_of_what_was_before(tmp_path: Path) -> None:
    path = copied_while_open(tmp_path, with_log=False)
    assert check(path).sound
    with Database.open(path) as database:
        assert database.counts().trials == 20


def test_a_log_is_read_up_to_its_first_damaged_frame(tmp_path: Path) -> None:
    path = copied_while_open(tmp_path, with_log=True)
    log = Path(f"{path}-wal")
    size = log.stat().st_size
    with log.open("r+b") as file:
        file.seek(size - 2000)
        file.write(b"\xa5" * 100)
    assert salvage(path, tmp_path / "new.db").saved.trials == 20


def test_trials_without_their_run_wait_for_it(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    whole = set(large(path, trials=30).splitlines())
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("DELETE FROM runs")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert check(path).findings == ("trials of run 'aa00', which is not there",)
    found = salvage(path, tmp_path / "new.db")
    assert (found.saved.trials, found.orphans) == (0, 30)
    assert found.orphans_file == tmp_path / "new.db.orphans.jsonl"
    with Database.open(tmp_path / "new.db") as database:
        with pytest.raises(DatabaseError, match="import the file that has the run first"):
            database.take_in(found.orphans_file)
        database.add_run(samples.run_info())
        database.take_in(found.orphans_file)
    assert lines(tmp_path / "new.db") == whole


def test_a_lost_run_comes_back_from_its_manifest(tmp_path: Path) -> None:
    """The run's record is in its folder too: all but its state."""
    path = tmp_path / "at.db"
    large(path, trials=30)
    folder = RunFolder.create(tmp_path / "runs", "resnet50", "stcp920", "aa00")
    values = {**samples.run_info().as_dict(), "space": ["lb_fill"]}
    del values["state"]
    folder.write_manifest(values)
    overwrite(path, 2)  # where runs begin
    found = salvage(path, tmp_path / "new.db")
    assert (found.saved.runs, found.orphans) == (0, 30)
    assert found.orphans_file is not None
    with Database.open(tmp_path / "new.db") as database:
        assert database.take_in(folder.manifest_file).changed.runs == 1
        assert database.take_in(found.orphans_file).changed.trials == 30
        assert database.run("aa00").state == "interrupted"
        assert database.run("aa00").settings == samples.run_info().settings
        assert len(database.trials("aa00")) == 30


def test_a_best_schedule_that_failed_a_check_stays_withdrawn(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    with samples.filled(path) as database:
        database._connection.execute("PRAGMA secure_delete = OFF")
        database.set_refused("aa00", [samples.refused(0)])
        database.withdraw_best(samples.KEY, samples.best().knobs)
        database.put_best(samples.best(0.02, trial=1))
    found = salvage(path, tmp_path / "new.db")
    assert found.saved.best == 1
    with Database.open(tmp_path / "new.db") as database:
        assert [best.trial for best in database.best()] == [1]


def test_a_run_without_its_best_schedule_is_named(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    with samples.filled(path) as database:
        database.set_state("aa00", "done")
        database._connection.execute("DELETE FROM best")
    assert salvage(path, tmp_path / "new.db").lost_best == ("aa00",)


def test_files_that_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "at.db").write_bytes(b"no database" * 1000)
    with pytest.raises(DatabaseError) as caught:
        salvage(tmp_path / "at.db", tmp_path / "new.db")
    assert str(caught.value).startswith(f"{tmp_path / 'at.db'}: holds no record that can be read; ")
    assert [file.name for file in tmp_path.iterdir()] == ["at.db"]
    with pytest.raises(DatabaseError, match="cannot read: No such file"):
        salvage(tmp_path / "none.db", tmp_path / "new.db")
    with pytest.raises(DatabaseError, match="there is a file of that name"):
        salvage(tmp_path / "at.db", tmp_path / "at.db")


def test_repairing_keeps_the_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    whole = set(large(path).splitlines())
    overwrite(path, 1)
    before = path.read_bytes()
    _, aside = repair(path)
    assert aside == tmp_path / "at.db.damaged"
    assert aside.read_bytes() == before
    assert lines(path) == whole
    overwrite(path, 1)
    assert repair(path)[1].name == "at.db.damaged1"


def test_nothing_is_repaired_while_a_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    large(path, trials=3)
    with (
        holding.hold(path, "aa00"),
        pytest.raises(DatabaseError, match="a run is going on in the database"),
    ):
        repair(path)


def test_a_check_names_records_that_are_damaged_and_rows_that_lie(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    large(path, trials=5)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE trials SET record = x'00' WHERE number = 1")
        connection.execute("UPDATE trials SET latency = 1e-9 WHERE number = 2")
        connection.execute("UPDATE runs SET record = (SELECT record FROM trials LIMIT 1)")
    found = check(path)
    lies = "what is looked up by is not what the record says"
    assert found.findings == (
        "runs aa00: its record is one of another table",
        "trials aa00 1: cannot be unpacked: cut short, or too long",
        f"trials aa00 2: {lies}",
    )
    assert (found.records, found.more, found.sound) == (6, 0, False)


def test_many_findings_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    large(path, trials=50)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE trials SET latency = 1e-9")
    found = check(path)
    assert (len(found.findings), found.more) == (20, 30)


@settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.floats(allow_nan=False) | st.text(st.characters(exclude_categories=["Cs"])),
            st.binary(max_size=200) | st.sampled_from([100, 4000, 4090, 9000]).map(bytes),
        ),
        max_size=30,
    ),
    st.sampled_from([512, 1024, 4096, 65536]),
)
def test_every_row_of_any_table_is_found(
    tmp_path: Path, rows: list[tuple[object, ...]], size: int
) -> None:
    path = tmp_path / "any.db"
    path.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {size}")
        connection.execute("CREATE TABLE found (a, b, c)")
        connection.executemany("INSERT INTO found VALUES (?, ?, ?)", rows)
        connection.commit()
        expected = connection.execute("SELECT a, b, c FROM found").fetchall()
    data = path.read_bytes()
    assert page_size(data) == size
    found = [row for row in rows_of(Pages(data)) if len(row) == 3]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


@given(st.binary(max_size=3000), st.binary(max_size=3000))
def test_any_bytes_at_all_give_rows_or_none(data: bytes, log: bytes) -> None:
    for start in (
        b"",
        b"\x0d\x00\x00\x00\x05\x00\x00\x00\x08\x00\x09\x01\x02",
        b"\x37\x7f\x06\x82",
    ):
        list(rows_of(Pages(start + data, start + log)))
