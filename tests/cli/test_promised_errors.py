"""Faults around a run give their one clear line, word by word; ``test_bad_input`` has bad files."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

from tests.cli import faulty_measurers
from tests.cli.bad_files import saved, tiny
from tests.cli.command_line import Cli, cli_in
from tests.cli.promises import BETTER, PROMISES, Promise
from tests.database.small_disk import mounted

LINES = dict(
    line.split(" | ", 1)
    for line in Path(__file__).with_name("promised_errors.txt").read_text("utf-8").splitlines()
)
"""What is printed, by row; a row of :data:`BETTER` prints more."""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    (tmp_path / "site").mkdir()
    (tmp_path / "here").mkdir()
    faulty_measurers.install(tmp_path / "site", monkeypatch)
    return cli_in(tmp_path / "here", monkeypatch)


SLOW = ("worker", "hangs", "nan", "plugin", "no-fit")
"""What a search comes to after seconds, beside a measurer that raises; the full tier waits."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full if name in SLOW else ()) for name in PROMISES],
)
def test_one_clear_line(name: str, cli: Cli) -> None:
    promise: Promise = PROMISES[name]
    disk = cli.folder / "disk"
    with mounted(disk, 1) if promise.disk else contextlib.nullcontext():
        ran = cli(*promise.make(cli))
    told = re.sub(r"'autoturbo resume [0-9a-f]+", "'autoturbo resume RUN", ran.err)
    assert (ran.status, ran.out, told) == (promise.status, "", f"error: {LINES[name]}\n")
    assert "Traceback" not in ran.err
    if promise.keeps is not None:
        (run,) = cli("--json", "runs").object["runs"]
        assert (run["trials"], run["state"]) == (promise.keeps, "failed")


@pytest.mark.parametrize("name", BETTER)
def test_no_error_where_the_work_can_be_done(name: str, cli: Cli) -> None:
    ran = cli(*BETTER[name](cli))
    assert (ran.status, ran.err) == (0, "")
    assert LINES[name] in ran.out.splitlines()


@pytest.mark.full
def test_a_measurer_that_fails_now_and_then_loses_nothing_else(cli: Cli) -> None:
    flags = ["--measurer", "moody", "--trials", "6", "--sampler", "random"]
    ran = cli("--json", "tune", "-q", saved(cli, tiny()), *flags)
    assert (ran.status, ran.err) == (0, "")
    shown = cli("--json", "show", ran.object["run"]).object
    assert list(shown["failures"]) == ["raised"]
    assert 0 < shown["failures"]["raised"] < shown["trials"] == 6
