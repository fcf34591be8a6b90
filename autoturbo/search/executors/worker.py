"""What runs in a worker, and all that it is sent and answers."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from typing import TYPE_CHECKING

from autoturbo.errors import AutoTurboError, ExecutorError
from autoturbo.search.executors.base import Answer, Held, Task, answer_of
from autoturbo.signals import ENDING

if TYPE_CHECKING:
    from autoturbo.search.executors.base import MakeEvaluator
    from autoturbo.simulate.contract import Evaluates

READY = "ready"


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """An answer: no evaluator can be built here.

    Attributes:
        reason: what went wrong, one line.
        error: the same, where it is one of ours: a plug-in that cannot be loaded says it best.
    """

    reason: str
    error: AutoTurboError | None = None

    def raised_by(self, worker: str) -> AutoTurboError:
        """Return what the tuner raises."""
        text = f"{worker} cannot build its evaluator: {self.reason}"
        return self.error or ExecutorError(text)


class Bench:
    """The evaluators of a worker."""

    def __init__(self) -> None:
        self._held: Held[Evaluates] = Held()

    def prepare(self, pair: str, make: MakeEvaluator | None) -> Unbuilt | None:
        """Have the evaluator of a pair ready; built by ``make`` where this worker lacks it."""
        try:
            self._held.get(pair, lambda: _built(make))
        except AutoTurboError as error:
            return Unbuilt(str(error), error)
        except (Exception, SystemExit) as error:  # noqa: BLE001  reported to the tuner
            return Unbuilt(" ".join(f"{type(error).__name__}: {error}".split()))
        return None

    def measure(self, task: Task) -> Answer:
        """The outcome of a task whose pair is prepared."""
        return answer_of(self._held.get(task.pair, lambda: _built(None)), task)


def _built(make: MakeEvaluator | None) -> Evaluates:
    if make is None:
        raise LookupError("a pair that this worker was never told")
    return make()


def serve(pipe: connection.Connection) -> None:
    """Answer tasks until the pipe closes.

    What comes is a task, or ``(pair, make)`` where the worker lacks a pair. It answers
    :data:`READY` when it has started and when it has built an evaluator, :class:`Unbuilt` when it
    cannot, and an :class:`Answer` to every task. What measurers print goes to standard error.
    """
    for number in ENDING:  # Ctrl-C and the end of the terminal go to all; the tuner decides
        if number != signal.SIGTERM:  # which is how Python itself ends what is left at its end
            signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    with suppress(OSError):  # which is closed
        os.dup2(sys.__stderr__.fileno() if sys.__stderr__ else 2, 1)
    bench = Bench()
    pipe.send(READY)
    while True:
        try:
            message = pipe.recv()
        except EOFError:
            return
        if isinstance(message, Task):
            pipe.send(bench.measure(message))
            continue
        unbuilt = bench.prepare(*message)
        pipe.send(unbuilt or READY)
        if unbuilt is not None:
            return


def _leave_with_parent() -> None:
    """End at once when the tuner is gone, also in the middle of a measurement."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
