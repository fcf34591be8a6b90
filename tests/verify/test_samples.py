"""Samples of tensors: cut out and joined wherever the batch stands."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from autoturbo.graph.batch import BatchTrace
from autoturbo.graph.operators import Tensor
from autoturbo.verify.onnx_writer.builder import GraphBuilder
from autoturbo.verify.onnx_writer.passes import Pass, SampleSlicer, samples_of

PLACES = {
    "in front": ((6, 3), (0, 1)),
    "in the middle": ((2, 6, 3), (1, 1)),
    "rows of every sample": ((6 * 4, 3), (0, 4)),
    "heads of all samples": ((5 * 6, 3), (0, 1)),
    "between heads and rows": ((3, 2 * 6 * 4), (1, 4)),
}
"""A tensor of six samples: its shape, the dimension of the batch and what stands inside it."""


def _trace(place: tuple[int, int]) -> BatchTrace:
    return BatchTrace({0: place}, {}, None)


def _picked(array: np.ndarray, place: tuple[int, int], first: int, stop: int) -> np.ndarray:
    """By positions, one by one."""
    dim, unit = place
    kept = [p for p in range(array.shape[dim]) if first <= p // unit % 6 < stop]
    return array.take(kept, axis=dim)


@pytest.mark.parametrize("name", PLACES)
def test_samples_are_those_whose_digit_is_asked_for(name: str) -> None:
    shape, place = PLACES[name]
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    got = samples_of(array, _trace(place), 0, (2, 3), 6)
    np.testing.assert_array_equal(got, _picked(array, place, 2, 5))
    np.testing.assert_array_equal(samples_of(array, _trace(place), 1, (2, 3), 6), array)


@pytest.mark.parametrize("name", PLACES)
def test_what_passes_make_is_joined_to_the_whole(name: str) -> None:
    shape, place = PLACES[name]
    passes = [Pass(0, 0, 0, 4, (0, 4)), Pass(1, 1, 2, 4, (4, 6))]
    samples = SampleSlicer([Tensor("x", shape, "float32")], _trace(place), 6)
    builder = GraphBuilder(17)
    builder.taken.add("x")
    parts = [samples.cut(builder, "x", 0, p.start, p.start + p.samples, 6) for p in passes]
    builder.node("Identity", [samples.join(builder, parts, 0, passes)], ["y"])
    builder.node("Identity", [parts[1]], ["part"])
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "part")]
    graph = helper.make_graph(builder.nodes, "samples", infos, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    joined, part = session.run(None, {"x": array})
    np.testing.assert_array_equal(joined, array)
    np.testing.assert_array_equal(part, _picked(array, place, 2, 6))
