"""One command in two folders: its runs are one, unless measurements vary."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli import faulty_measurers
from tests.cli.bad_files import saved, tiny
from tests.cli.command_line import Cli, Ran


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return faulty_measurers.cli_with_boards(tmp_path, monkeypatch)


def tuned(cli: Cli, monkeypatch: pytest.MonkeyPatch, place: str, *words: str) -> str:
    """Tune the same model in a folder of its own; return the run's id."""
    folder = cli.folder / place
    folder.mkdir()
    shutil.copy(cli.folder / saved(cli, tiny()), folder)
    monkeypatch.chdir(folder)
    ran = cli("--json", "tune", *words, "--trials", "6", "--no-transfer")
    assert ran.status == 0, ran.err
    monkeypatch.chdir(cli.folder)
    return str(ran.object["run"])


def merged(cli: Cli) -> Ran:
    return cli("--json", "--db", "P/autoturbo.db", "db", "merge", "Q/autoturbo.db")


def test_the_same_command_in_two_folders_gives_one_run(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tuned(cli, monkeypatch, "P", "tiny.onnx", "-o", "best.json")
    model = str(cli.folder / "Q" / "tiny.onnx")
    more = ("--runs-folder", "elsewhere", "--db", "autoturbo.db")
    second = tuned(cli, monkeypatch, "Q", model, *more)
    assert first == second
    for _ in range(2):
        ran = merged(cli)
        assert (ran.status, ran.object["renamed"], ran.object["findings"]) == (0, {}, [])
        (run,) = cli("--json", "--db", "P/autoturbo.db", "runs").object["runs"]
        assert (run["run"], run["trials"]) == (first, 6)


@pytest.mark.full
def test_two_sessions_of_a_noisy_measurer_are_two_runs(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("tiny.onnx", "--measurer", "noisy")
    ids = {tuned(cli, monkeypatch, place, *words) for place in ("P", "Q")}
    assert len(ids) == 2
    ran = merged(cli)
    assert (ran.status, ran.object["renamed"]) == (0, {})
    runs = cli("--json", "--db", "P/autoturbo.db", "runs").object["runs"]
    assert {run["run"]: run["trials"] for run in runs} == dict.fromkeys(ids, 6)
    assert cli("db", "check", "--db", "P/autoturbo.db").status == 0
    for run in ids:
        assert cli("--json", "--db", "P/autoturbo.db", "show", run).status == 0
