"""Where a search goes when it no longer gains."""

from __future__ import annotations

import numpy as np
import pytest
from search_doubles import toy_space
from space_samples import started_space

from autoturbo.search.conditions import START
from autoturbo.search.evolution import Evolution
from autoturbo.search.quick_model import Tried
from autoturbo.search.restarts import PATIENCE, TURN, Place, idle_trials, place_to_go
from autoturbo.search.space import Space

SPACE = started_space()
POSITION = [d.name for d in SPACE.dimensions].index(START)


def history(idle: int, space: Space = SPACE) -> list[Tried]:
    """A gain after ten trials, of the heuristic's own sub-graphs, and none since."""
    points = space.random(np.random.default_rng(4), 4000)
    points = points[np.sort(np.unique(points, axis=0, return_index=True)[1])]
    if space is SPACE:
        best = int(np.flatnonzero(points[:, POSITION] == 0)[0])
        points[[10, best]] = points[[best, 10]]
    scores = [2.0 + i / 1000 for i in range(11 + idle)]
    scores[10] = 1.0
    return [Tried(tuple(p), s) for p, s in zip(points.tolist(), scores, strict=False)]


def place(past: list[Tried], space: Space = SPACE) -> Place | None:
    return place_to_go(space, np.random.default_rng(0), past, 12)


def test_trials_without_a_gain_are_counted() -> None:
    assert idle_trials([]) == 0
    assert idle_trials([Tried((0,), None)] * 3) == 3
    assert idle_trials([Tried((0,), 2.0), Tried((1,), 1.0), Tried((2,), None)]) == 1
    assert idle_trials([Tried((0,), 1.0), Tried((1,), 1.0)]) == 1
    assert idle_trials(history(30)) == 30


def test_as_long_as_there_are_gains_a_search_stays() -> None:
    assert place(history(PATIENCE - 1)) is None
    assert place(history(PATIENCE)) is not None


def test_starts_take_turns_and_then_immigrants_come() -> None:
    turns = [place(history(PATIENCE + turn * TURN)) for turn in range(7)]
    assert [None if p is None else p.start for p in turns] == [1, 2, None, 1, 2, None, 1]
    for found in turns:
        assert found is not None
        assert len(found.parents)
        assert (SPACE.normal(found.parents) == found.parents).all()
        assert (found.keep(found.parents) == found.parents).all()
    first = turns[0]
    assert first is not None
    kept = first.keep(SPACE.random(np.random.default_rng(1), 300))
    assert 0 < len(kept) < 300
    assert set(kept[:, POSITION].tolist()) == {1}


def test_the_parents_around_a_start_are_its_best_measured_points() -> None:
    past = history(PATIENCE)
    found = place(past)
    assert found is not None
    mine = sorted((t.score or 0.0, t.genes) for t in past if t.genes[POSITION] == 1)
    assert [tuple(p) for p in found.parents.tolist()] == [genes for _, genes in mine[:12]]


def test_a_start_that_was_never_measured_is_its_own_parent() -> None:
    past = [t for t in history(400) if t.genes[POSITION] == 0]
    found = place(past[: 11 + PATIENCE])
    assert found is not None
    (parent,) = found.parents.tolist()
    assert SPACE.knobs_of(parent) == SPACE.starts[1]


def test_without_starts_immigrants_come() -> None:
    space = toy_space()
    found = place(history(PATIENCE, space), space)
    assert found is not None
    assert found.start is None
    assert len(np.unique(found.parents, axis=0)) > 40


@pytest.mark.parametrize("turn", [0, 1])
def test_part_of_an_idle_batch_comes_from_another_start_and_most_does_not(turn: int) -> None:
    def batch(seed: int) -> list[tuple[int, ...]]:
        past = history(PATIENCE + turn * TURN)
        return Evolution().propose(SPACE, np.random.default_rng(seed), past, set(), count=16)

    starts = [point[POSITION] for point in batch(0)]
    assert 2 <= starts.count(turn + 1) <= 10
    assert len(set(batch(0))) == 16
    assert batch(0) == batch(0)
    assert batch(0) != batch(1)
