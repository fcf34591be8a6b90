"""Measures in local worker processes.

Each worker has a pipe of its own and one setting at a time, so that it is known which setting a
dead worker died of and how long each has taken. Workers are started afresh (``spawn``), never
forked: forking a process with threads may hang.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.context import SpawnProcess

from autoturbo.errors import ExecutorError
from autoturbo.search.executors.base import TRIES, MakeEvaluator, Numbered, late, lost
from autoturbo.search.executors.worker import READY, serve
from autoturbo.simulate.measurement import Outcome

_START_S = 300.0
"""Seconds for a worker to start: imports, compiled code, the model."""


@dataclass(eq=False)
class _Worker:
    process: SpawnProcess
    pipe: connection.Connection
    ready: bool = False
    task: Numbered | None = None
    since: float = field(default_factory=time.monotonic)

    def give(self, task: Numbered) -> None:
        self.task, self.since = task, time.monotonic()
        with suppress(OSError):  # a worker that died while idle; its end is noticed next
            self.pipe.send(task)

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()
        self.process.close()


class Processes:
    """The executor with local processes.

    Args:
        make_evaluator: called once in each worker.
        jobs: workers.
        timeout_s: seconds for one measurement, None for as long as it takes.
    """

    def __init__(
        self, make_evaluator: MakeEvaluator, jobs: int, timeout_s: float | None = None
    ) -> None:
        self._make = make_evaluator
        self._jobs = max(jobs, 1)
        self._timeout = timeout_s
        self._workers: list[_Worker] = []
        self._pending: deque[Numbered] = deque()
        self._tries: dict[int, int] = {}
        self._cancelled = False

    def submit(self, batch: Sequence[Numbered]) -> Iterator[tuple[int, Outcome]]:
        """Outcomes as they come.

        Raises:
            ExecutorError: workers do not start.
        """
        self._pending = deque(() if self._cancelled else batch)
        self._tries = {}
        while self._pending or any(w.task for w in self._workers):
            self._hire()
            self._assign()
            yield from self._collect()

    def cancel(self) -> None:
        """Begin nothing new."""
        self._cancelled = True
        self._pending.clear()

    def close(self) -> None:
        """End all workers, whatever they do."""
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    def _hire(self) -> None:
        """Start workers until there are enough."""
        context = multiprocessing.get_context("spawn")
        while len(self._workers) < self._jobs:
            here, there = context.Pipe()
            process = context.Process(target=serve, args=(there, self._make), daemon=True)
            try:
                process.start()
            except (OSError, AttributeError, TypeError, ValueError) as error:
                here.close()
                raise ExecutorError(f"cannot start a worker process: {error}") from None
            finally:
                there.close()
            self._workers.append(_Worker(process, here))

    def _assign(self) -> None:
        for worker in self._workers:
            if worker.ready and worker.task is None and self._pending:
                worker.give(self._pending.popleft())

    def _collect(self) -> Iterator[tuple[int, Outcome]]:
        """Wait for the first news and pass it on."""
        pipes = [worker.pipe for worker in self._workers]
        changed = connection.wait(pipes, self._patience())
        for worker in list(self._workers):
            if worker.pipe in changed:
                yield from self._news(worker)
            elif self._overdue(worker):
                yield from self._dismiss(worker)

    def _news(self, worker: _Worker) -> Iterator[tuple[int, Outcome]]:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            yield from self._bury(worker)
            return
        if message == READY:
            worker.ready = True
        elif isinstance(message, str):
            raise ExecutorError(f"a worker cannot build its evaluator: {message}")
        else:
            worker.task = None
            yield message

    def _bury(self, worker: _Worker) -> Iterator[tuple[int, Outcome]]:
        """A worker is dead: its setting goes elsewhere, once."""
        self._workers.remove(worker)
        task, ready = worker.task, worker.ready
        worker.end()
        if not ready:
            raise ExecutorError(
                "a worker process ends before it has started",
                hint="in a script, call tune() under: if __name__ == '__main__'",
            )
        if task is None:
            return
        self._tries[task[0]] = self._tries.get(task[0], 0) + 1
        if self._tries[task[0]] < TRIES:
            self._pending.appendleft(task)
        else:
            yield task[0], lost(TRIES)

    def _dismiss(self, worker: _Worker) -> Iterator[tuple[int, Outcome]]:
        """A worker that takes too long is ended and replaced."""
        self._workers.remove(worker)
        task = worker.task
        worker.end()
        if task is None:
            raise ExecutorError(f"a worker process has not started within {_START_S:g} s")
        yield task[0], late(self._timeout or 0.0)

    def _limit(self, worker: _Worker) -> float | None:
        """Seconds that a worker may take for what it does; None without limit."""
        if not worker.ready:
            return _START_S
        return self._timeout if worker.task else None

    def _overdue(self, worker: _Worker) -> bool:
        limit = self._limit(worker)
        return limit is not None and time.monotonic() - worker.since > limit

    def _patience(self) -> float | None:
        """Seconds until the first worker is overdue."""
        now = time.monotonic()
        limits = [(w, self._limit(w)) for w in self._workers]
        left = [w.since + limit - now for w, limit in limits if limit is not None]
        return max(min(left), 0.0) + 0.01 if left else None
