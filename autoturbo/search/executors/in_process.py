"""Measures in this process, one setting after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from autoturbo.search.executors.base import Answer, MakeEvaluator, Task, answer_of
from autoturbo.simulate.contract import Evaluates


@dataclass
class InProcess:
    """The executor without workers."""

    _evaluators: dict[str, Evaluates] = field(default_factory=dict)
    _queue: deque[Task] = field(default_factory=deque)
    _cancelled: bool = False

    @property
    def width(self) -> int:
        """One at a time."""
        return 1

    @property
    def busy(self) -> bool:
        """Whether a task is left."""
        return bool(self._queue)

    def introduce(
        self, pair: str, make_evaluator: MakeEvaluator, here: Evaluates | None = None
    ) -> None:
        """Use the evaluator that is there."""
        self._evaluators[pair] = here or make_evaluator()

    def put(self, tasks: Sequence[Task]) -> None:
        """Take note of them."""
        if not self._cancelled:
            self._queue.extend(tasks)

    def take(self, patience: float | None = None) -> list[Answer]:
        """Measure the next one."""
        del patience
        if not self._queue:
            return []
        task = self._queue.popleft()
        return [answer_of(self._evaluators[task.pair], task)]

    def withdraw(self) -> None:
        """Forget what has not begun."""
        self._queue.clear()

    def abandon(self) -> None:
        """Forget what has not begun: nothing is being measured while others act."""
        self._queue.clear()

    def cancel(self) -> None:
        """Begin nothing new."""
        self._cancelled = True
        self.withdraw()

    def close(self) -> None:
        """Nothing to give back."""
