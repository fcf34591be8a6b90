"""The conditional part of a space: what depends on what, how many, and moves that respect it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.errors import KnobsError
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs, subgraph_knobs
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.search.encoding import dimension_name
from autoturbo.search.evolution import fresh_points, propose
from autoturbo.search.space import Space
from autoturbo.search.surrogates.surrogate import ScoredCandidate
from tests.search.search_doubles import toy_graph, toy_target
from tests.search.space_samples import block, large_space, small_spaces, space_of

LARGE = large_space()
SEEDS = st.integers(0, 2**32)


def raw(space: Space, seed: int, count: int = 64) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Points that may have several forms."""
    shape = (count, len(space.dimensions))
    return np.random.default_rng(seed).integers(0, space.widths, shape)


def params(space: Space, **values: object) -> dict[str, object]:
    """Parameters of the first block by knob, of the model by name."""
    own = {dimension_name(space.blocks[0], field): field for field in space.blocks[0].choices}
    return {d.name: values.get(own.get(d.name, "model_" + d.name), AUTO) for d in space.dimensions}


def kept(space: Space, **values: object) -> dict[str, object]:
    """The first block's choices that are left in the one form of a point."""
    genes = space.genes_of(params(space, **values))
    assert genes is not None
    found = space.params_of(space.normal(np.asarray([genes]))[0])
    own = {
        field: found[dimension_name(space.blocks[0], field)] for field in space.blocks[0].choices
    }
    return {field: value for field, value in own.items() if value != AUTO}


@settings(max_examples=25, deadline=None)
@given(small_spaces())
def test_the_size_is_the_number_of_different_points(space: Space) -> None:
    points = space.everything()
    assert len(points) == space.size
    assert len(np.unique(points, axis=0)) == space.size
    assert len({space.knobs_of(point).id for point in points}) == space.size


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_one_form_is_stable_and_agrees_with_that_of_settings(seed: int) -> None:
    points = LARGE.normal(raw(LARGE, seed))
    assert (LARGE.normal(points) == points).all()
    for point in points[:8]:
        knobs = LARGE.knobs_of(point)
        assert LARGE.canonical(knobs) == knobs
        assert Knobs.from_dict(knobs.as_dict()) == knobs


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_points_parameters_and_settings_are_one_to_one(seed: int) -> None:
    for point in LARGE.normal(raw(LARGE, seed, 8)):
        knobs = LARGE.knobs_of(point)
        found = LARGE.from_knobs(knobs)
        assert LARGE.genes_of(found) == tuple(point)
        assert LARGE.genes_of(LARGE.sparse(found)) == tuple(point)
        assert LARGE.to_knobs(found) == knobs


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.floats(0, 1))
def test_mutants_differ_from_their_parents_and_are_in_one_form(seed: int, rate: float) -> None:
    rng = np.random.default_rng(seed)
    parents = LARGE.normal(raw(LARGE, seed))
    mutants = LARGE.mutate(rng, parents, rate)
    assert (mutants != parents).any(axis=1).all()
    assert (LARGE.normal(mutants) == mutants).all()
    assert ((mutants >= 0) & (mutants < LARGE.widths)).all()


def test_random_points_leave_most_choices_alone_and_reach_all_of_them() -> None:
    points = LARGE.random(np.random.default_rng(0), 20_000)
    own = points[:, 7:] > 0
    assert own.sum(axis=1).mean() < 3
    assert (own.sum(axis=1) == 0).mean() > 0.1
    assert (points.max(axis=0) == LARGE.widths - 1).all()
    dense = LARGE.random(np.random.default_rng(0), 2000, dense=True)
    assert (dense[:, 7:] > 0).sum(axis=1).mean() > 3 * own.sum(axis=1).mean()


@settings(max_examples=30, deadline=None)
@given(small_spaces(), SEEDS)
def test_neighbours_are_points_and_each_is_there_once(space: Space, seed: int) -> None:
    point = space.random(np.random.default_rng(seed), 1)[0]
    near = space.neighbours(point.tolist())
    assert (space.normal(near) == near).all()
    assert len(np.unique(near, axis=0)) == len(near)
    assert not (near == point).all(axis=1).any()


def test_what_the_model_says_already_is_no_choice() -> None:
    space = space_of(
        {"prefetch_depth": (2,), "weight_residency": ("GB",)},
        block(prefetch_depth=(1, 2), weight_residency=("stream", "GB")),
    )
    assert kept(space, prefetch_depth=1) == {}
    assert kept(space, prefetch_depth=2) == {"prefetch_depth": 2}
    assert kept(space, model_prefetch_depth=2, prefetch_depth=2) == {}
    assert kept(space, model_prefetch_depth=2, prefetch_depth=1) == {"prefetch_depth": 1}
    assert kept(space, weight_residency="stream") == {}
    assert kept(space, model_weight_residency="GB", weight_residency="GB") == {}
    assert kept(space, model_weight_residency="GB", weight_residency="stream") != {}
    knobs = Knobs(prefetch_depth=2, overrides=(SubGraphKnobs("conv1", prefetch_depth=2),))
    assert space.canonical(knobs) == Knobs(prefetch_depth=2)


def test_priorities_mean_something_only_where_they_order() -> None:
    space = space_of({"instance_order": ("bfs", "priority")}, block(priority=(1, 9)))
    assert kept(space, priority=9) == {}
    assert kept(space, model_instance_order="bfs", priority=9) == {}
    assert kept(space, model_instance_order="priority", priority=9) == {"priority": 9}
    assert space.size == 1 + 1 + 3
    assert space_of({"max_layers": (2,)}, block(priority=(1, 9))).size == 2


SPLITS: dict[str, Any] = {
    "dim": (0, 1, 2),
    "factor": (1, 2, 3, 4, 7),
    "inner_dim": (0, 1, 2),
    "inner_factor": (2, 7),
}


@pytest.mark.parametrize(
    ("chosen", "left"),
    [
        pytest.param({"factor": 4}, {"factor": 4}, marks=pytest.mark.full),
        ({"factor": 3}, {}),  # does not divide eight samples
        pytest.param({"dim": 1, "factor": 7}, {"dim": 1, "factor": 7}, marks=pytest.mark.full),
        ({"dim": 1, "factor": 4}, {"dim": 1}),
        ({"dim": 1, "factor": 1}, {"factor": 1}),
        ({"model_factor_policy": "ragged", "dim": 1, "factor": 4}, {"dim": 1, "factor": 4}),
        ({"model_factor_policy": "ragged", "dim": 0, "factor": 7}, {"dim": 0}),
        ({"model_batches_per_cluster": 2, "factor": 4}, {}),
        pytest.param(
            {"model_batches_per_cluster": 1, "dim": 0, "factor": 2}, {}, marks=pytest.mark.full
        ),
        pytest.param({"inner_dim": 1}, {}, marks=pytest.mark.full),
        ({"inner_factor": 2}, {}),
        ({"inner_dim": 2, "inner_factor": 2}, {"inner_dim": 2, "inner_factor": 2}),
        pytest.param({"inner_dim": 2, "inner_factor": 7}, {}, marks=pytest.mark.full),
        ({"inner_dim": 0, "inner_factor": 2}, {}),  # what auto splits
        ({"dim": 2, "inner_dim": 2, "inner_factor": 2}, {"dim": 2}),
        (
            {"dim": 2, "factor": 3, "inner_dim": 0, "inner_factor": 2},
            {"dim": 2, "factor": 3, "inner_dim": 0, "inner_factor": 2},
        ),
        pytest.param(
            {"factor": 1, "inner_dim": 1, "inner_factor": 7}, {"factor": 1}, marks=pytest.mark.full
        ),
    ],
)
def test_splits_that_cannot_be_are_auto(chosen: dict[str, object], left: dict[str, object]) -> None:
    space = space_of(
        {"batches_per_cluster": (4, 2, 1), "factor_policy": ("divisors", "ragged")}, block(**SPLITS)
    )
    assert kept(space, **chosen) == left


def test_settings_outside_say_why() -> None:
    def refused(space: Space, *overrides: SubGraphKnobs) -> str:
        with pytest.raises(KnobsError) as caught:
            space.from_knobs(Knobs(overrides=overrides))
        return str(caught.value)

    space = space_of({"max_layers": (2,)}, block(("a", "b"), scope=("GB",), factor=(2, 3)))
    both = (SubGraphKnobs("a", scope="GB"), SubGraphKnobs("b", scope="GB"))
    assert space.from_knobs(Knobs(overrides=both))["subgraph:a:scope"] == "GB"
    assert refused(space, SubGraphKnobs("c", scope="GB")).startswith(
        "overrides: 'c' is not in the search space; one of a, b"
    )
    assert refused(space, both[0]) == "overrides: sub-graphs like that of 'a' have one setting here"
    lb = tuple(SubGraphKnobs(layer, scope="LB") for layer in "ab")
    assert refused(space, *lb).startswith("subgraph:a:scope: 'LB' is not in the search space")
    cores = tuple(SubGraphKnobs(layer, cores=2) for layer in "ab")
    assert refused(space, *cores).startswith("subgraph:a:cores: 2 is not in the search space")
    odd = tuple(SubGraphKnobs(layer, factor=3) for layer in "ab")
    assert refused(space, *odd) == "overrides: a split that is not in the search space"


def test_alike_sub_graphs_share_a_choice() -> None:
    space = space_of({"max_layers": (2,)}, block(("a", "b"), scope=("GB",)))
    assert space.to_knobs({"subgraph:a:scope": "GB"}).overrides == (
        SubGraphKnobs("a", scope="GB"),
        SubGraphKnobs("b", scope="GB"),
    )


@pytest.mark.parametrize("tried", [0, 3, 60])
def test_proposals_are_new_in_one_form_and_follow_from_seed_and_history(tried: int) -> None:
    points = LARGE.random(np.random.default_rng(5), tried)
    past = [ScoredCandidate(tuple(p), float(i % 7) + 1) for i, p in enumerate(points.tolist())]

    def proposed(seed: int) -> list[tuple[int, ...]]:
        return propose(LARGE, np.random.default_rng(seed), past, set(), count=16)

    found = proposed(1)
    assert found == proposed(1)
    assert found != proposed(2)
    assert len(set(found)) == 16
    assert not set(found) & {t.genes for t in past}
    assert (LARGE.normal(np.asarray(found)) == np.asarray(found)).all()


@pytest.mark.full
def test_the_last_points_of_a_space_are_found() -> None:
    """Dense points are rare when drawn sparsely, and this space is too large to be listed."""
    fields: dict[str, Any] = {"boundary": ("cut", "merge"), "scope": ("LB", "GB", "DDR")}
    blocks = [block((layer,), **fields) for layer in ("a", "b", "c", "d")]
    space = space_of({"max_layers": (2,)}, *blocks)
    assert not space.listed
    every = np.indices(tuple(space.widths)).reshape(len(space.widths), -1).T
    assert len(every) == space.size == 2 * 12**4
    taken = set(map(tuple, every[every[:, 1:].min(axis=1) == 0].tolist()))
    rng = np.random.default_rng(0)
    left = space.size - len(taken)
    assert len(set(fresh_points(space, rng, taken, 10**9)) - taken) == left == 2 * 6**4


def test_a_model_without_layers_has_no_sub_graphs() -> None:
    assert Space.of(ModelScheduler(toy_graph(), toy_target()), subgraphs=4).blocks == ()


def test_every_knob_of_sub_graphs_is_described_once() -> None:
    rows = {row["knob"]: row for row in LARGE.describe_subgraphs()}
    assert list(rows) == [name for name in subgraph_knobs() if name != "core_parallel_dim"]
    assert rows["factor"]["choices"] == [AUTO, 1, 2, 3, 4, 7]
    assert all(row["kinds"] == 2 and row["choices"][0] == AUTO for row in rows.values())
    assert all(not row["knob"].startswith("subgraph:") for row in LARGE.describe())
