"""The parts of the import on their own."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, TypeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autoturbo.errors import ModelError
from autoturbo.graph.importer import fold
from autoturbo.graph.importer.assemble import check_size, plain_attributes
from autoturbo.graph.importer.external_data import (
    INDICES,
    MOST_READ,
    SMALL,
    stored_bytes,
    tensors_of,
)
from autoturbo.graph.importer.fold import Folder, FoldError, constant_array, small_array
from autoturbo.graph.importer.freeze import Extents, freeze, resolve
from autoturbo.graph.importer.shapes import InferenceError, infer, merge, schema_of
from autoturbo.graph.source import MOST_ELEMENTS, Source, domain_of, kind_of, label, one_line
from autoturbo.graph.structure import captured_names, in_order
from autoturbo.graph.values import (
    Value,
    dims_of,
    dtype_name,
    element_type,
    static_shape,
    tensor_type,
)
from tests.graph.onnx_import.import_models import (
    FLOAT,
    INT64,
    graph,
    ints,
    model,
    node,
    value,
    weight,
)
from tests.tiers import spread

if TYPE_CHECKING:
    from onnx import NodeProto


@pytest.fixture
def source() -> Source:
    return Source(Path("m.onnx"), {"": 17}, 8)


def known(name: str, *shape: int, data: object = None) -> Value:
    array = None if data is None else np.asarray(data)
    kind = FLOAT if array is None else helper.np_dtype_to_tensor_dtype(array.dtype)
    shape = shape if array is None else array.shape
    return Value(name, tensor_type(kind, shape), array is not None, array)


# ------------------------------------------------------------------------------------------ source


def test_a_note_is_told_once(source: Source) -> None:
    source.note("one")
    source.note("two")
    source.note("one")
    assert list(source.notes) == ["one", "two"]


def test_errors_name_file_and_place(source: Source) -> None:
    assert str(source.error("is bad", "conv1", "mend it")) == "m.onnx: conv1: is bad; mend it"
    assert str(source.error("is bad")) == "m.onnx: is bad"
    assert source.error("is bad", "").at.field is None


@pytest.mark.parametrize(
    ("text", "line"),
    spread(
        [
            ("[ShapeInferenceError] (op_type:MatMul, node name: m): Incompatible.", "Incompatible"),
            ("[TypeInferenceError] Input 0\nhas a bad type", "Input 0"),
            (
                "Unrecognized attribute: x\n\n==> Context: Bad node spec",
                "Unrecognized attribute: x",
            ),
            ("", "ValueError"),
        ],
        2,
    ),
)
def test_library_messages_become_one_line(text: str, line: str) -> None:
    assert one_line(ValueError(text)) == line


def test_onnx_s_own_domain_has_two_spellings() -> None:
    assert domain_of(node("Relu", ["x"], ["y"], domain="ai.onnx")) == ""
    assert kind_of(node("Gelu", ["x"], ["y"], domain="com.microsoft")) == "com.microsoft.Gelu"
    assert label(node("Gelu", ["x"], ["", "y"])) == "Gelu of 'y'"
    assert label(node("Gelu", ["x"], ["y"], name="n")) == "n"


# ------------------------------------------------------------------------------------------ values


def test_shapes_are_static_only_if_every_extent_is_known() -> None:
    assert static_shape(tensor_type(FLOAT, (2, 3))) == (2, 3)
    assert static_shape(value("x", [2, "N"]).type) is None
    assert dims_of(value("x", [2, "N", None]).type) == [2, None, None]
    assert dims_of(value("x", None).type) is None
    assert dims_of(TypeProto()) is None


def test_sequences_and_optionals_have_the_element_type_of_their_tensors() -> None:
    sequence = helper.make_sequence_type_proto(tensor_type(INT64, (2,)))
    optional = helper.make_optional_type_proto(sequence)
    sparse = helper.make_sparse_tensor_type_proto(FLOAT, (4,))
    assert (element_type(sequence), static_shape(sequence)) == (INT64, ())
    assert (element_type(optional), static_shape(optional)) == (INT64, ())
    assert (element_type(sparse), static_shape(sparse)) == (FLOAT, (4,))
    assert element_type(TypeProto()) == 0
    assert dtype_name(0) == ""


# ------------------------------------------------------------------------------------------- infer


def inferred(made: NodeProto, source: Source, *values: Value) -> dict[str, TypeProto]:
    schema = schema_of(made, source)
    assert schema is not None
    return infer(made, schema, {v.name: v for v in values}, source)


def test_inference_sees_the_values_of_constants(source: Source) -> None:
    made = node("Reshape", ["x", "t"], ["y"])
    types = inferred(made, source, known("x", 2, 6), known("t", data=[3, -1]))
    assert static_shape(types["y"]) == (3, 4)


def test_inference_of_an_unknown_type_says_nothing(source: Source) -> None:
    assert inferred(node("Relu", ["x"], ["y"]), source, Value("x", TypeProto())) == {}


def test_contradictions_are_errors(source: Source) -> None:
    with pytest.raises(InferenceError):
        inferred(node("MatMul", ["a", "b"], ["y"]), source, known("a", 2, 3), known("b", 4, 5))


def test_unknown_operators_have_no_schema(source: Source) -> None:
    assert schema_of(node("Novel", ["x"], ["y"]), source) is None
    assert schema_of(node("Relu", ["x"], ["y"], domain="org.acme"), source) is None


def test_what_inference_leaves_open_is_taken_from_the_file() -> None:
    def merged(first: TypeProto, second: TypeProto) -> list[int | None] | None:
        return dims_of(merge(first, second))

    open_type, stated = value("x", ["a", 3]).type, value("x", [2, 4]).type
    assert merged(open_type, stated) == [2, 3]
    assert merged(value("x", None).type, stated) == [2, 4]
    assert merged(value("x", ["a", "b", "c"]).type, stated) == [None, None, None]
    assert merged(TypeProto(), stated) == [2, 4]
    assert merged(stated, value("x", [9, 9]).type) == [2, 4]
    assert dims_of(merge(None, None)) is None


# -------------------------------------------------------------------------------------------- fold


def test_like_nodes_share_an_evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[ReferenceEvaluator] = []

    def build(*given: Any, **how: Any) -> ReferenceEvaluator:
        built.append(ReferenceEvaluator(*given, **how))
        return built[-1]

    monkeypatch.setattr(fold, "ReferenceEvaluator", build)
    folder = Folder({"": 17})
    for k in range(3):
        made = node("Add", [f"a{k}", f"b{k}"], [f"c{k}"])
        result = folder.evaluate(made, [known("", data=[k]), known("", data=[1])])
        assert result is not None
        assert result[0].tolist() == [k + 1]
    assert len(built) == 1


def test_absent_inputs_stay_absent() -> None:
    result = Folder({"": 17}).evaluate(
        node("Clip", ["x", "", "hi"], ["y"]),
        [known("", data=np.asarray([1, 5], np.float32)), None, known("", data=np.float32(3))],
    )
    assert result is not None
    assert result[0].tolist() == [1, 3]


def test_what_cannot_be_computed_is_not_and_why_is_said() -> None:
    folder = Folder({"": 17})
    with pytest.raises(FoldError, match="NotImplementedError"):
        folder.evaluate(node("Novel", ["x"], ["y"]), [known("", data=[1])])
    for one, most in ((np.array([1]), INDICES), (np.array([1.0], np.float32), SMALL)):
        with pytest.raises(FoldError, match="more elements"):
            folder.evaluate(
                node("Tile", ["x", "n"], ["y"]), [known("", data=one), known("", data=[most + 1])]
            )


def test_large_results_are_few() -> None:
    """A small file that asks for many long indices does not fill the memory."""
    folder, kept = Folder({"": 17}), 0
    for _ in range(MOST_READ // INDICES + 2):
        made = node("Tile", ["x", "n"], ["y"])
        with suppress(FoldError):
            (found,) = folder.evaluate(made, [known("", data=[1]), known("", data=[INDICES])])
            kept += found.size
    assert kept == MOST_READ


def test_large_values_are_not_read() -> None:
    assert small_array(ints("i", *range(INDICES))) is not None
    assert small_array(ints("i", *range(INDICES + 1))) is None
    assert small_array(weight("w", SMALL)) is not None
    assert small_array(weight("w", SMALL + 1)) is None
    assert constant_array(node("Constant", [], ["c"], value_strings=["a"])) is None


# -------------------------------------------------------------------------------------- structure


def test_captured_names_are_those_not_defined_inside() -> None:
    inner = graph(
        [node("Add", ["far", "i"], ["t"]), node("Mul", ["t", "near"], ["u"])],
        [value("i", [1])], [value("u", None)], [weight("w", 1)],
    )  # fmt: skip
    outer = graph(
        [node("Neg", ["x"], ["near"]), node("Loop", ["", "", "near"], ["z"], body=inner)],
        [], [value("z", None), value("straight", None)],
    )  # fmt: skip
    made = node("If", ["c"], ["y"], then_branch=outer, else_branch=outer)
    assert captured_names(made) == ["x", "far", "straight"]
    assert captured_names(node("Relu", ["x"], ["y"])) == []


def test_order_keeps_the_file_s_where_it_can(source: Source) -> None:
    nodes = [node("Neg", [a], [b]) for a, b in ("cd", "xa", "xb", "bc")]
    assert ["".join((n.input[0], n.output[0])) for n in in_order(nodes, source)] == [
        "xa", "xb", "bc", "cd",
    ]  # fmt: skip


def test_a_long_cycle_is_shortened(source: Source) -> None:
    nodes = [node("Neg", [f"v{k}"], [f"v{(k + 1) % 9}"], name=f"n{k}") for k in range(9)]
    with pytest.raises(ModelError, match=r": n0 -> n1 -> n2 -> n3 -> \.\.\. -> n0$"):
        in_order(nodes, source)


# ------------------------------------------------------------------------------------- the others


def test_named_dimensions_are_resolved_and_negative_ones_open() -> None:
    kind = value("x", ["N", "M", -1, 4]).type
    assert dims_of(resolve(kind, {"N": 7})) == [7, None, None, 4]
    assert resolve(TypeProto(), {}) == TypeProto()


def test_freezing_remembers_what_the_file_was_made_for(source: Source) -> None:
    inputs = [value("x", [4, 3]), value("z", [4, "S"])]
    frozen = freeze(inputs, Extents(6, {"z": [6, 9]}), source)
    assert frozen.shapes == {"x": (6, 3), "z": (6, 9)}
    assert frozen.baked == {"x": (4, 3), "z": (4, 9)}
    assert (frozen.batch, frozen.ratio) == (4, Fraction(3, 2))
    assert frozen.bindings == {"S": 9}
    assert frozen.as_declared
    assert not freeze(inputs, Extents(None, {"x": [4, 5], "z": [4, 9]}), source).as_declared
    assert freeze(inputs, Extents(None, {"z": [4, 9]}), source).baked is None


@pytest.mark.parametrize(
    ("element", "needed"),
    spread([(FLOAT, 84), (TensorProto.FLOAT16, 42), (TensorProto.BOOL, 21), (TensorProto.INT4, 11),
     (TensorProto.BFLOAT16, 42), (TensorProto.STRING, 0)], 3),
)  # fmt: skip
def test_bytes_of_stored_tensors(source: Source, element: int, needed: int) -> None:
    assert stored_bytes(TensorProto(data_type=element, dims=[3, 7]), source) == needed


def test_every_stored_tensor_is_found() -> None:
    body = graph([node("Constant", [], ["d"], value=weight("t", 1))], [], [], [weight("i", 1)])
    made = model([node("If", ["c"], ["y"], then_branch=body)], [], [], [weight("w", 1)])
    sparse = made.graph.sparse_initializer.add()
    sparse.values.name = "s"
    assert [t.name for t in tensors_of(made.graph)] == ["w", "s", "", "i", "t"]


def test_attributes_become_plain_values() -> None:
    made = node(
        "Any", [], [], i=3, f=0.5, s="text", ints=[1, 2], floats=[0.5], strings=["a", "b"],
        t=weight("w", 2), body=graph([], [], []),
    )  # fmt: skip
    plain = dict(plain_attributes(made))
    tensor = plain.pop("t")
    assert isinstance(tensor, np.ndarray)
    assert np.array_equal(tensor, numpy_helper.to_array(weight("w", 2)))
    assert plain == {
        "i": 3, "f": 0.5, "s": "text", "ints": (1, 2), "floats": (0.5,), "strings": ("a", "b"),
    }  # fmt: skip


def test_the_limit_of_elements_counts_all_tensors(source: Source) -> None:
    half = MOST_ELEMENTS // 2
    check_size([known("a", half - 1), known("b", half)], source)
    with pytest.raises(ModelError) as caught:
        check_size([known("a", half), known("b", half + 1)], source)
    assert caught.value.at.field == "b"
