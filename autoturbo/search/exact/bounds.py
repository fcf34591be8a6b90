"""Lower bounds of the work of operators, before anything is built."""

from __future__ import annotations

import numpy as np

from autoturbo.graph.operators import Operator
from autoturbo.hardware.target import storage_ratio
from autoturbo.schedule.codegen.work import MATRIX, VECTOR, Floats, in_integers, priced
from autoturbo.schedule.problem import Problem
from autoturbo.simulate.bound import Needs
from autoturbo.stores import remembered

SLACK = 1 - 1e-9
"""Sums in another order differ in their last digits."""


@remembered(1)
def least_seconds(problem: Problem) -> Floats:
    """Per operator, least seconds of a cluster: array (operators, 3), remembered.

    On the matrix engine, on the vector engine, and of its weights on their way from DDR.
    """
    integers = in_integers(problem.target, problem.dtype)
    needs = Needs.of(problem.graph, problem.dtype, integers=integers)
    readers = [set(c) for c in problem.graph.consumers]
    own = [
        _row(problem, needs, index, operator, readers)
        for index, operator in enumerate(problem.graph.operators)
    ]
    return np.asarray(own, np.float64).reshape(-1, 3)


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
