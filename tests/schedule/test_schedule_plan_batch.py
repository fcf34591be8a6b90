"""Plans of many settings are those of each, decision by decision."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.errors import KnobsError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import Workbench
from autoturbo.schedule.plan_batch import PlanTable, plan_batch
from autoturbo.schedule.settings_table import (
    KERNEL_KNOBS,
    SAME_AS,
    SettingsTable,
    value_of_number,
)
from autoturbo.schedule.split import Split, SplitColumn
from tests.schedule.plain_plans import PlainPlan, plainly_planned
from tests.schedule.schedule_samples import chain, networks, settings_of, target, targets


def without_name(own: SubGraphKnobs | None) -> SubGraphKnobs:
    return SubGraphKnobs("") if own is None else dataclasses.replace(own, layer="")


def planned_or_why(bench: Workbench, knobs: Knobs) -> PlainPlan | str:
    """The plan, or why there is none."""
    try:
        return plainly_planned(bench, knobs)
    except KnobsError as error:
        return str(error)


def check(knobs: Knobs, plan: PlainPlan, table: PlanTable, mine: list[int]) -> None:
    """The sub-graphs of one setting against its plain plan."""
    assert len(mine) == len(plan.subgraphs)
    for at, expected in zip(mine, plan.subgraphs, strict=True):
        own = plan.overrides.get(expected.index)
        assert table.layers[at] == expected.layers
        split = Split.of_row(table.splits[at].tolist())
        if table.splits[at, SplitColumn.FOOTPRINT] < 0:
            split = split.needing(expected.split.footprint)
        assert split == expected.split
        assert (table.samples[at], table.loops[at]) == (plan.share.batches, plan.share.loops)
        assert table.owns[table.own[at]] == without_name(own)
        for name, number in zip(KERNEL_KNOBS, table.kernel_knobs[table.runs[at]], strict=True):
            value = AUTO if own is None else getattr(own, name)
            model = getattr(knobs, SAME_AS.get(name, name), AUTO)
            assert value_of_number(name, float(number)) == (model if value == AUTO else value)


@pytest.mark.full
@settings(max_examples=40, deadline=None)
@given(graph=networks(8), machine=targets(), data=st.data())
def test_plans_of_many_settings_are_those_of_each(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    bench = Workbench(graph, machine, "float16")
    names = [layer.name for layer in bench.problem(bench.share().batches).layers]
    each = data.draw(st.lists(settings_of(names, samples=graph.batch + 1), max_size=5))
    table = plan_batch(bench, SettingsTable.of(each))
    assert (np.diff(table.owner) >= 0).all()
    for at, knobs in enumerate(each):
        plan = planned_or_why(bench, knobs)
        assert table.possible[at] == isinstance(plan, PlainPlan) == (at not in table.errors)
        if isinstance(plan, PlainPlan):
            check(knobs, plan, table, np.flatnonzero(table.owner == at).tolist())
        else:
            assert plan in str(table.errors[at])


def test_a_layer_that_the_model_has_not_is_the_error_of_its_setting_alone() -> None:
    bench = Workbench(chain("conv", "softmax"), target(), "float16")
    unknown = Knobs(overrides=(SubGraphKnobs("nowhere", cores=1),))
    table = plan_batch(bench, SettingsTable.of([Knobs(), unknown, Knobs()]))
    assert table.possible.tolist() == [True, False, True]
    assert {*table.owner.tolist()} == {0, 2}
    assert "'nowhere'" in str(table.errors[1])
