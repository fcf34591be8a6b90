from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autoturbo.datasets import workloads
from autoturbo.errors import ModelError, UsageError
from autoturbo.graph.source import SEED_KEY
from autoturbo.verifier import weight_values
from autoturbo.verifier.random_values import random_inputs
from tests.tiers import tiered

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run(model: Path, name: str) -> list[np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, workloads.example_inputs(name))]


def check_outputs(name: str, folder: Path) -> None:
    outputs = run(workloads.materialize(name, folder), name)
    (folder / f"{name}.weights.bin").unlink()  # pytest keeps folders
    for output in outputs:
        assert len(output) == workloads.get(name).batch
        assert np.isfinite(output).all()
        assert float(output.std()) > 0.0


@pytest.mark.parametrize(
    "name",
    tiered(["squeezenet1_1"], ["dlrm", "shufflenet_v2", "mobilenet_v2", "llama_decode", "swin_t"]),
)
def test_a_materialised_workload_runs_with_finite_outputs(name: str, tmp_path: Path) -> None:
    check_outputs(name, tmp_path)


def test_materialising_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    first = workloads.materialize("dlrm", tmp_path / "a")
    second = workloads.materialize("dlrm", tmp_path / "b")
    assert sorted(p.name for p in first.parent.iterdir()) == ["dlrm.onnx", "dlrm.weights.bin"]
    for name in ("dlrm.onnx", "dlrm.weights.bin"):
        assert digest(first.parent / name) == digest(second.parent / name)


def test_the_copy_is_the_shipped_file(tmp_path: Path) -> None:
    copy = workloads.materialize("dlrm", tmp_path)
    assert copy == tmp_path / "dlrm.onnx"
    assert digest(copy) == digest(workloads.get("dlrm").file)


def test_materialising_over_an_earlier_copy_leaves_no_other_file(tmp_path: Path) -> None:
    workloads.materialize("squeezenet1_1", tmp_path)
    workloads.materialize("squeezenet1_1", str(tmp_path))
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["squeezenet1_1.onnx", "squeezenet1_1.weights.bin"]


def test_an_unknown_workload_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        workloads.materialize("dlrn", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def external(name: str, dims: Sequence[int], offset: int, location: str) -> TensorProto:
    tensor = TensorProto(name=name, dims=dims, data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    length = 4 * int(np.prod(dims))
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def toy(folder: Path, seed: str | None, names: Sequence[str] = ("first", "second")) -> Path:
    """Write two chained products of 64 by 64 matrices, 64 bytes apart, at `folder`."""
    matrices = [external(n, (64, 64), i * (16384 + 64), "w.bin") for i, n in enumerate(names)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", names[0]], ["y"]),
            helper.make_node("MatMul", ["y", names[1]], ["z"]),
        ],
        "toy",
        [value("x", TensorProto.FLOAT, (1, 64))],
        [value("z", TensorProto.FLOAT, (1, 64))],
        matrices,
    )
    model = helper.make_model(graph)
    if seed is not None:
        helper.set_model_props(model, {SEED_KEY: seed})
    path = folder / "toy.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def matrices_of(path: Path) -> dict[str, np.ndarray]:
    return {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def test_values_depend_on_the_seed(tmp_path: Path) -> None:
    first, second = (
        matrices_of(workloads.materialize_file(toy(tmp_path, seed), tmp_path / seed))["first"]
        for seed in ("1", "2")
    )
    assert not np.array_equal(first, second)


def test_values_depend_on_the_tensors_name_and_not_on_its_place(tmp_path: Path) -> None:
    plain = matrices_of(workloads.materialize_file(toy(tmp_path, "1"), tmp_path / "plain"))
    swapped_file = toy(tmp_path, "1", ("second", "first"))
    swapped = matrices_of(workloads.materialize_file(swapped_file, tmp_path / "swapped"))
    assert np.array_equal(plain["first"], swapped["first"])
    assert not np.array_equal(plain["first"], plain["second"])


def test_the_external_file_has_the_length_that_the_model_says(tmp_path: Path) -> None:
    workloads.materialize_file(toy(tmp_path, "1"), tmp_path / "out")
    assert (tmp_path / "out" / "w.bin").stat().st_size == 2 * 16384 + 64


def test_pieces_do_not_change_the_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = matrices_of(workloads.materialize_file(toy(tmp_path, "1"), tmp_path / "whole"))
    monkeypatch.setattr(weight_values, "PIECE", 1000)
    pieces = matrices_of(workloads.materialize_file(toy(tmp_path, "1"), tmp_path / "pieces"))
    assert np.array_equal(whole["second"], pieces["second"])


def test_a_file_without_a_seed_is_refused_with_the_missing_field(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        workloads.materialize_file(toy(tmp_path, None), tmp_path / "out")
    assert caught.value.at.field == "metadata_props[autoturbo.weights_seed]"


def test_a_failed_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError("disk full")

    monkeypatch.setattr(weight_values, "pieces", fail)
    with pytest.raises(UsageError):
        workloads.materialize_file(toy(tmp_path, "1"), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_example_inputs_stay_within_tables() -> None:
    inputs = workloads.example_inputs("dlrm", seed=3)
    assert {name: (v.shape, v.dtype.str) for name, v in inputs.items()} == {
        "dense": ((1024, 13), "<f4"),
        "sparse": ((1024, 26), "<i8"),
    }
    assert 0 <= inputs["sparse"].min() < inputs["sparse"].max() < 1000


def test_example_inputs_are_deterministic_for_a_seed() -> None:
    first, again, other = (workloads.example_inputs("dlrm", seed) for seed in (1, 1, 2))
    assert np.array_equal(first["dense"], again["dense"])
    assert not np.array_equal(first["dense"], other["dense"])


def test_example_inputs_without_limits_are_flags() -> None:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Neg", ["m"], ["y"])],
        "flags",
        [value("m", TensorProto.INT64, (100,))],
        [value("y", TensorProto.INT64, (100,))],
    )
    assert set(random_inputs(helper.make_model(graph), 0)["m"].tolist()) == {0, 1}
