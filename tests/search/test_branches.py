"""Branches that read nothing of each other run side by side where half of the cores would do."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target, load_target
from autoturbo.schedule.chip_part import in_groups
from autoturbo.search.warm_starts.beginning import starting_point
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import seconds_of
from autoturbo.tuning.tuner import tune
from tests.schedule.schedule_samples import Net

PRESETS = ("stcp920", "ascend-910", "goya", "ipu-mk2")
"""Each has several clusters, or several cores in its only one."""


def branches(seed: int, copies: int) -> Graph:
    """Copies of a random chain, each with an input and an output of its own."""
    drawn = random.Random(seed)  # noqa: S311  a test
    shape = (1, drawn.choice((16, 32, 64)), drawn.choice((7, 14, 28)), drawn.choice((7, 14, 28)))
    kinds = [drawn.choice(("conv1", "conv3", "relu", "pool")) for _ in range(drawn.randint(2, 6))]
    net = Net(**{f"x{copy}": shape for copy in range(copies)})
    for copy in range(copies):
        x = f"x{copy}"
        for kind in ("conv3", *kinds):
            if kind == "relu":
                x = net.relu(x)
            elif kind == "pool":
                x = net.pool(x) if min(net.shapes[x][2:]) > 1 else x
            else:
                x = net.conv(x, shape[1], int(kind[-1]))
    return net.graph()


def half(chip: Target) -> Target:
    """A chip of half the cores, buffers and bandwidth, two of which are the chip."""
    apart = chip if chip.clusters % 2 == 0 else in_groups(chip, 2)
    ddr = dataclasses.replace(
        chip.ddr, bandwidth=chip.ddr.bandwidth / 2, capacity=apart.ddr.capacity
    )
    return dataclasses.replace(apart, clusters=apart.clusters // 2, ddr=ddr)


def started(graph: Graph, chip: Target) -> float:
    """Seconds of what a search starts from."""
    evaluator = Evaluator(graph, chip, chip.default_dtype)
    starts = [start.knobs for start in starting_point(evaluator, fit=True).settings]
    tried = (evaluator.heuristic(), *starts)
    return min(seconds_of(evaluator.evaluate(knobs)) for knobs in tried)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 8))]
)
def test_two_branches_take_little_longer_than_one_where_half_would_do(seed: int) -> None:
    chip = load_target(PRESETS[seed % len(PRESETS)])
    one, two = (started(branches(seed, copies), chip) for copies in (1, 2))
    assert two <= 2 * one * (1 + 1e-9)
    on_half = started(branches(seed, 1), half(chip))
    assert math.isfinite(one)
    assert two <= max(1.3 * one, 1.05 * on_half)


@pytest.mark.full
def test_a_search_goes_on_from_branches_side_by_side() -> None:
    """Also on a part of the chip, here on one core of each cluster."""
    chip = load_target("stcp920")
    graph = branches(4, 2)
    start = started(graph, chip)
    found = tune(graph, chip, trials=8, database=None, verify=False, baselines=())
    assert found.best.measurement.latency <= start
    assert found.best.schedule.knobs.cluster_partitioning == "branches"
