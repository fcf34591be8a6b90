"""Regions put together from pieces: right order, and nothing missing unnoticed."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from autoturbo.graph.domain import Region
from autoturbo.verify.onnx_writer.builder import (
    GraphBuilder,
    RegionValue,
    UncoveredError,
    concatenate_pieces,
    slice_region,
)

SHAPE = (6, 5, 4)


def _run(
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


@settings(deadline=None)
@given(_grids())
def test_pieces_that_tile_a_region_make_it_in_any_order(
    grid: tuple[Region, list[RegionValue]],
) -> None:
    want, pieces = grid
    whole = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    builder = GraphBuilder(17)
    got = _run(builder, pieces, concatenate_pieces(builder, pieces, want), whole)
    np.testing.assert_array_equal(got, whole[tuple(slice(*i) for i in want)])


@settings(deadline=None)
@given(_grids(), st.data())
def test_a_lost_piece_is_noticed(
    grid: tuple[Region, list[RegionValue]], data: st.DataObject
) -> None:
    want, pieces = grid
    lost = data.draw(st.sampled_from(pieces))
    with pytest.raises(UncoveredError):
        concatenate_pieces(GraphBuilder(17), [piece for piece in pieces if piece is not lost], want)


@settings(deadline=None)
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
    np.testing.assert_array_equal(_run(builder, [held], name, whole), whole[1:3, 2:5])
    with pytest.raises(UncoveredError):
        slice_region(GraphBuilder(17), RegionValue("x", ((0, 4), (0, 4))), ((1, 3), (2, 5)))
