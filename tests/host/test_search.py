"""Searches by a stopwatch that makes its figures up: what is found, and what fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autoturbo.database import Database, PairKey, RunInfo
from autoturbo.errors import UnrunnableError
from autoturbo.host import tuning
from autoturbo.host.compare import Stopwatch
from autoturbo.host.ledger import HostLedger
from autoturbo.host.search import HostSearch
from autoturbo.host.tuning import HostBudget, find_plan
from autoturbo.schedule.host_plan import LOOP, TUNED, WHOLE, HostPlan
from autoturbo.search.journal import now
from autoturbo.simulator.measurement import Failure
from autoturbo.statistics import FEWEST_RANKS
from tests.host.host_samples import CPU, divided, residual

Seconds = Callable[[HostPlan], float]


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Seconds], HostSearch]:
    def made(seconds: Seconds) -> HostSearch:
        monkeypatch.setattr(Stopwatch, "seconds", lambda _, plan: seconds(plan))

        def alone(self: HostSearch, plan: HostPlan) -> float:
            self.ledger.enter_part(plan, seconds(plan))
            return seconds(plan)

        monkeypatch.setattr(HostSearch, "time_part", alone)
        ledger = HostLedger(8, 8)
        return HostSearch(Stopwatch(divided(residual(tmp_path)), {}), CPU, ledger, trials=40)

    return made


def part_seconds(plan: HostPlan) -> float:
    """Early operators want few samples, late ones many; two workers halve everything."""
    cost = sum(
        1 + 0.2 * abs(part.samples - (1 if i < 2 else 4))
        for part in plan.subgraphs
        for i in part.operators
    )
    return cost / plan.workers


def test_the_best_plan_is_found(search: Callable[[Seconds], HostSearch]) -> None:
    found = search(part_seconds)
    whole, loop = found.whole_batch(), found.best_loop()
    assert (whole.workers, whole.subgraphs[0].samples) == (1, 8)
    assert (loop.workers, loop.subgraphs[0].samples) == (2, 4)
    best = found.run()[0]
    samples = {i: part.samples for part in best.subgraphs for i in part.operators}
    assert [samples[i] for i in range(6)] == [1, 1, 4, 4, 4, 4]
    assert best.workers == 2
    assert part_seconds(best) < part_seconds(loop) < part_seconds(whole)


def test_plans_that_cannot_be_run_are_passed_over(search: Callable[[Seconds], HostSearch]) -> None:
    def fails(plan: HostPlan) -> float:
        if any(part.samples == 4 for part in plan.subgraphs) or plan.workers == 2:
            raise UnrunnableError("no")
        return part_seconds(plan)

    found = search(fails)
    found.whole_batch()
    loop = found.best_loop()
    assert loop.subgraphs[0].samples in (1, 2)
    best = found.run()[0]
    assert best.workers == 1
    assert 4 not in {part.samples for part in best.subgraphs}


def test_a_model_that_runs_whole_alone_has_nothing_to_search(
    search: Callable[[Seconds], HostSearch],
) -> None:
    def fails(plan: HostPlan) -> float:
        if plan.pass_samples < 8 or len(plan.subgraphs[0].operators) < 6:
            raise UnrunnableError("no")
        return 1.0

    found = search(fails)
    whole, loop = found.whole_batch(), found.best_loop()
    assert whole == loop
    assert found.run() == []
    (failed,) = {t.outcome.message for t in found.ledger.trials if isinstance(t.outcome, Failure)}
    assert failed == "no"


def test_a_model_that_does_not_run_is_an_error(search: Callable[[Seconds], HostSearch]) -> None:
    def fails(_: HostPlan) -> float:
        raise UnrunnableError("no")

    with pytest.raises(UnrunnableError):
        search(fails).whole_batch()


def test_patience_and_the_deadline_end_a_search(search: Callable[[Seconds], HostSearch]) -> None:
    found = search(part_seconds)
    found.patience = 2
    found.whole_batch(), found.best_loop()
    found.run()
    seconds = [trial.seconds for trial in found.history]
    assert len(seconds) - 1 - seconds.index(min(seconds)) == 2
    found = search(part_seconds)
    found.deadline = 0.0
    found.whole_batch()
    found.run()
    assert not found.history
    assert [trial.number for trial in found.ledger.trials] == [0]


@pytest.mark.parametrize("budget", [60, 120, 500, 2000])
def test_a_time_budget_holds_with_the_last_rounds(
    budget: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that goes on only while something runs: runs of seconds, as BERT's are."""
    clock = [100.0]

    def take(seconds: float) -> float:
        clock[0] += seconds
        return seconds

    def alone(self: HostSearch, plan: HostPlan) -> float:
        self.ledger.enter_part(plan, part_seconds(plan))
        return take(2 * part_seconds(plan)) / 2

    chance = np.random.default_rng(0)

    def length(plan: HostPlan) -> float:
        return part_seconds(plan) * math.exp(0.01 * chance.standard_normal())

    monkeypatch.setattr(Stopwatch, "seconds", lambda _, plan: take(length(plan)))
    monkeypatch.setattr(HostSearch, "time_part", alone)
    monkeypatch.setattr(tuning, "check_outputs", lambda *_: take(3.0))
    monkeypatch.setattr(tuning, "reference_outputs", lambda *_: take(10.0))
    stopwatch = Stopwatch(divided(residual(tmp_path)), {}, clock=lambda: clock[0])
    asked = HostBudget(time_budget=budget, began=100.0)
    told: list[str] = []
    ledger = HostLedger(8, 8)
    found = find_plan(stopwatch, CPU, ledger, asked, lambda phase, *_: told.append(phase))
    longest = 14.0
    assert clock[0] - 100 <= budget + longest
    assert found.comparison.made == (budget >= 500)
    assert bool([phase for phase in told if phase.startswith("comparing")]) == (budget >= 500)
    if not found.comparison.made:
        assert found.chosen in (WHOLE, LOOP)
        assert found.comparison.noise is None
        assert not found.comparison.gains(found.chosen)
    else:
        assert found.comparison.rounds >= FEWEST_RANKS
        assert found.chosen == TUNED


def test_a_run_that_goes_on_measures_no_plan_and_no_part_twice(
    search: Callable[[Seconds], HostSearch], tmp_path: Path
) -> None:
    database = Database.open(tmp_path / "runs.db")
    key = PairKey("g", "t", "float32", "host.1")
    database.add_run(RunInfo("r", key, "m", "m.onnx", 8, "host", {}, {}, now()))
    asked: list[HostPlan] = []

    def seconds(plan: HostPlan) -> float:
        asked.append(plan)
        return part_seconds(plan)

    first = search(seconds)
    first.ledger = HostLedger(8, 8, database, "r")
    first.trials = 4
    first.whole_batch(), first.best_loop()
    first.search()
    before = [trial.knobs for trial in first.ledger.trials]
    again = search(seconds)
    again.ledger = HostLedger(8, 8, database, "r")
    again.trials = 5
    asked.clear()
    again.whole_batch()
    again.best_loop()
    raced, asked[:] = len(asked), []
    assert raced  # of the best loops, whose figures in turn are no trials
    again.search()
    assert [trial.number for trial in again.history] == [*range(len(before) - 4, len(before) + 1)]
    assert not set(asked) & {knobs.host for knobs in before}
    assert [trial.knobs for trial in database.trials("r")][: len(before)] == before
    whole = [trial.knobs.host for trial in database.trials("r")]
    assert len({*whole}) == len(whole)
    assert all(plan.subgraphs[-1].stop == 6 for plan in asked)  # no part of the model by itself
