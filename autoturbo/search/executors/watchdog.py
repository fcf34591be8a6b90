"""Ends what a Ray of our own has started when the process that started it is gone, however it went.

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


def marked(mark: str) -> list[int]:
    """Processes whose environment holds ``mark``; none where the system does not tell."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone in between, or another user's
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def end(mark: str) -> None:
    """Kill all marked processes until there is none."""
    limit = time.monotonic() + _PATIENCE_S
    while (found := marked(mark)) and time.monotonic() < limit:
        for process in found:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)


def main(mark: str, folder: str) -> None:
    """Wait for the end of standard input, then clear away."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end(mark)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
