"""A model's nodes at static shapes: what the scheduler's graph leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import SparseTensorProto, TensorProto, helper, load, numpy_helper, save

from autoturbo.datasets import workloads
from autoturbo.errors import ModelError
from autoturbo.graph.batch import rebatch, trace_batch
from autoturbo.graph.model_nodes import ModelNodes, Repeated, load_nodes
from autoturbo.graph.onnx_import import import_model
from tests import tiers


def _saved(
    folder: Path, nodes: list[Any], outputs: list[str], weights: list[Any], shape: Any
) -> Path:
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "net", [given], made, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save(model, folder / "net.onnx")
    return folder / "net.onnx"


def _at(name: str, batch: int) -> ModelNodes:
    graph = import_model(workloads.get(name).file)
    fewer = rebatch(graph, batch, trace_batch(graph))
    shapes = {fewer.tensors[i].name: fewer.tensors[i].shape for i in fewer.inputs}
    nodes = load_nodes(workloads.get(name).file, shapes=shapes)
    assert [t.shape for t in nodes.graph.tensors] == [t.shape for t in fewer.tensors]
    return nodes


@pytest.mark.parametrize("name", tiers.workloads(without=["unet"]))
def test_a_workload_has_its_nodes_at_two_samples(name: str) -> None:
    nodes = _at(name, 2)
    known = {t.name for t in nodes.graph.tensors if not t.constant}
    made = {value for node in nodes.constants for value in node.output}
    made |= {one.name for one in nodes.repeated}
    assert len(nodes.nodes) == len(nodes.graph.operators)
    for node, operator in zip(nodes.nodes, nodes.graph.operators, strict=True):
        values = [*node.inputs, *node.captured]
        for tensor, place in zip(operator.inputs, node.positions, strict=True):
            value = values[place]
            assert value is not None
            assert value.name == nodes.graph.tensors[tensor].name
        for value in filter(None, values):
            assert value.name in known | made | set(nodes.stored) or value.data is not None


def test_large_values_are_kept_once_and_small_ones_are_known(tmp_path: Path) -> None:
    weights = np.arange(64 * 200, dtype=np.float32).reshape(64, 200)
    node = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(weights))
    steps = [
        node,
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["y"], name="product"),
        helper.make_node("Reshape", ["y", "target"], ["z"]),
    ]
    target = numpy_helper.from_array(np.asarray([0, 8, 8], np.int64), "target")
    nodes = load_nodes(_saved(tmp_path, steps, ["z"], [target], (3, 200)))
    np.testing.assert_array_equal(numpy_helper.to_array(nodes.stored["w"]), weights)
    assert [step.op_type for step in nodes.constants] == ["Transpose"]
    shape = nodes.nodes[1].inputs[1]
    assert shape is not None
    assert shape.tensor == -1
    assert list(shape.data) == [0, 8, 8]  # type: ignore[arg-type]


def test_an_output_that_only_passes_on_keeps_its_name(tmp_path: Path) -> None:
    steps = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Identity", ["y"], ["z"])]
    nodes = load_nodes(_saved(tmp_path, steps, ["y", "z"], [], (2, 2)))
    assert [(name, value.name) for name, value in nodes.outputs] == [("y", "y"), ("z", "y")]


def test_a_constant_of_the_files_own_batch_is_repeated(tmp_path: Path) -> None:
    table = numpy_helper.from_array(np.arange(20, dtype=np.float32).reshape(4, 5), "table")
    nodes = load_nodes(
        _saved(tmp_path, [helper.make_node("Add", ["x", "table"], ["y"])], ["y"], [table], (4, 5)),
        batch=2,
    )
    (repeated,) = nodes.repeated
    assert repeated == Repeated("table for 2", "table", 0, 4, 2, 4, 1)
    assert repeated.taken(3).tolist() == [3, 0]
    assert Repeated("", "", 0, 12, 6, 2, 3).taken(1).tolist() == [3, 4, 5, 9, 10, 11]
    assert list(nodes.stored) == ["table"]
    assert nodes.graph.tensors[nodes.graph.operators[0].inputs[1]].shape == (2, 5)


def test_a_constant_whose_samples_are_alike_is_made_for_the_batch(tmp_path: Path) -> None:
    mask = numpy_helper.from_array(np.ones((4, 5), np.float32), "mask")
    step = helper.make_node("Add", ["x", "mask"], ["y"])
    nodes = load_nodes(_saved(tmp_path, [step], ["y"], [mask], (4, 5)), batch=2)
    assert nodes.repeated == ()
    assert numpy_helper.to_array(nodes.stored["mask for 2"]).tolist() == [[1.0] * 5] * 2


@pytest.mark.parametrize("places", [[1, 3], [[0, 1], [1, 1]]])
def test_a_sparse_constant_is_written_dense(places: list[Any], tmp_path: Path) -> None:
    values = numpy_helper.from_array(np.array([5, 7], np.float32), "w")
    indices = numpy_helper.from_array(np.asarray(places, np.int64), "i")
    path = _with_sparse(helper.make_sparse_tensor(values, indices, [2, 2]), tmp_path)
    assert numpy_helper.to_array(load_nodes(path).stored["w"]).tolist() == [[0, 5], [0, 7]]


def _with_sparse(sparse: SparseTensorProto, folder: Path) -> Path:
    path = _saved(folder, [helper.make_node("Add", ["x", "w"], ["y"])], ["y"], [], (2, 2))
    model = load(path)
    model.graph.sparse_initializer.append(sparse)
    save(model, path)
    return path


@pytest.mark.parametrize(("place", "extent"), [(9, 2), (0, 1 << 15)])
def test_a_sparse_constant_that_cannot_be_read_is_named_at_import(
    place: int, extent: int, tmp_path: Path
) -> None:
    values = numpy_helper.from_array(np.ones(1, np.float32), "w")
    indices = numpy_helper.from_array(np.asarray([place], np.int64), "i")
    path = _with_sparse(helper.make_sparse_tensor(values, indices, [2, 2]), tmp_path)
    model = load(path)
    model.graph.sparse_initializer[0].dims[:] = [extent, extent]
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, [extent, extent]))
    save(model, path)
    with pytest.raises(ModelError) as caught:
        import_model(path)
    assert caught.value.at.field == "w"
