"""Every kind of bad input that the specification lists gives its one clear line, word by word."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

from tests.cli import faulty_measurers
from tests.cli.bad_files import CASES, saved, tiny
from tests.cli.command_line import Cli, cli_in
from tests.cli.promises import BETTER, PROMISES, Better, Promise
from tests.cli.test_bad_input import expected
from tests.database.small_disk import mounted

SPECIFIED = (
    "Not an ONNX file, truncated, wrong opset, missing shapes, dynamic dimensions without a value,"
    " cyclic graph, missing external data, unknown operator, a tensor of 2^40 elements, a target"
    " with zero cores or a negative bandwidth, an unknown key, a schedule of another model, a"
    " database of a newer version, a corrupt database, a full disk, a read-only folder, an"
    " unreachable Ray address, a worker that dies, a measurer that hangs or raises or returns NaN"
)
"""The list of the specification ("Bad input")."""


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


def test_every_item_of_the_list_has_a_row() -> None:
    rest = SPECIFIED
    words = [row.what for row in PROMISES.values()] + [row.what for row in BETTER.values()]
    for said in sorted(words, key=len, reverse=True):
        rest = rest.replace(said, "")
    assert set(rest.replace(",", " ").split()) <= {"or", "a"}
    assert set(LINES) == {*PROMISES, *BETTER}


SAME = {name: as_case for name, row in PROMISES.items()
        for as_case, make in CASES.items() if make is row.make}  # fmt: skip
"""Rows that are cases of bad input too, under the names that these have there."""


def test_rows_that_are_cases_of_bad_input_promise_the_same_lines() -> None:
    lines = expected()
    for name, as_case in SAME.items():
        line = LINES[name].replace("{onnx}", "VERSION").replace("{opset}", "OPSET")
        assert (line, PROMISES[name].status) == (lines[as_case], 2)


OWN = [name for name in PROMISES if name not in SAME]


@pytest.mark.parametrize("name", OWN)
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
    better: Better = BETTER[name]
    ran = cli(*better.make(cli))
    assert (ran.status, ran.err) == (0, "")
    assert LINES[name] in ran.out.splitlines()


def test_a_measurer_that_fails_now_and_then_loses_nothing_else(cli: Cli) -> None:
    flags = ["--measurer", "moody", "--trials", "6", "--sampler", "random"]
    ran = cli("--json", "tune", "-q", saved(cli, tiny()), *flags)
    assert (ran.status, ran.err) == (0, "")
    shown = cli("--json", "show", ran.object["run"]).object
    assert list(shown["failures"]) == ["raised"]
    assert 0 < shown["failures"]["raised"] < shown["trials"] == 6
