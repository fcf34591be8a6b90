"""ResNet-18 on four cores beside Stream's published levels."""

from __future__ import annotations

import dataclasses

import pytest
import quad_core
from mappers import REFERENCES, read_table

from autoturbo.graph.operators import Graph
from autoturbo.simulate.evaluator import Evaluator
from autoturbo.simulate.measurement import Measurement

PUBLISHED = read_table(REFERENCES / "stream_quad_core.csv", quad_core.COLUMNS)
NAMES = ("O0", "O2", "graphturbo")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return quad_core.model()


@pytest.fixture(scope="module")
def levels(graph: Graph) -> dict[tuple[str, str], quad_core.Level]:
    found = [level for a in quad_core.ARRAYS for level in quad_core.scheduled(graph, a, NAMES)]
    return {(level.array, level.name): level for level in found}


def published(array: str, schedule: str) -> float:
    rows = [r for r in PUBLISHED if r["array"] == array and r["schedule"] == schedule]
    return min(float(row["cycles"]) for row in rows)


@pytest.mark.parametrize("array", list(quad_core.ARRAYS))
def test_layer_by_layer_and_fused_are_no_slower_than_published(
    levels: dict[tuple[str, str], quad_core.Level], array: str
) -> None:
    assert levels[array, "O0"].cycles < published(array, "layer by layer")
    assert levels[array, "graphturbo"].cycles < published(array, "layer-fused")


@pytest.mark.parametrize("array", list(quad_core.ARRAYS))
def test_traffic_is_at_least_the_weights_and_the_image(
    levels: dict[tuple[str, str], quad_core.Level], graph: Graph, array: str
) -> None:
    weights = sum(t.elements for t in graph.tensors if t.constant) / 1e6
    for name in NAMES:
        level = levels[array, name]
        assert level.read > weights
        assert level.written >= 0.001  # a thousand scores
    assert levels[array, "graphturbo"].read < levels[array, "O0"].read


@pytest.mark.parametrize("array", list(quad_core.ARRAYS))
def test_nothing_beats_the_array_at_peak(
    levels: dict[tuple[str, str], quad_core.Level], graph: Graph, array: str
) -> None:
    peak = quad_core.machine(array).matrix.macs_per_cycle(quad_core.DTYPE) * 4
    assert all(levels[array, name].cycles > graph.macs / peak for name in NAMES)


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
