"""Starts: what they are, that a space says each of their points once, what is tried first."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.errors import KnobsError, UsageError
from autoturbo.hardware import load_target
from autoturbo.hardware.target import Target
from autoturbo.schedule.knobs import AUTO, FAR, Knobs, SubGraphKnobs, fitting
from autoturbo.schedule.partition.clusters import PARTS
from autoturbo.schedule.partition.split import SplitRules
from autoturbo.schedule.pipeline import ModelScheduler, plan
from autoturbo.search.constants import Starts
from autoturbo.search.encoding import START, Genes, dimension_name
from autoturbo.search.evolution import propose
from autoturbo.search.openings import openings
from autoturbo.search.space import Space
from autoturbo.search.warm_starts.best_sets import Grid
from autoturbo.search.warm_starts.costs import DividedCosts, Variant
from autoturbo.search.warm_starts.dp_partition import FREE, PartitionProgram
from autoturbo.search.warm_starts.groups import GroupLimits
from autoturbo.search.warm_starts.starts import (
    DIVIDED,
    LONGEST,
    placed_starts,
    start_from,
    starts_of,
)
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement
from autoturbo.tuning.tuner import tune
from tests.schedule.schedule_samples import Net, target, workload
from tests.schedule.schedule_samples import block as residual_block
from tests.search.search_doubles import toy_graph, toy_target
from tests.search.space_samples import started_space
from tests.simulator.simulate_samples import changed, one_core

STCP920 = load_target("stcp920")


def machine() -> Target:
    """A small accelerator whose matrix tiles fit its local buffers."""
    whole = target(lb=1 << 12)
    matrix = dataclasses.replace(whole.matrix, rows=4, columns=4, depth=4)
    return dataclasses.replace(whole, matrix=matrix)


SMALL, LARGE = started_space(small=True), started_space()
SEEDS = st.integers(0, 2**32)


def raw(space: Space, seed: int, count: int = 64) -> Genes:
    """Points that may have several forms."""
    shape = (count, len(space.dimensions))
    return np.random.default_rng(seed).integers(0, space.widths, shape)


@pytest.mark.full
def test_the_size_is_the_most_that_there_can_be() -> None:
    shape = tuple(SMALL.widths.tolist())
    every = np.indices(shape).reshape(len(shape), -1).T
    points = np.unique(SMALL.normal(every), axis=0)
    assert len({SMALL.knobs_of(point).id for point in points}) == len(points) <= SMALL.size


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_points_parameters_and_settings_are_one_to_one(seed: int) -> None:
    points = LARGE.normal(raw(LARGE, seed, 32))
    assert (LARGE.normal(points) == points).all()
    for point in points:
        knobs = LARGE.knobs_of(point)
        found = LARGE.from_knobs(knobs)
        assert LARGE.genes_of(found) == tuple(point)
        assert LARGE.genes_of(LARGE.sparse(found)) == tuple(point)
        assert LARGE.to_knobs(found) == knobs


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_moves_stay_in_one_form(seed: int) -> None:
    rng, points = np.random.default_rng(seed), LARGE.normal(raw(LARGE, seed))
    for moved in (
        LARGE.mutate(rng, points, 0.2),
        LARGE.random(rng, 64), LARGE.neighbours(points[0].tolist()),
    ):  # fmt: skip
        assert (LARGE.normal(moved) == moved).all()


def test_a_start_s_own_values_are_no_choices() -> None:
    names = {d.name: d.choices for d in LARGE.dimensions}
    assert LARGE.starts[1].factor_policy == "ragged"
    at = {d.name: AUTO for d in LARGE.dimensions} | {START: 1}
    same = LARGE.genes_of(at | {"factor_policy": "ragged"})
    assert same is not None
    assert LARGE.normal(np.asarray([same]))[0].tolist() == list(LARGE.genes_of(at) or ())
    assert "subgraph@1:a:factor" in names


def test_what_a_start_says_cannot_be_taken_back() -> None:
    knobs = dataclasses.replace(LARGE.starts[1], overrides=LARGE.starts[1].overrides[:2])
    with pytest.raises(KnobsError):
        LARGE.from_knobs(knobs)
    with pytest.raises(KnobsError):
        LARGE.from_knobs(Knobs(overrides=LARGE.starts[1].overrides))


def test_each_start_has_sub_graphs_of_its_own() -> None:
    point = LARGE.genes_of({d.name: AUTO for d in LARGE.dimensions} | {
        START: 1, dimension_name(LARGE.blocks[1], "factor"): 4,
        dimension_name(LARGE.blocks[1], "dim"): 2, dimension_name(LARGE.blocks[0], "factor"): 2,
    })  # fmt: skip
    assert point is not None
    knobs = LARGE.knobs_of(LARGE.normal(np.asarray([point]))[0].tolist())
    assert knobs.factor_policy == "ragged"
    assert {o.layer: (o.boundary, o.dim, o.factor) for o in knobs.overrides} == {
        "a": ("cut", 2, 4), "b": ("cut", 2, 4), "c": ("cut", 1, 7),
    }  # fmt: skip


@functools.cache
def found() -> tuple[Knobs, ...]:
    return starts_of(Evaluator(residual_block(), machine(), "float16"))


def test_starts_name_cuts_and_splits_and_leave_the_rest_free() -> None:
    assert 0 < len(found()) == len(set(found()))
    for start in found():
        assert start.output_scope == AUTO
        for own in start.overrides:
            assert own.as_dict().keys() <= {
                "layer", "boundary", "dim", "factor", "core_parallel_dim",
                "weight_buffer_fraction", "scope",
            }  # fmt: skip
        assert not start.overrides or start_from(start, start.overrides[0].scope) == start
        assert Knobs.from_dict(start.as_dict()) == start


def latency(evaluator: Evaluator, start: Knobs) -> float:
    outcome = evaluator.evaluate(start)
    assert isinstance(outcome, Measurement)
    return outcome.latency


@pytest.mark.parametrize("policy", ["auto", "divisors", "ragged"])
@pytest.mark.parametrize("samples", [1, 2, 4])
def test_the_first_start_is_the_fastest_and_no_slower_than_any_policy(
    samples: int, policy: str
) -> None:
    evaluator = Evaluator(residual_block(), machine(), "float16")
    seconds = [latency(evaluator, start) for start in found()]
    assert seconds == sorted(seconds)
    assert samples in evaluator.model_scheduler.batch_choices()
    plain = Knobs(batches_per_cluster=samples, factor_policy=policy)
    for knobs in (plain, dataclasses.replace(plain, fetch_ahead=FAR)):
        assert seconds[0] <= latency(evaluator, fitting(knobs, machine()))


@pytest.mark.full
def test_starts_have_tiles_by_cost_where_that_is_faster() -> None:
    evaluator = Evaluator(workload("squeezenet1_1"), load_target("stcp920"), "float16")
    starts = starts_of(evaluator)
    for start in starts:
        other = dataclasses.replace(start, tiling="cost" if start.tiling == AUTO else AUTO)
        assert latency(evaluator, start) <= latency(evaluator, other) / 0.99
    assert any(start.tiling == "cost" for start in starts)


@pytest.mark.full
@pytest.mark.parametrize(("target", "most"), [("mlu100", 0.56), ("stcp920", 0.6)])
def test_samples_at_once_and_splits_are_chosen_together(target: str, most: float) -> None:
    """Whisper's 1,500 rows leave cores idle unless both suit; the heuristic takes all samples."""
    evaluator = Evaluator(workload("whisper_base_enc"), load_target(target), "float16")
    best = starts_of(evaluator)[0]
    assert best.batches_per_cluster == 1
    assert latency(evaluator, best) <= most * latency(evaluator, evaluator.heuristic())


@functools.cache
def on_chip() -> tuple[Evaluator, tuple[Knobs, ...]]:
    """BERT-base where most tensors stay in the local buffers, and its starts."""
    evaluator = Evaluator(workload("bert_base_s128"), load_target("ipu-mk2"), "float16")
    return evaluator, starts_of(evaluator)


@pytest.mark.full
def test_where_outputs_stay_on_the_chip_cuts_made_for_that_come_first() -> None:
    evaluator, (first, *others) = on_chip()
    assert others
    assert {own.scope for own in first.overrides} == {"LB"}
    assert {own.weight_buffer_fraction for start in others for own in start.overrides} == {AUTO}
    nearest = min(latency(evaluator, start) for start in [Knobs(), *others])
    assert latency(evaluator, first) < 0.6 * nearest


@pytest.mark.full
def test_what_stays_on_the_chip_is_spread_as_kernels_want_it_wherever_it_is_read() -> None:
    """A core that has more rows and fewer channels loads fewer weights.

    Readers want it otherwise, so it has to be said that it stays.
    """
    evaluator, (first, *others) = on_chip()
    assert {own.scope for own in first.overrides} == {"LB"}
    assert {own.scope for start in others for own in start.overrides} == {AUTO}
    assert len({own.core_parallel_dim for own in first.overrides} - {AUTO}) > 1

    def changed(**what: str) -> Knobs:
        own = tuple(dataclasses.replace(o, **what) for o in first.overrides)
        return dataclasses.replace(first, overrides=own)

    assert latency(evaluator, changed(core_parallel_dim=AUTO)) > 1.3 * latency(evaluator, first)
    assert latency(evaluator, changed(scope=AUTO)) > 2 * latency(evaluator, first)


@pytest.mark.full
def test_where_they_do_not_there_are_no_such_cuts() -> None:
    graph, stcp920 = workload("squeezenet1_1"), load_target("stcp920")
    found = starts_of(Evaluator(graph, stcp920, "float16"))
    assert {own.weight_buffer_fraction for start in found for own in start.overrides} == {AUTO}
    assert len(found) <= len(LONGEST) + 1  # and the heuristic as it is best


def test_the_same_model_gives_the_same_starts() -> None:
    assert starts_of(Evaluator(residual_block(), machine(), "float16")) == found()


def test_a_model_without_operators_has_no_starts() -> None:
    assert starts_of(Evaluator(toy_graph(), toy_target(), toy_target().default_dtype)) == ()
    assert starts_of(Evaluator(residual_block(), machine(), "float16"), None) == ()


def test_where_nothing_fits_there_are_no_starts() -> None:
    least = dataclasses.replace(machine().lb, capacity=64, weight_capacity=16)
    cramped = dataclasses.replace(machine(), lb=least)
    assert starts_of(Evaluator(residual_block(), cramped, "float16")) == ()


def says(start: Knobs, one: Knobs) -> bool:
    """Whether a start is another one, but for a layer that is merged as it is anyway."""
    more = set(start.overrides) - set(one.overrides)
    same = dataclasses.replace(start, overrides=()) == dataclasses.replace(one, overrides=())
    kept = set(one.overrides) <= set(start.overrides)
    return same and kept and len(more) <= 1 and all(own.boundary == "merge" for own in more)


def test_a_start_of_layers_that_the_heuristic_names_too_is_kept_and_cut_the_same() -> None:
    graph, model_scheduler = (
        residual_block(),
        ModelScheduler(residual_block(), machine(), "float16"),
    )
    heuristic = Space.of(ModelScheduler(graph, machine(), "float16"), subgraphs=4).blocks
    names = sorted({layer for block in heuristic for layer in block.layers})
    own = tuple(SubGraphKnobs(name, boundary="cut") for name in names)
    start = Knobs(producer_factor_ratio=0, merged_factor_ratio=64, overrides=own)
    space = Space.of(ModelScheduler(graph, machine(), "float16"), subgraphs=4, starts=[start])
    (_, kept) = space.starts
    assert kept != start
    assert says(kept, start)
    cuts = [[s.layers for s in plan(model_scheduler, knobs).subgraphs] for knobs in (start, kept)]
    assert cuts[0] == cuts[1]
    assert space.to_knobs(space.from_knobs(kept)) == kept


def test_a_space_says_each_of_its_starts() -> None:
    space = Space.of(
        ModelScheduler(residual_block(), machine(), "float16"), subgraphs=4, starts=found()
    )
    assert all(any(says(start, one) for one in found()) for start in space.starts[1:])
    for number, start in enumerate(space.starts[1:], 1):
        assert space.to_knobs(space.from_knobs(start)) == start
        assert space.to_knobs({START: number}) == start
    assert {b.start for b in space.blocks} <= {0, *range(1, len(found()) + 1)}
    points = space.random(np.random.default_rng(0), 200)
    for point in points:
        knobs = space.canonical(space.knobs_of(point))
        assert space.to_knobs(space.params_of(point)) == knobs


def test_the_first_batch_has_every_start_every_batch_and_every_split() -> None:
    first = propose(LARGE, np.random.default_rng(0), [], set(), count=16)
    said = [{n: v for n, v in LARGE.params_of(p).items() if v != AUTO} for p in first]
    for wanted in ({START: 1}, {START: 2}, *({"batches_per_cluster": b} for b in (4, 2, 1))):
        assert wanted in said
    every = [tuple(point) for point in openings(LARGE).tolist()]
    assert first[: len(every)] == every


def test_neighbours_are_cut_alike_where_what_is_between_them_is_too_large() -> None:
    """Scores of attention are 8 MiB; in parts of 8 heads and 3 ranges of rows they stay in LB."""
    net = Net(q=(1, 8, 1024, 64), k=(1, 8, 64, 1024), v=(1, 8, 1024, 64))
    net.matmul(net.softmax(net.matmul("q", "k")), "v")
    slow = changed(one_core(512), "ddr.bandwidth", 16e9)
    result = tune(net.graph(), slow, dtype="int8", trials=16)
    assert result.default is not None
    assert result.best.measurement.ddr_bytes <= 4 * 2**20
    assert result.best.measurement.latency < result.default.latency
    cuts = {own.layer: (own.factor, own.inner_factor) for own in result.best.knobs.overrides}
    assert set(cuts.values()) == {(8, 3)}


@pytest.mark.parametrize("way", ["channel", "either"])
def test_costs_of_outputs_that_clusters_divide_add_up_to_the_schedule_s(way: str) -> None:
    evaluator = Evaluator(workload("squeezenet1_1", 1), STCP920, "float16")
    knobs = dataclasses.replace(FREE, cluster_partitioning=way)
    own = (SubGraphKnobs("", core_parallel_dim=1),)
    limits = GroupLimits(24, 16)
    grid = Grid((1, 2), None, own, limits, SplitRules.of(FREE))
    for prune in (True, False):
        programme = PartitionProgram.over(evaluator, grid, knobs, prune=prune, costs=DividedCosts)
        found = programme.cover()
        took = latency(evaluator, found.knobs)
        assert found.seconds <= took <= 1.06 * found.seconds  # waits are left out
    whole = PartitionProgram.over(evaluator, grid, FREE).cover()
    assert took < 0.9 * whole.seconds


@pytest.mark.full
def test_clusters_without_samples_of_their_own_get_starts_that_divide_outputs() -> None:
    evaluator = Evaluator(workload("squeezenet1_1", 1), STCP920, "float16")
    found = starts_of(evaluator)
    assert found[0].cluster_partitioning in PARTS
    first, heuristic = (latency(evaluator, k) for k in (found[0], evaluator.heuristic()))
    assert first < 0.8 * heuristic
    filled = Evaluator(workload("squeezenet1_1", 4), STCP920, "float16")
    assert {start.cluster_partitioning for start in starts_of(filled)} == {AUTO}


def test_clusters_that_would_all_read_large_weights_get_them_too() -> None:
    evaluator = Evaluator(workload("alexnet", 16), load_target("stcp920"), "float16")
    heuristic, first = evaluator.heuristic(), starts_of(evaluator)[0]
    assert first.cluster_partitioning in PARTS
    assert latency(evaluator, first) < 0.75 * latency(evaluator, heuristic)


def test_a_divided_sub_graph_costs_the_same_whatever_is_costed_with_it() -> None:
    """Loads of one may run over the kernels of another in a schedule, not in a list of variants."""
    scheduler = Evaluator(workload("squeezenet1_1", 1), STCP920, "float16").model_scheduler
    free = dataclasses.replace(FREE, cluster_partitioning="channel", fetch_ahead=FAR)
    costs, lengths = DividedCosts(scheduler, free), (4, 2, 1)
    variants = [Variant(tuple(range(n)), 0, -1, 1, SubGraphKnobs("")) for n in lengths]
    alone = [costs.seconds([variant]).item() for variant in variants]
    assert costs.seconds(variants).tolist() == alone


@pytest.mark.full
def test_the_heuristic_is_cut_where_clusters_divide_outputs_in_less_time() -> None:
    evaluator = Evaluator(workload("googlenet", 1), STCP920, "float16")
    first = placed_starts(evaluator)[0]
    assert first.origin == DIVIDED
    assert {own.boundary for own in first.knobs.overrides} == {"cut"}
    whole = dataclasses.replace(first.knobs, overrides=())
    assert latency(evaluator, first.knobs) < 0.8 * latency(evaluator, whole)
    uncut = starts_of(evaluator, Starts(most=12, divided_cuts=0))
    assert any(dataclasses.replace(whole, tiling=one.tiling) == one for one in uncut)


def test_costs_without_divided_outputs_refuse_them() -> None:
    evaluator = Evaluator(workload("squeezenet1_1", 1), STCP920, "float16")
    knobs = dataclasses.replace(FREE, cluster_partitioning="channel")
    grid = Grid(limits=GroupLimits(2, 2))
    with pytest.raises(UsageError, match="cluster_partitioning"):
        PartitionProgram.over(evaluator, grid, knobs)
    with pytest.raises(UsageError, match="cluster_partitioning"):
        PartitionProgram.over(evaluator, grid, FREE, costs=DividedCosts)
