"""The memory check on schedules of random networks, and what it recomputes by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoturbo.registry import SCHEDULERS
from autoturbo.schedule.by_name import candidates
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.verifier.findings import instance_name
from autoturbo.verifier.memory import check_memory
from autoturbo.verifier.regions import check_regions
from autoturbo.verifier.replay import moved_core_bytes
from tests.schedule.schedule_samples import (
    STCP920,
    Net,
    networks,
    scheduler_of,
    settings_of,
    target,
    targets,
    workload,
)

if TYPE_CHECKING:
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware import Target


def test_moved_pieces_take_what_the_busiest_core_gets() -> None:
    """Rows 0 to 4 over two cores: two rows each; a piece of three rows gives one core two."""
    need = ((0, 4), (0, 10))
    assert moved_core_bytes(need, [((0, 3), (0, 10))], (2, 1), 2) == 2 * 10 * 2
    assert moved_core_bytes(need, [((0, 1), (0, 10)), ((3, 4), (0, 10))], (2, 1), 2) == 10 * 2
    assert moved_core_bytes(need, [((0, 4), (0, 10))], (2, 2), 2) == 2 * 5 * 2
    assert moved_core_bytes(need, [((0, 3), (0, 10))], None, 2) == 3 * 10 * 2


def test_weights_that_only_some_parts_read_do_not_stay() -> None:
    """Half of the rows of a concatenation need the product; the others never load its weights."""
    net = Net(x=(1, 4, 6))
    net.concat(1, net.linear("x", 6), net.relu("x"))
    parts = SubGraphKnobs("concat0", boundary="merge", dim=1, factor=4)
    knobs = Knobs(weight_residency="LB", instance_order="footprint", overrides=(parts,))
    schedule = build_schedule(ModelScheduler(net.graph(), target(lb=1 << 14), "float16"), knobs)
    assert max(p.count for p in schedule.instances.parts) == 4
    assert check_memory(schedule) == ()
    assert not schedule.timeline.resident.any()


EXAMPLES = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@EXAMPLES
@given(graph=networks(), machine=targets(), data=st.data())
def test_random_schedules_have_no_findings(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    _has_no_findings(graph, machine, data)


@pytest.mark.full
@settings(EXAMPLES, max_examples=80)
@given(graph=networks(), machine=targets(), data=st.data())
def test_many_random_schedules_have_no_findings(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    _has_no_findings(graph, machine, data)


def _has_no_findings(graph: Graph, machine: Target, data: st.DataObject) -> None:
    schedule = build_schedule(
        ModelScheduler(graph, machine, "float16"), data.draw(settings_of(on=machine))
    )
    assert check_regions(schedule) == ()
    assert check_memory(schedule) == ()


@pytest.mark.parametrize(
    ("name", "scheduler"),
    [
        ("squeezenet1_1", "graphturbo"),
        *(
            pytest.param("squeezenet1_1", scheduler, marks=pytest.mark.full)
            for scheduler in SCHEDULERS.names()
            if scheduler != "graphturbo"
        ),
        pytest.param("shufflenet_v2", "graphturbo", marks=pytest.mark.full),
        pytest.param("bert_base_s128", "graphturbo", marks=pytest.mark.full),
    ],
)
def test_every_scheduler_of_workloads_has_no_findings(name: str, scheduler: str) -> None:
    for schedule in candidates(scheduler, ModelScheduler(workload(name), STCP920, "float16")):
        assert check_regions(schedule) == ()
        assert check_memory(schedule) == ()


def test_instances_are_named_by_their_last_layer_and_part() -> None:
    schedule = build_schedule(scheduler_of("resnet50"), Knobs())
    names = [instance_name(schedule, i) for i in range(schedule.instances.count)]
    assert names[:2] == ["node_relu_12[1/8]", "node_relu_12[2/8]"]
    assert names[-1] == "node_linear"
    assert len(set(names)) == len(names)
    assert instance_name(schedule, 99) == "instance 99"
