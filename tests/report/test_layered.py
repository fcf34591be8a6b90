"""Layered drawings: everything lies below what it reads, and nothing on anything else."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.report.layered import MOST_ABREAST, Drawing, Edge, Place, drawing_of


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[Edge]]:
    """Nodes in topological order with edges forward."""
    count = draw(st.integers(1, 14))
    pairs = list(itertools.combinations(range(count), 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=30)) if pairs else []
    return count, edges


def boxes(drawing: Drawing) -> dict[int, Place]:
    return {place.node: place for place in drawing.centres if not place.is_lane}


def reached(drawing: Drawing, node: int) -> set[int]:
    """Boxes that the lines of one lead to, from one rank to the next."""
    found, following = set(), [boxes(drawing)[node]]
    while following:
        here = following.pop()
        for there in drawing.steps[here]:
            assert there.rank == here.rank + 1
            if there.is_lane:
                assert there.node == node
                following.append(there)
            else:
                found.add(there.node)
    return found


@given(graphs())
def test_lines_lead_to_readers_and_to_no_others(graph: tuple[int, list[Edge]]) -> None:
    count, edges = graph
    drawing = drawing_of(count, edges)
    assert set(boxes(drawing)) == set(range(count))
    for node in range(count):
        assert reached(drawing, node) == {reader for maker, reader in edges if maker == node}


@given(graphs())
def test_nothing_lies_on_anything_else(graph: tuple[int, list[Edge]]) -> None:
    """Lanes beside boxes: no edge runs behind one."""
    drawing = drawing_of(*graph)
    rows: dict[int, list[Place]] = defaultdict(list)
    for place in drawing.centres:
        rows[place.rank].append(place)
    assert set(rows) == set(range(drawing.ranks))
    for row in rows.values():
        assert sum(not place.is_lane for place in row) <= MOST_ABREAST
        row.sort(key=lambda place: drawing.centres[place])
        for one, two in itertools.pairwise(row):
            apart = drawing.centres[two] - drawing.centres[one]
            assert apart > (one.width + two.width) / 2 - 1e-9
        assert drawing.centres[row[0]] - row[0].width / 2 > -1e-9
        assert drawing.centres[row[-1]] + row[-1].width / 2 < drawing.width + 1e-9


def test_a_chain_is_straight_and_its_shortcut_goes_beside_it() -> None:
    chain = [(node, node + 1) for node in range(5)]
    drawing = drawing_of(6, [*chain, (0, 4)])
    own = boxes(drawing)
    assert [own[node].rank for node in range(6)] == list(range(6))
    centres = [drawing.centres[own[node]] for node in range(6)]
    assert centres == pytest.approx([centres[0]] * 6, abs=0.01)
    lanes = [drawing.centres[place] for place in drawing.centres if place.is_lane]
    assert lanes == pytest.approx([lanes[0]] * 3, abs=0.01)


def test_many_inputs_stand_in_several_ranks() -> None:
    drawing = drawing_of(28, [(node, 27) for node in range(27)])
    assert drawing.ranks == -(-27 // MOST_ABREAST) + 1
    assert drawing.width < 10


def test_what_is_needed_late_stands_low() -> None:
    """A constant that the last box reads stands right above it."""
    drawing = drawing_of(6, [(0, 5), (1, 2), (2, 3), (3, 4), (4, 5)])
    own = boxes(drawing)
    assert own[0].rank == own[5].rank - 1


def test_nothing_is_drawn_of_nothing() -> None:
    assert drawing_of(0, []) == Drawing({}, {}, 0, 0.0)
