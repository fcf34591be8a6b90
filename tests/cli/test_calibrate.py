"""``autoturbo targets calibrate`` from end to end."""

from __future__ import annotations

import hashlib
import re
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
    assert ran.status == 0
    assert ran.err == (
        "board.csv: no row has kernels of 40 us and more, so their error is not known: measure"
        " some\n"
    )
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


MIXED = ROWS + "".join(f"2048,{extent},2048,int8,{extent * 2}\n" for extent in (1024, 2048))


def test_a_target_as_it_is_states_its_errors_and_keeps_its_comments(cli: Cli) -> None:
    cli.write("board.csv", f"m,k,n,dtype,latency_us\n{MIXED}")
    ran = cli(*calibrate("board.csv", "--check"))
    assert (ran.status, ran.err) == (0, "")
    assert re.search(r"kernels below 40 us: [\d.]+% \(4 rows\), from 40 us on: ", ran.out)
    made, source = load_target(Path("mine.yaml")), Path(EDGE).read_text(encoding="utf-8")
    assert made.hash == load_target(EDGE).hash
    text = Path("mine.yaml").read_text(encoding="utf-8")
    assert text.startswith(source.rstrip())
    assert made.calibration is not None
    assert (made.calibration.rows, made.calibration.rows_below) == (6, 4)
    again = ("targets", "calibrate", "mine.yaml", "--measurements", "board.csv", "--check")
    found = cli("--json", *again, "--regime-us", "20", "-o", "other.yaml").object
    assert found["fitted"] == []
    assert found["error_below"] == pytest.approx(made.calibration.error_below, rel=1e-2)
    assert (found["regime_us"], found["rows_below"]) == (20, 4)
    assert Path("other.yaml").read_text(encoding="utf-8").count("calibration:") == 1


def test_a_preset_states_its_errors_too(cli: Cli) -> None:
    cli.write("board.csv", f"m,k,n,dtype,latency_us\n{MIXED}")
    table = ("--measurements", "board.csv", "--check", "-o", "mine.yaml")
    ran = cli("targets", "calibrate", "stcp920", *table)
    assert ran.status == 0, ran.err
    assert "# source:" in Path("mine.yaml").read_text(encoding="utf-8")
    assert load_target(Path("mine.yaml")).hash == load_target("stcp920").hash


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


def edited(line: int, time: float | None = None, *, times: float = 1.0) -> str:
    """The table with another time in a line, or a multiple of it; every line if it is 1."""
    lines = TABLE.splitlines()
    for number in range(1, len(lines)) if line == 1 else [line - 1]:
        rest, _, last = lines[number].rpartition(",")
        lines[number] = f"{rest},{time if time is not None else float(last) * times:g}"
    return "\n".join(lines) + "\n"


REFUSED = {
    "all in another unit": (
        edited(1).replace("latency_us", "latency_ms"),
        (
            r"board.csv:1: latency_ms: the times are [\d.e+]+ of what is simulated \(median of 4"
            r" rows\): they seem to be in us; call the column latency_us, or mend the target where"
            " it is so far off"
        ),
    ),
    "all far too fast": (
        edited(1, times=1e-3),
        (
            r"board.csv:1: latency_us: the times are 1/[\d.e+]+ of what is simulated \(median of 4"
            r" rows\): they seem to be in ms; .*"
        ),
    ),
    "a row in another unit": (
        edited(3, times=1e3),
        (
            "board.csv:3: latency_us: 1.203e\\+04 us is about 1000 times what the other rows say:"
            " it seems to be in ns; mend the row or leave it out"
        ),
    ),
    "a row a thousand times too fast": (
        edited(4, times=1e-3),
        (
            "board.csv:4: latency_us: 0.01205 us is about 1/1000 of what the other rows say: it"
            " seems to be in ms; mend the row or leave it out"
        ),
    ),
    "a row below the bound": (
        TABLE + "8192,4096,4096,int8,12\n8192,4096,4100,int8,13\n",
        (
            r"board.csv:6: latency_us: 12 us is below the [\d.e+]+ us that the machine needs at the"
            " least; so is line 7; give the time in the unit of its column, or leave the row out"
        ),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_times_that_cannot_be_are_refused_by_row(cli: Cli, name: str) -> None:
    table, told = REFUSED[name]
    cli.write("board.csv", table)
    ran = cli(*calibrate("board.csv", *LAUNCH))
    assert ran.status == 2, ran
    assert re.fullmatch(f"error: {told}\n", ran.err), ran.err
    assert not Path("mine.yaml").exists()


def test_rows_of_one_thing_are_counted_once_or_named(cli: Cli) -> None:
    cli.write("board.csv", TABLE + ROWS.splitlines()[0] + "\n8,32,16,int8,29\n8,48,16,int8,12.1\n")
    ran = cli(*calibrate("board.csv", *LAUNCH))
    assert ran.status == 0, ran
    assert ran.err.splitlines()[:-1] == [
        "board.csv:6: the same as line 2: counted once",
        (
            "board.csv:7: latency_us: 29 us, but 12.03 us in line 3 for the same: measure it"
            " again, or leave one out"
        ),
    ]
    assert "(6 rows, 4 shapes held out in turn)" in ran.out
