"""What folds away, what is opaque, what order and names come out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autoturbo.errors import ModelError
from autoturbo.graph.importer.external_data import INDICES
from autoturbo.graph.importer.fold import Folder
from autoturbo.graph.values import Value, tensor_type
from tests.graph.onnx_import.import_models import (
    BOOL,
    FLOAT,
    INT64,
    graph,
    ints,
    kinds,
    mlp,
    model,
    node,
    out_shapes,
    scalar,
    shape_of,
    value,
    weight,
)
from tests.tiers import spread, tiered

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

    from tests.graph.onnx_import.import_models import Load


def reshape_by_shape_of_input() -> ModelProto:
    """What the legacy exporter writes for ``x.view(x.size(0), -1)`` of a dynamic batch."""
    return model(
        [
            node("Shape", ["x"], ["s"]),
            node("Constant", [], ["zero"], value=scalar("", 0)),
            node("Gather", ["s", "zero"], ["n"], axis=0),
            node("Unsqueeze", ["n", "at"], ["n1"]),
            node("Concat", ["n1", "rest"], ["target"], axis=0),
            node("Reshape", ["x", "target"], ["h"]),
            node("MatMul", ["h", "w"], ["y"]),
        ],
        [value("x", ["N", 3, 4, 4])],
        [value("y", ["N", 5])],
        [ints("at", 0), ints("rest", -1), weight("w", 48, 5)],
    )


def test_computations_of_shapes_fold_away(load: Load) -> None:
    result = load(reshape_by_shape_of_input(), batch=6)
    assert kinds(result) == ["Reshape", "MatMul"]
    assert out_shapes(result) == [(6, 5)]


NEWEST = onnx.defs.onnx_opset_version()


@pytest.mark.parametrize("opset", tiered([5, 12, 13, NEWEST], [10, 17]))
def test_shape_arithmetic_folds_at_every_opset(opset: int, load: Load) -> None:
    """Reshape takes its shape as an input since opset 5, axes are an input since 13."""
    made = reshape_by_shape_of_input()
    made.opset_import[0].version = opset
    if opset < 13:
        lengthen = node("Unsqueeze", ["n"], ["n1"], axes=[0])
        made.graph.node[3].CopyFrom(lengthen)
    result = load(made, batch=6)
    assert kinds(result) == ["Reshape", "MatMul"]
    assert out_shapes(result) == [(6, 5)]


OLDER: dict[str, tuple[int, onnx.NodeProto, list[Any], list[Any]]] = {
    "axes": (12, node("Unsqueeze", ["a"], ["y"], axes=[0]), [[2, 3]], [[[2, 3]]]),
    "bounds": (10, node("Clip", ["a"], ["y"], min=1.0, max=2.0), [[0.0, 3.0]], [[1.0, 2.0]]),
    "widths": (10, node("Pad", ["a"], ["y"], pads=[1, 0]), [[5.0]], [[0.0, 5.0]]),
    "count": (9, node("TopK", ["a"], ["y", "z"], k=1), [[1.0, 4.0]], [[4.0], [1]]),
    "renamed": (10, node("Scatter", ["a", "b", "c"], ["y"]), [[1, 2], [1], [9]], [[1, 9]]),
    "broadcast": (
        6, node("Mul", ["a", "b"], ["y"], broadcast=1, axis=0),
        [[[1.0, 2.0], [3.0, 4.0]], [2.0, 3.0]], [[[2.0, 4.0], [9.0, 12.0]]],
    ),
    "one axis of all": (
        12, node("Softmax", ["a"], ["y"], axis=0), [[[1.0, 1.0], [1.0, 1.0]]], [[[0.25] * 2] * 2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", spread(OLDER, 3))
def test_older_definitions_of_operators_are_computed_as_they_were(case: str) -> None:
    opset, proto, given, wanted = OLDER[case]
    arrays = [np.asarray(v, np.float32 if isinstance(np.ravel(v)[0], float) else "i8")
              for v in given]  # fmt: skip
    inputs = [
        Value(name, tensor_type(helper.np_dtype_to_tensor_dtype(a.dtype), a.shape), True, a)  # noqa: FBT003
        for name, a in zip(proto.input, arrays, strict=True)
    ]
    results = Folder({"": opset}).evaluate(proto, inputs)
    for result, numbers in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(result, numbers)


def test_an_error_names_the_operator_that_could_not_be_computed_and_why(load: Load) -> None:
    made = reshape_by_shape_of_input()
    made.graph.node[2].CopyFrom(node("Gather", ["s", "far"], ["n"], name="pick", axis=0))
    made.graph.initializer.append(scalar("far", 9))
    with pytest.raises(ModelError) as caught:
        load(made, batch=6)
    assert str(caught.value).startswith(
        "model.onnx: pick: Gather of opset 17 was not computed (IndexError: "
    )
    assert "and the shape of 'h' depends on it" in str(caught.value)


def test_an_error_names_the_constant_that_is_too_large_to_be_computed(load: Load) -> None:
    made = model(
        [
            node("ReduceMax", ["table"], ["m"], name="widest", keepdims=0),
            node("Reshape", ["m", "one"], ["n"]),
            node("Expand", ["x", "n"], ["y"]),
        ],
        [value("x", [1])],
        [value("y", None)],
        [ints("table", *range(INDICES + 1)), ints("one", 1)],
    )
    with pytest.raises(ModelError) as caught:
        load(made)
    assert caught.value.at.field == "widest"


def test_long_chains_of_shape_arithmetic_fold_away(load: Load) -> None:
    made = model(
        [
            node("Shape", ["x"], ["s"], start=1, end=3),
            node("Cast", ["s"], ["f"], to=FLOAT),
            node("Mul", ["f", "two"], ["d"]),
            node("Floor", ["d"], ["e"]),
            node("Cast", ["e"], ["i"], to=INT64),
            node("Size", ["x"], ["n"]),
            node(
                "ConstantOfShape", ["i"], ["ones"], value=numpy_helper.from_array(np.ones(1, "f4"))
            ),
            node("ReduceSum", ["ones"], ["total"], keepdims=0),
            node("Expand", ["x", "wide"], ["y0"]),
            node("Add", ["y0", "total"], ["y"]),
        ],
        [value("x", [1, 2, 3])],
        [value("y", None)],
        [numpy_helper.from_array(np.asarray(2, "f4"), "two"), ints("wide", 4, 2, 3)],
    )
    result = load(made)
    assert kinds(result) == ["Expand", "Add"]
    assert out_shapes(result) == [(4, 2, 3)]


def test_weights_computed_from_weights_fold_without_being_made(load: Load) -> None:
    made = model(
        [
            node("ConstantOfShape", ["shape"], ["w0"]),
            node("Transpose", ["w0"], ["w1"], perm=[1, 0]),
            node("RandomNormal", [], ["noise"], shape=[8, 50000]),
            node("Add", ["w1", "noise"], ["w"]),
            node("MatMul", ["x", "w"], ["y"]),
        ],
        [value("x", [2, 8])],
        [value("y", None)],
        [ints("shape", 50000, 8)],
    )
    result = load(made)
    assert kinds(result) == ["MatMul"]
    assert result.operators[0].parameterised
    assert [t.constant for t in result.tensors] == [False, True, False]
    assert shape_of(result, "w") == (8, 50000)


def test_noise_shaped_like_an_input_is_no_weight(load: Load) -> None:
    made = model(
        [node("RandomNormalLike", ["x"], ["n"]), node("Add", ["x", "n"], ["y"])],
        [value("x", [2, 8])],
        [value("y", None)],
    )
    assert kinds(load(made)) == ["RandomNormalLike", "Add"]


@pytest.mark.parametrize(
    "stored",
    [
        {"value": ints("", 3, 4)},
        {"value_ints": [3, 4]},
    ],
)
def test_constants_of_every_spelling_are_read(load: Load, stored: dict[str, Any]) -> None:
    made = model(
        [node("Constant", [], ["t"], **stored), node("Reshape", ["x", "t"], ["y"])],
        [value("x", [2, 6])],
        [value("y", None)],
    )
    assert out_shapes(load(made)) == [(3, 4)]


@pytest.mark.parametrize(
    ("spelling", "shape"),
    [
        ({"value_float": 2.0}, ()),
        ({"value_floats": [2.0, 3.0]}, (2,)),
        ({"value_int": 2}, ()),
    ],
)
def test_plain_numbers_are_constants(
    load: Load, spelling: dict[str, Any], shape: tuple[int, ...]
) -> None:
    kind = INT64 if "value_int" in spelling else FLOAT
    made = model(
        [node("Constant", [], ["c"], **spelling), node("Mul", ["x", "c"], ["y"])],
        [value("x", [3, 2], kind)],
        [value("y", None, kind)],
    )
    result = load(made)
    assert kinds(result) == ["Mul"]
    assert shape_of(result, "c") == shape


def test_identities_and_dropouts_disappear(load: Load) -> None:
    made = model(
        [
            node("Identity", ["x"], ["a"]),
            node("Dropout", ["a", "ratio", "training"], ["b", "mask"]),
            node("Relu", ["b"], ["c"]),
            node("Dropout", ["c"], ["y"]),
        ],
        [value("x", [2])],
        [value("y", [2])],
        [
            numpy_helper.from_array(np.asarray(0.5, "f4"), "ratio"),
            numpy_helper.from_array(np.zeros((), bool), "training"),
        ],
    )
    result = load(made)
    assert kinds(result) == ["Relu"]
    assert [result.tensors[i].name for i in result.outputs] == ["c"]


def test_a_dropout_that_trains_or_shows_its_mask_stays(load: Load) -> None:
    made = model(
        [node("Dropout", ["x"], ["y", "mask"])],
        [value("x", [2])],
        [value("y", [2]), value("mask", [2], BOOL)],
    )
    assert kinds(load(made)) == ["Dropout"]
    training = model(
        [node("Dropout", ["x", "", "t"], ["y"])],
        [value("x", [2]), value("t", [], BOOL)],
        [value("y", [2])],
    )
    assert kinds(load(training)) == ["Dropout"]


@pytest.mark.parametrize("batch", [None, 4])
def test_attributes_that_no_operator_has_are_left_out_with_a_note(
    batch: int | None, load: Load
) -> None:
    made = mlp()
    plain = load(made, batch=batch)
    for name, number in (("slope", 1), ("inplace", 1)):
        made.graph.node[1].attribute.append(helper.make_attribute(name, number))
    result = load(made, batch=batch)
    assert result.hash == plain.hash
    assert result.notes == (
        "Relu of opset 17 has no attribute 'slope': left out",
        "Relu of opset 17 has no attribute 'inplace': left out",
    )


def test_dead_operators_are_removed(load: Load) -> None:
    made = mlp()
    made.graph.node.extend([node("Exp", ["h"], ["dead"]), node("Log", ["dead"], ["deader"])])
    assert kinds(load(made)) == ["Gemm", "Relu"]


@pytest.mark.parametrize("asks", ["e = EyeLike(s)", "e = CastLike(x, s)"])
def test_what_is_asked_for_its_extents_or_type_alone_is_not_computed(asks: str, load: Load) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    net (float[3,3] x) => (float[3,3] y) {{ s = Softsign(x) {asks} y = Add(x, e) }}"""
    graph = load(onnx.parser.parse_model(text))
    assert "Softsign" not in {operator.kind for operator in graph.operators}
    assert graph.operators[-1].kind == "Add"


def test_unused_optional_outputs_are_forgotten(load: Load) -> None:
    made = model(
        [node("MaxPool", ["x"], ["y", "where"], kernel_shape=[2, 2])],
        [value("x", [1, 1, 4, 4])],
        [value("y", None)],
    )
    assert len(load(made).operators[0].outputs) == 1
    made.graph.output.append(value("where", None, INT64))
    assert len(load(made).operators[0].outputs) == 2


def test_nodes_out_of_order_are_sorted(load: Load) -> None:
    made = mlp()
    nodes = list(made.graph.node)[::-1]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    result = load(made)
    assert kinds(result) == ["Gemm", "Relu"]
    assert result.hash == load(mlp()).hash


def test_names_are_unique_and_never_empty(load: Load) -> None:
    made = model(
        [
            node("Relu", ["x"], ["a"]),
            node("Relu", ["a"], ["b"], name="twin"),
            node("Relu", ["b"], ["c"], name="twin"),
            node("Relu", ["c"], ["y"], name="twin_2"),
        ],
        [value("x", [2])],
        [value("y", [2])],
    )
    names = [operator.name for operator in load(made).operators]
    assert names == ["Relu_0", "twin", "twin_2", "twin_2_2"]


def test_the_hash_depends_on_no_name(load: Load) -> None:
    renamed = model(
        [node("Gemm", ["in", "W", "B"], ["hid"], name="g"), node("Relu", ["hid"], ["out"])],
        [value("in", [2, 8])],
        [value("out", [2, 4])],
        [weight("W", 8, 4), weight("B", 4)],
    )
    assert load(renamed).hash == load(mlp()).hash
    assert load(mlp(4)).hash != load(mlp()).hash


def test_an_output_listed_twice_is_one_output(load: Load) -> None:
    made = model(
        [node("Relu", ["x"], ["y"]), node("Identity", ["y"], ["z"])],
        [value("x", [2])],
        [value("y", [2]), value("z", [2])],
    )
    assert len(load(made).outputs) == 1


@pytest.mark.parametrize(
    ("element", "name"),
    spread(
        [
            (TensorProto.FLOAT16, "float16"),
            (TensorProto.BFLOAT16, "bfloat16"),
            (TensorProto.DOUBLE, "float64"),
            (TensorProto.INT8, "int8"),
            (TensorProto.FLOAT8E4M3FN, "float8_e4m3fn"),
            (TensorProto.BOOL, "bool"),
            (TensorProto.STRING, "string"),
        ],
        3,
    ),
)
def test_element_types_are_spelt_as_numpy_does(load: Load, element: int, name: str) -> None:
    made = model(
        [node("Transpose", ["x"], ["y"], name="t")],
        [value("x", [2, 3], element)],
        [value("y", None, element)],
        opset=21,
        ir=10,
    )
    assert {tensor.dtype for tensor in load(made).tensors} == {name}


# ------------------------------------------------------------------------------------ control flow


def branch(operator: str, reads: str, makes: str) -> GraphProto:
    return graph([node(operator, [reads], [makes])], [], [value(makes, None)])


def choice(condition_stored: bool | None) -> ModelProto:
    stored = []
    inputs = [value("x", [2, 3])]
    if condition_stored is None:
        inputs.append(value("c", [], BOOL))
    else:
        stored.append(numpy_helper.from_array(np.asarray(condition_stored), "c"))
    chosen = node(
        "If", ["c"], ["z"], name="choose",
        then_branch=branch("Exp", "h", "t"), else_branch=branch("Log", "h", "e"),
    )  # fmt: skip
    nodes = [node("Neg", ["x"], ["h"]), chosen, node("Abs", ["z"], ["y"])]
    return model(nodes, inputs, [value("y", None)], stored)


def test_a_known_condition_inlines_its_branch(load: Load) -> None:
    assert kinds(load(choice(condition_stored=True))) == ["Neg", "Exp", "Abs"]
    assert kinds(load(choice(condition_stored=False))) == ["Neg", "Log", "Abs"]


def test_an_open_condition_is_opaque_and_reads_what_its_branches_capture(load: Load) -> None:
    result = load(choice(condition_stored=None))
    assert kinds(result) == ["Neg", "If", "Abs"]
    chosen = result.operators[1]
    assert chosen.opaque
    assert [result.tensors[i].name for i in chosen.inputs] == ["c", "h"]
    assert out_shapes(result) == [(2, 3)]


def test_a_branch_may_hold_what_its_sibling_holds_too(load: Load) -> None:
    inner = branch("Exp", "x", "t")
    always = numpy_helper.from_array(np.ones((), bool), "c")
    twice = [
        node("If", ["c"], ["a"], then_branch=inner, else_branch=inner),
        node("If", ["c"], ["b"], then_branch=inner, else_branch=inner),
        node("Add", ["a", "b"], ["y"]),
    ]
    result = load(model(twice, [value("x", [2])], [value("y", None)], [always]))
    assert kinds(result) == ["Exp", "Exp", "Add"]
    assert len({tensor.name for tensor in result.tensors}) == len(result.tensors)


def loop(trips: int | None) -> ModelProto:
    body = graph(
        [
            node("Identity", ["going"], ["go_on"]),
            node("Add", ["state", "step"], ["next"]),
            node("Neg", ["next"], ["seen"]),
        ],
        [value("i", [], INT64), value("going", [], BOOL), value("state", [4])],
        [value("go_on", [], BOOL), value("next", [4]), value("seen", [4])],
    )
    nodes = [
        node("Relu", ["x"], ["step"]),
        node("Loop", ["trips", "", "x"], ["last", "all"], name="loop", body=body),
    ]
    inputs = [value("x", [4])]
    stored = [] if trips is None else [scalar("trips", trips)]
    if trips is None:
        inputs.append(value("trips", [], INT64))
    return model(nodes, inputs, [value("last", None), value("all", None)], stored)


def test_a_loop_is_written_out(load: Load) -> None:
    result = load(loop(5))
    assert "Loop" not in kinds(result)
    assert kinds(result).count("Add") == 5
    assert out_shapes(result) == [(4,), (5, 4)]


def test_a_long_loop_is_opaque_and_its_stacked_output_as_long_as_its_trips(load: Load) -> None:
    result = load(loop(5000))
    assert kinds(result) == ["Relu", "Loop"]
    assert out_shapes(result) == [(4,), (5000, 4)]
    assert "step" in [result.tensors[i].name for i in result.operators[1].inputs]
    assert "the extent of 'all' depends on data: taken at its largest, [5000, 4]" in result.notes


def test_a_loop_of_unknown_length_needs_a_stated_shape(load: Load) -> None:
    with pytest.raises(ModelError) as caught:
        load(loop(None))
    assert caught.value.at.field == "loop"
    made = loop(None)
    made.graph.output[1].CopyFrom(value("all", [7, 4]))
    assert out_shapes(load(made)) == [(4,), (7, 4)]


@pytest.mark.parametrize("trips", [6, 6000])
def test_a_scan_is_written_out_unless_it_is_long(load: Load, trips: int) -> None:
    body = graph(
        [node("Add", ["s", "e"], ["t"]), node("Mul", ["t", "outer"], ["o"])],
        [value("s", [3]), value("e", [3])],
        [value("t", [3]), value("o", [3])],
    )
    made = model(
        [
            node("Relu", ["init"], ["outer"]),
            node("Scan", ["init", "x"], ["f", "y"], num_scan_inputs=1, body=body),
        ],
        [value("init", [3]), value("x", [trips, 3])],
        [value("f", None), value("y", None)],
    )
    result = load(made)
    assert out_shapes(result) == [(3,), (trips, 3)]
    if trips > 6:
        assert kinds(result) == ["Relu", "Scan"]
        assert result.operators[1].opaque
    else:
        assert (kinds(result).count("Add"), result.opaque) == (6, ())


# ----------------------------------------- unknown operators, functions, unknown extents


def acme(known: bool) -> ModelProto:
    return model(
        [node("Mystery", ["x"], ["m"], domain="org.acme", gain=2.0), node("Relu", ["m"], ["y"])],
        [value("x", ["N", 3])],
        [value("y", None)],
        known=[value("m", ["N", 9])] if known else [],
        domains=["org.acme"],
    )


def test_an_unknown_operator_takes_the_shape_that_the_file_states(load: Load) -> None:
    result = load(acme(known=True), batch=4)
    assert kinds(result) == ["org.acme.Mystery", "Relu"]
    assert result.operators[0].opaque == "no row for org.acme.Mystery"
    assert out_shapes(result) == [(4, 9)]


def test_an_unknown_operator_of_onnx_s_own_domain_is_opaque(load: Load) -> None:
    made = model(
        [node("Novel", ["x"], ["m"]), node("Relu", ["m"], ["y"])],
        [value("x", [2])],
        [value("y", None)],
        known=[value("m", [5])],
    )
    result = load(made)
    assert out_shapes(result) == [(5,)]
    assert len(result.opaque) == 1


def test_a_stated_shape_is_not_believed_at_another_input_size(load: Load) -> None:
    made = acme(known=True)
    made.graph.value_info[0].CopyFrom(value("m", [2, 9]))
    made.graph.input[0].CopyFrom(value("x", [2, 3]))
    assert out_shapes(load(made)) == [(2, 9)]
    assert out_shapes(load(made, batch=6)) == [(6, 9)]
    with pytest.raises(ModelError) as caught:
        load(made, shapes={"x": [2, 5]})
    assert caught.value.at.field == "Mystery of 'm'"


def test_an_unread_output_of_unknown_shape_does_no_harm(load: Load) -> None:
    made = acme(known=True)
    made.graph.node[0].output.append("extra")
    assert len(load(made, batch=2).operators[0].outputs) == 1


def test_local_functions_are_inlined(load: Load) -> None:
    inner = helper.make_function(
        "local",
        "Twice",
        ["a"],
        ["b"],
        [node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )
    outer = helper.make_function(
        "local", "Four", ["a"], ["c"],
        [node("Twice", ["a"], ["b"], domain="local"), node("Twice", ["b"], ["c"], domain="local")],
        [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)],
    )  # fmt: skip
    made = model(
        [node("Four", ["x"], ["y"], domain="local")],
        [value("x", [2])],
        [value("y", None)],
        domains=["local"],
        functions=[inner, outer],
    )
    assert kinds(load(made)) == ["Add", "Add"]


def test_operators_defined_as_functions_have_shapes(load: Load) -> None:
    made = model(
        [node("MeanVarianceNormalization", ["x"], ["y"])],
        [value("x", [2, 3, 4, 4])],
        [value("y", None)],
    )
    assert out_shapes(load(made)) == [(2, 3, 4, 4)]


@pytest.mark.parametrize(
    ("nodes", "stored", "shape"),
    [
        ([node("NonZero", ["x"], ["y"])], [], (2, 24)),
        ([node("Unique", ["x"], ["y"])], [], (24,)),
        (
            [node("Cast", ["x"], ["b"], to=BOOL), node("Reshape", ["b", "all"], ["f"]),
             node("Compress", ["x", "f"], ["y"])],
            [ints("all", -1)],
            (24,),
        ),
    ],
)  # fmt: skip
def test_extents_that_depend_on_data_are_taken_at_their_largest(
    load: Load,
    nodes: list[onnx.NodeProto],
    stored: list[TensorProto],
    shape: tuple[int, ...],
) -> None:
    result = load(model(nodes, [value("x", [4, 6])], [value("y", None, 0)], stored))
    assert out_shapes(result) == [shape]
    assert result.notes[0].startswith("the extent of 'y' depends on data: taken at its largest")


def test_a_detector_s_last_stage_has_shapes(load: Load) -> None:
    made = model(
        [
            node("NonMaxSuppression", ["boxes", "scores", "most"], ["kept"]),
            node("Gather", ["kept", "one"], ["which"], axis=1),
            node("Gather", ["flat", "which"], ["y"]),
        ],
        [value("boxes", [1, 50, 4]), value("scores", [1, 3, 50]), value("flat", [50, 4])],
        [value("y", None)],
        [ints("most", 10), ints("one", 2)],
    )
    result = load(made)
    assert out_shapes(result) == [(30, 1, 4)]


def test_sequences_pass_through_opaque_operators(load: Load) -> None:
    made = model(
        [
            node("SequenceConstruct", ["x", "z"], ["s"]),
            node("SequenceAt", ["s", "at"], ["m"]),
            node("Relu", ["m"], ["y"]),
        ],
        [value("x", [2, 3]), value("z", [2, 3])],
        [value("y", None)],
        [scalar("at", 1)],
    )
    result = load(made)
    assert kinds(result) == ["SequenceConstruct", "SequenceAt", "Relu"]
    assert out_shapes(result) == [(2, 3)]


MICROSOFT: dict[str, tuple[list[onnx.NodeProto], tuple[int, ...]]] = {
    "elementwise": ([node("FastGelu", ["x", "b"], ["y"], domain="com.microsoft")], (2, 5, 8)),
    "skip": (
        [node("SkipLayerNormalization", ["x", "x", "b"], ["y"], domain="com.microsoft")],
        (2, 5, 8),
    ),
    "skip with sum": (
        [
            node(
                "SkipLayerNormalization",
                ["x", "x", "b"],
                ["o", "", "", "y"],
                domain="com.microsoft",
            )
        ],
        (2, 5, 8),
    ),
    "product": (
        [node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft", transB=1)],
        (2, 5, 5),
    ),
    "attention": (
        [node("Attention", ["x", "qkv"], ["y"], domain="com.microsoft", num_heads=2)],
        (2, 5, 4),
    ),
    "multi head": (
        [node("MultiHeadAttention", ["x", "x", "x"], ["y"], domain="com.microsoft", num_heads=2)],
        (2, 5, 8),
    ),
    "packed weights": (
        [node("MatMulNBits", ["x", "packed", "b"], ["y"], domain="com.microsoft", K=8, N=16)],
        (2, 5, 16),
    ),
}


@pytest.mark.parametrize("case", spread(MICROSOFT, 3))
def test_operators_of_onnx_runtime_have_shapes(load: Load, case: str) -> None:
    nodes, shape = MICROSOFT[case]
    made = model(
        nodes,
        [value("x", [2, 5, 8])],
        [value("y", None)],
        [weight("b", 8), weight("qkv", 8, 12), weight("packed", 16, 1, 4)],
        domains=["com.microsoft"],
    )
    assert out_shapes(load(made)) == [shape]


def test_operators_of_onnx_runtime_that_do_not_fit_are_unknown(load: Load) -> None:
    made = model(
        [node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft")],
        [value("x", [2, 5, 8])],
        [value("y", None)],
        domains=["com.microsoft"],
    )
    with pytest.raises(ModelError) as caught:
        load(made)
    assert caught.value.at.field == "FusedMatMul of 'y'"
