"""The door: knobs in, outcome out; failures as values; plug-in measurers; statistics."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from autoturbo.errors import KnobsError, UsageError
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.evaluator import Evaluator, Simulator
from autoturbo.simulator.measurement import Failure, LowerBound, Measurement, Outcome
from autoturbo.simulator.measurers import find_measurer
from autoturbo.simulator.plan import COLUMNS
from tests.simulator.simulate_samples import changed, evaluator, target_of

TOO_MANY = Knobs(batches_per_cluster=1000)


def test_a_data_type_that_the_target_has_not() -> None:
    graph = evaluator("squeezenet1_1").model_scheduler.model
    with pytest.raises(UsageError) as error:
        Evaluator(graph, target_of("goya"), "float16")
    assert "float32, int8" in str(error.value)


def test_an_overflow_of_ddr_is_a_failure_with_demand_and_capacity() -> None:
    graph = evaluator("resnet18").model_scheduler.model
    small = changed(target_of(), "ddr.capacity", 1 << 20)
    found = Evaluator(graph, small, "float16").evaluate(Knobs())
    assert isinstance(found, Failure)
    assert found.reason == "DDR"
    assert found.infeasible
    assert found.capacity == 1 << 20
    assert found.demand is not None
    assert found.demand > 20e6  # the weights alone
    assert str(found.demand) in found.message
    assert found.tensors
    assert found.levers


@pytest.mark.full
def test_the_same_schedule_fits_where_there_is_room() -> None:
    graph = evaluator("resnet18").model_scheduler.model
    found = Evaluator(graph, changed(target_of(), "ddr.capacity", 1 << 20), "float16")
    demand = found.evaluate(Knobs())
    assert isinstance(demand, Failure)
    assert demand.demand is not None
    enough = changed(target_of(), "ddr.capacity", demand.demand)
    assert isinstance(Evaluator(graph, enough, "float16").evaluate(Knobs()), Measurement)


@pytest.mark.parametrize(
    "knobs", [TOO_MANY, Knobs(overrides=(SubGraphKnobs("no such layer", factor=2),))]
)
def test_knobs_that_do_not_fit_are_a_failure(knobs: Knobs) -> None:
    model_scheduler = evaluator("resnet18")
    found = model_scheduler.evaluate(knobs)
    assert isinstance(found, Failure)
    assert found.reason == "invalid"
    assert not found.infeasible
    assert model_scheduler.statistics(knobs) is None
    with pytest.raises(KnobsError):
        model_scheduler.schedule(knobs)


def test_a_schedule_says_what_it_expects() -> None:
    model_scheduler = evaluator("resnet18")
    outcome = model_scheduler.evaluate(Knobs())
    assert isinstance(outcome, Measurement)
    assert model_scheduler.schedule(Knobs()).expected == outcome.as_json()


def test_unknown_schedulers_and_measurers() -> None:
    with pytest.raises(UsageError):
        evaluator("resnet18").measure_scheduler("grafturbo")
    with pytest.raises(UsageError):
        find_measurer("board")
    assert isinstance(find_measurer("simulator"), Simulator)


def test_a_scheduler_by_name_is_the_best_of_its_candidates() -> None:
    model_scheduler = evaluator("resnet18")
    schedule, outcome = model_scheduler.scheduler("O2")
    assert isinstance(outcome, Measurement)
    assert schedule.expected == outcome.as_json()
    assert model_scheduler.measure_scheduler("O2") == outcome


class Board:
    """A measurer from elsewhere: answers in order, fails on demand."""

    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        return [Failure("timeout", f"{schedule.scheduler} hangs") for schedule in schedules]


def test_a_measurer_from_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = importlib.metadata.EntryPoint("board", f"{__name__}:Board", "autoturbo.measurers")

    def entry_points(**asked: Any) -> list[importlib.metadata.EntryPoint]:
        return [entry] if asked == {"group": entry.group, "name": "board"} else []

    with monkeypatch.context() as patch:  # Numba looks for entry points, too, when it starts
        patch.setattr(importlib.metadata, "entry_points", entry_points)
        measurer = find_measurer("board")
    assert isinstance(measurer, Board)
    graph = evaluator("squeezenet1_1").model_scheduler.model
    model_scheduler = Evaluator(graph, target_of(), "float16", measurer)
    assert model_scheduler.evaluate(Knobs()) == Failure("timeout", "graphturbo hangs")
    assert model_scheduler.schedule(Knobs()).expected is None
    assert model_scheduler.measure_scheduler("tvm") == Failure("timeout", "tvm hangs")


def column(values: np.ndarray, name: str) -> np.ndarray:
    found: np.ndarray = values[:, COLUMNS.index(name)]
    return found


def test_what_a_measurer_prints_is_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    class Chatty:
        def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
            print("board 3 answers")  # noqa: T201
            return Simulator().measure(schedules)

    found = Evaluator(
        evaluator("dlrm").model_scheduler.model, target_of(), "float16", Chatty()
    ).evaluate(Knobs())
    assert isinstance(found, Measurement)
    assert capsys.readouterr() == ("", "board 3 answers\n")


def test_a_measurement_below_the_bound_is_refused_whatever_bound_it_names() -> None:
    class Lying:
        def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
            (found,) = Simulator().measure(schedules)
            assert isinstance(found, Measurement)
            return [dataclasses.replace(found, latency=1e-30, bound=LowerBound(0.0, 0.0, 0.0))]

    found = Evaluator(
        evaluator("dlrm").model_scheduler.model, target_of(), "float16", Lying()
    ).evaluate(Knobs())
    assert isinstance(found, Failure)
    assert found.message.startswith("the measurer returned a latency of 1e-30 s, below the lower")


@pytest.mark.parametrize(
    ("knobs", "workload"),
    [
        (Knobs(), "dlrm"),
        (Knobs(batches_per_cluster=2), "squeezenet1_1"),
        pytest.param(Knobs(max_layers=2), "bert_base_s128", marks=pytest.mark.full),
        pytest.param(Knobs(max_layers=2), "resnet18", marks=pytest.mark.full),
    ],
)
def test_statistics_agree_with_the_measurement(workload: str, knobs: Knobs) -> None:
    model_scheduler = evaluator(workload)
    facts, outcome = model_scheduler.statistics(knobs), model_scheduler.evaluate(knobs)
    assert facts is not None
    assert isinstance(outcome, Measurement)
    values, launches = facts.values, facts.launches
    assert values.shape == (len(launches), len(COLUMNS))
    assert np.isfinite(values).all()
    assert (values >= 0).all()
    assert launches.sum() == outcome.kernels
    assert len(outcome.subgraph_times) == len(launches)
    predicted = float((np.asarray(outcome.subgraph_times) * launches).sum())
    assert predicted == pytest.approx(outcome.latency)


@pytest.mark.parametrize(
    "workload", ["resnet18", pytest.param("bert_base_s128", marks=pytest.mark.full)]
)
def test_work_times_launches_is_the_work_of_the_model(workload: str) -> None:
    """Nothing is recomputed at a limit of 1 when parts are whole samples."""
    model_scheduler = evaluator(workload)
    facts = model_scheduler.statistics(Knobs(recompute_limit=1.0, split_dims="batch"))
    assert facts is not None
    done = (column(facts.values, "macs") * facts.launches).sum() * target_of().clusters
    assert done == pytest.approx(model_scheduler.model_scheduler.model.macs, rel=1e-3)


@pytest.mark.full
def test_recomputation_shows_in_the_statistics() -> None:
    facts = evaluator("resnet18").statistics(Knobs(split_dims="spatial", instance_multiplier=8))
    assert facts is not None
    done = (column(facts.values, "macs") * facts.launches).sum() * target_of().clusters
    assert done >= evaluator("resnet18").model_scheduler.model.macs * 0.999
