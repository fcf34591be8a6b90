"""Loads that run over kernels: where they may be, that they gain, and that mistakes are found."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from autoturbo.errors import KnobsError
from autoturbo.schedule.by_name import candidates
from autoturbo.schedule.codegen.loads import COPY, KEPT_SHARE, LoadRoom, Loads
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs, fitting
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.simulator.sequence import KernelMemory, simulate
from autoturbo.verifier.loads import check_loads
from autoturbo.verifier.memory import check_memory
from tests.schedule.pass_checks import check_whole_pass
from tests.schedule.schedule_samples import STCP920, Net, chain, networks, settings_of, targets
from tests.schedule.test_schedule_ddr_share import measured

if TYPE_CHECKING:
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware import Target
    from autoturbo.schedule.schedule import Schedule

WIDE = 256
"""Channels: a layer has 1.2 MB of weights in FP16."""


def with_loads() -> Schedule:
    return scheduled(Knobs(max_layers=2, fetch_ahead=1024))


def scheduled(knobs: Knobs, layers: int = 8, target: Target = STCP920) -> Schedule:
    graph = chain(*["conv"] * layers, shape=(1, WIDE, 14, 14))
    return build_schedule(ModelScheduler(graph, target, "float16"), knobs)


def without(target: Target) -> Target:
    dma = dataclasses.replace(target.dma, prefetch_over_kernels=False)
    return dataclasses.replace(target, dma=dma)


def test_zero_is_what_there_was() -> None:
    before = scheduled(Knobs(max_layers=2))
    for knobs in (Knobs(max_layers=2, fetch_ahead=0), Knobs(max_layers=2, fetch_ahead="auto")):
        schedule = scheduled(knobs)
        assert len(schedule.loads().step) == 0
        assert (schedule.digest, simulate(schedule)) == (before.digest, simulate(before))


def test_weights_lie_as_loads_fetch_them() -> None:
    """In the file each row of 2,048 weights is cut into those of four clusters."""
    net = Net(x=(1, 2048))
    graph, split = net.graph(net.linear("x", 2048)), "channel"
    even = dataclasses.replace(STCP920, dram=None)  # how long a run is does not matter there
    for ahead, least, most in ((0, 1.15, 1.2), (1024, 1.0, 1.001)):
        own = {"fetch_ahead": ahead, "cluster_partitioning": split}
        ratio = measured(graph, STCP920, **own).latency / measured(graph, even, **own).latency
        assert least <= ratio <= most


def test_loads_fill_the_bus_while_kernels_compute() -> None:
    graph = chain(*["conv"] * 8, shape=(1, WIDE, 28, 28))  # as long to compute as to fetch
    scheduler = ModelScheduler(graph, STCP920, "float16")
    before = build_schedule(scheduler, Knobs(max_layers=1))
    after = build_schedule(scheduler, Knobs(max_layers=1, fetch_ahead=1024))
    check_whole_pass(after)
    old, new = simulate(before), simulate(after)
    assert new.latency < 0.9 * old.latency
    assert (new.ddr_bytes, new.gb_bytes) == (old.ddr_bytes, old.gb_bytes)
    assert new.busy["dma_in"] == pytest.approx(old.busy["dma_in"])
    assert new.latency >= new.busy["dma_in"]


def test_further_ahead_is_no_later_birth() -> None:
    """More steps ahead, earlier births; what is fetched first is the same."""
    births = [
        scheduled(Knobs(max_layers=2, fetch_ahead=far)).loads().birth for far in (1, 2, 4, 1024)
    ]
    for near, far in itertools.pairwise(births):
        assert (far <= near).all()
    assert (births[-1] < births[0]).any()


def test_a_sub_graph_may_fetch_for_itself() -> None:
    plain = with_loads()
    layer = plain.context.layers[3].name
    knobs = Knobs(max_layers=2, fetch_ahead=1024, overrides=(SubGraphKnobs(layer, fetch_ahead=0),))
    own = scheduled(knobs)
    home = next(s.index for s in own.instances.subgraphs if 3 in s.layers)
    kernels = {int(own.instances.subgraph[own.timeline.order[k]]) for k in own.loads().kernel}
    assert home not in kernels
    assert len(kernels) == len(own.instances.subgraphs) - 1


def test_a_target_that_cannot_is_told_so() -> None:
    with pytest.raises(KnobsError) as caught:
        scheduled(Knobs(fetch_ahead=8), target=without(STCP920))
    assert caught.value.at.field == "fetch_ahead"
    scheduled(Knobs(fetch_ahead=0), target=without(STCP920))


def test_room_is_what_tensors_leave() -> None:
    """With less GB loads wait for more of those before them."""
    small = dataclasses.replace(STCP920, gb=dataclasses.replace(STCP920.gb, capacity=5 << 19))
    knobs = Knobs(max_layers=2, fetch_ahead=1024)
    much, little = scheduled(knobs), scheduled(knobs, target=small)
    assert (little.loads().after >= much.loads().after).all()
    assert (little.loads().after > much.loads().after).any()
    assert check_memory(little) == ()
    check_whole_pass(little)
    assert simulate(little).latency >= simulate(much).latency


def test_a_pass_is_simulated_alike_whatever_is_known() -> None:
    schedule, memory = with_loads(), KernelMemory()
    assert simulate(schedule, memory) == simulate(schedule, memory) == simulate(schedule)


def products(weights: int, layers: int = 12) -> Graph:
    """Products of a row of vectors, each with one of so many weights of half a megabyte."""
    net = Net(x=(1, 16, 512))
    names = [net.weight(512, 512) for _ in range(weights)]
    at = "x"
    for number in range(layers):
        at = net.relu(net.add("MatMul", [at, names[number % weights]], (1, 16, 512)))
    return net.graph()


@pytest.mark.parametrize("layers", [1, 4])
def test_a_weight_that_is_read_again_is_fetched_once(layers: int) -> None:
    knobs = Knobs(max_layers=2 * layers, fetch_ahead=1024)
    one, twelve = (
        build_schedule(ModelScheduler(products(n), STCP920, "float16"), knobs) for n in (1, 12)
    )
    for schedule in (one, twelve):
        assert check_memory(schedule) == ()
        check_whole_pass(schedule)
    assert np.count_nonzero(one.loads().fetched) == len(one.loads().step) // 12
    assert twelve.loads().fetched.all()
    few, many = simulate(one), simulate(twelve)
    moved = 2 * 512 * 512
    assert many.ddr_bytes - few.ddr_bytes == 11 * moved
    assert few.latency < 0.6 * many.latency
    assert few.bytes["gb_read"] == many.bytes["gb_read"]


def test_what_is_kept_leaves_room_for_the_rest() -> None:
    """Twelve weights of half a megabyte in turn: some of them stay in a part of five megabytes."""
    small = dataclasses.replace(STCP920, gb=dataclasses.replace(STCP920.gb, capacity=6 << 20))
    graph = products(12, layers=36)
    schedule = build_schedule(
        ModelScheduler(graph, small, "float16"), Knobs(max_layers=2, fetch_ahead=1024)
    )
    assert check_memory(schedule) == ()
    check_whole_pass(schedule)
    loads = schedule.loads()
    kept = loads.size[loads.until > loads.step].sum()
    most = LoadRoom.of(small).size // KEPT_SHARE
    assert most - loads.size.max() < kept <= most


def test_instances_that_read_all_weights_share_them() -> None:
    graph = chain(*["conv"] * 4, shape=(4, 64, 56, 56))
    scheduler = ModelScheduler(graph, STCP920, "float16")
    last = scheduler.context(1).layers[-1].name
    four = SubGraphKnobs(last, dim=1, factor=4)
    own, shared = (
        build_schedule(scheduler, Knobs(fetch_ahead=far, overrides=(four,))) for far in (0, 1024)
    )
    assert len(shared.order) > 1
    assert check_memory(shared) == ()
    check_whole_pass(shared)
    assert simulate(shared).ddr_bytes < simulate(own).ddr_bytes


def of_parts(order: str = "bfs") -> Schedule:
    """Four convolutions, each in four parts of the samples, which pass DDR."""
    scheduler = ModelScheduler(chain(*["conv"] * 4, shape=(16, 64, 56, 56)), STCP920, "float16")
    parts = tuple(
        SubGraphKnobs(layer.name, boundary="cut", dim=0, factor=4)
        for layer in scheduler.context(4).layers
    )
    knobs = Knobs(max_layers=1, output_scope="DDR", instance_order=order, overrides=parts)
    return build_schedule(scheduler, dataclasses.replace(knobs, fetch_ahead=1024))


@pytest.mark.parametrize("order", ["bfs", "dfs"])
def test_inputs_come_early_once_they_are_made(order: str) -> None:
    schedule = of_parts(order)
    loads, weights = schedule.loads(), without_inputs(of_parts(order))
    assert loads.inputs.sum() >= 8
    assert check_memory(schedule) == ()
    check_whole_pass(schedule)
    early, late = simulate(schedule), simulate(weights)
    assert early.latency < 0.99 * late.latency
    assert early.bytes == late.bytes


def without_inputs(schedule: Schedule) -> Schedule:
    """The schedule with loads of weights alone."""
    loads = schedule.loads()
    kept = np.flatnonzero(loads.inputs == 0)
    number = np.full(len(loads.inputs) + 1, -1)
    number[kept] = np.arange(len(kept))
    own = Loads(*(column[kept] for column in loads))
    return having(schedule, own._replace(after=number[own.after], kept=number[own.kept]))


def having(schedule: Schedule, loads: Loads) -> Schedule:
    """The schedule, which is told that its first cluster has other loads."""
    own = schedule.loads
    vars(schedule)["loads"] = lambda cluster=0: own(cluster) if cluster else loads
    return schedule


@given(networks(), targets(), st.data())
@settings(max_examples=20, deadline=None)
def test_loads_of_random_settings_keep_all_rules(
    graph: Graph, target: Target, data: st.DataObject
) -> None:
    scheduler = ModelScheduler(graph, target, "float16")
    names = [layer.name for layer in scheduler.context(1).layers]
    knobs = data.draw(settings_of(names, on=target))
    knobs = fitting(dataclasses.replace(knobs, fetch_ahead=1024), target)
    try:
        schedule = build_schedule(scheduler, knobs)
    except KnobsError:
        return
    loads = [schedule.loads(cluster) for cluster in range(len(schedule.timelines))]
    event(f"inputs: {any(one.inputs.any() for one in loads)}")
    event(f"copies: {any((one.instruction == COPY).any() for one in loads)}")
    assert check_memory(schedule) == ()
    if any(len(one.step) for one in loads):
        check_whole_pass(schedule)


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("share", range(3))
@pytest.mark.parametrize(
    "kind",
    ["early", "later", "longer", "shorter", "larger", "smaller", "askew", "foreign", "gone"],
)
def test_every_mistake_with_inputs_is_found(kind: str, share: int, *, copies: bool) -> None:
    schedule = of_parts()
    loads = schedule.loads()
    of_kind = np.flatnonzero(loads.inputs & ((loads.instruction == COPY) == copies))
    at = int(of_kind[share * (len(of_kind) - 1) // 2])
    if kind == "early":  # before it is made
        birth = loads.birth.copy()
        order = schedule.timeline.order.tolist()
        makers = schedule.instances.producers[order[loads.kernel[at]]]
        birth[at] = max(map(order.index, makers), default=-1)  # all is in DDR from the next step on
        wrong = loads._replace(birth=birth)
    else:
        wrong = mutated(loads, kind, at)
    assert check_loads(having(schedule, wrong))


def mutants() -> list[tuple[str, int]]:
    """Eleven kinds of mistakes, at five loads each."""
    kinds = (
        "sooner", "later", "longer", "shorter", "larger", "smaller", "moved", "askew", "swapped",
        "foreign", "gone",
    )  # fmt: skip
    return [(kind, share) for kind in kinds for share in range(5)]


def mutated(loads: Loads, kind: str, at: int) -> Loads:
    """Loads with one mistake; ``at`` is never the first."""
    columns = {name: values.copy() for name, values in loads._asdict().items()}
    changes = {
        "sooner": ("after", loads.after[at] - 1),  # while some of its bytes are another load's
        "later": ("birth", loads.step[at] + 1),
        "longer": ("step", loads.step[at] + 1),
        "shorter": ("step", loads.step[at] - 1),
        "larger": ("size", loads.size[at] + 64),
        "smaller": ("size", loads.size[at] - 64),
        "moved": ("address", loads.address[at - 1]),
        "askew": ("address", loads.address[at] + 1),
        "foreign": ("instruction", loads.instruction[at] + 1),
        "gone": ("kept", at - 1),  # as if the one before had brought it
    }
    if kind == "swapped":
        for values in columns.values():
            values[[at - 1, at]] = values[[at, at - 1]]
    else:
        column, value = changes[kind]
        columns[column][at] = value
    return Loads(**columns)


@pytest.mark.parametrize(("kind", "share"), mutants())
def test_every_mistake_is_found(kind: str, share: int) -> None:
    schedule = scheduled(Knobs(max_layers=2, fetch_ahead=1024), layers=10)
    loads = schedule.loads()
    waiting = np.flatnonzero(loads.after >= 0)
    at = int(waiting[share * (len(waiting) - 1) // 4])
    assert check_loads(schedule) == ()
    assert check_loads(having(schedule, mutated(loads, kind, at)))


def test_the_rung_above_the_heuristic_has_loads_where_the_target_can() -> None:
    graph = chain(*["conv"] * 6, shape=(4, WIDE, 14, 14))
    for target, faster in ((STCP920, True), (without(STCP920), False)):
        scheduler = ModelScheduler(graph, target, "float16")
        plain, ahead = (
            min(simulate(schedule).latency for schedule in candidates(name, scheduler))
            for name in ("graphturbo", "prefetching")
        )
        assert (ahead < plain) == faster
        assert ahead <= plain
