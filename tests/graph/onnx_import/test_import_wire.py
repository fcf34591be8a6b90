"""The skim of the wire format leaves large payloads behind and everything else alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

from autoturbo.graph.importer.external_data import (
    INLINE,
    LARGE,
    TruncatedError,
    WireError,
    inline_bytes,
    read_without_weights,
    restore,
)
from tests.graph.onnx_import.import_models import FLOAT, graph, mlp, model, node, value, weight

if TYPE_CHECKING:
    from collections.abc import Sequence

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def skim(made: ModelProto | bytes, folder: Path) -> ModelProto:
    path = folder / "model.onnx"
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    return read_without_weights(path)


def large(name: str = "w") -> TensorProto:
    return numpy_helper.from_array(np.ones((100, 200), np.float32), name)


def test_a_small_model_comes_back_whole(tmp_path: Path) -> None:
    assert skim(mlp(), tmp_path) == mlp()


@pytest.mark.parametrize("name", ["light_shufflenet", "light_vgg19"])
def test_models_without_large_values_come_back_whole(name: str) -> None:
    path = LIGHT / f"{name}.onnx"
    assert read_without_weights(path) == onnx.load(path)


def test_a_large_initializer_keeps_all_but_its_payload(tmp_path: Path) -> None:
    made = mlp()
    made.graph.initializer.extend([large(), weight("last", 3)])
    tensor = skim(made, tmp_path).graph.initializer[2]
    assert (tensor.name, list(tensor.dims), tensor.data_type) == ("w", [100, 200], FLOAT)
    assert not tensor.raw_data
    assert inline_bytes(tensor) == 80_000
    assert skim(made, tmp_path).graph.initializer[3] == weight("last", 3)
    assert skim(made, tmp_path).graph.node == made.graph.node


def places(made: ModelProto) -> Sequence[TensorProto]:
    body = made.graph.node[1].attribute[0].g
    return [
        made.graph.node[0].attribute[0].t,
        body.initializer[0],
        body.node[0].attribute[0].t,
        made.functions[0].node[0].attribute[0].t,
    ]


def test_large_values_are_found_however_deep_they_lie(tmp_path: Path) -> None:
    constant = node("Constant", [], ["c"], value=large(""))
    body = graph(
        [node("Constant", [], ["d"], value=large(""))], [], [value("d", None)], [large("i")]
    )
    function = onnx.helper.make_function("local", "F", [], ["c"], [constant], [])
    made = model(
        [constant, node("If", ["x"], ["y"], then_branch=body)],
        [value("x", [1])],
        [],
        functions=[function],
    )
    assert [inline_bytes(tensor) for tensor in places(skim(made, tmp_path))] == [80_000] * 4
    assert skim(made, tmp_path).ByteSize() < 2000


def test_typed_payloads_are_left_behind_too(tmp_path: Path) -> None:
    made = mlp()
    numbers = TensorProto(name="n", data_type=FLOAT, dims=[20_000], float_data=[1.0] * 20_000)
    whole = TensorProto(
        name="i", data_type=TensorProto.INT64, dims=[40_000], int64_data=[7] * 40_000
    )
    made.graph.initializer.extend([numbers, whole])
    tensors = skim(made, tmp_path).graph.initializer[2:]
    assert [inline_bytes(tensor) for tensor in tensors] == [0, 0]
    assert not tensors[0].float_data
    assert not tensors[1].int64_data


def test_what_was_left_behind_can_be_read_again(tmp_path: Path) -> None:
    """Raw, and as integers of variable length, wherever the field stands in the message."""
    made, numbers = mlp(), range(-20_000, 20_000)
    raw = onnx.numpy_helper.from_array(np.array(numbers), "raw")
    spelt = TensorProto(name="i", data_type=TensorProto.INT64, dims=[40_000], int64_data=numbers)
    made.graph.initializer.extend([raw, spelt])
    found = skim(made, tmp_path).graph.initializer[2:]
    for tensor in found:
        assert inline_bytes(tensor) is not None
        restore(tensor, next(tmp_path.glob("*.onnx")))
    # What was left behind says so no more.
    raw.data_location = spelt.data_location = TensorProto.DEFAULT
    assert list(found) == [raw, spelt]


def test_the_limit_is_exact(tmp_path: Path) -> None:
    made = mlp()
    made.graph.initializer.extend(
        TensorProto(name=name, data_type=TensorProto.INT8, dims=[size], raw_data=bytes(size))
        for name, size in (("kept", LARGE), ("left", LARGE + 1))
    )
    kept, left = skim(made, tmp_path).graph.initializer[2:]
    assert inline_bytes(kept) is None
    assert len(kept.raw_data) == LARGE
    assert inline_bytes(left) == LARGE + 1


def test_other_external_data_is_not_taken_for_a_mark() -> None:
    tensor = TensorProto(data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    assert inline_bytes(tensor) is None
    tensor.external_data.add(key=INLINE, value="12")
    assert inline_bytes(tensor) == 12


def test_long_texts_are_no_payloads(tmp_path: Path) -> None:
    made = mlp()
    made.doc_string = "x" * (2 * LARGE)
    made.graph.node[0].doc_string = "y" * (2 * LARGE)
    assert skim(made, tmp_path) == made


def test_fields_of_later_versions_are_kept(tmp_path: Path) -> None:
    data = mlp().SerializeToString()
    fixed64, fixed32, varint = b"\xc1\x3e" + bytes(8), b"\xcd\x3e" + bytes(4), b"\xd0\x3e\x81\x01"
    unknown = fixed64 + fixed32 + varint
    assert skim(data + unknown, tmp_path).SerializeToString() == data + unknown


@pytest.mark.parametrize("cut", [1, 2, 10])
def test_a_cut_file_is_truncated(cut: int, tmp_path: Path) -> None:
    with pytest.raises(TruncatedError):
        skim(mlp().SerializeToString()[:-cut], tmp_path)


def test_a_cut_inside_a_large_value_is_truncated(tmp_path: Path) -> None:
    made = model([], [], [], [large()])
    with pytest.raises(TruncatedError):
        skim(made.SerializeToString()[:-50_000], tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0b\x00",  # a group, which protobuf has given up
        b"\x08" + b"\xff" * 11,  # an integer of more than 64 bits
        b"\x3a\x02\xff\xff",  # a graph that is none
    ],
)
def test_other_bytes_are_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(WireError):
        skim(data, tmp_path)
