"""Candidates per second that the cost model predicts, features included, on one core.

The candidates are a pool as searches have them: mutants of the default setting, each once. *cold*:
nothing known but the problem; *warm*: other mutants of the same kind were predicted before, as in
the second round of a search; *again*: the same pool once more. *simulated*: the same settings
through the scheduler and the simulator, the memory of kernels emptied before each.

::

    python benchmarks/prediction.py MODEL_FOLDER [NAME ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from bench_tools import cpu_seconds, print_table

from autoturbo.cost_models.pretrained import Predictor, Pretrained
from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.space import Space
from autoturbo.simulate.evaluator import Evaluator, Simulator

MODELS = ("resnet50", "bert_base_s128")
POOL, SIMULATED = 512, 20
TARGET, DTYPE = "stcp920", "float16"


def mutants(space: Space, seed: int) -> list[Knobs]:
    """A pool."""
    start = np.zeros((POOL, len(space.dimensions)), np.int64)
    near = space.normal(space.mutate(np.random.default_rng(seed), start, 0.05))
    return [space.knobs_of(tuple(row)) for row in np.unique(near, axis=0).tolist()]


def figures(name: str, folder: Path) -> tuple[str, int, float, float, float, float]:
    """One row of the table."""
    graph, target = import_model(workloads.get(name).file), load_target(TARGET)
    space = Space.of(graph, target, dtype=DTYPE, subgraphs=8)
    first, second = mutants(space, 0), mutants(space, 1)
    evaluator, fresh = Evaluator(graph, target, DTYPE), Evaluator(graph, target, DTYPE)
    predictor = Predictor(evaluator, Pretrained.load(folder))
    predictor.seconds([Knobs()])
    fresh.evaluate(Knobs())
    pools = (first, second, second)
    cold, warm, again = (len(p) / cpu_seconds(lambda p=p: predictor.seconds(p)) for p in pools)  # type: ignore[misc]

    def simulate() -> None:
        for knobs in first[:SIMULATED]:
            fresh.measurer = Simulator()
            fresh.evaluate(knobs)

    return name, len(first), cold, warm, again, SIMULATED / cpu_seconds(simulate)


def main(folder: str, *names: str) -> None:
    """One row per model."""
    rows = [figures(name, Path(folder)) for name in names or MODELS]
    print_table(("model", "pool", "cold/s", "warm/s", "again/s", "simulated/s"), rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
