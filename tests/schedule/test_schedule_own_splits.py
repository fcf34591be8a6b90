"""Final splits by compiled code against plain ones, one at a time and many at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.errors import KnobsError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.schedule.cluster_parts import shared_out
from autoturbo.schedule.clusters import PARTS
from autoturbo.schedule.group import GroupRules, SubGraph, group
from autoturbo.schedule.knobs import AUTO, SubGraphKnobs
from autoturbo.schedule.own_splits import room_for_parts, settled
from autoturbo.schedule.problem import Problem, make_problem
from autoturbo.schedule.split import Split
from tests.schedule.plain_splits import plainly_settled
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


def outcome(how: object, *arguments: object) -> SubGraph | str:
    """The sub-graph, or what is said of why there is none."""
    try:
        return how(*arguments)  # type: ignore[operator,no-any-return]
    except KnobsError as error:
        return str(error).split(" cannot be split ")[1].split(";")[0].split(" (")[0]


def grouped(graph: Graph, machine: Target, data: st.DataObject) -> tuple[Problem, list[SubGraph]]:
    problem = make_problem(graph, machine, "float16")
    names = [layer.name for layer in problem.layers]
    rules = GroupRules.of(data.draw(settings_of(names)))
    return problem, list(group(problem, rules))


@pytest.mark.full
@settings(max_examples=50, deadline=None)
@given(graph=networks(8), machine=targets(), data=st.data())
def test_splits_are_settled_as_the_plain_rules_say(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    problem, subgraphs = grouped(graph, machine, data)
    names = [layer.name for layer in problem.layers]
    for subgraph in subgraphs:
        scale, own = data.draw(st.sampled_from((1, 2, 3))), data.draw(decisions(names))
        room = room_for_parts(problem, data.draw(st.sampled_from((0.25, 1.0))))
        for kind in ("batch", *PARTS):
            given_ = problem, subgraph, scale, own, kind, room
            assert outcome(settled, *given_) == outcome(plainly_settled, *given_)


@pytest.mark.full
@settings(max_examples=20, deadline=None)
@given(graph=networks(8), machine=targets(), data=st.data())
def test_clusters_share_out_many_as_they_share_out_one(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    problem, subgraphs = grouped(graph, machine, data)
    rooms = [data.draw(st.integers(0, 4096)) for _ in subgraphs]
    for kind in PARTS:
        rows = shared_out(problem, subgraphs, kind, rooms).tolist()
        for subgraph, room, row in zip(subgraphs, rooms, rows, strict=True):
            wanted = plainly_settled(problem, subgraph, 1, None, kind, room)
            assert subgraph.recut(Split.of_row(row)) == wanted
