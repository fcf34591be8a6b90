"""Ends the processes of our own Ray when the process that started it is gone.

Ray's servers leave with the process that started them, its agents up to a minute later, its folder
not at all. This file is run by itself, before Ray is started, and needs nothing but Python: it
waits until its standard input ends, which happens when that process ends, kill -9 included.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

_PATIENCE_S = 5.0
"""Seconds in which processes appear that were being started just now."""


def started(mark: str, folder: str = "") -> list[int]:
    """Return the processes with ``mark`` in their environment or with a file of ``folder`` open.

    A process of Ray's that names itself (``ray::...``) loses its environment; its log files it
    keeps. None are found where the system does not tell.
    """
    folders = Path("/proc").glob("[0-9]*")
    return [int(p.name) for p in folders if _marked(p, mark) or _logs_to(p, folder)]


def _marked(process: Path, mark: str) -> bool:
    with suppress(OSError):  # gone in between, or another user's
        return bool(mark) and mark.encode() in (process / "environ").read_bytes().split(b"\0")
    return False


def _logs_to(process: Path, folder: str) -> bool:
    with suppress(OSError):
        if not folder or not (process / "cmdline").read_bytes().startswith(b"ray::"):
            return False
        for file in (process / "fd").iterdir():
            with suppress(OSError):
                if str(file.readlink()).startswith(f"{folder}/"):
                    return True
    return False


def end(mark: str, folder: str = "") -> None:
    """Kill all that :func:`started` finds until there is nothing."""
    limit = time.monotonic() + _PATIENCE_S
    while (processes := started(mark, folder)) and time.monotonic() < limit:
        for process in processes:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)


def main(mark: str, folder: str) -> None:
    """Wait for the end of standard input, then clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end(mark, folder)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
