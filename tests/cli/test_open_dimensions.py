"""Models whose file leaves dimensions open: every command takes them, and says what it assumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from jsonschema import Draft202012Validator
from onnx import numpy_helper

import autoturbo
from autoturbo.commands.upkeep.output_schemas import output_schema
from tests.cli.command_line import Cli, cli_in

ASSUMED = "batch 1 assumed: the file leaves it open; --batch N for another"
DIMS = "--dim seq_len=16"
FAST = ("inspect", "simulate", "tune", "dataset")
COMMANDS = (
    "inspect open.onnx",
    "space open.onnx",
    "simulate open.onnx",
    "compare open.onnx",
    "compare open.onnx --target zcu102-vta",
    "verify open.onnx",
    "apply open.onnx --scheduler tvm -o out.onnx",
    "apply open.onnx --scheduler tvm -o out.json",
    "sweep open.onnx --vary lb.capacity_kib=256,512 --trials 1",
    "tune open.onnx --trials 1",
    "dataset collect open.onnx --settings 1 -o data",
)


def _save(path: Path) -> None:
    """``ids [batch_size, seq_len] -> Gather -> MatMul -> + mask [batch_size, 1, seq_len + 1]``."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
      net (int64[batch_size,seq_len] ids, float[batch_size,1,8] bias) => (float[a,b,c] y)
      { e = Gather(t, ids) h = MatMul(e, w) y = Add(h, bias) }""")
    for name, shape in (("t", (100, 8)), ("w", (8, 8))):
        stored = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(stored, name))
    onnx.save(model, path)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    _save(tmp_path / "open.onnx")
    return cli_in(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "line",
    [pytest.param(c, marks=() if c.split()[0] in FAST else pytest.mark.full) for c in COMMANDS],
)
def test_every_command_takes_names_and_says_that_the_batch_is_assumed(line: str, cli: Cli) -> None:
    ran = cli(*line.split(), *DIMS.split())
    assert ran.status == 0, ran
    assert ASSUMED in ran.out
    given = cli(*line.split(), *DIMS.split(), "--dim", "batch_size=2")
    assert (given.status, ASSUMED in given.out) == (2 if "collect" in line else 0, False), given


@pytest.mark.parametrize("line", [line for line in COMMANDS if "collect" not in line])
def test_json_has_what_was_assumed(line: str, cli: Cli) -> None:
    ran = cli("--json", *line.split(), *DIMS.split())
    assert (ran.status, ran.object["notes"]) == (0, [ASSUMED])
    Draft202012Validator(output_schema(line.split(maxsplit=1)[0])).validate(ran.object)
    assert "notes" not in cli("--json", *line.split(), *DIMS.split(), "--batch", "2").object


def test_what_cannot_be_guessed_is_asked_for_with_what_to_type(cli: Cli) -> None:
    ran = cli("inspect", "open.onnx")
    assert ran.status == 2
    line, _, flags = ran.err.strip().partition(", for example ")
    assert line.startswith("error: open.onnx: ids: dimension 1 ('seq_len') has no value")
    assert cli("inspect", "open.onnx", *flags.split()).status == 0


@pytest.mark.full
def test_a_run_keeps_the_names_and_other_commands_have_them_from_it(cli: Cli) -> None:
    tuned = cli("--json", "tune", "open.onnx", "--trials", "2", "--batch", "4", *DIMS.split())
    run = tuned.object["run"]
    assert cli("replay", run, "1").status == 0
    assert cli("resume", run, "--trials", "4").status == 0
    assert cli("verify", "open.onnx", "--run", run).status == 0
    assert cli("verify", "open.onnx", "--run", run, "--dim", "seq_len=8").status == 2
    file = tuned.object["schedule_file"]
    model = ("--model", "open.onnx", "--batch", "4")
    assert cli("explain", file, *model, *DIMS.split(), "--no-what-if").status == 0
    best = cli("--json", "db", "best", *model, *DIMS.split())
    assert [one["run"] for one in best.object["best"]] == [run]
    assert cli("--json", "db", "best", *model, "--dim", "seq_len=8").object["best"] == []
    assert cli("report", run, "-o", "report.html").status == 0
    assert "--batch 4 --dim seq_len=16" in (cli.folder / "report.html").read_text("utf-8")
    applied = cli("apply", "open.onnx", "--scheduler", "tvm", "-o", "o.onnx", *DIMS.split())
    assert "verify open.onnx --target stcp920 --scheduler tvm --dim seq_len=16" in applied.out


def test_names_are_given_in_python_too(cli: Cli) -> None:
    del cli
    model = autoturbo.load_model("open.onnx", dims={"seq_len": 16, "batch_size": 3})
    assert [model.tensors[t].shape for t in model.inputs] == [(3, 16), (3, 1, 8)]
    assert model.notes == ()
