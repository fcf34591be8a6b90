"""Commands that need no run: inspect, space, simulate, targets, doctor."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autoturbo import compiled
from autoturbo.commands.loading import DEFAULT_TARGET, load_model, model_file
from autoturbo.commands.scheduling import required
from autoturbo.commands.tuning.space import seconds_per_trial
from autoturbo.commands.upkeep import doctor
from autoturbo.config import SUBGRAPHS
from autoturbo.datasets import workloads
from autoturbo.errors import InfeasibleError, MeasurerError, ModelError
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import DTYPES, load_target, preset_names, scaffold, target_schema
from autoturbo.hardware.machine_files import machine_names
from autoturbo.registry import SAMPLERS
from autoturbo.report.units import macs
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure
from tests.cli.bad_files import flipped, saved
from tests.cli.command_line import Cli, cli_in, narrow_terminal
from tests.compiled_later import compiled_later

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


def test_inspect(cli: Cli) -> None:
    found = cli("--json", "inspect", "resnet18", "--batch", "1").object
    assert list(found) == [
        *["model", "batch", "operators", "layers", "macs", "weight_bytes", "activation_bytes"],
        *["incomplete", "opaque", "mixed_samples", "lower_bound_s", "vector_macs"],
    ]
    assert (found["macs"], found["batch"], found["opaque"]) == (1_814_073_344, 1, [])
    assert list(found["lower_bound_s"]) == list(preset_names())
    text = cli("inspect", "resnet18", "--batch", "1", "--layers").out
    assert text.startswith("resnet18: batch 1, 49 operators in 28 layers, 1.81 GMAC, 46.7 MB of")
    assert "Conv Relu" in text


@pytest.mark.full
def test_products_on_the_vector_engine_are_stated(cli: Cli) -> None:
    """Depthwise and of one row: beside the bound, in JSON, and below the table of matrix use."""
    options = ("mobilenet_v2", "--target", "goya", "--batch", "1")
    graph = import_model(workloads.get("mobilenet_v2").file, batch=1)
    products = [op for op in graph.operators if op.kind in ("Conv", "Gemm")]
    depthwise = [op for op in products if graph.tensors[op.inputs[1]].shape[1] == 1]
    number = sum(op.macs for op in (*depthwise, products[-1]))
    assert cli("--json", "inspect", *options).object["vector_macs"] == {"goya": number}
    assert macs(number) in cli("inspect", *options).out.splitlines()[-1]
    stated = f"matrix use is without {macs(number)} on the vector engine"
    assert stated in cli("compare", *options).out


@pytest.mark.full
def test_inspect_for_targets_and_dtypes(cli: Cli) -> None:
    bounds = cli("--json", "inspect", "resnet18", "--target", "goya").object["lower_bound_s"]
    assert list(bounds) == ["goya"]
    for dtype in DTYPES:
        ran = cli("--json", "inspect", "resnet18", "--dtype", dtype)
        named = ran.object["lower_bound_s"]
        assert set(named) == {n for n in preset_names() if load_target(n).supports(dtype)}


def test_inspect_says_what_is_opaque(cli: Cli) -> None:
    import onnx
    from onnx import TensorProto, helper

    data = helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, 4])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [1, 4])
    nodes = [
        helper.make_node(kind, [source], [made], name=made, domain="com.acme")
        for kind, source, made in (
            ("Foo", "data", "[red]a"),
            ("Foo", "[red]a", "b"),
            ("Foo", "b", "c"),
            ("Foo", "c", "out"),
        )
    ]
    known = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4])
        for name in ("[red]a", "b", "c")
    ]
    graph = helper.make_graph(nodes, "g", [data], [out], value_info=known)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    onnx.save(model, cli.folder / "odd.onnx")
    text = cli("inspect", "odd.onnx").out
    assert "4 operators run whole, not analysed: [red]a (com.acme.Foo), b (com.acme.Foo)" in text
    assert "and 1 more" in text
    opaque = cli("--json", "inspect", "odd.onnx").object["opaque"]
    assert [o["name"] for o in opaque] == ["[red]a", "b", "c", "out"]
    assert {o["op_type"] for o in opaque} == {"com.acme.Foo"}
    assert all(o["reason"] for o in opaque)
    assert "MAC (incomplete)" in text
    assert "incomplete: the work of 4 com.acme.Foo (100% of the tensors) is not counted" in text
    compared = cli("--json", "compare", "odd.onnx").object["schedulers"]["graphturbo"]
    assert compared["incomplete"] == {"operators": {"com.acme.Foo": 4}, "tensor_share": 1.0}
    assert "incomplete: the work of 4 com.acme.Foo" in cli("simulate", "odd.onnx").out


@pytest.mark.full
def test_samples_that_cannot_be_told_apart_are_shown_with_the_cost(cli: Cli) -> None:
    """Which node, why, how many clusters idle, and what to change: one line, and a field."""
    saved(cli, flipped(), "flipped.onnx")
    line = (
        "samples cannot be told apart: flip (Gather) picks samples by constant indices that are not"
        " alike for every sample; 1 of 4 clusters works on stcp920; index each sample alike"
    )
    for command in (["inspect"], ["compare"], ["tune", "--trials", "1"]):
        shown = [text.strip() for text in cli(*command, "flipped.onnx").out.splitlines()]
        assert sum(text.startswith(line) for text in shown) == 1
        found = cli("--json", *command, "flipped.onnx").object["mixed_samples"]
        assert (found["node"], found["op_type"]) == ("flip", "Gather")
        assert (found["clusters"]["stcp920"], found["clusters_at_work"]) == (4, 1)
        assert found["change"].startswith("index each sample alike")
    assert cli("--json", "inspect", "resnet18").object["mixed_samples"] is None
    alone = cli("inspect", "flipped.onnx", "--target", "goya").out
    assert "the batch is processed whole" in alone


@pytest.mark.full
def test_hostile_names_of_files_are_shown_as_text(cli: Cli) -> None:
    from autoturbo.datasets import workloads

    name = "\x1b[2J[red]\u202ex\n.onnx"
    cli.write(name, workloads.get("alexnet").file.read_bytes())
    for command in (["inspect"], ["compare"], ["simulate"], ["tune", "--trials", "1"]):
        ran = cli(*command, name)
        assert ran.status == 0
        assert "\x1b" not in ran.out + ran.err
        assert "\u202e" not in ran.out + ran.err
    assert r"\x1b[2J[red]\u202ex\n" in cli("inspect", name).out
    (run,) = (cli.folder / "runs").iterdir()
    assert run.name.startswith("2J_red_")
    assert r"\x1b[2J[red]\u202ex\n" in cli("runs").out
    assert r"\x1b[2J[red]\u202ex\n" in cli("db", "list").out


def test_space(cli: Cli) -> None:
    found = cli("--json", "space", "alexnet", "--batch", "1").object
    assert list(found) == [
        "model", "target", "knobs", "subgraph_knobs", "subgraphs", "model_size", "size",
        "expected_s",
    ]  # fmt: skip
    assert list(found["expected_s"]) == ["quick", "standard", "thorough"]
    size = 1
    for row in found["knobs"]:
        assert row["choices"][0] == "auto"
        size *= len(row["choices"])
    assert found["model_size"] == size
    assert found["size"] == size * math.prod(kind["size"] for kind in found["subgraphs"])
    for kind in found["subgraphs"]:
        assert kind["layers"]
        assert {row["knob"] for row in found["subgraph_knobs"]} >= set(kind["knobs"])
    text = cli("space", "alexnet", "--batch", "1").out
    assert f"alexnet @ stcp920: {len(found['knobs'])} knobs, " in text
    assert f"the heaviest sub-graph: {len(found['subgraph_knobs'])} knobs, " in text
    assert text.count("\ncores ") == 1
    assert re.search(r"--effort quick +64 trials, about \d+:\d\d on one core", text)


def test_space_of_the_model_s_knobs_alone(cli: Cli) -> None:
    arguments = ("space", "alexnet", "--batch", "1", "--subgraphs", "0")
    found = cli("--json", *arguments).object
    assert found["subgraphs"] == found["subgraph_knobs"] == []
    assert found["size"] == found["model_size"]
    assert "sub-graphs" not in cli(*arguments).out.split("alexnet @")[1]


def test_the_help_names_the_default_of_sub_graphs(cli: Cli) -> None:
    for command in ("space", "tune"):
        assert f"own knobs (default: {SUBGRAPHS};" in cli(command, "--help").out


def test_space_fits_eighty_columns(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = cli("space", "resnet50", "--batch", "4").out
    narrow_terminal(monkeypatch)
    text = cli("space", "resnet50", "--batch", "4").out
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    words = text.split("resnet50 @")[0].split()
    assert words == wide.split("resnet50 @")[0].split()  # no word is broken


def test_time_per_trial_leaves_out_what_is_compiled_and_loaded() -> None:
    made = []

    def make() -> Evaluator:
        made.append(Evaluator(load_model("alexnet", batch=1), load_target("stcp920"), "float16"))
        return made[-1]

    times = iter((0.0, 30.0, 40.0, 40.2))  # the first evaluator's half a minute is compiling
    assert seconds_per_trial(make, clock=lambda: next(times)) == pytest.approx(0.25)
    assert len(made) == 2
    shared = iter((0.0, 30.0, 40.0, 40.2))
    assert seconds_per_trial(make, 4, lambda: next(shared)) == pytest.approx(0.1)


def test_simulate(cli: Cli) -> None:
    found = cli("--json", "simulate", "alexnet").object
    assert found["scheduler"] == "graphturbo"
    tvm = cli("--json", "simulate", "alexnet", "--scheduler", "tvm").object
    assert tvm["latency_s"] > found["latency_s"]
    assert "tvm (TVM-like)" in cli("simulate", "alexnet", "--scheduler", "tvm").out
    highest = cli("--json", "simulate", "alexnet", "--scheduler", "O3").object
    assert highest["latency_s"] == found["latency_s"]


def test_failures_say_what_would_help() -> None:
    failure = Failure("LB", "core 3: 2 MB of 1 MB", 2, 1, ("a", "b"), ("split more", "int8"))
    with pytest.raises(InfeasibleError) as raised:
        required(failure, "m @ t")
    assert str(raised.value) == (
        "m @ t: core 3: 2 MB of 1 MB (largest tensors: a, b); what would help: split more; int8"
    )
    with pytest.raises(MeasurerError, match="m @ t: it hung"):
        required(Failure("timeout", "it hung"), "m @ t")


def test_models_by_name_and_by_file(cli: Cli) -> None:
    assert model_file("resnet18").name == "resnet18.onnx"
    for missing in ("./resnet18", "resnet18.onnx"):
        with pytest.raises(ModelError, match="give its name, resnet18"):
            model_file(missing)
    assert model_file("other.onnx") == Path("other.onnx")
    (cli.folder / "resnet18").mkdir()
    assert model_file("resnet18") == Path("resnet18")
    with pytest.raises(ModelError, match="did you mean 'resnet50'"):
        model_file("resnet05")


def test_targets_list(cli: Cli) -> None:
    found = cli("--json", "targets", "list").object["targets"]
    assert [target["name"] for target in found] == list(preset_names())
    assert DEFAULT_TARGET in preset_names()
    lines = cli("targets", "list").out.splitlines()
    names = [*preset_names(), *machine_names(), "host"]
    assert [line.split()[0] for line in lines[::2]] == names
    assert lines[1].strip() == (
        "1 cluster of 32 cores, 131 TMAC/s in float16, LB 768 KiB, GB 32 MiB, DDR 1.20 TB/s"
    )


def test_targets_fit_eighty_columns(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = cli("targets", "list").out
    narrow_terminal(monkeypatch)
    text = cli("targets", "list").out
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert text.split() == wide.split()  # no word is broken


@pytest.mark.parametrize("name", preset_names())
def test_targets_show_gives_a_target_file(name: str, cli: Cli) -> None:
    cli.write("copy.yaml", cli("targets", "show", name).out)
    cli.write("copy.json", json.dumps(cli("--json", "targets", "show", name).object))
    assert load_target("copy.yaml") == load_target("copy.json") == load_target(name)
    shown = cli("targets", "show", "copy.yaml").out
    assert json.loads(shown) == load_target(name).as_dict()


def test_targets_validate(cli: Cli) -> None:
    cli.write("good.yaml", cli("targets", "scaffold").out)
    assert cli("targets", "validate", "good.yaml").out == "good.yaml: valid\n"
    bad = (cli.folder / "good.yaml").read_text().replace("bandwidth_gb_s", "bandwith_gb_s", 1)
    cli.write("bad.yaml", bad)
    ran = cli("targets", "validate", "good.yaml", "bad.yaml")
    assert (ran.status, ran.out) == (2, "good.yaml: valid\n")
    assert all(line.startswith("error: bad.yaml:") for line in ran.err.splitlines())
    good, wrong = cli("--json", "targets", "validate", "good.yaml", "bad.yaml").objects
    assert good == {"file": "good.yaml", "valid": True}
    assert wrong["error"] == wrong["errors"][0]
    assert wrong["error"]["kind"] == "target"


def test_targets_schema_and_scaffold(cli: Cli) -> None:
    assert json.loads(cli("targets", "schema").out) == target_schema()
    assert cli("--json", "targets", "schema").object == target_schema()
    assert cli("targets", "scaffold").out == scaffold()
    assert cli("--json", "targets", "scaffold").object == {"scaffold": scaffold()}


def test_doctor(cli: Cli) -> None:
    ran = cli("--json", "doctor")
    found = ran.object
    assert (ran.status, found["ok"]) == (0, True)
    assert list(found) == ["ok", "versions", "cache", "ray", "database"]
    assert found["database"]["state"] == "none yet; 'autoturbo tune' makes it"
    lines = cli("doctor").out.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["autoturbo", "python", "platform"]


def test_doctor_checks_every_dependency() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split("[^A-Za-z0-9-]", text)[0] for text in project["dependencies"]}
    assert {name.lower() for name in doctor.PACKAGES} == needed - {"xgboost", "xgboost-cpu"}


def test_doctor_finds_a_damaged_database(cli: Cli) -> None:
    cli.write("autoturbo.db", "no database")
    ran = cli("doctor")
    assert (ran.status, ran.err) == (1, "problem: database\n")
    assert "autoturbo.db: not an SQLite database" in ran.out


def test_doctor_with_a_good_database(cli: Cli) -> None:
    from autoturbo.database import Database

    Database.open("autoturbo.db").close()
    found = cli("--json", "doctor").object["database"]
    assert (found["ok"], found["state"]) == (True, "ok")
    assert "ok, 0 runs, 0 trials, 0 best schedules" in cli("doctor").out


def test_doctor_misses_a_package(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PACKAGES", ("numpy", "no-such-package"))
    ran = cli("doctor")
    assert (ran.status, ran.err) == (1, "problem: versions\n")


def test_doctor_compiles_ahead(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (function,) = compiled_later(1, monkeypatch)
    monkeypatch.setattr(doctor, "warm_up", lambda: function(1))
    found = cli("--json", "doctor", "--warm")
    assert (found.status, found.object["cache"]["compiled"]) == (0, 1)
    assert found.err.startswith("compiled 1 function in 0:0")
    again = cli("doctor", "--warm")
    assert (again.status, again.out.splitlines()[0]) == (0, "all is compiled")
    assert cli("--json", "doctor").object["cache"].get("compiled") is None


@pytest.mark.full
def test_doctor_compiles_all_that_commands_need(cli: Cli) -> None:
    """In a process that has compiled nothing: whatever tuning calls is loaded by then."""
    program = """
from autoturbo import compiled
from autoturbo.cli import main
from autoturbo import compiled
from autoturbo.commands.upkeep import doctor
doctor.warm_up()
known = {name: set(one.signatures) for name, one in compiled.loaded_functions()}
model = ["bert_base_s128", "--batch", "1", "--quiet"]
assert main(["tune", *model, "--trials", "20"]) == 0
assert main(["verify", *model, "--no-numbers"]) == 0
new = [n for n, one in compiled.loaded_functions() if set(one.signatures) - known[n]]
print("new:", *new)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=cli.folder
    )
    assert done.stdout.splitlines()[-1] == "new:"


def test_doctor_counts_compiled_code(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (cli.folder / "cache" / "x").mkdir(parents=True)
    cli.write("cache/x/a.nbi", "12")
    cli.write("cache/x/a.1.nbc", "345")
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(cli.folder / "cache"))
    found = cli("--json", "doctor").object["cache"]
    assert (found["files"], found["bytes"], found["writable"]) == (2, 5, True)
    assert found["folder"] == str(cli.folder / "cache")
    assert found["state"].startswith("2 files, writable")


def test_doctor_says_that_nothing_can_be_kept(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A problem, unless somebody has compiled before."""
    monkeypatch.setattr(compiled, "kept_in", lambda: None)
    found = cli("--json", "doctor").object["cache"]
    assert found["state"].endswith("read-only; set NUMBA_CACHE_DIR to keep what is compiled")
    assert found["folder"] == str(Path(compiled.__file__).parent)
    assert found["ok"] == (found["files"] > 0)


@pytest.mark.full
@pytest.mark.ray
def test_doctor_reaches_for_ray(cli: Cli) -> None:
    assert cli("--json", "doctor", "--ray").object["ray"]["state"].startswith("reached, ")


def test_help_texts_name_what_there_is(cli: Cli) -> None:
    text = " ".join(cli("tune", "--help").out.split())
    assert ", ".join(DTYPES[:-1]) + f" or {DTYPES[-1]}" in text
    assert {"cost-model", "random", "tpe"} <= set(SAMPLERS.builtin)
