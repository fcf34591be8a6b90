"""Candidates per CPU second that the cost model screens, features included.

Three kinds of candidates:

* *random*: fully at random, nothing known but the model: nearly each has cuts of its own;
* *evolved*: generations of a search as evolution makes them, half mutants and half crossovers of
  the best 48 so far, all different, so many at once as *children* says. The first generation
  starts from nothing, the later ones, the fifth to the eighth together, from what those before
  have taught;
* *known*: the last generation once more.

*simulated*: settings of the last generation through the scheduler and the simulator, the memory of
kernels emptied before each; *ratio* is that of the later generations to it.

A core that is shared takes up to twice as long from one second to the next, so everything is done
several times, each time from nothing, and what took least counts. *turns* of an empty loop of
plain Python a second say how fast the core was.

::

    python benchmarks/prediction.py [NAME ...]
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from bench_tools import cpu_seconds, print_table

from autoturbo.cost_models.batch import BatchFeatures
from autoturbo.cost_models.features import target_vector
from autoturbo.cost_models.pretrained import standard
from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.schedule.work import Floats
from autoturbo.search.encoding import Genes
from autoturbo.search.space import Space
from autoturbo.simulator.evaluator import Evaluator, Simulator
from autoturbo.simulator.plan import KernelStatistics

MODELS = ("resnet50", "bert_base_s128")
TARGET, DTYPE = "stcp920", "float16"
RANDOM, GENERATIONS, PARENTS, SIMULATED = 256, 8, 48, 40
LATER = GENERATIONS // 2
CHILDREN = (4096, 16384)
PASSES = 5
TURNS = 1_000_000


class Row(NamedTuple):
    """Figures of one model; candidates per CPU second but for the first two and the last two."""

    model: str
    children: int
    random: float
    first: float
    later: float
    known: float
    simulated: float
    ratio: float
    turns: float


def children(space: Space, rng: np.random.Generator, parents: Genes, count: int) -> Genes:
    """Return a generation of different candidates, in random order."""
    found = parents[:0]
    while len(found) < count:
        found = np.unique(np.concatenate([found, litter(space, rng, parents, count)]), axis=0)
    return found[rng.permutation(len(found))[:count]]


def litter(space: Space, rng: np.random.Generator, parents: Genes, count: int) -> Genes:
    """Return mutants, some of which are equal."""
    picked = parents[rng.integers(0, len(parents), count)]
    near = space.mutate(rng, picked[: count // 2])
    return np.concatenate([near, space.mutate(rng, picked[count // 2 :], rate=0.15)])


def least(passes: Iterable[Sequence[float]]) -> Sequence[float]:
    """Return the least of each thing that every pass took."""
    return [min(own) for own in zip(*passes, strict=True)]


def figures(name: str, count: int) -> Row:
    """Return one row of the table."""
    graph, target = import_model(workloads.get(name).file), load_target(TARGET)
    space = Space.of(ModelScheduler(graph, target, DTYPE), subgraphs=8)
    rng, trained = np.random.default_rng(0), standard()

    def fresh() -> Callable[[Genes], Floats]:
        model_scheduler, vector = (
            Evaluator(graph, target, DTYPE).model_scheduler,
            target_vector(target, DTYPE),
        )
        known = BatchFeatures(KernelStatistics(model_scheduler), trained, vector, space.here.share)
        known.seconds([Knobs()])
        return lambda genes: known.seconds(space.settings(genes))

    seconds = fresh()
    drawn, generations = space.random(rng, RANDOM), []
    pool = np.zeros((1, len(space.dimensions)), np.int64)
    for _ in range(GENERATIONS):
        generations.append(children(space, rng, pool, count))
        every = np.unique(np.concatenate([pool, generations[-1]]), axis=0)
        pool = every[np.argsort(seconds(every), kind="stable")[:PARENTS]]
    tried = [space.knobs_of(row) for row in generations[-1][rng.permutation(count)[:SIMULATED]]]

    def screened() -> list[float]:
        seconds = fresh()
        return [cpu_seconds(lambda g=g: seconds(g)) for g in (*generations, generations[-1])]  # type: ignore[misc]

    def rest() -> list[float]:
        seconds, evaluator = fresh(), Evaluator(graph, target, DTYPE)
        evaluator.evaluate(Knobs())

        def simulate() -> None:
            for knobs in tried:
                evaluator.measurer = Simulator()
                evaluator.evaluate(knobs)

        return [
            cpu_seconds(lambda: seconds(drawn)),
            cpu_seconds(simulate),
            cpu_seconds(loop),
        ]

    gc.freeze()  # as `autoturbo tune` does
    *evolved, known = least(screened() for _ in range(PASSES))
    random, simulated, turning = least(rest() for _ in range(PASSES))
    later = count * LATER / sum(evolved[-LATER:])
    return Row(
        name, count, RANDOM / random, count / evolved[0], later, count / known,
        SIMULATED / simulated, later * simulated / SIMULATED, TURNS / turning,
    )  # fmt: skip


def loop() -> None:
    """Do nothing, often."""
    for _ in range(TURNS):
        pass


def main(*names: str) -> None:
    """Print one row per model."""
    rows = [figures(name, count) for name in names or MODELS for count in CHILDREN]
    header = (
        "model",
        "children",
        "random/s",
        "evolved: first/s",
        "later/s",
        "known/s",
        "simulated/s",
        "ratio",
        "turns/s",
    )
    print_table(header, rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
