"""Algorithm 2 against all contiguous groupings of short chains, and what is remembered of it."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.schedule.context import SchedulingContext, make_context
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.partition.clusters import group_for
from autoturbo.schedule.partition.grouping import (
    GroupRules,
    Merging,
    SubGraph,
    group,
    groupings,
)
from autoturbo.schedule.partition.split import UNFIT, RuleQueries, best_split
from tests.schedule.schedule_samples import (
    Net,
    networks,
    scheduler_of,
    settings_of,
    target,
    targets,
)


@st.composite
def chains(draw: st.DrawFn) -> Graph:
    """Up to eight layers, each the only reader of the one before."""
    net = Net(x=(draw(st.sampled_from((2, 4, 6))), 4, 16, 16))
    at = "x"
    for _ in range(draw(st.integers(2, 8))):
        channels = draw(st.sampled_from((2, 4, 8)))
        size = net.shapes[at][2]
        stride = draw(st.sampled_from((1, 1, 2))) if size >= 4 else 1
        at = net.conv(at, channels, draw(st.sampled_from((1, 3))), stride)
    return net.graph()


Ends = frozenset[int]
"""A contiguous grouping: the last layer of each sub-graph."""


def merges(context: SchedulingContext, rules: GroupRules, ends: Ends) -> list[Ends]:
    """All groupings that rule (i) allows after one more merge of neighbours."""
    bounds = itertools.pairwise([-1, *sorted(ends)])
    parts = [tuple(range(first + 1, last + 1)) for first, last in bounds]
    found = []
    for before, after in itertools.pairwise(parts):
        producer, consumer, merged = (
            best_split(context, layers, rules).factor for layers in (before, after, before + after)
        )
        allowed = (
            merged != UNFIT
            and consumer >= rules.producer_factor_ratio * producer
            and merged <= rules.merged_factor_ratio * consumer
            and len(before) + len(after) <= rules.max_layers
        )
        if allowed:
            found.append(ends - {before[-1]})
    return found


def last_ones(context: SchedulingContext, rules: GroupRules) -> set[Ends]:
    """All groupings that merges end at, whatever their order."""
    start = frozenset(range(len(context.layers)))
    seen, waiting, found = {start}, [start], set()
    while waiting:
        ends = waiting.pop()
        more = merges(context, rules, ends)
        if not more:
            found.add(ends)
        waiting += [one for one in more if one not in seen]
        seen.update(more)
    return found


@settings(max_examples=15, deadline=None)
@given(
    graph=chains(), lb=st.sampled_from((300, 700, 2000, 8000)),
    ratio=st.sampled_from((1.0, 0.5)), merged=st.sampled_from((1.0, 2.0)),
    most=st.sampled_from((3, 100)),
)  # fmt: skip
def test_chains_end_where_merges_in_some_order_end(
    graph: Graph, lb: int, ratio: float, merged: float, most: int
) -> None:
    context = make_context(graph, target(cores=2, lb=lb), "float16")
    knobs = Knobs(producer_factor_ratio=ratio, merged_factor_ratio=merged, max_layers=most)
    rules = GroupRules.of(knobs)
    subgraphs = group(context, rules)
    assert frozenset(s.layers[-1] for s in subgraphs) in last_ones(context, rules)
    assert [s.split for s in subgraphs] == [best_split(context, s.layers, rules) for s in subgraphs]


# What is remembered


VALUES: dict[str, tuple[Any, ...]] = {
    "producer_factor_ratio": (0, 0.25, 0.5, 1, 2, 0.7),
    "merged_factor_ratio": (0, 0.5, 1, 2, 4, 1.3),
    "recompute_limit": (1, 1.25, 1.5, 4, 1.7),
    "max_layers": (1, 2, 4, 7, 16, 500),
    "lb_occupancy_limit": (0.25, 1),
    "split_key": (
        "operators-factor-depth",
        "factor-operators-depth",
        "depth-operators-factor",
        "operators-depth-factor",
    ),
    "factor_policy": ("published", "divisors", "ragged"),
    "merge_order": ("straight-diamond-branch", "diamond-branch-straight"),
    "split_dims": ("all", "spatial"),
}


def rules_near_each_other(names: list[str], count: int) -> list[GroupRules]:
    """Each differs from one before it in a knob or a boundary or two."""
    rng = np.random.default_rng(0)
    found = [Knobs()]
    while len(found) < count:
        knobs = found[rng.integers(len(found))]
        for _ in range(rng.integers(1, 3)):
            if rng.random() < 0.4:
                layer, said = str(rng.choice(names)), str(rng.choice(["cut", "merge"]))
                kept = [own for own in knobs.overrides if own.layer != layer][-4:]
                overrides = (*kept, SubGraphKnobs(layer, boundary=said))
                knobs = dataclasses.replace(knobs, overrides=overrides)
            else:
                name = str(rng.choice(list(VALUES)))
                value = VALUES[name][rng.integers(len(VALUES[name]))]
                knobs = dataclasses.replace(knobs, **{name: value})
        found.append(knobs)
    return [GroupRules.of(knobs) for knobs in found]


def grouped_anew(context: SchedulingContext, rules: GroupRules) -> tuple[SubGraph, ...]:
    """The sub-graphs, with nothing known of other rules."""
    return Merging(context, rules).subgraphs()


@pytest.mark.parametrize(
    ("workload", "count"),
    [("resnet18", 60), pytest.param("resnet50", 400, marks=pytest.mark.full)],
)
def test_rules_near_each_other_group_as_if_nothing_were_known(workload: str, count: int) -> None:
    like = scheduler_of(workload).context(2)
    context = make_context(like.graph, like.target, like.dtype)
    every = rules_near_each_other([layer.name for layer in context.layers], count)
    for rules in every:
        assert group(context, rules) == grouped_anew(context, rules)
    assert len(groupings(context).runs) < 0.8 * count


@pytest.mark.full
@settings(max_examples=40, deadline=None)
@given(graph=networks(10), machine=targets(), data=st.data())
def test_any_rules_group_as_if_nothing_were_known(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    context = make_context(graph, machine, "float16")
    names = [layer.name for layer in context.layers]
    for _ in range(4):
        rules = GroupRules.of(data.draw(settings_of(names)))
        for kind in ("batch", "spatial", "channel", "pipeline"):
            fresh = make_context(graph, machine, "float16")
            assert group_for(context, rules, kind) == group_for(fresh, rules, kind)


@pytest.mark.parametrize(
    ("value", "low", "high"), [(1, -np.inf, 2), (2 + 1e-12, 2, 2), (3, 2, np.inf)]
)
def test_bounds_are_on_the_side_of_the_threshold_where_the_number_is(
    value: float, low: float, high: float
) -> None:
    asked = RuleQueries(GroupRules(merged_factor_ratio=value))
    asked.side("merged_factor_ratio", 2)
    assert asked.bounds["merged_factor_ratio"] == pytest.approx((low, high), rel=1e-8)
    others = GroupRules(merged_factor_ratio=value, recompute_limit=1e9)
    assert asked.holds(others), "nothing else was asked"
