"""Time of an import: linear in what a file has many of."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from autoturbo.graph.layers import layers_of
from autoturbo.graph.onnx_import import import_model

FLOAT = TensorProto.FLOAT


def saved(folder: Path, nodes: list[NodeProto], inputs: int = 1, outputs: int = 1) -> Path:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "net",
        [value(f"x{i}", FLOAT, [1, 4]) for i in range(inputs)],
        [value(f"y{i}", FLOAT, None) for i in range(outputs)],
    )  # fmt: skip
    model: ModelProto = helper.make_model(
        graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    )
    path = folder / "many.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def attributes(folder: Path, count: int) -> Path:
    more: dict[str, Any] = {f"a{i}": i for i in range(count)}
    return saved(folder, [helper.make_node("Relu", ["x0"], ["y0"], "r", **more)])


def attributes_each(folder: Path, count: int) -> Path:
    nodes = [helper.make_node("Relu", ["x0"], [f"y{i}"], f"n{i}") for i in range(count)]
    for i, node in enumerate(nodes):
        node.attribute.append(helper.make_attribute(f"a{i}", i))
    return saved(folder, nodes, outputs=count)


def outputs(folder: Path, count: int) -> Path:
    nodes = [helper.make_node("Relu", ["x0"], [f"y{i}"]) for i in range(count)]
    return saved(folder, nodes, outputs=count)


def inputs(folder: Path, count: int) -> Path:
    node = helper.make_node("Concat", [f"x{i}" for i in range(count)], ["y0"], axis=0)
    return saved(folder, [node], inputs=count)


def chain(folder: Path, count: int) -> Path:
    names = ["x0", *(f"t{i}" for i in range(count - 1)), "y0"]
    nodes = [helper.make_node("Relu", [names[i]], [names[i + 1]]) for i in range(count)]
    return saved(folder, nodes)


def seconds(path: Path) -> float:
    """The least time of an import and of its layers."""
    taken = []
    for _ in range(2):
        began = time.process_time()
        layers_of(import_model(path))
        taken.append(time.process_time() - began)
    return min(taken)


@pytest.mark.parametrize(
    ("made", "few"),
    [
        (attributes, 5000),
        (chain, 700),
        pytest.param(attributes_each, 2500, marks=pytest.mark.full),
        pytest.param(outputs, 2500, marks=pytest.mark.full),
        pytest.param(inputs, 2500, marks=pytest.mark.full),
    ],
)
def test_four_times_as_many_take_about_four_times_as_long(
    tmp_path: Path, made: Callable[[Path, int], Path], few: int
) -> None:
    seconds(made(tmp_path, 10))
    one, four = (seconds(made(tmp_path, n)) for n in (few, 4 * few))
    assert four < max(7 * one, 0.2), (one, four)


def test_a_node_of_many_unknown_attributes_has_few_notes(tmp_path: Path) -> None:
    notes = import_model(attributes(tmp_path, 100)).notes
    assert notes[0] == "Relu of opset 17 has no attribute 'a0': left out"
    assert notes[-1] == "r has 92 more attributes of no meaning: left out"
    assert len(notes) == 9


def test_an_einsum_of_very_many_operands_stays_whole(tmp_path: Path) -> None:
    terms = ",".join("abc"[i % 2 : i % 2 + 2] for i in range(1000))
    node = helper.make_node("Einsum", ["x0"] * 1000, ["y0"], "e", equation=f"{terms}->a")
    node.input[:] = [f"x{i % 2}" for i in range(1000)]
    value = helper.make_tensor_value_info
    ends = [value("x0", FLOAT, [4, 4]), value("x1", FLOAT, [4, 4])], [value("y0", FLOAT, None)]
    path = tmp_path / "net.onnx"
    model = helper.make_model(helper.make_graph([node], "net", *ends), ir_version=8)
    path.write_bytes(model.SerializeToString())
    began = time.process_time()
    assert [one.kind for one in import_model(path).operators] == ["Einsum"]
    assert time.process_time() - began < 5


def test_a_dimension_of_hundreds_of_digits_is_one_of_any_extent(tmp_path: Path) -> None:
    path = saved(tmp_path, [helper.make_node("Relu", ["x0"], ["y0"])])
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "*".join(["9" * 100] * 2)
    onnx.save(model, path)
    assert import_model(path, batch=4).batch == 4
