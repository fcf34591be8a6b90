"""Kernels that share a launch: which do, and what they save."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.schedule.knobs import FAR, Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.breakdown.shares import schedule_shares
from autoturbo.simulator.sequence import pass_intervals, simulate
from tests.schedule.schedule_samples import STCP920, Net, scheduler_of


def copies(count: int) -> Graph:
    """So many networks beside each other, each of which fits one kernel."""
    inputs = {f"x{number}": (1, 8, 16, 16) for number in range(count)}
    net = Net(**inputs)
    for name in inputs:
        net.relu(net.conv(name, 8))
    return net.graph()


def one_cluster() -> Target:
    return dataclasses.replace(STCP920, clusters=1)


def schedule_of(graph: Graph, **knobs: object) -> Schedule:
    made = Knobs.from_dict({"max_layers": 4, **knobs})
    return build_schedule(ModelScheduler(graph, one_cluster(), "float16"), made)


@pytest.mark.parametrize("ahead", ["auto", FAR])
def test_what_reads_nothing_of_another_saves_its_launch_and_barrier(ahead: int | str) -> None:
    own, shared = (
        schedule_of(copies(3), launches=launches, fetch_ahead=ahead)
        for launches in ("auto", "shared")
    )
    assert shared.opens().tolist() == [True, False, False]
    assert own.opens().all()
    one, all_ = simulate(own), simulate(shared)
    assert (one.kernels, all_.kernels) == (3, 1)
    overheads = one_cluster().overheads
    saved = 2 * (overheads.kernel_launch + overheads.barrier)
    if ahead == "auto":
        assert one.latency - all_.latency == pytest.approx(saved)
    else:
        assert all_.latency < one.latency


def test_a_kernel_that_reads_another_begins_a_launch() -> None:
    net = Net(x=(1, 8, 16, 16))
    net.conv(net.relu(net.conv("x", 8)), 8)
    schedule = schedule_of(net.graph(), max_layers=1, launches="shared")
    assert len(schedule.order) > 1
    assert schedule.opens().all()


@pytest.mark.parametrize("ahead", ["auto", FAR])
def test_parts_of_a_sub_graph_share_a_launch(ahead: int | str) -> None:
    """Intervals and shares add up to the latency still, and each launch has a kernel that opens."""
    knobs = Knobs(launches="shared", fetch_ahead=ahead)
    schedule = build_schedule(scheduler_of("mobilenet_v2"), knobs)
    opens, measured = schedule.opens(), simulate(schedule)
    assert opens[0]
    assert 0 < np.count_nonzero(~opens) < len(opens)
    assert measured.kernels == opens.sum() * schedule.share.loops
    intervals = pass_intervals(schedule)
    assert intervals[-1].end * schedule.share.loops == pytest.approx(measured.latency)
    for interval, opening in zip(intervals, opens.tolist(), strict=True):
        assert opening or interval.launch == interval.body
    total = sum(part.seconds for part in schedule_shares(schedule).subgraphs)
    assert total == pytest.approx(measured.latency)


def test_settings_that_only_differ_in_launches_are_told_apart() -> None:
    own, shared = (schedule_of(copies(2), launches=one) for one in ("auto", "shared"))
    assert own.digest != shared.digest
    alone = [schedule_of(copies(1), launches=one).digest for one in ("auto", "shared")]
    assert alone[0] == alone[1]


def test_two_networks_beside_each_other() -> None:
    """Less than twice the time of one."""
    one, two = (simulate(schedule_of(copies(n), launches="shared")).latency for n in (1, 2))
    assert two < 1.6 * one
