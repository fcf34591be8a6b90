"""Units that share a memory: who runs when, and at what rate."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.heterogeneous.timetable import (
    Task,
    Timetable,
    least_seconds,
    shares,
    timetable,
    upward_ranks,
)

RESOURCES = 3
BANDWIDTH = 10.0


@st.composite
def task_lists(draw: st.DrawFn) -> list[Task]:
    count = draw(st.integers(1, 14))
    tasks = []
    for index in range(count):
        after = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        tasks.append(
            Task(
                draw(st.integers(0, RESOURCES - 1)),
                draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.25])),
                draw(st.sampled_from([0.0, 1.0, 8.0, 40.0])),
                tuple(sorted(after)),
            )
        )
    # bytes that nothing moves would be lost
    return [t if t.seconds else Task(t.resource, 0.0, 0.0, t.after) for t in tasks]


def run(tasks: list[Task]) -> Timetable:
    return timetable(tasks, RESOURCES, BANDWIDTH)


@settings(max_examples=30)
@given(task_lists())
def test_no_resource_does_two_tasks_at_once(tasks: list[Task]) -> None:
    table = run(tasks)
    for resource in range(RESOURCES):
        mine = sorted(
            (table.begin[i], table.end[i]) for i, t in enumerate(tasks)
            if t.resource == resource and t.seconds
        )  # fmt: skip
        assert all(one[1] <= two[0] for one, two in itertools.pairwise(mine))


@settings(max_examples=30)
@given(task_lists())
def test_no_task_starts_before_what_it_waits_for_has_ended(tasks: list[Task]) -> None:
    table = run(tasks)
    for index, task in enumerate(tasks):
        assert all(table.end[before] <= table.begin[index] for before in task.after)
        assert table.end[index] - table.begin[index] >= task.seconds - 1e-9


@settings(max_examples=30)
@given(task_lists())
def test_the_bandwidth_is_never_exceeded_and_every_byte_is_moved(tasks: list[Task]) -> None:
    table = run(tasks)
    moved = [0.0] * len(tasks)
    for stretch in table.stretches:
        assert sum(rate for _, rate in stretch.rates) <= BANDWIDTH * (1 + 1e-12)
        for task, rate in stretch.rates:
            assert table.begin[task] <= stretch.begin
            assert stretch.end <= table.end[task]
            moved[task] += rate * (stretch.end - stretch.begin)
    assert moved == pytest.approx([task.bytes for task in tasks])


@settings(max_examples=30)
@given(task_lists())
def test_the_makespan_lies_between_its_bounds(tasks: list[Task]) -> None:
    makespan = run(tasks).makespan
    assert makespan >= least_seconds(tasks, BANDWIDTH) * (1 - 1e-12)
    # at any moment all that runs is at full speed, or the memory is
    one_by_one = sum(t.seconds for t in tasks) + sum(t.bytes for t in tasks) / BANDWIDTH
    assert makespan <= one_by_one * (1 + 1e-12)


@settings(max_examples=30)
@given(task_lists())
def test_no_resource_stands_idle_while_one_of_its_tasks_is_ready(tasks: list[Task]) -> None:
    table = run(tasks)
    for index, task in enumerate(tasks):
        ready = max((table.end[before] for before in task.after), default=0.0)
        busy = sum(
            min(table.end[i], table.begin[index]) - max(table.begin[i], ready)
            for i, other in enumerate(tasks)
            if i != index and other.resource == task.resource
            and table.end[i] > ready and table.begin[i] < table.begin[index]
        )  # fmt: skip
        assert table.begin[index] - ready == pytest.approx(busy, abs=1e-9)


def test_two_tasks_that_ask_for_all_of_the_memory_take_twice_as_long() -> None:
    tasks = [Task(0, 1.0, 10.0), Task(1, 1.0, 10.0)]
    assert run(tasks).end == pytest.approx((2.0, 2.0))


def test_what_a_small_demand_leaves_goes_to_the_others() -> None:
    tasks = [Task(0, 1.0, 2.0), Task(1, 1.0, 12.0)]
    # 2 and 8 of 10 until the first has ended, then 10 for the 4 that are left
    assert run(tasks).end == pytest.approx((1.0, 1.0 + 4 / 10))


def test_the_longest_path_goes_first() -> None:
    tasks = [Task(0, 1.0, 0.0), Task(0, 1.0, 0.0), Task(1, 5.0, 0.0, (1,))]
    assert upward_ranks(tasks) == [1.0, 6.0, 5.0]
    assert run(tasks).begin == (1.0, 0.0, 1.0)
    assert run(tasks).makespan == 6.0


def test_a_task_that_waits_for_a_later_one_is_refused() -> None:
    with pytest.raises(ValueError, match="task 1"):
        run([Task(0, 1.0, 0.0, (1,)), Task(0, 1.0, 0.0)])


@settings(max_examples=30)
@given(st.lists(st.floats(0, 50), min_size=1, max_size=6))
def test_shares_are_fair(demands: list[float]) -> None:
    parts = shares(demands, BANDWIDTH)
    assert sum(parts) == pytest.approx(min(sum(demands), BANDWIDTH))
    assert all(part <= demand for part, demand in zip(parts, demands, strict=True))
    most = max(parts)
    for part, demand in zip(parts, demands, strict=True):
        assert part == demand or math.isclose(part, most)
