"""Passes: every sample is used once, and every pass is full; samples are cut and joined."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from autoturbo.graph.batch import BatchTrace
from autoturbo.graph.operators import Tensor
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.verifier.onnx_writer.builder import GraphBuilder
from autoturbo.verifier.onnx_writer.calls import Pass, SampleSlicer, one_pass, passes_of, samples_of
from tests.schedule.schedule_samples import Net, target


def _schedule(batch: int, clusters: int, at_once: int | str, split: str = "auto") -> Schedule:
    net = Net(x=(batch, 4))
    net.relu("x")
    model_scheduler = ModelScheduler(net.graph(), target(clusters=clusters), "float16")
    return build_schedule(
        model_scheduler, Knobs(batches_per_cluster=at_once, cluster_partitioning=split)
    )


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 5), st.data())
def test_every_sample_is_used_once_and_every_pass_is_full(
    batch: int, clusters: int, data: st.DataObject
) -> None:
    most = -(-batch // min(clusters, batch))
    schedule = _schedule(batch, clusters, data.draw(st.integers(1, most)))
    passes = passes_of(schedule)
    used = [sample for one in passes for sample in range(*one.used)]
    assert sorted(used) == list(range(batch))
    for one in passes:
        assert one.samples == schedule.share.batches
        assert one.start >= 0
        assert one.start + one.samples <= batch
        assert one.start <= one.used[0] < one.used[1] <= one.start + one.samples
    assert [one.index for one in passes] == list(range(len(passes)))
    assert {one.cluster for one in passes} == set(range(schedule.share.clusters))


def test_the_last_pass_starts_earlier_so_that_it_is_full() -> None:
    passes = passes_of(_schedule(5, 2, 2))
    assert [(one.cluster, one.start, one.used) for one in passes] == [
        (0, 0, (0, 2)), (0, 1, (2, 3)), (1, 3, (3, 5)),
    ]  # fmt: skip


def test_clusters_that_share_a_sample_work_on_one_pass() -> None:
    passes = passes_of(_schedule(4, 2, 2, "spatial"))
    assert [(one.cluster, one.start) for one in passes] == [(-1, 0), (-1, 2)]


def test_one_pass_is_the_first_alone() -> None:
    schedule = _schedule(12, 2, 3)
    assert one_pass(schedule) == dataclasses.replace(passes_of(schedule)[0], used=(0, 3))


PLACES = {
    "in front": ((6, 3), (0, 1)),
    "rows of every sample": ((6 * 4, 3), (0, 4)),
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
