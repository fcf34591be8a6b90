"""Latencies over what nobody has published: the same schedule on a target's other ends."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.errors import TargetError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target, load_target
from autoturbo.hardware.target import TIMED, timed_with
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.simulator.sequence import simulate
from autoturbo.simulator.unpublished import latency_range
from tests.schedule.schedule_samples import networks, target, workload


def ranged(chip: Target, ranges: dict[str, list[Any]]) -> Target:
    return Target.from_dict({**chip.as_dict(), "ranges": ranges})


def small(clusters: int = 2) -> Target:
    return target(cores=8, lb=64 << 10, weights=4 << 10, clusters=clusters)


def scheduled(graph: Graph, chip: Target, knobs: Knobs) -> Any:
    return build_schedule(ModelScheduler(graph, chip, "float16"), knobs)


ENDS = st.sampled_from(
    (
        ("ddr.share", ["fixed", "free"]),
        ("gb.bandwidth_gb_s", [64, 1024]),
        ("overheads.kernel_launch_us", [1, 9]),
        ("matrix.startup_cycles", [0, 500]),
    )
)


@given(networks(), st.lists(ENDS, min_size=1, unique_by=lambda pair: pair[0]))
@settings(max_examples=25, deadline=None)
def test_the_range_holds_the_latency_and_each_end(
    graph: Graph, pairs: list[tuple[str, list[Any]]]
) -> None:
    schedule = scheduled(graph, ranged(small(), dict(pairs)), Knobs())
    latency = simulate(schedule).latency
    found = latency_range(schedule, latency)
    if found is None:
        return
    assert found.low <= latency <= found.high
    assert found.low < found.high
    assert set(found.fields) <= {path for path, _ in pairs}
    assert found.low >= 0


@given(networks(), st.sampled_from((64, 300, 1024)))
@settings(max_examples=15, deadline=None)
def test_an_end_is_what_the_programs_take_on_such_a_chip(graph: Graph, bandwidth: int) -> None:
    """With rules that read no bandwidth, the schedule of the other chip is the very same."""
    path, knobs = "lb.bandwidth_gb_s", Knobs()
    chip = ranged(small(), {path: [bandwidth, 2048]})
    found = latency_range(scheduled(graph, chip, knobs), -1.0)
    assert found is not None  # nothing takes less than no time, so every end counts
    there = scheduled(graph, timed_with(small(), path, bandwidth), knobs)
    assert found.high == simulate(there).latency


def test_idle_clusters_leave_what_they_have() -> None:
    chip = load_target("stcp920")
    assert [path for path, _ in chip.ranges] == ["ddr.share", "gb.bandwidth_gb_s"]
    schedule = scheduled(workload("resnet50", 1), chip, Knobs())
    latency = simulate(schedule).latency
    found = latency_range(schedule, latency)
    assert found is not None
    assert (found.high, found.fields) == (latency, ("ddr.share", "gb.bandwidth_gb_s"))
    assert found.low < 0.5 * latency
    whole = dataclasses.replace(chip, ranges=chip.ranges[:1])
    full = scheduled(workload("resnet50", 64), whole, Knobs())
    assert latency_range(full, simulate(full).latency) is None  # all clusters work


def test_a_range_changes_no_result() -> None:
    chip = load_target("stcp920")
    without = dataclasses.replace(chip, ranges=())
    assert chip.hash == without.hash
    assert "ranges" not in without.as_dict()
    assert Target.from_dict(chip.as_dict()) == chip


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        ({"lb.capacity_kib": [1, 2]}, "lb.capacity_kib: no field that only times depend on"),
        ({"ddr.shar": ["fixed", "free"]}, "did you mean 'ddr.share'?"),
        ({"ddr.share": ["fixed", "own"]}, "own"),
        ({"ddr.share": ["fixed"]}, "must have at least 2 entries, not 1"),
        ({"ddr.efficiency": [0.9, 0.5]}, "0.9 is not below 0.5"),
        ({"ddr.efficiency": [0.5, 1.5]}, "ddr.efficiency"),
        ({"dram.turnaround_ns": [1, 2]}, "the target has no dram"),
    ],
)
def test_ranges_that_cannot_be_are_refused(ranges: dict[str, Any], said: str) -> None:
    document = dataclasses.replace(small(), dram=None).as_dict()
    with pytest.raises(TargetError) as raised:
        Target.from_dict({**document, "ranges": ranges})
    assert said in str(raised.value)


def test_no_size_or_count_has_a_range() -> None:
    """A schedule made for one would not run with another."""
    assert not [path for path in TIMED if path.endswith(("capacity_kib", "rows", "columns"))]
    assert {"ddr.share", "dma.latency_ns", "clock_mhz", "overheads.barrier_us"} <= set(TIMED)
