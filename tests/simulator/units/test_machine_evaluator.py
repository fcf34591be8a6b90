"""Settings of a machine: what they mean, what is refused, what is measured."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.datasets import workloads
from autoturbo.errors import InfeasibleError, KnobsError, UsageError
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine import Machine
from autoturbo.hardware.machine_files import load_machine
from autoturbo.heterogeneous.evaluator import MachineEvaluator, scheduler_names
from autoturbo.heterogeneous.measurement import MachineMeasurement, measure_assignment
from autoturbo.heterogeneous.parts import assign
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.unit_knobs import UnitKnobs
from autoturbo.simulator.measurement import Failure, Measurement
from tests.search.fork_model import save_fork


@pytest.fixture(scope="module")
def fork(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return import_model(save_fork(tmp_path_factory.mktemp("fork")))


@pytest.fixture(scope="module")
def evaluator(fork: Graph) -> MachineEvaluator:
    return MachineEvaluator(fork, load_machine("zcu102-vta"), "int8")


def test_no_knobs_are_partition_tuners_decision(evaluator: MachineEvaluator) -> None:
    assert evaluator.evaluate(Knobs()) == evaluator.measure_scheduler("partition_tuner")
    assert scheduler_names(evaluator.profiles.machine)[0] == "cpu"
    assert evaluator.measure_scheduler("cpu") == evaluator.measure_scheduler("first_unit")


def test_layers_go_where_the_knobs_say(evaluator: MachineEvaluator) -> None:
    found = evaluator.assignment(Knobs(units=UnitKnobs((("b", "npu"),), ("c",))))
    assert [(p.unit, p.layers) for p in found.parts] == [(0, (0,)), (1, (1,)), (0, (2, 3))]


def test_one_after_the_other_is_never_faster(evaluator: MachineEvaluator) -> None:
    said = UnitKnobs((("b", "npu"),), cuts=("c", "y"))  # b and c beside each other
    beside = evaluator.evaluate(Knobs(units=said))
    turn = evaluator.evaluate(Knobs(units=dataclasses.replace(said, branches="in_turn")))
    assert isinstance(beside, Measurement)
    assert isinstance(turn, Measurement)
    assert beside.latency < turn.latency


@pytest.mark.parametrize(
    ("knobs", "field"),
    [
        (Knobs(units=UnitKnobs((("z", "npu"),))), "units"),
        (Knobs(units=UnitKnobs((("b", "gpu"),))), "units"),
        (Knobs(units=UnitKnobs((("y", "npu"),))), "units"),
        (Knobs(units=UnitKnobs(), prefetch_depth=2), "prefetch_depth"),
    ],
)
def test_what_does_not_fit_the_machine_is_refused(
    evaluator: MachineEvaluator, knobs: Knobs, field: str
) -> None:
    with pytest.raises(KnobsError) as caught:
        evaluator.assignment(knobs)
    assert caught.value.at.field == field
    outcome = evaluator.evaluate(knobs)
    assert isinstance(outcome, Failure)
    assert outcome.message == str(caught.value)


def test_a_scheduler_and_a_type_that_there_are_not(fork: Graph) -> None:
    with pytest.raises(UsageError):
        MachineEvaluator(fork, load_machine("zcu102-vta"), "float32")
    made = MachineEvaluator(fork, load_machine("zcu102-vta"), "int8")
    with pytest.raises(UsageError):
        made.measure_scheduler("tvm")


@pytest.fixture(scope="module")
def squeezenet() -> MachineEvaluator:
    graph = import_model(workloads.get("squeezenet1_1").file, batch=1)
    return MachineEvaluator(graph, load_machine("kirin-970"), "float16")


UNITS = st.lists(st.integers(0, 1), min_size=26, max_size=26)


@settings(max_examples=15)
@given(UNITS)
def test_nothing_beats_the_bound(squeezenet: MachineEvaluator, wanted: list[int]) -> None:
    profiles = squeezenet.profiles
    units = [unit if unit in may else 0 for unit, may in zip(wanted, profiles.units, strict=True)]
    found = squeezenet.measure(assign(profiles.graph, profiles.layers, units))
    assert isinstance(found, Measurement)
    assert 0 < found.bound_fraction <= 1
    assert 0 < found.matrix_utilization <= 1
    assert 0 < found.vector_utilization <= 1


def limited(machine: Machine, unit: int, memory: int) -> Machine:
    """The same with less memory for one unit."""
    units = list(machine.units)
    units[unit] = dataclasses.replace(units[unit], memory=memory)
    return dataclasses.replace(machine, units=tuple(units))


@settings(max_examples=15)
@given(UNITS, st.integers(0, 1), st.floats(0.2, 1.2))
def test_memory_per_unit_is_respected(
    squeezenet: MachineEvaluator, wanted: list[int], unit: int, share: float
) -> None:
    profiles = squeezenet.profiles
    units = [one if one in may else 0 for one, may in zip(wanted, profiles.units, strict=True)]
    assignment = assign(profiles.graph, profiles.layers, units)
    free = measure_assignment(profiles, assignment)
    assert isinstance(free, MachineMeasurement)
    name = profiles.machine.units[unit].name
    most = int(share * free.held[name])
    tight = dataclasses.replace(profiles, machine=limited(profiles.machine, unit, most))
    found = measure_assignment(tight, assignment)
    if isinstance(found, Failure):
        assert found.infeasible
        assert found.message.startswith(f"{name} may hold {most} bytes")
        assert found.demand is not None
        assert found.demand > most
    else:
        assert found.held[name] <= most
        assert found.latency >= free.latency * (1 - 1e-12) or share < 1


def test_a_schedule_that_does_not_fit_is_no_schedule(fork: Graph) -> None:
    machine = limited(load_machine("zcu102-vta"), 0, 1000)
    with pytest.raises(InfeasibleError):
        MachineEvaluator(fork, machine, "int8").scheduler("cpu")
