"""Weights beside the model: where they may lie, what is read, and how much memory it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import autoturbo
from autoturbo.errors import ModelError
from autoturbo.graph.onnx_import import import_model
from tests.graph.onnx_import.import_models import (
    FLOAT,
    INT64,
    ints,
    kinds,
    mlp,
    model,
    node,
    out_shapes,
    value,
    weight,
)

if TYPE_CHECKING:
    from onnx import ModelProto

    from tests.graph.onnx_import.import_models import Load

GIB = 2**30


def outside(name: str, kind: int, dims: list[int], **entries: object) -> TensorProto:
    tensor = TensorProto(name=name, data_type=kind, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, entry in entries.items():
        tensor.external_data.add(key=key, value=str(entry))
    return tensor


def matmul(tensor: TensorProto) -> ModelProto:
    rows = tensor.dims[0]
    return model(
        [node("MatMul", ["x", "w"], ["y"])], [value("x", [2, rows])], [value("y", None)], [tensor]
    )


def reshape(tensor: TensorProto) -> ModelProto:
    return model(
        [node("Reshape", ["x", tensor.name], ["y"], name="r")],
        [value("x", [2, 6])],
        [value("y", None)],
        [tensor],
    )


def test_a_missing_data_file_is_a_note(load: Load) -> None:
    graph = load(matmul(outside("w", FLOAT, [100, 100], location="w.bin")))
    assert out_shapes(graph) == [(2, 100)]
    assert graph.notes == (
        "weights file w.bin is missing: shapes are enough to schedule, not to run",
    )


def test_a_missing_file_that_says_a_shape_is_an_error(load: Load) -> None:
    with pytest.raises(ModelError) as caught:
        load(reshape(outside("t", INT64, [2], location="w.bin")))
    assert str(caught.value) == (
        "model.onnx: r: the shape of its output 'y' depends on values in w.bin, which is missing;"
        " add the file"
    )


def test_a_missing_value_is_remembered_through_computations(load: Load) -> None:
    made = reshape(outside("t", INT64, [2], location="w.bin"))
    made.graph.node[0].input[1] = "u"
    made.graph.node.append(node("Add", ["t", "zero"], ["u"]))
    made.graph.initializer.append(ints("zero", 0))
    with pytest.raises(ModelError, match=r"w\.bin"):
        load(made)


def test_a_stated_shape_does_without_the_missing_value(load: Load) -> None:
    made = reshape(outside("t", INT64, [2], location="w.bin"))
    made.graph.output[0].CopyFrom(value("y", [3, 4]))
    assert out_shapes(load(made)) == [(3, 4)]


def test_small_values_are_read_from_their_file(load: Load, folder: Path) -> None:
    (folder / "w.bin").write_bytes(b"\0" * 16 + np.asarray([4, 3], np.int64).tobytes())
    graph = load(reshape(outside("t", INT64, [2], location="w.bin", offset=16, length=16)))
    assert out_shapes(graph) == [(4, 3)]
    assert graph.notes == ()


def test_a_file_in_a_folder_below_is_inside(load: Load, folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "w.bin").write_bytes(np.asarray([4, 3], np.int64).tobytes())
    assert out_shapes(load(reshape(outside("t", INT64, [2], location="data/w.bin")))) == [(4, 3)]


def test_a_short_file_is_an_error(load: Load, folder: Path) -> None:
    (folder / "w.bin").write_bytes(bytes(100))
    with pytest.raises(ModelError) as caught:
        load(matmul(outside("w", FLOAT, [8, 4], location="w.bin", offset=64)))
    assert str(caught.value) == (
        "model.onnx: w: data file w.bin has 100 bytes, 192 are needed;"
        " copy or download the file again"
    )


def test_a_link_may_not_leave_the_folder(
    load: Load, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "w.bin"
    elsewhere.write_bytes(bytes(128))
    (folder / "w.bin").symlink_to(elsewhere)
    with pytest.raises(ModelError) as caught:
        load(matmul(outside("w", FLOAT, [8, 4], location="w.bin")))
    assert caught.value.at.field == "w"


def test_a_link_to_a_folder_may_not_leave_either(
    load: Load, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (folder / "data").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(ModelError) as caught:
        load(matmul(outside("w", FLOAT, [8, 4], location="data/w.bin")))
    assert caught.value.at.field == "w"


def test_a_link_inside_the_folder_is_fine(load: Load, folder: Path) -> None:
    (folder / "real.bin").write_bytes(bytes(128))
    (folder / "w.bin").symlink_to("real.bin")
    assert load(matmul(outside("w", FLOAT, [8, 4], location="w.bin"))).notes == ()


def test_a_model_in_another_folder_finds_its_weights(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "w.bin").write_bytes(np.asarray([4, 3], np.int64).tobytes())
    made = reshape(outside("t", INT64, [2], location="w.bin"))
    (folder / "deep" / "m.onnx").write_bytes(made.SerializeToString())
    assert out_shapes(import_model("deep/m.onnx")) == [(4, 3)]


def test_external_tensors_of_constants_and_bodies_are_checked_too(load: Load) -> None:
    inner = outside("", FLOAT, [50, 50], location="../w.bin")
    made = model(
        [node("Constant", [], ["w"], value=inner), node("MatMul", ["x", "w"], ["y"])],
        [value("x", [2, 50])],
        [value("y", None)],
    )
    with pytest.raises(ModelError, match=r"'\.\./w\.bin'"):
        load(made)


@pytest.mark.parametrize("place", [{}, {"inline_place": "0 5"}, {"inline_place": "a b"}])
def test_no_file_can_mark_a_value_as_left_behind(load: Load, place: dict[str, str]) -> None:
    with pytest.raises(ModelError) as caught:
        load(matmul(outside("w", FLOAT, [8, 4], inline_bytes=128, **place)))
    assert caught.value.at.field == "w"


def test_four_bit_weights_are_packed(load: Load, folder: Path) -> None:
    (folder / "w.bin").write_bytes(bytes(50))
    tensor = outside("w", TensorProto.INT4, [10, 10], location="w.bin")
    made = model(
        [node("DequantizeLinear", ["w", "s"], ["f"]), node("MatMul", ["x", "f"], ["y"])],
        [value("x", [2, 10])],
        [value("y", None)],
        [tensor, onnx.numpy_helper.from_array(np.asarray(1, np.float32), "s")],
        opset=21,
        ir=10,
    )
    assert kinds(load(made)) == ["MatMul"]


# ---------------------------------------------------------------------------------------- memory

MEASURE = """
import json, resource, sys
from autoturbo.graph.onnx_import import import_model
import onnx.reference
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
graph = import_model(sys.argv[1])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
weights = sum(t.elements for t in graph.tensors if t.constant)
print(json.dumps({"kib": after - before, "weights": weights, "operators": len(graph.operators)}))
"""


def measured(path: Path) -> dict[str, Any]:
    """Growth of the peak memory of a fresh process by one import, in KiB."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(autoturbo.__file__).parents[1])},
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_eight_gib_of_external_weights_take_little_memory(folder: Path) -> None:
    with (folder / "w.bin").open("wb") as file:
        file.truncate(8 * GIB)
    layers = 8
    made = model(
        [node("MatMul", [f"x{k}", f"w{k}"], [f"x{k + 1}"]) for k in range(layers)],
        [value("x0", [2, 16384])],
        [value(f"x{layers}", None)],
        [
            outside(f"w{k}", FLOAT, [16384, 16384], location="w.bin", offset=k * GIB)
            for k in range(layers)
        ],
    )
    (folder / "model.onnx").write_bytes(made.SerializeToString())
    result = measured(folder / "model.onnx")
    assert result["weights"] * 4 == 8 * GIB
    assert result["kib"] < 64 * 1024


@pytest.mark.full
def test_inline_weights_are_left_in_the_file(folder: Path) -> None:
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[8192, 8192], raw_data=bytes(GIB // 4))
    (folder / "model.onnx").write_bytes(matmul(tensor).SerializeToString())
    del tensor
    result = measured(folder / "model.onnx")
    assert result["weights"] * 4 == GIB // 4
    assert result["kib"] < 32 * 1024


def test_weights_made_by_nodes_are_not_made(folder: Path) -> None:
    made = model(
        [
            node("ConstantOfShape", ["s"], ["c"]),
            node("Transpose", ["c"], ["t"]),
            node("Exp", ["t"], ["w"]),
            node("MatMul", ["x", "w"], ["y"]),
        ],
        [value("x", [2, 32768])],
        [value("y", None)],
        [ints("s", 32768, 32768)],
    )
    (folder / "model.onnx").write_bytes(made.SerializeToString())
    result = measured(folder / "model.onnx")
    assert result["operators"] == 1
    assert result["weights"] == 2**30
    assert result["kib"] < 32 * 1024


def test_the_library_s_own_external_format_is_read(folder: Path) -> None:
    made = mlp()
    made.graph.initializer[0].CopyFrom(weight("w", 8, 4))
    onnx.save(
        made,
        folder / "saved.onnx",
        save_as_external_data=True,
        location="saved.data",
        size_threshold=0,
    )
    graph = import_model("saved.onnx")
    assert (graph.notes, graph.name) == ((), "saved")
    assert graph.hash == import_model_of(mlp(), folder).hash


def import_model_of(made: ModelProto, folder: Path) -> Any:
    (folder / "inline.onnx").write_bytes(made.SerializeToString())
    return import_model("inline.onnx")
