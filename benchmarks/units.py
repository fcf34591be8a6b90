"""Who runs what on CPU and NPU: PartitionTuner, what it was compared with, and our search.

``python benchmarks/units.py [--models A,B] [--machines M,N] [--trials N] [--seed N] [--batch N]``:
per model and machine milliseconds of the first unit alone, of the assignment by type, of the
profile-based one without groups, of PartitionTuner and of our annealing from all of them, all on
the same profiles and the same simulator; then the gains in percent beside the published ones, and
CPU seconds of profiling and of our search. ``docs/units.md`` says how to read them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from bench_tools import print_table
from other_tuners import PARTITION_TUNER_NETWORKS, PARTITION_TUNER_PUBLISHED

from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware.machine_files import load_machine, machine_names
from autoturbo.heterogeneous.annealing import best_assignment
from autoturbo.heterogeneous.measurement import MachineMeasurement, measure_assignment
from autoturbo.heterogeneous.parts import Assignment, assign
from autoturbo.heterogeneous.profiles import Profiles
from autoturbo.registry import MACHINE_SCHEDULERS

MODELS = PARTITION_TUNER_NETWORKS
"""PartitionTuner's seven."""


def compared(model: str, machine: str, batch: int, trials: int, seed: int) -> dict[str, float]:
    """Return milliseconds by scheduler, and CPU seconds of profiling and of the search."""
    loaded = load_machine(machine)
    graph = import_model(workloads.get(model).file, batch=batch)
    profiles = Profiles(graph, loaded, loaded.dtypes[0])
    layers = len(profiles.layers)
    start = time.process_time()
    found = {"cpu": assign(graph, profiles.layers, [0] * layers, range(layers))}
    found |= {name: MACHINE_SCHEDULERS.make(name, profiles) for name in MACHINE_SCHEDULERS.names()}
    results = {name: _milliseconds(profiles, one) for name, one in found.items()}
    results["profiling_s"] = time.process_time() - start
    start = time.process_time()
    best = best_assignment(profiles, trials=trials, seed=seed, starts=list(found.values()))
    results["ours"] = best.best.latency * 1e3 if best else float("inf")
    results["search_s"] = time.process_time() - start
    return results


def _milliseconds(profiles: Profiles, assignment: Assignment) -> float:
    outcome = measure_assignment(profiles, assignment)
    return outcome.latency * 1e3 if isinstance(outcome, MachineMeasurement) else float("inf")


def _gain(slow: float, fast: float) -> str:
    return f"{100 * (slow / fast - 1):+.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--machines", default=",".join(machine_names()))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    names = ("cpu", *MACHINE_SCHEDULERS.names(), "ours", "profiling_s", "search_s")
    rows, gains = [], []
    for machine in options.machines.split(","):
        for model in options.models.split(","):
            found = compared(model, machine, options.batch, options.trials, options.seed)
            rows.append((f"{model}@{machine}", *(f"{found[name]:.2f}" for name in names)))
            theirs = found["partition_tuner"]
            known = [PARTITION_TUNER_PUBLISHED.get((o, model), "-") for o in ("static", "profiled")]
            gains.append(
                (f"{model}@{machine}",
                 _gain(found["static"], theirs), known[0],
                 _gain(found["profiled"], theirs), known[1],
                 _gain(theirs, found["ours"]))
            )  # fmt: skip
            print(*rows[-1], file=sys.stderr, flush=True)
    print(f"\nbatch {options.batch}, milliseconds; search of {options.trials} settings")
    print_table(("pair", *names), rows)
    print(
        "\ngains in percent: of PartitionTuner over others, published beside, and of ours over it"
    )
    head = ("pair", "over static", "published", "over profiled", "published", "ours over it")
    print_table(head, gains)


if __name__ == "__main__":
    main()
