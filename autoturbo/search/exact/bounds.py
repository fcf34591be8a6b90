"""Lower bounds of a setting's latency that its plan gives, before anything is built.

A kernel takes no less than its work on the matrix engine, its work on the vector engine, or what it
reads from DDR takes at full rate. A sub-graph's parts together do at least the work that the
outputs depend on, and load its weights at least once a pass: kept weights are kept within a pass
only. A launch and a barrier are paid for every kernel. So one pass of a cluster takes at least

    sum over sub-graphs of max(matrix, vector, weights) + instances x (launch + barrier).

Movements between kernels are seconds on top of both. The model's own bound
(:func:`autoturbo.simulate.bound.lower_bound`) counts DDR traffic of kernels and movements alike, so
launches are on top of it too. Where clusters work on the same samples neither sum holds: there only
the model's bound does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoturbo.graph.operators import Operator
from autoturbo.hardware.target import storage_ratio
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import Workbench, plan
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import BATCH
from autoturbo.schedule.work import MATRIX, VECTOR, Floats, in_integers, priced
from autoturbo.simulate.bound import Needs, lower_bound

SLACK = 1 - 1e-9
"""Sums in another order differ in their last digits."""


@dataclass(eq=False)
class PlanBound:
    """Bounds of one model on one target.

    Attributes:
        bench: model and target.
    """

    bench: Workbench

    def __post_init__(self) -> None:
        bench = self.bench
        self.model = lower_bound(bench.model, bench.target, bench.dtype).seconds * SLACK

    def seconds(self, knobs: Knobs) -> float:
        """No schedule of the setting is faster.

        Raises:
            KnobsError: the setting does not fit the model.
        """
        problem, share, subgraphs = plan(self.bench, knobs)
        if share.split != BATCH:
            return self.model
        overheads = problem.target.overheads
        parts = sum(s.split.instances for s in subgraphs)
        launches = share.loops * parts * overheads.per_kernel
        work = share.loops * sum(_seconds(problem, s) for s in subgraphs)
        return max(work * SLACK, self.model) + launches * SLACK


def _seconds(problem: Problem, subgraph: SubGraph) -> float:
    rows = least_seconds(problem)
    own = [op for layer in subgraph.layers for op in problem.layers[layer].operators]
    return float(rows[own].sum(axis=0).max())


def least_seconds(problem: Problem) -> Floats:
    """Per operator, least seconds of a cluster: array (operators, 3), remembered.

    On the matrix engine, on the vector engine, and of its weights on their way from DDR.
    """
    found = problem.memory.get("least seconds")
    if not isinstance(found, np.ndarray):
        integers = in_integers(problem.target, problem.dtype)
        needs = Needs.of(problem.graph, problem.dtype, integers=integers)
        readers = [set(c) for c in problem.graph.consumers]
        own = [
            _row(problem, needs, index, operator, readers)
            for index, operator in enumerate(problem.graph.operators)
        ]
        found = np.asarray(own, np.float64).reshape(-1, 3)
        problem.memory["least seconds"] = found
    return found


def _row(
    problem: Problem, needs: Needs, index: int, operator: Operator, readers: list[set[int]]
) -> tuple[float, float, float]:
    target, dtype = problem.target, problem.dtype
    points, shown = needs.points(index)
    work = priced(operator, target, dtype)
    code = work.engine
    macs = points * work.macs
    plain = shown * work.vector + points * work.per_point + macs * (code == VECTOR)
    special = shown * work.special
    slow = target.vector.special_lanes * target.cores * target.clock
    matrix_s = 0.0
    if code == MATRIX:
        matrix_s = macs / target.matrix_macs_per_second(dtype) * target.clusters
    vector_s = plain / target.vector_ops_per_second(dtype) * target.clusters if plain else 0.0
    vector_s += special / slow if special else 0.0
    # Only dense weights of this operator alone: a look-up reads what it picks.
    weights = sum(
        needs.bytes(t) for t in set(operator.inputs)
        if problem.graph.tensors[t].constant and readers[t] == {index} and code == MATRIX
    )  # fmt: skip
    return matrix_s, vector_s, weights * storage_ratio(dtype) / target.ddr_bandwidth_per_cluster
