from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from verify_samples import QdqWriter, cnn

from autoturbo.graph.weight_fills import BIAS, EMBEDDING, SCALE, VARIANCE, Fill
from autoturbo.verify.weights import ValueSource, stored_tensors, value_sources

if TYPE_CHECKING:
    from collections.abc import Sequence


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
        ("Pow", ["x", "e"], {"e": given(np.float32(2))}),
        ("Add", ["x", "epsilon"], {"epsilon": given(np.full(1, 1e-5, np.float32))}),
        ("Add", ["x", "mask"], {"mask": given(np.triu(np.full((8, 8), -1e9, np.float32), 1))}),
        ("Where", ["c", "x", "low"], {"c": given(np.eye(8, dtype=bool)), "low": ones(1)}),
        ("Reshape", ["x", "shape"], {"shape": given(np.array([2, -1]))}),
        ("Gather", ["x", "i"], {"i": given(np.array([3, 1, 2]))}),
        ("Gather", ["factors", "i"], {"factors": given(np.array([1, 1, 2, 2], np.float32))}),
        ("Cast", ["extents"], {"extents": given(np.array([1, 4], np.float32))}),
        ("Resize", ["x", "", "scales"], {"scales": given(np.array([1, 1, 2, 2], np.float32))}),
        ("Pad", ["x", "pads", "value"], {"pads": given(np.zeros(8, np.int64)), "value": ones()}),
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
