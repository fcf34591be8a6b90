from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoturbo.errors import UsageError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.hardware.target import Target
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.search.space import Space
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure, Measurement
from tests.schedule.schedule_samples import block, chain, networks, settings_of, workload
from tests.search.exact.exact_samples import machine as target
from tests.search.exact.exact_samples import machines as targets
from tests.search.exhaustive_search import Budget, PlanBound, points_of, restricted, search_all

SLOW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def space_of(graph: Graph, machine: Target, names: dict[str, Any], blocks: int = 1) -> Space:
    whole = Space.of(ModelScheduler(graph, machine, "float16"), subgraphs=blocks)
    known = {d.name: d.choices for d in whole.dimensions}
    return restricted(whole, {
        name: wanted and [choice for choice in wanted if choice in known[name]]
        for name, wanted in names.items() if name in known
    })  # fmt: skip


def own(space: Space, *fields: str) -> dict[str, None]:
    """The first block's dimensions of some names."""
    names = [d.name for d in space.dimensions]
    return {n: None for n in names if n.rpartition(":")[2] in fields and n.count(":") == 2}


def brute_force(graph: Graph, machine: Target, space: Space) -> float:
    """The lowest latency of all points, one by one, by nothing but the evaluator."""
    evaluator = Evaluator(graph, machine, "float16")
    outcomes = [evaluator.evaluate(space.knobs_of(point)) for point in space.everything()]
    return min(o.latency for o in outcomes if isinstance(o, Measurement))


MODEL: dict[str, Any] = {
    "max_layers": [1, 2], "instance_multiplier": [2, 4], "tile_subdivision": [2],
    "instance_order": ["bfs"],
    "batches_per_cluster": None, "merged_factor_ratio": [4.0],
}  # fmt: skip
CLUSTERS: dict[str, Any] = {
    "cluster_partitioning": None,
    "instance_multiplier": [2],
    "weight_residency": None,
    "max_layers": [1],
}
LAUNCHES: dict[str, Any] = {
    "instance_multiplier": None,
    "max_layers": [1],
    "factor_policy": None,
    "lb_occupancy_limit": [0.25],
}


@functools.cache
def graph_of(name: str) -> Graph:
    if name == "chain":
        return chain("conv", "relu", "conv", "pool")
    return block() if name == "block" else workload(name)


@pytest.mark.parametrize(
    ("preset", "name", "names"),
    [
        ("small", "chain", MODEL),
        ("small", "block", CLUSTERS),
        ("stcp920", "chain", LAUNCHES),
        pytest.param("small", "squeezenet1_1", LAUNCHES, marks=pytest.mark.full),
        pytest.param("stcp920", "block", MODEL, marks=pytest.mark.full),
        pytest.param("stcp920", "squeezenet1_1", CLUSTERS, marks=pytest.mark.full),
        pytest.param("ipu-mk2", "block", LAUNCHES, marks=pytest.mark.full),
        pytest.param("ipu-mk2", "chain", CLUSTERS, marks=pytest.mark.full),
    ],
)
def test_the_optimum_is_that_of_brute_force(name: str, preset: str, names: dict[str, Any]) -> None:
    graph = graph_of(name)
    machine = target(clusters=2) if preset == "small" else load_target(preset)
    space = space_of(graph, machine, names)
    found = search_all(Evaluator(graph, machine, "float16"), space)
    assert found.exact
    assert found.measurement is not None
    assert found.knobs is not None
    assert found.measurement.latency == brute_force(graph, machine, space)
    assert found.points == space.size
    again = Evaluator(graph, machine, "float16").evaluate(found.knobs)
    assert isinstance(again, Measurement)
    assert again.latency == found.measurement.latency
    assert found.schedules + found.pruned + found.same <= found.points


@pytest.mark.full
def test_subgraphs_choices_are_searched_too() -> None:
    machine, graph = target(cores=2, lb=1 << 12), block()
    whole = Space.of(ModelScheduler(graph, machine, "float16"), subgraphs=2)
    names = own(whole, "factor", "boundary")
    space = restricted(whole, {**names, "batches_per_cluster": None})
    found = search_all(Evaluator(graph, machine, "float16"), space)
    assert space.blocks
    assert found.points == space.size == len(space.everything())
    assert found.measurement is not None
    assert found.measurement.latency == brute_force(graph, machine, space)


def test_pruning_leaves_work_out() -> None:
    graph, machine = workload("squeezenet1_1"), load_target("stcp920")
    space = space_of(graph, machine, {**LAUNCHES, "max_layers": None})
    pruned = search_all(Evaluator(graph, machine, "float16"), space)
    whole = search_all(Evaluator(graph, machine, "float16"), space, prune=False)
    assert pruned.pruned > 0 == whole.pruned
    assert pruned.schedules < whole.schedules < whole.points == whole.schedules + whole.same
    assert pruned.measurement == whole.measurement
    assert pruned.knobs == whole.knobs


@pytest.mark.parametrize("budget", [Budget(points=3), Budget(measurements=2), Budget(seconds=1e-9)])
def test_a_budget_ends_it_and_it_says_so(budget: Budget) -> None:
    graph, machine = chain("conv", "conv"), target()
    space = space_of(graph, machine, MODEL)
    found = search_all(Evaluator(graph, machine, "float16"), space, budget)
    assert not found.exact
    assert found.points <= 4


def test_it_says_what_it_searched() -> None:
    graph, machine = chain("conv"), target()
    space = space_of(graph, machine, {"tile_subdivision": [2, 4]})
    found = search_all(Evaluator(graph, machine, "float16"), space)
    assert found.space == "tile_subdivision in auto, 2, 4; all else auto"


def test_where_nothing_runs_there_is_no_optimum() -> None:
    class Walls(Evaluator):
        def measure(self, schedule: object) -> Failure:
            del schedule
            return Failure("DDR", "too small")

    space = space_of(chain("conv"), target(), {"tile_subdivision": [2]})
    found = search_all(Walls(chain("conv"), target(), "float16"), space)
    assert found.knobs is None
    assert found.exact
    assert found.infeasible == 2


@pytest.mark.full
@SLOW
@given(st.data())
def test_no_schedule_is_faster_than_the_bound_of_its_plan(data: st.DataObject) -> None:
    graph, machine = data.draw(networks(6)), data.draw(targets())
    evaluator = Evaluator(graph, machine, "float16")
    bound = PlanBound(evaluator.model_scheduler)
    for knobs in data.draw(st.lists(settings_of(), min_size=1, max_size=4)):
        outcome = evaluator.evaluate(knobs)
        if isinstance(outcome, Measurement):
            assert bound.seconds(knobs) <= outcome.latency


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("squeezenet1_1", "stcp920"),
        pytest.param("dlrm", "ipu-mk2", marks=pytest.mark.full),
        pytest.param("mobilenet_v2", "mlu100", marks=pytest.mark.full),
    ],
)
def test_bounds_hold_on_bundled_workloads(name: str, preset: str) -> None:
    evaluator = Evaluator(workload(name), load_target(preset), "float16")
    bound = PlanBound(evaluator.model_scheduler)
    tight = 0.0
    for values in (
        {},
        {"weight_residency": "LB"},
        {"max_layers": 1},
        {"cluster_partitioning": "channel"},
    ):
        knobs = Knobs.from_dict(values)
        outcome = evaluator.evaluate(knobs)
        if isinstance(outcome, Measurement):
            tight = max(tight, bound.seconds(knobs) / outcome.latency)
    assert 0.05 < tight <= 1


@pytest.mark.full
@SLOW
@given(st.data())
def test_pruning_never_loses_the_optimum(data: st.DataObject) -> None:
    graph, machine = data.draw(networks(5)), data.draw(targets())
    names = data.draw(st.sampled_from((MODEL, CLUSTERS, LAUNCHES)))
    space = space_of(graph, machine, dict(list(names.items())[:3]))
    results = [
        search_all(Evaluator(graph, machine, "float16"), space, prune=prune)
        for prune in (True, False)
    ]
    assert results[0].measurement == results[1].measurement


def test_points_are_those_of_the_space_once_each() -> None:
    graph, machine = block(), target(clusters=2)
    whole = Space.of(ModelScheduler(graph, machine, "float16"), subgraphs=1)
    names = own(whole, "dim", "factor", "inner_dim", "inner_factor")
    space = restricted(whole, {**names, "factor_policy": None, "batches_per_cluster": None})
    points = list(points_of(space))
    assert points == [tuple(p) for p in space.everything().tolist()]
    assert len(points) == space.size == len(set(points))


def test_a_restriction_refuses_what_is_not_there() -> None:
    space = Space.of(ModelScheduler(chain("conv"), target()))
    with pytest.raises(UsageError, match="'depth'"):
        restricted(space, {"depth": None})
    with pytest.raises(UsageError, match="tile_subdivision has no choice 7"):
        restricted(space, {"tile_subdivision": [7]})
    with pytest.raises(UsageError, match="all choices"):
        restricted(Space.of(ModelScheduler(chain("conv", shape=(8, 4, 4, 4)), target())), {
            "batches_per_cluster": [AUTO, 1]
        })  # fmt: skip
