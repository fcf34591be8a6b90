"""Measures in local worker processes.

Each worker has a pipe of its own and a few candidates at a time, of which it measures the first.
So it is known which candidate a dead worker died of and how long each has taken, and a worker need
not wait for the tuner between two. Workers are started afresh (``spawn``), never forked: forking a
process with threads may hang.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection, parent_process
from multiprocessing.context import SpawnProcess

from autoturbo.errors import AutoTurboError, ExecutorError
from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.registry import SIMULATOR
from autoturbo.search.executors.base import (
    Answer,
    MakeEvaluator,
    Pace,
    PairCache,
    RemoteEvaluator,
    RetryPolicy,
    Task,
    answer_of,
    is_overdue,
    until_overdue,
)
from autoturbo.signals import ENDING
from autoturbo.simulator.contract import CandidateEvaluator
from autoturbo.simulator.evaluator import Evaluator, MeasurerEvaluatorFactory
from autoturbo.simulator.measurers import measurer_version
from autoturbo.simulator.outcomes import late

# What runs in a worker, and all that it is sent and answers.

READY = "ready"


@dataclass(frozen=True, slots=True)
class EvaluatorNotBuilt:
    """An answer: no evaluator can be built here.

    Attributes:
        reason: What went wrong, one line.
        error: The same, where it is one of ours: a plug-in that cannot be loaded says it best.
    """

    reason: str
    error: AutoTurboError | None = None

    def raised_by(self, worker: str) -> AutoTurboError:
        """Return the exception that the tuner raises."""
        text = f"{worker} cannot build its evaluator: {self.reason}"
        return self.error or ExecutorError(text)


class WorkerEvaluators:
    """The evaluators of a worker."""

    def __init__(self) -> None:
        self._held: PairCache[CandidateEvaluator] = PairCache()

    def prepare(self, pair: str, make: MakeEvaluator | None) -> EvaluatorNotBuilt | None:
        """Prepare the evaluator of a pair; build it by ``make`` where this worker lacks it."""
        try:
            self._held.get(pair, lambda: _built(make))
        except AutoTurboError as error:
            return EvaluatorNotBuilt(str(error), error)
        except (Exception, SystemExit) as error:  # noqa: BLE001  reported to the tuner
            return EvaluatorNotBuilt(" ".join(f"{type(error).__name__}: {error}".split()))
        return None

    def measure(self, task: Task) -> Answer:
        """Return the outcome of a task whose pair is prepared."""
        return answer_of(self._held.get(task.pair, lambda: _built(None)), task)


def _built(make: MakeEvaluator | None) -> CandidateEvaluator:
    if make is None:
        raise LookupError("a pair that this worker was never told")
    return make()


def serve(pipe: connection.Connection) -> None:
    """Answer tasks until the pipe closes.

    What comes is a task, or ``(pair, make)`` where the worker lacks a pair. It answers
    :data:`READY` when it has started and when it has built an evaluator, :class:`EvaluatorNotBuilt`
    when it cannot, and an :class:`Answer` to every task. What measurers print goes to
    standard error.
    """
    for number in ENDING:  # Ctrl-C and the end of the terminal go to all; the tuner decides
        if number != signal.SIGTERM:  # which is how Python itself ends what is left at its end
            signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    with suppress(OSError):  # which is closed
        os.dup2(sys.__stderr__.fileno() if sys.__stderr__ else 2, 1)
    model_scheduler = WorkerEvaluators()
    pipe.send(READY)
    while True:
        try:
            message = pipe.recv()
        except EOFError:
            return
        if isinstance(message, Task):
            pipe.send(model_scheduler.measure(message))
            continue
        unbuilt = model_scheduler.prepare(*message)
        pipe.send(unbuilt or READY)
        if unbuilt is not None:
            return


def _leave_with_parent() -> None:
    """End at once when the tuner is gone, even in the middle of a measurement."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


START_S = 300.0
"""Seconds for a worker to start or to build an evaluator: imports, compiled code, the model."""

STILLBORN = 16
"""Workers in a row that die before they measure anything, after which no more are started: workers
may be killed from outside again and again, and building an evaluator may take some seconds."""

_NEVER_STARTED = 3
"""Of these, such that have ended by themselves before they had imported what they need."""

_DYING_S = 1.0
"""Seconds in which a process is gone that has closed its pipe."""


@dataclass(eq=False)
class _Worker:
    """A process as the tuner sees it: ``ready`` unless it starts or builds an evaluator."""

    process: SpawnProcess
    pipe: connection.Connection
    started: bool = False
    ready: bool = False
    tasks: deque[Task] = field(default_factory=deque)
    since: float = field(default_factory=time.monotonic)
    held: PairCache[None] = field(default_factory=PairCache)

    def prepare(self, pair: str, make: MakeEvaluator) -> None:
        """Send the evaluator's recipe; the worker answers when it is built."""
        self.ready, self.since = False, time.monotonic()
        self.held.lacks(pair)
        self._send((pair, make))

    def give(self, task: Task) -> None:
        if not self.tasks:
            self.since = time.monotonic()
        self.tasks.append(task)
        self.held.lacks(task.pair)
        self._send(task)

    def _send(self, message: object) -> None:
        with suppress(OSError):  # a worker that died while idle; its end is noticed next
            self.pipe.send(message)

    @property
    def was_killed(self) -> bool:
        """Return whether a signal has ended it, which no fault of a script does."""
        self.process.join(_DYING_S)
        return (self.process.exitcode or 0) < 0

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()
        self.process.close()


class ProcessExecutor:
    """The executor with local processes.

    Args:
        jobs: Workers.
        timeout_s: Seconds for one measurement, None for as long as it takes.
    """

    def __init__(self, jobs: int, timeout_s: float | None = None) -> None:
        self._jobs = max(jobs, 1)
        self._timeout = timeout_s
        self._makes: dict[str, MakeEvaluator] = {}
        self._workers: list[_Worker] = []
        self._pending: deque[Task] = deque()
        self._retries, self._pace = RetryPolicy(), Pace()
        self._stillborn = 0
        self._cancelled = False

    @property
    def width(self) -> int:
        """Return the number of workers."""
        return self._jobs

    @property
    def busy(self) -> bool:
        """Return whether a task waits or is being measured."""
        waiting = self._pending and not self._cancelled
        return bool(waiting) or any(w.tasks for w in self._workers)

    def introduce(
        self, pair: str, make_evaluator: MakeEvaluator, here: CandidateEvaluator | None = None
    ) -> None:
        """Keep the recipe for workers that will need it."""
        del here
        self._makes[pair] = make_evaluator

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
        """Return the answers that have come, or wait for the first one.

        Raises:
            ExecutorError: Workers do not start.
        """
        end = None if patience is None else time.monotonic() + patience
        answers: list[Answer] = []
        while self.busy and not answers:
            self._hire()
            self._assign()
            left_s = None if end is None else end - time.monotonic()
            if left_s is not None and left_s <= 0:
                break
            answers = self._collect(left_s)
        self._assign()
        return answers

    def withdraw(self) -> None:
        """Drop the tasks that have not begun."""
        self._pending.clear()

    def abandon(self) -> None:
        """Drop all tasks: workers that measure are ended, others may be needed again."""
        self._pending.clear()
        for worker in [w for w in self._workers if w.tasks]:
            self._workers.remove(worker)
            worker.end()

    def cancel(self) -> None:
        """Begin no more tasks."""
        self._cancelled = True

    def close(self) -> None:
        """End all workers, whatever they do."""
        for worker in self._workers:
            worker.end()
        self._workers.clear()
        self._pending.clear()

    def _hire(self) -> None:
        """Start workers until there are enough."""
        context = multiprocessing.get_context("spawn")
        while len(self._workers) < self._jobs:
            here, there = context.Pipe()
            process = context.Process(target=serve, args=(there,), daemon=True)
            try:
                process.start()
            except (OSError, AttributeError, TypeError, ValueError) as error:
                here.close()
                raise ExecutorError(f"cannot start a worker process: {error}") from None
            finally:
                there.close()
            self._workers.append(_Worker(process, here))

    def _assign(self) -> None:
        """Give every ready worker its next task; those with fewer come first."""
        if self._cancelled:
            return
        for depth in range(1, self._pace.queue + 1):
            for worker in self._workers:
                while self._pending and worker.ready and len(worker.tasks) < depth:
                    if worker.tasks and self._pending[0].pair not in worker.held:
                        break  # it builds another evaluator when it has nothing else to do
                    self._give(worker, self._pending[0])

    def _give(self, worker: _Worker, task: Task) -> None:
        """Send the next candidate, or first what builds the evaluator of its pair."""
        try:
            if task.pair in worker.held:
                worker.give(self._pending.popleft())
            else:
                worker.prepare(task.pair, self._makes[task.pair])
        except (AttributeError, TypeError, ValueError) as error:
            raise ExecutorError(f"a pair cannot be sent to a worker process: {error}") from None

    def _collect(self, patience: float | None) -> list[Answer]:
        """Wait for the first messages of workers, and return their answers."""
        pipes = [worker.pipe for worker in self._workers]
        waits = [limit for limit in (patience, self._until_overdue()) if limit is not None]
        changed = set(connection.wait(pipes, min(waits) if waits else None))
        answers: list[Answer] = []
        for worker in list(self._workers):
            if worker.pipe in changed:
                answers += self._news(worker)
            elif self._overdue(worker):
                answers += self._dismiss(worker)
        return answers

    def _news(self, worker: _Worker) -> list[Answer]:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            return self._bury(worker)
        before, worker.since = worker.since, time.monotonic()
        if message == READY:
            worker.started = worker.ready = True
            return []
        if isinstance(message, EvaluatorNotBuilt):
            raise message.raised_by("a worker")
        self._stillborn = 0
        self._pace.note(worker.since - before)
        worker.tasks.popleft()
        self._retries.acquit(message)
        return [message]

    def _bury(self, worker: _Worker) -> list[Answer]:
        """Remove a dead worker: its tasks go elsewhere, the first one once."""
        building, answers = not worker.ready, []
        self._workers.remove(worker)
        tasks = list(worker.tasks)
        killed = worker.was_killed
        worker.end()
        if building:
            self._count_stillborn(started=worker.started or killed)
        elif tasks:
            verdict = self._retries.verdict(tasks[0])
            answers = [] if verdict is None else [verdict]
        self._requeue(tasks[len(answers) :])
        return answers

    def _count_stillborn(self, *, started: bool) -> None:
        """Count workers that die at their start: some may be killed from outside, but not all."""
        self._stillborn += 1
        if started and self._stillborn >= STILLBORN:
            raise ExecutorError("worker processes end while they build their evaluator")
        if started or self._stillborn < _NEVER_STARTED:
            return
        raise ExecutorError(
            "worker processes end before they have started",
            hint="in a script, call tune() under: if __name__ == '__main__'",
        )

    def _requeue(self, tasks: Sequence[Task]) -> None:
        if not self._cancelled:
            self._pending.extendleft(reversed(tasks))

    def _dismiss(self, worker: _Worker) -> list[Answer]:
        """End and replace a worker that takes too long."""
        self._workers.remove(worker)
        worker.end()
        if not worker.ready:
            raise ExecutorError(f"a worker process has not started within {START_S:g} s")
        first, *others = worker.tasks
        self._requeue(others)
        return [Answer(first.pair, first.number, late(self._timeout or 0.0))]

    def _limit(self, worker: _Worker) -> float | None:
        """Return the seconds that a worker may take for its task; None without limit."""
        if not worker.ready:
            return START_S
        return self._timeout if worker.tasks else None

    def _overdue(self, worker: _Worker) -> bool:
        return is_overdue(worker.since, self._limit(worker))

    def _until_overdue(self) -> float | None:
        return until_overdue((w.since, self._limit(w)) for w in self._workers)


def evaluator_by(measurer: str, graph: Graph, target: Target, dtype: str) -> Evaluator:
    """Return the evaluator of a model with a measurer by name.

    One that is plugged in measures in a process of its own, which ends with this one.

    Args:
        measurer: Its name.
        graph: The whole model.
        target: The accelerator.
        dtype: The compute type.

    Raises:
        UsageError: There is no such measurer, or the target has no path for the compute type.
    """
    if measurer == SIMULATOR:
        return Evaluator(graph, target, dtype)
    measurer_version(measurer)  # which there must be
    pool = ProcessExecutor(1)
    pool.introduce(
        measurer, functools.partial(MeasurerEvaluatorFactory(measurer), graph, target, dtype)
    )
    return Evaluator(graph, target, dtype, RemoteEvaluator(measurer, pool), elsewhere=True)
