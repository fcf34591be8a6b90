"""Loads that run over kernels: where they may be, that they gain, and that mistakes are found."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from autoturbo.errors import KnobsError
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.memory.loads import Loads
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule, candidates
from autoturbo.simulate.sequence import KernelMemory, simulate
from autoturbo.verify.loads import check_loads
from autoturbo.verify.memory import check_memory
from tests.schedule.pass_checks import check_whole_pass
from tests.schedule.schedule_samples import STCP920, chain

if TYPE_CHECKING:
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
    message = r"8 has no place on stcp920: its DMA fetches nothing .* \(engines.dma.prefetch_over"
    with pytest.raises(KnobsError, match=message):
        scheduled(Knobs(fetch_ahead=8), target=without(STCP920))
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


def mutants() -> list[tuple[str, int]]:
    """Ten kinds of mistakes, at five loads each."""
    kinds = (
        "sooner", "later", "longer", "shorter", "larger", "smaller", "moved", "askew", "swapped",
        "foreign",
    )  # fmt: skip
    return [(kind, share) for kind in kinds for share in range(5)]


def mutated(loads: Loads, kind: str, at: int) -> Loads:
    """Loads with one mistake; ``at`` is never the first."""
    columns = {name: values.copy() for name, values in loads._asdict().items()}
    match kind:
        case "sooner":  # while some of its bytes are another load's
            columns["after"][at] -= 1
        case "later":
            columns["birth"][at] = loads.step[at] + 1
        case "longer" | "shorter":
            columns["step"][at] += 1 if kind == "longer" else -1
        case "larger" | "smaller":
            columns["size"][at] += 64 if kind == "larger" else -64
        case "moved":  # onto the load before it
            columns["address"][at] = loads.address[at - 1]
        case "askew":
            columns["address"][at] += 1
        case "swapped":
            for values in columns.values():
                values[[at - 1, at]] = values[[at, at - 1]]
        case "foreign":
            columns["instruction"][at] += 1
    return Loads(**columns)


@pytest.mark.parametrize(("kind", "share"), mutants())
def test_every_mistake_is_found(kind: str, share: int) -> None:
    schedule = scheduled(Knobs(max_layers=2, fetch_ahead=1024), layers=10)
    loads = schedule.loads()
    waiting = np.flatnonzero(loads.after >= 0)
    at = int(waiting[share * (len(waiting) - 1) // 4])
    assert check_loads(schedule) == ()
    schedule._loads[0] = mutated(loads, kind, at)
    assert check_loads(schedule)


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
