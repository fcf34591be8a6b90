"""A kernel's signature: changes with all that its time depends on, and with nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from autoturbo.graph.operators import Graph
from autoturbo.schedule.codegen.tiling import InstructionRules
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.evaluator import Evaluator
from tests.schedule.steps import Step, signature_of, steps_of
from tests.simulator.simulate_samples import changed, evaluator, with_target


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    return build_schedule(evaluator("resnet18").model_scheduler, Knobs())


def first(schedule: Schedule) -> Step:
    return steps_of(schedule.timeline)[0]


FIGURES: dict[str, Any] = {
    "clock": 2e9, "cores": 4, "clusters": 2, "matrix.rows": 32, "matrix.columns": 16,
    "matrix.depth": 2, "matrix.dataflow": "ideal", "matrix.startup_cycles": 1,
    "matrix.rate": (("float16", 2.0),), "vector.lanes": (("float16", 1.0),),
    "vector.special_lanes": 1.0, "vector.startup_cycles": 1, "transfer.bandwidth": 1e9,
    "transfer.latency": 1e-6, "transfer.broadcast": False, "dma.channels": 1,
    "dma.bandwidth": 1e9, "dma.latency": 1e-6, "lb.bandwidth": 1e9, "lb.capacity": 1 << 19,
    "lb.weight_capacity": 1 << 17, "gb.bandwidth": 1e9, "gb.latency": 1e-6, "gb.capacity": 1 << 22,
    "ddr.bandwidth": 1e9, "ddr.latency": 1e-6, "ddr.efficiency": 0.5,
}  # fmt: skip


def test_changes_with_every_figure_of_the_target(schedule: Schedule) -> None:
    for path, value in FIGURES.items():
        other = with_target(schedule, changed(schedule.context.target, path, value))
        assert signature_of(other, first(schedule)) != signature_of(schedule, first(schedule)), path


def test_changes_with_every_rule(schedule: Schedule) -> None:
    for field in InstructionRules._fields:
        now = getattr(schedule.rules, field)
        value = not now if isinstance(now, bool) else now + 1
        rules = schedule.rules._replace(**{field: value})
        other = dataclasses.replace(schedule, rules=rules)
        assert signature_of(other, first(schedule)) != signature_of(schedule, first(schedule)), (
            field
        )


def test_changes_with_streams_residency_and_work(schedule: Schedule) -> None:
    step = first(schedule)
    moved = step.streams.copy()
    moved[0, 0] += 1
    template = dataclasses.replace(step.template, digest=bytes(16))
    others = [
        dataclasses.replace(step, streams=moved),
        dataclasses.replace(step, weights_resident=not step.weights_resident),
        dataclasses.replace(step, template=template),
    ]
    found = {signature_of(schedule, other) for other in (step, *others)}
    assert len(found) == 4


def test_changes_with_the_data_type(schedule: Schedule) -> None:
    context = dataclasses.replace(schedule.context, dtype="int8")
    other = dataclasses.replace(schedule, context=context)
    assert signature_of(other, first(schedule)) != signature_of(schedule, first(schedule))


def renamed(graph: Graph) -> Graph:
    tensors = tuple(dataclasses.replace(t, name=f"t{i}") for i, t in enumerate(graph.tensors))
    operators = tuple(dataclasses.replace(o, name=f"o{i}") for i, o in enumerate(graph.operators))
    return dataclasses.replace(graph, name="other", tensors=tensors, operators=operators)


def test_does_not_change_with_names(schedule: Schedule) -> None:
    target = dataclasses.replace(schedule.context.target, name="another", description="else")
    other = Evaluator(renamed(schedule.model), target, "float16")
    again = build_schedule(other.model_scheduler, Knobs())
    mine = [signature_of(schedule, step) for step in steps_of(schedule.timeline)]
    assert [signature_of(again, step) for step in steps_of(again.timeline)] == mine


def test_like_instances_share_one(schedule: Schedule) -> None:
    split = build_schedule(evaluator("resnet18").model_scheduler, Knobs(instance_multiplier=4))
    signatures = [signature_of(split, step) for step in steps_of(split.timeline)]
    assert len(set(signatures)) < len(signatures)
    assert len(signatures) > len(steps_of(schedule.timeline))
