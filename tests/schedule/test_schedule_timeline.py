"""The timeline: lives of buffers, reuse in place, streams, and weights that stay in GB."""

from __future__ import annotations

from typing import Any

import pytest

from autoturbo.errors import KnobsError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.schedule.context import Zones
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.memory.allocate import ALIGNMENT
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.streams import IN_DDR, LATE_DDR, LATE_GB, OUT_DDR, OUT_GB, ROOM
from autoturbo.simulator.sequence import simulate
from autoturbo.verifier.memory import check_memory
from tests.schedule.schedule_checks import check_schedule
from tests.schedule.schedule_samples import Net, block, chain, scheduler_of, target
from tests.schedule.steps import names_of, steps_of


def built(graph: Graph, machine: Target | None = None, **knobs: Any) -> Schedule:
    schedule = build_schedule(
        ModelScheduler(graph, machine or target(lb=1 << 16), "float16"), Knobs(**knobs)
    )
    assert check_memory(schedule) == ()
    return schedule


def lives(schedule: Schedule) -> list[tuple[str, str, int, int]]:
    """Kind, tensor, birth and death of every buffer."""
    tensors = schedule.context.graph.tensors
    buffers = schedule.timeline.buffers
    return [
        (name.kind, tensors[name.tensor].name if name.tensor >= 0 else "", int(b), int(d))
        for name, b, d in zip(
            names_of(schedule.timeline), buffers.birth, buffers.death, strict=True
        )
    ]


def test_a_chain_in_one_kernel() -> None:
    """Step 0 is for movements; layers follow; the result leaves to DDR."""
    net = Net(x=(2, 4, 8, 8))
    net.conv(net.conv(net.conv("x", 4), 4), 4)
    schedule = built(net.graph())
    assert lives(schedule) == [
        ("tensor", "conv0", 1, 2), ("tensor", "conv1", 2, 3), ("tensor", "conv2", 3, 3)
    ]  # fmt: skip
    assert schedule.timeline.buffers.scope.tolist() == [Scope.LB, Scope.LB, Scope.DDR]


def test_an_elementwise_layer_reuses_an_input_that_dies_in_it() -> None:
    """The sum is written over one of its operands, and the ReLU after it too."""
    net = Net(x=(2, 4, 8, 8))
    first = net.conv("x", 4)
    net.conv(net.relu(net.sum(net.conv(first, 4), first)), 4)
    schedule = built(net.graph())
    made = [name for kind, name, _, _ in lives(schedule) if kind == "tensor"]
    assert "relu0" not in made
    assert "add0" not in made


def test_an_input_that_is_read_again_is_not_overwritten() -> None:
    net = Net(x=(2, 4, 8, 8))
    first = net.conv("x", 4)
    total = net.sum(net.conv(first, 4), first)
    net.conv(net.sum(net.conv(total, 4), total), 4)
    check_schedule(built(net.graph()))


def test_results_and_inputs_of_the_model_are_streamed_from_ddr() -> None:
    schedule = built(chain("conv"))
    (step,) = steps_of(schedule.timeline)
    size = 2 * 4 * 64 * 2
    assert step.streams[0, IN_DDR] == size
    assert step.streams[0, OUT_DDR] == size
    assert step.streams[:, :ROOM].sum() == 2 * size


def test_an_output_that_is_also_read_inside_is_stored_and_kept() -> None:
    net = Net(x=(2, 4, 8, 8))
    first = net.conv("x", 4)
    second = net.conv(first, 4)
    schedule = built(net.graph(first, second))
    assert [int(s.streams[:, OUT_DDR].sum()) for s in steps_of(schedule.timeline)] == [1024, 1024]
    assert schedule.timeline.buffers.scope[0] == Scope.LB
    assert steps_of(schedule.timeline)[1].streams[0, IN_DDR] == 0


def test_what_a_kernel_spills_it_reads_late() -> None:
    """LB holds one tensor: the skip connection is spilled and read again by the sum."""
    net = Net(x=(1, 4, 8, 8))
    first = net.conv("x", 4)
    at = first
    for _ in range(3):
        at = net.conv(at, 4)
    net.conv(net.sum(at, first), 4)
    machine = target(cores=1, lb=1200, gb=1 << 14)
    schedule = built(net.graph(), machine, merged_factor_ratio=8.0, producer_factor_ratio=0.125)
    for step in steps_of(schedule.timeline):
        late = step.streams[:, [LATE_GB, LATE_DDR]].sum()
        out = step.streams[:, [OUT_GB, OUT_DDR]].sum()
        assert late <= out * 2


@pytest.mark.parametrize("scope", ["LB", "GB", "DDR"])
def test_a_scope_asked_for_one_layer(scope: str) -> None:
    override = SubGraphKnobs("conv0", boundary="cut", scope=scope)
    schedule = built(chain("conv", "conv"), overrides=(override,))
    first = schedule.order[0]
    assert schedule.placement.scopes[first] is Scope[scope]
    buffer = next(
        i for i, n in enumerate(names_of(schedule.timeline))
        if n.kind == "tensor" and n.instance == first
    )  # fmt: skip
    assert Scope(int(schedule.timeline.buffers.scope[buffer])) is Scope[scope]


@pytest.mark.full
def test_gb_without_a_gb_is_refused() -> None:
    with pytest.raises(KnobsError) as caught:
        built(chain("conv", "conv"), target(gb=0, lb=1 << 16), output_scope="GB", max_layers=1)
    assert caught.value.at.field == "output_scope"


def weights_from_ddr(schedule: Schedule) -> float:
    return sum(
        float(s.template.stages[:, Stage.WEIGHTS].sum())
        for s in steps_of(schedule.timeline)
        if not s.weights_resident
    )


def test_weights_that_stay_are_loaded_once() -> None:
    """Four parts along samples load the weights once instead of four times."""
    net = Net(x=(4, 4, 8, 8))
    net.conv("x", 4, 1)
    model_scheduler = ModelScheduler(net.graph(), target(cores=1, lb=2047, gb=1 << 18), "float16")
    streamed = build_schedule(model_scheduler, Knobs())
    kept = build_schedule(model_scheduler, Knobs(weight_residency="GB"))
    check_schedule(kept)
    assert [s.weights_resident for s in steps_of(kept.timeline)] == [False, True, True, True]
    assert weights_from_ddr(kept) * 4 == weights_from_ddr(streamed) == 4 * 4 * 4 * 2
    assert simulate(kept).ddr_bytes + 3 * 4 * 4 * 2 == simulate(streamed).ddr_bytes


@pytest.mark.parametrize("victim", ["auto", "largest"])
def test_kept_weights_have_a_zone_of_their_own(victim: str) -> None:
    """Stage 1's weights stay, those of the other stages are larger than half of GB has left."""
    knobs = Knobs(weight_residency="GB", spill_victim=victim)
    schedule = build_schedule(scheduler_of("resnet50"), knobs)
    buffers, names = schedule.timeline.buffers, names_of(schedule.timeline)
    (kept,) = [i for i, name in enumerate(names) if name.kind == "weights"]
    top = Zones.of(schedule.context.target).gb
    assert buffers.scope[kept] == Scope.GB
    assert 0 <= top - buffers.address[kept] - buffers.cluster_bytes[kept] < ALIGNMENT
    assert [s.weights_resident for s in steps_of(schedule.timeline)].count(True) == 7


@pytest.mark.full
def test_parts_with_weights_of_their_own_load_their_own() -> None:
    """Cut along output channels every part reads other weights; none is there already."""
    net = Net(x=(1, 64))
    net.linear("x", 64)
    knobs = Knobs(weight_residency="GB", overrides=(SubGraphKnobs("matmul0", dim=1, factor=4),))
    schedule = build_schedule(ModelScheduler(net.graph(), target(lb=1 << 14), "float16"), knobs)
    assert len(schedule.order) == 4
    assert not any(s.weights_resident for s in steps_of(schedule.timeline))
    assert weights_from_ddr(schedule) == 64 * 64 * 2
    check_schedule(schedule)


def test_weights_do_not_stay_where_there_is_no_room() -> None:
    machine = target(gb=512, lb=1 << 16)
    model_scheduler = ModelScheduler(block(), machine, "float16")
    schedule = build_schedule(model_scheduler, Knobs(weight_residency="GB", instance_multiplier=2))
    assert not any(s.weights_resident for s in steps_of(schedule.timeline))
    check_schedule(schedule)


@pytest.mark.full
def test_one_instance_has_no_weights_to_keep() -> None:
    schedule = built(chain("conv"), weight_residency="GB")
    assert all(name.kind != "weights" for name in names_of(schedule.timeline))


def test_steps_follow_the_order() -> None:
    schedule = build_schedule(scheduler_of("resnet50"), Knobs())
    assert [s.instance for s in steps_of(schedule.timeline)] == list(schedule.order)
    last = int(schedule.timeline.buffers.death.max())
    assert last < sum(1 + len(s.template.layers) for s in steps_of(schedule.timeline))


@pytest.mark.full
def test_bert_keeps_everything_in_lb() -> None:
    """Table 3: GraphTurbo has one tensor of BERT-128 in DDR, the result, and none in LLB."""
    schedule = build_schedule(scheduler_of("bert_base_s128"), Knobs())
    counts = simulate(schedule).tensors
    assert counts["DDR"] <= 2
    assert counts["LB"] > 0.8 * sum(counts.values())
