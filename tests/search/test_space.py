from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.errors import KnobsError
from autoturbo.graph.operators import Graph, Tensor
from autoturbo.schedule.chip_part import ChipPart, used_target
from autoturbo.schedule.knobs import AUTO, Here, Knobs, model_knobs
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.search.space import Dimension, Space, batch_share
from tests.schedule.schedule_samples import STCP920, workload
from tests.search.search_doubles import small_space, toy_graph, toy_space, toy_target

SPACE = toy_space()
POINTS = st.tuples(*(st.integers(0, int(width) - 1) for width in SPACE.widths))


def by_name(space: Space) -> dict[str, Dimension]:
    return {d.name: d for d in space.dimensions}


def test_every_dimension_is_a_knob_with_auto_first() -> None:
    for dimension in SPACE.dimensions:
        assert dimension.name in model_knobs()
        assert dimension.choices[0] == AUTO
        assert len(dimension.choices) == len(set(dimension.choices)) > 1


def test_batches_are_the_divisors_of_the_share_without_the_share_itself() -> None:
    assert batch_share(toy_graph(64), toy_target()) == 16
    choices = by_name(SPACE)["batches_per_cluster"].choices
    assert choices == (AUTO, 8, 4, 2, 1)


@pytest.mark.parametrize(("batch", "share"), [(1, 1), (4, 1), (5, 2)])
def test_a_cluster_s_share_is_rounded_up(batch: int, share: int) -> None:
    assert toy_target().clusters == 4
    assert batch_share(toy_graph(batch), toy_target()) == share


def test_a_batch_of_one_has_nothing_to_choose() -> None:
    assert "batches_per_cluster" not in by_name(
        Space.of(ModelScheduler(toy_graph(1), toy_target()))
    )


def test_samples_that_cannot_be_told_apart_are_not_shared_out() -> None:
    tensors = (Tensor("x", (64, 8), "float32"), Tensor("y", (3,), "float32"))
    graph = Graph("mixed", tensors, (), (0,), (1,), 64)
    assert "batches_per_cluster" not in by_name(Space.of(ModelScheduler(graph, toy_target())))


def test_limits_above_the_model_s_layers_are_left_out() -> None:
    assert "max_layers" not in by_name(SPACE)  # the toy has no layers
    space = dataclasses.replace(SPACE, here=Here(layers=10))
    assert space.canonical(Knobs(max_layers=16)) == Knobs()
    assert space.canonical(Knobs(max_layers=8)) == Knobs(max_layers=8)


@pytest.mark.parametrize(
    "same",
    [
        {"merge_order": "straight-diamond-branch"},
        {"recompute_limit": 1.25},
        {"lb_occupancy_limit": 1},
        {"prefetch_depth": 1},
        {"batches_per_cluster": 16},
    ],
)
def test_what_auto_stands_for_is_auto(same: dict[str, str | float]) -> None:
    assert SPACE.to_knobs(same) == Knobs()


def test_equal_numbers_are_written_alike() -> None:
    assert SPACE.to_knobs({"recompute_limit": 2}).id == SPACE.to_knobs({"recompute_limit": 2.0}).id


def test_a_setting_outside_the_space_says_which_knob() -> None:
    with pytest.raises(KnobsError) as caught:
        SPACE.from_knobs(Knobs(prefetch_depth=7))
    assert caught.value.at.field == "prefetch_depth"
    with pytest.raises(KnobsError) as caught:
        Space(SPACE.dimensions[:2]).from_knobs(Knobs(tile_subdivision=4))
    assert caught.value.at.field == "tile_subdivision"


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(KnobsError) as caught:
        SPACE.to_knobs({"prefetch": 1})
    assert caught.value.at.field == "prefetch"


@given(POINTS)
def test_points_parameters_and_settings_are_one_to_one(genes: tuple[int, ...]) -> None:
    knobs = SPACE.knobs_of(genes)
    params = SPACE.from_knobs(knobs)
    assert SPACE.genes_of(params) == genes
    assert SPACE.to_knobs(params) == knobs
    assert SPACE.canonical(knobs) == knobs


@given(POINTS, st.integers(0, 2**32), st.floats(0, 1))
@settings(deadline=None)
def test_a_mutant_differs_and_stays_inside(genes: tuple[int, ...], seed: int, rate: float) -> None:
    parents = np.asarray([genes] * 5, np.int64)
    mutants = SPACE.mutate(np.random.default_rng(seed), parents, rate)
    assert mutants.shape == parents.shape
    assert (mutants != parents).any(axis=1).all()
    assert ((mutants >= 0) & (mutants < SPACE.widths)).all()


@given(POINTS)
def test_neighbours_differ_in_one_choice_each_once(genes: tuple[int, ...]) -> None:
    near = SPACE.neighbours(genes)
    assert len(near) == sum(SPACE.widths) - len(SPACE.widths)
    assert ((near != np.asarray(genes)).sum(axis=1) == 1).all()
    assert len(np.unique(near, axis=0)) == len(near)


def test_everything_is_every_point_once() -> None:
    space = small_space()
    points = space.everything()
    assert len(points) == space.size == 18
    assert len(np.unique(points, axis=0)) == 18
    assert points[0].tolist() == [0, 0, 0]


def test_random_points_cover_the_choices() -> None:
    points = SPACE.random(np.random.default_rng(0), 500)
    assert (points.max(axis=0) == SPACE.widths - 1).all()
    assert (points.min(axis=0) == 0).all()


def test_points_as_numbers_put_auto_where_its_meaning_is() -> None:
    dimension = Dimension("recompute_limit", (AUTO, 1.0, 1.5, 2.0))
    space = Space((dimension, Dimension("batches_per_cluster", (AUTO, 8, 4))), here=Here(16))
    rows = space.features(np.asarray([[0, 0], [1, 1], [2, 2]]))
    assert rows[1, 0] < rows[0, 0] < rows[2, 0]  # 1.0 < 1.25 < 1.5
    assert rows[:, 1].tolist() == [4.0, 3.0, 2.0]


def test_some_columns_of_points_as_numbers() -> None:
    space = toy_space()
    genes = space.random(np.random.default_rng(0), 9)
    wanted = np.asarray([len(space.dimensions) - 1, 0])
    assert space.features(genes, wanted).tolist() == space.features(genes)[:, wanted].tolist()


@pytest.mark.parametrize("choices", [3, 256, 300])
def test_points_each_once_in_lexical_order(choices: int) -> None:
    space = Space(tuple(Dimension(f"p{i}", tuple(range(choices))) for i in range(3)))
    genes = space.random(np.random.default_rng(choices), 60)
    genes = np.concatenate([genes, genes[::2], space.normal(genes)[:, [1, 0, 2]]])
    assert space.distinct(genes).tolist() == sorted(map(list, {*map(tuple, genes.tolist())}))


def test_parameters_of_other_studies_have_numbers_too() -> None:
    space = Space((Dimension("depth", (3, 5.5)), Dimension("kind", ("x", None))))
    rows = space.features(np.asarray([[0, 0], [1, 1]]))
    assert rows.tolist() == [[3.0, 0.0], [5.5, 1.0]]


def test_an_empty_space_has_one_point() -> None:
    space = Space(())
    assert space.size == 1
    assert space.features(np.zeros((2, 0), np.int64)).shape == (2, 0)
    assert space.mutate(np.random.default_rng(0), np.zeros((2, 0), np.int64)).shape == (2, 0)


def test_distributions_are_what_optuna_takes() -> None:
    found = SPACE.distributions()
    assert list(found) == [d.name for d in SPACE.dimensions]
    ordinal = SPACE.distributions(ordinal=True)
    high = [getattr(d, "high", None) for d in ordinal.values()]
    assert high == (SPACE.widths - 1).tolist()


def test_a_description_for_people() -> None:
    rows = SPACE.describe()
    assert rows[0]["knob"] == "batches_per_cluster"
    assert rows[0]["published"] == "the cluster's whole share of the batch"
    assert all(set(row) == {"knob", "help", "choices", "published"} for row in rows)


def test_nothing_heavy_is_loaded_before_it_is_used() -> None:
    code = (
        "import sys, autoturbo.search, autoturbo.tuning.tuner, autoturbo.search.executors;"
        "print([m for m in ('optuna', 'xgboost', 'ray', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("part", [ChipPart(used_cores=4), ChipPart(core_groups=4)])
def test_a_part_of_a_chip_has_the_space_of_the_chip_that_it_is(part: ChipPart) -> None:
    graph = workload("resnet18")
    made = Space.of(ModelScheduler(graph, STCP920, "float16"), subgraphs=3, base=part.on(Knobs()))
    alone = Space.of(ModelScheduler(graph, used_target(STCP920, part), "float16"), subgraphs=3)
    assert made.dimensions == alone.dimensions
    assert made.blocks == alone.blocks
