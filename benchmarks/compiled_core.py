"""What the private compiler options of ``autoturbo.compiled.borrowing`` buy: compiling and running.

``python benchmarks/compiled_core.py [NAME]`` compiles everything twice, each in a fresh process
with a cache folder of its own: with references counted and calls made, and as the package does it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from bench_tools import cpu_seconds, in_fresh_process, print_table

from autoturbo import compiled

TRIALS = 64


def measure(options: str, name: str) -> None:
    """Print CPU seconds of a first evaluation, which compiles, and of a run of trials."""
    if options == "plain":
        compiled.borrowing = _plain
    import autoturbo
    from autoturbo.datasets import workloads
    from autoturbo.graph.onnx_import import import_model

    model, target = import_model(workloads.get(name).file), autoturbo.load_target("stcp920")

    def tune(trials: int, folder: str) -> Callable[[], object]:
        return lambda: autoturbo.tune(
            model, target, trials=trials, database=f"{folder}/own.db", runs_folder=folder
        )

    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        first, second = cpu_seconds(tune(1, one)), cpu_seconds(tune(TRIALS, other))
    print(json.dumps({"first": first, "second": second}))


def _plain(function: Callable[..., Any]) -> Any:
    from numba import njit

    return njit(cache=True)(function)


def main(name: str) -> None:
    """Print a row for each kind of options, and ratios."""
    rows = []
    for options in ("plain", "borrowing"):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["NUMBA_CACHE_DIR"] = folder
            found = in_fresh_process(__file__, "--one", options, name)
        rows.append((options, found["first"], found["second"]))
    rows.append(
        ("plain over borrowing", *(a / b for a, b in zip(rows[0][1:], rows[1][1:], strict=True)))
    )
    print_table(("options", "compiling and one trial s", f"{TRIALS} trials s"), rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        measure(*sys.argv[2:])
    else:
        main(sys.argv[1] if sys.argv[1:] else "resnet50")
