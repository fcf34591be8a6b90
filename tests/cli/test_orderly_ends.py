"""How commands end: signals, time that is up, and what a killed one has left."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from autoturbo import signals
from autoturbo.commands.console import Console, LiveLine
from autoturbo.database import tables
from autoturbo.errors import InterruptedRunError
from tests import processes
from tests.cli import faulty_measurers
from tests.cli.command_line import Cli, cli_in
from tests.compiled_later import compiled_later
from tests.database import database_samples as samples
from tests.processes import HANG_S, default_signals, wait_for_trials

if TYPE_CHECKING:
    from collections.abc import Iterator

MODEL = "alexnet"
TUNE = ("tune", MODEL, "--batch", "1")
ENTRY = """import sys
from autoturbo.__main__ import main
if __name__ == '__main__':
    sys.exit(main())
"""
"""The script that an installer makes."""


PLACES = {"alone": ("--jobs", "1"), "processes": ("--jobs", "2"), "ray": ("--ray", "--jobs", "2")}
FAST = {("alone", signal.SIGTERM)}
SENT = ((signal.SIGTERM, False), (signal.SIGHUP, True))
"""By ``kill`` to one process, and by a terminal that closes to all of its group."""
ENDS = [
    pytest.param(
        where, number, whole_group, id=f"{name}-{number.name}-{'group' if whole_group else 'one'}",
        marks=() if (name, number) in FAST else pytest.mark.full,
    )
    for name, where in PLACES.items()
    for number, whole_group in SENT
]  # fmt: skip


@pytest.fixture(autouse=True)
def _signals_of_a_terminal() -> Iterator[None]:
    with default_signals():
        yield


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


def begun(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A command in a session of its own."""
    (folder / "entry.py").write_text(ENTRY)
    line = [sys.executable, "entry.py", *arguments]
    return processes.started(line, cwd=folder, start_new_session=True)


def members(group: int) -> list[int]:
    """Processes of a group, but for one that Python ends by itself a moment later."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = entry.read_text().rpartition(")")[2].split()[:3]
            tracker = b"resource_tracker" in (entry.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(its_group) == group and state != "Z" and not tracker:
            found.append(int(entry.parent.name))
    return found


def left_of(group: int) -> list[int]:
    """Processes of a group that do not end within some seconds: a worker may be on its way out."""
    deadline = time.monotonic() + 60
    while members(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    return members(group)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up there")
@pytest.mark.parametrize(("where", "number", "whole_group"), ENDS)
def test_signals_to_end_are_treated_as_ctrl_c(
    tmp_path: Path, where: tuple[str, ...], number: signal.Signals, *, whole_group: bool
) -> None:
    for name in ("first", "again"):
        folder = tmp_path / name
        folder.mkdir()
        process = begun(folder, *TUNE, "--trials", "100000", *where)
        wait_for_trials(process, folder)
        (os.killpg if whole_group else os.kill)(process.pid, number)
        _, err = process.communicate(timeout=HANG_S)
        # Ray's servers had the signal too; now and then, on a busy machine, its library sees them
        # go before we have let go of them, and ends the program with status 1 and no word of ours.
        if not (
            "--ray" in where and whole_group and process.returncode == 1 and "error" not in err
        ):
            break
    assert process.returncode == 130, err
    assert "trials; all of them are saved; go on with 'autoturbo resume " in err
    assert "Traceback" not in err
    assert left_of(process.pid) == []


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.interruptible():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is signals.interrupt
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_library_leaves_the_signals_of_its_program_alone() -> None:
    assert signals.ending_here() == (signal.SIGINT,)
    with signals.interruptible():
        assert set(signals.ending_here()) == {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def test_what_fails_after_a_lost_ctrl_c_is_interrupted() -> None:
    """LLVM swallows it while it compiles, and then has no code to give."""

    def lost(error: Exception) -> None:
        with signals.interruptible():
            with contextlib.suppress(KeyboardInterrupt):
                signals.interrupt(signal.SIGINT, None)
            raise error

    with pytest.raises(KeyboardInterrupt):
        lost(RuntimeError("no compiled object yet"))
    with pytest.raises(InterruptedRunError):
        lost(InterruptedRunError("interrupted after 3 trials"))
    with pytest.raises(RuntimeError), signals.interruptible():
        raise RuntimeError


def test_a_ctrl_c_that_compiling_swallows_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    (function,) = compiled_later(1, monkeypatch)
    with signals.interruptible(), LiveLine(Console()):
        with contextlib.suppress(KeyboardInterrupt):
            signals.interrupt(signal.SIGINT, None)
        with pytest.raises(KeyboardInterrupt):
            function(1)


def test_ctrl_c_that_an_import_swallows_is_not_lost() -> None:
    with signals.interruptible():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        except:  # noqa: E722, S110  as others' packages do
            pass
        with pytest.raises(KeyboardInterrupt):
            signals.check()
    signals.check()


@pytest.mark.parametrize("json_lines", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_during_imports_shows_no_traceback(
    tmp_path: Path, number: signal.Signals, *, json_lines: bool
) -> None:
    """At moments from the first line of the package's on."""
    hook = "import os, sys\nfrom autoturbo import __main__ as entry\nseen = 0\n"
    hook += "class Pressed:\n    def find_spec(self, name, path=None, target=None):\n"
    hook += "        global seen\n        seen += 1\n"
    hook += f"        if seen == int(sys.argv[1]): os.kill(os.getpid(), {int(number)})\n"
    hook += "sys.meta_path.insert(0, Pressed())\nat = sys.argv.pop(1)\n"
    hook = hook.replace("int(sys.argv[1])", "int(at)") + "sys.exit(entry.main())\n"
    (tmp_path / "pressed.py").write_text(hook)
    more = ["--json"] if json_lines else []
    for at in (1, 20, 60):
        ran = subprocess.run(
            [sys.executable, "pressed.py", str(at), "tune", MODEL, *more], cwd=tmp_path,
            capture_output=True, text=True, check=False, timeout=HANG_S,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert ran.returncode == 130, (at, ran)
        assert "Traceback" not in ran.stderr
        if json_lines:
            assert json.loads(ran.stdout)["error"]["kind"] == "interrupted"
        else:
            assert ran.stderr.splitlines()[-1].startswith("error: interrupted")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_module_of_the_command_line_ends_in_order_too(
    tmp_path: Path, number: signal.Signals
) -> None:
    """It ended with a traceback and status -2, or without a line and -15."""
    hook = "import os, sys\nclass Pressed:\n    def find_spec(self, name, *_):\n"
    hook += "        if name == 'autoturbo.commands.parser':\n"
    hook += f"            os.kill(os.getpid(), {int(number)})\n"
    (tmp_path / "sitecustomize.py").write_text(f"{hook}sys.meta_path.insert(0, Pressed())\n")
    ran = subprocess.run(
        [sys.executable, "-m", "autoturbo.cli", "sweep", MODEL], cwd=tmp_path,
        capture_output=True, text=True, check=False, timeout=HANG_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (130, "error: interrupted\n")


def pressed(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1)


@pytest.mark.full
def test_an_interrupted_sweep_says_how_to_go_on(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it looks for runs of its points, and for what their neighbours found."""
    for place in ("database.Database.runs", "tuning.sweeping.neighbours"):
        with monkeypatch.context() as patched:
            patched.setattr(f"autoturbo.{place}", pressed)
            ran = cli("sweep", MODEL, "--vary", "lb.capacity_kib=1024", "--trials", "1", "-q")
        assert (ran.status, ran.err) == (
            130,
            "error: interrupted; all trials are saved; the same command goes on from here\n",
        )


def test_an_interrupted_import_leaves_a_whole_database(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoturbo.database.merging.taken_in", pressed)
    with samples.filled(cli.folder / "old.db") as database:
        database.export(cli.folder / "old.jsonl")
    ran = cli("db", "import", "old.jsonl", "--db", "new.db")
    assert (ran.status, ran.err.count("\n")) == (130, 1)
    assert ran.err.startswith("error: interrupted; nothing of old.jsonl is taken in; ")
    assert cli("db", "check", "--db", "new.db").status == 0


def test_a_database_is_made_as_a_whole(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tables.make_tables

    def slow(connection: sqlite3.Connection, version: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        inner(connection, version)

    monkeypatch.setattr(tables, "make_tables", slow)
    assert cli("db", "import", "none.jsonl", "--db", "new.db").status == 130
    monkeypatch.undo()
    monkeypatch.chdir(cli.folder)
    assert cli("db", "check", "--db", "new.db").status == 0


def test_nothing_else_is_imported_before_signals_are_handled() -> None:
    """By a command's script, in which Ctrl-C shows a traceback until then."""
    code = "import sys; from autoturbo.__main__ import main\n"
    code += "print(*sorted(name for name in sys.modules if name.startswith('autoturbo')))"
    process = processes.started([sys.executable, "-c", code])
    out, _ = process.communicate(timeout=HANG_S)
    assert out.split() == ["autoturbo", "autoturbo.__main__"]


def test_ctrl_c_while_the_best_is_checked_says_how_to_go_on(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)

    monkeypatch.setattr("autoturbo.verifier.verify_schedule", pressed)
    ran = cli(*TUNE, "--trials", "1", "-q", "--db", "a b.db")
    (run,) = cli("--json", "--db", "a b.db", "runs").object["runs"]
    assert (ran.status, run["state"], run["trials"]) == (130, "interrupted", 1)
    assert ran.err == (
        "error: interrupted; all that was measured is saved; "
        f"go on with 'autoturbo resume {run['run']} --db 'a b.db''\n"
    )


# Time


@pytest.mark.full
def test_a_time_budget_is_a_deadline_inside_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a measurer of two seconds it took 33 s in place of 10, and measured one trial."""
    faulty_measurers.install(tmp_path, monkeypatch)
    words = ("--measurer", "waiting-2", "--time-budget", "30s", "--jobs", "2")
    began = time.monotonic()
    process = begun(tmp_path, "--json", *TUNE, *words)
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert found["trials"] > 1
    assert found["stopped"] == "time"
    assert time.monotonic() - began < 60


@pytest.mark.full
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_what_is_being_measured_at_the_end_of_the_time_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: str
) -> None:
    """5 s took 60, a baseline and a trial of 20 s each."""
    faulty_measurers.install(tmp_path, monkeypatch)
    began = time.monotonic()
    words = ("--measurer", "waiting-600", "--time-budget", "5s", "--jobs", jobs)
    process = begun(tmp_path, "-q", *TUNE, *words)
    _, err = process.communicate(timeout=HANG_S)
    assert time.monotonic() - began < 300
    assert (process.returncode, err.count("\n")) == (1, 1), err
    assert "no measurement has ended within 5 s; 'autoturbo resume " in err
    assert left_of(process.pid) == []


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up there")
def test_a_worker_that_stands_still_does_not_hold_up_the_end_of_the_time(tmp_path: Path) -> None:
    """12 s had not ended after 55."""
    words = ("--sampler", "random", "--time-budget", "20s", "--jobs", "2")
    process = begun(tmp_path, "--json", *TUNE, *words)
    wait_for_trials(process, tmp_path)
    worker = max(pid for pid in members(process.pid) if pid != process.pid)
    os.kill(worker, signal.SIGSTOP)
    began = time.monotonic()
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    assert time.monotonic() - began < 120
    found = json.loads(out)
    assert found["stopped"] == "time"
    assert found["trials"] > 1
    assert left_of(process.pid) == []


# Measurers that end their process


@pytest.mark.full
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_crash_of_a_measurer_is_a_failed_trial(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], jobs: str
) -> None:
    """It ended the tuner: with one process as it does here, with more in a baseline."""
    (cli.folder / "site").mkdir()
    faulty_measurers.install(cli.folder / "site", monkeypatch)
    words = ("--measurer", "fragile", "--trials", "6", "--sampler", "random", "--jobs", jobs)
    found = cli("--json", *TUNE, *words).object
    assert (found["trials"], found["stopped"]) == (6, "trials")
    assert set(found["baselines"]) == {"graphturbo"}
    out, err = capfd.readouterr()
    assert (out, "hello from the board" in err, "hello from Python" in err) == ("", True, True)
    log = (Path(found["schedule_file"]).parent / "log.txt").read_text()
    assert "no gain over tvm is stated: the worker died while measuring it, 2 times" in log


@pytest.mark.full
def test_a_crash_of_a_measurer_does_not_end_the_command(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It ended ``simulate`` too, with status 0 and nothing said."""
    (cli.folder / "site").mkdir()
    faulty_measurers.install(cli.folder / "site", monkeypatch)
    ran = cli("simulate", TUNE[1], "--measurer", "fragile", "--scheduler", "tvm")
    assert (ran.status, ran.err.count("\n")) == (1, 1)
    assert "the worker died while measuring it, 2 times" in ran.err
    assert capfd.readouterr().out == ""


@pytest.mark.full
def test_a_plug_in_measures_the_heuristic_once_and_the_best_once_more(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (cli.folder / "site").mkdir()
    faulty_measurers.install(cli.folder / "site", monkeypatch)
    words = ("--measurer", "fragile", "--trials", "1", "--baselines", "graphturbo", "-q")
    assert cli(*TUNE, *words).status == 0
    assert capfd.readouterr().err.count("hello from the board") == 2


# What a killed run leaves


@pytest.mark.full
def test_temporary_files_of_killed_runs_are_taken_away(cli: Cli) -> None:
    first = cli("--json", *TUNE, "--trials", "1").object
    folder = Path(first["schedule_file"]).parent
    left = [folder / f".autoturbo-{name}.tmp" for name in ("left", "young")]
    for file in left:
        file.write_text("half of a sched")
    os.utime(left[0], (0, 0))
    assert cli(*TUNE, "--trials", "1", "--seed", "1", "-q").status == 0
    assert [file.exists() for file in left] == [False, True]


def test_a_temporary_file_that_somebody_writes_is_left_alone(tmp_path: Path) -> None:
    from autoturbo.files import atomic_writer, take_away_left

    with atomic_writer(tmp_path / "out.json") as file:
        file.write(b"{}")
        (temporary,) = tmp_path.glob(".autoturbo-*.tmp")
        os.utime(temporary, (0, 0))
        take_away_left(tmp_path)
        assert temporary.exists()
    assert (tmp_path / "out.json").read_bytes() == b"{}"


@pytest.mark.parametrize("kind", ["nothing", "no tables"])
def test_a_database_that_was_being_made_is_explained_and_used(cli: Cli, kind: str) -> None:
    path = cli.write("autoturbo.db", b"")
    if kind == "no tables":
        with closing(sqlite3.connect(cli.folder / path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    for command in (("runs",), ("show", "4f1c"), ("db", "list")):
        ran = cli(*command)
        assert (ran.status, ran.err.count("\n")) == (2, 1), ran
        assert "'autoturbo tune' fills it" in ran.err
    assert cli(*TUNE, "--trials", "1", "-q").status == 0
    shutil.rmtree(cli.folder / "runs")
