"""A pool of workers that measure candidates, whatever carries orders to them and answers back.

A worker has one portion of candidates to measure and, where that takes no time, a second. It builds
the evaluator of another pair when it has nothing else to do: a model is large, and a worker that
measures may not read what it is sent. Candidates are given only to workers that have answered: one
that finds no free CPU, because a machine has gone, holds up nothing. A worker that dies is replaced
and its candidates are tried elsewhere, at once and each alone with a worker: answers under way may
be lost with a worker, so that of all that it had any may have killed it, and only one that was
alone has done it.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from autoturbo.errors import ExecutorError
from autoturbo.search.executors.base import Answer, MakeEvaluator, Task
from autoturbo.search.executors.lost_workers import RetryPolicy
from autoturbo.search.executors.worker import EvaluatorNotBuilt, PairCache
from autoturbo.simulator.contract import CandidateEvaluator
from autoturbo.simulator.outcomes import late

START_S = 300.0
"""Seconds for a worker to start or to build an evaluator: imports, compiled code, the model."""

STILLBORN = 16
"""Workers in a row that die before they measure anything, after which no more are started: workers
may be killed from outside again and again, and building an evaluator may take some seconds."""

_LOOK_S = 1.0
"""Seconds between looks at how many workers there can be: machines come and go."""

_SOON_S = 0.5
"""Seconds of a measurement up to which a worker is given the next one beforehand."""

_ORDER_S = 0.02
"""Seconds of measurements in one order: sending one takes up to half a millisecond, a dead worker
loses no more than this."""


@dataclass(eq=False, kw_only=True)
class Worker:
    """A worker as the tuner sees it; transports add how they reach it.

    Attributes:
        orders: Portions of tasks in the sequence in which they are measured; an order without any
            is to start, or to build an evaluator.
        since: When it began with the first of these, by the monotonic clock.
        ready: Whether it has started.
        alone: Whether it measures a suspected task, and gets no other before it answers.
        held: Pairs of which it has the evaluator.
    """

    orders: deque[tuple[Task, ...]] = field(default_factory=lambda: deque([()]))
    since: float = field(default_factory=time.monotonic)
    ready: bool = False
    alone: bool = False
    held: PairCache[None] = field(default_factory=PairCache)


@dataclass(frozen=True, slots=True)
class Lost:
    """A reply in a worker's place: it has died.

    Attributes:
        error: What the tuner raises when workers end like this before they measure anything.
        most: How many do so in a row until it is raised; :data:`STILLBORN` if None.
        reason: The class of the failure of a candidate that has done it.
        excused: Whether no candidate has done it: its machine was lost.
    """

    error: ExecutorError
    most: int | None = None
    reason: str = "worker"
    excused: bool = False


Reply = list[Answer] | EvaluatorNotBuilt | Lost | None
"""What comes from a worker, one per order: the answers to its portion, None where it has started or
built an evaluator."""

AnyWorker = TypeVar("AnyWorker", bound=Worker)


class Transport(Protocol[AnyWorker]):
    """Starts workers, sends them orders and brings their replies, all without waiting.

    Only :meth:`wait` waits.
    """

    @property
    def noun(self) -> str:
        """Return what a worker is called in messages, with its article."""
        ...

    @property
    def start_s(self) -> float | None:
        """Return the seconds for a worker to start; None where it may wait for a free place."""
        ...

    @property
    def width(self) -> int:
        """Return the number of workers that there are to be."""
        ...

    def introduce(self, pair: str, make_evaluator: MakeEvaluator) -> None:
        """Keep the recipe of a pair for :meth:`prepare`.

        Raises:
            ExecutorError: It cannot be kept.
        """
        ...

    def start(self) -> AnyWorker:
        """Start a worker, which replies once it runs.

        Raises:
            ExecutorError: It cannot be started.
        """
        ...

    def prepare(self, worker: AnyWorker, pair: str) -> None:
        """Order a worker to build the evaluator of a pair.

        Raises:
            ExecutorError: The recipe cannot be sent.
        """
        ...

    def measure(self, worker: AnyWorker, portion: tuple[Task, ...]) -> None:
        """Order a worker to measure tasks of a prepared pair."""
        ...

    def wait(self, workers: Sequence[AnyWorker], limit_s: float) -> list[tuple[AnyWorker, Reply]]:
        """Wait for the first replies.

        Args:
            workers: All that there are.
            limit_s: Seconds to wait at most.

        Returns:
            The replies that have come, of each worker in the sequence of its orders; nothing comes
            after :class:`Lost`.

        Raises:
            ExecutorError: No worker can be had any more.
        """
        ...

    def kill(self, worker: AnyWorker) -> None:
        """End a worker, whatever it does, or what is left of one that is lost."""
        ...

    def waits_for(self) -> str | None:
        """Return why no worker has started yet, where that takes more than this machine."""
        ...

    def close(self) -> None:
        """Release all but the workers; a second call does nothing."""
        ...


@dataclass
class Pace:
    """The time of measurements, which sets how many tasks a worker gets at a time."""

    seconds: float | None = None

    def note(self, seconds: float) -> None:
        """Record one measurement; the last ten or so count."""
        self.seconds = seconds if self.seconds is None else 0.9 * self.seconds + 0.1 * seconds

    @property
    def depth(self) -> int:
        """Return the orders of a worker at a time: one, and a second where measuring is fast.

        What a worker has been given is measured even after :meth:`Executor.cancel`, so there is
        no second one where that takes long.
        """
        return 2 if self.seconds is not None and self.seconds < _SOON_S else 1

    @property
    def portion(self) -> int:
        """Return the tasks of an order, enough to make the cost of sending it negligible."""
        return 1 if self.seconds is None else max(int(_ORDER_S / max(self.seconds, 1e-6)), 1)


class WorkerPool(Generic[AnyWorker]):
    """The executor with workers.

    Args:
        transport: Starts and reaches them.
        timeout_s: Seconds for one measurement, None for as long as it takes.
    """

    def __init__(self, transport: Transport[AnyWorker], timeout_s: float | None = None) -> None:
        self._transport, self._timeout = transport, timeout_s
        self._workers: list[AnyWorker] = []
        self._pending: deque[Task] = deque()
        self._alone: deque[Task] = deque()
        self._retries, self._pace = RetryPolicy(), Pace()
        self._stillborn = 0
        self._began = self._cancelled = False

    @property
    def width(self) -> int:
        """Return the number of workers that there are to be."""
        return self._transport.width

    @property
    def busy(self) -> bool:
        """Return whether a task waits or is being measured."""
        waiting = (self._pending or self._alone) and not self._cancelled
        return bool(waiting) or any(any(worker.orders) for worker in self._workers)

    def introduce(
        self, pair: str, make_evaluator: MakeEvaluator, here: CandidateEvaluator | None = None
    ) -> None:
        """Keep the recipe for workers that will need it.

        Raises:
            ExecutorError: It cannot be kept.
        """
        del here
        self._transport.introduce(pair, make_evaluator)

    def put(self, tasks: Sequence[Task]) -> None:
        """Queue tasks, and assign them to the workers that are ready.

        Raises:
            ExecutorError: Workers do not start.
        """
        if not self._cancelled:
            self._pending.extend(tasks)
            self._hire()
            self._assign()

    def take(self, patience: float | None = None) -> list[Answer]:
        """Return the answers that have come, or wait for the first ones.

        Raises:
            ExecutorError: Workers do not start.
        """
        end = math.inf if patience is None else time.monotonic() + patience
        answers: list[Answer] = []
        while self.busy and not answers:
            self._hire()
            self._assign()
            left_s = end - time.monotonic()
            if left_s <= 0:
                break
            answers = self._collect(left_s)
        self._assign()
        return answers

    def withdraw(self) -> None:
        """Drop the tasks that have not begun.

        Raises:
            ExecutorError: No worker was there for any task.
        """
        dropped = bool(self._pending or self._alone)
        self._drop()
        why = self._transport.waits_for() if dropped and not self._began else None
        if why is not None and not self._cancelled:
            raise ExecutorError(f"nothing was measured: the time is up, and {why}")

    def _drop(self) -> None:
        self._pending.clear()
        self._alone.clear()

    def abandon(self) -> None:
        """Drop all tasks: workers that measure are ended, others may be needed again.

        Raises:
            ExecutorError: No worker was there for any task.
        """
        self.withdraw()
        for worker in [one for one in self._workers if any(one.orders)]:
            self._end(worker)

    def cancel(self) -> None:
        """Begin no more tasks."""
        self._cancelled = True

    def close(self) -> None:
        """End all workers, whatever they do."""
        for worker in list(self._workers):
            self._end(worker)
        self._drop()
        self._transport.close()

    def _hire(self) -> None:
        """Start workers until there are enough, and drop those that find no place."""
        width = self.width
        while len(self._workers) < width:
            self._workers.append(self._transport.start())
        unplaced = [worker for worker in self._workers if not worker.ready]
        for worker in unplaced[: len(self._workers) - width]:
            self._end(worker)

    def _end(self, worker: AnyWorker) -> None:
        self._workers.remove(worker)
        self._transport.kill(worker)

    def _assign(self) -> None:
        """Give every ready worker its next portion; those with fewer come first.

        A candidate that has lost a worker goes to one with nothing else to do, which gets no more.
        """
        if self._cancelled:
            return
        for worker in self._workers:
            if self._alone and worker.ready and not worker.orders:
                self._give(worker, self._alone)
        for depth in range(1, (1 if self._alone else self._pace.depth) + 1):
            for worker in self._workers:
                more = worker.ready and not worker.alone and len(worker.orders) < depth
                if self._pending and more:
                    self._give(worker, self._pending)

    def _give(self, worker: AnyWorker, queue: deque[Task]) -> None:
        """Order a worker to measure what is first in a queue, or to build its evaluator before."""
        pair = queue[0].pair
        if pair in worker.held:
            worker.alone = queue is self._alone
            portion = (queue.popleft(),) if worker.alone else self._portion()
            self._transport.measure(worker, portion)
        elif worker.orders:
            return  # it builds another evaluator when it has nothing else to do
        else:
            portion = ()
            self._transport.prepare(worker, pair)
        worker.held.lacks(pair)
        if not worker.orders:
            worker.since = time.monotonic()
        worker.orders.append(portion)

    def _portion(self) -> tuple[Task, ...]:
        """Return the next tasks of one pair; a single one while the pair is timed."""
        fair = len(self._pending) // (2 * max(len(self._workers), 1))
        size = 1 if self._timeout else max(min(self._pace.portion, fair), 1)
        portion = [self._pending.popleft()]
        while self._pending and len(portion) < size and self._pending[0].pair == portion[0].pair:
            portion.append(self._pending.popleft())
        return tuple(portion)

    def _collect(self, patience: float) -> list[Answer]:
        """Wait for the first replies of workers, and return their answers."""
        first = min((self._deadline(worker) for worker in self._workers), default=math.inf)
        limit_s = min(patience, _LOOK_S, first - time.monotonic() + 0.01)
        answers: list[Answer] = []
        for worker, reply in self._transport.wait(self._workers, max(limit_s, 0.0)):
            answers += self._accept(worker, reply)
        now = time.monotonic()
        for worker in [one for one in self._workers if self._deadline(one) < now]:
            answers += self._dismiss(worker)
        return answers

    def _accept(self, worker: AnyWorker, reply: Reply) -> list[Answer]:
        if isinstance(reply, Lost):
            return self._bury(worker, reply)
        if isinstance(reply, EvaluatorNotBuilt):
            raise reply.raised_by(self._transport.noun)
        portion = worker.orders.popleft()
        before, worker.since = worker.since, time.monotonic()
        worker.ready, worker.alone, self._began = True, False, True
        if not portion or reply is None:
            return []
        self._stillborn = 0
        self._pace.note((worker.since - before) / len(portion))
        for answer in reply:
            self._retries.acquit(answer)
        return reply

    def _bury(self, worker: AnyWorker, lost: Lost) -> list[Answer]:
        """Remove a dead worker: its tasks go elsewhere at once, each alone."""
        self._end(worker)
        if worker.orders and not worker.orders[0] and not lost.excused:
            self._count_stillborn(lost)
        alone = len(worker.orders) == 1 and len(worker.orders[0]) == 1
        again: list[Task] = []
        answers: list[Answer] = []
        for task in [task for portion in worker.orders for task in portion]:
            guilty = alone and not lost.excused
            verdict = self._retries.verdict(task, lost.reason, guilty=guilty)
            if verdict is None:
                again.append(task)
            else:
                answers.append(verdict)
        self._alone.extendleft(reversed(again))
        return answers

    def _count_stillborn(self, lost: Lost) -> None:
        """Count workers that die at their start: some may be killed from outside, but not all."""
        self._stillborn += 1
        if self._stillborn >= (lost.most or STILLBORN):
            raise lost.error

    def _dismiss(self, worker: AnyWorker) -> list[Answer]:
        """End and replace a worker that takes too long."""
        self._end(worker)
        first, *others = worker.orders
        self._pending.extendleft(reversed([task for portion in others for task in portion]))
        if not first:
            what = "built its evaluator" if worker.ready else "started"
            raise ExecutorError(f"{self._transport.noun} has not {what} within {START_S:g} s")
        return [Answer(task.pair, task.number, late(self._timeout or 0.0)) for task in first]

    def _deadline(self, worker: AnyWorker) -> float:
        """Return when a worker is overdue, by the monotonic clock; infinity where it never is."""
        if not worker.orders:
            return math.inf
        limit_s = self._timeout if worker.orders[0] else START_S
        if not worker.ready:
            limit_s = self._transport.start_s
        return math.inf if limit_s is None else worker.since + limit_s
