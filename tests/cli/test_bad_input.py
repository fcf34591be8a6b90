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

FAST = {
    *("model_misspelt_workload", "model_text", "model_truncated", "model_newer_opset"),
    *("model_cyclic", "model_dynamic_dimension", "model_of_2_to_the_40_elements"),
    *(
        "model_external_data_outside_of_its_folder",
        "model_of_rank_17",
        "model_of_nested_functions",
        "model_nested_too_deeply",
    ),
    *("model_of_a_shape_of_thousands_of_digits", "knobs_with_a_field_twice"),
    *("model_of_a_weight_of_thousands_of_digits", "model_of_an_equation_of_dots"),
    *("model_whose_data_begin_at_thousands_of_digits",),
    *("target_unknown", "target_misspelt_field", "target_zero_cores", "target_not_yaml"),
    *("knobs_missing", "knobs_not_json", "knobs_misspelt", "knobs_out_of_range"),
    *("knobs_override_of_no_layer", "schedule_of_another_model", "schedule_newer_version"),
    *("schedule_without_order", "schedule_without_end", "database_missing", "database_text"),
    *("database_newer_version", "database_cut_short", "verify_unknown_run"),
    *("apply_without_output", "apply_over_the_model", "export_not_json", "export_unknown_record"),
}
"""One of each kind of fault: a name, a form, a number, a limit, two things that do not fit."""

EACH = (
    *("model_cyclic", "target_misspelt_field", "knobs_misspelt", "schedule_of_another_model"),
    *("database_newer_version", "export_not_json", "verify_unknown_run", "apply_without_output"),
)
"""One of each kind of file."""


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
    assert set(CASES) > {*FAST, *EACH}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FAST else pytest.mark.full) for n in CASES]
)
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


@pytest.mark.parametrize("name", EACH)
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


@pytest.mark.parametrize("name", EACH[:2])
def test_a_traceback_only_with_debug(name: str, cli: Cli) -> None:
    arguments = CASES[name](cli)
    ran = cli(*arguments, "--debug")
    assert ran.status == 2
    assert ran.err.startswith("Traceback (most recent call last):\n")
    assert ran.err.splitlines()[-1].startswith("error: ")
