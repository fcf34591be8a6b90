"""What one input may ask for has limits, which are named and can be raised; odd places to run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoturbo.files import JOBS, Limit, is_bomb, read_text
from tests.cli.bad_files import saved, tiny
from tests.cli.command_line import Cli, cli_in


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("flag", "value", "variable"),
    [
        ("--jobs", "100000", "AUTOTURBO_MOST_JOBS"),
        ("--round", "999999999", "AUTOTURBO_MOST_ROUND"),
    ],
)
@pytest.mark.parametrize("command", ["tune", "sweep"])
def test_flags_that_ask_for_too_much(
    cli: Cli, command: str, flag: str, value: str, variable: str
) -> None:
    more = ["-q", *(("--vary", "lb.capacity_kib=512,1024") if command == "sweep" else ())]
    ran = cli(command, saved(cli, tiny()), *more, "--trials", "2", flag, value)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1), ran
    assert f"{value} " in ran.err
    assert f"{variable}=N allows N" in ran.err


def test_a_limit_can_be_raised_and_lowered(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    limit = Limit("AUTOTURBO_MOST_JOBS", 8)
    assert limit.most == 8
    monkeypatch.setenv("AUTOTURBO_MOST_JOBS", "100000")
    assert limit.most == JOBS.most == 100_000
    monkeypatch.setenv("AUTOTURBO_MOST_JOBS", "many")
    ran = cli("tune", saved(cli, tiny()), "-q", "--trials", "1")
    assert ran.err == "error: AUTOTURBO_MOST_JOBS: 'many' is not a whole number from 1 on\n"


def test_a_file_may_be_as_large_as_is_allowed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOTURBO_MOST_MIB", "1")
    (tmp_path / "file").write_bytes(b"x" * 2**20)
    assert len(read_text(tmp_path / "file")) == 2**20
    (tmp_path / "file").write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(OSError, match="too large, the limit is 1 MiB"):
        read_text(tmp_path / "file")
    assert not is_bomb(2**20, 1)
    assert is_bomb(2**20 + 1, 1000)
    assert not is_bomb(2**30, 2**21)


@pytest.mark.parametrize("command", ["import", "merge"])
def test_a_file_that_never_ends_is_not_read_to_its_end(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("AUTOTURBO_MOST_MIB", "1")
    ran = cli("db", command, "/dev/zero")
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1), ran
    assert ran.err.startswith("error: /dev/zero:1: a line that is too long for a record; the limit")


def test_an_endless_pipe_is_not_read_to_its_end(tmp_path: Path) -> None:
    line = f"yes | {sys.executable} -m autoturbo db import /dev/stdin"
    ran = subprocess.run(
        ["/bin/sh", "-c", line], cwd=tmp_path, env={**os.environ, "AUTOTURBO_MOST_MIB": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: /dev/stdin:1:1: not JSON: ")


def test_an_extent_beyond_the_format_is_one_line(cli: Cli) -> None:
    ran = cli("inspect", saved(cli, tiny()), "--shape", f"x=4,{10**20}")
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1), ran
    assert f"x=4,{10**20}' is out of range; extents go from 0 to" in ran.err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("inspect pipe", "pipe: not a regular file; save the model as one first"),
        ("simulate tiny.onnx --target pipe", "pipe: not a regular file; name a YAML file"),
        ("simulate tiny.onnx --knobs pipe", "pipe: cannot read: a named pipe to which nobody has"),
        ("simulate tiny.onnx --schedule pipe", "pipe: cannot read: a named pipe to which nobody"),
        ("runs --db pipe", "pipe: not a regular file; give another file with --db"),
        ("tune tiny.onnx --trials 1 --db pipe", "pipe: not a regular file; give another"),
        ("db check --db pipe --save new.jsonl", "pipe: not a regular file"),
        ("db import pipe", "pipe: cannot read: a named pipe to which nobody has written"),
        ("db merge pipe", "pipe: cannot read: a named pipe to which nobody has written"),
    ],
)
def test_a_named_pipe_that_nobody_writes_to(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.setattr("autoturbo.files.inputs.WRITER_S", 0.1)
    Path(saved(cli, tiny())).rename(tmp_path / "tiny.onnx")
    os.mkfifo(tmp_path / "pipe")
    ran = cli(*line.split())
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1), ran
    assert ran.err.startswith(f"error: {said}")


def run(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **settings}
    line = [sys.executable, "-m", "autoturbo", *arguments]
    return subprocess.run(
        line, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_without_docstrings_there_is_one_line(tmp_path: Path) -> None:
    ran = run(tmp_path, "runs", PYTHONOPTIMIZE="2")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: Python leaves docstrings out")
    assert ran.stderr.count("\n") == 1


def test_in_a_folder_that_is_gone_there_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    script = (
        "import os, sys; os.rmdir('../gone');"
        "from autoturbo.cli import main; sys.exit(main(['runs']))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path / "gone", capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    hint = "go to a folder that exists"
    assert ran.stderr == f"error: the working folder has been deleted; {hint}\n"
    assert ran.returncode == 2


def test_a_report_under_a_limit_of_address_space_is_one_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    assert cli("tune", saved(cli, tiny()), "-q", "--trials", "1").status == 0
    (only,) = cli("--json", "runs").object["runs"]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1600 * 2**20, -1))
    ran = cli("report", only["run"])
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("error: charts reserve 64 GiB of address space, 1600 MiB are allowed")


def test_too_little_memory_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> int:
        raise MemoryError

    monkeypatch.setattr("autoturbo.commands.tuning.runs.run", no_room)
    ran = cli("runs")
    assert (ran.status, ran.err.count("\n")) == (1, 1)
    assert ran.err.startswith("error: there is not enough memory")


_FUZZ = Path(__file__).parents[2] / "tools" / "fuzz.py"


def fuzz(folder: Path, *arguments: str, **settings: str) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **settings}
    line = [sys.executable, str(_FUZZ), *arguments]
    ran = subprocess.run(
        line, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.full
def test_no_mutant_ends_in_anything_but_a_clear_line(tmp_path: Path) -> None:
    fuzz(tmp_path, "--mutants", "60")
