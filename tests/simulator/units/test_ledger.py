"""Memories that tasks share: never more than there is, and nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.heterogeneous.memories import Holding, Memories, NoRoomError
from autoturbo.heterogeneous.network import in_turn
from autoturbo.heterogeneous.timetable import Task, Timetable, timetable

RESOURCES, ROOM = 3, 10


@st.composite
def crowded(draw: st.DrawFn) -> tuple[list[Task], Memories]:
    """Tasks, each of which makes something that those which wait for it read."""
    tasks = []
    for index in range(draw(st.integers(1, 10))):
        after = draw(st.sets(st.integers(0, index - 1), max_size=2)) if index else set()
        seconds = draw(st.sampled_from([0.5, 1.0, 2.0]))
        tasks.append(Task(draw(st.integers(0, RESOURCES - 1)), seconds, 0.0, tuple(sorted(after))))
    holdings = tuple(
        Holding(
            draw(st.sampled_from([(0,), (0, 1)])), draw(st.integers(0, 6)), index,
            (index, *(i for i, task in enumerate(tasks) if index in task.after)),
        )
        for index in range(len(tasks))
    )  # fmt: skip
    return tasks, Memories((ROOM, ROOM), (draw(st.integers(0, 2)), 0), holdings)


def fitted(tasks: list[Task], memories: Memories) -> Timetable | None:
    try:
        return timetable(tasks, RESOURCES, 1.0, memories)
    except NoRoomError:
        return None


@settings(max_examples=30)
@given(crowded())
def test_no_memory_holds_more_than_it_can(case: tuple[list[Task], Memories]) -> None:
    tasks, memories = case
    table = fitted(tasks, memories)
    if table is None:
        return
    moments = sorted({*table.begin, *table.end})
    for memory in range(2):
        held = [
            memories.fixed[memory]
            + sum(
                one.bytes
                for one in memories.holdings
                if memory in one.memories
                and table.begin[one.maker] <= moment < max(table.end[user] for user in one.users)
            )
            for moment in moments
        ]
        assert max(held) == table.peaks[memory]
        assert table.peaks[memory] <= ROOM
    for index, task in enumerate(tasks):
        assert all(table.end[before] <= table.begin[index] for before in task.after)


@settings(max_examples=30)
@given(crowded())
def test_where_there_is_room_for_all_limits_change_nothing(
    case: tuple[list[Task], Memories],
) -> None:
    tasks, memories = case
    wide = Memories((1000, 1000), memories.fixed, memories.holdings)
    assert timetable(tasks, RESOURCES, 1.0, wide).begin == timetable(tasks, RESOURCES, 1.0).begin


def test_a_task_waits_until_there_is_room() -> None:
    tasks = [Task(0, 1.0, 0.0), Task(1, 2.0, 0.0), Task(2, 1.0, 0.0)]
    holdings = tuple(Holding((0,), 5, index, (index,)) for index in range(3))
    table = timetable(tasks, RESOURCES, 1.0, Memories((10,), (0,), holdings))
    assert table.begin == (0.0, 0.0, 1.0)
    assert table.peaks == (10,)


def test_what_has_no_room_side_by_side_may_have_it_in_turn() -> None:
    # both first tasks run ahead, and then neither second one has room
    tasks = [Task(0, 1.0, 0.0), Task(1, 1.0, 0.0), Task(0, 1.0, 0.0, (0,)), Task(1, 1.0, 0.0, (1,))]
    holdings = (
        Holding((0,), 4, 0, (0, 2)), Holding((0,), 4, 1, (1, 3)),
        Holding((0,), 5, 2, (2,)), Holding((0,), 5, 3, (3,)),
    )  # fmt: skip
    memories = Memories((10,), (0,), holdings)
    with pytest.raises(NoRoomError) as found:
        timetable(tasks, RESOURCES, 1.0, memories)
    assert (found.value.memory, found.value.demand) == (0, 13)
    depth_first = [tasks[0], Task(0, 1.0, 0.0, (0,)), tasks[1], Task(1, 1.0, 0.0, (2,))]
    moved = (
        Holding((0,), 4, 0, (0, 1)), Holding((0,), 5, 1, (1,)),
        Holding((0,), 4, 2, (2, 3)), Holding((0,), 5, 3, (3,)),
    )  # fmt: skip
    table = timetable(in_turn(depth_first), RESOURCES, 1.0, Memories((10,), (0,), moved))
    assert table.peaks == (9,)
    assert table.begin == (0.0, 1.0, 2.0, 3.0)


def test_what_is_held_all_the_time_must_fit() -> None:
    with pytest.raises(NoRoomError):
        timetable([], 1, 1.0, Memories((10,), (11,), ()))
