from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.search.warm_starts.dp_partition import cheapest_cover

Sets = list[list[int]]


def segments(count: int) -> Sets:
    """Contiguous runs of a chain, by their end."""
    return [[sum(1 << x for x in range(i, j + 1)) for i in range(j + 1)] for j in range(count)]


def every_cover(masks: Sets, left: int) -> list[list[tuple[int, int]]]:
    """All covers by plain recursion over the lowest uncovered layer."""
    if not left:
        return [[]]
    low = left & -left
    found = []
    for end, row in enumerate(masks):
        for index, mask in enumerate(row):
            if mask & low and mask & left == mask:
                found += [[(end, index), *rest] for rest in every_cover(masks, left ^ mask)]
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), st.integers(0, 1000))
def test_a_chain_is_cut_as_cheaply_as_by_trying_all_cuts(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    masks = segments(count)
    costs = [rng.random(len(row)).tolist() for row in masks]
    cover = cheapest_cover(masks, costs)
    assert cover is not None
    cuts = itertools.chain.from_iterable(
        itertools.combinations(range(1, count), n) for n in range(count)
    )
    best = min(
        sum(costs[b - 1][a] for a, b in itertools.pairwise((0, *cut, count))) for cut in cuts
    )
    assert abs(cover.cost - best) < 1e-12
    assert cover.states <= count
    assert cover.exact


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 7), st.integers(0, 1000))
def test_any_sets_are_combined_as_cheaply_as_by_trying_all(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    masks: Sets = [[1 << end] for end in range(count)]
    for end in range(1, count):
        extra = {int(m) | 1 << end for m in rng.integers(0, 1 << end, 3)} - {1 << end}
        masks[end] += sorted(extra)
    costs = [rng.random(len(row)).tolist() for row in masks]
    cover = cheapest_cover(masks, costs)
    assert cover is not None
    ways = every_cover(masks, (1 << count) - 1)
    best = min(sum(costs[e][i] for e, i in way) for way in ways)
    assert abs(cover.cost - best) < 1e-12
    assert abs(sum(costs[e][i] for e, i in cover.sets) - best) < 1e-12
    covered = [masks[e][i] for e, i in cover.sets]
    assert sum(covered) == (1 << count) - 1


def test_no_cover_and_dropped_states_are_said() -> None:
    assert cheapest_cover([[1], []], [[1.0], []]) is None
    masks = [[1], [2], [4], [8, 12, 10, 14]]
    costs = [[1.0], [1.0], [1.0], [1.0, 0.5, 0.25, 9.0]]
    whole = cheapest_cover(masks, costs)
    few = cheapest_cover(masks, costs, most_states=1)
    assert whole is not None
    assert few is not None
    assert whole.exact
    assert not few.exact or few.cost == whole.cost
