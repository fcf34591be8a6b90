"""``verify``, and what ``tune`` says of the checks of what it hands out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoturbo.commands import scheduling
from autoturbo.database import Database
from autoturbo.extras import how_to_install
from autoturbo.schedule.schedule import Schedule
from autoturbo.verifier import VERIFIER_VERSION
from autoturbo.verifier.apart import check_numbers_apart
from autoturbo.verifier.findings import Check, Finding, Numbers, Verification
from tests.cli.bad_files import saved, tiny
from tests.cli.command_line import Cli, cli_in

MODEL = "squeezenet1_1"
RACE = Finding(Check.MEMORY, "race", "kernel 2 writes 'x' while kernel 1 reads it", "a/0", "a")
FAR = Finding(Check.NUMBERS, "differs", "output 'y' is off by 0.5", None, "mm")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


def tuned(cli: Cli, *more: str | Path, trials: int = 5) -> dict[str, Any]:
    ran = cli("--json", "tune", MODEL, "--batch", "1", "--trials", str(trials), *more)
    assert ran.status == 0, ran.err
    return ran.object


def faulty(monkeypatch: pytest.MonkeyPatch, *bad: str) -> None:
    """The memory check finds a race in schedules with these texts; without any, in all."""

    def verify(schedule: Schedule, **_: object) -> Verification:
        wrong = not bad or schedule.text in bad
        return Verification((), (RACE,) if wrong else ())

    monkeypatch.setattr("autoturbo.verifier.verify_schedule", verify)


def running(monkeypatch: pytest.MonkeyPatch, numbers: Numbers) -> None:
    """What running a schedule gives."""
    monkeypatch.setattr("autoturbo.verifier.apart.check_numbers_apart", lambda *_, **__: numbers)


def verified(cli: Cli) -> tuple[str, ...]:
    with Database.open(cli.folder / "autoturbo.db", read_only=True) as database:
        (best,) = database.best()
    return () if best.verified is None else tuple(best.verified.checks)


def test_the_heuristic_s_schedule(cli: Cli) -> None:
    ran = cli("verify", saved(cli, tiny()))
    assert ran.status == 0, ran
    title, header, _, *rows = ran.out.splitlines()[:6]
    assert title == "tiny @ stcp920, float16: graphturbo"
    assert header.split() == ["check", "verdict", "what", "was", "checked"]
    assert [row.split()[:2] for row in rows] == [
        [c, "ok"] for c in ("regions", "memory", "numbers")
    ]
    assert "1 sub-graph" in rows[0]
    assert "1 kernel" in rows[1]
    assert "batch 4, the whole model, seed 0, max error " in rows[2]
    assert ran.out.splitlines()[-1].split()[0] == "y"
    assert ran.err == (
        "tiny @ stcp920: checking regions and memory\n"
        "running the model and its schedule in ONNX Runtime\n"
    )


def test_the_names_that_scripts_rely_on(cli: Cli) -> None:
    ran = cli("--json", "verify", saved(cli, tiny()), "--scheduler", "tvm", "--seed", "7")
    found = ran.object
    names = ["regions", "memory", "numbers", "max_abs_error", "failures"]
    assert [name for name in found if name in names] == names
    assert [found[name] for name in names[:3]] == ["ok", "ok", "ok"]
    assert found["max_abs_error"] >= 0
    assert found["failures"] == []
    assert (found["model"], found["target"], found["scheduler"]) == ("tiny", "stcp920", "tvm")
    assert set(found["checked"]) == {"subgraphs", "instances", "kernels", "buffers"}
    assert (found["ran"]["batch"], found["ran"]["seed"]) == (4, 7)
    assert [output["output"] for output in found["ran"]["outputs"]] == ["y"]


def test_without_the_numbers(cli: Cli) -> None:
    ran = cli("--json", "verify", saved(cli, tiny()), "--no-numbers")
    assert (ran.status, ran.object["numbers"]) == (0, "skipped")
    assert ran.object["max_abs_error"] is None
    assert ran.err == "tiny @ stcp920: checking regions and memory\n"
    assert "numbers   not checked   --no-numbers" in cli("verify", "tiny.onnx", "--no-numbers").out
    assert cli("verify", "tiny.onnx", "--no-numbers", "-q").err == ""


@pytest.mark.full
def test_a_schedule_file_a_run_and_a_knobs_file(cli: Cli) -> None:
    found = tuned(cli, "-o", "best.json")
    knobs = cli("--json", "show", found["run"]).object["knobs"]
    cli.write("knobs.json", json.dumps(knobs))
    given = ["--batch", "1", "--no-numbers"]
    by_file = cli("--json", "verify", MODEL, "--schedule", "best.json", *given)
    by_knobs = cli("--json", "verify", MODEL, "--knobs", "knobs.json", *given)
    by_run = cli("--json", "verify", MODEL, "--run", found["run"][:6], "--no-numbers")
    assert [ran.status for ran in (by_file, by_knobs, by_run)] == [0, 0, 0]
    assert by_file.object["checked"] == by_knobs.object["checked"] == by_run.object["checked"]
    assert by_run.object["scheduler"] == f"run {found['run']}, trial {found['best_trial']}"


def test_what_fails_is_named_and_the_status_is_1(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    model = saved(cli, tiny())
    faulty(monkeypatch)
    running(monkeypatch, Numbers(1, False, 0, 0.5, (("y", 0.5, 1e-3),), (FAR,)))  # noqa: FBT003
    ran = cli("verify", model)
    assert ran.status == 1
    assert ran.out.splitlines()[-2:] == [
        "memory: race: kernel 2 writes 'x' while kernel 1 reads it",
        "numbers: differs: output 'y' is off by 0.5",
    ]
    assert "memory    failed: 1" in ran.out
    assert "batch 1, one pass with the same decisions, seed 0, max error 0.5" in ran.out
    shown = cli("--json", "verify", model)
    assert (shown.status, shown.object["memory"], shown.object["numbers"]) == (1, *["failed"] * 2)
    assert shown.object["failures"] == [RACE.as_json(), FAR.as_json()]


def test_numbers_that_cannot_be_checked_are_named_and_the_status_is_1(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved(cli, tiny())
    reason = "needs 99 GB of memory, 8 GB are free"
    running(monkeypatch, Numbers(4, whole=True, seed=0, max_abs_error=None, skipped=reason))
    ran = cli("verify", model)
    assert ran.status == 1
    assert f"numbers   not checked   {reason}" in ran.out
    assert ran.err.endswith(
        f"error: the numbers were not checked: {reason}; "
        "--no-numbers asks for regions and memory only\n"
    )
    shown = cli("--json", "verify", model)
    assert shown.status == 1
    assert (shown.object["numbers"], shown.object["ran"]["skipped"]) == ("skipped", reason)


def test_numbers_asked_for_without_onnx_runtime(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "find_spec", lambda _: None)
    hint = how_to_install("verify")
    for flag, command in (("--numbers", "verify"), ("--verify", "tune")):
        ran = cli(command, MODEL, flag)
        assert (ran.status, ran.out) == (2, "")
        assert ran.err == f"error: {flag}: needs ONNX Runtime, which is not installed; {hint}\n"


def test_without_onnx_runtime_the_numbers_are_skipped_and_it_says_how_to_get_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cli.folder / "none").mkdir()
    (cli.folder / "none" / "onnxruntime.py").write_text("raise ImportError('none here')\n")
    monkeypatch.syspath_prepend(str(cli.folder / "none"))  # a child sees what its parent sees
    monkeypatch.setattr("autoturbo.verifier.apart.check_numbers_apart", check_numbers_apart)
    ran = cli("--json", "verify", saved(cli, tiny()))
    assert (ran.status, ran.object["numbers"]) == (1, "skipped")
    assert "pip install" in ran.object["ran"]["skipped"]
    assert ran.object["max_abs_error"] is None


def test_onnx_runtime_may_die_and_verify_says_of_what(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoturbo.verifier.apart.check_numbers_apart", check_numbers_apart)
    monkeypatch.setattr("autoturbo.verifier.apart.CHILD", "import os; os.abort()")
    ran = cli("--json", "verify", saved(cli, tiny()))
    assert (ran.status, ran.object["memory"], ran.object["numbers"]) == (1, "ok", "skipped")
    reason = "the process that ran ONNX Runtime ended with SIGABRT"
    assert ran.object["ran"]["skipped"] == reason
    assert f"error: the numbers were not checked: {reason}; " in ran.err


@pytest.mark.full
def test_the_database_remembers_what_was_verified(cli: Cli) -> None:
    found = tuned(cli, "-o", "best.json")
    assert found["verified"] == ["regions", "memory"]
    assert verified(cli) == ("regions", "memory")
    cli("verify", MODEL, "--batch", "1", "--scheduler", "tvm")  # another schedule
    assert verified(cli) == ("regions", "memory")
    ran = cli("verify", MODEL, "--run", found["run"])
    assert ran.out.endswith("the best schedule in autoturbo.db is recorded as verified\n")
    assert verified(cli) == ("regions", "memory", "numbers")
    assert cli("verify", MODEL, "--run", found["run"], "--no-numbers").status == 0
    assert verified(cli) == ("regions", "memory", "numbers")
    (best,) = cli("--json", "db", "best").object["best"]
    assert best["verified"]["checks"] == ["regions", "memory", "numbers"]
    assert best["verified"]["verifier"] == VERIFIER_VERSION
    assert "verified schedules: regions 1/1, memory 1/1, numbers 1/1\n" in cli("db", "list").out
    shown = cli("--json", "show", found["run"]).object
    assert shown["verified"] == best["verified"]
    assert "\nverified: regions, memory, numbers\n" in cli("show", found["run"]).out


@pytest.mark.full
def test_a_failed_check_is_not_recorded(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tuned(cli)
    running(monkeypatch, Numbers(1, whole=True, seed=0, max_abs_error=0.5, findings=(FAR,)))
    assert cli("verify", MODEL, "--run", found["run"]).status == 1
    assert verified(cli) == ("regions", "memory")


def test_a_database_that_is_none_does_not_stop_it(cli: Cli) -> None:
    cli.write("autoturbo.db", "no database")
    ran = cli("verify", saved(cli, tiny()), "--no-numbers")
    assert ran.status == 0
    assert ran.err.splitlines()[-1].startswith(
        "the verification is not recorded: autoturbo.db: not an SQLite database"
    )


# What tune hands out


def test_tune_says_what_it_verified(cli: Cli) -> None:
    ran = cli("tune", MODEL, "--batch", "1", "--trials", "1")
    assert "\nverified     regions, memory\n" in ran.out
    run = json.loads(cli("--json", "runs").out)["runs"][0]["run"]
    assert "\nverified     regions, memory\n" in cli("resume", run).out


def test_tune_verify_runs_it_and_so_does_its_resume(cli: Cli) -> None:
    found = cli("--json", "tune", saved(cli, tiny()), "--trials", "2", "--verify").object
    assert found["verified"] == ["regions", "memory", "numbers"]
    again = cli("--json", "resume", found["run"]).object
    assert again["verified"] == found["verified"]
    assert verified(cli) == ("regions", "memory", "numbers")


@pytest.mark.full
def test_tune_hands_out_the_next_best_and_ends_with_1(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tuned(cli, "--db", "first.db", "-o", "first.json")
    faulty(monkeypatch, (cli.folder / "first.json").read_text())
    arguments = ["tune", MODEL, "--batch", "1", "--trials", "5"]
    ran = cli("--json", *arguments)
    assert ran.status == 1
    found = ran.object
    assert [refused["trial"] for refused in found["refused"]] == [first["best_trial"]]
    assert found["best_trial"] != first["best_trial"]
    assert found["best"]["latency_s"] >= first["best"]["latency_s"]
    reason = f"memory: race: {RACE.message}"
    assert ran.err.endswith(
        f"error: {MODEL} @ stcp920: trial {first['best_trial']} fails a check: {reason}; "
        f"it is not handed out, trial {found['best_trial']} is\n"
    )
    (listed,) = cli("--json", "runs").object["runs"]
    assert (listed["best_trial"], listed["refused"]) == (found["best_trial"], found["refused"])
    text = cli("show", found["run"]).out
    assert f"trial {first['best_trial']} is not handed out, it fails a check: {reason}\n" in text
    assert cli("resume", found["run"]).status == 1


@pytest.mark.full
def test_tune_verify_that_could_not_run_it_ends_with_1(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipped = Numbers(1, whole=True, seed=0, max_abs_error=None, skipped="no kernel for Foo")

    def verify(_: Schedule, *, numbers: bool = True, **__: object) -> Verification:
        return Verification((), (), skipped if numbers else None)

    monkeypatch.setattr("autoturbo.verifier.verify_schedule", verify)
    ran = cli("--json", "tune", MODEL, "--batch", "1", "--trials", "1", "--verify")
    assert ran.status == 1
    assert ran.object["verified"] == ["regions", "memory"]
    assert ran.object["numbers_skipped"] == "no kernel for Foo"
    assert ran.err.endswith("its numbers were not checked: no kernel for Foo\n")


@pytest.mark.full
def test_nothing_that_passes_is_an_error_of_one_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty(monkeypatch)
    ran = cli("tune", MODEL, "--batch", "1", "--trials", "2", "-q")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(
        f"error: {MODEL} on stcp920: each of the best 2 schedules fails a check: trial "
    )
    assert ran.err.count("\n") == 1
    assert cli("--json", "db", "list").object["best"] == []
    (listed,) = cli("--json", "runs").object["runs"]
    assert (listed["state"], listed["best_trial"]) == ("failed", None)
    error = cli("--json", "verify", MODEL, "--run", listed["run"])
    assert (error.status, error.object["error"]["kind"]) == (2, "run")
