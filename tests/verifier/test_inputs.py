from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from autoturbo.datasets import workloads
from autoturbo.errors import ModelError
from autoturbo.verifier.random_values import LIMITS_KEY, index_ranges, random_inputs
from autoturbo.verifier.weight_values import Array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INT = TensorProto.INT64


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    **stored: Any,
) -> ModelProto:
    """A model whose inputs are given as element type and extents; arrays are initializers."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value(name, element, shape) for name, (element, shape) in inputs.items()],
        [],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def only(element: int, shape: Sequence[int], seed: int = 0) -> Array:
    """The values of an input ``x`` that is only negated."""
    return random_inputs(model([node("Neg", "x")], {"x": (element, shape)}), seed)["x"]


def node(kind: str, *inputs: str, out: str = "y", **attributes: Any) -> Any:
    return helper.make_node(kind, inputs, [out], **attributes)


TABLE = np.zeros((50, 4), np.float32)


@pytest.mark.parametrize(
    ("nodes", "stored", "expected"),
    [
        ([node("Gather", "t", "i")], {"t": TABLE}, range(50)),
        ([node("Gather", "t", "i", axis=1)], {"t": TABLE}, range(4)),
        pytest.param(
            [node("GatherElements", "t", "i", axis=-1)],
            {"t": TABLE},
            range(4),
            marks=pytest.mark.full,
        ),
        ([node("GatherND", "t", "i")], {"t": TABLE}, range(4)),
        pytest.param(
            [node("ScatterElements", "t", "i", "u")],
            {"t": TABLE, "u": TABLE},
            range(50),
            marks=pytest.mark.full,
        ),
        ([node("OneHot", "i", "d", "v")], {"d": 12, "v": [0.0, 1.0]}, range(12)),
        (
            [
                node("Cast", "i", out="a", to=TensorProto.INT32),
                node("Unsqueeze", "a", "axes", out="b"),
                node("Concat", "b", "b", out="c", axis=0),
                node("Slice", "c", "from", "to", out="d"),
                node("Gather", "t", "d"),
            ],
            {"t": TABLE, "axes": [0], "from": [0], "to": [1]},
            range(50),
        ),
        (
            [node("Gather", "t", "i", out="a"), node("Gather", "s", "i", out="b")],
            {"t": TABLE, "s": TABLE[:9]},
            range(9),
        ),
        (
            [node("Add", "offsets", "i", out="a"), node("Gather", "t", "a")],
            {"t": TABLE, "offsets": [0, 20, 40]},
            range(10),
        ),
        (
            [node("Sub", "i", "two", out="a"), node("Gather", "t", "a")],
            {"t": TABLE, "two": 2},
            range(2, 52),
        ),
    ],
)
def test_indices_stay_within_what_they_look_up(
    nodes: list[Any], stored: dict[str, Any], expected: range
) -> None:
    made = model(nodes, {"i": (INT, (3,))}, **stored)
    assert index_ranges(made, {"i": (3,)}) == {"i": expected}
    values = random_inputs(made, 0, {"i": (1000,)})["i"]
    assert expected.start <= values.min() <= values.max() < expected.stop
    assert len(np.unique(values)) >= min(4, expected.stop - expected.start)


def test_each_input_of_an_embedding_stays_within_its_own_table() -> None:
    embedding = node(
        "EmbedLayerNormalization", "words", "kinds", "w", "p", "s", "gamma", "beta",
        domain="com.microsoft",
    )  # fmt: skip
    made = model(
        [embedding], {"words": (INT, (2, 6)), "kinds": (INT, (2, 6))},
        w=TABLE, p=TABLE[:6], s=TABLE[:3], gamma=TABLE[0], beta=TABLE[0],
    )  # fmt: skip
    ranges = index_ranges(made, {})
    assert ranges == {"words": range(len(TABLE)), "kinds": range(3)}


@pytest.mark.parametrize(
    ("past", "total", "given", "expected"),
    [
        (7, "total", {}, (8, 9)),
        (0, "total", {}, (1, 2)),
        (7, "total", {"total": (4.0,)}, (3, 4)),
        (7, "stored", {}, (5, None)),
    ],
)
def test_lengths_of_samples_go_with_each_other_and_with_the_extents(
    past: int, total: str, given: Mapping[str, tuple[float, ...]], expected: tuple[int, int | None]
) -> None:
    """They were ones and zeros, which ONNX Runtime refuses."""
    caches = {"k": (1, (3, 2, past, 8)), "v": (1, (3, 2, past, 8))} if past else {}
    names = ["q", "", "", *(["k", "v"] if past else ["", ""]), "last", total]
    lengths: dict[str, Any] = {"ends": (INT, (3,))} | (
        {"total": (INT, (1,))} if total == "total" else {}
    )
    made = model(
        [
            node("Identity", "asked", out="q"),
            node("Sub", "ends", "one", out="less"),
            node("Cast", "less", out="last", to=TensorProto.INT32),
            node("GroupQueryAttention", *names, domain="com.microsoft"),
        ],
        {"asked": (1, (3, "rows", 64)), **caches, **lengths},
        one=np.ones(1, np.int64),
        stored=np.asarray(6, np.int32),
    )
    found = random_inputs(made, 0, {"asked": (3, 2, 64), "q": (3, 2, 64)}, (), given)
    assert found["ends"].tolist() == [expected[0] + 1] * 3
    if expected[1] is not None and not given:
        assert found["total"].tolist() == [expected[1]]


def test_a_table_may_be_computed() -> None:
    nodes = [node("Relu", "x", out="t"), node("Gather", "t", "i", axis=1)]
    made = model(nodes, {"x": (TensorProto.FLOAT, (2, 30)), "i": (INT, (5,))})
    assert index_ranges(made, {"x": (2, 30), "i": (5,)}) == {"i": range(30)}


@pytest.mark.parametrize("name", ["dlrm", pytest.param("bert_base_s128", marks=pytest.mark.full)])
def test_the_graph_tells_what_the_workloads_metadata_says(name: str) -> None:
    file = onnx.load(workloads.get(name).file, load_external_data=False)
    limits = json.loads({e.key: e.value for e in file.metadata_props}[LIMITS_KEY])
    found = index_ranges(file, {})
    assert found
    assert {key: [r.start, r.stop] for key, r in found.items()} == {k: limits[k] for k in found}


def test_metadata_wins_over_the_graph() -> None:
    made = model([node("Gather", "t", "i")], {"i": (INT, (1000,))}, t=TABLE)
    helper.set_model_props(made, {LIMITS_KEY: json.dumps({"i": [30, 33]})})
    assert set(random_inputs(made, 0)["i"].tolist()) == {30, 31, 32}


@pytest.mark.parametrize("element", [TensorProto.BOOL, TensorProto.INT64])
def test_masks_have_both_values_in_every_row(element: int) -> None:
    mask = only(element, (200, 4)).astype(int)
    assert set(np.unique(mask)) == {0, 1}
    assert set(mask.sum(axis=1).tolist()) <= {1, 2, 3}
    assert len(np.unique(mask, axis=0)) == 4


def test_bytes_that_index_nothing_are_numbers() -> None:
    assert len(np.unique(only(TensorProto.UINT8, (10_000,)))) == 256
    assert only(TensorProto.INT8, (10_000,)).min() == -128


@pytest.mark.parametrize("element", [TensorProto.FLOAT16])
def test_floats_are_standard_normal_and_of_the_inputs_type(element: int) -> None:
    values = only(element, (100, 100))
    assert values.dtype == helper.tensor_dtype_to_np_dtype(element)
    assert float(values.astype(float).mean()) == pytest.approx(0, abs=0.05)
    assert float(values.astype(float).std()) == pytest.approx(1, abs=0.05)


def test_values_depend_on_the_seed_and_the_name_alone() -> None:
    element, shape = TensorProto.FLOAT, (8,)
    assert np.array_equal(only(element, shape, 1), only(element, shape, 1))
    assert not np.array_equal(only(element, shape, 1), only(element, shape, 2))
    pair = model([node("Add", "a", "x")], {"a": (element, shape), "x": (element, shape)})
    both = random_inputs(pair, 1)
    assert np.array_equal(both["x"], only(element, shape, 1))
    assert not np.array_equal(both["a"], both["x"])


def test_initializers_listed_as_inputs_get_no_values() -> None:
    element = TensorProto.FLOAT
    made = model([node("Add", "x", "w")], {"x": (element, (2,)), "w": (element, (2,))}, w=[1.0, 2])
    assert list(random_inputs(made, 0)) == ["x"]


def test_weights_given_as_inputs_are_drawn_as_weights() -> None:
    element = TensorProto.FLOAT
    names = ["scale", "bias", "mean", "variance"]
    inputs = {"x": (element, (2, 500, 4)), **dict.fromkeys(names, (element, (500,)))}
    made = model([node("BatchNormalization", "x", *names)], inputs)
    values = random_inputs(made, 0, parameters=names)
    assert 0.5 <= values["variance"].min() <= values["variance"].max() <= 1.5
    assert float(values["scale"].mean()) == pytest.approx(1, abs=0.05)
    assert float(np.abs(values["mean"]).max()) < 0.2


def test_shapes_that_are_given_replace_the_files() -> None:
    made = model([node("Neg", "x")], {"x": (TensorProto.FLOAT, ("batch", 3))})
    assert random_inputs(made, 0, {"x": (5, 3)})["x"].shape == (5, 3)


def test_a_shape_that_nobody_knows_is_refused_by_name() -> None:
    made = model([node("Neg", "x")], {"x": (TensorProto.FLOAT, ("batch", 3))})
    with pytest.raises(ModelError) as caught:
        random_inputs(made, 0)
    assert caught.value.at.field == "x"


def test_text_is_refused_by_name() -> None:
    with pytest.raises(ModelError) as caught:
        only(TensorProto.STRING, (3,))
    assert caught.value.at.field == "x"
