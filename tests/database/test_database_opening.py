"""Opening, migrating, and everything that can be wrong with the file: one located line each."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from autoturbo.database import Counts, Database, check, tables
from autoturbo.database.opening import explained, transaction
from autoturbo.database.records import Decided
from autoturbo.errors import DatabaseError, RunError
from tests.database import database_samples as samples

if TYPE_CHECKING:
    from collections.abc import Callable

RESTORE = "'autoturbo db check' says what is lost and how to go on"


def large(path: Path) -> None:
    """A database of many pages, closed and checkpointed."""
    with samples.filled(path, trials=200):
        pass
    assert path.stat().st_size > 50_000


def text_file(path: Path) -> None:
    path.write_text("hello, this is no database\n" * 100)


def short_text_file(path: Path) -> None:
    path.write_text("x")


def header_only(path: Path) -> None:
    large(path)
    os.truncate(path, 100)


def cut(path: Path) -> None:
    large(path)
    os.truncate(path, path.stat().st_size // 2)


def another_program(path: Path) -> None:
    samples.raw(path, "CREATE TABLE trials (trial_id INTEGER)")


def another_version(path: Path) -> None:
    samples.raw(path, "PRAGMA user_version = 7")


def newer(path: Path) -> None:
    samples.filled(path).close()
    samples.raw(path, "PRAGMA user_version = 9")


def folder(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path)


BAD_FILES = [
    (text_file, "DB: not an SQLite database; give another file with --db"),
    (short_text_file, "DB: not an SQLite database; give another file with --db"),
    (header_only, "DB: the database is cut short; restore the file from a copy"),
    (cut, f"DB: the database is damaged; {RESTORE}"),
    (
        another_program,
        "DB: an SQLite database of another program; give another file with --db",
    ),
    (
        another_version,
        "DB: an SQLite database of another program; give another file with --db",
    ),
    (
        newer,
        (
            f"DB: a database of version 9; this version reads up to {len(tables.MIGRATIONS)}; "
            "update autoturbo, or give another --db"
        ),
    ),
    (
        folder,
        "DB: a folder, not a database file; name a file in it, for example DB/autoturbo.db",
    ),
    (loop, "DB: cannot open: Too many levels of symbolic links"),
]


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(("make", "expected"), BAD_FILES)
def test_files_that_are_no_database_of_ours(
    tmp_path: Path,
    make: Callable[[Path], None],
    expected: str,
    read_only: bool,
) -> None:
    path = tmp_path / "at.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(DatabaseError) as caught:
        Database.open(path, read_only=read_only)
    assert str(caught.value).replace(str(path), "DB") == expected
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2
    if before is not None:
        assert path.read_bytes() == before  # it may be somebody's data


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("no/such/at.db", "TMP/no/such/at.db: no folder 'TMP/no/such'; create it first"),
        ("file/at.db", "TMP/file/at.db: cannot open: Not a directory"),
        ("a\0b", "TMP/a\0b: cannot open: embedded null byte"),
        ("x" * 300, f"TMP/{'x' * 300}: cannot open: File name too long"),
    ],
)
def test_places_where_no_database_can_be(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatabaseError) as caught:
        Database.open(tmp_path / name)
    assert str(caught.value).replace(str(tmp_path), "TMP") == expected


def test_an_empty_name() -> None:
    with pytest.raises(DatabaseError) as caught:
        Database.open("")
    assert str(caught.value) == "the name of the database is empty; give a file with --db"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc takes no files, even from root")
def test_a_folder_that_cannot_be_written() -> None:
    with pytest.raises(DatabaseError) as caught:
        Database.open("/proc/at.db")
    assert str(caught.value) == (
        "/proc/at.db: the database cannot be opened; "
        "the file and its folder must be writable, or give another --db"
    )


@pytest.mark.parametrize("options", [{"create": False}, {"read_only": True}])
def test_no_file_where_none_may_be_made(tmp_path: Path, options: dict[str, bool]) -> None:
    path = tmp_path / "at.db"
    with pytest.raises(DatabaseError) as caught:
        Database.open(path, **options)
    assert str(caught.value).replace(str(path), "DB") == (
        "DB: no such database; 'autoturbo tune' makes one; --db names another"
    )
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_becomes_a_database_where_one_may_be_made(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    path.touch()
    with pytest.raises(DatabaseError) as caught:
        Database.open(path, create=False)
    assert caught.value.at.file == path
    with Database.open(path) as database:
        assert database.counts() == Counts()


def test_names_that_would_mean_something_in_a_uri(tmp_path: Path) -> None:
    for name in ("a?mode=ro", "b#c", "d%00e", "f g", "\u5b66\u4e60.db", ":memory:"):
        with Database.open(tmp_path / name) as database:
            database.add_run(samples.run_info())
        assert (tmp_path / name).stat().st_size > 0


def test_a_relative_name_stays_as_the_user_gave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Database.open("at.db") as database, pytest.raises(RunError) as caught:
        database.run("x")
    assert str(caught.value.at.file) == "at.db"


# Damage and trouble while working


def test_damage_within_the_file_is_met_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    large(path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xa5" * (size - 8192 - 4096))
    database, connection = samples.connected(path)
    with database:
        with pytest.raises(DatabaseError) as caught:
            database.trials("aa00")
        assert (
            str(caught.value).replace(str(path), "DB") == f"DB: the database is damaged; {RESTORE}"
        )
        assert not connection.in_transaction
        with contextlib.suppress(DatabaseError):  # SQLite may call it too damaged to say
            assert database.health()["integrity"] != "ok"


def test_health_names_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    large(path)
    samples.raw(
        path, "PRAGMA writable_schema = ON", "DELETE FROM sqlite_master WHERE name LIKE '%latency'"
    )
    with Database.open(path) as database:
        integrity = database.health()["integrity"]
    assert integrity != "ok"
    assert "\n" not in integrity


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    samples.filled(path).close()
    database, connection = samples.connected(path)
    with database:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 4}")
        with pytest.raises(DatabaseError) as caught:
            database.add_trials([samples.trial(n) for n in range(3, 200)])
        assert str(caught.value).replace(str(path), "DB") == (
            "DB: the disk is full; free some space and resume: what was recorded is safe"
        )
        assert database.counts().trials == 3
        connection.execute("PRAGMA max_page_count = 100000")
        database.add_trials([samples.trial(n) for n in range(3, 200)])
        assert database.counts().trials == 200


def test_a_file_that_became_read_only(tmp_path: Path) -> None:
    samples.filled(tmp_path / "at.db").close()
    database, connection = samples.connected(tmp_path / "at.db")
    with database:
        connection.execute("PRAGMA query_only = ON")
        with pytest.raises(DatabaseError) as caught:
            database.put_best(samples.best(0.001))
        assert str(caught.value).replace(str(database.path), "DB") == (
            "DB: the database cannot be written; "
            "the file and its folder must be writable, or give another --db"
        )


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anything")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DatabaseError) as caught:
        Database.open(tmp_path / "at.db")
    assert caught.value.at.file == tmp_path / "at.db"


@pytest.mark.parametrize("exists", [True, False])
def test_another_writer_that_does_not_end(tmp_path: Path, *, exists: bool) -> None:
    path = tmp_path / "at.db"
    if exists:
        samples.filled(path).close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(DatabaseError) as caught:  # noqa: SIM117
            with Database.open(path, timeout_s=0.05) as database:
                database.add_run(samples.run_info("bb11"))
        assert str(caught.value).replace(str(path), "DB") == (
            "DB: locked by another process for too long; try again when it is done"
        )


def test_a_reader_is_not_stopped_by_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    writer, connection = samples.connected(path)
    with samples.filled(path) as reader, writer:
        with transaction(connection, "BEGIN IMMEDIATE"):
            connection.execute("DELETE FROM trials")
            assert reader.counts().trials == 3
        assert reader.counts().trials == 0


def test_what_sqlite_says_of_errors_that_have_no_words_of_ours(tmp_path: Path) -> None:
    error = explained(sqlite3.OperationalError("no such\ntable: x"), tmp_path)
    assert str(error) == f"{tmp_path}: the database refuses: no such table: x"


# Migrations


def test_an_older_database_is_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "at.db"
    with samples.filled(path) as database:
        before = samples.content(database, tmp_path / "before.jsonl")
    added = ("CREATE TABLE notes (text TEXT)", "ALTER TABLE runs ADD COLUMN note TEXT")
    monkeypatch.setattr(tables, "MIGRATIONS", (*tables.MIGRATIONS, added))
    newest = len(tables.MIGRATIONS)
    with Database.open(path) as database:
        assert database.health()["user_version"] == newest
        assert samples.content(database, tmp_path / "after.jsonl") == before


def test_a_migration_that_fails_leaves_the_old_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "at.db"
    samples.filled(path).close()
    broken = ("CREATE TABLE notes (text TEXT)", "ALTER TABLE absent ADD COLUMN note TEXT")
    with monkeypatch.context() as patch:
        patch.setattr(tables, "MIGRATIONS", (*tables.MIGRATIONS, broken))
        with pytest.raises(DatabaseError) as caught:
            Database.open(path)
    assert str(caught.value).replace(str(path), "DB") == (
        "DB: the database refuses: no such table: absent"
    )
    with Database.open(path) as database:
        assert database.health()["user_version"] == len(tables.MIGRATIONS)
        assert database.counts() == Counts(runs=1, trials=3, best=1)


VERSIONS = range(1, len(tables.MIGRATIONS))
"""All earlier versions: each left a database with one of everything, ``version_N.sql``."""

PACKED = 3
"""The first version that packed its rows."""


def of_version(version: int, path: Path) -> None:
    """A database as a version left it."""
    file = Path(__file__).parent / f"version_{version}.sql"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(file.read_text(encoding="utf-8"))
        assert connection.execute("PRAGMA user_version").fetchone() == (version,)


def expected_of(version: int) -> tuple[object, ...]:
    """Run, trials and best schedule that the version's file has."""
    if version == 1:
        trials = tuple(samples.trial(n, 0.01 / (n + 1)) for n in range(3))
        return (samples.run_info(), trials, samples.best())
    verified, decisions = samples.verified(), dict[str, object](knobs={}, layers=[])
    trials = (samples.trial(0), samples.trial(1, 0.005), samples.trial(2, None))
    best = samples.best(verified=verified, decisions=decisions)
    return (samples.run_info(refused=(samples.refused(),)), trials, best)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_database_of_an_earlier_version_keeps_all(
    tmp_path: Path, version: int, *, read_only: bool
) -> None:
    path = tmp_path / "at.db"
    of_version(version, path)
    before = path.read_bytes()
    run, trials, best = expected_of(version)
    with Database.open(path, read_only=read_only) as database:
        now = version if read_only else len(tables.MIGRATIONS)
        assert database.health()["user_version"] == now
        assert database.health()["integrity"] == "ok"
        assert database.counts() == Counts(runs=1, trials=3, best=1)
        assert database.run("aa00").refused == getattr(run, "refused")  # noqa: B009
        assert database.trials("aa00") == trials
        assert database.best() == (best,)
        assert database.explain_miss(model="bert")
        key = {name: getattr(samples.KEY, name) for name in ("target_hash", "dtype")}
        known = database.decisions(**key, scheduler_version=samples.KEY.scheduler_version)
        decisions = getattr(best, "decisions")  # noqa: B009
        model, by, trial = (getattr(best, name) for name in ("model", "run", "trial"))
        wanted = Decided(samples.KEY.graph_hash, model, decisions, by, trial)
        assert known == ((wanted,) if decisions else ())
        whole = samples.content(database, tmp_path / "out.jsonl")
    assert (path.read_bytes() == before) == read_only
    kept = tmp_path / f"at.db.version-{version}"
    assert kept.exists() != read_only  # the file as the earlier version had left it
    if not read_only:
        with Database.open(kept, read_only=True) as copy:
            assert copy.health()["user_version"] == version
            assert samples.content(copy, tmp_path / "kept.jsonl") == whole
    with Database.open(tmp_path / "new.db") as database:
        database.take_in(tmp_path / "out.jsonl")
        assert samples.content(database, tmp_path / "new.jsonl") == whole
    assert check(path).sound
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (kernels,) = connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE name = 'kernels'"
        ).fetchone()
    assert bool(kernels) == read_only


@pytest.mark.parametrize("version", VERSIONS)
def test_a_database_of_an_earlier_version_is_gone_on_with(tmp_path: Path, version: int) -> None:
    path = tmp_path / "at.db"
    of_version(version, path)
    with Database.open(path) as database:
        database.add_trials([samples.trial(3)])
        assert database.run("aa00").trials == 4
        (found,) = database.best()
        assert database.set_verified(
            found.key, found.schedule, samples.verified("regions", "memory", "numbers")
        )
        assert database.put_best(samples.best(0.001, decisions={"layers": [1]}))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        kinds = connection.execute("SELECT DISTINCT typeof(record) FROM trials").fetchall()
    packed = [("blob",)] if version >= PACKED else [("blob",), ("text",)]
    assert sorted(kinds) == packed  # rows that are there are left as they are


def test_a_copy_of_the_file_is_a_database(tmp_path: Path) -> None:
    samples.filled(tmp_path / "at.db").close()
    assert [path.name for path in tmp_path.iterdir()] == ["at.db"]  # no log left beside it
    shutil.copy(tmp_path / "at.db", tmp_path / "copy.db")
    with Database.open(tmp_path / "copy.db", create=False) as database:
        assert database.run("aa00").trials == 3
