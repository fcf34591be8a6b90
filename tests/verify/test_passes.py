"""Passes: every sample is used once, and every pass is full."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_samples import Net, target

from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import Workbench, build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.verify.onnx_writer.passes import one_pass, passes_of


def _schedule(batch: int, clusters: int, at_once: int | str, split: str = "auto") -> Schedule:
    net = Net(x=(batch, 4))
    net.relu("x")
    bench = Workbench(net.graph(), target(clusters=clusters), "float16")
    return build_schedule(bench, Knobs(batches_per_cluster=at_once, cluster_split=split))


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
