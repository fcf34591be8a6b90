"""The parts of the exporter that need no torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from workload_export import pack, recipes, simplify
from workload_export.__main__ import main

from autoturbo.datasets import workloads
from tests import tiers
from tests.tiers import spread


def value(name: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model_of(
    nodes: list[onnx.NodeProto],
    shape: tuple[int, ...],
    constants: dict[str, np.ndarray],
) -> onnx.ModelProto:
    """Make a model from input "x" of `shape` to output "y"."""
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return helper.make_model(helper.make_graph(nodes, "m", [value("x", shape)], [output], tensors))


def reshaped(shape: tuple[int, ...], target: list[int]) -> list[int]:
    node = helper.make_node("Reshape", ["x", "s"], ["y"], allowzero=1)
    model = model_of([node], shape, {"s": np.array(target, np.int64)})
    simplify.free_batch(model)
    assert not model.graph.node[0].attribute
    return constant(model, model.graph.node[0].input[1])


def expanded(shape: tuple[int, ...], target: list[int]) -> list[int]:
    node = helper.make_node("Expand", ["x", "s"], ["y"])
    model = model_of([node], shape, {"s": np.array(target, np.int64)})
    simplify.free_batch(model)
    return constant(model, model.graph.node[0].input[1])


def constant(model: onnx.ModelProto, name: str) -> list[int]:
    (found,) = [t for t in model.graph.initializer if t.name == name]
    return [int(size) for size in numpy_helper.to_array(found)]


@pytest.mark.parametrize(
    ("shape", "target", "expected"),
    spread(
        [
            ((8, 6, 4), [8, 24], [0, 24]),
            ((8, 6, 4), [8, -1], [0, -1]),
            ((8, 6, 4), [48, 4], [-1, 4]),
            ((8, 6, 4), [48, -1], [48, -1]),
            ((8, 6, 4), [-1, 4], [-1, 4]),
            ((8, 6, 4), [6, 32], [6, 32]),
        ],
        3,
    ),
)
def test_reshapes_keep_their_shape_without_the_batch(
    shape: tuple[int, ...], target: list[int], expected: list[int]
) -> None:
    assert reshaped(shape, target) == expected


@pytest.mark.parametrize(
    ("shape", "target", "expected"),
    [
        ((8, 1, 4), [8, 3, 4], [1, 3, 4]),
        ((8, 1, 4), [1, 3, 4], [1, 3, 4]),
        ((8, 4), [2, 8, 4], [2, 8, 4]),
    ],
)
def test_expands_keep_their_shape_without_the_batch(
    shape: tuple[int, ...], target: list[int], expected: list[int]
) -> None:
    assert expanded(shape, target) == expected


def test_stripping_leaves_no_description() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], doc_string="why")
    model = model_of([node], (1, 2), {})
    helper.set_model_props(model, {"a": "b"})
    model.graph.value_info.append(value("y", (1, 2)))
    simplify.strip(model)
    assert not model.graph.node[0].doc_string
    assert not model.metadata_props
    assert not model.graph.value_info


def test_packing_moves_large_weights_out_and_drops_what_nothing_reads() -> None:
    constants: dict[str, np.ndarray] = {
        "large": np.zeros((32, 32), np.float32),
        "small": np.zeros(32, np.float32),
        "index": np.zeros(1000, np.int64),
        "unused": np.zeros(1000, np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "large", "small"], ["g"]),
        helper.make_node("Gather", ["g", "index"], ["y"]),
    ]
    model = model_of(nodes, (1, 32), constants)
    assert pack.pack(model, "w.bin") == 4096
    tensors = {t.name: t for t in model.graph.initializer}
    assert set(tensors) == {"large", "small", "index"}
    outside = [n for n, t in tensors.items() if t.data_location == TensorProto.EXTERNAL]
    assert outside == ["large"]
    assert {e.key: e.value for e in tensors["large"].external_data} == {
        "location": "w.bin",
        "offset": "0",
        "length": "4096",
    }


def test_packing_turns_constant_nodes_into_initializers() -> None:
    array = numpy_helper.from_array(np.zeros((40, 40), np.float32))
    nodes = [
        helper.make_node("Constant", [], ["c"], value=array),
        helper.make_node("MatMul", ["x", "c"], ["y"]),
    ]
    model = model_of(nodes, (1, 40), {})
    pack.pack(model, "w.bin")
    assert [node.op_type for node in model.graph.node] == ["MatMul"]
    assert [(t.name, t.data_location) for t in model.graph.initializer] == [
        ("c", TensorProto.EXTERNAL)
    ]


def test_packing_refuses_index_tables_that_are_too_large() -> None:
    node = helper.make_node("Gather", ["x", "index"], ["y"])
    model = model_of([node], (1, 1), {"index": np.zeros(20_000, np.int64)})
    with pytest.raises(ValueError, match="160000"):
        pack.pack(model, "w.bin")


def test_every_workload_has_a_recipe_and_no_recipe_is_left_over() -> None:
    assert set(recipes.RECIPES) == set(workloads.names())


@pytest.mark.parametrize("name", tiers.workloads())
def test_the_files_inputs_are_the_recipes(name: str) -> None:
    workload = workloads.get(name)
    graph = onnx.load(workload.file, load_external_data=False).graph
    found = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in graph.input}
    recipe = recipes.RECIPES[name]
    assert found == {key: (workload.batch, *i.shape) for key, i in recipe.inputs.items()}
    assert tuple(v.name for v in graph.output) == recipe.outputs


def test_an_unknown_name_ends_with_status_2_and_a_hint(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["resnet51", "--folder", str(tmp_path)]) == 2
    assert "did you mean 'resnet50'?" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_importing_the_exporter_needs_no_torch() -> None:
    code = (
        "import sys; import workload_export.make as _;"
        "print(sorted({'torch', 'timm', 'transformers', 'onnxslim'} & set(sys.modules)))"
    )
    known = (str(Path(recipes.__file__).parents[1]), os.environ.get("PYTHONPATH", ""))
    tools = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, known))}
    ran = subprocess.run(  # our own interpreter and code
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=tools
    )
    assert ran.stdout.strip() == "[]"
