"""The first guess on a model that the cost model has not seen, against the published heuristic.

For each workload a cost model is trained on all models of a data set but that one (for a BERT of
any length: but BERT). It predicts about a thousand candidates that a search would propose before it
has measured anything: the search's openings (the dynamic programme's starts, numbers of samples,
splits over clusters), mutants of them and of the heuristic, and points at random. The published
heuristic itself is none of them. The best predicted one is measured, then the best five.

*Gains* are the heuristic's latency over the guess's; above 1 the guess is faster. *Start* is the
dynamic programme's first start, which needs no cost model.

::

    python datasets/collect.py measurements
    python benchmarks/first_guess.py measurements [WORKLOAD ...]
"""

from __future__ import annotations

import functools
import math
import statistics
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from bench_tools import print_table

from autoturbo.config import searched_subgraphs
from autoturbo.cost_models.batch import BatchFeatures
from autoturbo.cost_models.features import target_vector
from autoturbo.cost_models.pretrained import Pretrained, train
from autoturbo.cost_models.training import Table
from autoturbo.datasets import workloads
from autoturbo.datasets.measurements import load_measurements
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.registry import COST_MODEL
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.encoding import Genes
from autoturbo.search.openings import openings
from autoturbo.search.space import Space
from autoturbo.search.warm_starts.starts import starts_of
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement
from autoturbo.simulator.plan import KernelStatistics

TARGET = "stcp920"
RANDOM = MUTANTS = 500
TOP = 5


class Row(NamedTuple):
    """One workload; gains over the heuristic."""

    workload: str
    candidates: int
    heuristic_ms: float
    first: float
    of_five: float
    start: float


def family(name: str) -> str:
    """Return what is held out together: workloads that differ in the sequence's length only."""
    return name.split("_", maxsplit=1)[0] if name.startswith("bert") else name


@functools.cache
def without(folder: str, held: str) -> Pretrained:
    """Return a model trained on all models of a data set but one family."""
    table = _table(folder)
    seen = [family(name) != held for name in table.groups["model"].tolist()]
    return train(table, {}, np.asarray(seen))


@functools.cache
def _table(folder: str) -> Table:
    return Table.of(load_measurements(folder))


def candidates(space: Space, rng: np.random.Generator) -> Genes:
    """Return what a search would propose before it has measured anything, but for the heuristic."""
    begun, random = openings(space), space.random(rng, RANDOM)
    heuristic = np.zeros_like(begun)
    parents = np.concatenate([heuristic, begun])[rng.integers(0, 2 * len(begun), MUTANTS)]
    mutants = space.mutate(rng, parents)
    every = dict.fromkeys(map(tuple, np.concatenate([begun, mutants, random]).tolist()))
    every.pop((0,) * len(space.dimensions), None)
    return np.asarray(list(every), np.int64)


def row(folder: str, name: str) -> Row:
    """Return one line of the table."""
    graph, target = import_model(workloads.get(name).file), load_target(TARGET)
    dtype = target.default_dtype
    count = searched_subgraphs(None, COST_MODEL)
    evaluator = Evaluator(graph, target, dtype)
    starts = starts_of(evaluator)
    space = Space.of(evaluator.model_scheduler, subgraphs=count, starts=starts)
    settings = [space.knobs_of(point) for point in candidates(space, np.random.default_rng(0))]
    known = BatchFeatures(
        KernelStatistics(evaluator.model_scheduler), without(folder, family(name)),
        target_vector(target, dtype), space.here.share,
    )  # fmt: skip
    said = known.seconds(settings)
    best = [settings[at] for at in np.argsort(said, kind="stable")[:TOP]]
    default = _seconds(evaluator, Knobs())
    found = [default / _seconds(evaluator, knobs) for knobs in best]
    begun = default / _seconds(evaluator, starts[0]) if starts else math.nan
    return Row(name, len(settings), 1e3 * default, found[0], max(found), begun)


def _seconds(evaluator: Evaluator, knobs: Knobs) -> float:
    outcome = evaluator.evaluate(knobs)
    return outcome.latency if isinstance(outcome, Measurement) else math.inf


def main(folder: str, names: Sequence[str]) -> None:
    """Print one line per workload, and how many were faster."""
    rows = []
    for name in names:
        rows.append(row(folder, name))
        print(f"{name}: done", file=sys.stderr, flush=True)
    head = ("workload", "candidates", "heuristic ms", "first", "best of 5", "start")
    print_table(head, [(*line[:3], *(f"{gain:.3f}" for gain in line[3:])) for line in rows])
    for title, column in (("first", 3), ("best of 5", 4), ("start", 5)):
        gains = [float(line[column]) for line in rows]
        mean = math.exp(statistics.fmean(map(math.log, gains)))
        faster = sum(gain > 1 for gain in gains)
        print(f"{title}: faster on {faster} of {len(rows)}, geometric mean {mean:.2f}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or workloads.PAPER_TEN)
