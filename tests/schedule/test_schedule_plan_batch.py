"""Plans of many settings are those of each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.errors import KnobsError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import Workbench, build_schedule
from autoturbo.schedule.plan_batch import plan_batch
from autoturbo.schedule.settings_table import KERNEL_KNOBS, SAME_AS, value_of_number
from autoturbo.schedule.split import Split
from tests.schedule.schedule_samples import chain, networks, settings_of, target, targets


@pytest.mark.full
@settings(max_examples=40, deadline=None)
@given(graph=networks(8), machine=targets(), data=st.data())
def test_plans_are_what_schedules_are_made_of(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    bench = Workbench(graph, machine, "float16")
    names = [layer.name for layer in bench.problem(bench.share().batches).layers]
    each = data.draw(st.lists(settings_of(names, samples=graph.batch + 1), max_size=5))
    table = plan_batch(bench, each)
    assert (np.diff(table.owner) >= 0).all()
    for at, knobs in enumerate(each):
        try:
            schedule = build_schedule(Workbench(graph, machine, "float16"), knobs)
        except KnobsError:
            # what is refused later than a plan is made still has one
            continue
        assert table.possible[at]
        mine = np.flatnonzero(table.owner == at)
        instances = schedule.instances
        assert table.layers[mine].tolist() == [s.layers for s in instances.subgraphs]
        assert [Split.of_row(row) for row in table.splits[mine].tolist()] == [
            s.split for s in instances.subgraphs
        ]
        assert {*table.samples[mine].tolist()} == {schedule.share.batches}
        assert {*table.loops[mine].tolist()} == {schedule.share.loops}
        cluster = np.asarray(schedule.cluster or [0] * instances.count)
        for row, subgraph in zip(mine.tolist(), range(len(mine)), strict=True):
            own = cluster[instances.subgraph == subgraph]
            assert table.instances[row] == np.bincount(own).max()


def test_an_override_holds_for_its_sub_graph_alone() -> None:
    bench = Workbench(chain("conv", "softmax", "conv"), target(), "float16")
    names = [layer.name for layer in bench.problem(bench.share().batches).layers]
    cut = tuple(SubGraphKnobs(name, boundary="cut") for name in names[:1])
    own = SubGraphKnobs(names[-1], cores=2, scope="DDR")
    knobs = Knobs(prefetch_depth=1, overrides=(*cut, own))
    table = plan_batch(bench, [knobs])
    assert len(table.runs) > 1
    for row, run in enumerate(table.runs.tolist()):
        for name, number in zip(KERNEL_KNOBS, table.kernel_knobs[run].tolist(), strict=True):
            model = getattr(knobs, SAME_AS.get(name, name), AUTO)
            said = getattr(own, name) if row == len(table.runs) - 1 else AUTO
            assert value_of_number(name, number) == (model if said == AUTO else said)


def test_a_layer_that_the_model_has_not_makes_its_setting_alone_impossible() -> None:
    bench = Workbench(chain("conv", "softmax"), target(), "float16")
    unknown = Knobs(overrides=(SubGraphKnobs("nowhere", cores=1),))
    table = plan_batch(bench, [Knobs(), unknown, Knobs()])
    assert table.possible.tolist() == [True, False, True]
    assert {*table.owner.tolist()} == {0, 2}
