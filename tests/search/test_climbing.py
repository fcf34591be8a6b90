"""Climbing by measuring: what is proposed near the best, and how a run goes on by it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.registry import COST_MODEL
from autoturbo.search.climbing import climb, reversions
from autoturbo.search.constants import SEARCH, Climbing
from autoturbo.search.executors import InProcessExecutor
from autoturbo.search.loop import Search, SearchLoop
from autoturbo.search.progress import Trial
from autoturbo.search.space import Space
from autoturbo.search.stopping import Stop
from autoturbo.tuning.campaign import Campaign
from tests.search.search_doubles import Landscape, Repeating
from tests.search.space_samples import large_space, small_spaces
from tests.search.test_campaign import Memory, search_of

SEEDS = st.integers(0, 2**32)


@settings(max_examples=20, deadline=None)
@given(small_spaces(), SEEDS)
def test_a_reversion_takes_one_choice_back(space: Space, seed: int) -> None:
    point = tuple(space.random(np.random.default_rng(seed), 1)[0].tolist())
    found = reversions(space, point)
    assert len(found) == len(set(found)) <= sum(choice > 0 for choice in point)
    for other in found:
        assert other != point
        assert space.normal(np.asarray([other]))[0].tolist() == list(other)
        assert sum(np.asarray(other) > 0) < sum(np.asarray(point) > 0)


def test_a_climb_from_the_heuristic_finds_the_best_of_a_landscape_of_single_choices() -> None:
    space = large_space()
    rng = np.random.default_rng(0)
    worth = [rng.normal(size=width) for width in space.widths]

    def score(point: tuple[int, ...]) -> float:
        return float(sum(own[choice] - own[0] for own, choice in zip(worth, point, strict=True)))

    start = (0,) * len(space.dimensions)
    scored, taken = [(start, 0.0)], {start}
    while new := climb(space, scored, taken, 16, 0, Climbing()):
        assert not taken & set(new)
        assert new == climb(space, scored, taken, 16, 0, Climbing())
        taken.update(new)
        scored += [(point, score(point)) for point in new]
        if len(taken) > 3000:
            break
    best = min(scored, key=lambda pair: pair[1])
    around = [score(tuple(p)) for p in space.neighbours(best[0]).tolist()]
    assert best[1] < 0
    assert best[1] <= min(around)


def ended(search: Search, land: Landscape, recorded: dict[int, Trial] | None = None) -> SearchLoop:
    executor = InProcessExecutor()
    executor.introduce(search.run, lambda: land)
    loop = SearchLoop(search, Memory(recorded or {}))
    Campaign([loop], executor).run()
    return loop


def asked(trials: int = 24, **more: Any) -> Search:
    return dataclasses.replace(search_of(0, trials), sampler=COST_MODEL, **more)


def test_a_run_goes_on_by_climbing_and_finds_more() -> None:
    plain, climbing = ended(asked(), Landscape()), ended(asked(climbs=48), Landscape())
    assert (len(plain.trials), len(climbing.trials)) == (24, 72)
    assert climbing.stopped is Stop.TRIALS
    assert plain.best is not None
    assert climbing.best is not None
    assert climbing.best.outcome.latency < plain.best.outcome.latency  # type: ignore[union-attr]


def test_the_last_trials_of_a_run_that_does_not_climb_take_choices_back() -> None:
    loop = ended(asked(64), Landscape())
    before = [t for t in loop.trials[:49] if hasattr(t.outcome, "latency")]
    best = min(before, key=lambda t: t.outcome.latency)  # type: ignore[union-attr]
    point = loop.search.space.point_of(best.knobs)
    wanted = {loop.search.space.knobs_of(p) for p in reversions(loop.search.space, point)}
    tried = {t.knobs for t in loop.trials}
    assert wanted
    assert wanted <= tried


def test_without_a_record_nothing_is_climbed_and_no_choice_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    none = dataclasses.replace(SEARCH, climbing=None, reversions=None)
    whole = ended(asked(36, climbs=0), Landscape()).trials[:24]

    def refused(*_: object, **__: object) -> None:
        pytest.fail("it was asked for what is near the best")

    monkeypatch.setattr("autoturbo.search.proposer.climb", refused)
    monkeypatch.setattr("autoturbo.search.proposer.reversions", refused)
    # the sampler goes on where it would climb, and to the end where it would take choices back
    going_on, plain = (
        ended(asked(trials, climbs=climbs, constants=none), Landscape())
        for trials, climbs in ((24, 24), (48, 0))
    )
    assert [t.knobs for t in going_on.trials] == [t.knobs for t in plain.trials]
    assert going_on.trials[:24] == whole


def test_a_program_is_counted_once_and_measured_once() -> None:
    """Two knobs change nothing here."""
    land = Repeating()
    loop = ended(asked(64), land)
    programs = [t.outcome.program for t in loop.trials if hasattr(t.outcome, "program")]
    failed = len(loop.trials) - len(programs)
    assert len(set(programs)) + failed == loop.schedules == 64
    assert len(loop.trials) > 64
    again = Repeating()
    known = ended(asked(64, program=again.program), again)
    assert [(t.knobs, t.outcome) for t in known.trials] == [
        (t.knobs, t.outcome) for t in loop.trials
    ]
    assert len(again.calls) == 64 < len(land.calls)


@pytest.mark.parametrize("kept", [5, 17, 30])
def test_a_run_that_repeats_and_climbs_is_resumed_as_if_it_had_never_stopped(kept: int) -> None:
    search = asked(24, climbs=24)
    whole = ended(search, Repeating())
    recorded = {t.number: t for t in whole.trials[:kept]}
    assert ended(search, Repeating(), recorded).trials == whole.trials


def test_a_run_with_a_larger_budget_goes_on_from_where_another_climbed() -> None:
    first = ended(asked(24, climbs=24), Repeating())
    recorded = {t.number: t for t in first.trials}
    before = len(first.trials), 24
    loop = ended(asked(48, climbs=48, extended=before), Repeating(), recorded)
    assert loop.trials[: len(first.trials)] == first.trials
    assert loop.schedules == 96


def test_a_space_of_few_programs_ends() -> None:
    loop = ended(asked(10**6, climbs=0), Repeating(few=True))
    assert loop.stopped is Stop.SPACE
