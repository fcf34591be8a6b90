"""Damaged real files, and rarer shapes of models."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autoturbo.errors import ModelError
from autoturbo.graph.importer.shapes import foreign_types, upper_bounds
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.values import Step, Value, static_shape, tensor_type
from tests.graph.onnx_import.import_models import (
    BOOL,
    INT64,
    Load,
    graph,
    ints,
    kinds,
    mlp,
    model,
    node,
    out_shapes,
    shape_of,
    value,
    weight,
)
from tests.tiers import spread, tiered

if TYPE_CHECKING:
    from onnx import NodeProto

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


@pytest.mark.parametrize("seed", tiered(range(2), range(2, 14)))
def test_damage_to_a_real_file_gives_a_graph_or_one_line(seed: int, folder: Path) -> None:
    rng = np.random.default_rng(seed)
    data = bytearray((LIGHT / "light_zfnet512.onnx").read_bytes())
    for position in rng.integers(0, len(data), rng.integers(1, 6)):
        data[position] = rng.integers(0, 256)
    (folder / "model.onnx").write_bytes(bytes(data))
    try:
        result = import_model("model.onnx")
    except ModelError as error:
        line = str(error)
        good = line.startswith("model.onnx: ") and "\n" not in line
    else:
        good = bool(result.operators)
    assert good


def test_nothing_is_printed_logged_or_warned_of(
    load: Load, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    made = model(
        [node("Div", ["a", "b"], ["c"]), node("Add", ["x", "c"], ["y"])],
        [value("x", [2])],
        [value("y", None)],
        [
            numpy_helper.from_array(np.zeros(2, np.float32), "a"),
            numpy_helper.from_array(np.zeros(2, np.float32), "b"),
        ],
    )
    # Recorded, not turned into errors: threads that earlier tests gave up may still be under
    # filters of their own, and would put "error" back for the tests that follow.
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert kinds(load(made)) == ["Add"]
    assert not warned
    captured = capfd.readouterr()
    assert (captured.out, captured.err, caplog.records) == ("", "", [])


def test_branches_within_branches_are_inlined(load: Load) -> None:
    yes = numpy_helper.from_array(np.ones((), bool), "yes")
    inner = graph([node("Exp", ["x"], ["e"])], [], [value("e", None)])
    middle = graph(
        [
            node("If", ["yes"], ["m"], then_branch=inner, else_branch=inner),
            node("Neg", ["m"], ["n"]),
        ],
        [],
        [value("n", None)],
    )
    made = model(
        [node("If", ["yes"], ["y"], then_branch=middle, else_branch=middle)],
        [value("x", [3])],
        [value("y", None)],
        [yes],
    )
    assert kinds(load(made)) == ["Exp", "Neg"]


def test_a_condition_on_a_shape_is_known(load: Load) -> None:
    """What torch writes for ``squeeze`` of a dimension that may not be one."""
    squeezed = graph([node("Squeeze", ["x", "one"], ["s"])], [], [value("s", None)])
    kept = graph([node("Identity", ["x"], ["k"])], [], [value("k", None)])
    made = model(
        [
            node("Shape", ["x"], ["shape"]),
            node("Gather", ["shape", "one"], ["extent"]),
            node("Equal", ["extent", "one"], ["is_one"]),
            node("If", ["is_one"], ["h"], then_branch=squeezed, else_branch=kept),
            node("Relu", ["h"], ["y"]),
        ],
        [value("x", ["N", "C", 4])],
        [value("y", None)],
        [ints("one", 1)],
    )
    assert out_shapes(load(made, shapes={"x": [2, 1, 4]})) == [(2, 4)]
    assert out_shapes(load(made, shapes={"x": [2, 3, 4]})) == [(2, 3, 4)]
    assert kinds(load(made, shapes={"x": [2, 3, 4]})) == ["Relu"]


def test_a_body_reads_from_two_levels_up(load: Load) -> None:
    inner = graph([node("Add", ["far", "near"], ["i"])], [], [value("i", None)])
    outer = graph(
        [
            node("Neg", ["x"], ["near"]),
            node("If", ["c"], ["o"], then_branch=inner, else_branch=inner),
        ],
        [],
        [value("o", [3])],
    )
    made = model(
        [
            node("Exp", ["x"], ["far"]),
            node("If", ["c"], ["y"], name="outer", then_branch=outer, else_branch=outer),
        ],
        [value("x", [3]), value("c", [], BOOL)],
        [value("y", [3])],
    )
    result = load(made)
    chosen = next(operator for operator in result.operators if operator.name == "outer")
    assert [result.tensors[i].name for i in chosen.inputs] == ["c", "x", "far"]


def test_sparse_weights_are_constants(load: Load) -> None:
    made = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 8])], [value("y", None)])
    made.graph.sparse_initializer.append(
        helper.make_sparse_tensor(weight("w", 3), ints("", 0, 5, 9), [8, 4])
    )
    result = load(made)
    assert (kinds(result), shape_of(result, "w")) == (["MatMul"], (8, 4))


def test_an_output_that_is_an_input_or_a_weight_stays_an_output(load: Load) -> None:
    made = mlp(2)
    made.graph.output.extend([value("x", [2, 8]), value("w", [8, 4])])
    result = load(made)
    assert [result.tensors[index].name for index in result.outputs] == ["y", "x", "w"]


def test_old_opsets_import(load: Load) -> None:
    made = model(
        [
            node("Conv", ["x", "k"], ["c"], kernel_shape=[3, 3]),
            node("BatchNormalization", ["c", "s", "s", "s", "s"], ["b"], epsilon=1e-5),
            node("Slice", ["b"], ["p"], axes=[2], starts=[0], ends=[2]),
            node("Clip", ["p"], ["y"], min=0.0, max=6.0),
        ],
        [value("x", [1, 3, 8, 8])],
        [value("y", None)],
        [weight("k", 4, 3, 3, 3), weight("s", 4)],
        opset=7,
        ir=4,
    )
    result = load(made)
    assert kinds(result) == ["Conv", "BatchNormalization", "Slice", "Clip"]
    assert out_shapes(result) == [(1, 4, 2, 6)]


def test_quantised_models_import(load: Load) -> None:
    scale = numpy_helper.from_array(np.asarray(0.1, np.float32), "s")
    zero = numpy_helper.from_array(np.asarray(0, np.int8), "z")
    kernel = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.int8), "k")
    made = model(
        [
            node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            node("QLinearConv", ["q", "s", "z", "k", "s", "z", "s", "z"], ["c"]),
            node("DequantizeLinear", ["c", "s", "z"], ["y"]),
        ],
        [value("x", [1, 3, 8, 8])],
        [value("y", None)],
        [scale, zero, kernel],
    )
    result = load(made)
    assert out_shapes(result) == [(1, 4, 6, 6)]
    assert result.macs == 4 * 36 * 27
    assert {t.name: t.dtype for t in result.tensors}["q"] == "int8"


def test_weights_quantised_in_the_file_fold_to_floats(load: Load) -> None:
    made = model(
        [node("DequantizeLinear", ["k", "s"], ["w"]), node("MatMul", ["x", "w"], ["y"])],
        [value("x", [2, 8])],
        [value("y", None)],
        [
            numpy_helper.from_array(np.ones((8, 4), np.int8), "k"),
            numpy_helper.from_array(np.asarray(0.1, np.float32), "s"),
        ],
    )
    result = load(made)
    assert kinds(result) == ["MatMul"]
    assert {t.name: t.dtype for t in result.tensors}["w"] == "float32"


# ------------------------------------------------------------- rules for operators on their own


def step(made: NodeProto, *shapes: tuple[int, ...], kind: int = 1) -> Step:
    values: list[Value | None] = [
        Value(f"i{k}", tensor_type(kind, shape)) for k, shape in enumerate(shapes)
    ]
    return Step(made, "s", values, [], [])


def foreign(kind: str, outputs: int = 1, **attributes: int) -> NodeProto:
    made = node(kind, [], [f"o{k}" for k in range(outputs)], domain="com.microsoft")
    made.attribute.extend(helper.make_attribute(name, n) for name, n in attributes.items())
    return made


@pytest.mark.parametrize(
    ("made", "shapes", "expected"),
    spread(
        [
            (foreign("QuickGelu"), [(2, 3)], (2, 3)),
            (foreign("FusedMatMul", transA=1), [(4, 7, 2), (4, 7, 3)], (4, 2, 3)),
            (foreign("FusedGemm", transB=1), [(2, 7), (3, 7)], (2, 3)),
            (foreign("QLinearAdd"), [(2, 1), (), (), (2, 5)], (2, 5)),
            (foreign("MatMulNBits", N=9), [(2, 4, 8)], (2, 4, 9)),
            (foreign("Attention"), [(2, 4, 8), (8, 18)], (2, 4, 6)),
        ],
        3,
    ),
)
def test_foreign_shapes(
    made: NodeProto, shapes: list[tuple[int, ...]], expected: tuple[int, ...]
) -> None:
    assert static_shape(foreign_types(step(made, *shapes))["o0"]) == expected


def test_foreign_operators_that_are_not_known_have_no_type() -> None:
    assert foreign_types(step(foreign("Novel"), (2, 3))) == {}
    assert foreign_types(step(foreign("MultiHeadAttention"), (2, 3))) == {}
    assert foreign_types(step(foreign("MultiHeadAttention"), (2, 3), (2, 3), (2, 3))) == {}
    assert foreign_types(step(node("Gelu", [], ["o"]), (2, 3))) == {}
    assert foreign_types(step(foreign("Gelu"))) == {}


def test_the_sum_of_a_skip_normalisation_has_the_same_shape() -> None:
    types = foreign_types(step(foreign("SkipLayerNormalization", outputs=4), (2, 3), (2, 3)))
    assert set(types) == {"o0", "o3"}


def test_bounds_of_extents() -> None:
    def bound(made: NodeProto, *shapes: tuple[int, ...]) -> tuple[int, ...] | None:
        types = {"y": value("y", [None]).type}
        kind = upper_bounds(step(made, *shapes), types).get("y")
        return None if kind is None else static_shape(kind)

    assert bound(node("NonZero", ["x"], ["y"]), (3, 4)) == (2, 12)
    assert bound(node("NonZero", ["x"], ["y"]), ()) == (1, 1)
    assert bound(node("Compress", ["x", "c"], ["y"], axis=1), (3, 4), (4,)) == (3, 4)
    assert bound(node("NonMaxSuppression", ["b", "s"], ["y"]), (1, 9, 4), (1, 2, 9)) == (18, 3)
    assert bound(node("NonMaxSuppression", ["b", "s"], ["y"]), (9, 4), (2, 9)) is None
    assert bound(node("Relu", ["x"], ["y"]), (3, 4)) is None
    assert bound(node("NonZero", ["x"], ["y"], domain="org.acme"), (3, 4)) is None


def test_the_other_outputs_of_unique_are_vectors() -> None:
    types = {name: value(name, [None], INT64).type for name in ("y", "i", "j", "n")}
    made = node("Unique", ["x"], list(types), axis=0)
    bounds = upper_bounds(step(made, (3, 4)), types)
    assert static_shape(bounds["y"]) == (3, 4)
    assert len(static_shape(bounds["n"]) or ()) == 1
