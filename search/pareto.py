"""How much of the space of two objectives a search's front dominates, sampler by sampler.

``python search/pareto.py [--models A,B] [--targets T] [--samplers S,S] [--seeds N] [--trials N]
[--objectives latency,ddr-bytes]``: per pair the median over seeds of the hypervolume of what a run
measured over that of what all runs of the pair measured together. Both objectives count in
logarithms; the reference point is the published heuristic's, trial 0 of every run, or the worst of
the joint front where that is worse. 1 is a run that found the joint front alone, 0 one that found
nothing better than the heuristic in both. The last row says on how many pairs the first sampler has
more than each other.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import numpy as np
from bench_tools import print_table
from numpy.typing import NDArray
from search_quality import Pair, searched

from autoturbo.registry import COST_MODEL
from autoturbo.search.objectives import Objective, find_objectives, pareto
from autoturbo.simulator.measurement import Measurement

MARGIN = 1e-3
"""Beyond the reference, so that a point on it counts."""

ProductSpace = NDArray[np.float64]
"""``(measurements, 2)``: logarithms, lower is better."""


def measured(
    pair: Pair, sampler: str, seed: int, trials: int, objectives: Sequence[Objective]
) -> ProductSpace:
    """Return signed logarithms of what one run measured, ``(trials, objectives)``."""
    names = ",".join(o.name for o in objectives)
    loop = searched(pair, pair.space(sampler), sampler, seed, trials, names)
    outcomes = [t.outcome for t in loop.trials if isinstance(t.outcome, Measurement)]
    signed = [[o.score(outcome) or 0.0 for o in objectives] for outcome in outcomes]
    values = np.asarray(signed, np.float64)
    points: ProductSpace = np.sign(values) * np.log(np.abs(values))
    return points


def hypervolume(points: ProductSpace, reference: ProductSpace) -> float:
    """Return the area that points of two objectives dominate below a reference point."""
    inside = points[(points < reference).all(axis=1)]
    front = inside[pareto(inside.tolist())]
    front = front[np.argsort(front[:, 0])]
    tops = np.concatenate([reference[1:], front[:-1, 1]])
    return float(((reference[0] - front[:, 0]) * (tops - front[:, 1])).sum())


def shares(found: dict[str, list[ProductSpace]]) -> dict[str, list[float]]:
    """Return, per sampler and seed, the hypervolume over that of all runs together."""
    everything = np.concatenate([points for runs in found.values() for points in runs])
    front = everything[pareto(everything.tolist())]
    heuristic = next(iter(found.values()))[0][0]
    reference = np.maximum(front.max(axis=0), heuristic) + MARGIN
    whole = hypervolume(front, reference)
    return {
        sampler: [hypervolume(points, reference) / whole for points in runs]
        for sampler, runs in found.items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="resnet50,mobilenet_v2,bert_base_s128,dlrm,densenet121")
    parser.add_argument("--targets", default="stcp920,ipu-mk2")
    parser.add_argument("--samplers", default=f"{COST_MODEL},nsgaii,tpe,random")
    parser.add_argument("--objectives", default="latency,ddr-bytes", help="two")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=200)
    options = parser.parse_args(arguments)
    samplers = options.samplers.split(",")
    objectives = find_objectives(options.objectives)
    rows, ahead = [], dict.fromkeys(samplers, 0)
    for model in options.models.split(","):
        for target in options.targets.split(","):
            pair = Pair.of(model, target)
            found = {
                sampler: [
                    measured(pair, sampler, seed, options.trials, objectives)
                    for seed in range(options.seeds)
                ]
                for sampler in samplers
            }
            medians = {s: statistics.median(values) for s, values in shares(found).items()}
            for sampler in samplers:
                ahead[sampler] += medians[samplers[0]] > medians[sampler]
            rows.append((f"{model}@{target}", *(f"{medians[s]:.3f}" for s in samplers)))
            print(rows[-1], flush=True)
    print()
    print_table(("pair", *samplers), rows)
    beaten = ", ".join(f"{s} on {ahead[s]}" for s in samplers[1:])
    print(f"{samplers[0]} has more than {beaten} of {len(rows)} pairs")


if __name__ == "__main__":
    main()
