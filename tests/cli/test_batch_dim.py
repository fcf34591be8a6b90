"""Which dimension is the batch: stated, kept with a run, and not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from jsonschema import Draft202012Validator
from onnx import numpy_helper

import autoturbo
from autoturbo.commands.upkeep.output_schemas import output_schema
from tests.cli.command_line import Cli, cli_in

if TYPE_CHECKING:
    from pathlib import Path

PAIR = """<ir_version: 8, opset_import: ["": 17]> net (float[4,32] users, float[12,32] items)
  => (float[4,12] y) { a = Abs(items) b = Transpose(a) h = MatMul(users, w) y = MatMul(h, b) }"""
SEQUENCE = """<ir_version: 8, opset_import: ["": 17]> net (float[7,4,32] x) => (float[7,4,32] y)
  { h = MatMul(x, w) y = Relu(h) }"""
UNKNOWN = "the inputs do not agree on a batch (users: 4, items: 12): no samples/s; --batch-dim"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    for name, text in {"pair": PAIR, "sequence": SEQUENCE}.items():
        model = onnx.parser.parse_model(text)
        stored = np.random.default_rng(1).normal(size=(32, 32)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(stored, "w"))
        onnx.save(model, tmp_path / f"{name}.onnx")
    return cli_in(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "line", ["simulate pair.onnx", "compare pair.onnx", "compare pair.onnx --target zcu102-vta"]
)
def test_no_samples_per_second_are_printed_where_inputs_do_not_agree(line: str, cli: Cli) -> None:
    ran = cli(*line.split())
    assert ran.status == 0, ran
    assert UNKNOWN in ran.out
    head = next(row for row in ran.out.splitlines() if "samples/s" in row and "latency" in row)
    row = next(row for row in ran.out.splitlines() if row.startswith(("heuristic", "cpu")))
    column = head.index("samples/s") + len("samples/s") - 1
    assert row[column] == "-"
    found = cli("--json", *line.split())
    Draft202012Validator(output_schema(line.split(maxsplit=1)[0])).validate(found.object)
    assert found.object["notes"][0].startswith(UNKNOWN)
    assert '"throughput_per_s": null' in found.out
    known = cli("--json", *line.split(), "--batch-dim", "users:0")
    assert '"throughput_per_s": null' not in known.out
    assert "notes" not in known.object


@pytest.mark.full
def test_a_run_without_a_known_batch_has_all_but_samples_per_second(cli: Cli) -> None:
    tuned = cli("--json", "tune", "pair.onnx", "--trials", "2")
    assert tuned.object["best"]["throughput_per_s"] is None
    run = tuned.object["run"]
    assert cli("resume", run, "--trials", "3").status == 0
    assert cli("report", run, "-o", "report.html").status == 0
    assert "do not agree on a batch" in (cli.folder / "report.html").read_text("utf-8")
    assert cli("show", run, "-v").status == 0
    refused = cli("tune", "pair.onnx", "--objective", "throughput")
    assert (refused.status, "state it with --batch-dim" in refused.err) == (2, True)
    asked = cli("simulate", "pair.onnx", "--batch", "8")
    assert (asked.status, "--batch-dim NAME or INPUT:AXIS" in asked.err) == (2, True)
    assert cli("simulate", "pair.onnx", "--batch", "1").status == 0


@pytest.mark.full
def test_a_run_keeps_what_was_stated_and_other_commands_have_it_from_there(cli: Cli) -> None:
    stated = ("--batch-dim", "x:1", "--batch", "6")
    tuned = cli("--json", "tune", "sequence.onnx", "--trials", "2", *stated)
    run = tuned.object["run"]
    assert cli("replay", run, "1").status == 0
    assert cli("resume", run, "--trials", "3").status == 0
    assert cli("verify", "sequence.onnx", "--run", run).status == 0
    assert cli("verify", "sequence.onnx", "--run", run, "--batch-dim", "x:0").status == 2
    assert cli("apply", "sequence.onnx", *stated, "-o", "o.onnx").status == 0
    assert cli("report", run, "-o", "report.html").status == 0
    assert "--batch 6 --batch-dim x:1" in (cli.folder / "report.html").read_text("utf-8")
    best = cli("--json", "db", "best", "--model", "sequence.onnx", *stated)
    assert [one["run"] for one in best.object["best"]] == [run]
    file = tuned.object["schedule_file"]
    assert cli("explain", file, "--model", "sequence.onnx", *stated, "--no-what-if").status == 0
    refused = cli("explain", run, "--batch-dim", "x:1")
    assert (refused.status, "--batch-dim" in refused.err) == (2, True)
    applied = cli("apply", "sequence.onnx", "--scheduler", "tvm", "-o", "p.onnx", *stated)
    assert "--batch 6 --batch-dim x:1" in applied.out


def test_the_batch_is_stated_in_python_too(cli: Cli) -> None:
    del cli
    assert autoturbo.load_model("sequence.onnx").batch == 7
    model = autoturbo.load_model("sequence.onnx", batch_dim="x:1", batch=6)
    assert (model.batch, model.tensors[model.inputs[0]].shape) == (6, (7, 6, 32))
