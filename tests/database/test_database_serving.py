"""Read-only use: from media and folders that cannot be written, and from copies made for it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from autoturbo.database import Counts, Database, check, tables
from autoturbo.errors import DatabaseError
from tests.database import database_samples as samples
from tests.database.small_disk import make_read_only, mounted


def test_a_closed_database_on_media_that_cannot_be_written(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", 4) as disk:
        samples.filled(disk / "at.db").close()
        make_read_only(disk)
        with Database.open(disk / "at.db", read_only=True) as database:
            assert database.counts() == Counts(runs=1, trials=3, best=1)
            assert database.best() == (samples.best(),)
            assert database.state(database.run("aa00")) == "killed"
            database.export(tmp_path / "out.jsonl")
        assert check(disk / "at.db").sound
        with pytest.raises(DatabaseError) as caught:
            Database.open(disk / "at.db")
        assert caught.value.at.file == disk / "at.db"


def test_one_that_was_not_closed_says_what_to_copy(tmp_path: Path) -> None:
    with samples.filled(tmp_path / "at.db"), mounted(tmp_path / "disk", 4) as disk:
        for name in ("at.db", "at.db-wal"):
            shutil.copy(tmp_path / name, disk / name)
        make_read_only(disk)
        with pytest.raises(DatabaseError) as caught:
            Database.open(disk / "at.db", read_only=True)
        assert str(caught.value).replace(str(disk), "DISK") == (
            "DISK/at.db: its last writer has not closed it, and its folder cannot be written; "
            "copy it together with at.db-wal to a folder that can be written"
        )


@pytest.mark.parametrize("ending", [".db", ".sqlite"])
def test_an_exported_database_is_read_without_writing_anything(tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"served{ending}"
    with samples.filled(tmp_path / "at.db") as database:
        assert database.export(out) == database.counts()
        whole = samples.content(database, tmp_path / "at.jsonl")
    before = out.read_bytes(), sorted(os.listdir(tmp_path))  # noqa: PTH208
    with Database.open(out, read_only=True) as served:
        assert served.health()["journal_mode"] == "delete"
        assert served.best() == (samples.best(),)
        assert sorted(os.listdir(tmp_path)) == before[1]  # noqa: PTH208
        assert samples.content(served, tmp_path / "served.jsonl") == whole
    assert out.read_bytes() == before[0]
    assert check(out).sound
    with Database.open(out) as again:  # and it can be gone on with
        again.add_trials([samples.trial(3)])


@pytest.mark.parametrize("ending", [".db", ".jsonl"])
def test_only_the_best_schedules(tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"best{ending}"
    with samples.filled(tmp_path / "at.db") as database:
        assert database.export(out, best_only=True) == Counts(best=1)
    with Database.open(tmp_path / "other.db") as other:
        assert other.take_in(out).changed == Counts(best=1)
        assert (other.best(), other.counts()) == ((samples.best(),), Counts(best=1))


def test_a_database_of_an_earlier_version_is_exported_in_this_one(tmp_path: Path) -> None:
    text = (Path(__file__).parent / "version_1.sql").read_text(encoding="utf-8")
    connection = sqlite3.connect(tmp_path / "at.db")
    connection.executescript(text)
    connection.close()
    with Database.open(tmp_path / "at.db", read_only=True) as old:
        old.export(tmp_path / "new.db")
        whole = samples.content(old, tmp_path / "old.jsonl")
    with Database.open(tmp_path / "new.db", read_only=True) as new:
        assert new.health()["user_version"] == len(tables.MIGRATIONS)
        assert samples.content(new, tmp_path / "new.jsonl") == whole


def test_an_export_as_a_database_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "served.db"
    with Database.open(tmp_path / "earlier.db") as database:
        database.export(out)
    (tmp_path / "earlier.db").unlink()
    before = out.read_bytes()

    def broken(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with samples.filled(tmp_path / "at.db") as database:
        monkeypatch.setattr("autoturbo.database.exporting.copy_rows", broken)
        with pytest.raises(KeyboardInterrupt):
            database.export(out)
    assert out.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["at.db", "served.db"]


def fill(database: Database) -> None:
    """Record trials, fifty at a time, for as long as it goes."""
    for first in range(0, 100_000, 50):
        database.add_trials([samples.trial(n) for n in range(first, first + 50)])


def test_a_full_disk_while_tuning_loses_nothing_that_was_recorded(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", 1) as disk:
        path = disk / "at.db"
        with samples.filled(path, trials=0) as database:
            with pytest.raises(DatabaseError) as caught:
                fill(database)
            recorded = database.counts().trials
        assert str(caught.value) == (
            f"{path}: the disk is full; free some space and resume: what was recorded is safe"
        )
        assert recorded > 100
        assert recorded % 50 == 0
        shutil.copytree(disk, tmp_path / "larger")
    with Database.open(tmp_path / "larger" / "at.db") as database:
        assert database.health()["integrity"] == "ok"
        assert database.trials("aa00") == tuple(samples.trial(n) for n in range(recorded))
        database.add_trials([samples.trial(n) for n in range(recorded, recorded + 50)])


def test_a_file_that_may_not_grow_loses_nothing_that_was_recorded(tmp_path: Path) -> None:
    """A limit of the process in place of a full disk; it needs no file system of its own."""
    resource = pytest.importorskip("resource")
    path = tmp_path / "at.db"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with samples.filled(path, trials=0) as database:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
        try:
            with pytest.raises(DatabaseError) as caught:
                fill(database)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert caught.value.exit_status == 2
        recorded = database.counts().trials
        assert recorded % 50 == 0
        assert database.trials("aa00") == tuple(samples.trial(n) for n in range(recorded))
    assert check(path).sound
