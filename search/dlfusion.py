"""Blocks of layers and their cores on MLU100: DLFusion, what it was compared with, and our search.

``python search/dlfusion.py [--models A,B] [--longest N] [--trials N] [--seed N]``: per network
at batch 1 the speed-up over no optimisation (every layer by itself on one core) of each strategy,
of the reduced brute force over blocks of at most N layers (any by default) on 1, 2, 4 ... 32 cores,
and of what our search finds in its own space; how far DLFusion and ours are from the brute force;
schedules simulated and CPU seconds. The published range of DLFusion is 3.6 to 7.9 times.
``docs/units.md`` says how to read it.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence

from bench_tools import print_table
from other_tuners import DLFUSION_NETWORKS, DLFUSION_PUBLISHED
from search_quality import Pair, run

from autoturbo.baselines.dlfusion import STRATEGIES, CoreModel, best_blocks, total
from autoturbo.baselines.dlfusion_blocks import BlockProfiles, core_model
from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.registry import COST_MODEL
from autoturbo.simulator.evaluator import Evaluator

MODELS = DLFUSION_NETWORKS

TARGET, DTYPE = "mlu100", "float16"


def compared(
    name: str, model: CoreModel, longest: int | None, trials: int, seed: int
) -> dict[str, float]:
    """Return seconds by strategy, and what they cost."""
    target = load_target(TARGET)
    graph = import_model(workloads.get(name).file, batch=1)
    costs = BlockProfiles(graph, target, DTYPE)
    found = {kind: total(costs, strategy(costs, model)) for kind, strategy in STRATEGIES.items()}
    found["few"] = costs.made
    start = time.process_time()
    found["oracle"] = total(costs, best_blocks(costs, longest))
    found["oracle_s"], found["made"] = time.process_time() - start, costs.made
    start = time.process_time()
    pair = Pair(name, target, graph, Evaluator(graph, target, DTYPE))
    latencies = [s for s in run(pair, COST_MODEL, seed, trials) if s is not None]
    found["ours"] = latencies[-1] if latencies else math.inf
    found["ours_s"] = time.process_time() - start
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--longest", type=int, help="layers of a block at most; any number if left")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    model = core_model(load_target(TARGET), DTYPE)
    print(
        f"log2 cores = {model.constant:.2f} + {model.by_operations:.3f} log2 operations"
        f" + {model.by_channels:.3f} log2 channels; critical operations of a core:"
        f" {model.critical:,.0f}"
    )
    kinds = (*STRATEGIES, "oracle", "ours")
    rows, costs = [], []
    for name in options.models.split(","):
        found = compared(name, model, options.longest, options.trials, options.seed)
        rows.append((name, *(f"{found['none'] / found[kind]:.2f}" for kind in kinds)))
        costs.append(
            (name, f"{found['none'] * 1e3:.2f}", _beyond(found, "dlfusion"), _beyond(found, "ours"),
             int(found["few"]), int(found["made"]), f"{found['oracle_s']:.0f}",
             f"{found['ours_s']:.0f}")
        )  # fmt: skip
        print(*rows[-1], flush=True)
    low, high = DLFUSION_PUBLISHED
    print(f"\nspeed-up over no optimisation (DLFusion published: {low} to {high})")
    print_table(("network", *kinds), rows)
    print("\nmilliseconds without optimisation; latency over the brute force's in percent; costs")
    head = ("network", "none", "dlfusion", "ours", "simulated", "brute force", "its s", "our s")
    print_table(head, costs)


def _beyond(found: dict[str, float], kind: str) -> str:
    return f"{100 * (found[kind] / found['oracle'] - 1):+.1f}"


if __name__ == "__main__":
    main()
