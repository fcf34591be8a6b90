"""What runs in a worker, and all that it is sent and answers."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from typing import TYPE_CHECKING

from autoturbo.search.executors.base import Answer, guarded
from autoturbo.search.executors.held import Held
from autoturbo.signals import ENDING

if TYPE_CHECKING:
    from autoturbo.search.executors.base import MakeEvaluator, Task
    from autoturbo.simulate.contract import Evaluates

READY = "ready"


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """An answer: no evaluator can be built here.

    Attributes:
        reason: what went wrong, one line.
    """

    reason: str


class Bench:
    """The evaluators of a worker."""

    def __init__(self) -> None:
        self._held: Held[Evaluates] = Held()

    def prepare(self, pair: str, make: MakeEvaluator | None) -> Unbuilt | None:
        """Have the evaluator of a pair ready; built by ``make`` where this worker lacks it."""
        try:
            self._held.get(pair, lambda: _built(make))
        except Exception as error:  # noqa: BLE001  reported to the tuner, which raises
            return Unbuilt(" ".join(f"{type(error).__name__}: {error}".split()))
        return None

    def measure(self, task: Task) -> Answer:
        """The outcome of a task whose pair is prepared."""
        evaluator = self._held.get(task.pair, lambda: _built(None))
        return Answer(task.pair, task.number, guarded(evaluator, task.knobs))


def _built(make: MakeEvaluator | None) -> Evaluates:
    if make is None:
        raise LookupError("a pair that this worker was never told")
    return make()


def serve(pipe: connection.Connection) -> None:
    """Answer tasks until the pipe closes.

    What comes is ``(task, make)``, with ``make`` where the worker lacks the pair. It answers
    :data:`READY` when it has started and when it has built an evaluator, :class:`Unbuilt` when it
    cannot, and an :class:`Answer` to every task.
    """
    for number in ENDING:  # Ctrl-C and the end of the terminal go to all; the tuner decides
        if number != signal.SIGTERM:  # which is how Python itself ends what is left at its end
            signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    bench = Bench()
    pipe.send(READY)
    while True:
        try:
            task, make = pipe.recv()
        except EOFError:
            return
        if make is not None:
            unbuilt = bench.prepare(task.pair, make)
            pipe.send(unbuilt or READY)
            if unbuilt is not None:
                return
        pipe.send(bench.measure(task))


def _leave_with_parent() -> None:
    """End at once when the tuner is gone, also in the middle of a measurement."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
