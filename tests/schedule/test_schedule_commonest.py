"""The most common part without the others is one of those that cutting up gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.graph.operators import Graph
from autoturbo.schedule.commonest import commonest_parts
from autoturbo.schedule.group import GroupRules, SubGraph, group
from autoturbo.schedule.instances import Parts, part_book, parts_of
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.problem import Problem, make_problem
from autoturbo.schedule.split import Split, sink, split_axes
from tests.schedule.schedule_samples import chain, networks, target


def regions(problem: Problem, parts: Parts, at: int) -> list[list[list[int]]]:
    """Of one part, what it makes and what it reads."""
    rows = part_book(problem).regions.rows
    made, read = len(parts.outputs), len(parts.inputs)
    first, second = parts.out_base + at * made, parts.in_base + at * read
    found = [rows[first : first + made], rows[second : second + read]]
    return [region.tolist() for region in found]


@st.composite
def cuts(draw: st.DrawFn, problem: Problem, subgraph: SubGraph) -> Split:
    """Any split of a sub-graph, along up to two axes."""
    axes, extents = split_axes(problem, subgraph.layers), sink(problem, subgraph.layers).axes
    if not axes:
        return Split(-1, 1, 0, 0, 0)
    chosen = draw(st.lists(st.sampled_from(axes), min_size=1, max_size=2, unique=True))
    parts = [draw(st.integers(1, min(extents[axis].extent, 6))) for _, axis in chosen]
    inner = (chosen[1][1], parts[1]) if len(chosen) > 1 else (-1, 1)
    return Split(chosen[0][1], parts[0], chosen[0][0], 0, 0, *inner)


@pytest.mark.full
@settings(max_examples=30, deadline=None)
@given(graph=networks(8), data=st.data())
def test_it_is_the_first_of_the_class_that_has_most(graph: Graph, data: st.DataObject) -> None:
    problem = make_problem(graph, target(lb=512), "float16")
    subgraphs = [
        subgraph.recut(data.draw(cuts(problem, subgraph)))
        for subgraph in group(problem, GroupRules.of(Knobs()))
    ]
    chosen = commonest_parts(problem, subgraphs)
    for subgraph, one in zip(subgraphs, chosen, strict=True):
        every = parts_of(problem, subgraph)
        classes = every.shapes.tolist()
        most = max(classes.count(c) for c in classes)
        first = next(at for at, c in enumerate(classes) if classes.count(c) == most)
        assert one.count == 1
        assert one.shapes.tolist() == [classes[first]]
        assert (one.inputs, one.outputs) == (every.inputs, every.outputs)
        assert regions(problem, one, 0) == regions(problem, every, first)
        assert one.output_bytes.tolist() == [every.output_bytes[first]]


@pytest.mark.full
def test_they_are_cut_once() -> None:
    problem = make_problem(chain("conv", "softmax", "conv"), target(), "float16")
    subgraphs = list(group(problem, GroupRules.of(Knobs())))
    before = commonest_parts(problem, subgraphs)
    count = part_book(problem).regions.count
    again = commonest_parts(problem, [*subgraphs, *subgraphs])
    assert part_book(problem).regions.count == count
    assert all(a is b for a, b in zip(again, [*before, *before], strict=True))
    assert np.unique([p.out_base for p in before]).size == len(before)
