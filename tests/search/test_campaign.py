"""Several searches on one pool, with executors that answer in an order of their own."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from autoturbo.errors import ExecutorError, RunError
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.constants import SEARCH
from autoturbo.search.executors import Answer, InProcessExecutor, Task
from autoturbo.search.executors.base import MakeEvaluator, guarded
from autoturbo.search.loop import Search, SearchLoop
from autoturbo.search.objectives import find_objectives
from autoturbo.search.progress import Trial
from autoturbo.search.stopping import Stop
from autoturbo.simulator.contract import CandidateEvaluator
from autoturbo.simulator.measurement import Measurement, Outcome
from autoturbo.tuning.campaign import Campaign
from tests.search.search_doubles import Landscape, WalledIn, toy_space

SPACE = toy_space()


@dataclass
class Memory:
    """A journal that says what is durable."""

    recorded: Mapping[int, Trial] = field(default_factory=dict)
    saved: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)

    def add(self, trial: Trial) -> None:
        self.waiting.append(trial.number)

    def flush(self) -> None:
        self.saved += self.waiting
        self.waiting = []

    def log(self, line: str) -> None:
        del line


class Shuffled(InProcessExecutor):
    """As many workers as one likes, which answer in any order."""

    def __init__(self, width: int, seed: int) -> None:
        super().__init__()
        self._width, self._rng = width, np.random.default_rng(seed)
        self.most = 0

    @property
    def width(self) -> int:
        return self._width

    def take(self, patience: float | None = None) -> list[Answer]:
        self.most = max(self.most, len(self._queue))
        tasks = list(self._queue)
        self._rng.shuffle(tasks)
        now, later = tasks[: self._width], tasks[self._width :]
        self._queue.clear()
        self._queue.extend(later)
        del patience
        return [Answer(t.pair, t.number, guarded(self._evaluators[t.pair], t.knobs)) for t in now]


def search_of(seed: int, trials: int = 40, round: int = SEARCH.rounds.round_trials) -> Search:  # noqa: A002
    objectives = find_objectives("latency")
    return Search(
        f"pair{seed}", "toy", f"t{seed}", SPACE, objectives, "tpe", seed, trials, round=round
    )


def run(
    executor: InProcessExecutor,
    count: int = 3,
    lands: Mapping[int, CandidateEvaluator] | None = None,
    journals: Sequence[Memory] = (),
) -> tuple[list[SearchLoop], Campaign]:
    loops = []
    for seed in range(count):
        executor.introduce(f"pair{seed}", Landscape, (lands or {}).get(seed, Landscape(seed)))
        loops.append(SearchLoop(search_of(seed), journals[seed] if journals else Memory()))
    campaign = Campaign(loops, executor)
    campaign.run()
    return loops, campaign


def story(loop: SearchLoop) -> list[tuple[int, str, object]]:
    return [(t.number, t.knobs.id, t.outcome) for t in loop.trials]


@pytest.mark.full
def test_results_depend_neither_on_workers_nor_on_who_shares_the_pool() -> None:
    alone = []
    for seed in range(3):
        executor = InProcessExecutor()
        executor.introduce(f"pair{seed}", Landscape, Landscape(seed))
        loop = SearchLoop(search_of(seed), Memory())
        Campaign([loop], executor).run()
        alone.append(story(loop))
    for width, chance in ((2, 1), (200, 3)):
        loops, _ = run(Shuffled(width, chance))
        assert [story(loop) for loop in loops] == alone
        assert {loop.stopped for loop in loops} == {Stop.TRIALS}


@pytest.mark.full
def test_rounds_go_where_most_is_expected() -> None:
    loops, campaign = run(InProcessExecutor())
    assert campaign.granted[:3] == [0, 1, 2]  # each is tried before any goes on
    rounds = 1 + -(-39 // SEARCH.rounds.round_trials)
    assert sorted(campaign.granted) == sorted([*range(3)] * rounds)
    again, repeated = run(InProcessExecutor())
    assert repeated.granted == campaign.granted
    assert [story(a) for a in again] == [story(b) for b in loops]


@pytest.mark.full
def test_the_pool_has_work_for_all_workers_and_not_much_more() -> None:
    executor = Shuffled(20, 0)
    run(executor, 6)
    assert 2 * 20 <= executor.most <= 2 * 20 + SEARCH.rounds.round_trials


def test_a_search_that_cannot_go_on_leaves_the_others_alone() -> None:
    executor = InProcessExecutor()
    loops = []
    for seed in range(2):
        executor.introduce(f"pair{seed}", Landscape, Landscape(seed))
        other = Trial(3, SPACE.knobs_of((1,) * len(SPACE.dimensions)), _measured())
        loops.append(SearchLoop(search_of(seed), Memory({3: other} if seed == 0 else {})))
    campaign = Campaign(loops, executor)
    campaign.run()
    assert isinstance(campaign.failures[0], RunError)
    assert (len(loops[1].trials), loops[1].stopped) == (40, Stop.TRIALS)


def _measured() -> Measurement:
    outcome = Landscape(walls=False).evaluate(SPACE.knobs_of((0,) * len(SPACE.dimensions)))
    assert isinstance(outcome, Measurement)
    return outcome


def test_one_that_nothing_fits_ends_like_the_others() -> None:
    loops, _ = run(InProcessExecutor(), 2, {0: WalledIn()})
    assert loops[0].best is None
    assert loops[1].best is not None


def test_all_that_has_come_is_durable_at_the_end_of_a_round() -> None:
    journals = [Memory() for _ in range(3)]
    run(Shuffled(5, 0), journals=journals)
    for journal in journals:
        assert sorted(journal.saved) == list(range(40))


def test_an_executor_that_loses_tasks_is_an_error() -> None:
    class Losing(InProcessExecutor):
        def put(self, tasks: Sequence[Task]) -> None:
            super().put(tasks[1:])

    with pytest.raises(ExecutorError):
        run(Losing(), 1)


class StandingStill(InProcessExecutor):
    """Has workers that never answer."""

    abandoned = 0

    def take(self, patience: float | None = None) -> list[Answer]:
        del patience
        return []

    def abandon(self) -> None:
        super().abandon()
        self.abandoned += 1


@pytest.mark.parametrize("here", [None, Landscape().evaluate])
def test_workers_that_stand_still_do_not_hold_up_the_end(
    here: Callable[[Knobs], Outcome] | None,
) -> None:
    executor = StandingStill()
    executor.introduce("pair0", Landscape)
    search = dataclasses.replace(search_of(0), time_budget=0.1, here=here)
    loop = SearchLoop(search, Memory())
    Campaign([loop], executor).run()
    assert (executor.abandoned, executor.busy, loop.stopped) == (1, False, Stop.TIME)
    assert [t.number for t in loop.trials] == ([0] if here else [])
    assert not here or loop.best == loop.trials[0]


def test_the_time_counts_from_where_it_began() -> None:
    """What came between finding a search and beginning it went uncounted."""
    search = dataclasses.replace(search_of(0), time_budget=10.0, began=time.monotonic() - 9.0)
    loop = SearchLoop(search, Memory())
    assert not loop.over
    loop.search = dataclasses.replace(search, began=search.began - 2.0)
    assert loop.over


@pytest.mark.parametrize(("cost_s", "begun"), [(0.0, 3), (1.0, 3), (60.0, 1)])
def test_what_a_measurer_says_that_it_takes_counts_before_it_is_tried(
    cost_s: float, begun: int
) -> None:
    starts = tuple(SPACE.knobs_of(point) for point in SPACE.random(np.random.default_rng(0), 2))
    asked = dataclasses.replace(
        search_of(0), time_budget=100.0, after=1.0, cost_s=cost_s, starts=starts
    )
    tasks = SearchLoop(asked, Memory()).open()
    assert tasks is not None
    assert len(tasks) == begun


def test_what_takes_a_little_longer_than_expected_is_waited_for() -> None:
    """The time that is set aside for what follows is there for it, but for the checks."""
    search = dataclasses.replace(
        search_of(0), time_budget=100.0, after=2, checks_s=1.0, cost_s=10.0
    )
    loop = SearchLoop(search, Memory())
    for spent, late, over in ((68.0, False, False), (70.0, True, False), (99.5, True, True)):
        loop.search = dataclasses.replace(search, began=time.monotonic() - spent)
        assert (loop.late(), loop.over) == (late, over)


@pytest.mark.parametrize(("raced", "last_s"), [(0, 79), (1, 69), (40, 46)])
def test_a_race_has_its_share_of_a_time_budget(raced: int, last_s: float) -> None:
    """Measurements of ten seconds begin no more in its time, which is a third at most."""
    search = dataclasses.replace(
        search_of(0), time_budget=100.0, after=1, race_after=raced, cost_s=10.0
    )
    loop = SearchLoop(search, Memory())
    for spent, late in ((last_s, False), (last_s + 2, True)):
        loop.search = dataclasses.replace(search, began=time.monotonic() - spent)
        assert loop.late() == late


@pytest.mark.parametrize("size", [1, pytest.param(40, marks=pytest.mark.full)])
def test_the_size_of_a_round_is_a_setting(size: int) -> None:
    executor = Shuffled(64, 0)
    make: MakeEvaluator = Landscape
    executor.introduce("pair0", make)
    loop = SearchLoop(search_of(0, trials=1 + 3 * size, round=size), Memory())
    campaign = Campaign([loop], executor)
    campaign.run()
    assert len(campaign.granted) == 4
    assert executor.most == size
