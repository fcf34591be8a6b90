"""What is known of a setting's kernels once it is split and grouped: the cost model's raw material.

Far cheaper than a schedule: no instances, bindings or buffers exist yet, and sub-graphs that
several settings share are remembered.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.overrides import resolve
from autoturbo.schedule.part_work import COLUMNS, part_works
from autoturbo.schedule.pipeline import Workbench, planned
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
    problem, share, plan = planned(bench, knobs)
    subgraphs, parts = plan.subgraphs, plan.instances
    rows = np.empty((len(subgraphs), len(STATISTICS)))
    rows[:, :-3] = part_rows(problem, subgraphs)
    rows[:, -3], rows[:, -2], rows[:, -1] = parts, share.loops, share.batches
    return rows, parts * share.loops, resolve(problem, subgraphs, knobs)


def part_rows(problem: Problem, subgraphs: Sequence[SubGraph]) -> Floats:
    """All columns of :data:`STATISTICS` but the last three, of each sub-graph's middle part.

    Remembered.
    """
    keys = [("statistics", s.layers, s.split.axes) for s in subgraphs]
    new = [key for key in dict.fromkeys(keys) if key not in problem.books]
    if new:
        works = part_works(problem, [key[1:] for key in new])
        rooms = np.stack([rooms_of(problem, layers) for _, layers, _ in new])
        problem.books.update(zip(new, np.concatenate((works, rooms), axis=1), strict=True))
    rows = [problem.books[key] for key in keys]
    return np.asarray(rows, np.float64).reshape(len(keys), len(COLUMNS) + len(ROOMS))
