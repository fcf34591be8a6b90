"""One process a run: a second one is refused, and a dead one holds nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autoturbo import files
from autoturbo.database import Database, holding
from autoturbo.errors import RunError
from tests import processes
from tests.database import database_samples as samples

pytestmark = pytest.mark.skipif(os.name != "posix", reason="flock is of POSIX systems")

HOLDER = """
import sys
from autoturbo.database import Database
with Database.open(sys.argv[1]) as database, database.holding(sys.argv[2]):
    print("ready", flush=True)
    sys.stdin.read()
"""


def holder(path: Path, run: str) -> subprocess.Popen[str]:
    """A process that holds a run until its input ends."""
    line = [sys.executable, "-c", HOLDER, str(path), run]
    process = processes.started(line, stdin=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_second_process_is_refused_until_the_first_one_ends(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    with samples.filled(path) as database, holder(path, "aa00") as first:
        assert database.state(database.run("aa00")) == "running"
        with pytest.raises(RunError) as caught, database.holding("aa00"):
            pass
        assert str(caught.value) == (
            f"{path}: run 'aa00' is going on in process {first.pid}; "
            "wait for it, or end it and resume"
        )
        with database.holding("bb11"):  # another run
            pass
        first.communicate("")
        with database.holding("aa00"):
            assert database.state(database.run("aa00")) == "running"
    assert [file.name for file in tmp_path.iterdir()] == ["at.db"]


def test_a_process_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    with samples.filled(path) as database:
        with holder(path, "aa00") as first:
            first.send_signal(signal.SIGKILL)
        assert (tmp_path / "at.db.aa00.lock").exists()
        assert database.state(database.run("aa00")) == "killed"
        with database.holding("aa00"):
            assert database.state(database.run("aa00")) == "running"
        database.set_state("aa00", "done")
        assert database.state(database.run("aa00")) == "done"


def test_under_another_name_the_database_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    (tmp_path / "link.db").symlink_to(path)
    with samples.filled(path) as database, database.holding("aa00"):
        with Database.open(tmp_path / "link.db") as other, pytest.raises(RunError):
            other.holding("aa00").__enter__()
        assert holding.is_held(path, "aa00")
    assert not holding.is_held(path, "aa00")


@pytest.mark.parametrize("run", ["../../x", "a b", "x" * 300])
def test_odd_names_stay_in_the_folder(tmp_path: Path, run: str) -> None:
    file = holding.lock_file(tmp_path / "at.db", run)
    assert file.parent == tmp_path
    with holding.hold(tmp_path / "at.db", run):
        assert file.exists()


def test_a_lock_that_is_taken_away_while_waiting_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opened the file before its holder removed it must not hold a file without a name."""
    real, calls = files.lock, []

    def removed_first(handle: int, *, shared: bool) -> None:
        calls.append(handle)
        if len(calls) == 1:
            holding.lock_file(tmp_path / "at.db", "aa00").unlink()
        real(handle, shared=shared)

    monkeypatch.setattr(holding, "lock", removed_first)
    with holding.hold(tmp_path / "at.db", "aa00"):
        assert len(calls) == 2
        assert holding.is_held(tmp_path / "at.db", "aa00")


def test_a_file_system_without_locks_holds_nothing_and_refuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(handle: int, *, shared: bool = False) -> None:
        raise OSError(95, f"no locks {handle} {shared}")

    monkeypatch.setattr(holding, "lock", none)
    with holding.hold(tmp_path / "at.db", "aa00"), holding.hold(tmp_path / "at.db", "aa00"):
        assert holding.is_held(tmp_path / "at.db", "aa00") is None
