"""Tune bundled workloads and print default, tuned and TVM-like latency with ratios from one run.

::

    python benchmarks/tuning.py                        # the paper's ten on stcp920, 64 trials each
    python benchmarks/tuning.py --all --trials 16      # every workload
    python benchmarks/tuning.py --target ipu-mk2 resnet50 bert_base_s128 dlrm

Latencies and ratios are those of the simulator: the same on any machine. Only the last column, the
seconds that tuning took here, is not.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import autoturbo
from autoturbo.datasets import workloads


def main() -> None:
    """Parse, tune, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", nargs="*", default=None)
    parser.add_argument("--all", action="store_true", help="every bundled workload")
    parser.add_argument("--target", default="stcp920")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chosen = workloads.names() if options.all else options.workload or workloads.PAPER_TEN
    _report(chosen, options.target, options.trials, options.seed)


def _report(names: Sequence[str], target: str, trials: int, seed: int) -> None:
    print(f"{target}, {trials} trials, seed {seed}; samples per second of the whole chip")
    head = [
        "workload",
        "batch",
        "tvm",
        "heuristic",
        "tuned",
        "heuristic/tvm",
        "tuned/heuristic",
        "bound",
        "s",
    ]
    print(("{:<18}" + "{:>6}" + "{:>10}" * 3 + "{:>15}{:>17}{:>7}{:>6}").format(*head))
    gains = [_row(name, target, trials, seed) for name in names]
    if gains:
        for label, column in (("heuristic over tvm", 0), ("tuned over heuristic", 1)):
            ratios = [gain[column] for gain in gains]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"geometric mean, {label}: {mean:.2f}")


def _row(name: str, target: str, trials: int, seed: int) -> tuple[float, float]:
    graph = autoturbo.load_model(workloads.get(name).file)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = autoturbo.tune(
            graph, autoturbo.load_target(target), trials=trials, seed=seed,
            database=Path(folder) / "autoturbo.db", runs_folder=folder,
        )  # fmt: skip
    seconds = time.perf_counter() - start
    tvm, best = result.baselines["tvm"], result.best.measurement
    default = result.default or best
    gains = tvm.latency / default.latency, default.latency / best.latency
    print(
        f"{name:<18}{graph.batch:>6}{tvm.throughput:>10.0f}{default.throughput:>10.0f}"
        f"{best.throughput:>10.0f}{gains[0]:>15.2f}{gains[1]:>17.2f}{best.bound_fraction:>7.0%}"
        f"{seconds:>6.1f}",
        flush=True,
    )
    return gains


if __name__ == "__main__":
    main()
