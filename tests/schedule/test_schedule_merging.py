"""The compiled Algorithm 2 against the plain one."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.schedule.clusters import group_for, rows_for
from autoturbo.schedule.group import GroupRules, group, group_rows, rules_table, subgraph_of
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.problem import make_problem
from tests.schedule.plain_merging import plainly_grouped
from tests.schedule.schedule_samples import bench, networks, settings_of, targets


@settings(max_examples=5, deadline=None)
@given(graph=networks(6), machine=targets(), data=st.data())
def test_networks_are_grouped_as_printed(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    check_grouping(graph, machine, data)


@pytest.mark.full
@settings(max_examples=60, deadline=None)
@given(graph=networks(12), machine=targets(), data=st.data())
def test_larger_networks_are_grouped_as_printed(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    check_grouping(graph, machine, data)


def check_grouping(graph: Graph, machine: Target, data: st.DataObject) -> None:
    problem = make_problem(graph, machine, "float16")
    names = [layer.name for layer in problem.layers]
    for _ in range(3):
        rules = GroupRules.of(data.draw(settings_of(names)))
        assert group(problem, rules) == plainly_grouped(problem, rules)


SETTINGS = (
    Knobs(),
    Knobs(merged_factor_ratio=4, merge_order="dbs", lb_fill=0.5),
    Knobs(producer_factor_ratio=0.25, recompute_limit=4, factor_policy="ragged"),
    Knobs(max_layers=8, merge_order="bds", split_key="fdo", split_dims="spatial"),
)


@pytest.mark.full
@pytest.mark.parametrize("workload", ["resnet50", "googlenet"])
def test_models_are_grouped_as_printed(workload: str) -> None:
    workbench = bench(workload)
    for batches in workbench.batch_choices()[:2]:
        problem = workbench.problem(batches)
        for knobs in SETTINGS:
            rules = GroupRules.of(knobs)
            assert group(problem, rules) == plainly_grouped(problem, rules)


@pytest.mark.full
def test_cuts_and_merges_of_models_are_kept() -> None:
    problem = bench("resnet50").problem(16)
    names = [layer.name for layer in problem.layers]
    own = (*(SubGraphKnobs(n, boundary="cut") for n in names[3:40:7]),)
    forced = (*(SubGraphKnobs(n, boundary="merge") for n in names[5:60:9]),)
    for overrides in (own, forced, own + forced):
        rules = GroupRules.of(Knobs(overrides=overrides))
        assert group(problem, rules) == plainly_grouped(problem, rules)


@pytest.mark.full
@settings(max_examples=20, deadline=None)
@given(graph=networks(10), machine=targets(), data=st.data())
def test_many_rules_at_once_group_as_one_after_another(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    problem = make_problem(graph, machine, "float16")
    names = [layer.name for layer in problem.layers]
    rules = [GroupRules.of(data.draw(settings_of(names))) for _ in range(5)]
    for kind in ("batch", "spatial", "channel", "pipeline"):
        how = group_rows if kind == "batch" else functools.partial(rows_for, split=kind)
        rows, counts = how(problem, rules_table(problem, rules))
        ends = np.cumsum(counts)
        for own, end, count in zip(rules, ends, counts, strict=True):
            fresh = make_problem(graph, machine, "float16")
            alone = group(fresh, own) if kind == "batch" else group_for(fresh, own, kind)
            found = [
                subgraph_of(problem, i, row)
                for i, row in enumerate(rows[end - count : end].tolist())
            ]
            assert tuple(found) == alone
