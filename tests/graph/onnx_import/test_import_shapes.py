"""Shapes that ONNX's inference does not give: bodies, classical models, negative axes of old."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, helper, numpy_helper, save

from autoturbo.errors import ModelError
from autoturbo.graph.model_nodes import load_nodes
from autoturbo.graph.onnx_import import import_model
from autoturbo.verifier.execution import plain_model
from tests.graph.onnx_import.import_models import Load, ints, kinds, model, node, value, weight

CLASSICAL = "ai.onnx.ml"


def _run(made: ModelProto, x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(made.SerializeToString(), options)
    return list(map(np.asarray, session.run(None, {"x": x})))


def _check(made: ModelProto, extents: list[int], path: Path) -> None:
    """The outputs have the shapes and types that ONNX Runtime gives, and the same numbers."""
    x = np.random.default_rng(3).normal(size=extents).astype(np.float32)
    expected = _run(made, x)
    save(made, path)
    graph = import_model(path)
    found = [graph.tensors[t] for t in graph.outputs]
    assert [tensor.shape for tensor in found] == [array.shape for array in expected]
    assert [tensor.dtype for tensor in found] == [str(array.dtype) for array in expected]
    for again, array in zip(_run(plain_model(load_nodes(path)), x), expected, strict=True):
        np.testing.assert_array_equal(again, array)


def _behind_relu(
    op_type: str, *others: str, opset: int, outputs: int = 1, domain: str = "",
    extents: list[int], attributes: Mapping[str, Any],
) -> ModelProto:  # fmt: skip
    names = [f"y{k}" for k in range(outputs)]
    last = node(op_type, ["r", *others], names, domain=domain, name="it", **attributes)
    stored = [
        ints("one", 1), ints("three", 3), ints("last", -1), ints("two", 2), ints("picks", 0, 2),
        numpy_helper.from_array(np.array(0.5, np.float32), "half"),
        numpy_helper.from_array(np.zeros((2, 4, 6, 1), np.int64), "places"),
        numpy_helper.from_array(np.ones((2, 4, 6, 1), np.float32), "put"),
        numpy_helper.from_array(np.array([1, 0, 1, 1], bool), "chosen"), weight("twelve", 12),
    ]  # fmt: skip
    stored = [tensor for tensor in stored if tensor.name in others]
    made = model(
        [node("Relu", ["x"], ["r"]), last], [value("x", extents)],
        [helper.make_empty_tensor_value_info(name) for name in names], stored,
        opset=opset, ir=4 if opset < 11 else 8,
    )  # fmt: skip
    made.opset_import.extend([helper.make_opsetid(CLASSICAL, 2)] if domain else [])
    return made


@pytest.mark.parametrize("opset", [12, 13, 15, 16])
@pytest.mark.parametrize("op_type", ["LessOrEqual", "GreaterOrEqual"])
def test_operators_that_a_body_defines_have_its_shape(
    op_type: str, opset: int, tmp_path: Path
) -> None:
    made = _behind_relu(op_type, "half", opset=opset, extents=[4, 8], attributes={})
    _check(made, [4, 8], tmp_path / "model.onnx")


def test_a_body_that_does_not_fit_is_an_error(load: Load) -> None:
    made = _behind_relu("LessOrEqual", "twelve", opset=12, extents=[4, 8], attributes={})
    with pytest.raises(ModelError) as caught:
        load(made)
    assert caught.value.at.field == "it"


@pytest.mark.parametrize(
    ("op_type", "opset"),
    [
        ("MeanVarianceNormalization", 12),
        ("MeanVarianceNormalization", 13),
        ("GroupNormalization", 21),
    ],
)
def test_normalisations_keep_their_shape(op_type: str, opset: int, load: Load) -> None:
    scales = ["s", "s"] if op_type == "GroupNormalization" else []
    given: dict[str, Any] = {"num_groups": 2} if scales else {}
    made = model(
        [node(op_type, ["x", *scales], ["y"], **given)], [value("x", [2, 4, 5, 5])],
        [value("y", None)], [weight("s", 4)], opset=opset,
    )  # fmt: skip
    graph = load(made)
    assert graph.tensors[graph.outputs[0]].shape == (2, 4, 5, 5)


TREE: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
    "nodes_missing_value_tracks_true": [0, 0, 0],
}  # fmt: skip
SUPPORT: dict[str, Any] = {
    "kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0], "rho": [0.0],
}  # fmt: skip

MODELS: dict[str, tuple[int, dict[str, Any]]] = {
    "Scaler": (1, {"offset": [0.0, 1.0, 0.0], "scale": [2.0, 1.0, 1.0]}),
    "Imputer": (1, {"imputed_value_floats": [0.5], "replaced_value_float": 0.0}),
    "Normalizer": (1, {"norm": "L2"}),
    "LinearRegressor": (
        1,
        {"coefficients": [1.0] * 6, "intercepts": [0.0, 0.5], "targets": 2},
    ),
    "SVMRegressor": (1, {**SUPPORT, "coefficients": [1.0] * 3, "n_supports": 0}),
    "TreeEnsembleRegressor": (
        1,
        {
            **TREE,
            "target_treeids": [0, 0],
            "target_nodeids": [1, 2],
            "target_ids": [0, 1],
            "target_weights": [1.0, 2.0],
            "n_targets": 2,
        },
    ),
    "FeatureVectorizer": (1, {"inputdimensions": [3]}),
    "SVMClassifier": (2, {**SUPPORT, "coefficients": [1.0] * 6, "classlabels_ints": [3, 5]}),
    "TreeEnsembleClassifier": (
        2,
        {
            **TREE,
            "class_treeids": [0, 0],
            "class_nodeids": [1, 2],
            "class_ids": [0, 1],
            "class_weights": [1.0, 1.0],
            "classlabels_int64s": [3, 5],
        },
    ),
}


@pytest.mark.parametrize("op_type", MODELS)
def test_classical_models_have_shapes(op_type: str, tmp_path: Path) -> None:
    outputs, attributes = MODELS[op_type]
    made = _behind_relu(
        op_type, opset=12, outputs=outputs, domain=CLASSICAL, extents=[5, 3], attributes=attributes
    )
    _check(made, [5, 3], tmp_path / "model.onnx")


# -------------------------------------------------------------------------------- negative axes

NEGATIVE: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "Concat": (("r",), {"axis": -1}),
    "Slice": ((), {"axes": [-1, -3], "starts": [1, 0], "ends": [3, 2]}),
    "Split": ((), {"axis": -2}),
    "Squeeze": ((), {"axes": [-2]}),
    "Unsqueeze": ((), {"axes": [-2, 0]}),
    "Gather": (("picks",), {"axis": -1}),
    "ArgMax": ((), {"axis": -1}),
    "ReduceSum": ((), {"axes": [-1, -2], "keepdims": 0}),
    "Softmax": ((), {"axis": -2}),
    "LogSoftmax": ((), {"axis": -1}),
    "TopK": ((), {"axis": -1, "k": 2}),
    "LpNormalization": ((), {"axis": -1}),
    "Scatter": (("places", "put"), {"axis": -1}),
    "Compress": (("chosen",), {"axis": -2}),
}


@pytest.mark.parametrize("op_type", NEGATIVE)
def test_a_negative_axis_before_opset_11_counts_from_the_last(op_type: str, tmp_path: Path) -> None:
    others, attributes = NEGATIVE[op_type]
    extents = [2, 4, 1, 4] if op_type == "Squeeze" else [2, 4, 6, 4]
    made = _behind_relu(
        op_type, *others, opset=9, outputs=2 if op_type in ("Split", "TopK") else 1,
        extents=extents, attributes=attributes,
    )  # fmt: skip
    if op_type == "Compress":  # its extent is taken at its largest
        save(made, tmp_path / "model.onnx")
        assert kinds(import_model(tmp_path / "model.onnx")) == ["Relu", "Compress"]
    else:
        _check(made, extents, tmp_path / "model.onnx")


def test_negative_axes_that_are_an_input_count_from_the_last_too(tmp_path: Path) -> None:
    made = _behind_relu(
        "Slice", "one", "three", "last", opset=10, extents=[2, 4, 6, 4], attributes={}
    )
    _check(made, [2, 4, 6, 4], tmp_path / "model.onnx")


# ---------------------------------------------------------------------------------- shared names


def test_a_name_that_nodes_share_is_noted_in_one_line(load: Load) -> None:
    made = model(
        [
            node("Relu", ["x"], ["a"], name="same"),
            node("Neg", ["a"], ["b"], name="same"),
            node("Exp", ["b"], ["y"], name="other"),
        ],
        [value("x", [2, 3])],
        [value("y", None)],
    )
    graph = load(made)
    assert graph.notes == ("the node name 'same' is not unique: ONNX Runtime refuses the file",)
    assert [operator.name for operator in graph.operators] == ["same", "same_2", "other"]


def test_constants_may_share_a_name(load: Load) -> None:
    """ONNX Runtime runs such files, which the converter of a voice detector writes."""
    made = model(
        [
            node("Constant", [], ["one"], name="same", value_float=1.0),
            node("Constant", [], ["two"], name="same", value_float=2.0),
            node("Add", ["x", "one"], ["a"]),
            node("Mul", ["a", "two"], ["y"]),
        ],
        [value("x", [2, 3])],
        [value("y", None)],
    )
    assert load(made).notes == ()
    onnxruntime.InferenceSession(made.SerializeToString())
