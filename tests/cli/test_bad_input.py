"""Every unusable file gives one located line and status 2, for people and under ``--json``.

The exact lines are in ``bad_input.txt``; with AUTOTURBO_UPDATE_GOLDEN=1 they are written anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import onnx
import pytest

from tests.cli.bad_files import CASES
from tests.cli.command_line import Cli, cli_in

GOLDEN = Path(__file__).parent / "bad_input.txt"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


def expected() -> dict[str, str]:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines() if GOLDEN.exists() else []
    return dict(line.split(" | ", 1) for line in lines)


def without_versions(line: str) -> str:
    """What depends on the installed onnx, or on versions of ours (a run's id), as its name."""
    line = re.sub(r"\b[0-9a-f]{10}\b", "RUN", line)
    newest = str(onnx.defs.onnx_opset_version())
    return line.replace(onnx.__version__, "VERSION").replace(f"than {newest},", "than OPSET,")


def update(name: str, line: str) -> None:
    lines = {**expected(), name: line}
    ordered = (f"{name} | {lines[name]}\n" for name in CASES if name in lines)
    GOLDEN.write_text("".join(ordered), encoding="utf-8")


def test_there_are_cases_of_every_kind_and_no_line_without_a_case() -> None:
    assert len(CASES) >= 30
    kinds = {name.split("_")[0] for name in CASES}
    files = {"model", "target", "knobs", "schedule", "database", "export"}
    assert kinds == files | {"verify", "apply"}
    assert list(expected()) == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_one_located_line(name: str, cli: Cli) -> None:
    arguments = CASES[name](cli)
    ran = cli(*arguments)
    assert (ran.status, ran.out) == (2, ""), ran
    assert ran.err.startswith("error: ")
    assert ran.err.endswith("\n")
    assert ran.err.count("\n") == 1
    line = without_versions(ran.err.removeprefix("error: ").rstrip("\n"))
    if os.environ.get("AUTOTURBO_UPDATE_GOLDEN"):
        update(name, line)
    assert line == expected()[name]


@pytest.mark.parametrize("name", CASES)
def test_under_json_the_same_as_an_object(name: str, cli: Cli) -> None:
    arguments = CASES[name](cli)
    ran = cli("--json", *arguments)
    assert ran.status == 2
    assert ran.err == ""
    error = ran.object["error"]
    assert list(error) == ["kind", "message", "file", "line", "field", "hint"]
    assert error["kind"] in ("model", "target", "knobs", "schedule", "database", "run", "usage")
    text = expected()[name]
    assert without_versions(error["message"]) in text
    assert error["hint"] is None or text.endswith(without_versions(error["hint"]))
    assert error["line"] is None or f":{error['line']}" in text
    assert error["field"] is None or error["field"] in text


@pytest.mark.parametrize("name", CASES)
def test_a_traceback_only_with_debug(name: str, cli: Cli) -> None:
    arguments = CASES[name](cli)
    ran = cli(*arguments, "--debug")
    assert ran.status == 2
    assert ran.err.startswith("Traceback (most recent call last):\n")
    assert ran.err.splitlines()[-1].startswith("error: ")
