"""Compiles what ``autoturbo doctor --warm`` compiles, and says what that cost.

``python tools/warm_up.py REPORT`` writes the functions that were compiled, the bytes of machine
code that are kept, and the peak of memory as JSON. The tests run it where nothing is compiled yet,
and hold it to its budget (``tests/test_budgets.py``).
"""

from __future__ import annotations

import json
import resource
import sys
import time
import traceback
from pathlib import Path

REPORT = "AUTOTURBO_WARM_UP_REPORT"
"""Environment variable that tells the tests' workers the file of the report."""

LOOP = 3_000_000
"""Turns of the calibration loop: some tenths of a second."""


def loop_seconds() -> float:
    """Return the CPU seconds of the calibration loop, a loop of plain Python."""
    began = time.process_time()
    total = 0
    for number in range(LOOP):
        total += number & 7
    return time.process_time() - began


def peak_bytes() -> int:
    """Return the peak of this process's memory.

    Where there is ``/proc``, from there: ``getrusage`` begins with the peak of the process that
    started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (x for x in status.read_text().splitlines() if x.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def compiled() -> dict[str, float]:
    """Compile all; return how many functions, the bytes of kept machine code, and peak bytes."""
    from autoturbo.commands.upkeep.doctor import warm_up
    from autoturbo.compiled import CompileProgress, kept_in, watched_compiling

    progress = CompileProgress()
    with watched_compiling(progress):
        warm_up()
    folder = kept_in()
    kept = folder.rglob("*.nbc") if folder else ()
    return {
        "functions": progress.functions,
        "code_bytes": sum(file.stat().st_size for file in kept),
        "peak_bytes": peak_bytes(),
    }


def write_report(path: Path) -> None:
    """Write what compiling cost, or why it failed: whoever waits for the file goes on."""
    try:
        report: dict[str, float | str] = dict(compiled())
    except Exception:  # noqa: BLE001 - the test that reads it says so
        report = {"error": traceback.format_exc()}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(report))
    part.replace(path)


if __name__ == "__main__":
    write_report(Path(sys.argv[1]))
