"""Standard output and standard error that are full, closed, or read by nobody."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoturbo.cli import main
from autoturbo.database import Counts, Database
from tests.cli.bad_files import saved, tiny
from tests.cli.command_line import Cli, cli_in
from tests.processes import HANG_S

FULL = Path("/dev/full")
NO_SPACE = "no space left on device"

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="a system with /dev/full")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


def shell(folder: Path, command: str) -> tuple[int, str]:
    """The status of a shell command, and what it shows on what is left open."""
    program = f"{sys.executable} -m autoturbo"
    script = command.replace("autoturbo", program, 1)
    ran = subprocess.run(
        ["/bin/bash", "-c", script], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    return ran.returncode, ran.stdout


OUTPUT_FULL = f"cannot write to standard output: {NO_SPACE}; files and the database are whole"
OUTPUT_CLOSED = "standard output is closed; send it to /dev/null instead"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("autoturbo targets list >/dev/full", f"error: {OUTPUT_FULL}\n"),
        ("autoturbo targets list >&-", f"error: {OUTPUT_CLOSED}\n"),
        pytest.param(
            "autoturbo --help >/dev/full", f"error: {OUTPUT_FULL}\n", marks=pytest.mark.full
        ),
    ],
)
def test_one_line_and_status_1(tmp_path: Path, command: str, expected: str) -> None:
    assert shell(tmp_path, command) == (1, expected)


@pytest.mark.parametrize("end", [">/dev/full"])
def test_under_json_the_line_is_an_object(tmp_path: Path, end: str) -> None:
    status, shown = shell(tmp_path, f"autoturbo --json targets list {end}")
    assert status == 1
    assert json.loads(shown)["error"]["kind"] == "stream"


@pytest.mark.parametrize("end", ["2>/dev/full", "2>&- --json"])
def test_errors_go_where_they_can(tmp_path: Path, end: str) -> None:
    status, shown = shell(tmp_path, f"autoturbo nonsense {end}")
    assert status == 2
    assert len(shown.splitlines()) == 1
    assert "unknown command 'autoturbo nonsense'" in shown


@pytest.mark.full
def test_nothing_left_to_tell_it_on(tmp_path: Path) -> None:
    assert shell(tmp_path, "autoturbo targets list >/dev/full 2>/dev/full") == (1, "")
    assert shell(tmp_path, "autoturbo targets list >&- 2>&-") == (1, "")


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    command = "autoturbo targets schema | head -1; exit ${PIPESTATUS[0]}"
    status, shown = shell(tmp_path, command)
    assert (status, shown) in ((1, "{\n"), (0, "{\n"))  # 0: all was in the pipe by then


@pytest.mark.full
def test_a_closed_stream_gives_its_number_to_no_file(cli: Cli) -> None:
    """A library that prints would print into the database."""
    model = saved(cli, tiny())
    status, shown = shell(cli.folder, f"autoturbo tune {model} --trials 2 --no-progress 2>&-")
    assert status == 0, shown
    with Database.open("autoturbo.db") as database:
        assert database.health()["integrity"] == "ok"


@pytest.mark.parametrize(
    "flags", ["-q", *(pytest.param(f, marks=pytest.mark.full) for f in ("", "--json -q"))]
)
def test_a_search_whose_answer_cannot_be_shown_is_kept(cli: Cli, flags: str) -> None:
    model = saved(cli, tiny())
    command = f"autoturbo tune {model} --trials 2 -o best.json {flags} >/dev/full"
    status, shown = shell(cli.folder, command)
    assert status == 1
    assert NO_SPACE in shown
    assert "Traceback" not in shown
    assert "internal" not in shown
    assert len(shown.splitlines()) == 1
    if flags:  # else the first line that it says fails, before anything is measured
        assert Path("best.json").stat().st_size
        with Database.open("autoturbo.db") as database:
            (run,) = database.runs()
            assert database.counts() == Counts(runs=1, trials=run.trials, best=1)


def test_a_live_line_that_nobody_can_see_ends_no_search(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved(cli, tiny())
    monkeypatch.setattr("autoturbo.commands.console.EVERY_S", 0.0)
    with FULL.open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        assert main(["tune", str(model), "--trials", "2"]) == 0


@pytest.mark.parametrize("name", ["tune", "db", "doctor"])
@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_commands(
    name: str, json_flag: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its help fills standard output; its usage error, whatever it is, standard error."""
    monkeypatch.chdir(tmp_path)
    for arguments, full, other, statuses in (
        ([name, "--help"], "stdout", "stderr", {1}),
        ([name, "--no-such-flag"], "stderr", "stdout", {2}),
    ):
        shown = io.StringIO()
        with os.fdopen(os.open(FULL, os.O_WRONLY), "w") as stream, monkeypatch.context() as patch:
            patch.setattr(sys, full, stream)
            patch.setattr(sys, other, shown)
            assert main([*json_flag, *arguments]) in statuses
        assert len(shown.getvalue().splitlines()) == 1
        assert "internal" not in shown.getvalue()
