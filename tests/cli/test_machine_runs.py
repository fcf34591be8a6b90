"""The whole way on a machine of several units: tune, show, db, simulate, apply, verify, resume."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from tests.cli.command_line import Cli, cli_in
from tests.search.fork_model import save_fork

ON = ("--target", "zcu102-vta4")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    save_fork(tmp_path)
    return cli_in(tmp_path, monkeypatch)


@pytest.fixture
def run(cli: Cli) -> str:
    found = cli("--json", "tune", "fork.onnx", *ON, "--trials", "20")
    assert found.status == 0, found.err
    assert set(found.object["baselines"]) == {"cpu", "static", "profiled", "partition_tuner"}
    assert found.object["verified"] == ["regions", "memory"]
    return str(found.object["run"])


def test_what_people_see(cli: Cli) -> None:
    shown = cli("tune", "fork.onnx", *ON, "--trials", "12").out
    assert "12 trials; sampler annealing over units and cuts, seed 0" in shown
    assert "heuristic" in shown
    assert "graphturbo" not in shown
    assert "autoturbo report" not in shown  # which is of targets
    assert "\nunits        busy cpu " in shown


def test_the_best_is_read_back(cli: Cli, run: str) -> None:
    (best,) = cli("--json", "db", "best", *ON).object["best"]
    shown = cli("show", run).out
    assert "vs heuristic" in shown
    assert "units: busy cpu" in shown
    assert "memory held: cpu" in shown
    schedulers = cli("--json", "compare", "fork.onnx", *ON).object["schedulers"]
    assert schedulers["tuned"]["latency_s"] == best["best"]["latency_s"]
    file = next(cli.folder.glob("runs/*/schedule.json"))
    measured = cli("--json", "simulate", "fork.onnx", *ON, "--schedule", file).object
    assert measured["latency_s"] == best["best"]["latency_s"]
    knobs = cli.write("knobs.json", json.dumps(best["knobs"]))
    measured = cli("--json", "simulate", "fork.onnx", *ON, "--knobs", knobs).object
    assert measured["latency_s"] == best["best"]["latency_s"]
    assert cli("replay", run, "7").status == 0
    assert cli("diff", file, run, "--fail-if-slower", "0%").status == 0


def test_the_best_is_applied_and_verified(cli: Cli, run: str) -> None:
    assert cli("apply", "fork.onnx", *ON, "-o", "out.onnx").status == 0
    model = onnx.load(cli.folder / "out.onnx", load_external_data=False)
    units = {e.value for n in model.graph.node for e in n.metadata_props if e.key.endswith(".unit")}
    assert units
    assert units <= {"cpu", "npu0", "npu1", "npu2", "npu3"}
    found = cli("--json", "verify", "fork.onnx", "--run", run).object
    assert (found["regions"], found["memory"], found["numbers"]) == ("ok", "ok", "ok")
    assert cli("--json", "db", "best").object["best"][0]["verified"]["checks"] == [
        "regions", "memory", "numbers",
    ]  # fmt: skip


def test_a_run_goes_on(cli: Cli, run: str) -> None:
    assert cli("--json", "resume", run, "--trials", "26").object["trials"] == 26


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("trace",), "how units shared the work, and its schedule.json when every part runs"),
        (("explain",), "a machine of several units; 'autoturbo show"),
    ],
)
def test_what_cannot_do_machines_yet_says_so(
    cli: Cli, run: str, command: tuple[str, ...], message: str
) -> None:
    done = cli(*command, run)
    assert done.status == 2
    assert message in done.err


def test_a_schedule_for_something_else_is_refused(cli: Cli, run: str) -> None:
    file = next(cli.folder.glob("runs/*/schedule.json"))
    done = cli("simulate", "fork.onnx", "--schedule", file)
    assert done.status == 2
    assert "a schedule of a machine of several units, not of a target" in done.err
    done = cli("apply", "fork.onnx", *ON, "-o", "out.json")
    assert done.status == 2
    assert "kernels are spelled out for a target" in done.err
    assert run


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ("latency", "is faster than all that was tried"),
        ("throughput", "is ahead of all that was tried in throughput"),
        ("ddr-bytes", "is ahead of all that was tried in ddr-bytes"),
    ],
)
def test_a_scheduler_that_no_trial_equals_is_named(cli: Cli, objective: str, said: str) -> None:
    on = ("--target", "kirin-970", "--objective", objective, "--trials", "1")
    shown = cli("tune", "squeezenet1_1", "--batch", "1", *on).out
    (note,) = [line for line in shown.splitlines() if said in line]
    (name, *_) = note.removeprefix("note").split()
    assert name in ("cpu", "static", "profiled")


def test_resume_says_what_the_run_began_with(cli: Cli, run: str) -> None:
    ran = cli("resume", run)
    lines = ran.out.splitlines()
    assert f"run {run}: if it ends early, go on with: autoturbo resume {run}\n" in ran.err
    assert lines[:2] == ["fork @ zcu102-vta4", f"  run     {run} of autoturbo.db"]
    assert lines[2] == "  starts  every unit alone, and the schedules of published schedulers"
