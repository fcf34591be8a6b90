"""Memory and time of ``tune`` against the size of a model: a chain of convolutions.

Each size is tuned with 16 trials in a process of its own; the last line says how many times the
figures of the largest are those of the smallest.

::

    python benchmarks/growth.py [NODES ...]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_tools import in_fresh_process, peak_mib, print_table
from chains import chain

import autoturbo
from autoturbo.hardware import load_target

SIZES, TRIALS = (1_000, 2_000, 5_000, 10_000), 16


def measure(nodes: int) -> dict[str, Any]:
    """Return CPU seconds of this process and its peak of memory, a chain tuned."""
    with tempfile.TemporaryDirectory() as folder:
        autoturbo.tune(
            chain(nodes, 1), load_target("stcp920"), trials=TRIALS,
            database=Path(folder) / "growth.db", runs_folder=Path(folder),
        )  # fmt: skip
    return {"nodes": nodes, "seconds": time.process_time(), "mib": peak_mib()}


def main() -> None:
    """Parse and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nodes", nargs="*", type=int, default=[])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one)))
        return
    sizes = options.nodes or SIZES
    found = [in_fresh_process(__file__, "--one", str(nodes)) for nodes in sizes]
    rows = [(f"{f['nodes']:,}", float(f["seconds"]), round(f["mib"])) for f in found]
    print_table(("nodes", "CPU seconds", "MiB"), rows)
    grown = [found[-1][name] / found[0][name] for name in ("seconds", "mib")]
    print(f"largest to smallest: {grown[0]:.1f} times the CPU time, {grown[1]:.1f} the memory")


if __name__ == "__main__":
    main()
