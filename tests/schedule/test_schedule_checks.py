"""The checks themselves: each of them finds the schedule that lies about what it checks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from autoturbo.schedule.codegen.instructions import Column
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.place.bind import Placement
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.stitch.stages import Stage
from tests.schedule import schedule_checks as checks
from tests.schedule.schedule_samples import block, target
from tests.schedule.steps import program_of, steps_of


@pytest.fixture(scope="module")
def honest() -> Schedule:
    machine = target(cores=4, lb=1024, gb=1 << 16)
    return build_schedule(ModelScheduler(block(), machine, "float16"), Knobs(max_layers=3))


def wide(schedule: Schedule) -> Schedule:
    bindings = list(schedule.placement.bindings)
    bindings[0] = (64,) + (1,) * (len(bindings[0]) - 1)
    return dataclasses.replace(
        schedule, placement=Placement(tuple(bindings), schedule.placement.scopes)
    )


def lazy(schedule: Schedule) -> Schedule:
    """Half of the work of the first kernel."""
    templates, first = list(schedule.timeline.templates), int(schedule.timeline.order[0])
    templates[first] = dataclasses.replace(templates[first], stages=templates[first].stages / 2)
    timeline = dataclasses.replace(schedule.timeline, templates=tuple(templates))
    return dataclasses.replace(schedule, timelines=(timeline,))


def always_resident(schedule: Schedule) -> Schedule:
    resident = np.ones_like(schedule.timeline.resident)
    return dataclasses.replace(
        schedule, timelines=(dataclasses.replace(schedule.timeline, resident=resident),)
    )


LIES = {
    "too many cores": (wide, checks.check_bindings),
    "half the work": (lazy, lambda s: checks.check_work(s, steps_of(s.timeline)[0])),
    "weights never loaded": (always_resident, checks.check_bound),
}


@pytest.mark.parametrize(("lie", "check"), LIES.values(), ids=LIES)
def test_lies_are_found(honest: Schedule, lie: Any, check: Any) -> None:
    check(honest)
    with pytest.raises(AssertionError):
        check(lie(honest))


def test_the_honest_schedule_has_what_lies_need(honest: Schedule) -> None:
    checks.check_schedule(honest)
    assert any(s.split.instances > 1 for s in honest.instances.subgraphs)
    assert steps_of(honest.timeline)[0].template.stages[:, Stage.VECTOR].sum() > 0


@pytest.mark.parametrize("column", [0, 3])
def test_a_program_that_breaks_its_dependences_is_found(honest: Schedule, column: int) -> None:
    """No waits at all: a vector engine would run before the product that feeds it."""
    step = max(steps_of(honest.timeline), key=lambda s: len(s.template.layers))
    program = program_of(honest, step)
    where = program.where.copy()
    where[:, Column.AFTER + column :] = -1
    if column == 0:
        with pytest.raises(AssertionError):
            checks.check_dependences(honest, step, dataclasses.replace(program, where=where))
    checks.check_dependences(honest, step, program)
