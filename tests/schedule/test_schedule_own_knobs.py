"""Knobs of single sub-graphs, and newer ones of the model: each does what it says."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.errors import KnobsError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.schedule.knobs import (
    AUTO,
    Knobs,
    Stage,
    SubGraphKnobs,
    knob_names,
    model_knobs,
    subgraph_knobs,
)
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule, key, plan
from autoturbo.schedule.place.bind import Scope, cores_used
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.sequence import simulate
from tests.schedule.schedule_checks import check_schedule
from tests.schedule.schedule_samples import Net, block, capacity, chain, networks, target
from tests.schedule.steps import instance_of, instances_of, names_of, signature_of, steps_of


def two_convolutions() -> Graph:
    """Two sub-graphs of one convolution each, when cut; a sample is 512 bytes everywhere."""
    net = Net(x=(4, 4, 8, 8))
    net.conv(net.conv("x", 4, 1), 4, 1)
    return net.graph()


def built(
    machine: Target | None = None, model: dict[str, Any] | None = None, **own: Any
) -> Schedule:
    """Cut after conv0, whose sub-graph has decisions of its own."""
    override = SubGraphKnobs("conv0", boundary="cut", **own)
    model_scheduler = ModelScheduler(two_convolutions(), machine or target(lb=1 << 14), "float16")
    schedule = build_schedule(model_scheduler, Knobs(**(model or {}), overrides=(override,)))
    check_schedule(schedule)
    return schedule


def parts(schedule: Schedule, subgraph: int = 0) -> list[int]:
    return [i.index for i in instances_of(schedule.instances) if i.subgraph == subgraph]


def test_a_second_axis_is_cut_inside_the_first() -> None:
    schedule = built(dim=0, factor=2, inner_dim=1, inner_factor=4)
    assert len(parts(schedule)) == 8
    first = [instance_of(schedule.instances, i).outputs for i in parts(schedule)]
    regions = [next(iter(o.values())).tolist() for o in first]
    assert [r[0] for r in regions] == [[0, 2]] * 4 + [[2, 4]] * 4
    assert [r[2] for r in regions] == [[0, 2], [2, 4], [4, 6], [6, 8]] * 2


@pytest.mark.full
def test_a_second_axis_that_is_not_named_is_the_outermost_other_one() -> None:
    named = built(dim=0, factor=2, inner_dim=1, inner_factor=2)
    assert (
        built(dim=0, factor=2, inner_factor=2).text.split('"knobs"')[0]
        == (named.text.split('"knobs"')[0])
    )


@pytest.mark.parametrize("cores", [1, 2])
def test_cores_are_as_many_as_asked_for(cores: int) -> None:
    schedule = built(cores=cores)
    used = [cores_used(schedule.placement.bindings[i]) for i in parts(schedule)]
    assert used == [cores]
    assert cores_used(schedule.placement.bindings[parts(schedule, 1)[0]]) == 4


def test_cores_spread_over_the_dimension_asked_for_first() -> None:
    assert built().placement.bindings[0] == (4, 1, 1, 1)
    assert built(core_parallel_dim=1).placement.bindings[0] == (1, 1, 4, 1)
    assert built(core_parallel_dim=3, cores=2).placement.bindings[0] == (1, 2, 1, 1)


@pytest.mark.full
def test_cores_that_are_left_go_to_the_dimensions_inside_it_then_outside() -> None:
    def bound(cores: int, depth: int) -> tuple[int, ...]:
        machine = dataclasses.replace(target(lb=1 << 14), cores=cores)
        return built(machine, core_parallel_dim=depth).placement.bindings[0]

    assert bound(16, 0) == (4, 1, 4, 1)
    assert bound(16, 1) == (1, 1, 8, 2)
    assert bound(16, 2) == (1, 2, 1, 8)
    assert bound(16, 3) == (4, 4, 1, 1)
    assert bound(512, 2) == (4, 4, 4, 8)


def test_cores_that_do_not_divide_are_refused() -> None:
    with pytest.raises(KnobsError) as caught:
        built(cores=3)
    assert caught.value.at.field == "overrides"


def test_priority_goes_before_depth() -> None:
    """With its parts first, all of conv0 runs before any of conv1."""
    overrides = tuple(
        SubGraphKnobs(name, boundary="cut", dim=0, factor=4, priority=priority)
        for name, priority in (("conv0", 9), ("conv1", 1))
    )
    model_scheduler = ModelScheduler(two_convolutions(), target(lb=1 << 14), "float16")

    def owners(order: str) -> list[int]:
        schedule = build_schedule(model_scheduler, Knobs(instance_order=order, overrides=overrides))
        check_schedule(schedule)
        return [instance_of(schedule.instances, i).subgraph for i in schedule.order]

    assert owners("dfs") == [0, 1] * 4
    assert owners("priority") == [0] * 4 + [1] * 4


def test_weights_that_stay_in_lb_are_loaded_once() -> None:
    """Nothing of the later parts' weights passes DDR or the global buffer."""
    streamed = built(dim=0, factor=4, weight_residency="stream")
    for residency, resident in (("GB", 1), ("LB", 2)):
        kept = built(dim=0, factor=4, weight_residency=residency)
        own = [s.weights_resident for s in steps_of(kept.timeline) if s.instance in parts(kept)]
        assert own == [0, resident, resident, resident]
        assert simulate(kept).ddr_bytes == simulate(streamed).ddr_bytes - 3 * 4 * 4 * 2
        (buffer,) = [i for i, n in enumerate(names_of(kept.timeline)) if n.kind == "weights"]
        assert kept.timeline.buffers.scope[buffer] == Scope[residency]
    in_gb = built(dim=0, factor=4, weight_residency="GB")
    in_lb = built(dim=0, factor=4, weight_residency="LB")
    assert simulate(in_lb).bytes["gb_read"] < simulate(in_gb).bytes["gb_read"]


def test_weights_without_room_in_lb_are_streamed() -> None:
    """They may take half of it at most."""
    net = Net(x=(4, 16, 2, 2))
    net.conv("x", 16, 1)
    override = SubGraphKnobs("conv0", dim=0, factor=4, weight_residency="LB")

    def resident(room: int) -> list[int]:
        model_scheduler = ModelScheduler(net.graph(), target(cores=1, lb=capacity(room)), "float16")
        schedule = build_schedule(model_scheduler, Knobs(overrides=(override,)))
        check_schedule(schedule)
        return [step.weights_resident for step in steps_of(schedule.timeline)]

    assert resident(2 * 16 * 16 * 2) == [0, 2, 2, 2]
    assert resident(2 * 16 * 16 * 2 - 64) == [0, 0, 0, 0]


def test_a_share_for_weight_tiles_is_taken_from_the_room_for_tensors() -> None:
    machine = target(lb=1 << 14, weights=256)
    schedule = built(machine, weight_buffer_fraction=0.5)
    assert schedule.rules_of(0).weight_room == 1 << 13
    assert schedule.rules_of(1).weight_room == schedule.rules.weight_room == 1 << 10
    tiles = [i for i, n in enumerate(names_of(schedule.timeline)) if n.kind == "tiles"]
    assert [int(schedule.timeline.buffers.core_bytes[i]) for i in tiles] == [(1 << 13) - (1 << 10)]


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("prefetch_depth", 3, ("ahead", 3)),
        ("tile_subdivision", 4, ("divisor", 4)),
        ("instruction_scheduling", "layer", ("across", False)),
        ("instruction_scheduling", "off", ("serial", True)),
    ],
)
def test_instructions_of_one_sub_graph(name: str, value: Any, rule: tuple[str, Any]) -> None:
    """Its own rules hold for it alone, over what the model says."""
    schedule = built(**{name: value})
    assert getattr(schedule.rules_of(0), rule[0]) == rule[1]
    assert schedule.rules_of(1) == schedule.rules
    plain = built()
    pairs = zip(steps_of(schedule.timeline), steps_of(plain.timeline), strict=True)
    own = [signature_of(schedule, s) == signature_of(plain, p) for s, p in pairs]
    assert own == [False, True]


@pytest.mark.full
def test_a_sub_graph_may_say_what_the_model_does_not() -> None:
    schedule = built(model={"instruction_scheduling": "off"}, instruction_scheduling="on")
    assert schedule.rules.serial
    assert not schedule.rules_of(0).serial


@settings(max_examples=8, deadline=None)
@given(graph=networks(), data=st.data())
def test_any_split_and_spread_gives_a_valid_schedule(graph: Graph, data: st.DataObject) -> None:
    """Two axes, cores and dimensions at random, on whatever sub-graph the layer ends up in."""
    machine = target(
        cores=data.draw(st.sampled_from((1, 2, 4, 8))),
        lb=data.draw(st.sampled_from((512, 4096, 1 << 16))),
    )
    model_scheduler = ModelScheduler(graph, machine, "float16")
    layers = [
        layer.name for layer in model_scheduler.context(model_scheduler.share().batches).layers
    ]
    override = SubGraphKnobs(
        data.draw(st.sampled_from(layers)),
        dim=data.draw(st.integers(0, 3)), factor=data.draw(st.integers(1, 4)),
        inner_dim=data.draw(st.just("auto") | st.integers(0, 3)),
        inner_factor=data.draw(st.integers(1, 4)),
        cores=data.draw(st.sampled_from([c for c in (1, 2, 4, 8) if c <= machine.cores])),
        core_parallel_dim=data.draw(st.just("auto") | st.integers(0, 3)),
    )  # fmt: skip
    knobs = Knobs(
        overrides=(override,), weight_residency=data.draw(st.sampled_from(("auto", "LB")))
    )
    try:
        schedule = build_schedule(model_scheduler, knobs)
    except KnobsError:
        schedule = build_schedule(model_scheduler, dataclasses.replace(knobs, overrides=()))
    check_schedule(schedule)


NETWORKS: tuple[tuple[Graph, Target], ...] = (
    (block(), target(lb=1024, clusters=2)),
    (block(), target(lb=1024, weights=64, cores=3)),
    (block(), target(lb=512, weights=64, cores=3)),
    (chain(*["conv", "relu"] * 3, shape=(1, 4, 8, 32)), target(lb=512, weights=64, cores=3)),
    (chain("conv", "conv", shape=(2, 32, 8, 8)), target(lb=4096, weights=4096, gb=1 << 13)),
)


@functools.cache
def made(network: int, knobs: Knobs) -> dict[Stage, object]:
    """What each pass makes of a setting; nothing is remembered of another one."""
    model_scheduler = ModelScheduler(*NETWORKS[network], "float16")
    schedule = build_schedule(model_scheduler, knobs)
    return {
        Stage.SHARE: model_scheduler.share_of(knobs),
        Stage.PARTITION: (
            schedule.share,
            schedule.instances.subgraphs,
            plan(model_scheduler, knobs).homes,
        ),
        Stage.ORDER: schedule.order,
        Stage.BIND: schedule.placement.bindings,
        Stage.PLACE: schedule.placement.scopes,
        Stage.MEMORY: (
            json.loads(schedule.text)["buffers"],
            [(t.streams.tolist(), t.resident.tolist()) for t in schedule.timelines],
        ),
        Stage.CODEGEN: [
            (schedule.signatures(at), schedule.opens(at).tolist())
            for at in range(len(schedule.timelines))
        ],
    }


OF_MODEL: dict[str, tuple[Any, ...]] = {
    "batches_per_cluster": (1,), "dim": (1, 2), "factor": (2, 4), "inner_dim": (1, 2),
    "inner_factor": (2, 4), "cores": (1, 2), "core_parallel_dim": (0, 1), "used_cores": (1, 2),
    "used_lb_kib": (1, 2), "used_weight_kib": (1,), "used_gb_kib": (1, 2), "core_groups": (2,),
}  # fmt: skip
"""Values of knobs whose values depend on the model."""

BESIDE: dict[str, dict[str, Any]] = {
    "dim": {"factor": 2},
    "inner_dim": {"dim": 0, "factor": 2, "inner_factor": 2},
    "inner_factor": {"dim": 0, "factor": 2},
}
"""What a knob of a sub-graph means nothing without."""


@pytest.mark.parametrize("name", model_knobs())
def test_a_knob_changes_nothing_before_its_stage(name: str) -> None:
    spec = model_knobs()[name]
    values: tuple[Any, ...] = spec.choices or getattr(spec, "untried", ()) or OF_MODEL[name]
    changed = [Knobs(**{name: value}) for value in values]
    check_stage(spec.stage, Knobs(), changed)


@pytest.mark.parametrize("name", subgraph_knobs())
def test_a_sub_graph_s_knob_changes_nothing_before_its_stage(name: str) -> None:
    spec = subgraph_knobs()[name]
    beside = SubGraphKnobs("conv1", **BESIDE.get(name, {}))
    before = Knobs(instance_order="priority" if name == "priority" else AUTO, overrides=(beside,))
    values: tuple[Any, ...] = spec.choices or OF_MODEL[name]
    own = [dataclasses.replace(beside, **{name: value}) for value in values]
    check_stage(spec.stage, before, [dataclasses.replace(before, overrides=(o,)) for o in own])


def check_stage(first: Stage, before: Knobs, changed: Sequence[Knobs]) -> None:
    """Settings that differ in one knob: alike before its stage, and some not alike from there on.

    Keys differ from there on in any case.
    """
    differ = set[Stage]()
    for knobs in changed:
        same = [stage for stage in Stage if key(before, stage) == key(knobs, stage)]
        assert same == [stage for stage in Stage if stage < first]
        for network in range(len(NETWORKS)):
            with suppress(KnobsError):  # a split that another network has
                one, other = made(network, before), made(network, knobs)
                differ |= {stage for stage in Stage if one[stage] != other[stage]}
    assert min(differ) >= first


def test_every_knob_has_one_stage() -> None:
    stages: list[Stage | None] = [None, *Stage]
    for scopes, specs in (
        (("model",), model_knobs()),
        (("layer", "subgraph"), subgraph_knobs()),
    ):
        parts = [knob_names(*scopes, after=a, upto=b) for a, b in itertools.pairwise(stages) if b]
        assert sorted(sum(parts, ())) == sorted(specs)


def test_settings_that_differ_later_share_a_plan_and_keep_their_overrides() -> None:
    model_scheduler = ModelScheduler(two_convolutions(), target(), "float16")
    cut = SubGraphKnobs("conv0", boundary="cut")
    near, far = (dataclasses.replace(cut, scope=scope) for scope in ("GB", "DDR"))
    one, other = (plan(model_scheduler, Knobs(overrides=(own,))) for own in (near, far))
    assert one.number == other.number
    assert one.subgraphs is other.subgraphs
    assert [found.overrides[0] for found in (one, other)] == [near, far]
