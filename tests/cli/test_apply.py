"""``apply``: the scheduled model as ONNX."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, cast

import onnx
import pytest

import autoturbo
from autoturbo.commands.schedules.apply import how_adapted
from autoturbo.commands.scheduling import AdaptedJson, ChosenSchedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.verifier.findings import Check, Finding, Verification
from tests.cli.bad_files import saved, tiny
from tests.cli.command_line import Cli, cli_in


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


def tuned(cli: Cli, model: str, *more: str) -> dict[str, Any]:
    ran = cli("--json", "tune", model, "--trials", "3", *more)
    assert ran.status == 0, ran.err
    return ran.object


def sound(cli: Cli) -> str:
    """A model that says the shape of its output, as the checker wants it."""
    model = tiny()
    shape = model.graph.output[0].type.tensor_type.shape
    for extent in (4, 16):
        shape.dim.add().dim_value = extent
    return saved(cli, model)


def faulty(_: Schedule, **__: object) -> Verification:
    gaps = tuple(Finding(Check.REGIONS, "gap", f"row {n} of 'y' is missing") for n in range(3))
    return Verification(gaps, ())


def test_the_best_of_the_database(cli: Cli) -> None:
    model = sound(cli)
    found = tuned(cli, model)
    ran = cli("apply", model, "-o", "out.onnx")
    assert ran.status == 0, ran
    lines = ran.out.splitlines()
    assert lines[0] == f"tiny @ stcp920, float16: run {found['run']}, trial {found['best_trial']}"
    assert lines[1] == "written   out.onnx"
    assert re.fullmatch(
        r"holds     \d+ functions?, \d+ calls?, \d+ nodes?, \d+ pass(es)?", lines[2]
    )
    assert lines[-2] == "verified  regions, memory"
    onnx.checker.check_model(str(cli.folder / "out.onnx"), full_check=True)
    _, *command = shlex.split(lines[-1].removeprefix("next").strip())
    assert command == ["verify", model, "--run", found["run"]]
    again = cli("--json", *command)
    assert (again.status, again.object["numbers"]) == (0, "ok")


def test_the_names_that_scripts_rely_on(cli: Cli) -> None:
    ran = cli("--json", "apply", saved(cli, tiny()), "--scheduler", "tvm", "-o", "out.onnx")
    assert ran.err == "tiny @ stcp920, float16: tvm\n"
    found = ran.object
    assert list(found) == [
        *["model", "target", "dtype", "scheduler", "file", "data_files", "missing"],
        *["functions", "instances", "nodes", "passes", "verified"],
    ]
    assert (found["scheduler"], found["file"]) == ("tvm", "out.onnx")
    schedule = cli("--json", "verify", "tiny.onnx", "--scheduler", "tvm", "--no-numbers").object
    assert found["instances"] == found["passes"] * schedule["checked"]["instances"]
    for file in found["data_files"]:
        assert (cli.folder / file).is_file()


def test_the_next_command_names_the_same_schedule(cli: Cli) -> None:
    model = saved(cli, tiny([None, 8]))
    tuned(cli, model, "--batch", "2", "-o", "my best.json")
    flags = ["--batch", "2", "--schedule", "my best.json", "--target", "stcp920"]
    ran = cli("apply", model, *flags, "-o", "out.onnx", "--db", "none.db")
    assert ran.status == 0, ran
    _, *command = shlex.split(ran.out.splitlines()[-1].removeprefix("next").strip())
    assert command[:2] == ["verify", model]
    assert "my best.json" in command
    assert cli(*command, "--no-numbers").status == 0


def test_the_best_is_found_by_what_is_in_model_and_target(cli: Cli) -> None:
    model = saved(cli, tiny())
    found = tuned(cli, model)
    cli.write("renamed.onnx", (cli.folder / model).read_bytes())
    ran = cli("--json", "apply", "renamed.onnx", "-o", "out.onnx")
    assert ran.object["scheduler"].startswith(f"run {found['run']}, ")


def test_a_miss_says_what_there_is_not(cli: Cli) -> None:
    model = saved(cli, tiny([None, 8]))
    tuned(cli, model, "--batch", "4")
    ran = cli("apply", model, "--batch", "2", "-o", "out.onnx")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == (
        "error: autoturbo.db: no best schedule of tiny at batch 2 on stcp920 in float16; "
        "there is one at batch 4; --nearest-batch adapts it, or "
        "--scheduler graphturbo takes the heuristic's schedule instead\n"
    )
    other = saved(cli, tiny([4, 8], doc_string="x"), "tiny.onnx")
    changed = onnx.load(cli.folder / other)
    changed.graph.node[0].op_type = "Gemm"
    cli.write(other, changed.SerializeToString())
    ran = cli("apply", other, "-o", "out.onnx")
    assert "; there is one for other operators or shapes; " in ran.err
    assert not (cli.folder / "out.onnx").exists()


def test_the_settings_of_the_nearest_batch_are_adapted(cli: Cli) -> None:
    model = saved(cli, tiny([None, 8]))
    runs = {batch: tuned(cli, model, "--batch", str(batch)) for batch in (4, 16)}
    for batch, near in ((3, 4), (12, 16), (4, 4)):
        words = ("apply", model, "--batch", str(batch), "--nearest-batch", "-o", f"{batch}.onnx")
        ran = cli(*words)
        assert ran.status == 0, ran.err
        found = runs[near]
        of = f"tiny @ stcp920, float16: run {found['run']}, trial {found['best_trial']}"
        lines = ran.out.splitlines()
        assert "verified  regions, memory" in lines
        assert (cli.folder / f"{batch}.onnx").is_file()
        line = cli("--json", *words, "--force").object
        if batch == near:
            assert lines[0] == of
            assert "adapted" not in line
            continue
        assert lines[0].startswith(f"{of} at batch {near}, adapted to batch {batch}: ")
        assert lines[0].endswith((" heuristic in the simulator", "graphturbo takes that one)"))
        assert line["adapted"]["batch"] == near
        assert line["adapted"]["latency_s"] > 0 < line["adapted"]["heuristic_s"]
        _, *command = shlex.split(lines[-1].removeprefix("next").strip())
        assert command == ["tune", model, "--target", "stcp920", "--batch", str(batch)]
    ran = cli("apply", model, "--batch", "3", "--nearest-batch", "-o", "kernels.json")
    assert (ran.status, (cli.folder / "kernels.json").is_file()) == (0, True)


def test_only_a_batch_of_the_same_model_is_adapted(cli: Cli) -> None:
    model = saved(cli, tiny([None, 8]))
    tuned(cli, model, "--batch", "4")
    changed = onnx.load(cli.folder / model)
    changed.graph.node[0].op_type = "Gemm"
    cli.write(model, changed.SerializeToString())
    ran = cli("apply", model, "--batch", "2", "--nearest-batch", "-o", "out.onnx")
    assert ran.status == 2
    assert "; there is one at batch 4; that is of another model of this name; " in ran.err
    other = ("--scheduler", "tvm")
    assert cli("apply", model, *other, "--nearest-batch", "-o", "out.onnx").status == 2
    ran = cli("apply", model, "--target", "zcu102-vta", "--nearest-batch", "-o", "out.onnx")
    assert ran.status == 2
    assert ran.err.startswith("error: --nearest-batch: 'zcu102-vta' is a machine of ")
    assert not (cli.folder / "out.onnx").exists()


@pytest.mark.parametrize(
    ("latency", "base", "said"),
    [
        (1.2, 1.0, ": 20 % slower than the heuristic in the simulator (--scheduler graphturbo "),
        (1.0, 1.2, ": 1.20x over the heuristic in the simulator"),
        (1.0, None, "; the heuristic does not fit"),
    ],
)
def test_how_adapted_settings_compare(latency: float, base: float | None, said: str) -> None:
    adapted: AdaptedJson = {"batch": 4, "latency_s": latency, "heuristic_s": base}
    chosen = ChosenSchedule("run", cast("Schedule", None), adapted=adapted)
    assert how_adapted(chosen, 2).startswith(f", adapted to batch 2{said}")
    assert how_adapted(chosen._replace(adapted=None), 2) == ""


def test_a_schedule_that_fails_is_not_written(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    model = saved(cli, tiny())
    monkeypatch.setattr("autoturbo.verifier.verify_schedule", faulty)
    ran = cli("apply", model, "--scheduler", "tvm", "-o", "out.onnx", "-q")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == (
        f"error: {model}: the schedule fails the regions check: row 0 of 'y' is missing, and 2 "
        "more; nothing was written; 'autoturbo verify' lists all that it finds\n"
    )
    assert not (cli.folder / "out.onnx").exists()


def test_a_file_that_is_there_is_replaced_whole(cli: Cli) -> None:
    model = sound(cli)
    cli.write("out.onnx", (cli.folder / model).read_bytes() + b"old")
    assert cli("apply", model, "--scheduler", "tvm", "-o", "out.onnx").status == 0
    onnx.checker.check_model(str(cli.folder / "out.onnx"))
    assert [f.name for f in cli.folder.iterdir() if f.name.startswith(".")] == []


@pytest.mark.parametrize("way", ["same", "link", "hard link", "around"])
def test_the_model_itself_is_never_overwritten(way: str, cli: Cli) -> None:
    model = saved(cli, tiny())
    out = {"same": model, "around": f"../{cli.folder.name}/{model}"}.get(way, "out.onnx")
    if way == "link":
        (cli.folder / out).symlink_to(model)
    if way == "hard link":
        (cli.folder / out).hardlink_to(cli.folder / model)
    before = (cli.folder / model).read_bytes()
    ran = cli("apply", model, "--scheduler", "tvm", "-o", out)
    assert (ran.status, ran.out) == (2, "")
    assert "it would replace an input of the same call; give another" in ran.err
    assert (cli.folder / model).read_bytes() == before


def test_from_python(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    model = saved(cli, tiny())
    tuned(cli, model, "-o", "best.json")
    graph, target = autoturbo.load_model(model), autoturbo.load_target("stcp920")
    schedule = autoturbo.load_schedule("best.json", graph, target)
    assert autoturbo.verify_schedule(schedule, path=model).ok
    applied = autoturbo.apply_schedule(schedule, model, "out.onnx")
    assert applied.instances == applied.passes * schedule.instances.count
    assert applied.file == Path("out.onnx")
    monkeypatch.setattr("autoturbo.verifier.verify_schedule", faulty)
    with pytest.raises(autoturbo.errors.RefusedError, match="and 2 more"):
        autoturbo.apply_schedule(schedule, model, "out.onnx")
