"""The plan of one setting, decision by decision: plans of many are held against it."""

from __future__ import annotations

from dataclasses import dataclass

from autoturbo.errors import KnobsError
from autoturbo.schedule.clusters import group_for
from autoturbo.schedule.group import GroupRules, SubGraph
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import Workbench
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import BATCH, Share
from tests.schedule.plain_splits import plainly_settled


@dataclass(frozen=True)
class PlainPlan:
    """How clusters share out the work, sub-graphs with their final splits, overrides by index."""

    share: Share
    subgraphs: tuple[SubGraph, ...]
    overrides: dict[int, SubGraphKnobs]


def plainly_planned(bench: Workbench, knobs: Knobs) -> PlainPlan:
    """Return the plan of a setting.

    Raises:
        KnobsError: the setting does not fit the model.
    """
    share = bench.share(knobs.batches_per_cluster, knobs.cluster_split)
    problem = bench.problem(share.batches)
    subgraphs = plainly_grouped(problem, knobs, share.split)
    overrides = plainly_resolved(problem, subgraphs, knobs)
    scale = 1 if knobs.factor_scale == AUTO else int(knobs.factor_scale)
    room = int(problem.cluster_lb_bytes * (1 if knobs.lb_fill == AUTO else float(knobs.lb_fill)))
    settled = tuple(
        plainly_settled(problem, s, scale, overrides.get(s.index), share.split, room)
        for s in subgraphs
    )
    return PlainPlan(share, settled, overrides)


def plainly_grouped(problem: Problem, knobs: Knobs, split: str = BATCH) -> tuple[SubGraph, ...]:
    """Return the sub-graphs of Algorithm 2 with the splits that they are grouped with."""
    return group_for(problem, GroupRules.of(knobs), split)


def plainly_resolved(
    problem: Problem, subgraphs: tuple[SubGraph, ...], knobs: Knobs
) -> dict[int, SubGraphKnobs]:
    """Return the override of each sub-graph that has one: each knob is the last layer's."""
    layers = {layer.name: layer.index for layer in problem.layers}
    unknown = [own.layer for own in knobs.overrides if own.layer not in layers]
    if unknown:
        raise KnobsError(f"the model has no layer {unknown[0]!r}")
    owner = {layer: s.index for s in subgraphs for layer in s.layers}
    found: dict[int, SubGraphKnobs] = {}
    for own in sorted(knobs.overrides, key=lambda o: layers[o.layer]):
        index = owner[layers[own.layer]]
        found[index] = own.over(found[index]) if index in found else own
    return found
