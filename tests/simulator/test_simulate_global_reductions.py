"""A reduction of all elements runs on all cores of a cluster, and one combines what they found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper

from autoturbo.datasets import workloads
from autoturbo.graph.layers import layers_of
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement
from autoturbo.verifier import verify_schedule
from tests.simulator.quantised_nets import Net
from tests.simulator.simulate_samples import target_of

ROWS, WIDTH = 128, 256


def file_of(folder: Path, nodes: list[NodeProto], shape: tuple[int, ...], dtype: int) -> Path:
    """A product, and ``nodes`` from its result ``m`` to the output ``y``."""
    net = Net(shape)
    net.store("w", net.rng.standard_normal((WIDTH, WIDTH)))
    net.stored.append(onnx.numpy_helper.from_array(
        net.rng.integers(-9, 9, (WIDTH, WIDTH)).astype(np.int8), "wq"))  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"], name="product"), *nodes], "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (ROWS, WIDTH))],
        [helper.make_tensor_value_info("y", dtype, shape)], net.stored,
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), folder / "net.onnx")
    return folder / "net.onnx"


def dynamic(folder: Path) -> Path:
    """A product whose operand is quantised by what it holds."""
    return file_of(folder, [
        helper.make_node("DynamicQuantizeLinear", ["m"], ["q", "s", "z"], name="all"),
        helper.make_node("MatMulInteger", ["q", "wq", "z"], ["y"]),
    ], (ROWS, WIDTH), TensorProto.INT32)  # fmt: skip


def largest(folder: Path) -> Path:
    """The largest element of a product."""
    last = helper.make_node("ReduceMax", ["m"], ["y"], name="all", keepdims=0)
    return file_of(folder, [last], (), TensorProto.FLOAT)


CASES = pytest.mark.parametrize("make", [dynamic, largest])


def measured(graph: Graph, cores: int) -> Measurement:
    target = dataclasses.replace(target_of(), cores=cores, clusters=1)
    found = Evaluator(graph, target, "float16").evaluate(Knobs())
    assert isinstance(found, Measurement)
    assert found.latency >= found.bound.seconds
    return found


@CASES
def test_all_cores_reduce_and_what_they_wait_for_is_computed_once(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    graph = import_model(make(tmp_path))
    one, eight = measured(graph, 1), measured(graph, 8)
    for engine in ("vector", "matrix"):
        assert eight.busy[engine] < one.busy[engine] / 3


@CASES
def test_the_node_stays_whole_in_the_written_model(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = make(tmp_path)
    schedule, _ = Evaluator(import_model(path), target_of(), "float16").scheduler("graphturbo")
    checked = verify_schedule(schedule, path=path)
    assert checked.findings == ()
    assert checked.numbers is not None
    assert checked.numbers.skipped is None


def test_elements_may_be_made_on_the_way_to_a_reduction(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["m"], ["r"]), helper.make_node("Abs", ["r"], ["a"]),
             helper.make_node("ReduceSum", ["a"], ["y"], keepdims=0)]  # fmt: skip
    graph = import_model(file_of(tmp_path, nodes, (), TensorProto.FLOAT))
    kinds = [[graph.operators[i].kind for i in layer.operators] for layer in layers_of(graph)]
    assert kinds == [["MatMul", "Relu", "Abs"], ["ReduceSum"]]


@pytest.mark.full
@pytest.mark.parametrize("name", ["unet", "bert_base_s128", "dlrm", "llama_decode"])
def test_no_bundled_workload_has_one(name: str) -> None:
    graph = import_model(workloads.get(name).file)
    assert not any(operator.reduces_all for operator in graph.operators)
    assert {operator.integer for operator in graph.operators} == {None}
