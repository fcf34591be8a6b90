"""What is known of a setting's kernels once it is split and grouped: the cost model's raw material.

Far cheaper than a schedule: no instances, bindings or buffers exist yet, and sub-graphs that
several settings share are remembered.
"""

from __future__ import annotations

import math

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.instances import box_at
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.overrides import resolve
from autoturbo.schedule.part_work import COLUMNS, part_work
from autoturbo.schedule.pipeline import Workbench, homes, plan
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.rooms import ROOMS, rooms_of
from autoturbo.schedule.work import Floats

STATISTICS = (
    *COLUMNS,
    *ROOMS,
    "instances",
    "loops",
    "samples",
)
"""Columns of :func:`statistics_of`: per instance of a sub-graph, the
layers and operators, the work, the bytes of weights, inputs and outputs, the footprint in the local
buffers of a cluster and the largest tensor; what its tensors can be kept in
(:data:`autoturbo.schedule.rooms.ROOMS`); then instances per pass of the cluster that has most of
them, passes, samples per pass."""


def statistics_of(bench: Workbench, knobs: Knobs) -> tuple[Floats, Ints, dict[int, SubGraphKnobs]]:
    """Rows of :data:`STATISTICS`, one per sub-graph, launches by one cluster, and overrides by row.

    Where clusters do not work alike: by the cluster that launches it most.

    Raises:
        KnobsError: the setting does not fit the model.
    """
    problem, share, subgraphs = plan(bench, knobs)
    rows = np.empty((len(subgraphs), len(STATISTICS)))
    parts = np.asarray([s.split.instances for s in subgraphs], np.int64)
    if shared := homes(bench, knobs):
        parts = -(-parts // np.asarray(shared, np.int64)[:, 1])
    for subgraph, own in zip(subgraphs, parts.tolist(), strict=True):
        rows[subgraph.index, :-3] = part_row(problem, subgraph)
        rows[subgraph.index, -3:] = (own, share.loops, share.batches)
    return rows, parts * share.loops, resolve(problem, subgraphs, knobs)


def part_row(problem: Problem, subgraph: SubGraph) -> Floats:
    """All columns of :data:`STATISTICS` but the last three, of a sub-graph's middle part."""
    key = ("statistics", subgraph.layers, subgraph.split.axes)
    found = problem.memory.get(key)
    if not isinstance(found, np.ndarray):
        middle = math.prod(parts for _, parts in subgraph.split.axes) // 2
        cut = box_at(problem, subgraph.layers, subgraph.split, middle)
        work = part_work(problem, subgraph.layers, cut)
        found = np.concatenate((work, rooms_of(problem, subgraph.layers)))
        problem.memory[key] = found
    return found
