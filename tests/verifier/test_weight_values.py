from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from autoturbo.verifier import weight_values
from tests.tiers import spread

if TYPE_CHECKING:
    from collections.abc import Sequence


def without_values(name: str, dims: Sequence[int], element: int = TensorProto.FLOAT) -> TensorProto:
    tensor = TensorProto(name=name, dims=dims, data_type=element)
    tensor.data_location = TensorProto.EXTERNAL
    return tensor


def one_node(
    kind: str, dims: Sequence[int], position: int, **attributes: Any
) -> weight_values.Fill:
    inputs = ["x"] * position + ["w"]
    node = helper.make_node(kind, inputs, ["y"], **attributes)
    graph = helper.make_graph([node], "one", [], [], [without_values("w", dims)])
    return weight_values.fills(graph)["w"]


@pytest.mark.parametrize(
    ("kind", "position", "expected"),
    spread(
        [
            ("BatchNormalization", 1, weight_values.SCALE),
            ("BatchNormalization", 2, weight_values.BIAS),
            ("BatchNormalization", 3, weight_values.BIAS),
            ("BatchNormalization", 4, weight_values.VARIANCE),
            ("LayerNormalization", 1, weight_values.SCALE),
            ("LayerNormalization", 2, weight_values.BIAS),
            ("Mul", 1, weight_values.SCALE),
            ("RMSNormalization", 1, weight_values.SCALE),
            ("Div", 1, weight_values.SCALE),
            ("Add", 1, weight_values.BIAS),
            ("Conv", 2, weight_values.BIAS),
        ],
        4,
    ),
)
def test_vectors_are_filled_by_what_reads_them(
    kind: str, position: int, expected: weight_values.Fill
) -> None:
    assert one_node(kind, (512,), position) == expected


@pytest.mark.parametrize(
    ("kind", "dims", "attributes", "fan_in", "gain"),
    spread(
        [
            ("Conv", (64, 32, 3, 3), {}, 288, 2.0),
            ("MatMul", (100, 400), {}, 100, 1.0),
            ("Gemm", (100, 400), {}, 100, 1.0),
            ("Gemm", (100, 400), {"transB": 1}, 400, 1.0),
            ("ConvTranspose", (64, 32, 2, 2), {}, 256, 2.0),
            ("ConvTranspose", (64, 32, 2, 2), {"group": 4}, 64, 2.0),
        ],
        3,
    ),
)
def test_matrices_are_scaled_by_their_fan_in(
    kind: str, dims: Sequence[int], attributes: dict[str, int], fan_in: int, gain: float
) -> None:
    fill = one_node(kind, dims, 1, **attributes)
    assert fill.mean == 0.0
    assert fill.spread == pytest.approx((gain / fan_in) ** 0.5)


def test_drawn_values_have_the_fills_mean_spread_and_sign() -> None:
    generator = np.random.default_rng(0)
    normal = weight_values.drawn(generator, weight_values.Fill(1.0, 0.1), 100_000)
    assert normal.mean() == pytest.approx(1.0, abs=0.01)
    assert normal.std() == pytest.approx(0.1, rel=0.02)
    variances = weight_values.drawn(generator, weight_values.VARIANCE, 100_000)
    assert 0.5 <= variances.min() <= variances.max() <= 1.5


@pytest.mark.parametrize(
    ("view", "attributes", "fan_in"),
    spread(
        [
            ("Transpose", {}, 400),
            ("Transpose", {"perm": [1, 0]}, 400),
            ("Identity", {}, 100),
            ("Cast", {"to": TensorProto.FLOAT16}, 100),
            ("DequantizeLinear", {}, 100),
        ],
        3,
    ),
)
def test_weights_are_followed_through_views(
    view: str, attributes: dict[str, Any], fan_in: int
) -> None:
    nodes = [
        helper.make_node(view, ["w", "s"][: 1 + (view == "DequantizeLinear")], ["v"], **attributes),
        helper.make_node("MatMul", ["x", "v"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "two", [], [], [without_values("w", (100, 400))])
    assert weight_values.fills(graph)["w"].spread == pytest.approx(fan_in**-0.5)


def test_readers_in_bodies_of_control_flow_count() -> None:
    body = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "body", [], [])
    node = helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body)
    graph = helper.make_graph([node], "outer", [], [], [without_values("w", (25, 7))])
    found = weight_values.readings(graph, {"w": (25, 7)})["w"]
    assert {(reading.kind, reading.position) for reading in found} == {("MatMul", 1)}
    assert weight_values.fills(graph)["w"].spread == pytest.approx(0.2)


def values(element: int, fill: weight_values.Fill, count: int) -> bytes:
    return b"".join(weight_values.pieces(without_values("w", (count,), element), fill, 7))


@pytest.mark.parametrize(
    ("element", "dtype"),
    spread(
        [
            (TensorProto.FLOAT, np.float32),
            (TensorProto.DOUBLE, np.float64),
            (TensorProto.FLOAT16, np.float16),
            (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
        ],
        4,
    ),
)
def test_all_float_types_get_the_same_values_as_near_as_they_can(element: int, dtype: Any) -> None:
    wanted = np.frombuffer(values(TensorProto.FLOAT, weight_values.SCALE, 1000), np.float32)
    made = np.frombuffer(values(element, weight_values.SCALE, 1000), dtype)
    assert made.astype(np.float32) == pytest.approx(wanted, rel=2.0**-8)


def test_integers_are_rounded_and_stay_within_their_range() -> None:
    made = np.frombuffer(values(TensorProto.INT8, weight_values.Fill(100.0, 40.0), 10_000), np.int8)
    assert made.max() == 127
    assert float(np.median(made)) == pytest.approx(100, abs=2)


def test_four_bit_integers_are_packed_two_to_the_byte() -> None:
    made = np.frombuffer(values(TensorProto.UINT4, weight_values.Fill(8.0, 2.0), 1000), np.uint8)
    digits = np.concatenate([made & 15, made >> 4])
    assert made.size == 500
    assert float(digits.mean()) == pytest.approx(8, abs=0.3)


def test_uniform_whole_numbers_reach_both_ends_and_no_further() -> None:
    fill = weight_values.Fill(4.5, 4.5, uniform=True)
    made = np.frombuffer(values(TensorProto.INT64, fill, 1000), np.int64)
    assert set(made.tolist()) == set(range(10))


def test_booleans_are_of_both_kinds() -> None:
    fill = weight_values.Fill(0.5, 0.5, uniform=True)
    made = np.frombuffer(values(TensorProto.BOOL, fill, 1000), np.bool_)
    assert 400 < int(made.sum()) < 600


def test_a_transposition_behind_a_reshape_need_not_fit_the_stored_extents() -> None:
    nodes = [
        helper.make_node("Reshape", ["w", "shape"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "t"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "net", [], [], [without_values("w", (6, 4))])
    assert weight_values.fills(graph)["w"] == weight_values.Fill(0.0, (1 / 6) ** 0.5)
