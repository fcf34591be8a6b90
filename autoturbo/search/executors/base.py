"""The protocol of executors, and the handling of evaluators that misbehave.

A protocol, so that a farm of boards or another cluster can stand in: the tuner puts candidates of
several pairs of model and target and takes answers in any order. An evaluator that raises or
returns nonsense yields a :class:`Failure` as if it had said so itself; :func:`guarded` sees to it,
whichever process the evaluator runs in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.contract import CandidateEvaluator
from autoturbo.simulator.measurement import Outcome
from autoturbo.simulator.outcomes import outcome_of

if TYPE_CHECKING:
    from autoturbo.schedule.schedule import Schedule

MakeEvaluator = Callable[[], CandidateEvaluator]
"""Builds an evaluator in a worker; sent to each worker once, when it first measures the pair."""


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


def answer_of(evaluator: Any, task: Task) -> Answer:
    """Measure a task; only our own evaluators can measure a given schedule."""
    schedule = task.schedule
    if schedule is None:
        return Answer(task.pair, task.number, guarded(evaluator, task.knobs))
    return Answer(task.pair, task.number, outcome_of(lambda: evaluator.measure(schedule)))


def guarded(evaluator: CandidateEvaluator, knobs: Knobs) -> Outcome:
    """Measure a candidate; whatever goes wrong is a value (:mod:`autoturbo.simulator.outcomes`)."""
    return outcome_of(lambda: evaluator.evaluate(knobs))


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
