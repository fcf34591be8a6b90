"""Damaged databases: what SQLite can still read is saved, and what is lost is said."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from autoturbo.database import Counts, Database, PairKey, RunFolder, check
from autoturbo.errors import DatabaseError
from tests.database import database_samples as samples

PAGE = 4096


def large(path: Path, trials: int = 400) -> bytes:
    """A closed database of many pages, one record on several; its export."""
    with samples.filled(path, trials=trials) as database:
        key = PairKey("other", "77aa", "fp16", "0.1.0/1/1")
        noise = random.Random(0).randbytes(40_000).hex()  # noqa: S311  does not pack
        schedule = samples.schedule_text(key, note=noise)
        database.put_best(samples.best(key=key, schedule=schedule, run="other"))
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
        return set(samples.content(database, path.with_suffix(".lines.jsonl")).splitlines())


def saved(path: Path) -> tuple[set[bytes], tuple[str, ...]]:
    """The records that are written, every one of which can be taken in, and what is said."""
    out = path.with_name("saved.jsonl")
    found = check(path, out)
    records = out.read_bytes().splitlines()
    assert len(records) == found.records
    return set(records), found.findings


def test_a_sound_database_is_saved_whole(tmp_path: Path) -> None:
    export = large(tmp_path / "at.db")
    assert saved(tmp_path / "at.db") == (set(export.splitlines()), ())
    with Database.open(tmp_path / "new.db") as database:
        changed = database.take_in(tmp_path / "saved.jsonl").changed
        assert changed == Counts(runs=1, trials=400, best=2)
        assert samples.content(database, tmp_path / "new.jsonl") == export


@pytest.mark.parametrize("version", [1, 2, 3])
def test_earlier_versions_are_saved_too(tmp_path: Path, version: int) -> None:
    text = (Path(__file__).parent / f"version_{version}.sql").read_text(encoding="utf-8")
    with contextlib.closing(sqlite3.connect(tmp_path / "at.db")) as connection:
        connection.executescript(text)
    shutil.copy(tmp_path / "at.db", tmp_path / "copy.db")
    assert saved(tmp_path / "at.db") == (lines(tmp_path / "copy.db"), ())


def pages_of(path: Path, table: str) -> list[int]:
    """The leaves of a table, told by their rows, without the first page of the file."""
    data = path.read_bytes()
    leaves = range(2, len(data) // PAGE + 1)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (root,) = connection.execute(query, (table,)).fetchone()
    start = (root - 1) * PAGE
    assert data[start] == 5, "an interior page of a table"
    count = int.from_bytes(data[start + 3 : start + 5], "big")
    places = [start + int.from_bytes(data[start + 12 + 2 * n :][:2], "big") for n in range(count)]
    found = [int.from_bytes(data[place : place + 4], "big") for place in places]
    return [page for page in found if page in leaves and data[(page - 1) * PAGE] == 13]


@pytest.mark.parametrize("where", [[0], [-1], [0, 3, 4, 9, -1]])
def test_overwritten_pages_lose_what_stood_on_them_and_nothing_else(
    tmp_path: Path, where: list[int]
) -> None:
    path = tmp_path / "at.db"
    whole = set(large(path).splitlines())
    pages = pages_of(path, "trials")
    overwrite(path, *(pages[n] for n in where))
    with pytest.raises(DatabaseError, match="autoturbo db check"):
        lines(path)
    records, findings = saved(path)
    assert records < whole
    lost = len(whole) - len(records)
    assert lost <= len(where) * 30  # trials on a page
    assert findings[-1] == f"trials: {lost} of 400 rows cannot be read"
    with Database.open(tmp_path / "new.db") as database:
        assert database.take_in(tmp_path / "saved.jsonl").read.trials == 400 - lost


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 2, 3))])
def test_what_is_lost_is_never_lost_in_silence(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "at.db"
    whole = set(large(path).splitlines())
    chosen = random.Random(seed).sample(range(2, path.stat().st_size // PAGE + 1), 8)  # noqa: S311
    overwrite(path, *chosen)
    records, findings = saved(path)
    assert records <= whole
    assert findings


def test_of_a_file_that_is_no_database_any_more_nothing_is_read(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    large(path)
    overwrite(path, 1)
    assert check(path, tmp_path / "saved.jsonl").findings == ("not an SQLite database",)
    assert not (tmp_path / "saved.jsonl").exists()
    with pytest.raises(DatabaseError) as caught:
        Database.open(path)
    assert caught.value.at.file == path


@pytest.mark.parametrize("share", [0.5, pytest.param(0.2, marks=pytest.mark.full)])
def test_a_file_that_was_cut_says_so(tmp_path: Path, share: float) -> None:
    path = tmp_path / "at.db"
    large(path)
    os.truncate(path, int(path.stat().st_size * share))
    assert not check(path).sound


def copied_while_open(tmp_path: Path, *, with_log: bool) -> Path:
    """A database as a crash leaves it: 20 trials are in the file, 30 in its log."""
    path = tmp_path / "at.db"
    with samples.filled(path, trials=20) as database:
        samples.raw(path, "PRAGMA wal_checkpoint(TRUNCATE)")
        database.add_trials([samples.trial(n) for n in range(20, 50)])
        shutil.copy(path, tmp_path / "crashed.db")
        if with_log:
            shutil.copy(f"{path}-wal", tmp_path / "crashed.db-wal")
    return tmp_path / "crashed.db"


def test_a_lost_log_leaves_a_sound_database_of_what_was_before(tmp_path: Path) -> None:
    path = copied_while_open(tmp_path, with_log=False)
    assert check(path).sound
    with Database.open(path) as database:
        assert database.counts().trials == 20


def test_trials_without_their_run_wait_for_it(tmp_path: Path) -> None:
    """The run's record is in its folder too: all but its state."""
    path = tmp_path / "at.db"
    whole = set(large(path, trials=30).splitlines())
    folder = RunFolder.create(tmp_path / "runs", "resnet50", "stcp920", "aa00")
    values = {**samples.run_info().as_dict(), "space": ["lb_occupancy_limit"]}
    del values["state"]
    folder.write_manifest(values)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM runs")
        connection.commit()
    records, findings = saved(path)
    said = "trials of run 'aa00', which is not there: import its manifest.json first"
    assert findings == (said,)
    assert len(records) == len(whole) - 1
    with Database.open(tmp_path / "new.db") as database:
        with pytest.raises(DatabaseError) as caught:
            database.take_in(tmp_path / "saved.jsonl")
        assert caught.value.at.line == 1
        assert database.take_in(folder.manifest_file).changed.runs == 1
        assert database.take_in(tmp_path / "saved.jsonl").changed.trials == 30
        assert database.run("aa00").state == "interrupted"
        assert database.run("aa00").settings == samples.run_info().settings


def test_records_are_saved_where_nothing_is_replaced(tmp_path: Path) -> None:
    large(tmp_path / "at.db", trials=3)
    (tmp_path / "notes.txt").write_text("mine")
    for name in ("at.db", "notes.txt"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(DatabaseError):
            check(tmp_path / "at.db", tmp_path / name)
        assert (tmp_path / name).read_bytes() == before


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
    assert (found.records, found.more, found.sound) == (5, 0, False)


def test_many_findings_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    large(path, trials=50)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE trials SET latency = 1e-9")
    found = check(path)
    assert (len(found.findings), found.more) == (20, 30)
