"""Which stored values are drawn at random, how they are distributed, and where they are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from autoturbo.datasets import workloads
from autoturbo.verifier.execution import open_session, run
from autoturbo.verifier.random_values import (
    DATA_FILE,
    ValueSource,
    random_inputs,
    seeded_weights,
    stored_tensors,
    value_sources,
    with_weights,
)
from autoturbo.verifier.weight_values import BIAS, EMBEDDING, SCALE, VARIANCE, Fill
from tests.verifier.verify_samples import SAMPLES, QdqWriter, Writer, cnn, saved

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def given(values: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(values))


def missing(element: int, *dims: int) -> TensorProto:
    return TensorProto(dims=dims, data_type=element, data_location=TensorProto.EXTERNAL)


def drawn(
    kind: str, inputs: Sequence[str], stored: dict[str, TensorProto], **attributes: Any
) -> dict[str, ValueSource]:
    node = helper.make_node(kind, inputs, ["y"], **attributes)
    return value_sources(helper.make_graph([node], "one", [], []), stored)


def ones(*dims: int) -> TensorProto:
    return given(np.ones(dims, np.float32))


def test_parameters_are_drawn_whether_or_not_their_values_are_at_hand() -> None:
    names = ["scale", "bias", "mean", "variance"]
    expected = dict(zip(names, (SCALE, BIAS, BIAS, VARIANCE), strict=True))
    for tensor in (ones(64), missing(TensorProto.FLOAT, 64)):
        found = drawn("BatchNormalization", ["x", *names], dict.fromkeys(names, tensor))
        assert {name: draw.fill for name, draw in found.items()} == expected


@pytest.mark.parametrize(
    ("kind", "inputs", "stored"),
    [
        ("Clip", ["x", "low", "high"], {"low": given(np.float32(0)), "high": given(np.float32(6))}),
        ("Add", ["x", "epsilon"], {"epsilon": given(np.full(1, 1e-5, np.float32))}),
        ("Add", ["x", "mask"], {"mask": given(np.triu(np.full((8, 8), -1e9, np.float32), 1))}),
        ("Where", ["c", "x", "low"], {"c": given(np.eye(8, dtype=bool)), "low": ones(1)}),
        ("Reshape", ["x", "shape"], {"shape": given(np.array([2, -1]))}),
        ("Gather", ["x", "i"], {"i": given(np.array([3, 1, 2]))}),
        ("Gather", ["factors", "i"], {"factors": given(np.array([1, 1, 2, 2], np.float32))}),
        ("Cast", ["extents"], {"extents": given(np.array([1, 4], np.float32))}),
        ("Resize", ["x", "", "scales"], {"scales": given(np.array([1, 1, 2, 2], np.float32))}),
        ("QuantizeLinear", ["x", "", "zero"], {"zero": given(np.uint8(113))}),
    ],
)
def test_what_gives_the_computation_its_form_stays(
    kind: str, inputs: list[str], stored: dict[str, TensorProto]
) -> None:
    assert drawn(kind, inputs, stored) == {}


def test_embedding_tables_are_drawn() -> None:
    assert drawn("Gather", ["table", "i"], {"table": ones(40, 8)})["table"].fill == EMBEDDING


def test_missing_values_that_are_no_parameters_are_drawn_by_their_shape() -> None:
    found = drawn("Add", ["x", "w"], {"w": missing(TensorProto.FLOAT16, 768)})
    assert found["w"].fill == BIAS


def test_missing_indices_stay_within_their_table() -> None:
    stored = {"t": missing(TensorProto.FLOAT, 30, 7), "i": missing(TensorProto.INT64, 9000)}
    found = drawn("Gather", ["t", "i"], stored, axis=1)
    assert found["i"].fill == Fill(3.0, 3.0, uniform=True)


@pytest.mark.parametrize(
    ("element", "centre", "deviation"),
    [
        (TensorProto.INT8, 0, 42.5),
        (TensorProto.UINT8, 128, 42.5),
        (TensorProto.INT4, 0, 2.5),
        (TensorProto.UINT4, 8, 2.5),
        (TensorProto.FLOAT8E4M3FN, 0, 42.5),
    ],
)
def test_quantised_weights_spread_over_their_range(
    element: int, centre: float, deviation: float
) -> None:
    found = drawn("DequantizeLinear", ["w", "s"], {"w": missing(element, 64, 64)})
    assert found["w"].fill == Fill(centre, deviation)


def test_quantised_weights_lie_around_their_zero_point() -> None:
    stored = {"w": missing(TensorProto.UINT8, 64, 64), "z": given(np.uint8(100))}
    assert drawn("DequantizeLinear", ["w", "s", "z"], stored)["w"].fill == Fill(100.0, 42.5)
    found = drawn("QLinearConv", ["x", "a", "b", "w", "c", "z", "d", "e"], stored)
    assert found["w"].fill == Fill(100.0, 42.5)


def test_quantised_biases_are_small_in_their_wide_range() -> None:
    found = drawn("DequantizeLinear", ["b", "s"], {"b": given(np.ones(8, np.int32))})
    assert found["b"].fill == Fill(0.0, 1024.0)


def test_missing_zero_points_are_zero_or_the_middle_of_an_unsigned_range() -> None:
    for element, zero in ((TensorProto.INT8, 0.0), (TensorProto.UINT8, 128.0)):
        found = drawn("QuantizeLinear", ["x", "s", "z"], {"z": missing(element, 900)})
        assert found["z"].fill == Fill(zero, 0.0)


def test_scales_become_powers_of_two_and_activations_keep_their_range() -> None:
    stored = stored_tensors(cnn(QdqWriter()).graph)
    found = value_sources(helper.make_graph(cnn(QdqWriter()).graph.node, "g", [], []), stored)
    scales = {name: draw.data for name, draw in found.items() if draw.data is not None}
    assert len(scales) >= 16
    for name, made in scales.items():
        ratio = made / numpy_helper.to_array(stored[name])
        assert np.array_equal(np.exp2(np.rint(np.log2(made))), made)
        low, high = (0.7, 1.42) if made.ndim else (1.0, 2.0)
        assert low <= ratio.min() <= ratio.max() <= high


def test_a_missing_weight_scale_gives_weights_of_the_wanted_size() -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["v"], axis=1),
        helper.make_node("MatMul", ["x", "v"], ["y"]),
    ]
    stored = {"w": missing(TensorProto.INT8, 1024, 512), "s": missing(TensorProto.FLOAT, 512)}
    scale = value_sources(helper.make_graph(nodes, "g", [], []), stored)["s"].data
    assert scale is not None
    assert scale.shape == (512,)
    assert 0.7 < 42.5 * float(scale[0]) * 32 < 1.42


def test_scales_that_are_not_positive_are_replaced() -> None:
    stored = {"s": given(np.array([0.0, 0.5], np.float32)), "w": missing(TensorProto.INT8, 2, 9)}
    found = drawn("DequantizeLinear", ["w", "s"], stored, axis=0)["s"].data
    assert found is not None
    assert found.tolist() == [2.0**-5, 0.5]


def loaded(model: ModelProto, folder: Path, seed: int = 0) -> dict[str, np.ndarray]:
    """The weights of a model as they are read back through its data file."""
    path = saved(with_weights(model, seeded_weights(model, folder, seed)), folder / "m.onnx")
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def of_one_node(node: Any, *stored: TensorProto) -> ModelProto:
    return helper.make_model(helper.make_graph([node], "one", [], [], stored))


def outside(name: str, element: int, *dims: int) -> TensorProto:
    tensor = TensorProto(name=name, dims=dims, data_type=element)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="nowhere.bin")
    return tensor


def test_weights_are_the_same_for_a_seed_and_differ_between_seeds(tmp_path: Path) -> None:
    found = []
    for run_number, seed in enumerate((1, 1, 2)):
        folder = tmp_path / str(run_number)
        folder.mkdir()
        found.append(loaded(cnn(Writer()), folder, seed)["w0"])
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_values_depend_on_the_name_and_not_on_what_else_is_stored(tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    other = helper.make_node("MatMul", ["z", "v"], ["u"])
    alone = of_one_node(node, outside("w", TensorProto.FLOAT, 40, 50))
    both = of_one_node(node, outside("w", TensorProto.FLOAT, 40, 50))
    both.graph.node.insert(0, other)
    both.graph.initializer.insert(0, outside("v", TensorProto.FLOAT, 40, 50))
    first = loaded(alone, tmp_path)["w"]
    second = loaded(both, tmp_path)
    assert np.array_equal(first, second["w"])
    assert not np.array_equal(first, second["v"])


def test_the_file_is_written_once_and_any_model_may_refer_to_it(tmp_path: Path) -> None:
    model = cnn(Writer())
    weights = seeded_weights(model, tmp_path, 3)
    written = (tmp_path / DATA_FILE).stat()
    paths = [saved(with_weights(model, weights), tmp_path / f"{n}.onnx") for n in range(2)]
    feeds = random_inputs(model, 0)
    outputs = [run(open_session(path), feeds)["y"] for path in paths]
    assert np.array_equal(outputs[0], outputs[1])
    assert (tmp_path / DATA_FILE).stat().st_mtime_ns == written.st_mtime_ns
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0.onnx", "1.onnx", DATA_FILE]
    assert sum(path.stat().st_size for path in paths) < written.st_size


def test_values_begin_on_pages_and_small_ones_stay_in_the_model(tmp_path: Path) -> None:
    tensors = seeded_weights(cnn(Writer()), tmp_path, 0)
    outside = {
        name: {entry.key: entry.value for entry in tensor.external_data}
        for name, tensor in tensors.items()
        if tensor.data_location == TensorProto.EXTERNAL
    }
    assert outside
    assert all(int(place["offset"]) % 4096 == 0 for place in outside.values())
    assert all(np.prod(tensors[name].dims) > 128 for name in outside)
    assert any(np.prod(t.dims) <= 128 for name, t in tensors.items() if name not in outside)


def test_the_model_given_is_not_changed(tmp_path: Path) -> None:
    model = cnn(Writer())
    before = model.SerializeToString(deterministic=True)
    with_weights(model, seeded_weights(model, tmp_path, 0))
    assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=() if n in ("cnn", "transformer-qdq") else pytest.mark.full)
        for n in SAMPLES
    ],
)
def test_activations_keep_their_magnitude(name: str, tmp_path: Path) -> None:
    model = SAMPLES[name]()
    path = saved(with_weights(model, seeded_weights(model, tmp_path, 0)), tmp_path / "m.onnx")
    outputs = run(open_session(path), random_inputs(model, 0))
    assert all(0.2 < float(np.abs(v).mean()) < 10 for v in outputs.values())
    assert all(float(v.std()) > 0.2 for v in outputs.values())


@pytest.mark.parametrize("name", ["dlrm", pytest.param("squeezenet1_1", marks=pytest.mark.full)])
def test_networks_without_their_data_files_can_be_run(name: str, tmp_path: Path) -> None:
    model = onnx.load(workloads.get(name).file, load_external_data=False)
    path = saved(with_weights(model, seeded_weights(model, tmp_path, 0)), tmp_path / "m.onnx")
    outputs = run(open_session(path), random_inputs(model, 0))
    assert all(np.isfinite(value).all() for value in outputs.values())
    assert all(float(value.std()) > 0 for value in outputs.values())


def test_a_large_constant_becomes_an_initializer(tmp_path: Path) -> None:
    constant = helper.make_node("Constant", [], ["w"], value=outside("", TensorProto.FLOAT, 32, 10))
    model = Writer().model({"x": (4, 32)}, {"y": (4, 10)})
    model.graph.node.extend([constant, helper.make_node("MatMul", ["x", "w"], ["y"])])
    made = with_weights(model, seeded_weights(model, tmp_path, 0))
    assert [node.op_type for node in made.graph.node] == ["MatMul"]
    outputs = run(open_session(saved(made, tmp_path / "m.onnx")), random_inputs(model, 0))
    assert 0.5 < float(outputs["y"].std()) < 2
