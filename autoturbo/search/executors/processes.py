"""Workers that are processes of this machine, each with a pipe of its own.

They are started afresh (``spawn``), never forked: forking a process with threads may hang.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue

from autoturbo.errors import ExecutorError
from autoturbo.search.executors.base import MakeEvaluator, Task
from autoturbo.search.executors.worker import WorkerEvaluators
from autoturbo.search.executors.worker_pool import START_S, Lost, Reply, Worker, WorkerPool
from autoturbo.signals import ENDING

_NEVER_STARTED = 3
"""Workers that die at their start, the last by itself, before it had imported what it needs."""

_DYING_S = 1.0
"""Seconds in which a process is gone that has closed its pipe."""


def serve(pipe: connection.Connection) -> None:
    """Carry out orders until the pipe closes; reply to each, and None once at the start.

    An order is the name of a method of :class:`WorkerEvaluators` with its arguments. What
    measurers print goes to standard error.
    """
    for number in ENDING:  # Ctrl-C and the end of the terminal go to all; the tuner decides
        if number != signal.SIGTERM:  # which is how Python itself ends what is left at its end
            signal.signal(number, signal.SIG_IGN)
    orders: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(pipe, orders), daemon=True).start()
    with suppress(OSError):  # which is closed
        os.dup2(sys.__stderr__.fileno() if sys.__stderr__ else 2, 1)
    evaluators = WorkerEvaluators()
    pipe.send(None)
    while True:
        method, *arguments = ForkingPickler.loads(orders.get())
        pipe.send(getattr(evaluators, method)(*arguments))


def _read(pipe: connection.Connection, orders: SimpleQueue[bytes]) -> None:
    """Read orders in the middle of measurements, and end at once when the tuner is gone.

    A tuner that waited to send while its worker waits to reply would wait for ever.
    """
    with suppress(EOFError, OSError):
        while True:
            orders.put(pipe.recv_bytes())
    os._exit(1)


@dataclass(eq=False)
class _ProcessWorker(Worker):
    process: SpawnProcess
    pipe: connection.Connection


class _Processes:
    """The transport to processes; :class:`Transport` has its methods.

    Args:
        width: Workers.
    """

    noun = "a worker process"
    start_s = START_S

    def __init__(self, width: int) -> None:
        self.width = max(width, 1)
        self._makes: dict[str, MakeEvaluator] = {}

    def introduce(self, pair: str, make_evaluator: MakeEvaluator) -> None:
        self._makes[pair] = make_evaluator

    def start(self) -> _ProcessWorker:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(there,), daemon=True)
        try:
            process.start()
        except (OSError, AttributeError, TypeError, ValueError) as error:
            here.close()
            raise ExecutorError(f"cannot start a worker process: {error}") from None
        finally:
            there.close()
        return _ProcessWorker(process, here)

    def prepare(self, worker: _ProcessWorker, pair: str) -> None:
        self._send(worker, "prepare", pair, self._makes[pair])

    def measure(self, worker: _ProcessWorker, portion: tuple[Task, ...]) -> None:
        self._send(worker, "measure", portion)

    def _send(self, worker: _ProcessWorker, *order: object) -> None:
        try:
            with suppress(OSError):  # a worker that died while idle; its end is noticed next
                worker.pipe.send(order)
        except (AttributeError, TypeError, ValueError) as error:
            raise ExecutorError(f"a pair cannot be sent to a worker process: {error}") from None

    def wait(
        self, workers: Sequence[_ProcessWorker], limit_s: float
    ) -> list[tuple[_ProcessWorker, Reply]]:
        changed = set(connection.wait([worker.pipe for worker in workers], limit_s))
        return [(worker, _reply(worker)) for worker in workers if worker.pipe in changed]

    def kill(self, worker: _ProcessWorker) -> None:
        worker.pipe.close()
        worker.process.kill()
        worker.process.join()
        worker.process.close()

    def waits_for(self) -> None:
        return None

    def close(self) -> None:
        self._makes.clear()


def _reply(worker: _ProcessWorker) -> Reply:
    """Return the next reply of a worker that has sent one, or closed its pipe."""
    try:
        reply: Reply = worker.pipe.recv()
    except (EOFError, OSError):
        worker.process.join(_DYING_S)
        # no fault of a script ends a process by a signal
        if worker.ready or (worker.process.exitcode or 0) < 0:
            return Lost(ExecutorError("worker processes end while they build their evaluator"))
        hint = "in a script, call tune() under: if __name__ == '__main__'"
        error = ExecutorError("worker processes end before they have started", hint=hint)
        return Lost(error, _NEVER_STARTED)
    return reply


class ProcessExecutor(WorkerPool[_ProcessWorker]):
    """The executor with local processes.

    Args:
        jobs: Workers.
        timeout_s: Seconds for one measurement, None for as long as it takes.
    """

    def __init__(self, jobs: int, timeout_s: float | None = None) -> None:
        super().__init__(_Processes(jobs), timeout_s)
