from __future__ import annotations

import dataclasses

import pytest
from exact_search import best_freed, best_over_grid, freed, projected, proposals

from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.search.space import Space
from autoturbo.search.warm_starts.best_sets import Grid
from autoturbo.search.warm_starts.dp_partition import FREE
from autoturbo.search.warm_starts.groups import GroupLimits
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement
from tests.schedule.schedule_samples import block, workload
from tests.search.exact.exact_samples import machine

SMALL = Grid(factors=(1, 2, 4), own=(SubGraphKnobs(""),), limits=GroupLimits(4, 16))


@pytest.mark.full
def test_outputs_that_may_stay_are_no_slower_than_in_ddr() -> None:
    evaluator = Evaluator(workload("squeezenet1_1"), load_target("stcp920"), "float16")
    answer = best_over_grid(evaluator, SMALL)
    knobs, seconds = best_freed(evaluator, answer.knobs)
    assert seconds is not None
    assert seconds < answer.predicted
    again = evaluator.evaluate(knobs)
    assert isinstance(again, Measurement)
    assert again.latency == seconds


def test_freed_settings_keep_cuts_and_splits() -> None:
    own = SubGraphKnobs(
        "a", boundary="cut", dim=1, factor=4, cores=8, scope="DDR", tile_subdivision=2
    )
    first, *others = freed(dataclasses.replace(FREE, overrides=(own,)))
    assert first.overrides == (own,)
    for knobs in others:
        assert knobs.overrides == (dataclasses.replace(own, cores=AUTO, scope=AUTO),)
    assert {k.output_scope for k in others} == {AUTO, "GB", "DDR"}


@pytest.mark.parametrize("subgraphs", [0, 2, 8])
def test_proposals_are_points_of_the_space(subgraphs: int) -> None:
    graph, target = block(), machine(lb=1 << 12)
    space = Space.of(ModelScheduler(graph, target, "float16"), subgraphs=subgraphs)
    answer = best_over_grid(Evaluator(graph, target, "float16"), SMALL)
    found = proposals(space, answer.knobs)
    assert len(found) == len(set(found)) > 1
    for knobs in found:
        space.from_knobs(knobs)
    assert {k.merged_factor_ratio for k in found} == {8.0, AUTO}
    assert {k.factor_policy for k in found} == {"ragged", AUTO}


def test_a_point_of_the_space_is_its_own_projection() -> None:
    graph, target = block(), machine(lb=1 << 12)
    space = Space.of(ModelScheduler(graph, target, "float16"))
    knobs = Knobs(merged_factor_ratio=4.0, tile_subdivision=2, output_scope="GB")
    assert projected(space, knobs) == knobs


def test_numbers_go_to_the_nearest_choice() -> None:
    space = Space.of(ModelScheduler(block(), machine(lb=1 << 12), "float16"))
    found = projected(space, dataclasses.replace(FREE, prefetch_depth=16))
    assert found.merged_factor_ratio == 8.0
    assert found.producer_factor_ratio == 0.125
    assert found.prefetch_depth == 4
    assert found.factor_policy == "ragged"
