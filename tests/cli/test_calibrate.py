"""``autoturbo targets calibrate`` from end to end."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from autoturbo.hardware import load_target
from tests.cli.bad_files import saved, tiny
from tests.cli.command_line import Cli, cli_in

EDGE = str(Path("examples/targets/edge.yaml").resolve())
LAUNCH = ("--fields", "overheads.kernel_launch_us,engines[vector].special_lanes")
ROWS = "".join(f"8,{extent},16,int8,{12 + extent / 1000}\n" for extent in (16, 32, 48, 64))
TABLE = f"m,k,n,dtype,latency_us\n{ROWS}"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


def calibrate(table: str = "board.csv", *more: str) -> tuple[str, ...]:
    return ("targets", "calibrate", EDGE, "--measurements", table, "-o", "mine.yaml", *more)


def test_a_target_is_written(cli: Cli) -> None:
    table = cli.write("board.csv", TABLE)
    ran = cli(*calibrate("board.csv", *LAUNCH))
    assert (ran.status, ran.err) == (0, "")
    assert "overheads.kernel_launch_us" in ran.out
    assert "stays as it is, no row depends on it: engines[vector].special_lanes" in ran.out
    assert "(4 rows, 4 shapes held out in turn)" in ran.out
    assert ran.out.endswith("written to mine.yaml\n")
    made = load_target(Path("mine.yaml"))
    assert made.overheads.kernel_launch == pytest.approx(10e-6, rel=0.1)
    assert made.calibration is not None
    assert made.calibration.sha256 == hashlib.sha256(table.read_bytes()).hexdigest()
    assert made.calibration.date
    text = Path("mine.yaml").read_text(encoding="utf-8")
    assert text.startswith("# A target calibrated with measured times.\n")
    assert "# fitted, " in text
    assert cli("targets", "validate", "mine.yaml").status == 0
    again = cli("--json", *calibrate("board.csv", *LAUNCH)).object  # its own kind: replaced
    assert again["hash"] == made.hash
    assert [one["field"] for one in again["fitted"]] == ["overheads.kernel_launch_us"]
    assert again["error_after"] < 0.01 < again["error_before"]


def test_what_is_not_written(cli: Cli) -> None:
    cli.write("board.csv", TABLE.replace("12.", "120000."))
    ran = cli(*calibrate("board.csv", "--fields", "engines[vector].special_lanes"))
    assert ran.status == 1
    assert ran.err.splitlines()[-1].startswith("error: board.csv: not written: the rows identify")
    assert not Path("mine.yaml").exists()


def test_another_file_is_not_replaced(cli: Cli) -> None:
    cli.write("board.csv", TABLE)
    cli.write("mine.yaml", "name: mine\n")
    ran = cli(*calibrate())
    assert ran.status == 2
    assert "which is not a target file; give another name, or replace it with --force" in ran.err


def test_a_bad_table_is_one_line(cli: Cli) -> None:
    cli.write("board.csv", TABLE.replace("int8", "int9", 1))
    ran = cli(*calibrate())
    assert ran.status == 2
    assert ran.err.splitlines() == [
        "error: board.csv:2: dtype: 'int9' is no data type; did you mean 'int8'?"
    ]


def test_schedules(cli: Cli) -> None:
    saved(cli, tiny())
    saved(cli, tiny([2, 8]), "other.onnx")
    rows = ["model,schedule,latency_us"]
    for name, microseconds in (("tiny", 12.7), ("other", 12.6)):
        model, file = f"{name}.onnx", f"{name}.json"
        ran = cli("tune", model, "--trials", "1", "--target", EDGE, "-o", file)
        assert ran.status == 0, ran.err
        rows.append(f"{model},{file},{microseconds}")
    cli.write("board.csv", "\n".join(rows) + "\n")
    ran = cli(*calibrate("board.csv", "--fields", "overheads.kernel_launch_us"))
    assert ran.status == 0, ran.err
    made = load_target(Path("mine.yaml"))
    assert made.overheads.kernel_launch == pytest.approx(11e-6, rel=0.05)
