"""What is known of a setting's kernels before it is scheduled: statistics of the plan and anchors.

Both follow from single sub-graphs, so that what several settings share is computed once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.interning import Memo, whole_numbers
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import RULE_KNOBS, Workbench, plan, rules_of
from autoturbo.schedule.plan_batch import PlanTable
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.settings_table import KERNEL_KNOBS, value_of_number
from autoturbo.schedule.split import Split, SplitColumn
from autoturbo.schedule.statistics import STATISTICS, part_rows, statistics_of
from autoturbo.schedule.work import Floats
from autoturbo.simulate.alone import (
    ANCHORS,
    RESIDENCE,
    RULE_COLUMNS,
    Alone,
    anchor_rows,
    anchors,
    part_numbers,
    rule_row,
    weights_stay,
)
from autoturbo.simulate.contract import PlanStatistics

COLUMNS: Final = (*STATISTICS, *ANCHORS)
"""Columns of :attr:`autoturbo.simulate.contract.PlanStatistics.values`."""


OWN_COLUMNS: Final = slice(len(STATISTICS) - 3, len(STATISTICS))
"""Of :data:`COLUMNS`, those that follow from the rest of a setting: instances, passes, samples."""

_CORES, _CORE_DIM = KERNEL_KNOBS.index("cores"), KERNEL_KNOBS.index("core_dim")

_RULE_KNOBS: Final = [KERNEL_KNOBS.index(name) for name in RULE_KNOBS if name != "spill_victim"]
"""What spills of a part alone is found with the published victim."""


class PlanKernels:
    """Statistics of the kernels of plans, those of equal kernels found out once.

    Args:
        bench: the model on the target.
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._made: dict[int, Problem] = {}
        self._parts = Memo(6, (len(STATISTICS),), np.float64)
        self._subgraphs = list[SubGraph]()
        self._places = Memo(3, (2,))
        self._rules = Memo(len(_RULE_KNOBS), (RULE_COLUMNS,))
        self._kernels = Memo(2 + RULE_COLUMNS, (len(COLUMNS),), np.float64)

    def _problem(self, samples: int) -> Problem:
        """Return always the same problem: parts are known by the numbers of its books."""
        if samples not in self._made:
            self._made[samples] = self._bench.problem(samples)
        return self._made[samples]

    @property
    def count(self) -> int:
        """How many different kernels are known."""
        return self._kernels.count

    @property
    def statistics(self) -> Floats:
        """Rows of :data:`COLUMNS` by number of a kernel; 0 in :data:`OWN_COLUMNS`."""
        return self._kernels.values

    def parts(self, plans: PlanTable) -> Ints:
        """Return the number of each sub-graph's middle part, equal where what it does is."""
        splits = plans.splits
        cut, inside = splits[:, SplitColumn.AXIS] >= 0, splits[:, SplitColumn.INNER_AXIS] >= 0
        keys = np.column_stack((
            plans.samples, plans.alike, splits[:, SplitColumn.AXIS],
            np.where(cut, np.maximum(splits[:, SplitColumn.FACTOR], 1), 0),
            splits[:, SplitColumn.INNER_AXIS],
            np.where(inside, splits[:, SplitColumn.INNER_FACTOR], 0),
        ))  # fmt: skip

        def make(new: Ints) -> Floats:
            found = np.zeros((len(new), len(STATISTICS)))
            own = [_subgraph(plans, at) for at in new.tolist()]
            self._subgraphs += own
            for problem, mine in self._problems(plans.samples[new]):
                found[mine, : OWN_COLUMNS.start] = part_rows(problem, [own[at] for at in mine])
            return found

        return self._parts.numbers(keys, make)

    def _problems(self, samples: Ints) -> Iterator[tuple[Problem, Ints]]:
        """The problem of each number of samples, and where that number is."""
        for number in np.unique(samples).tolist():
            yield self._problem(number), np.flatnonzero(samples == number)

    def numbers(self, samples: Ints, parts: Ints, knobs: Floats) -> Ints:
        """Return the numbers of kernels, ``(kernels,)``.

        Args:
            samples: of a pass, which follow from the parts.
            parts: of :meth:`parts`.
            knobs: rows of :attr:`autoturbo.schedule.plan_batch.PlanTable.kernel_knobs`.
        """
        places, stays = self._placed(samples, parts, knobs).T
        rules = self._rules_of(samples, knobs)
        rules[:, RESIDENCE] *= stays

        def make(new: Ints) -> Floats:
            found = np.empty((len(new), len(ANCHORS)))
            for problem, mine in self._problems(samples[new]):
                own = new[mine]
                found[mine] = anchor_rows(problem, places[own], rules[own], np.arange(len(own)))
            return np.concatenate((self._parts.values[parts[new]], found), axis=1)

        return self._kernels.numbers(np.column_stack((samples, places, rules)), make)

    def _placed(self, samples: Ints, parts: Ints, knobs: Floats) -> Ints:
        """Numbers of parts laid out alone, and 1 where weights can stay between instances."""
        cores, depths = knobs[:, [_CORES, _CORE_DIM]].astype(np.int64).T
        keys, every = np.column_stack((parts, cores, depths)), self._bench.target.cores

        def make(new: Ints) -> Ints:
            found = np.empty((len(new), 2), np.int64)
            for problem, mine in self._problems(samples[new]):
                wanted = [
                    (self._subgraphs[part], every if said < 0 else said, None if at < 0 else at)
                    for part, said, at in keys[new[mine]].tolist()
                ]
                found[mine, 0] = part_numbers(problem, wanted)
                found[mine, 1] = weights_stay(problem, found[mine, 0])
            return found

        return self._places.of(keys, make)

    def _rules_of(self, samples: Ints, knobs: Floats) -> Ints:
        """Rows of :func:`autoturbo.simulate.alone.rule_row`; all problems have the same rules."""
        own = knobs[:, _RULE_KNOBS]

        def make(new: Ints) -> Ints:
            rows = [_rule_row(self._problem(int(samples[at])), own[at]) for at in new]
            return np.asarray(rows, np.int64)

        return self._rules.of(whole_numbers(own), make)


def _subgraph(plans: PlanTable, at: int) -> SubGraph:
    return SubGraph(0, plans.layers[at], Split.of_row(plans.splits[at].tolist()))


def _rule_row(problem: Problem, numbers: Floats) -> list[int]:
    """The rules of a kernel with some values of :data:`_RULE_KNOBS`."""
    names = (KERNEL_KNOBS[at] for at in _RULE_KNOBS)
    chosen: dict[str, Any] = {
        n: value_of_number(n, v) for n, v in zip(names, numbers.tolist(), strict=True)
    }
    return rule_row(rules_of(problem, Knobs(**chosen)))


def plan_statistics(bench: Workbench, knobs: Knobs) -> PlanStatistics:
    """Statistics of a setting's kernels, one row of :data:`COLUMNS` per sub-graph.

    Raises:
        KnobsError: the setting does not fit the model.
    """
    rows, launches, overrides = statistics_of(bench, knobs)
    problem, _, subgraphs = plan(bench, knobs)
    alone = anchors(problem, _alone(problem, subgraphs, knobs, overrides))
    return PlanStatistics(np.concatenate([rows, alone], axis=1), launches, overrides)


def _alone(
    problem: Problem,
    subgraphs: tuple[SubGraph, ...],
    knobs: Knobs,
    overrides: Mapping[int, SubGraphKnobs],
) -> list[Alone]:
    """The sub-graphs with what their kernels depend on, whatever is around them."""
    cores, common = problem.target.cores, rules_of(problem, knobs)
    found = [Alone(s, common, cores, None) for s in subgraphs]
    for index, own in overrides.items():
        said = {n: v for n in RULE_KNOBS if (v := getattr(own, n)) != AUTO}
        rules = rules_of(problem, dataclasses.replace(knobs, **said)) if said else common
        spread = cores if own.cores == AUTO else int(own.cores)
        depth = None if own.core_dim == AUTO else int(own.core_dim)
        found[index] = Alone(subgraphs[index], rules, spread, depth)
    return found
