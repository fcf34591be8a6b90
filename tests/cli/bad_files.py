"""Files that are not usable, each made into an empty folder, and the command that is given them.

A case is a function of the command line's folder that writes what it needs and returns the
arguments; its name is the name of the case.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from autoturbo.database import Database
from tests.cli.command_line import Cli, cli_in

Case = Callable[[Cli], list[str]]
CASES: dict[str, Case] = {}
FLOAT = TensorProto.FLOAT


def case(make: Case) -> Case:
    """Register a case."""
    CASES[make.__name__] = make
    return make


def tiny(
    shape: list[Any] | None = None, nodes: list[onnx.NodeProto] | None = None, **more: Any
) -> ModelProto:
    """A network of one layer, or of the given nodes, on an input ``x``."""
    x = helper.make_tensor_value_info("x", FLOAT, [4, 8] if shape is None else shape)
    y = helper.make_tensor_value_info("y", FLOAT, None)
    weight = helper.make_tensor("w", FLOAT, [8, 16], [0.5] * 128)
    nodes = nodes or [helper.make_node("MatMul", ["x", "w"], ["y"], name="mm")]
    graph = helper.make_graph(nodes, "tiny", [x], [y], [weight])
    settings = {"opset_imports": [helper.make_opsetid("", 17)], "ir_version": 8, **more}
    return helper.make_model(graph, **settings)


def flipped() -> ModelProto:
    """A network that turns the order of its four samples around."""
    order = helper.make_tensor("order", onnx.TensorProto.INT64, [4], [3, 2, 1, 0])
    nodes = [
        helper.make_node("Gather", ["x", "order"], ["a"], name="flip"),
        helper.make_node("MatMul", ["a", "w"], ["y"], name="mm"),
    ]
    model = tiny(nodes=nodes)
    model.graph.initializer.append(order)
    return model


def saved(cli: Cli, model: ModelProto, name: str = "tiny.onnx") -> str:
    """Write a model, unchecked."""
    return str(cli.write(name, model.SerializeToString()))


def changed_target(cli: Cli, pattern: str, replacement: str) -> list[str]:
    """The command that is given a good target file with one line changed."""
    text, number = re.subn(
        pattern, replacement, cli("targets", "scaffold").out, count=1, flags=re.MULTILINE
    )
    assert number == 1, pattern
    cli.write("mine.yaml", text)
    return ["inspect", saved(cli, tiny()), "--target", "mine.yaml"]


def changed_schedule(cli: Cli, **fields: Any) -> list[str]:
    """The command that measures a good schedule with top-level fields changed."""
    model = saved(cli, tiny())
    assert cli("tune", model, "--trials", "1", "-q", "-o", "best.json").status == 0
    document = json.loads((cli.folder / "best.json").read_text())
    cli.write("best.json", json.dumps({**document, **fields}))
    return ["simulate", model, "--schedule", "best.json"]


def knobs(cli: Cli, text: str) -> list[str]:
    """The command that measures a knobs file."""
    cli.write("knobs.json", text)
    return ["simulate", saved(cli, tiny()), "--knobs", "knobs.json"]


def export(cli: Cli, lines: str) -> list[str]:
    """The command that imports records."""
    cli.write("records.jsonl", lines)
    return ["db", "import", "records.jsonl"]


# Models


@case
def model_missing(cli: Cli) -> list[str]:
    del cli
    return ["tune", "nets/none.onnx"]


@case
def model_of_a_workload(cli: Cli) -> list[str]:
    del cli
    return ["tune", "models/resnet50.onnx"]


@case
def model_misspelt_workload(cli: Cli) -> list[str]:
    del cli
    return ["tune", "resnet_50"]


@case
def model_is_a_folder(cli: Cli) -> list[str]:
    (cli.folder / "nets").mkdir()
    return ["inspect", "nets"]


@case
def model_empty(cli: Cli) -> list[str]:
    return ["inspect", str(cli.write("empty.onnx", ""))]


@case
def model_text(cli: Cli) -> list[str]:
    return ["inspect", str(cli.write("text.onnx", "<html>not a model</html>"))]


@case
def model_nested_too_deeply(cli: Cli) -> list[str]:
    """A graph in an attribute of a node, thousands of times."""
    inner = b"\x52" + _varint(40_000) + bytes(40_000)  # a long text: what is long is looked into
    for _ in range(500):
        for field in (b"\x32", b"\x2a", b"\x0a"):  # g of an attribute of a node of a graph
            inner = field + _varint(len(inner)) + inner
    return ["inspect", str(cli.write("deep.onnx", b"\x08\x08\x3a" + _varint(len(inner)) + inner))]


def _varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + _varint(rest) if rest else bytes([low])


@case
def model_of_a_shape_of_thousands_of_digits(cli: Cli) -> list[str]:
    node = helper.make_node("Einsum", ["x", "x"], ["y"], "e", equation="a,b->" + "ab" * 9000)
    value = helper.make_tensor_value_info
    graph = helper.make_graph([node], "net", [value("x", 1, [8])], [value("y", 1, None)])
    return ["inspect", saved(cli, helper.make_model(graph, ir_version=8), "wide.onnx")]


def with_weight(cli: Cli, weight: TensorProto) -> list[str]:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "net",
        [value("x", 1, [8])], [value("y", 1, None)], [weight],
    )  # fmt: skip
    return ["inspect", saved(cli, helper.make_model(graph, ir_version=8), "wide.onnx")]


@case
def model_of_a_weight_of_thousands_of_digits(cli: Cli) -> list[str]:
    weight = TensorProto(name="w", data_type=1, dims=[8] * 20_000, raw_data=bytes(4))
    return with_weight(cli, weight)


@case
def model_whose_data_begin_at_thousands_of_digits(cli: Cli) -> list[str]:
    weight = TensorProto(name="w", data_type=1, dims=[8], data_location=TensorProto.EXTERNAL)
    cli.write("w.bin", bytes(32))
    for key, value in (("location", "w.bin"), ("offset", "9" * 4000)):
        weight.external_data.add(key=key, value=value)
    return with_weight(cli, weight)


@case
def model_of_an_equation_of_dots(cli: Cli) -> list[str]:
    """At which ONNX's own inference goes round for ever."""
    value = helper.make_tensor_value_info
    node = helper.make_node("Einsum", ["x"], ["y"], "e", equation=".->")
    graph = helper.make_graph([node], "net", [value("x", 1, [8])], [value("y", 1, None)])
    return ["inspect", saved(cli, helper.make_model(graph, ir_version=8), "dots.onnx")]


@case
def model_of_torch(cli: Cli) -> list[str]:
    return ["inspect", str(cli.write("net.pt", b"PK\x03\x04" + bytes(60)))]


@case
def model_truncated(cli: Cli) -> list[str]:
    whole = tiny().SerializeToString()
    return ["inspect", str(cli.write("cut.onnx", whole[: len(whole) // 2]))]


@case
def model_newer_opset(cli: Cli) -> list[str]:
    return ["inspect", saved(cli, tiny(opset_imports=[helper.make_opsetid("", 9999)]))]


@case
def model_without_nodes(cli: Cli) -> list[str]:
    model = tiny()
    del model.graph.node[:]
    return ["inspect", saved(cli, model)]


@case
def model_cyclic(cli: Cli) -> list[str]:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="one"),
        helper.make_node("Relu", ["a"], ["b"], name="two"),
        helper.make_node("Relu", ["b"], ["y"], name="three"),
    ]
    return ["inspect", saved(cli, tiny(nodes=nodes))]


@case
def model_dynamic_dimension(cli: Cli) -> list[str]:
    return ["inspect", saved(cli, tiny([4, "width"]))]


@case
def model_shape_of_unknown_input(cli: Cli) -> list[str]:
    return ["inspect", saved(cli, tiny()), "--shape", "data=4,8"]


@case
def model_shape_that_does_not_fit(cli: Cli) -> list[str]:
    return ["inspect", saved(cli, tiny()), "--shape", "x=4,8,2"]


@case
def model_of_2_to_the_40_elements(cli: Cli) -> list[str]:
    return ["inspect", saved(cli, tiny([2**20, 2**21]))]


@case
def model_external_data_outside_of_its_folder(cli: Cli) -> list[str]:
    model = tiny()
    weight = model.graph.initializer[0]
    weight.ClearField("float_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="../secret.bin")
    return ["inspect", saved(cli, model)]


@case
def model_hostile_name(cli: Cli) -> list[str]:
    del cli
    return ["inspect", "\x1b[31mred\n.onnx"]


def of_rank(cli: Cli, rank: int) -> list[str]:
    """The command that schedules one Relu."""
    node = helper.make_node("Relu", ["x"], ["y"], name="relu")
    return ["simulate", saved(cli, tiny([1] * (rank - 1) + [8], [node]))]


@case
def model_of_rank_17(cli: Cli) -> list[str]:
    return of_rank(cli, 17)


@case
def model_of_rank_33(cli: Cli) -> list[str]:
    return of_rank(cli, 33)


@case
def model_of_rank_64(cli: Cli) -> list[str]:
    return of_rank(cli, 64)


@case
def model_with_a_dimension_of_2_to_the_32(cli: Cli) -> list[str]:
    return ["simulate", saved(cli, tiny([2**32], [helper.make_node("Relu", ["x"], ["y"])]))]


def nested(levels: int) -> ModelProto:
    """Functions of which each calls the one before twice."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    found = tiny(nodes=[helper.make_node(f"f{levels}", ["x"], ["y"], domain="own")])
    found.opset_import.add(domain="own", version=1)
    for level in range(levels + 1):
        kind, domain = (f"f{level - 1}", "own") if level else ("Relu", "")
        nodes = [helper.make_node(kind, [a], [b], domain=domain) for a, b in ("ab", "bc")]
        found.functions.append(
            helper.make_function("own", f"f{level}", ["a"], ["c"], nodes, imports)
        )
    return found


@case
def model_of_nested_functions(cli: Cli) -> list[str]:
    return ["inspect", saved(cli, nested(25))]


@case
def model_of_70_000_nodes(cli: Cli) -> list[str]:
    model = tiny()
    relu = helper.make_node("Relu", ["x"], ["y"])
    model.graph.node.extend([relu] * 70_000)
    return ["inspect", saved(cli, model)]


@case
def model_whose_functions_call_themselves(cli: Cli) -> list[str]:
    model = nested(1)
    model.functions[0].node[0].op_type, model.functions[0].node[0].domain = "f1", "own"
    return ["inspect", saved(cli, model)]


def with_weights_at(cli: Cli, location: str) -> list[str]:
    """The command that reads a model with its weights in a file of some name."""
    model = tiny()
    weight = model.graph.initializer[0]
    weight.ClearField("float_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    return ["inspect", saved(cli, model)]


@case
def model_external_data_with_a_nul(cli: Cli) -> list[str]:
    return with_weights_at(cli, "a\0b")


@case
def model_external_data_of_5000_characters(cli: Cli) -> list[str]:
    return with_weights_at(cli, "a" * 5000)


@case
def model_external_data_of_300_characters(cli: Cli) -> list[str]:
    return with_weights_at(cli, "a" * 300)


# Targets


@case
def target_unknown(cli: Cli) -> list[str]:
    return ["inspect", saved(cli, tiny()), "--target", "stcp92"]


@case
def target_file_missing(cli: Cli) -> list[str]:
    return ["inspect", saved(cli, tiny()), "--target", "chips/none.yaml"]


@case
def target_misspelt_field(cli: Cli) -> list[str]:
    return changed_target(cli, r"^( +)columns:", r"\1colums:")


@case
def target_zero_cores(cli: Cli) -> list[str]:
    return changed_target(cli, r"^cores_per_cluster: \d+", "cores_per_cluster: 0")


@case
def target_negative_bandwidth(cli: Cli) -> list[str]:
    return changed_target(cli, r"bandwidth_gb_s: [\d.]+", "bandwidth_gb_s: -5")


@case
def target_text_for_a_number(cli: Cli) -> list[str]:
    return changed_target(cli, r"^clock_mhz: [\d.]+", "clock_mhz: fast")


@case
def target_newer_layout(cli: Cli) -> list[str]:
    return changed_target(cli, r"^schema_version: \d+", "schema_version: 99")


@case
def target_not_yaml(cli: Cli) -> list[str]:
    return changed_target(cli, r"^name: .*", "name: [unclosed")


@case
def target_without_the_dtype(cli: Cli) -> list[str]:
    return ["tune", saved(cli, tiny()), "--target", "goya", "--dtype", "bfloat16"]


# Knobs


@case
def knobs_missing(cli: Cli) -> list[str]:
    return ["simulate", saved(cli, tiny()), "--knobs", "none.json"]


@case
def knobs_without_end(cli: Cli) -> list[str]:
    return ["simulate", saved(cli, tiny()), "--knobs", "/dev/zero"]


@case
def knobs_nested_too_deeply(cli: Cli) -> list[str]:
    return knobs(cli, "[" * 200_000)


@case
def knobs_with_a_field_twice(cli: Cli) -> list[str]:
    return knobs(cli, '{"max_layers": 2, "max_layers": 3}')


@case
def knobs_not_json(cli: Cli) -> list[str]:
    return knobs(cli, "{\n  lb_occupancy_limit: 0.5\n}")


@case
def knobs_list(cli: Cli) -> list[str]:
    return knobs(cli, "[]")


@case
def knobs_misspelt(cli: Cli) -> list[str]:
    return knobs(cli, '{"lb_occupancy_limt": 0.5}')


@case
def knobs_out_of_range(cli: Cli) -> list[str]:
    return knobs(cli, '{"lb_occupancy_limit": 1.5}')


@case
def knobs_wrong_word(cli: Cli) -> list[str]:
    return knobs(cli, '{"merge_order": "abc"}')


@case
def knobs_unknown_layer(cli: Cli) -> list[str]:
    return knobs(cli, '{"overrides": [{"layer": "mm", "boundry": "cut"}]}')


@case
def knobs_override_out_of_range(cli: Cli) -> list[str]:
    return knobs(cli, '{"overrides": [{"layer": "mm", "priority": 10}]}')


@case
def knobs_override_wrong_word(cli: Cli) -> list[str]:
    return knobs(cli, '{"overrides": [{"layer": "mm", "weight_residency": "ddr"}]}')


@case
def knobs_override_of_no_layer(cli: Cli) -> list[str]:
    return knobs(cli, '{"overrides": [{"layer": "mmm", "factor": 2}]}')


# Schedules


@case
def schedule_missing(cli: Cli) -> list[str]:
    return ["simulate", saved(cli, tiny()), "--schedule", "none.json"]


@case
def schedule_not_json(cli: Cli) -> list[str]:
    cli.write("best.json", "{\n  'format': 1\n}")
    return ["simulate", saved(cli, tiny()), "--schedule", "best.json"]


@case
def schedule_of_something_else(cli: Cli) -> list[str]:
    cli.write("best.json", '{"a": 1}')
    return ["simulate", saved(cli, tiny()), "--schedule", "best.json"]


@case
def schedule_of_another_model(cli: Cli) -> list[str]:
    *command, file = changed_schedule(cli)
    other = saved(cli, tiny([2, 8]), "other.onnx")
    return ["simulate", other, *command[2:], file]


@case
def schedule_of_another_target(cli: Cli) -> list[str]:
    return [*changed_schedule(cli), "--target", "goya"]


@case
def schedule_newer_version(cli: Cli) -> list[str]:
    return changed_schedule(cli, schema_version=99)


@case
def schedule_without_order(cli: Cli) -> list[str]:
    return changed_schedule(cli, order=[])


@case
def schedule_unknown_field(cli: Cli) -> list[str]:
    return changed_schedule(cli, ordre=[])


@case
def schedule_unknown_knob(cli: Cli) -> list[str]:
    return changed_schedule(cli, knobs={"lb_occupancy_limt": 1})


def schedule_text(cli: Cli, text: str) -> list[str]:
    """The command that measures a schedule of some text."""
    cli.write("best.json", text)
    return ["simulate", saved(cli, tiny()), "--schedule", "best.json"]


@case
def schedule_without_end(cli: Cli) -> list[str]:
    return ["simulate", saved(cli, tiny()), "--schedule", "/dev/zero"]


@case
def schedule_nested_too_deeply(cli: Cli) -> list[str]:
    return schedule_text(cli, "[" * 200_000)


@case
def schedule_with_a_field_twice(cli: Cli) -> list[str]:
    return schedule_text(cli, '{"share": {"clusters": 1, "clusters": 4}}')


@case
def schedule_number_too_long(cli: Cli) -> list[str]:
    return schedule_text(cli, '{"format": ' + "1" * 5000 + "}")


# Databases


@case
def database_missing(cli: Cli) -> list[str]:
    del cli
    return ["runs", "--db", "none.db"]


@case
def database_in_no_folder(cli: Cli) -> list[str]:
    return ["tune", saved(cli, tiny()), "--trials", "1", "-q", "--db", "none/tuned.db"]


@case
def database_is_a_folder(cli: Cli) -> list[str]:
    (cli.folder / "folder.db").mkdir()
    return ["db", "list", "--db", "folder.db"]


@case
def database_text(cli: Cli) -> list[str]:
    cli.write("tuned.db", "run,latency\n" * 100)
    return ["db", "list", "--db", "tuned.db"]


@case
def database_of_another_program(cli: Cli) -> list[str]:
    connection = sqlite3.connect(cli.folder / "tuned.db")
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    return ["tune", saved(cli, tiny()), "--trials", "1", "-q", "--db", "tuned.db"]


@case
def database_newer_version(cli: Cli) -> list[str]:
    Database.open(cli.folder / "tuned.db").close()
    connection = sqlite3.connect(cli.folder / "tuned.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    return ["runs", "--db", "tuned.db"]


@case
def database_cut_short(cli: Cli) -> list[str]:
    Database.open(cli.folder / "tuned.db").close()
    whole = (cli.folder / "tuned.db").read_bytes()
    cli.write("tuned.db", whole[:100])
    return ["runs", "--db", "tuned.db"]


@case
def database_without_the_run(cli: Cli) -> list[str]:
    Database.open(cli.folder / "autoturbo.db").close()
    return ["resume", "4f1c"]


# Checking and applying schedules


@case
def verify_unknown_run(cli: Cli) -> list[str]:
    Database.open(cli.folder / "autoturbo.db").close()
    return ["verify", saved(cli, tiny()), "--run", "4f1c"]


@case
def verify_run_of_another_model(cli: Cli) -> list[str]:
    assert cli("tune", saved(cli, tiny()), "--trials", "1", "-q").status == 0
    run = cli("--json", "runs").object["runs"][0]["run"]
    return ["verify", saved(cli, tiny([2, 8]), "other.onnx"), "--run", run, "--batch", "2"]


@case
def verify_schedule_of_another_model(cli: Cli) -> list[str]:
    changed_schedule(cli)
    return ["verify", saved(cli, tiny([2, 8]), "other.onnx"), "--schedule", "best.json"]


@case
def verify_missing_knobs(cli: Cli) -> list[str]:
    return ["verify", saved(cli, tiny()), "--knobs", "none.json"]


@case
def verify_run_and_schedule(cli: Cli) -> list[str]:
    return ["verify", saved(cli, tiny()), "--run", "4f1c", "--schedule", "best.json"]


@case
def apply_without_output(cli: Cli) -> list[str]:
    return ["apply", saved(cli, tiny())]


@case
def apply_without_database(cli: Cli) -> list[str]:
    return ["apply", saved(cli, tiny()), "-o", "out.onnx"]


@case
def apply_with_an_empty_database(cli: Cli) -> list[str]:
    Database.open(cli.folder / "autoturbo.db").close()
    return ["apply", saved(cli, tiny()), "-o", "out.onnx"]


@case
def apply_over_the_model(cli: Cli) -> list[str]:
    return ["apply", saved(cli, tiny()), "--scheduler", "tvm", "-o", "./tiny.onnx"]


@case
def apply_into_no_folder(cli: Cli) -> list[str]:
    return ["apply", saved(cli, tiny()), "--scheduler", "tvm", "-o", "none/out.onnx"]


@case
def apply_over_a_folder(cli: Cli) -> list[str]:
    (cli.folder / "out").mkdir()
    return ["apply", saved(cli, tiny()), "--scheduler", "tvm", "-o", "out"]


@case
def export_missing(cli: Cli) -> list[str]:
    del cli
    return ["db", "import", "none.jsonl"]


@case
def export_not_json(cli: Cli) -> list[str]:
    return export(cli, "\n{nothing}\n")


@case
def export_unknown_record(cli: Cli) -> list[str]:
    return export(cli, '{"kind": "poem", "schema": 1}\n')


@case
def export_of_another_form(cli: Cli) -> list[str]:
    Database.open(cli.folder / "autoturbo.db").close()
    return ["db", "export", "records.parquet"]


@case
def export_of_another_form_taken_in(cli: Cli) -> list[str]:
    (cli.folder / "records.parquet").write_bytes(b"PAR1\x15\x04\xff")
    return ["db", "import", "records.parquet"]


@case
def export_into_no_folder(cli: Cli) -> list[str]:
    Database.open(cli.folder / "autoturbo.db").close()
    return ["db", "export", "none/records.jsonl"]


@case
def export_over_the_database(cli: Cli) -> list[str]:
    Database.open(cli.folder / "autoturbo.db").close()
    return ["db", "export", "autoturbo.db"]


def tuned_in(folder: Path) -> Path:
    """A folder with a model and a database of one run of it."""
    with pytest.MonkeyPatch.context() as patch:
        cli = cli_in(folder, patch)
        ran = cli("tune", saved(cli, tiny()), "--trials", "3", "-q", "--no-transfer")
        assert ran.status == 0, ran.err
    return folder
