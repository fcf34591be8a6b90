"""Choices of many sub-graphs at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from autoturbo.cost_models.predictions import Prediction
from autoturbo.search.constants import Screening
from autoturbo.search.encoding import START, Genes
from autoturbo.search.evolution import Advice, propose
from autoturbo.search.group_screening import (
    Changes,
    begun,
    changes_of,
    composed,
    designs,
    together,
)
from autoturbo.search.space import Space
from autoturbo.search.surrogates.surrogate import ScoredCandidate, idle_trials
from tests.search.space_samples import block, large_space, small_spaces, space_of, started_space

SCREENING = Screening()


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def none_of(space: Space) -> Genes:
    return np.zeros((0, len(space.dimensions)), np.int64)


def designed(space: Space, changes: Changes, count: int) -> Genes:
    """Designs where nothing is expected of any choice."""
    return designs(space, changes, np.zeros(len(changes.points)), count, roomy, SCREENING)


def roomy(points: Genes) -> NDArray[np.float64]:
    """What may be optimistic where no change is in another's way."""
    return np.zeros(len(points))


def plain(cost: Callable[[Genes], NDArray[np.float64]]) -> Callable[[Genes], Prediction]:
    """Looks that know no more than what is expected."""
    return lambda points: Prediction.plain(points, cost(points))


def blocks_moved(space: Space, point: Genes, base: Genes) -> list[int]:
    """Units in which two points differ; 0 is the model."""
    return sorted({int(unit) for unit in space.unit_of[point != base]})


@settings(deadline=None, max_examples=25)
@given(small_spaces(), st.integers(0, 1000))
def test_changes_are_all_points_with_another_choice(space: Space, seed: int) -> None:
    base = space.random(rng(seed), 1)[0]
    found = changes_of(space, base, none_of(space))
    mine = {tuple(p): b for p, b in zip(found.points.tolist(), found.blocks.tolist(), strict=True)}
    assert len(mine) == len(found.points)
    assert (space.normal(found.points) == found.points).all()
    for point, own in mine.items():
        moved = blocks_moved(space, np.asarray(point), base)
        assert own in moved
        assert own == 0 or moved == [own]
    for near in space.neighbours(base.tolist()):
        moved, changed = blocks_moved(space, near, base), np.flatnonzero(near != base)
        if len(changed) == 1 and moved != []:
            assert mine[tuple(near.tolist())] == moved[0]


def test_a_block_is_there_with_one_choice_in_place_of_all_and_with_none() -> None:
    space = space_of({}, block(cores=(2, 1), scope=("GB",), prefetch_depth=(2, 4)))
    found = changes_of(space, np.asarray([1, 1, 0]), none_of(space))
    beside = {(0, 1, 0), (2, 1, 0), (1, 0, 0), (1, 1, 1), (1, 1, 2)}
    alone = {(0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 2)}
    assert {tuple(p) for p in found.points.tolist()} == beside | alone


def test_a_change_counts_the_measured_points_that_had_its_choice() -> None:
    space = space_of({}, block(scope=("GB",), cores=(2, 1)))
    base = np.asarray([0, 0])
    found = changes_of(space, base, np.asarray([[0, 1], [1, 1], [2, 0]]))
    tried = {tuple(p): t for p, t in zip(found.points.tolist(), found.tried.tolist(), strict=True)}
    names = [d.name.rsplit(":", 1)[1] for d in space.dimensions]
    assert names == ["cores", "scope"]
    assert tried == {(1, 0): 1, (2, 0): 1, (0, 1): 2}


def test_blocks_take_turns_in_designs() -> None:
    blocks = [block((name,), cores=(2, 1), scope=("GB",)) for name in ("a", "b", "c")]
    space = space_of({"max_layers": (2,)}, *blocks)
    base = np.zeros(len(space.dimensions), np.int64)
    changes = changes_of(space, base, none_of(space))
    hopes = np.arange(len(changes.points), dtype=np.float64)
    made = designs(space, changes, hopes, 6, roomy, SCREENING)
    assert [blocks_moved(space, p, base) for p in made] == [[1, 3], [2]] * 3
    (one,) = designs(space, changes, hopes, 1, roomy, SCREENING)
    assert blocks_moved(space, one, base) == [1, 3]
    # one block has no neighbour that could be left alone
    alone = space_of({}, block(cores=(2, 1), scope=("GB",)))
    changes = changes_of(alone, np.zeros(2, np.int64), none_of(alone))
    assert len(alone.distinct(designs(alone, changes, np.arange(3.0), 3, roomy, SCREENING))) == 3


def test_a_change_that_takes_the_room_of_those_before_it_is_left_out_of_a_design() -> None:
    blocks = [block((name,), cores=(2, 1), scope=("GB",)) for name in ("a", "b", "c")]
    space = space_of({}, *blocks)
    base = np.zeros(len(space.dimensions), np.int64)
    changes = changes_of(space, base, none_of(space))
    hopes = np.arange(len(changes.points), dtype=np.float64)

    def crowded(points: Genes) -> NDArray[np.float64]:
        """The first and the third block want the same room."""
        first, third = ((points[:, space.unit_of == b] > 0).any(axis=1) for b in (1, 3))
        return np.where(first & third, 2.0 * SCREENING.crowded_share, 0.0)

    made = designs(space, changes, hopes, 6, crowded, SCREENING)
    assert [blocks_moved(space, p, base) for p in made] == [[1], [2]] * 3


def test_of_a_kind_one_is_left_and_nothing_that_changes_nothing() -> None:
    space = space_of({"max_layers": (2,)}, block(cores=(2, 1), scope=("GB",)))
    base = np.asarray([0, 0, 0])
    measured = np.asarray([[0, 1, 0], [0, 2, 0], [0, 2, 0]])
    changes = changes_of(space, base, measured)
    assert changes.points.tolist() == [[1, 0, 0], [0, 1, 0], [0, 2, 0], [0, 0, 1]]
    left, kept = changes.distinct(["as it is", "as it is", "new", "new", "as it is"])
    assert kept.tolist() == [0, 1]  # what the model's choices do not change may be a tie only
    assert left.points.tolist() == [[1, 0, 0], [0, 1, 0]]
    assert left.tried.tolist() == [0, 3]
    assert left.blocks.tolist() == [0, 1]


def test_what_might_be_best_is_tried_before_what_is_expected_to_be() -> None:
    space = large_space()
    base = none_of(space).sum(axis=0)
    history = [ScoredCandidate(tuple(base.tolist()), 1.0)]
    cost = costs_of(space, 0)
    named = [d.name for d in space.dimensions]
    wanted = [named.index(next(n for n in named if n.startswith("subgraph:"))), 1]

    def look(points: Genes) -> Prediction:
        # one choice might halve it, though it is expected to double it
        has = points[:, wanted[0]] == wanted[1]
        expected = cost(points) + 1000.0 * has
        return Prediction(expected, expected - 1500.0 * has, list(map(tuple, points.tolist())))

    made = together(space, history, 4, 0, look, SCREENING)
    first = [point[wanted[0]] == wanted[1] for point in made.tolist()]
    assert any(first)
    assert not any(
        p[wanted[0]] == wanted[1] for p in together(space, history, 4, 0, plain(cost), SCREENING)
    )


def test_starts_come_first_as_they_are() -> None:
    space, cost = started_space(), costs_of(started_space(), 3)
    at = [d.name for d in space.dimensions].index(START)
    batch = propose(space, rng(), [], set(), count=16, advice=Advice(cost))
    expected = np.zeros((len(space.starts) - 1, len(space.dimensions)), np.int64)
    expected[:, at] = range(1, len(space.starts))
    assert [list(point) for point in batch[: len(expected)]] == expected.tolist()
    assert len(set(batch)) == 16


def test_nothing_is_begun_at_places_that_are_expected_to_be_far_behind() -> None:
    space = started_space()
    at = [d.name for d in space.dimensions].index(START)
    points = np.zeros((3, len(space.dimensions)), np.int64)
    points[:, at] = [0, 1, 2]
    own = np.flatnonzero(space.unit_of > 0)

    def expected(genes: Genes) -> NDArray[np.float64]:
        behind = np.asarray([0.0, 0.1, 0.5])[genes[:, at]]
        return np.asarray(behind - 1e-3 * (genes[:, own] > 0).sum(axis=1), np.float64)

    assert begun(space, points, expected, SCREENING)[:, at].tolist() == [0, 1]


def test_a_start_that_is_far_behind_as_it_is_need_not_be_with_a_choice() -> None:
    space = started_space()
    at = [d.name for d in space.dimensions].index(START)
    samples = [d.name for d in space.dimensions].index("batches_per_cluster")
    own = [np.flatnonzero(space.unit_of == unit)[0] for unit in (1, 2)]

    def begun_at(points: Genes, gain: float) -> list[list[int]]:
        def expected(genes: Genes) -> NDArray[np.float64]:
            """All but the second start are far behind; a choice for a block of theirs helps."""
            behind = np.where(genes[:, at] == 1, 0.0, 2.0)
            helped = (genes[:, own] > 0).any(axis=1) & (genes[:, at] != 1)
            return np.asarray(behind - gain * helped, np.float64)

        made = begun(space, points, expected, SCREENING)[:, [at, samples]]
        found: list[list[int]] = made.tolist()
        return found

    starts = np.zeros((2, len(space.dimensions)), np.int64)
    starts[1, at] = 1
    near = 2.0 - 0.9 * np.log1p(SCREENING.far_share)
    assert begun_at(starts, near) == [[0, 0]]
    assert begun_at(starts, 2.0 - 1.1 * np.log1p(SCREENING.far_share)) == []
    # what is no start is looked at only where it is the best as it is
    other = starts.copy()
    other[0, samples] = 1
    assert begun_at(other, near) == []


@pytest.mark.parametrize("space", [large_space(), started_space()], ids=["blocks", "starts"])
def test_designs_change_blocks_until_each_choice_was_tried_often_enough(space: Space) -> None:
    base = none_of(space).sum(axis=0)
    if len(space.starts) > 1:
        base[[d.name for d in space.dimensions].index(START)] = 1
    measured = base[None]
    changes = changes_of(space, base, measured)
    assert (changes.blocks > 0).any()
    for _ in range(200):
        made = designed(space, changes_of(space, base, measured), 4)
        if not len(made):
            break
        assert (space.normal(made) == made).all()
        first = blocks_moved(space, made[0], base)
        assert 0 not in first
        measured = np.concatenate([measured, made])
    else:
        pytest.fail("designs never end")
    left = changes_of(space, base, measured)
    assert (left.tried[left.blocks > 0] >= SCREENING.screened_trials).all()
    # blocks take turns: twice as many as the block with most choices has, not one for each choice
    most = np.bincount(changes.blocks)[1:].max()
    assert len(measured) <= 1 + 2 * SCREENING.screened_trials * most + 4


def test_the_first_designs_change_every_other_block() -> None:
    space = large_space()
    base = none_of(space).sum(axis=0)
    changes = changes_of(space, base, base[None])
    made = designed(space, changes, 6)
    assert [blocks_moved(space, point, base) for point in made] == [[1], [2]] * 3


def test_the_most_promising_come_first_until_they_were_tried_often_enough() -> None:
    space = space_of({}, block(cores=(2, 1), scope=("GB",)))
    base = np.asarray([0, 0])
    promise = {(1, 0): 3.0, (2, 0): 1.0, (0, 1): 2.0}

    def made(*tried: tuple[int, int]) -> list[tuple[int, ...]]:
        changes = changes_of(space, base, np.asarray(tried or np.zeros((0, 2)), np.int64))
        hopes = np.asarray([promise[a, b] for a, b in changes.points.tolist()])
        return [tuple(p) for p in designs(space, changes, hopes, 3, roomy, SCREENING).tolist()]

    assert made() == made((2, 0)) == [(2, 0), (0, 1), (1, 0)]
    assert made((2, 0), (2, 0)) == [(0, 1), (1, 0)]


def costs_of(space: Space, seed: int) -> Callable[[Genes], NDArray[np.float64]]:
    """A landscape on which every choice adds its own."""
    tables = [
        np.random.default_rng([seed, i]).normal(size=w) for i, w in enumerate(space.widths.tolist())
    ]

    def cost(genes: Genes) -> NDArray[np.float64]:
        columns = [table[genes[:, i]] for i, table in enumerate(tables)]
        return np.asarray(np.sum(columns, axis=0) + 1000.0, np.float64)

    return cost


@pytest.mark.parametrize("seed", [0, 2])
def test_put_together_are_the_best_choices_of_all_blocks(seed: int) -> None:
    space = large_space()
    base, cost = none_of(space).sum(axis=0), costs_of(large_space(), seed)
    changes = changes_of(space, base, base[None])
    scores, least = cost(changes.points), float(cost(base[None])[0])
    found = composed(space, changes, [scores], least, cost)
    gains = [
        min(scores[changes.blocks == b].min() - least, 0) for b in set(changes.blocks.tolist())
    ]
    assert cost(found)[0] == pytest.approx(least + sum(gains))
    assert len(composed(space, changes, [scores], float(scores.min()), cost)) == 0


@pytest.mark.parametrize("seed", range(2))
def test_choices_that_are_good_alone_and_bad_together_are_not_put_together(seed: int) -> None:
    space = large_space()
    base, alone = none_of(space).sum(axis=0), costs_of(large_space(), seed)

    def crowded(genes: Genes) -> NDArray[np.float64]:
        """There is room for the choices of one block; two cost more than either gains."""
        one, other = ((genes[:, space.unit_of == b] > 0).any(axis=1) for b in (1, 2))
        return np.asarray(alone(genes) + 100.0 * (one & other), np.float64)

    changes = changes_of(space, base, base[None])
    scores, least = crowded(changes.points), float(crowded(base[None])[0])
    own = np.where(changes.blocks > 0, scores, np.inf)
    found = composed(space, changes, [own], least, crowded)
    assert all((own[changes.blocks == b] < least).any() for b in (1, 2))
    assert crowded(found)[0] == own.min()


def test_a_choice_that_brings_nothing_beside_another_is_left_out() -> None:
    space = space_of({}, block(("a",), scope=("GB",)), block(("b",), scope=("GB",)))
    base = np.zeros(len(space.dimensions), np.int64)

    def either(genes: Genes) -> NDArray[np.float64]:
        """One of the two gains all that there is to gain."""
        return np.where((genes > 0).any(axis=1), 1.0, 2.0)

    changes = changes_of(space, base, base[None])
    (found,) = composed(space, changes, [either(changes.points)], 2.0, either)
    assert len(blocks_moved(space, found, base)) == 1


def test_much_of_a_batch_works_on_all_blocks_at_once_and_is_new() -> None:
    space, cost = large_space(), costs_of(large_space(), 1)
    points = space.distinct(space.random(rng(), 200))[:40]
    history = [
        ScoredCandidate(tuple(p), float(c))
        for p, c in zip(points.tolist(), cost(points), strict=True)
    ]
    best = np.asarray(min(history, key=lambda t: t.score or 0.0).genes)
    batch = propose(
        space, rng(), history, set(), count=16, advice=Advice(lambda genes: np.log(cost(genes)))
    )
    assert len(set(batch)) == 16
    assert not {t.genes for t in history} & set(batch)
    moved = [blocks_moved(space, np.asarray(p), best) for p in batch]
    assert len([units for units in moved if units and 0 not in units]) >= 6
    own = together(space, history, 6, 0, plain(cost), SCREENING)
    assert cost(own[:1])[0] < cost(best[None])[0] - 1


def test_where_nothing_was_gained_for_long_all_blocks_change_at_once_by_turns() -> None:
    space = space_of({}, *(block((name,), cores=(2, 1), scope=("GB",)) for name in "abc"))
    base = np.zeros(len(space.dimensions), np.int64)

    def worse(points: Genes) -> NDArray[np.float64]:
        return np.asarray(1e-3 * (points > 0).sum(axis=1), np.float64)

    def moved(idle: int, turn: int) -> list[list[int]]:
        history = [ScoredCandidate(tuple(base.tolist()), 1.0)] * (1 + idle)
        made = together(space, history, 4, turn, plain(worse), SCREENING)
        return [blocks_moved(space, point, base) for point in made]

    other, every = [[1, 3], [2]] * 2, [[1, 2, 3]] * 3  # a block has three choices
    assert [moved(SCREENING.stale_trials - 1, turn) for turn in range(4)] == [other] * 4
    assert [moved(SCREENING.stale_trials, turn) for turn in range(8)] == [
        other,
        other,
        every,
        every,
    ] * 2


def test_one_at_a_time_or_without_blocks_nothing_is_put_together() -> None:
    space = space_of({"max_layers": (2,), "prefetch_depth": (2, 4)})
    changes = changes_of(space, np.asarray([0, 0]), np.asarray([[0, 0]]))
    assert set(changes.blocks.tolist()) == {0}
    assert len(designed(space, changes, 4)) == 0


def test_trials_without_a_gain_are_counted() -> None:
    assert idle_trials([]) == 0
    assert idle_trials([ScoredCandidate((0,), None)] * 3) == 3
    assert (
        idle_trials(
            [ScoredCandidate((0,), 2.0), ScoredCandidate((1,), 1.0), ScoredCandidate((2,), None)]
        )
        == 1
    )
    assert idle_trials([ScoredCandidate((0,), 1.0), ScoredCandidate((1,), 1.0)]) == 1
    # a score that is hardly better is none that is waited for, of whichever sign
    for best in (10.0, -10.0):
        past = [ScoredCandidate((0,), best + more) for more in (2, 0.05, 0.0, 1)]
        assert [idle_trials(past, small) for small in (0.0, 0.004, 0.01)] == [1, 1, 2]
