"""Candidates per CPU second that the cost model screens, features included.

Three kinds of candidates:

* *random*: fully at random, nothing known but the model: nearly each has cuts of its own;
* *evolved*: generations of a search as evolution makes them, half mutants and half crossovers of
  the best 48 so far, all different, so many at once as *children* says. The first generation
  starts from nothing, the last from what the ones before it have taught;
* *known*: the last generation once more.

*simulated*: settings of the last generation through the scheduler and the simulator, the memory of
kernels emptied before each.

::

    python benchmarks/prediction.py [NAME ...]
"""

from __future__ import annotations

import gc
import sys
from typing import NamedTuple

import numpy as np
from bench_tools import cpu_seconds, print_table

from autoturbo.cost_models.pretrained import standard
from autoturbo.cost_models.screening import Screen
from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.conditions import Genes
from autoturbo.search.space import Space
from autoturbo.simulate.evaluator import Evaluator, Simulator

MODELS = ("resnet50", "bert_base_s128")
TARGET, DTYPE = "stcp920", "float16"
RANDOM, GENERATIONS, PARENTS, SIMULATED = 256, 8, 48, 40
CHILDREN = (4096, 16384)


class Row(NamedTuple):
    """Figures of one model; candidates per CPU second but for the first two and the ratio."""

    model: str
    children: int
    random: float
    first: float
    last: float
    known: float
    simulated: float
    ratio: float


def children(space: Space, rng: np.random.Generator, parents: Genes, count: int) -> Genes:
    """A generation, of different candidates."""
    found = parents[:0]
    while len(found) < count:
        found = np.unique(np.concatenate([found, litter(space, rng, parents, count)]), axis=0)
    return found[rng.permutation(len(found))[:count]]


def litter(space: Space, rng: np.random.Generator, parents: Genes, count: int) -> Genes:
    """Mutants and crossovers, some of which are equal."""
    half = count // 2
    first, second = (parents[rng.integers(0, len(parents), half)] for _ in range(2))
    near = space.mutate(rng, first[: half // 2])
    far = space.mutate(rng, first[half // 2 :], rate=0.15)
    return np.concatenate([near, far, space.cross(rng, first, second)])


def figures(name: str, count: int) -> Row:
    """One row of the table."""
    graph, target = import_model(workloads.get(name).file), load_target(TARGET)
    space = Space.of(graph, target, dtype=DTYPE, subgraphs=8)
    rng, trained = np.random.default_rng(0), standard()

    def fresh() -> Screen:
        screen = Screen(Evaluator(graph, target, DTYPE).bench, trained, space.choices)
        screen.seconds(np.zeros((1, len(space.dimensions)), np.int64))
        return screen

    random, screen = fresh(), fresh()
    gc.freeze()  # as `autoturbo tune` does
    drawn = space.random(rng, RANDOM)
    at_random = RANDOM / cpu_seconds(lambda: random.seconds(drawn))
    pool = np.zeros((1, len(space.dimensions)), np.int64)
    rates = []
    for _ in range(GENERATIONS):
        young = children(space, rng, pool, count)
        rates.append(len(young) / cpu_seconds(lambda young=young: screen.seconds(young)))  # type: ignore[misc]
        every = np.unique(np.concatenate([pool, young]), axis=0)
        pool = every[np.argsort(screen.seconds(every), kind="stable")[:PARENTS]]
    known = count / cpu_seconds(lambda: screen.seconds(young))
    evaluator = Evaluator(graph, target, DTYPE)
    evaluator.evaluate(Knobs())
    tried = [space.knobs_of(row) for row in young[rng.permutation(count)[:SIMULATED]]]

    def simulate() -> None:
        for knobs in tried:
            evaluator.measurer = Simulator()
            evaluator.evaluate(knobs)

    simulated = SIMULATED / cpu_seconds(simulate)
    return Row(name, count, at_random, rates[0], rates[-1], known, simulated, rates[-1] / simulated)


def main(*names: str) -> None:
    """One row per model."""
    rows = [figures(name, count) for name in names or MODELS for count in CHILDREN]
    header = (
        "model",
        "children",
        "random/s",
        "evolved: first/s",
        "last/s",
        "known/s",
        "simulated/s",
        "ratio",
    )
    print_table(header, rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
