"""Runs whose database is removed, replaced or locked: a schedule, and a command for the rest."""

from __future__ import annotations

import contextlib
import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from autoturbo.commands.console import LiveLine
from autoturbo.database import store
from autoturbo.search.progress import Progress
from tests.cli.bad_files import saved, tiny
from tests.cli.command_line import Cli, cli_in

TRIALS = 40


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setattr(store, "PATIENCE_MS", 20)
    monkeypatch.setattr(store, "LAST_MS", 20)
    return cli_in(tmp_path, monkeypatch)


def tune(cli: Cli, monkeypatch: pytest.MonkeyPatch, accident: Callable[[], object]) -> list[str]:
    """Tune, with an accident after some trials; return the command that stores the rest."""
    happened: list[int] = []

    def told(_: LiveLine, progress: Progress) -> None:
        if progress.done >= TRIALS // 4 and not happened:
            happened.append(progress.done)
            accident()

    monkeypatch.setattr(LiveLine, "__call__", told)
    words = ("--trials", str(TRIALS), "--sampler", "random", "--no-transfer")
    ran = cli("tune", saved(cli, tiny()), *words)
    assert happened
    (line,) = (line for line in ran.err.splitlines() if line.startswith("error: "))
    assert ran.status == 1
    assert "verified" in ran.out
    assert next((cli.folder / "runs").iterdir()).joinpath("schedule.json").exists()
    return shlex.split(line.split("'")[1])


def whole(cli: Cli, command: list[str]) -> None:
    """The command that was told stores all that was measured."""
    assert command[:3] == ["autoturbo", "db", "import"]
    ran = cli(*command[1:])
    assert ran.status == 0, ran.err
    where = command[-2:]
    (run,) = (r for r in cli("--json", *where, "runs").object["runs"] if r["target"] == "stcp920")
    assert (run["trials"], run["state"]) == (TRIALS, "done")
    assert len(cli("--json", *where, "db", "best", "--target", "stcp920").object["best"]) == 1
    assert cli(*where, "db", "check").status == 0


def test_a_database_that_is_removed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    path = cli.folder / "autoturbo.db"
    command = tune(cli, monkeypatch, path.unlink)
    assert not path.exists()
    whole(cli, command)


@pytest.mark.full
def test_a_database_that_another_replaces(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    other = cli.folder / "other.db"
    words = ("--trials", "12", "--sampler", "random", "--target", "goya", "--no-transfer")
    assert cli("tune", saved(cli, tiny()), *words, "--db", other, "-q").status == 0
    before = cli("--json", "--db", other, "runs").object
    path = cli.folder / "autoturbo.db"
    command = tune(cli, monkeypatch, lambda: other.replace(path))
    assert cli("--json", "runs").object == before
    assert cli("db", "check").status == 0
    whole(cli, command)


def test_a_lock_that_is_held_to_the_end(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.ExitStack() as held:

        def lock() -> None:
            connection = sqlite3.connect(cli.folder / "autoturbo.db", isolation_level=None)
            held.enter_context(contextlib.closing(connection)).execute("BEGIN IMMEDIATE")

        command = tune(cli, monkeypatch, lock)
    whole(cli, command)
