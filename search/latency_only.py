"""How much a search loses where a measurement is a noisy latency and nothing else.

The simulator is wrapped as a measurer that gives seconds with noise. What counts is the true
latency, without noise, of what each search hands out; the gap is over the lowest that any search of
a pair found, a longer one with full information among them. ``full`` learns from every kernel
without noise, the others from latencies alone.

::

    PYTHONPATH=benchmarks python search/latency_only.py [--pairs MODEL@TARGET,...] [--trials 50,200]
        [--noise PERCENT] [--searches full,cost-model,tpe,random] [--seeds N,M] [--best TRIALS]
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean, median

from bench_tools import print_table

from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.hardware.target import Target
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.evaluator import Evaluator, Simulator
from autoturbo.simulator.measurement import Failure, Measurement
from autoturbo.simulator.measurers import MeasurerInfo, Timed
from autoturbo.tuning.tuner import tune

PAIRS = (
    "googlenet@stcp920", "resnet18@ipu-mk2", "squeezenet1_1@mlu100", "vgg19@stcp920",
    "alexnet@ipu-mk2", "zfnet@mlu100", "mobilenet_v2@mlu100", "densenet121@stcp920",
    "bert_base_s128@mlu100", "resnet50@ipu-mk2",
)  # fmt: skip
"""Models and targets of the table."""

SEARCHES = ("full", "cost-model", "tpe", "random")


@dataclass
class NoisyLatency:
    """The simulator as a board: seconds of one run, with noise."""

    noise: float
    seed: int
    info: MeasurerInfo = field(default_factory=lambda: MeasurerInfo(repeats=1, warm_up=0))
    simulator: Simulator = field(default_factory=Simulator)

    def __post_init__(self) -> None:
        """Begin the noise."""
        self.chance = random.Random(self.seed)  # noqa: S311  no secret

    def build(self, schedule: Schedule) -> float:
        """Return the true latency.

        Raises:
            ValueError: The schedule does not fit.
        """
        (outcome,) = self.simulator.measure([schedule])
        if isinstance(outcome, Failure):
            raise ValueError(outcome.message)  # noqa: TRY004  not about types
        return outcome.latency

    def run(self, built: float, repeats: int) -> Sequence[float]:
        """Return latencies with noise."""
        return [built * math.exp(self.chance.gauss(0, self.noise)) for _ in range(repeats)]


def evaluator(noise: float, seed: int, graph: Graph, target: Target, dtype: str) -> Evaluator:
    """Return an evaluator that measures latencies with noise."""
    return Evaluator(graph, target, dtype, Timed(NoisyLatency(noise, seed)))


def true_latency(pair: str, search: str, trials: int, noise: float, seed: int) -> float:
    """Return the seconds, without noise, of what a search hands out."""
    model, _, target_name = pair.partition("@")
    graph, target = import_model(workloads.get(model).file), load_target(target_name)
    make: Callable[..., Evaluator] | None = None
    if search != "full":
        make = partial(evaluator, noise, seed)
    result = tune(
        graph, target, trials=trials, seed=seed, transfer=False, baselines=(),
        sampler="cost-model" if search == "full" else search, evaluator=make,
    )  # fmt: skip
    outcome = Evaluator(graph, target, target.default_dtype).evaluate(result.best.knobs)
    return outcome.latency if isinstance(outcome, Measurement) else math.inf


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the gaps of every pair, then their means and medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", default=",".join(PAIRS))
    parser.add_argument("--trials", default="50,200")
    parser.add_argument("--noise", type=float, default=2.0, metavar="PERCENT")
    parser.add_argument("--searches", default=",".join(SEARCHES))
    parser.add_argument("--seeds", default="0", help="the gaps' mean over these is printed")
    parser.add_argument("--best", type=int, default=600, metavar="TRIALS")
    options = parser.parse_args(arguments)
    searches, budgets = options.searches.split(","), [int(n) for n in options.trials.split(",")]
    seeds = [int(n) for n in options.seeds.split(",")]
    columns = [(search, trials) for trials in budgets for search in searches]
    noise = options.noise / 100
    rows, gaps = [], []
    for pair in options.pairs.split(","):
        found = [
            [true_latency(pair, search, trials, noise, seed) for seed in seeds]
            for search, trials in columns
        ]
        longer = true_latency(pair, "full", options.best, noise, 0) if options.best else math.inf
        least = min(longer, *(min(of_seeds) for of_seeds in found))
        gaps.append([100 * (fmean(of_seeds) / least - 1) for of_seeds in found])
        rows.append((pair, *(f"{gap:.2f}" for gap in gaps[-1])))
        print("  ".join(map(str, rows[-1])), flush=True)
    for name, summary in (("mean", fmean), ("median", median)):
        rows.append((name, *(f"{summary(column):.2f}" for column in zip(*gaps, strict=True))))
    print_table(("pair", *(f"{search}, {trials}" for search, trials in columns)), rows)


if __name__ == "__main__":
    main()
