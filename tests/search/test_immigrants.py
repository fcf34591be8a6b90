"""What a search does when it no longer gains."""

from __future__ import annotations

import numpy as np
import pytest

from autoturbo.search.constants import SEARCH
from autoturbo.search.evolution import propose
from autoturbo.search.quick_model import Tried, idle_trials, immigrants
from tests.search.search_doubles import toy_space

SPACE = toy_space()


def history(idle: int) -> list[Tried]:
    """A gain after ten trials, and none since."""
    points = SPACE.distinct(SPACE.random(np.random.default_rng(4), 400))
    scores = [2.0 + i / 1000 for i in range(11 + idle)]
    scores[10] = 1.0
    return [Tried(tuple(p), s) for p, s in zip(points.tolist(), scores, strict=False)]


def test_trials_without_a_gain_are_counted() -> None:
    assert idle_trials([]) == 0
    assert idle_trials([Tried((0,), None)] * 3) == 3
    assert idle_trials([Tried((0,), 2.0), Tried((1,), 1.0), Tried((2,), None)]) == 1
    assert idle_trials([Tried((0,), 1.0), Tried((1,), 1.0)]) == 1
    assert idle_trials(history(30)) == 30
    # a score that is hardly better is none that is waited for, of whichever sign
    for best in (10.0, -10.0):
        past = [Tried((0,), best + more) for more in (2, 0.05, 0.0, 1)]
        assert [idle_trials(past, small) for small in (0.0, 0.004, 0.01)] == [1, 1, 2]


def test_immigrants_come_where_there_are_no_gains() -> None:
    rng = np.random.default_rng(0)
    assert immigrants(SPACE, rng, history(SEARCH.restart_trials - 1)) is None
    found = immigrants(SPACE, rng, history(SEARCH.restart_trials))
    assert found is not None
    assert len(found) == SEARCH.restarts
    assert len(np.unique(found, axis=0)) > SEARCH.restarts // 3


@pytest.mark.parametrize("idle", [SEARCH.restart_trials - 1, SEARCH.restart_trials, 100])
def test_a_batch_is_full_and_new_with_and_without_immigrants(idle: int) -> None:
    def batch(seed: int) -> list[tuple[int, ...]]:
        past = history(idle)
        return propose(SPACE, np.random.default_rng(seed), past, set(), count=16)

    assert len(set(batch(0))) == 16
    assert not {tried.genes for tried in history(idle)} & set(batch(0))
    assert batch(0) == batch(0)
    assert batch(0) != batch(1)
