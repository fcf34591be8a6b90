"""Nodes that a builder adds do what they say, in every opset; pieces join to regions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper

from autoturbo.graph.domain import Region
from autoturbo.graph.model_nodes import Operand
from autoturbo.verifier.onnx_writer.builder import (
    LAYER,
    GraphBuilder,
    RegionValue,
    UncoveredError,
    concatenate_pieces,
    slice_region,
    stored_constants,
)
from tests.verifier.restriction_harness import element, in_runtime

Array = np.ndarray[Any, Any]

OPSETS = [8, *(pytest.param(n, marks=pytest.mark.full) for n in (9, 10, 11)), 24]
"""Constants, fillings, slices and paddings are written anew from 9, 9, 10 and 11 on."""
VALUE = np.arange(42, dtype=np.float32).reshape(6, 7)
HAVE = ((10, 16), (20, 27))

every_opset = pytest.mark.parametrize("opset", OPSETS)


def model_of(builder: GraphBuilder, result: str, value: Array, kind: int = 0) -> ModelProto:
    """The body as a function that a model calls once."""
    domain = "parts"
    opsets = [helper.make_opsetid("", builder.opset), helper.make_opsetid(domain, 1)]
    function = helper.make_function(domain, "part", ["x"], [result], builder.nodes, opsets[:1])
    given = helper.make_tensor_value_info("x", element(value), value.shape)
    made = helper.make_tensor_value_info("y", kind or element(value), [None, None])
    call = helper.make_node("part", ["x"], ["y"], domain=domain)
    graph = helper.make_graph([call], "main", [given], [made])
    return helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10)


def result_of(
    opset: int, write: Callable[[GraphBuilder], str], value: Array = VALUE, kind: int = 0
) -> Array:
    builder = GraphBuilder(opset, layer="layer")
    model = model_of(builder, write(builder), value, kind)
    checker.check_model(model)
    return in_runtime(model, {"x": value})[0]


@every_opset
def test_a_slice_counts_from_the_start_of_what_is_held(opset: int) -> None:
    actual = result_of(opset, lambda builder: builder.slice("x", HAVE, ((11, 15), (20, 22))))
    np.testing.assert_array_equal(actual, VALUE[1:5, 0:2])


@every_opset
def test_a_slice_has_steps_forwards(opset: int) -> None:
    actual = result_of(
        opset, lambda builder: builder.slice("x", HAVE, ((11, 16), (20, 27)), (2, 3))
    )
    np.testing.assert_array_equal(actual, VALUE[1:6:2, ::3])


@every_opset
def test_a_slice_has_steps_backwards_to_the_very_first(opset: int) -> None:
    actual = result_of(
        opset, lambda builder: builder.slice("x", HAVE, ((11, 15), (20, 27)), (-1, -2))
    )
    np.testing.assert_array_equal(actual, VALUE[4:0:-1, ::-2])


def test_nothing_is_cut_where_all_is_wanted() -> None:
    builder = GraphBuilder(21)
    assert builder.slice("x", HAVE, HAVE) == "x"
    assert not builder.nodes


def test_a_part_is_cut_once() -> None:
    builder = GraphBuilder(21)
    first = builder.slice("x", HAVE, ((11, 12), (20, 27)))
    count = len(builder.nodes)
    assert builder.slice("x", HAVE, ((11, 12), (20, 27))) == first
    assert len(builder.nodes) == count


@every_opset
def test_a_whole_value_gets_another_name(opset: int) -> None:
    actual = result_of(opset, lambda builder: builder.slice("x", HAVE, HAVE, to="z"))
    np.testing.assert_array_equal(actual, VALUE)


@pytest.mark.parametrize(
    ("opset", "dtype"),
    [
        (8, "float16"),
        (24, "int64"),
        (24, "bool"),
        pytest.param(24, "float64", marks=pytest.mark.full),
        pytest.param(8, "int8", marks=pytest.mark.full),
        pytest.param(8, "bool", marks=pytest.mark.full),
    ],
)
def test_zeros_surround_values_of_every_type(opset: int, dtype: str) -> None:
    value = VALUE.astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    around = ((8, 17), (20, 29))
    actual = result_of(opset, lambda builder: builder.surround("x", HAVE, around, kind), value)
    np.testing.assert_array_equal(actual, np.pad(value, ((2, 1), (0, 2))))


@every_opset
def test_zeros_are_of_their_type(opset: int) -> None:
    actual = result_of(
        opset, lambda builder: builder.zeros((2, 3), TensorProto.INT32), kind=TensorProto.INT32
    )
    np.testing.assert_array_equal(actual, np.zeros((2, 3), np.int32))
    assert actual.dtype == np.int32


@every_opset
def test_values_are_joined_and_reshaped(opset: int) -> None:
    actual = result_of(
        opset, lambda builder: builder.reshape(builder.concat("x", "x", axis=1), 4, 21)
    )
    np.testing.assert_array_equal(actual, np.concatenate([VALUE, VALUE], 1).reshape(4, 21))


def test_every_node_has_a_name_of_its_own_and_says_its_layer() -> None:
    builder = GraphBuilder(21, layer="conv", operator="conv_relu")
    builder.slice("x", HAVE, ((11, 12), (20, 27)))
    builder.slice("x", HAVE, ((12, 13), (20, 27)))
    names = [node.name for node in builder.nodes]
    assert len(set(names)) == len(names)
    assert all(name.startswith("conv/conv_relu/") for name in names)
    assert all(
        [(p.key, p.value) for p in n.metadata_props] == [(LAYER, "conv")] for n in builder.nodes
    )


def test_equal_constants_are_made_once() -> None:
    builder = GraphBuilder(21)
    first = builder.constant(np.array([1, 2]))
    assert builder.constant(np.array([1, 2])) == first
    assert builder.constant(np.array([1, 2], np.int32)) != first


def test_names_made_up_avoid_those_taken() -> None:
    builder = GraphBuilder(21, taken={"starts@"})
    builder.slice("x", HAVE, ((11, 12), (20, 27)))
    made = [name for node in builder.nodes for name in node.output]
    assert "starts@" not in made
    assert len(set(made)) == len(made)


def _operand(tensor: int, data: Array | None) -> Operand:
    return Operand("w", tensor, (2,), TensorProto.INT64, constant=True, data=data)


def test_a_weight_is_given_to_the_function_once() -> None:
    builder = GraphBuilder(21)
    weight = _operand(3, np.array([1, 2]))
    assert [builder.operand(weight), builder.operand(weight)] == ["w", "w"]
    assert builder.reads == {"w": weight}
    assert not builder.nodes


def test_what_the_graph_does_not_hold_is_made_in_the_body() -> None:
    builder = GraphBuilder(21)
    builder.operand(_operand(-1, np.array([1, 2])))
    builder.operand(_operand(-1, np.array([1, 2])))
    assert not builder.reads
    (node,) = builder.nodes
    assert list(node.output) == ["w"]
    np.testing.assert_array_equal(numpy_helper.to_array(node.attribute[0].t), [1, 2])


def test_what_is_not_known_is_given_to_the_function() -> None:
    builder = GraphBuilder(21)
    builder.operand(_operand(-1, None))
    assert list(builder.reads) == ["w"]


def test_a_constant_that_a_node_makes_is_not_stored_too() -> None:
    tensor = numpy_helper.from_array(np.array([1, 2]), "w")
    builder = GraphBuilder(21)
    builder.node("Identity", ["w"], ["x"])
    assert stored_constants(builder.nodes, {"w": tensor}) == [tensor]
    builder.operand(_operand(-1, np.array([1, 2])))
    assert stored_constants(builder.nodes, {"w": tensor}) == []


SHAPE = (6, 5, 4)


def _joined(
    builder: GraphBuilder, pieces: list[RegionValue], name: str, whole: np.ndarray
) -> np.ndarray:
    feeds = {p.name: whole[tuple(slice(*i) for i in p.region)] for p in pieces}
    infos = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, array.shape)
        for n, array in feeds.items()
    ]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    builder.node("Identity", [name], ["y"])
    graph = helper.make_graph(builder.nodes, "pieces", infos, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run(None, feeds)[0])


def _bounds(draw: st.DrawFn, low: int, high: int) -> list[int]:
    inner = draw(st.lists(st.integers(low + 1, high - 1), max_size=2)) if high - low > 1 else []
    return sorted({low, high, *inner})


@st.composite
def _grids(draw: st.DrawFn) -> tuple[Region, list[RegionValue]]:
    """A region and pieces that tile it: cut along one dimension, each part along another."""
    want = tuple(
        (low, draw(st.integers(low + 1, extent)))
        for extent in SHAPE
        for low in [draw(st.integers(0, extent - 1))]
    )
    outer, inner = draw(st.permutations(range(3)))[:2]
    pieces: list[RegionValue] = []
    for low, high in itertools.pairwise(_bounds(draw, *want[outer])):
        for first, last in itertools.pairwise(_bounds(draw, *want[inner])):
            region = list(want)
            region[outer], region[inner] = (low, high), (first, last)
            pieces.append(RegionValue(f"p{len(pieces)}", tuple(region)))
    return want, draw(st.permutations(pieces))


@settings(deadline=None, max_examples=40)
@given(_grids())
def test_pieces_that_tile_a_region_make_it_in_any_order(
    grid: tuple[Region, list[RegionValue]],
) -> None:
    want, pieces = grid
    whole = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    builder = GraphBuilder(17)
    got = _joined(builder, pieces, concatenate_pieces(builder, pieces, want), whole)
    np.testing.assert_array_equal(got, whole[tuple(slice(*i) for i in want)])


@settings(deadline=None, max_examples=40)
@given(_grids(), st.data())
def test_a_lost_piece_is_noticed(
    grid: tuple[Region, list[RegionValue]], data: st.DataObject
) -> None:
    want, pieces = grid
    lost = data.draw(st.sampled_from(pieces))
    with pytest.raises(UncoveredError):
        concatenate_pieces(GraphBuilder(17), [piece for piece in pieces if piece is not lost], want)


@settings(deadline=None, max_examples=40)
@given(_grids(), st.data())
def test_a_piece_too_many_is_noticed(
    grid: tuple[Region, list[RegionValue]], data: st.DataObject
) -> None:
    want, pieces = grid
    twice = data.draw(st.sampled_from(pieces))
    with pytest.raises(UncoveredError):
        concatenate_pieces(GraphBuilder(17), [*pieces, RegionValue("again", twice.region)], want)


def test_a_part_is_cut_out_of_what_is_held_and_of_nothing_else() -> None:
    whole = np.arange(20, dtype=np.float32).reshape(4, 5)
    held, builder = RegionValue("x", ((0, 4), (0, 5))), GraphBuilder(17)
    name = slice_region(builder, held, ((1, 3), (2, 5)))
    np.testing.assert_array_equal(_joined(builder, [held], name, whole), whole[1:3, 2:5])
    with pytest.raises(UncoveredError):
        slice_region(GraphBuilder(17), RegionValue("x", ((0, 4), (0, 4))), ((1, 3), (2, 5)))
