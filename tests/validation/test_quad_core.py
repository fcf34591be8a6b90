"""ResNet-18 on four cores beside Stream's published levels."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import quad_core

from autoturbo.graph.operators import Graph
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement

pytestmark = pytest.mark.full


NAMES = ("O0", "O2", "tvm", "graphturbo")
PAGE = (Path(__file__).parents[2] / "docs" / "results.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return quad_core.model()


@pytest.fixture(scope="module")
def levels(graph: Graph) -> dict[tuple[str, str], quad_core.Level]:
    found = [level for a in quad_core.ARRAYS for level in quad_core.scheduled(graph, a, NAMES)]
    for make in (quad_core.layerwise, quad_core.channels, quad_core.multicast):
        found += [make(graph, array) for array in quad_core.ARRAYS]
    return {(level.array, level.name): level for level in found}


def published(array: str, schedule: str) -> float:
    rows = quad_core.published(quad_core.REFERENCE, array)
    return min(float(row["cycles"]) for row in rows if row["what"] == schedule)


@pytest.mark.parametrize("array", list(quad_core.ARRAYS))
def test_layer_by_layer_is_no_slower_than_published(
    levels: dict[tuple[str, str], quad_core.Level], array: str
) -> None:
    assert levels[array, quad_core.LAYERWISE].cycles < published(array, "layer by layer")


def test_fused_is_faster_than_published_on_the_fixed_array_and_near_it_on_the_free_one(
    levels: dict[tuple[str, str], quad_core.Level],
) -> None:
    """Slots for two tiles of weights in LB: on the free array the port is what counts."""
    assert levels["fixed", "graphturbo"].cycles < published("fixed", "layer-fused")
    free = published("free", "layer-fused")
    assert free < levels["free", "graphturbo"].cycles < 1.15 * free


def test_no_overlap_at_all_beats_the_fixed_array_only(
    levels: dict[tuple[str, str], quad_core.Level],
) -> None:
    """O0 runs a tile's steps one after another, Stream's layer by layer overlaps them."""
    assert levels["fixed", "O0"].cycles < published("fixed", "layer by layer")
    assert levels["free", "O0"].cycles > published("free", "layer by layer")
    for array in quad_core.ARRAYS:
        assert levels[array, "O0"].cycles > levels[array, quad_core.LAYERWISE].cycles


@pytest.mark.parametrize("array", list(quad_core.ARRAYS))
def test_channels_over_cores_read_less_and_are_faster_in_spite_of_a_kernel_a_layer(
    levels: dict[tuple[str, str], quad_core.Level], array: str
) -> None:
    channels, fused = levels[array, quad_core.CHANNELS], levels[array, "graphturbo"]
    assert channels.read < 0.75 * fused.read
    assert channels.cycles < fused.cycles
    once = levels[array, quad_core.MULTICAST]
    assert channels.cycles > once.cycles, "what a kernel's first loads cost"


@pytest.mark.parametrize("array", list(quad_core.ARRAYS))
def test_cores_that_load_their_own_weights_read_more(
    levels: dict[tuple[str, str], quad_core.Level], graph: Graph, array: str
) -> None:
    weights = sum(t.elements for t in graph.tensors if t.constant) / 1e6
    each, once = levels[array, "graphturbo"], levels[array, quad_core.MULTICAST]
    assert once.read < 1.05 * weights
    assert 1.2 * once.read < each.read < 4 * once.read
    assert once.cycles < each.cycles


@pytest.mark.parametrize("array", list(quad_core.ARRAYS))
def test_traffic_is_at_least_the_weights_and_the_image(
    levels: dict[tuple[str, str], quad_core.Level], graph: Graph, array: str
) -> None:
    weights = sum(t.elements for t in graph.tensors if t.constant) / 1e6
    for name in NAMES:
        level = levels[array, name]
        assert level.read > weights
        assert level.written >= 0.001  # a thousand scores
    activations = sum(t.elements for t in graph.tensors if not t.constant) / 1e6
    assert 1 < levels[array, "O0"].written < activations
    assert levels[array, "graphturbo"].read < levels[array, "O0"].read


@pytest.mark.parametrize("array", list(quad_core.ARRAYS))
def test_nothing_beats_the_array_at_peak(
    levels: dict[tuple[str, str], quad_core.Level], graph: Graph, array: str
) -> None:
    peak = quad_core.machine(array).matrix.macs_per_cycle(quad_core.DTYPE) * 4
    assert all(levels[array, name].cycles > graph.macs / peak for name in NAMES)


def test_the_page_says_what_comes_out(levels: dict[tuple[str, str], quad_core.Level]) -> None:
    for level in levels.values():
        row = f"{level.cycles:12,.0f}{level.read:9.2f}{level.written:9.2f}"
        assert row in PAGE, level


def test_three_channels_leave_rows_of_the_fixed_array_idle(
    levels: dict[tuple[str, str], quad_core.Level],
) -> None:
    assert levels["fixed", "graphturbo"].cycles > levels["free", "graphturbo"].cycles


def test_links_between_cores_matter(graph: Graph) -> None:
    target = quad_core.machine("fixed")
    slow = dataclasses.replace(target.transfer, bandwidth=target.transfer.bandwidth / 64)
    latencies = []
    for machine in (target, dataclasses.replace(target, transfer=slow)):
        outcome = Evaluator(graph, machine, quad_core.DTYPE).measure_scheduler("graphturbo")
        assert isinstance(outcome, Measurement)
        latencies.append(outcome.latency)
    assert latencies[1] > latencies[0]


def test_a_search_finds_no_worse_and_the_same_again(
    levels: dict[tuple[str, str], quad_core.Level], graph: Graph
) -> None:
    first, second = (quad_core.tuned(graph, "fixed", 24, 0) for _ in range(2))
    assert first.cycles <= levels["fixed", "graphturbo"].cycles
    assert dataclasses.replace(first, seconds=0) == dataclasses.replace(second, seconds=0)
