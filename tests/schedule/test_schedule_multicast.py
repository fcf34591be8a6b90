"""Weights that clusters with samples of their own read once for all of them."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target, load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.partition.split import SplitRules
from autoturbo.search.warm_starts.best_sets import Grid
from autoturbo.search.warm_starts.dp_partition import PartitionProgram
from autoturbo.search.warm_starts.groups import GroupLimits
from autoturbo.simulator.evaluator import Evaluator
from tests.schedule.schedule_samples import STCP920, Net, networks, workload
from tests.schedule.test_schedule_ddr_share import measured, roomy


def once_for_all(chip: Target) -> Target:
    return dataclasses.replace(chip, ddr=dataclasses.replace(chip.ddr, multicast=True))


@given(networks(), st.sampled_from((1, 2, 4)), st.sampled_from((0, 1024)))
@settings(max_examples=25, deadline=None)
def test_it_is_never_slower_and_moves_no_more(graph: Graph, clusters: int, ahead: int) -> None:
    chip = roomy(clusters)
    own = measured(graph, chip, fetch_ahead=ahead)
    once = measured(graph, once_for_all(chip), fetch_ahead=ahead)
    assert once.latency <= own.latency * (1 + 1e-9)
    assert once.ddr_bytes <= own.ddr_bytes
    assert once.gb_bytes == own.gb_bytes
    if clusters == 1 or graph.batch == 1:
        assert (once.latency, once.ddr_bytes) == (own.latency, own.ddr_bytes)


@given(networks(), st.sampled_from(("pipeline", "spatial", "channel", "branches")))
@settings(max_examples=15, deadline=None)
def test_clusters_that_divide_outputs_read_for_themselves(graph: Graph, split: str) -> None:
    own = measured(graph, roomy(2), cluster_partitioning=split)
    assert (
        own.latency == measured(graph, once_for_all(roomy(2)), cluster_partitioning=split).latency
    )


@pytest.mark.parametrize("ahead", [0, 1024])
def test_a_weight_passes_the_bus_once(ahead: int) -> None:
    """A product of 8 MB for one sample on each of four clusters: DDR is all that it waits for."""
    net = Net(x=(4, 2048))
    graph = net.graph(net.linear("x", 2048), batch=4)
    weights, rest = 2048 * 2048 * 2, 2 * 4 * 2048 * 2
    own = measured(graph, STCP920, fetch_ahead=ahead)
    once = measured(graph, once_for_all(STCP920), fetch_ahead=ahead)
    assert own.ddr_bytes == 4 * weights + rest
    assert once.ddr_bytes == weights + rest
    seconds = 0.75 * 4 * weights / (STCP920.ddr.bandwidth * STCP920.ddr.efficiency)
    assert own.latency - once.latency == pytest.approx(seconds, rel=0.05)


def test_a_dma_takes_all_of_the_bytes() -> None:
    """Where the DMA of a cluster is what limits, one reading for all gains nothing."""
    slow = dataclasses.replace(STCP920.dma, bandwidth=1e9, channels=1)
    chip = dataclasses.replace(STCP920, dma=slow)
    graph = workload("alexnet", 4)
    assert measured(graph, once_for_all(chip)).latency == measured(graph, chip).latency


def test_bounds_of_warm_starts_hold() -> None:
    chip, graph = once_for_all(load_target("stcp920")), workload("squeezenet1_1", 4)
    evaluator = Evaluator(graph, chip, "float16")
    grid = Grid((1, 2, 4), limits=GroupLimits(4, 8), near=SplitRules.of(Knobs()))
    pruned, whole = (
        PartitionProgram.over(evaluator, grid, prune=prune).cover() for prune in (True, False)
    )
    assert pruned.seconds == pytest.approx(whole.seconds)
