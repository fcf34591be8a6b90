"""What runs in a local worker process."""

from __future__ import annotations

import os
import signal
import threading
from multiprocessing import connection, parent_process
from typing import TYPE_CHECKING

from autoturbo.search.executors.base import guarded

if TYPE_CHECKING:
    from autoturbo.search.executors.base import MakeEvaluator

READY = "ready"


def serve(pipe: connection.Connection, make_evaluator: MakeEvaluator) -> None:
    """Build the evaluator, then answer settings until the pipe closes.

    First message back: :data:`READY`, or the text of what went wrong.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the tuner decides
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        evaluator = make_evaluator()
    except Exception as error:  # noqa: BLE001  reported to the tuner, which raises
        pipe.send(f"{type(error).__name__}: {error}")
        return
    pipe.send(READY)
    while True:
        try:
            number, knobs = pipe.recv()
        except EOFError:
            return
        pipe.send((number, guarded(evaluator, knobs)))


def _leave_with_parent() -> None:
    """End at once when the tuner is gone, also in the middle of a measurement."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
