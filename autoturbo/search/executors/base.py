"""The protocol of executors, and the handling of evaluators that misbehave.

A protocol, so that a farm of boards or another cluster can stand in: the tuner puts candidates of
several pairs of model and target and takes answers in any order. An evaluator that raises or
returns nonsense yields a :class:`Failure` as if it had said so itself; :func:`guarded` sees to it,
whichever process the evaluator runs in.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from autoturbo.errors import ExecutorError
from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.contract import CandidateEvaluator
from autoturbo.simulator.measurement import Failure, Outcome
from autoturbo.simulator.outcomes import TIME_IS_UP, outcome_of

if TYPE_CHECKING:
    from autoturbo.schedule.schedule import Schedule

MakeEvaluator = Callable[[], CandidateEvaluator]
"""Builds an evaluator in a worker; sent to each worker once, when it first measures the pair."""

TRIES = 2
"""Tries of a candidate whose worker dies: the second time it is the candidate's fault."""

_SOON_S = 0.5
"""Seconds of a measurement up to which a worker is given the next one beforehand."""

_ORDER_S = 0.02
"""Seconds of measurements in one order: sending one takes half a millisecond, a dead worker loses
no more than this."""

TRIES_AMONG_KILLS = 4
"""Likewise, once :data:`ACQUITTED` candidates that had lost one were measured in the end: somebody
kills workers."""

ACQUITTED = 2
"""One may be chance: a machine short of memory for a moment."""

EXCUSED = 8
"""Retries of a candidate whose machine is lost: after these it counts as failed."""


@dataclass(frozen=True, slots=True)
class Task:
    """A candidate to measure.

    Attributes:
        pair: Which model on which target, as told to :meth:`Executor.introduce`.
        number: Of the trial, within the pair.
        knobs: The candidate.
        schedule: What is measured in its place, as another scheduler's; None for the candidate.
    """

    pair: str
    number: int
    knobs: Knobs
    schedule: Schedule | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Return a key that is unique within an executor."""
        return self.pair, self.number


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a task: :attr:`pair` and :attr:`number` are the task's."""

    pair: str
    number: int
    outcome: Outcome


class Executor(Protocol):
    """Measures candidates of any number of pairs, somewhere."""

    @property
    def width(self) -> int:
        """Return the number of parallel measurements; it may change as machines come and go."""
        ...

    @property
    def busy(self) -> bool:
        """Return whether an answer is still to be taken."""
        ...

    def introduce(
        self, pair: str, make_evaluator: MakeEvaluator, here: CandidateEvaluator | None = None
    ) -> None:
        """Make a pair known before its first task.

        Args:
            pair: Its id.
            make_evaluator: Builds its evaluator in a worker.
            here: One that this process has already.

        Raises:
            ExecutorError: It cannot be sent.
        """
        ...

    def put(self, tasks: Sequence[Task]) -> None:
        """Queue tasks after all others; do nothing after :meth:`cancel`."""
        ...

    def take(self, patience: float | None = None) -> list[Answer]:
        """Return the answers that have come, in any order; wait for one where there is none.

        Args:
            patience: Seconds to wait at most; as long as it takes if None.

        Raises:
            ExecutorError: No worker can be had.
        """
        ...

    def withdraw(self) -> None:
        """Drop the tasks that have not begun; what is being measured can still be taken."""
        ...

    def abandon(self) -> None:
        """Drop all tasks, and end measurements under way where that can be done."""
        ...

    def cancel(self) -> None:
        """Begin no more tasks: what is being measured can still be taken."""
        ...

    def close(self) -> None:
        """Release all processes; a second call does nothing."""
        ...


def measured(executor: Executor, tasks: Sequence[Task]) -> Iterator[Answer]:
    """Put tasks, and yield answers until nothing is left."""
    executor.put(tasks)
    while executor.busy:
        yield from executor.take()


@dataclass(eq=False)
class RemoteEvaluator:
    """The measurer of a pair for the tuner's own process, which leaves measuring to a pool.

    So code of others never runs beside the search: it can end or hold up a worker at most.

    Attributes:
        pair: As the pool knows it.
        executor: The pool, which does nothing else while this one measures.
    """

    pair: str
    executor: Executor | None = None
    _until: float = math.inf
    _first: float = math.inf
    _asked: int = 0
    _least_s: float = 0.0
    _took_s: list[float] = field(default_factory=list)

    @property
    def typical_s(self) -> float:
        """Return the median seconds that measurements have taken; 0 before the first."""
        return statistics.median(self._took_s) if self._took_s else 0.0

    def end_by(self, when: float, first: float | None = None) -> None:
        """End measurements under way at a time of the monotonic clock.

        How long measurements take is learned anew: those before may have had to start a worker.

        Args:
            when: The time.
            first: Another one for the first measurement.
        """
        self._until, self._least_s = when, 0.0
        self._first = when if first is None else first

    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        """Measure schedules on the workers of the pool, one by one.

        Returns:
            An outcome per schedule, in order; :data:`TIME_IS_UP` for those that would not end in
            time.

        Raises:
            ExecutorError: No worker can be had.
            PluginError: The measurer cannot be had.
        """
        return [self._measure(schedule) for schedule in schedules]

    def _measure(self, schedule: Schedule) -> Outcome:
        began, pool, until = time.monotonic(), self.executor, self._first
        self._first = self._until
        if began + self._least_s > until:
            return TIME_IS_UP
        if pool is None:
            raise ExecutorError(f"nothing measures for {self.pair} yet")
        self._asked += 1
        pool.put([Task(self.pair, -self._asked, schedule.knobs, schedule)])  # trials are from 0 on
        while pool.busy and time.monotonic() < until:
            left_s = None if until == math.inf else max(until - time.monotonic(), 0.0)
            for answer in pool.take(left_s):
                took = time.monotonic() - began
                self._least_s = min(self._least_s or took, took)
                self._took_s.append(took)
                return answer.outcome
        pool.abandon()
        return TIME_IS_UP


@dataclass
class RetryPolicy:
    """Counts the workers that candidates have lost."""

    tries: Counter[tuple[str, int]] = field(default_factory=Counter)
    excused: Counter[tuple[str, int]] = field(default_factory=Counter)
    acquitted: int = 0

    def verdict(self, task: Task, reason: str = "worker", *, guilty: bool = True) -> Answer | None:
        """Return the answer of a task whose worker has died; None where it is to be tried again.

        Args:
            task: What was being measured.
            reason: The class of the failure, ``"worker"`` or ``"memory"``.
            guilty: Whether the candidate may be what killed the worker; not so where the whole
                machine was lost, nor where the worker had others too, of which any may have done
                it.
        """
        most = TRIES_AMONG_KILLS if self.acquitted >= ACQUITTED else TRIES
        counts, most = (self.tries, most) if guilty else (self.excused, EXCUSED)
        counts[task.key] += 1
        if counts[task.key] < most:
            return None
        lives = counts.pop(task.key)
        return Answer(task.pair, task.number, lost(lives, reason))

    def acquit(self, answer: Answer) -> None:
        """Record an answer: a candidate that lost a worker and then none had not killed it."""
        key = (answer.pair, answer.number)
        self.excused.pop(key, None)
        if self.tries.pop(key, 0):
            self.acquitted += 1


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
    def queue(self) -> int:
        """Return the tasks of a worker at a time, where each is an order of its own."""
        return 1 if self.depth == 1 else 1 + self.portion

    @property
    def portion(self) -> int:
        """Return the tasks of an order, enough to make the cost of sending it negligible."""
        return 1 if self.seconds is None else max(int(_ORDER_S / max(self.seconds, 1e-6)), 1)


def answer_of(evaluator: Any, task: Task) -> Answer:
    """Measure a task; only our own evaluators can measure a given schedule."""
    schedule = task.schedule
    if schedule is None:
        return Answer(task.pair, task.number, guarded(evaluator, task.knobs))
    return Answer(task.pair, task.number, outcome_of(lambda: evaluator.measure(schedule)))


def guarded(evaluator: CandidateEvaluator, knobs: Knobs) -> Outcome:
    """Measure a candidate; whatever goes wrong is a value (:mod:`autoturbo.simulator.outcomes`)."""
    return outcome_of(lambda: evaluator.evaluate(knobs))


def lost(tries: int, reason: str = "worker") -> Failure:
    """Return the failure of a candidate whose workers die."""
    how = "ran out of memory" if reason == "memory" else "died"
    return Failure(reason, f"the worker {how} while measuring it, {tries} times")


def is_overdue(since: float, limit: float | None) -> bool:
    """Return whether a worker has exceeded its time limit.

    Args:
        since: When it began, by the monotonic clock.
        limit: Seconds that it may take; None for as long as it takes.
    """
    return limit is not None and time.monotonic() - since > limit


def until_overdue(working: Iterable[tuple[float, float | None]]) -> float | None:
    """Return the seconds until the first worker is overdue; None where none can be.

    Args:
        working: Per worker what :func:`is_overdue` takes.
    """
    now = time.monotonic()
    left_s = [since + limit - now for since, limit in working if limit is not None]
    return max(min(left_s), 0.0) + 0.01 if left_s else None


HELD = 8
"""Pairs of which a worker keeps the evaluator: models with their memories of kernels, of which the
larger ones take 100 MB. A pair that comes back after eight others is built anew."""

Value = TypeVar("Value")


class PairCache(Generic[Value]):
    """A cache of values of the pairs that were used last.

    The tuner keeps one of these for each of its workers, so that it knows without asking what a
    worker still has: both sides see the same pairs in the same order.

    Args:
        most: Values kept.
    """

    def __init__(self, most: int = HELD) -> None:
        self._most = most
        self._values: OrderedDict[str, Value] = OrderedDict()

    def __contains__(self, pair: str) -> bool:
        return pair in self._values

    def get(self, pair: str, make: Callable[[], Value]) -> Value:
        """Return the value of a pair; make it where it is not held."""
        if pair in self._values:
            self._values.move_to_end(pair)
        else:
            while len(self._values) >= self._most:
                self._values.popitem(last=False)
            self._values[pair] = make()
        return self._values[pair]

    def lacks(self, pair: str) -> bool:
        """Return whether a pair is new, and mark it as known."""
        new = pair not in self._values
        self.get(pair, lambda: None)  # type: ignore[arg-type, return-value]
        return new


@dataclass
class InProcessExecutor:
    """The executor without workers."""

    _evaluators: dict[str, CandidateEvaluator] = field(default_factory=dict)
    _queue: deque[Task] = field(default_factory=deque)
    _cancelled: bool = False

    @property
    def width(self) -> int:
        """Return 1: it measures in this process."""
        return 1

    @property
    def busy(self) -> bool:
        """Return whether a task is left."""
        return bool(self._queue) and not self._cancelled

    def introduce(
        self, pair: str, make_evaluator: MakeEvaluator, here: CandidateEvaluator | None = None
    ) -> None:
        """Keep the evaluator of a pair, or build it."""
        self._evaluators[pair] = here or make_evaluator()

    def put(self, tasks: Sequence[Task]) -> None:
        """Queue tasks."""
        if not self._cancelled:
            self._queue.extend(tasks)

    def take(self, patience: float | None = None) -> list[Answer]:
        """Measure the next task and return its answer."""
        del patience
        if not self.busy:
            return []
        task = self._queue.popleft()
        return [answer_of(self._evaluators[task.pair], task)]

    def withdraw(self) -> None:
        """Drop the tasks that have not begun."""
        self._queue.clear()

    def abandon(self) -> None:
        """Drop the tasks that have not begun: nothing is measured between calls."""
        self._queue.clear()

    def cancel(self) -> None:
        """Begin no more tasks."""
        self._cancelled = True

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
