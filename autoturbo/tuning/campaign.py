"""Several searches that share one pool of workers.

Rounds are handed out to where most is expected (:mod:`autoturbo.search.loop`). What a search
proposes follows from its own outcomes alone, so its result is the same with any other searches in
the pool, any order of rounds and any worker. The number of rounds under way follows from the pool:
while one search proposes, workers have another one's round.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from autoturbo.errors import AutoTurboError, DatabaseError, ExecutorError
from autoturbo.search.allocation import most_promising
from autoturbo.signals import check, ending_here, handled_by

if TYPE_CHECKING:
    from autoturbo.search.executors import Executor, Task
    from autoturbo.search.loop import SearchLoop

SAVE_EVERY_S = 0.1
"""Seconds without news after which what has come is made durable."""

_AHEAD = 2
"""Settings under way per worker, so that there is one to go on with."""


class Campaign:
    """Searches that share one pool.

    Args:
        loops: The searches, each of its own pair; their pairs are known to the executor.
        executor: Measures.

    Attributes:
        failures: Searches that could not go on, by their number in ``loops``.
        granted: Numbers of searches in the order in which they were given rounds.
    """

    def __init__(self, loops: Sequence[SearchLoop], executor: Executor) -> None:
        self._loops, self._executor = list(loops), executor
        self._by_pair = {loop.pair: loop for loop in loops}
        self._waiting = list(loops)
        self._under_way: list[SearchLoop] = []
        self._stopping = threading.Event()
        self.failures: dict[int, AutoTurboError] = {}
        self.granted: list[int] = []

    def run(self) -> None:
        """Run rounds until every search has stopped, or Ctrl-C.

        Raises:
            ExecutorError: No worker can be had.
            DatabaseError: An outcome cannot be recorded.
        """
        try:
            with self._ctrl_c():
                self._rounds()
        finally:
            for loop in self._loops:
                loop.save()
        for loop in self._loops:
            loop.conclude()

    def _rounds(self) -> None:
        self._hand_out()
        while self._under_way:
            try:
                self._collect()
            except KeyboardInterrupt:
                self._stopping.set()
                self._executor.cancel()
                self._close(self._under_way)
            except ExecutorError:
                if not self._stopping.is_set():
                    raise
                self._close(self._under_way)  # who ends this process has ended workers as well
            self._cut()
            if self._under_way and not self._executor.busy:
                cut = self._stopping.is_set() or all(loop.cut for loop in self._under_way)
                if not cut:
                    raise ExecutorError("the executor has lost tasks")
                self._close(self._under_way)
                if not self._stopping.is_set():
                    self._hand_out()

    def _cut(self) -> None:
        """Begin no more tasks when the time of all searches is short; end all when it is up.

        Other measurements than trials may follow, for which some is set aside.
        """
        if self._under_way and all(loop.over for loop in self._under_way):
            # Time is up: what is under way would end after it.
            self._executor.abandon()
            for loop in self._under_way:
                loop.cut = True
            return
        width = self._executor.width
        late = [loop.begun and loop.late(width) for loop in self._under_way]
        if late and all(late) and not all(loop.cut for loop in self._under_way):
            self._executor.withdraw()
            for loop in self._under_way:
                loop.cut = True

    def _hand_out(self) -> None:
        """Open rounds of the most promising searches while workers are short of tasks.

        After Ctrl-C none are begun that would have to be measured; what is recorded enters.
        """
        while self._waiting and self._open_trials < self._wanted:
            courses = [loop.course for loop in self._waiting]
            allocation = self._waiting[0].search.constants.allocation
            loop = self._waiting[most_promising(courses, allocation)]
            self._waiting.remove(loop)
            tasks = self._opened(loop)
            if tasks is None:
                continue
            self.granted.append(self._loops.index(loop))
            self._under_way.append(loop)
            self._executor.put(tasks)
            if loop.complete:
                self._close([loop])

    def _opened(self, loop: SearchLoop) -> list[Task] | None:
        """Return the tasks of a search's next round; None where it has stopped."""
        try:
            return loop.open(stopping=self._stopping.is_set())
        except (DatabaseError, ExecutorError):
            raise
        except AutoTurboError as error:
            self.failures[self._loops.index(loop)] = error
            return None

    @property
    def _open_trials(self) -> int:
        return sum(loop.missing for loop in self._under_way)

    @property
    def _wanted(self) -> float:
        """Return how many trials to keep under way; one where this process measures itself."""
        width = self._executor.width
        # A single worker is this process: tasks in hand gain nothing, and are proposed too early.
        return 1 if width == 1 else _AHEAD * width

    @property
    def interrupted(self) -> bool:
        """Return whether Ctrl-C has come, after which the executor begins nothing."""
        return self._stopping.is_set()

    def _collect(self) -> None:
        """Wait for answers and pass them on; close the rounds that are complete."""
        answers = self._executor.take(SAVE_EVERY_S)
        for answer in answers:
            self._by_pair[answer.pair].take(answer)
        if not answers:
            for loop in self._under_way:
                loop.save()
        complete = [loop for loop in self._under_way if loop.complete]
        self._close(complete)
        if complete:
            self._hand_out()

    def _close(self, loops: Sequence[SearchLoop]) -> None:
        """Let searches learn from their rounds."""
        for loop in list(loops):
            self._under_way.remove(loop)
            loop.close()
            self._waiting.append(loop)

    @contextmanager
    def _ctrl_c(self) -> Iterator[None]:
        """Let the first Ctrl-C finish measurements under way, and the second one abort them."""
        ctrl_c = (signal.SIGINT,)  # a shell ignores it for what it runs behind itself
        with (
            suppress(KeyboardInterrupt),
            handled_by(self._on_signal, ending_here(), ignored=ctrl_c),
        ):
            check()
            yield
            return
        self._stopping.set()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._stopping.is_set():
            raise KeyboardInterrupt
        self._stopping.set()
        self._executor.cancel()
