from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
from exact_search import best_over_grid
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoturbo.errors import UsageError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.hardware.target import Target
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.partition.split import SplitRules, best_split
from autoturbo.schedule.pipeline import plan
from autoturbo.search.warm_starts import dp_partition as exact
from autoturbo.search.warm_starts.best_sets import Grid, variants_of
from autoturbo.search.warm_starts.dp_partition import FREE, PartitionOptimum, PartitionProgram
from autoturbo.search.warm_starts.groups import GroupLimits, IsomorphismKeys, Layers, groups_of
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure, Measurement
from tests.schedule.schedule_samples import Net, block, chain, networks, workload
from tests.search.exact.exact_samples import machine as target
from tests.search.exact.exact_samples import machines as targets

TINY = Grid(factors=(1, 2), own=(SubGraphKnobs(""), SubGraphKnobs("", tile_subdivision=2)))
SLOW = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def relative_gap(answer: PartitionOptimum) -> float:
    """How far the measurement is from the prediction, of it; infinite where it cannot be had."""
    if not isinstance(answer.outcome, Measurement):
        return math.inf
    return abs(answer.outcome.latency / answer.predicted - 1)


def covers(sets: list[list[Layers]], left: frozenset[int]) -> Iterator[tuple[Layers, ...]]:
    """Every way to cover layers, by plain recursion over the first one."""
    if not left:
        yield ()
        return
    for row in sets:
        for one in row:
            if min(left) in one and left.issuperset(one):
                for rest in covers(sets, left - set(one)):
                    yield (one, *rest)


def brute_force(graph: Graph, machine: Target, grid: Grid) -> float:
    """The best of all settings of a grid that form their sets, each through the whole pipeline."""
    evaluator = Evaluator(graph, machine, "float16")
    context, best = (
        evaluator.model_scheduler.context(evaluator.model_scheduler.share().batches),
        float("inf"),
    )
    sets, _ = groups_of(context, grid.limits, SplitRules.of(FREE))
    for cover in covers(sets, frozenset(range(len(context.layers)))):
        ways = [list(variants_of(context, layers, grid)) for layers in cover]
        for way in itertools.product(*ways):
            own = tuple(exact.override_of(context, variant) for variant in way)
            knobs = dataclasses.replace(FREE, overrides=own)
            if {s.layers for s in plan(evaluator.model_scheduler, knobs).subgraphs} != set(cover):
                continue
            outcome = evaluator.evaluate(knobs)
            assert isinstance(outcome, Measurement)
            best = min(best, outcome.latency)
    return best


@pytest.mark.parametrize(
    ("kinds", "machine"),
    [
        (("conv", "pool", "conv"), target()),
        pytest.param(
            ("conv", "conv", "softmax"), target(cores=2, lb=1 << 15, gb=0, clusters=2),
            marks=pytest.mark.full,
        ),
    ],
)  # fmt: skip
def test_it_is_the_best_of_all_settings_of_the_grid(
    kinds: tuple[str, ...], machine: Target
) -> None:
    graph = chain(*kinds, shape=(2, 4, 6, 6))
    found = best_over_grid(Evaluator(graph, machine, "float16"), TINY)
    assert found.exact
    assert found.predicted == pytest.approx(brute_force(graph, machine, TINY), rel=1e-12)
    assert relative_gap(found) < 1e-12


def diamond() -> Graph:
    """A fork, two branches of different lengths, a join."""
    net = Net(x=(2, 4, 6, 6))
    stem = net.conv("x", 4)
    left = net.conv(net.conv(stem, 4), 4)
    net.sum(left, net.conv(stem, 4, kernel=1))
    return net.graph()


def test_branches_between_a_fork_and_a_join_are_cut_on_their_own() -> None:
    grid = dataclasses.replace(TINY, factors=(1, 2), dims=(0,), own=(SubGraphKnobs(""),))
    for machine in (target(), target(lb=1 << 14, gb=1 << 18)):
        found = best_over_grid(Evaluator(diamond(), machine, "float16"), grid)
        assert found.predicted == pytest.approx(brute_force(diamond(), machine, grid), rel=1e-12)
        assert relative_gap(found) < 1e-12


def forms(graph: Graph, machine: Target) -> set[Layers]:
    context = Evaluator(graph, machine, "float16").model_scheduler.context(2)
    return {s for row in groups_of(context, GroupLimits(), SplitRules.of(FREE))[0] for s in row}


def test_sets_have_one_end() -> None:
    found = forms(diamond(), target(lb=1 << 20))
    assert {(0, 1, 2, 3, 4), (1, 2, 4), (3, 4)} <= found
    assert (0, 1) not in found  # the fork is read by the other branch too


@pytest.mark.full
@SLOW
@given(st.data())
def test_what_is_predicted_is_what_is_simulated(data: st.DataObject) -> None:
    graph, machine = data.draw(networks(7)), data.draw(targets())
    own = (SubGraphKnobs(""), SubGraphKnobs("", prefetch_depth=2, weight_buffer_fraction=0.3))
    grid = Grid(factors=(1, 2, 3), own=own, limits=GroupLimits(4, 16))
    evaluator = Evaluator(graph, machine, "float16")
    if isinstance(evaluator.evaluate(FREE), Failure):
        return
    found = best_over_grid(evaluator, grid)
    if isinstance(found.outcome, Measurement):
        assert relative_gap(found) < 1e-12


@pytest.mark.full
@SLOW
@given(st.data())
def test_leaving_out_what_bounds_rule_out_loses_nothing(data: st.DataObject) -> None:
    graph, machine = data.draw(networks(6)), data.draw(targets())
    evaluator = Evaluator(graph, machine, "float16")
    if isinstance(evaluator.evaluate(FREE), Failure):
        return
    grid = dataclasses.replace(TINY, limits=GroupLimits(4, 16))
    pruned, whole = (best_over_grid(evaluator, grid, prune=prune) for prune in (True, False))
    assert pruned.predicted == pytest.approx(whole.predicted, rel=1e-12)


@pytest.mark.full
@SLOW
@given(st.data())
def test_costs_are_told_once_for_sub_graphs_of_every_length(data: st.DataObject) -> None:
    graph, machine = data.draw(networks(6)), data.draw(targets())
    evaluator = Evaluator(graph, machine, "float16")
    if isinstance(evaluator.evaluate(FREE), Failure):
        return
    grid = dataclasses.replace(TINY, limits=GroupLimits(4, 16))
    programme = PartitionProgram.over(evaluator, grid)
    for longest in (1, 2, 3, 4):
        shorter = dataclasses.replace(grid, limits=GroupLimits(longest, 16))
        assert programme.answer(longest).predicted == pytest.approx(
            best_over_grid(evaluator, shorter).predicted, rel=1e-12
        )
    assert programme.answer() == programme.answer(9)


NEAR = Grid(factors=(1, 2, 4, 8), own=(SubGraphKnobs(""),), near=SplitRules.of(FREE))


@pytest.mark.full
@SLOW
@given(st.data())
def test_near_splits_are_few_of_the_grid_s_on_both_sides_of_algorithm_1_s(
    data: st.DataObject,
) -> None:
    graph, machine = data.draw(networks(6)), data.draw(targets())
    context = Evaluator(graph, machine, "float16").model_scheduler.context(1)
    every = dataclasses.replace(NEAR, near=None)
    for layers in (
        s for row in groups_of(context, GroupLimits(), SplitRules.of(FREE))[0] for s in row
    ):
        near, all_of_them = ([*variants_of(context, layers, g)] for g in (NEAR, every))
        assert near
        assert set(near) <= set(all_of_them)
        if len(layers) == 1:
            assert near == all_of_them
        else:
            parts = [v.parts for v in near]
            assert len(parts) <= 2
            assert min(parts) <= best_split(context, layers, SplitRules.of(FREE)).instances


@pytest.mark.full
def test_near_splits_find_what_all_splits_find_on_a_bundled_workload() -> None:
    evaluator = Evaluator(workload("squeezenet1_1"), load_target("stcp920"), "float16")
    grid = dataclasses.replace(NEAR, limits=GroupLimits(8, 16))
    near = best_over_grid(evaluator, grid)
    whole = best_over_grid(evaluator, dataclasses.replace(grid, near=None))
    assert near.segments < whole.segments / 3
    assert whole.predicted <= near.predicted <= 1.02 * whole.predicted
    assert not near.exact


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "preset"),
    [("squeezenet1_1", "stcp920"), ("llama_decode", "ipu-mk2"), ("shufflenet_v2", "mlu100")],
)
def test_it_holds_on_bundled_workloads(name: str, preset: str) -> None:
    grid = Grid(
        factors=(1, 4), own=(SubGraphKnobs("", core_parallel_dim=0),), limits=GroupLimits(3, 16)
    )
    found = best_over_grid(Evaluator(workload(name), load_target(preset), "float16"), grid)
    assert relative_gap(found) < 1e-12
    assert found.segments > 100


def test_the_order_of_instances_makes_no_difference() -> None:
    evaluator = Evaluator(block(), target(lb=1 << 14), "float16")
    found = best_over_grid(evaluator, Grid(factors=(1, 2, 4), own=(SubGraphKnobs(""),)))
    for order in ("bfs", "dfs", "footprint", "priority"):
        outcome = evaluator.evaluate(dataclasses.replace(found.knobs, instance_order=order))
        assert isinstance(outcome, Measurement)
        assert outcome.latency == pytest.approx(found.predicted, rel=1e-12)


def test_samples_at_once_are_part_of_the_grid() -> None:
    graph, machine = chain("conv", "pool", shape=(8, 4, 8, 8)), target(lb=1 << 12)
    evaluator, grid = Evaluator(graph, machine, "float16"), Grid(factors=(1,))
    each = [best_over_grid(evaluator, grid, batches=(b,)).predicted for b in (8, 4, 2, 1)]
    found = best_over_grid(evaluator, grid, batches=(8, 4, 2, 1))
    assert found.predicted == min(each)
    assert len(set(each)) > 1
    assert "8 samples at once" in found.space
    assert "1 samples at once" in found.space


@pytest.mark.parametrize(
    ("knobs", "name"),
    [
        (Knobs(), "output_scope"),
        (dataclasses.replace(FREE, weight_residency="LB"), "weight_residency"),
        (dataclasses.replace(FREE, cluster_partitioning="channel"), "cluster_partitioning"),
        (dataclasses.replace(FREE, instance_multiplier=2), "instance_multiplier"),
    ],
)
def test_knobs_under_which_costs_do_not_add_up_are_refused(knobs: Knobs, name: str) -> None:
    with pytest.raises(UsageError, match=f"^{name}: "):
        best_over_grid(Evaluator(chain("conv"), target(), "float16"), knobs=knobs)


def test_what_outputs_in_lb_would_give_is_another_schedule() -> None:
    """The settings that are refused are refused for a reason: predictions would be wrong there."""
    evaluator = Evaluator(chain("conv", "pool", "conv"), target(lb=1 << 16), "float16")
    found = best_over_grid(evaluator, dataclasses.replace(TINY, limits=GroupLimits(1, 1)))
    own = tuple(dataclasses.replace(o, scope="auto") for o in found.knobs.overrides)
    freed = dataclasses.replace(found.knobs, output_scope="auto", overrides=own)
    outcome = evaluator.evaluate(freed)
    assert isinstance(outcome, Measurement)
    assert outcome.latency < found.predicted * 0.999


def test_knobs_that_do_not_fit_are_not_in_the_grid() -> None:
    evaluator, deep = (
        Evaluator(chain("conv"), target(), "float16"),
        SubGraphKnobs("", prefetch_depth=4),
    )
    with pytest.raises(UsageError, match="local buffer"):
        best_over_grid(evaluator, Grid(own=(deep,)))


@pytest.mark.parametrize(
    ("name", "value"), [("scope", "LB"), ("weight_residency", "LB"), ("cores", 3)]
)
def test_knobs_that_a_grid_cannot_try_are_refused(name: str, value: Any) -> None:
    own = SubGraphKnobs("", **{name: value})
    with pytest.raises(UsageError, match=f"^{name}"):
        best_over_grid(Evaluator(chain("conv"), target(), "float16"), Grid(own=(own,)))


def test_cores_and_the_loop_spread_first_may_differ() -> None:
    own = (
        SubGraphKnobs("", cores=2),
        SubGraphKnobs("", core_parallel_dim=1),
        SubGraphKnobs("", cores=1),
    )
    grid = dataclasses.replace(TINY, factors=(1, 2), own=own, dims=(0, 3))
    graph = chain("conv", "pool", shape=(2, 4, 6, 6))
    found = best_over_grid(Evaluator(graph, target(), "float16"), grid)
    assert found.predicted == pytest.approx(brute_force(graph, target(), grid), rel=1e-12)
    assert relative_gap(found) < 1e-12


def test_alike_blocks_are_costed_once() -> None:
    graph = workload("bert_base_s128")
    context = Evaluator(graph, load_target("stcp920"), "float16").model_scheduler.context(8)
    likeness = IsomorphismKeys(context)
    kinds = {likeness.of((layer,)) for layer in range(len(context.layers))}
    assert len(kinds) < len(context.layers) / 4
