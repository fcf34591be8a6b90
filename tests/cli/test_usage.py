"""Global options, usage errors, and errors as such."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoturbo.commands.console import Console
from autoturbo.commands.registry import COMMANDS
from autoturbo.commands.tuning import runs
from autoturbo.commands.upkeep import targets
from autoturbo.errors import (
    InfeasibleError,
    InterruptedRunError,
    Location,
    MeasurerError,
    TargetError,
)
from tests.cli.command_line import Cli, cli_in


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


USAGE_ERRORS = [
    ("", "no command is given; see 'autoturbo --help'"),
    ("tun m.onnx", "unknown command 'autoturbo tun'; did you mean 'tune'?"),
    ("xyz", f"unknown command 'autoturbo xyz'; one of {', '.join(COMMANDS)}"),
    ("targets lst", "unknown command 'autoturbo targets lst'; did you mean 'list'?"),
    (
        "targets",
        "the following arguments are required: ACTION; see 'autoturbo targets --help'",
    ),
    ("tune", "the following arguments are required: MODEL; see 'autoturbo tune --help'"),
    ("tune m --trails 3", "unknown flag '--trails'; did you mean '--trials'?"),
    ("tune m --trails=3", "unknown flag '--trails'; did you mean '--trials'?"),
    ("tune m --tri 3", "unknown flag '--tri'; did you mean '--trials'?"),
    ("--quite runs", "unknown flag '--quite'; did you mean '--quiet'?"),
    ("runs --zzz", "unknown flag '--zzz'; see 'autoturbo runs --help'"),
    ("db list more", "unexpected argument 'more'; see 'autoturbo db list --help'"),
    ("tune m --trials", "--trials: expected one argument; see 'autoturbo tune --help'"),
    ("tune m -o", "--output: expected one argument; see 'autoturbo tune --help'"),
    (
        "simulate m --schedule a --knobs b",
        "--knobs: not allowed with argument --schedule; see 'autoturbo simulate --help'",
    ),
    ("tune m --trials many", "--trials: 'many' is not a whole number"),
    ("tune m --trials 1.5", "--trials: '1.5' is not a whole number"),
    ("tune m --trials 0", "--trials: '0' is out of range; from 1 to 2147483647"),
    ("tune m --batch -3", "--batch: '-3' is out of range; from 1 to 2147483647"),
    ("tune m --subgraphs -1", "--subgraphs: '-1' is out of range; from 0 to 2147483647"),
    ("space m --subgraphs x", "--subgraphs: 'x' is not a whole number"),
    ("tune m --seed -1", "--seed: '-1' is out of range; from 0 to 2147483647"),
    ("tune m --jobs 0", "--jobs: '0' is out of range; from 1 to 2147483647"),
    (
        "tune m --time-budget soon",
        "--time-budget: 'soon' is not a duration; for example 90s, 10m or 1h30m",
    ),
    (
        "tune m --time-budget 0s",
        "--time-budget: '0s' is not a duration; for example 90s, 10m or 1h30m",
    ),
    ("tune m --patience 0", "--patience: '0' is out of range; from 1 to 2147483647"),
    ("tune m --bound-gap 5", "--bound-gap: '5' is not a percentage; for example 5%"),
    ("resume m --bound-gap x", "--bound-gap: 'x' is not a percentage; for example 5%"),
    ("tune m --dtype float15", "--dtype: 'float15' is not known; did you mean 'float16'?"),
    ("tune m --effort quik", "--effort: 'quik' is not known; did you mean 'quick'?"),
    ("tune m --sampler tpee", "--sampler: 'tpee' is not known; did you mean 'tpe'?"),
    ("simulate m --scheduler tmv", "--scheduler: 'tmv' is not known; did you mean 'tvm'?"),
    (
        "tune m --objective latency,speed",
        "--objective: 'speed' is not known; one of latency, throughput, energy, ddr-bytes",
    ),
    (
        "tune m --shape data",
        "--shape: 'data' is not a name with whole numbers from 0 on; write NAME=1,3,224,224",
    ),
    (
        "tune m --shape data=1,x",
        "--shape: 'data=1,x' is not a name with whole numbers from 0 on; write NAME=1,3,224,224",
    ),
    (
        "tune m --shape data=1,-2",
        "--shape: 'data=1,-2' is not a name with whole numbers from 0 on; write NAME=1,3,224,224",
    ),
    (
        "tune m --dim seq_len",
        "--dim: 'seq_len' is not a name with a whole number from 0 on; write NAME=64",
    ),
    ("inspect resnet18 --dim N=1 --dim N=2", "--dim: 'N' is given twice"),
    ("inspect resnet18 --shape a=1 --shape a=2", "--shape: 'a' is given twice"),
]


@pytest.mark.parametrize(("line", "message"), USAGE_ERRORS, ids=[row[0] for row in USAGE_ERRORS])
def test_usage_errors_are_one_line(line: str, message: str, cli: Cli) -> None:
    ran = cli(*line.split())
    assert (ran.status, ran.out, ran.err) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize("line", ["tune", "tune m --trails 3", "tun", "tune m --trials x"])
def test_usage_errors_as_json(line: str, cli: Cli) -> None:
    ran = cli("--json", *line.split())
    error = ran.object["error"]
    assert (ran.status, ran.err, error["kind"]) == (2, "", "usage")
    assert list(error) == ["kind", "message", "file", "line", "field", "hint"]


def test_global_options_before_and_after_the_command(cli: Cli) -> None:
    for arguments in (
        ["--db", "x.db", "--json", "runs"],
        ["runs", "--json", "--db", "x.db"],
        ["--db", "y.db", "--json", "runs", "--db", "x.db"],
    ):
        assert cli(*arguments).object["error"]["file"] == "x.db"
    assert cli("--db", "x.db", "db", "--json", "list").object["error"]["file"] == "x.db"
    assert cli("db", "list", "--db=x.db", "--json").object["error"]["file"] == "x.db"


def test_database_of_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    message = "no such database; 'autoturbo tune' makes one; --db names another"
    assert cli("runs").err == f"error: autoturbo.db: {message}\n"
    monkeypatch.setenv("AUTOTURBO_DB", "mine.db")
    assert cli("runs").err == f"error: mine.db: {message}\n"
    assert cli("runs", "--db", "other.db").err == f"error: other.db: {message}\n"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (TargetError("bad", Location("a.yaml", 3, 5, "x"), "mend it"), 2),
        (MeasurerError("bad"), 1),
        (InfeasibleError("does not fit"), 3),
        (InterruptedRunError("saved"), 130),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("division by zero"), 1),
    ],
)
def test_exit_statuses(
    error: BaseException, status: int, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(runs, "run", fail)
    ran = cli("runs")
    assert (ran.status, ran.out) == (status, "")
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    under_json = cli("--json", "runs")
    assert under_json.status == status
    assert under_json.err == ""
    assert under_json.object["error"]["message"]


def test_unforeseen_exceptions_show_a_traceback_only_with_debug(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise ValueError("two\nlines")

    monkeypatch.setattr(runs, "run", fail)
    line = "error: internal: ValueError: two; run again with --debug\n"
    assert cli("runs").err == line
    debug = cli("--debug", "runs")
    assert debug.err.startswith("Traceback (most recent call last)")
    assert debug.err.endswith(line)
    assert cli("runs", "--json").object["error"]["kind"] == "internal"


def test_errors_show_hostile_names_as_text(cli: Cli) -> None:
    ran = cli("runs", "--db", "\x1b[31m\nx/y.db")
    assert ran.err.count("\n") == 1
    assert "\x1b" not in ran.err
    assert r"\x1b[31m\nx" in ran.err


def test_json_after_two_dashes_is_no_option(cli: Cli) -> None:
    assert cli("runs", "--", "--json").err.startswith("error: unexpected argument")


def test_quiet_and_verbose(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    for verbosity, expected in ((-1, ["A"]), (0, ["S", "A"]), (1, ["S", "D", "A"])):
        console = Console(verbosity=verbosity)
        console.say("S")
        console.detail("D")
        console.answer("A")
        assert capsys.readouterr().out.split() == expected
    del cli


def test_under_json_people_read_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(json=True)
    console.say("for people")
    console.answer("not at all")
    console.emit({"a": 1})
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ('{"a": 1}\n', "for people\n")


def test_json_never_holds_what_is_not_json() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        Console(json=True).emit({"a": float("nan")})


def test_a_reader_that_leaves_is_no_error(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(targets, "run", leave)
    ran = cli("targets", "list")
    assert (ran.status, ran.out, ran.err) == (1, "", "")


def test_a_closed_pipe_leaves_no_message(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "autoturbo", "targets", "schema"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, cwd=tmp_path, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_an_encoding_without_the_characters(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "autoturbo", "inspect", "größe.onnx"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 2
    assert done.stderr == rb"error: gr\xf6\xdfe.onnx: no such file" + b"\n"


def test_no_colour_in_files_and_with_no_color(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in cli("targets", "list").out
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[3" not in cli("targets", "list").out


def test_the_module_is_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "autoturbo", "targets", "show", "stcp920", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert json.loads(done.stdout)["name"] == "stcp920"
