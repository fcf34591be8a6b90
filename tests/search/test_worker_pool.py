"""The pool by itself: whom it blames, over a transport that has no workers but a script."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import pytest

from autoturbo.errors import ExecutorError
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.executors.base import Answer, MakeEvaluator, Task
from autoturbo.search.executors.lost_workers import EXCUSED, lost
from autoturbo.search.executors.worker_pool import Lost, Reply, Worker, WorkerPool
from autoturbo.simulator.measurement import Failure
from tests.search.search_doubles import make_landscape, measurement

DIED = Lost(ExecutorError("workers end"))
GONE = Lost(ExecutorError("workers end"), excused=True)
FINE = measurement(1.0)
FIRST, SECOND, THIRD = (Task("toy", number, Knobs()) for number in range(3))


class Scripted:
    """Replies at every second look: a task's replies are the script's while there are any."""

    noun, start_s = "a worker", None

    def __init__(self, width: int, script: dict[int, list[Reply]]) -> None:
        self.width, self.script = width, script
        self.replies: dict[Worker, deque[Reply]] = {}
        self.killed = self.looks = 0
        self.sent: list[list[int]] = []

    def introduce(self, pair: str, make_evaluator: MakeEvaluator) -> None:
        pass

    def start(self) -> Worker:
        worker = Worker()
        self.replies[worker] = deque[Reply]([None])
        return worker

    def prepare(self, worker: Worker, pair: str) -> None:
        del pair
        self.replies[worker].append(None)

    def measure(self, worker: Worker, portion: tuple[Task, ...]) -> None:
        self.sent.append([task.number for task in portion])
        reply: Reply = [Answer(task.pair, task.number, FINE) for task in portion]
        for task in portion:
            if self.script.get(task.number):
                reply = self.script[task.number].pop(0)
        self.replies[worker].append(reply)

    def wait(self, workers: Sequence[Worker], limit_s: float) -> list[tuple[Worker, Reply]]:
        del limit_s
        self.looks += 1
        if self.looks % 2:
            return []
        return [(one, self.replies[one].popleft()) for one in workers if self.replies[one]]

    def kill(self, worker: Worker) -> None:
        self.killed += 1
        del self.replies[worker]

    def waits_for(self) -> str | None:
        return "nothing comes"

    def close(self) -> None:
        pass


def pool_of(transport: Scripted) -> WorkerPool[Worker]:
    pool = WorkerPool[Worker](transport)
    pool.introduce("toy", make_landscape)
    return pool


def outcomes(pool: WorkerPool[Worker], tasks: Sequence[Task]) -> dict[int, object]:
    pool.put(tasks)
    found: dict[int, object] = {}
    while pool.busy:
        found |= {answer.number: answer.outcome for answer in pool.take()}
    return found


def test_who_was_alone_with_a_worker_twice_has_killed_it() -> None:
    transport = Scripted(1, {0: [DIED, DIED, DIED]})
    assert outcomes(pool_of(transport), [FIRST, SECOND]) == {0: lost(2), 1: FINE}
    assert transport.sent == [[0], [0], [1]]


def test_a_lost_machine_is_nobodys_fault_for_some_times() -> None:
    few, many = [GONE] * (EXCUSED - 1), [GONE] * EXCUSED
    transport = Scripted(2, {0: [*few], 1: [*many]})
    assert outcomes(pool_of(transport), [FIRST, SECOND]) == {0: FINE, 1: lost(EXCUSED)}
    assert transport.killed == len(few) + len(many)


def test_who_had_company_is_tried_alone_before_it_is_blamed() -> None:
    memory = Lost(DIED.error, reason="memory")
    transport = Scripted(1, {0: [DIED, DIED, memory], 1: [DIED, DIED, DIED]})
    pool = pool_of(transport)
    assert outcomes(pool, [THIRD]) == {2: FINE}
    # that was so fast that a worker is given the next order beforehand
    found = outcomes(pool, [FIRST, SECOND, THIRD])
    assert found == {0: lost(2, "memory"), 1: lost(2), 2: FINE}
    assert transport.sent == [[2], [0], [1], [0], [0], [1], [1], [2]]


def test_settings_have_more_tries_where_somebody_kills_workers() -> None:
    transport = Scripted(1, {0: [DIED], 1: [DIED], 2: [DIED] * 4})
    pool = pool_of(transport)
    assert [outcomes(pool, [one]) for one in (FIRST, SECOND, THIRD)] == [
        {0: FINE}, {1: FINE}, {2: lost(4)},
    ]  # fmt: skip


def test_places_that_go_take_the_workers_that_have_not_started() -> None:
    transport = Scripted(3, {})
    pool = pool_of(transport)
    pool.put([FIRST])
    assert (len(transport.replies), transport.killed) == (3, 0)
    transport.width = 1
    assert outcomes(pool, [SECOND]) == {0: FINE, 1: FINE}
    assert (len(transport.replies), transport.killed) == (1, 2)


def test_time_that_ends_before_any_worker_came_is_an_error() -> None:
    pool = pool_of(Scripted(1, {}))
    pool.put([FIRST])
    with pytest.raises(ExecutorError):
        pool.withdraw()
    assert outcomes(pool, [SECOND]) == {1: FINE}
    pool.put([FIRST, SECOND, THIRD])
    pool.withdraw()  # something was measured, and two are on their way
    assert outcomes(pool, []) == {0: FINE, 1: FINE}


def test_a_worker_that_stands_still_is_replaced() -> None:
    transport = Speechless(1, {})
    pool = WorkerPool[Worker](transport, timeout_s=0.1)
    pool.put([FIRST, SECOND])
    assert [answer.outcome for answer in pool.take()] == [
        Failure("timeout", "not measured within 0.1 s")
    ]
    assert transport.killed == 1
    assert outcomes(pool, []) == {1: FINE}


class Speechless(Scripted):
    """Has a first worker that starts, and never says what it has measured."""

    def measure(self, worker: Worker, portion: tuple[Task, ...]) -> None:
        super().measure(worker, portion)
        if len(self.sent) == 1:
            self.replies[worker].clear()
