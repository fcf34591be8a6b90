"""Orders of numbers after what they need: each complete and topological, first what it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.graph.ordering import (
    back_from,
    in_topological_order,
    least_live_first,
    longest_path_first,
)

Needs = list[list[int]]


@st.composite
def needs_of(draw: st.DrawFn) -> Needs:
    """Random numbers, each of which needs some before it."""
    count = draw(st.integers(1, 12))
    return [
        sorted(draw(st.sets(st.integers(0, number - 1), max_size=3))) if number else []
        for number in range(count)
    ]


@given(needs=needs_of(), data=st.data())
def test_every_order_is_topological_and_complete(needs: Needs, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=len(needs), max_size=len(needs)))
    for order in (
        in_topological_order(needs, sizes)[0],
        back_from(range(len(needs)), needs),
        longest_path_first(needs, sizes),
        least_live_first(needs, sizes),
    ):
        place = {number: at for at, number in enumerate(order)}
        assert sorted(order) == list(range(len(needs)))
        assert all(place[n] < place[number] for number, some in enumerate(needs) for n in some)


DIAMOND: Needs = [[], [0], [0], [1], [3, 2]]
"""0 is read by 1, which 3 reads, and by 2; 4 reads 3 and 2."""


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        (back_from([4], DIAMOND), [0, 1, 3, 2, 4]),
        (back_from([2, 4], DIAMOND), [0, 2, 1, 3, 4]),
        (in_topological_order(DIAMOND, [0, 9, 1, 0, 0])[0], [0, 2, 1, 3, 4]),
        (longest_path_first(DIAMOND, [1, 1, 1, 1, 1]), [0, 1, 2, 3, 4]),
        (longest_path_first(DIAMOND, [1, 1, 9, 1, 1]), [0, 2, 1, 3, 4]),
        (least_live_first(DIAMOND, [5, 4, 1, 1, 1]), [0, 2, 1, 3, 4]),
        (least_live_first(DIAMOND, [5, 1, 4, 1, 1]), [0, 1, 2, 3, 4]),
    ],
)
def test_which_goes_first(order: list[int], wanted: list[int]) -> None:
    assert order == wanted


@given(needs=needs_of(), data=st.data())
def test_the_next_is_always_one_after_which_least_is_live(
    needs: Needs, data: st.DataObject
) -> None:
    """What is chosen grows what is live no more than anything else that is ready."""
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=len(needs), max_size=len(needs)))
    done: set[int] = set()

    def live(after: set[int]) -> int:
        waiting = {n for number, some in enumerate(needs) if number not in after for n in some}
        unread = set(range(len(needs))) - {n for some in needs for n in some}
        return sum(sizes[number] for number in after & (waiting | unread))

    for number in least_live_first(needs, sizes):
        ready = [n for n, some in enumerate(needs) if n not in done and done.issuperset(some)]
        assert live(done | {number}) == min(live(done | {other}) for other in ready)
        done.add(number)
