"""A schedule for a part of a chip is the schedule of the smaller chip, and runs alike."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.errors import KnobsError, ScheduleFileError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.hardware.parts import NO_GLOBAL_BUFFER
from autoturbo.schedule.chip_part import WHOLE, ChipPart, carried, held, used_target
from autoturbo.schedule.files import load_schedule, schedule_of
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement
from autoturbo.simulator.sequence import simulate
from autoturbo.simulator.unpublished import timed_again
from tests.schedule.schedule_samples import block, chain, networks, target

KIB = 1024


def chip(**sizes: Any) -> Target:
    """A chip of 8 cores with a way past its global buffer."""
    known = {"cores": 8, "lb": 64 * KIB, "weights": 4 * KIB, "gb": 64 * KIB, **sizes}
    made = target(**known)
    return dataclasses.replace(made, dma=dataclasses.replace(made.dma, bypasses_gb=True))


PARTS = (
    ({"used_cores": 4}, {"cores": 4}),
    ({"used_lb_kib": 16}, {"lb": 16 * KIB}),
    ({"used_weight_kib": 1}, {"weights": KIB}),
    ({"used_gb_kib": 8}, {"gb": 8 * KIB}),
    ({"used_cores": 3, "used_lb_kib": 32}, {"cores": 3, "lb": 32 * KIB}),
)
"""Knobs, and the chip that they leave."""


SPLITS = ("auto", "either", "branches")


def decisions(graph: Graph, on: Target, knobs: Knobs) -> tuple[dict[str, Any], float]:
    """What a schedule file says but for knobs and target, and the simulated seconds."""
    schedule = build_schedule(ModelScheduler(graph, on, "float16"), knobs)
    outcome = Evaluator(graph, on, "float16").evaluate(knobs)
    assert isinstance(outcome, Measurement)
    document = json.loads(schedule.text)
    return {n: v for n, v in document.items() if n not in ("knobs", "target")}, outcome.latency


@given(networks(), st.sampled_from(PARTS), st.sampled_from((1, 2)))
@settings(max_examples=25, deadline=None)
def test_a_part_is_the_smaller_chip(
    graph: Graph, part: tuple[dict[str, Any], dict[str, Any]], clusters: int
) -> None:
    used, sizes = part
    larger = decisions(graph, chip(clusters=clusters), Knobs(**used))
    assert larger == decisions(graph, chip(clusters=clusters, **sizes), Knobs())


@given(networks())
@settings(max_examples=10, deadline=None)
def test_the_way_past_a_global_buffer_is_that_of_a_chip_without_one(graph: Graph) -> None:
    without = dataclasses.replace(chip(), gb=NO_GLOBAL_BUFFER)
    assert decisions(graph, chip(), Knobs(used_gb_kib=0)) == decisions(graph, without, Knobs())


@given(networks(), st.sampled_from((1, 2)), st.sampled_from((2, 4)), st.sampled_from(SPLITS))
@settings(max_examples=25, deadline=None)
def test_groups_of_cores_are_clusters(graph: Graph, clusters: int, groups: int, split: str) -> None:
    """Each has its share of what the cores of a cluster have in common."""
    of = chip(clusters=clusters)
    apart = dataclasses.replace(
        of, clusters=clusters * groups, cores=8 // groups,
        gb=dataclasses.replace(
            of.gb, capacity=of.gb.capacity // groups, bandwidth=of.gb.bandwidth / groups
        ),
        dma=dataclasses.replace(of.dma, bandwidth=of.dma.bandwidth / groups),
        ddr=dataclasses.replace(of.ddr, capacity=of.ddr.capacity // groups),
    )  # fmt: skip
    own = Knobs(cluster_partitioning=split)
    in_groups = dataclasses.replace(own, core_groups=groups)
    assert decisions(graph, of, in_groups) == decisions(graph, apart, own)


@pytest.mark.parametrize("split", SPLITS)
def test_groups_of_cores_are_read_from_a_schedule_file(tmp_path: Path, split: str) -> None:
    knobs = Knobs(used_cores=4, core_groups=2, cluster_partitioning=split)
    schedule = build_schedule(ModelScheduler(block(), chip(), "float16"), knobs)
    schedule.save(tmp_path / "schedule.json")
    again = load_schedule(tmp_path / "schedule.json", schedule.model, chip())
    assert again.text == schedule.text
    assert again.context.target.clusters == 2
    assert timed_again(again, {}) == simulate(schedule).latency


def test_a_sub_graph_s_cores_are_of_those_that_are_used() -> None:
    own = SubGraphKnobs("conv1", cores=2)
    small = decisions(block(), chip(cores=4), Knobs(overrides=(own,)))
    assert decisions(block(), chip(), Knobs(used_cores=4, overrides=(own,))) == small


@pytest.mark.parametrize(
    ("knobs", "on", "says"),
    [
        (Knobs(used_cores=9), chip(), "9 is more than the target has: cores_per_cluster is 8"),
        (Knobs(used_lb_kib=65), chip(), "used_lb_kib: 65 is more than the target has"),
        (Knobs(used_weight_kib=5), chip(), "lb.weight_capacity_kib is 4"),
        (Knobs(used_gb_kib=65), chip(), "gb.capacity_kib is 64"),
        (Knobs(used_gb_kib=1), chip(gb=0), "gb.capacity_kib is 0"),
        (Knobs(core_groups=3), chip(), "3 groups do not divide the 8 cores of a cluster"),
        (Knobs(used_gb_kib=0), target(), "dma.bypasses_gb is false"),
    ],
)  # fmt: skip
def test_what_a_chip_does_not_have_is_refused(knobs: Knobs, on: Target, says: str) -> None:
    with pytest.raises(KnobsError) as caught:
        build_schedule(ModelScheduler(chain("relu"), on, "float16"), knobs)
    assert says in str(caught.value)


def test_a_part_is_read_from_a_schedule_file(tmp_path: Path) -> None:
    knobs = Knobs(used_cores=2, used_lb_kib=32)
    schedule = build_schedule(ModelScheduler(block(), chip(), "float16"), knobs)
    schedule.save(tmp_path / "schedule.json")
    again = load_schedule(tmp_path / "schedule.json", schedule.model, chip())
    assert again.text == schedule.text
    assert json.loads(again.text)["target"]["hash"] == chip().hash


def test_statistics_are_those_of_the_smaller_chip() -> None:
    larger, small = (Evaluator(block(), on, "float16") for on in (chip(), chip(cores=4)))
    one, other = larger.statistics(Knobs(used_cores=4)), small.statistics(Knobs())
    assert one is not None
    assert other is not None
    assert one.values.tolist() == other.values.tolist()
    whole = larger.statistics(Knobs())
    assert whole is not None
    assert whole.values.tolist() != one.values.tolist()


def test_all_of_a_chip_is_itself() -> None:
    assert used_target(chip(), WHOLE) is chip() or used_target(chip(), WHOLE) == chip()
    assert ChipPart.of(Knobs()) == WHOLE
    assert ChipPart(used_cores=2).on(Knobs(max_layers=2)) == Knobs(max_layers=2, used_cores=2)


def test_another_chip_has_groups_that_divide_its_cores() -> None:
    assert held(ChipPart(core_groups=4), chip(cores=12)) == ChipPart(core_groups=4)
    assert held(ChipPart(core_groups=4), chip(cores=6)) == WHOLE
    assert carried(ChipPart(core_groups=2), chip(), chip()) == ChipPart(core_groups=2)


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_the_cores_of_a_merged_sub_graph_hold_for_all_of_its_layers(cores: int) -> None:
    """With the rest idle it moves what it moves on a chip of so many, which fits it as well."""
    net = chain("conv", "relu", "conv", "relu", "conv", shape=(1, 16, 8, 8))
    wide = chip(cores=8, lb=256 * KIB, weights=64 * KIB)
    on = dataclasses.replace(wide, transfer=dataclasses.replace(wide.transfer, broadcast=False))
    evaluator = Evaluator(net, on, "float16")
    own = SubGraphKnobs("conv2", cores=cores)
    few, part, all_cores = (
        evaluator.evaluate(knobs)
        for knobs in (Knobs(overrides=(own,)), Knobs(used_cores=cores), Knobs())
    )
    assert isinstance(few, Measurement)
    assert isinstance(part, Measurement)
    assert isinstance(all_cores, Measurement)
    assert len(few.subgraph_times) == 1
    assert few.bytes["gb_read"] == part.bytes["gb_read"] < all_cores.bytes["gb_read"]
    schedule = build_schedule(evaluator.model_scheduler, Knobs(overrides=(own,)))
    assert schedule_of(schedule.text, net, on, "its file").text == schedule.text


def test_more_cores_in_a_file_than_a_kernel_may_have_are_refused() -> None:
    net = chain("conv", "relu", "conv", shape=(1, 16, 8, 8))
    on = chip(lb=256 * KIB, weights=64 * KIB)
    knobs = Knobs(overrides=(SubGraphKnobs("conv1", cores=4),))
    text = build_schedule(ModelScheduler(net, on, "float16"), knobs).text
    with pytest.raises(ScheduleFileError) as caught:
        schedule_of(text.replace('"most_cores": 4', '"most_cores": 3'), net, on, "its file")
    assert caught.value.at.field == "order[0].most_cores"
