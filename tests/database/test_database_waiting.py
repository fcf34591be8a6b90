"""Runs whose database is locked for long, removed or replaced: nothing is lost, nothing harmed."""

from __future__ import annotations

import contextlib
import logging
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoturbo.database import Counts, Database, check, store
from tests.database import database_samples as samples
from tests.processes import HANG_S


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PATIENCE_MS", 20)
    monkeypatch.setattr(store, "LAST_MS", 20)


def begun(path: Path) -> Database:
    """A database with a run of two trials that this process works on."""
    database = Database.open(path)
    database.add_run(samples.run_info())
    database.keep(samples.run_info(), path.parent / "folder" / "unsaved.jsonl")
    database.add_trials([samples.trial(n) for n in range(2)])
    return database


def carried_on(database: Database) -> None:
    """What a run writes until its end."""
    database.add_trials([samples.trial(2)])
    database.add_trials([samples.trial(3, 0.004), samples.trial(4, None)])
    database.set_refused("aa00", [samples.refused(1)])
    found = samples.trial(3, 0.004)
    database.put_best(samples.best(0.004, trial=3, knobs=found.knobs))
    database.set_state("aa00", "done")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def whole(path: Path) -> None:
    """All of the run is in a database."""
    assert check(path).sound
    with Database.open(path, create=False) as database:
        info = database.run("aa00")
        assert (info.state, info.trials, info.refused) == ("done", 5, (samples.refused(1),))
        (best,) = database.best()
        assert (best.trial, best.measurement.latency) == (3, 0.004)


def test_a_lock_that_is_held_meanwhile(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, file = tmp_path / "at.db", tmp_path / "folder" / "unsaved.jsonl"
    with begun(path) as database:
        with locked(path):
            database.add_trials([samples.trial(2)])
            assert database.trials("aa00") == tuple(samples.trial(n) for n in range(3))
            assert file.read_text().count("\n") == 4
            assert "another process holds the lock" in caplog.text
            assert "autoturbo db import" in caplog.text
        carried_on(database)
        assert (database.unsaved("aa00"), file.exists()) == ("", False)
    whole(path)


def test_a_lock_that_is_held_to_the_end(tmp_path: Path) -> None:
    path, file = tmp_path / "at.db", tmp_path / "folder" / "unsaved.jsonl"
    with locked_after(path) as database:
        carried_on(database)
        database.settle()
        assert f"autoturbo db import {file} --db {path}" in database.unsaved("aa00")
        database.close()
    with Database.open(path) as other:
        assert other.run("aa00").trials == 2
        other.take_unsaved(file)
    assert not file.exists()
    whole(path)


@contextlib.contextmanager
def locked_after(path: Path) -> Iterator[Database]:
    database = begun(path)
    with locked(path):
        yield database


def test_a_lock_that_nobody_can_read_beside(tmp_path: Path) -> None:
    """Only what was recorded before is not in the file, and it is in the database."""
    path = tmp_path / "at.db"
    with begun(path) as database:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            database.add_trials([samples.trial(2)])
            other.execute("ROLLBACK")
        carried_on(database)
    whole(path)


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be removed there")
@pytest.mark.parametrize("how", ["removed", "replaced", "moved back"])
def test_a_database_that_is_removed_or_replaced(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, file = tmp_path / "at.db", tmp_path / "folder" / "unsaved.jsonl"
    with samples.filled(tmp_path / "other.db", trials=64) as other:
        content = samples.content(other, tmp_path / "other.jsonl")
    with begun(path) as database:
        if how == "removed":
            path.unlink()
        elif how == "replaced":
            (tmp_path / "other.db").replace(path)
        else:
            shutil.copy(path, tmp_path / "copy.db")
            (tmp_path / "copy.db").replace(path)
        carried_on(database)
        assert caplog.text.count("was removed or replaced while a run wrote to it") == 1
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert f"db import {file} --db {path}" in database.unsaved("aa00")
    if how == "replaced":
        with Database.open(path) as other:
            assert samples.content(other, tmp_path / "after.jsonl") == content
    elif how == "removed":
        assert sorted(one.name for one in tmp_path.iterdir() if one.name.startswith("at.")) == []
    with Database.open(tmp_path / "new.db") as new:
        new.take_in(file)
    whole(tmp_path / "new.db")


def test_the_log_holds_nothing_between_writes(tmp_path: Path) -> None:
    """A file that takes the place of the database meets no frames of another one."""
    path = tmp_path / "at.db"
    with begun(path):
        assert (tmp_path / "at.db-wal").stat().st_size == 0


KILLED = f"""
import os, sys, sqlite3
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from autoturbo.database import store
store.PATIENCE_MS = 20
from pathlib import Path
from tests.database.test_database_waiting import begun, samples
path = Path(sys.argv[1])
database = begun(path)
other = sqlite3.connect(path, isolation_level=None)
other.execute("BEGIN IMMEDIATE")
for number in range(2, 9):
    database.add_trials([samples.trial(number)])
os._exit(9)
"""


def test_what_waited_in_a_process_that_was_killed(tmp_path: Path) -> None:
    path, file = tmp_path / "at.db", tmp_path / "folder" / "unsaved.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)], check=False, timeout=HANG_S, capture_output=True
    )
    assert done.returncode == 9, done.stderr
    with Database.open(path) as database:
        database.take_unsaved(file)
        assert database.trials("aa00") == tuple(samples.trial(n) for n in range(9))


def test_two_runs_wait_each_in_its_own_file(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    with locked_after(path) as database:
        database.add_trials([samples.trial(2)])
        database.add_run(samples.run_info("bb00"))
        database.keep(samples.run_info("bb00"), tmp_path / "second.jsonl")
        database.add_trials([samples.trial(0, run="bb00")])
        database.settle()
        database.close()
    for file in ("folder/unsaved.jsonl", "second.jsonl"):
        with Database.open(path) as other:
            other.take_in(tmp_path / file)
    with Database.open(path) as other:
        assert other.counts() == Counts(runs=2, trials=4)
