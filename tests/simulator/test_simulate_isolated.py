"""What kernels take alone, against what they take in schedules."""

from __future__ import annotations

import numpy as np
import pytest

from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.simulator.contract import PlanStatistics
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement
from autoturbo.simulator.plan import COLUMNS
from tests.simulator.simulate_samples import evaluator


def facts(model_scheduler: Evaluator, knobs: Knobs) -> PlanStatistics:
    found = model_scheduler.statistics(knobs)
    assert found is not None
    return found


def column(plan: PlanStatistics, name: str) -> np.ndarray:
    found: np.ndarray = plan.values[:, COLUMNS.index(name)]
    return found


@pytest.mark.parametrize("workload", ["resnet18", "dlrm"])
def test_kernels_with_their_boundary_in_ddr_take_what_they_take_alone(workload: str) -> None:
    """Plain bindings, one part each, and nothing that lives on in the local buffers.

    DLRM's kernels have one tile each: there the estimate counts latencies twice that overlap.
    """
    model_scheduler = evaluator(workload)
    knobs = Knobs(output_scope="DDR", max_layers=1)
    plan, outcome = facts(model_scheduler, knobs), model_scheduler.evaluate(knobs)
    assert isinstance(outcome, Measurement)
    ratio = np.asarray(outcome.subgraph_times) / column(plan, "far_s")
    assert np.median(ratio) == pytest.approx(1, rel=0.3 if workload == "dlrm" else 0.1)


@pytest.mark.full
@pytest.mark.parametrize(
    "workload", ["resnet18", pytest.param("bert_base_s128", marks=pytest.mark.full)]
)
def test_near_is_no_slower_than_far(workload: str) -> None:
    plan = facts(evaluator(workload), Knobs())
    near, far = column(plan, "near_s"), column(plan, "far_s")
    assert (near > 0).all()
    assert (near <= far * (1 + 1e-9)).mean() > 0.95
    assert (column(plan, "near_ddr_bytes") <= column(plan, "ddr_bytes")).all()


def test_the_latency_lies_near_what_kernels_take_alone() -> None:
    model_scheduler = evaluator("resnet18")
    plan, outcome = facts(model_scheduler, Knobs()), model_scheduler.evaluate(Knobs())
    assert isinstance(outcome, Measurement)
    low = float((column(plan, "near_s") * plan.launches).sum())
    high = float((column(plan, "far_s") * plan.launches).sum())
    assert low / 1.5 < outcome.latency < high * 1.5


@pytest.mark.full
def test_asked_again_it_says_the_same() -> None:
    model_scheduler = evaluator("squeezenet1_1")
    known = facts(model_scheduler, Knobs(tile_subdivision=2)).values
    facts(model_scheduler, Knobs(tile_subdivision=4))
    fresh = Evaluator(
        model_scheduler.model_scheduler.model,
        model_scheduler.model_scheduler.target,
        model_scheduler.model_scheduler.dtype,
    )
    assert (facts(model_scheduler, Knobs(tile_subdivision=2)).values == known).all()
    assert (facts(fresh, Knobs(tile_subdivision=2)).values == known).all()


@pytest.mark.full
def test_of_as_many_small_parts_as_large_ones_one_counts_whatever_was_asked_before() -> None:
    model_scheduler = evaluator("squeezenet1_1").model_scheduler

    def cut(parts: int) -> Knobs:
        own = SubGraphKnobs("node_conv2d_1", dim=1, factor=parts)
        return Knobs(max_layers=1, factor_policy="ragged", overrides=(own,))

    asked, fresh = (
        Evaluator(model_scheduler.model, model_scheduler.target, model_scheduler.dtype)
        for _ in range(2)
    )
    facts(asked, cut(11))  # 55 rows: eleven parts of five; of ten parts five have five and five six
    assert (facts(asked, cut(10)).values == facts(fresh, cut(10)).values).all()


def test_a_sub_graphs_own_knobs_change_its_row_alone() -> None:
    model_scheduler = evaluator("squeezenet1_1")
    plain = facts(model_scheduler, Knobs())
    layer = (
        model_scheduler.model_scheduler.context(model_scheduler.model_scheduler.share().batches)
        .layers[0]
        .name
    )
    own = facts(
        model_scheduler, Knobs(overrides=(SubGraphKnobs(layer, instruction_scheduling="off"),))
    )
    changed = (own.values != plain.values).any(axis=1)
    assert list(own.overrides) == np.flatnonzero(changed).tolist()
    row = next(iter(own.overrides))
    assert column(own, "near_s")[row] > column(plain, "near_s")[row]
