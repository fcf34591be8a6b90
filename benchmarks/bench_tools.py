"""What the benchmarks share: CPU time, peak memory of a fresh process, a plain table."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of one call: less disturbed by other processes than the wall clock."""
    start = time.process_time()
    work()
    return time.process_time() - start


def peak_mib() -> float:
    """Return the most memory that this process has held, in MiB.

    The system's count of resources begins with what the process that started this one held.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM:"))
        return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def in_fresh_process(script: str, *arguments: str) -> dict[str, Any]:
    """Run this Python on a script with arguments; its last line of output is JSON."""
    command = [sys.executable, script, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  our own scripts
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table with right-aligned numbers."""
    lines = [[*map(_cell, row)] for row in rows]
    widths = [max(len(line[i]) for line in [list(header), *lines]) for i in range(len(header))]
    for line in [list(header), *lines]:
        cells = (
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join(cells).rstrip())


def _cell(value: object) -> str:
    return f"{value:,.3g}" if isinstance(value, float) else str(value)
