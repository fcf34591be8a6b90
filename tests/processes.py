"""Processes that tests start, whoever started the tests and however busy the machine is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from autoturbo.signals import ENDING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

HANG_S = 900.0
"""Seconds after which what a test waits for is taken to hang; no load makes it so slow."""


@contextmanager
def default_signals() -> Iterator[None]:
    """Within it no signal that ends a program is ignored, in this process or one that it starts.

    What runs in the background ignores Ctrl-C, what ``nohup`` runs the end of the terminal, and a
    process hands that on to those that it starts.
    """
    before = {number: signal.getsignal(number) for number in ENDING}
    ignored = [number for number, handler in before.items() if handler is signal.SIG_IGN]
    try:
        for number in ignored:
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def started(
    command: list[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | None = None,
    start_new_session: bool = False,
) -> subprocess.Popen[str]:
    """A process that finds the tests' helpers and has the usual signals; its output is piped."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(env or {})}
    with default_signals():
        return subprocess.Popen(
            command, cwd=cwd, env=environment, text=True, stdin=stdin, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=start_new_session,
        )  # fmt: skip


def wait_for_trials(process: subprocess.Popen[str], folder: Path) -> None:
    """Until the first round is in the log."""
    deadline = time.monotonic() + HANG_S
    while process.poll() is None and time.monotonic() < deadline:
        if any(" trials, " in file.read_text() for file in folder.glob("runs/*/log.txt")):
            return
        time.sleep(0.05)
