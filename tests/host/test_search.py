"""Searches by a stopwatch that makes its figures up: what is found, and what fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autoturbo.errors import UnrunnableError
from autoturbo.host.compare import Stopwatch
from autoturbo.host.plan import HostPlan
from autoturbo.host.search import HostSearch
from tests.host.host_samples import CPU, divided, residual

Seconds = Callable[[HostPlan], float]


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Seconds], HostSearch]:
    def made(seconds: Seconds) -> HostSearch:
        monkeypatch.setattr(Stopwatch, "seconds", lambda _, plan: seconds(plan))
        monkeypatch.setattr(HostSearch, "_alone", lambda _, plan: seconds(plan))
        return HostSearch(Stopwatch(divided(residual(tmp_path)), {}), CPU, trials=40)

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
    found.run()
    assert not found.history
