"""Import of every bundled model: CPU seconds and memory, each in a fresh process.

``python benchmarks/import_time.py [NAME ...]``
"""

from __future__ import annotations

import json
import sys

from bench_tools import cpu_seconds, in_fresh_process, peak_mib, print_table


def measure(name: str) -> None:
    """Measure one model: first import (compiled code is loaded), second import, memory on top."""
    from autoturbo.datasets import workloads
    from autoturbo.graph.onnx_import import import_model

    file = workloads.get(name).file
    before = peak_mib()
    first = cpu_seconds(lambda: import_model(file))
    second = cpu_seconds(lambda: import_model(file))
    operators = len(import_model(file).operators)
    facts = {"operators": operators, "first": first, "second": second}
    print(json.dumps({**facts, "mib": peak_mib() - before, "kib": file.stat().st_size / 1024}))


def main(names: list[str]) -> None:
    """Print one row per model, and what an operator costs."""
    from autoturbo.datasets import workloads

    found = {name: in_fresh_process(__file__, "--one", name) for name in names or workloads.names()}
    print_table(
        ("model", "file KiB", "operators", "first s", "again s", "ms/operator", "memory MiB"),
        [
            (n, f["kib"], f["operators"], f["first"], f["second"],
             1e3 * f["second"] / f["operators"], f["mib"])
            for n, f in found.items()
        ],
    )  # fmt: skip
    cost = {name: f["second"] / f["operators"] for name, f in found.items()}
    print(f"dearest operator over cheapest: {max(cost.values()) / min(cost.values()):.1f}x")
    total = sum(f["second"] for f in found.values())
    print(f"all models: {total:.2f} s, slowest {max(f['second'] for f in found.values()):.2f} s")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        measure(sys.argv[2])
    else:
        main(sys.argv[1:])
