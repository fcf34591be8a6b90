"""Parts of units: every layer once, no way out of a part and back in, as large as may be."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.heterogeneous.parts import Assignment, merge


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[list[int]], list[int], set[int]]:
    """Producers and unit of every layer, and where a cut is asked for."""
    count = draw(st.integers(1, 14))
    producers = [
        sorted(draw(st.sets(st.integers(0, layer - 1), max_size=3))) if layer else []
        for layer in range(count)
    ]
    units = draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
    return producers, units, draw(st.sets(st.integers(0, count - 1), max_size=2))


def order_of(found: Assignment) -> dict[int, int]:
    return {layer: i for i, part in enumerate(found.parts) for layer in part.layers}


@settings(max_examples=30)
@given(networks())
def test_every_layer_is_in_one_part_of_its_unit(
    network: tuple[list[list[int]], list[int], set[int]],
) -> None:
    producers, units, cuts = network
    found = merge(producers, units, cuts)
    assert sorted(layer for part in found.parts for layer in part.layers) == list(range(len(units)))
    assert list(found.units) == units


@settings(max_examples=30)
@given(networks())
def test_every_part_comes_after_what_it_reads_from(
    network: tuple[list[list[int]], list[int], set[int]],
) -> None:
    producers, units, cuts = network
    order = order_of(merge(producers, units, cuts))
    # an order of whole parts exists only where each is convex
    assert all(order[read] <= order[at] for at, reads in enumerate(producers) for read in reads)


@settings(max_examples=30)
@given(networks())
def test_parts_that_could_be_joined_are(
    network: tuple[list[list[int]], list[int], set[int]],
) -> None:
    producers, units, _ = network
    found = merge(producers, units)
    order = order_of(found)
    edges = {(order[r], order[at]) for at, reads in enumerate(producers) for r in reads}
    edges = {(a, b) for a, b in edges if a != b}
    for first, second in edges:
        if found.parts[first].unit == found.parts[second].unit:
            assert _way_around(edges, first, second)


def _way_around(edges: set[tuple[int, int]], first: int, second: int) -> bool:
    reached = {b for a, b in edges if a == first and b != second}
    while True:
        more = {b for a, b in edges if a in reached} - reached
        if not more:
            return second in reached
        reached |= more


def test_a_cut_opens_a_part() -> None:
    chain = [[], [0], [1]]
    assert [p.layers for p in merge(chain, [0, 0, 0]).parts] == [(0, 1, 2)]
    assert [p.layers for p in merge(chain, [0, 0, 0], {1}).parts] == [(0,), (1, 2)]


def test_a_block_whose_branch_runs_elsewhere_stays_in_parts() -> None:
    # 0 -> 1 (other unit) -> 2, and 0 -> 2 directly
    found = merge([[], [0], [0, 1]], [0, 1, 0])
    assert [p.layers for p in found.parts] == [(0,), (1,), (2,)]
