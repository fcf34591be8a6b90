"""Final splits: what is said of them, and parts for clusters."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.errors import KnobsError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.schedule.context import SchedulingContext, make_context
from autoturbo.schedule.knobs import AUTO, SubGraphKnobs
from autoturbo.schedule.partition.clusters import PARTS, cluster_axis
from autoturbo.schedule.partition.grouping import GroupRules, SubGraph, group
from autoturbo.schedule.partition.overrides import settled, with_need
from autoturbo.schedule.partition.split import SplitRules, sink, split_axes
from tests.schedule.schedule_samples import networks, settings_of, targets


@st.composite
def decisions(draw: st.DrawFn, names: list[str]) -> SubGraphKnobs | None:
    """What is said of a split, often of a layer that is not the last."""
    if draw(st.booleans()):
        return None
    number = st.just(AUTO) | st.integers(1, 6)
    depth = st.just(AUTO) | st.integers(0, 4)
    return SubGraphKnobs(
        draw(st.sampled_from(names)), dim=draw(depth), factor=draw(number),
        inner_dim=draw(depth), inner_factor=draw(number),
    )  # fmt: skip


def grouped(
    graph: Graph, machine: Target, data: st.DataObject
) -> tuple[SchedulingContext, list[SubGraph]]:
    context = make_context(graph, machine, "float16")
    names = [layer.name for layer in context.layers]
    rules = GroupRules.of(data.draw(settings_of(names)))
    return context, list(group(context, rules))


@settings(max_examples=30, deadline=None)
@given(graph=networks(8), machine=targets(), data=st.data())
def test_final_splits_are_what_is_said_where_that_is_possible(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    context, subgraphs = grouped(graph, machine, data)
    names = [layer.name for layer in context.layers]
    for subgraph in subgraphs:
        scale, own = data.draw(st.sampled_from((1, 2, 3))), data.draw(decisions(names))
        room = SplitRules(lb_occupancy_limit=data.draw(st.sampled_from((0.25, 1.0)))).room(context)
        axes, extents = (
            dict(split_axes(context, subgraph.layers)),
            sink(context, subgraph.layers).axes,
        )
        name = context.layers[subgraph.layers[-1]].name
        for kind in ("batch", *PARTS):
            try:
                found = settled(context, subgraph, scale, own, kind, room)
            except KnobsError:
                assert own is not None
                continue
            split = found.split
            assert all(1 <= parts <= extents[axis].extent for axis, parts in split.axes)
            assert {axis for axis, _ in split.axes} <= {*axes.values()}
            over = cluster_axis(context, subgraph.layers, kind) if kind in PARTS else -1
            if over >= 0:
                assert (split.axis, split.factor % context.target.clusters) == (over, 0)
            elif own is None:
                assert split.instances in (
                    subgraph.split.instances,
                    scale * subgraph.split.instances,
                )
            elif own.factor != AUTO and own.inner_factor == AUTO and split != subgraph.split:
                assert name != own.layer or split.instances == own.factor


@settings(max_examples=20, deadline=None)
@given(graph=networks(8), machine=targets(), data=st.data())
def test_clusters_get_the_fewest_parts_that_fit(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    """Of all numbers of parts along the axis that clusters share out."""
    context, subgraphs = grouped(graph, machine, data)
    room, clusters = data.draw(st.integers(0, 4096)), machine.clusters
    for kind in PARTS:
        for subgraph in subgraphs:
            axis = cluster_axis(context, subgraph.layers, kind)
            others = [pair for pair in subgraph.split.axes if pair[0] != axis]
            if axis < 0 or others:
                continue
            found = settled(context, subgraph, 1, None, kind, room).split
            before = dict(subgraph.split.axes).get(axis, 1)
            most = sink(context, subgraph.layers).axes[axis].extent // clusters
            least = min(-(-before // clusters), most)
            doubled = [n for n in (least << at for at in range(6)) if n <= most]
            own = {n: with_need(context, subgraph, (axis, clusters * n)) for n in doubled}
            fitting = [n for n, cut in own.items() if cut.split.footprint <= room]
            assert found.factor == clusters * (fitting[0] if fitting else least)
            assert found.footprint == own[int(found.factor) // clusters].split.footprint
