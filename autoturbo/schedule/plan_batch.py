"""Plans of several settings: which sub-graphs they have, how each is cut and run.

What settings make of a model before instances exist: a cost model sees the plans of all candidates
of a search. Each is planned as the setting that a schedule is built from
(:func:`autoturbo.schedule.pipeline.planned`); what plans have in common is found out once.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoturbo.errors import KnobsError
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.alike import number_of
from autoturbo.schedule.cache import Plan, PlanRows
from autoturbo.schedule.knobs import AUTO, Knobs, Value
from autoturbo.schedule.overrides import resolve
from autoturbo.schedule.pipeline import Workbench, planned
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import Share
from autoturbo.schedule.settings_table import KERNEL_KNOBS, SAME_AS, number_of_value
from autoturbo.schedule.split import SplitColumn
from autoturbo.schedule.work import Flags, Floats

KernelKnobs = tuple[Value, ...]
"""Values of :data:`autoturbo.schedule.settings_table.KERNEL_KNOBS`."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanTable:
    """Sub-graphs of settings that fit the model, those of each in topological order.

    All but the last two have one entry per sub-graph, setting after setting.

    Attributes:
        owner: position of its setting, ascending.
        samples: that a cluster processes at once, which tells its problem.
        loops: passes of a cluster.
        layers: its layers' indices, a tuple of each.
        alike: the same number for isomorphic sub-graphs.
        splits: rows of :class:`autoturbo.schedule.split.SplitColumn`.
        instances: per pass, of the cluster that has most of them.
        runs: position in ``kernel_knobs`` of the knobs that hold for its kernel.
        kernel_knobs: numbers of values of
            :data:`autoturbo.schedule.settings_table.KERNEL_KNOBS`: the override's, or the model's
            where it has none.
        possible: per setting, whether it fits the model.
    """

    owner: Ints
    samples: Ints
    loops: Ints
    layers: NDArray[np.object_]
    alike: Ints
    splits: Ints
    instances: Ints
    runs: Ints
    kernel_knobs: Floats
    possible: Flags


def plan_batch(bench: Workbench, settings: Sequence[Knobs]) -> PlanTable:
    """Return the plans of settings, in order."""
    numbers: dict[KernelKnobs, int] = {}
    owners, shares, rows = list[int](), list[Share](), list[PlanRows]()
    runs = list[int]()
    for at, knobs in enumerate(settings):
        try:
            problem, share, plan = planned(bench, knobs)
        except KnobsError:
            continue
        owners.append(at)
        shares.append(share)
        rows.append(bench.cache.rows.get(plan.number, functools.partial(_rows, problem, plan)))
        runs += _runs(problem, knobs, plan, numbers)
    counts = [len(own.alike) for own in rows]
    possible = np.zeros(len(settings), np.bool_)
    possible[owners] = True
    return PlanTable(
        np.repeat(np.asarray(owners, np.int64), counts),
        np.repeat(np.asarray([share.batches for share in shares], np.int64), counts),
        np.repeat(np.asarray([share.loops for share in shares], np.int64), counts),
        _joined([own.layers for own in rows], np.zeros(0, np.object_)),
        _joined([own.alike for own in rows], np.zeros(0, np.int64)),
        _joined([own.splits for own in rows], np.zeros((0, len(SplitColumn)), np.int64)),
        _joined([own.instances for own in rows], np.zeros(0, np.int64)),
        np.asarray(runs, np.int64), _numbers(numbers), possible,
    )  # fmt: skip


def _joined(arrays: Sequence[NDArray[np.generic]], none: NDArray[np.generic]) -> NDArray[Any]:
    return np.concatenate([none, *arrays])


def _rows(problem: Problem, plan: Plan) -> PlanRows:
    """Return what :class:`PlanTable` says of a plan's sub-graphs."""
    subgraphs = plan.subgraphs
    return PlanRows(
        np.fromiter((s.layers for s in subgraphs), np.object_, len(subgraphs)),
        np.asarray([number_of(problem, s.layers) for s in subgraphs], np.int64),
        np.asarray([s.split.row for s in subgraphs], np.int64), plan.instances,
    )  # fmt: skip


def _runs(problem: Problem, knobs: Knobs, plan: Plan, numbers: dict[KernelKnobs, int]) -> list[int]:
    """Return the number of each sub-graph's kernel knobs; new ones are numbered."""
    model = tuple(getattr(knobs, SAME_AS.get(name, name), AUTO) for name in KERNEL_KNOBS)
    found = [numbers.setdefault(model, len(numbers))] * len(plan.subgraphs)
    for index, own in resolve(problem, plan.subgraphs, knobs).items():
        said = (getattr(own, name) for name in KERNEL_KNOBS)
        both = tuple(v if v != AUTO else m for v, m in zip(said, model, strict=True))
        found[index] = numbers.setdefault(both, len(numbers))
    return found


def _numbers(kernels: Iterable[KernelKnobs]) -> Floats:
    """Return kernel knobs as numbers, one row each."""
    rows = [list(map(number_of_value, KERNEL_KNOBS, own)) for own in kernels]
    return np.asarray(rows, np.float64).reshape(len(rows), len(KERNEL_KNOBS))
