"""Tune with the knobs of no, some or many sub-graphs and print what each finds.

::

    python benchmarks/subgraphs.py                                # three workloads, seeds 0-2
    python benchmarks/subgraphs.py --subgraphs 0 4 8 16 --seeds 6 --trials 200 resnet50

Ratios are of latencies after all trials, and after 64 of them, over those without knobs of
sub-graphs (the first of ``--subgraphs``): below 1 is better. Latencies are those of the simulator,
the same on any machine.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import autoturbo
from autoturbo.config import EFFORTS
from autoturbo.simulator.measurement import Measurement

WORKLOADS = ("resnet50", "mobilenet_v2", "bert_base_s128")


def main() -> None:
    """Parse, tune, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", nargs="*", default=WORKLOADS)
    parser.add_argument("--target", default="stcp920")
    parser.add_argument("--trials", type=int, default=160)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--subgraphs", type=int, nargs="+", default=[0, 8])
    options = parser.parse_args()
    early = min(EFFORTS["quick"], options.trials)
    print(f"{options.target}, {options.trials} trials; best latency in us, ratios")
    head = f"{'workload':<18}{'seed':>5}{'subgraphs':>11}{'best':>10}"
    print(f"{head}{'ratio':>8}{f'at {early}':>8}")
    found: dict[int, list[tuple[float, float]]] = {}
    for name in options.workload:
        for seed in range(options.seeds):
            runs = {n: _best(name, options, seed, n, early) for n in options.subgraphs}
            base = runs[options.subgraphs[0]]
            for n, (best, at_early) in runs.items():
                ratios = best / base[0], at_early / base[1]
                found.setdefault(n, []).append(ratios)
                print(f"{name:<18}{seed:>5}{n:>11}{best * 1e6:>10.1f}" + _columns(ratios))
    for n, pairs in found.items():
        means = (_mean([pair[0] for pair in pairs]), _mean([pair[1] for pair in pairs]))
        print(f"{'geometric mean':<23}{n:>11}{'':>10}" + _columns(means))


def _best(
    name: str, options: argparse.Namespace, seed: int, subgraphs: int, early: int
) -> tuple[float, float]:
    """Return the best latency of all trials and of the first ones, in seconds."""
    model = autoturbo.load_model(name)
    with tempfile.TemporaryDirectory() as folder:
        result = autoturbo.tune(
            model,
            autoturbo.load_target(options.target),
            trials=options.trials,
            seed=seed,
            subgraphs=subgraphs,
            baselines=(),
            database=Path(folder) / "a.db",
            runs_folder=Path(folder) / "runs",
        )
    measured = [t.outcome for t in result.trials[:early] if isinstance(t.outcome, Measurement)]
    return result.best.measurement.latency, min(m.latency for m in measured)


def _columns(ratios: Sequence[float]) -> str:
    return "".join(f"{ratio:>8.3f}" for ratio in ratios)


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


if __name__ == "__main__":
    main()
