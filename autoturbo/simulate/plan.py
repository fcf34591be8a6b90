"""What is known of a setting's kernels before it is scheduled: statistics of the plan and anchors.

Both follow from single sub-graphs, so that what several settings share is computed once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

import numpy as np

from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import RULE_KNOBS, Workbench, plan, rules_of
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.statistics import STATISTICS, statistics_of
from autoturbo.simulate.alone import ANCHORS, Alone, anchors
from autoturbo.simulate.contract import PlanStatistics

COLUMNS: Final = (*STATISTICS, *ANCHORS)
"""Columns of :attr:`autoturbo.simulate.contract.PlanStatistics.values`."""


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
