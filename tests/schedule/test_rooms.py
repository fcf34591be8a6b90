"""What a sub-graph's tensors can be kept in."""

from __future__ import annotations

import itertools

from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import plan
from autoturbo.schedule.rooms import ROOMS, rooms_of
from tests.schedule.schedule_samples import bench


def rows() -> list[dict[str, float]]:
    """Of ResNet-50's sub-graphs, 16 samples a cluster."""
    problem, _, subgraphs = plan(bench("resnet50"), Knobs())
    found = [rooms_of(problem, s.layers).tolist() for s in subgraphs]
    return [dict(zip(ROOMS, row, strict=True)) for row in found]


def test_whole_tensors_are_those_that_the_next_sub_graph_reads() -> None:
    found = rows()
    assert found[0]["whole_input_bytes"] == 0  # the image is no other sub-graph's
    for before, after in itertools.pairwise(found):
        assert 0 < before["whole_output_bytes"] <= after["whole_input_bytes"]
    assert found[-1]["whole_output_bytes"] == 16 * 1000 * 2


def test_rooms_and_rates_are_the_cluster_s() -> None:
    target = bench("resnet50").target
    for row in rows():
        assert row["lb_bytes"] == target.cores * target.lb.capacity
        assert row["weight_room_bytes"] == target.cores * target.lb.weight_capacity
        assert 0 < row["gb_room_bytes"] < target.gb.capacity
        assert row["ddr_bandwidth"] == target.ddr_bandwidth_per_cluster < row["gb_bandwidth"]
        assert row["overhead_s"] == target.overheads.kernel_launch + target.overheads.barrier
