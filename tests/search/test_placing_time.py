"""How long placing cuts takes is said before it begins, and shown while it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.search.warm_starts.best_sets import Table
from autoturbo.search.warm_starts.starts import placed_starts, placing_seconds
from autoturbo.simulator.evaluator import Evaluator
from tests.schedule.schedule_samples import STCP920, workload

if TYPE_CHECKING:
    from collections.abc import Hashable


@pytest.mark.full
def test_more_sub_graphs_take_longer_to_place() -> None:
    names = ("resnet18", "densenet121", "swin_t")
    found = [placing_seconds(ModelScheduler(workload(name), STCP920, "float16")) for name in names]
    assert found == sorted(found)
    assert found[-1] > 3 * found[0]


@pytest.mark.full
def test_what_is_said_counts_the_ways_that_are_costed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Table] = []
    monkeypatch.setattr(Table, "of", _noting(made))
    shares: list[float] = []
    placed_starts(Evaluator(workload("resnet18"), STCP920, "float16"), progress=shares.append)
    monkeypatch.setattr("autoturbo.search.warm_starts.starts.WAY_S", 1.0)
    monkeypatch.setattr("autoturbo.search.warm_starts.starts.COVER_S", 0.0)
    said = placing_seconds(ModelScheduler(workload("resnet18"), STCP920, "float16"))
    assert sum(table.ways for table in made) <= said <= 2 * sum(table.ways for table in made)
    assert shares == sorted(shares)
    assert (len(shares) > 3, shares[-1]) == (True, 1.0)


def _noting(made: list[Table]) -> Hashable:
    original = Table.of

    def of(self: Table, *arguments: object) -> object:
        made.append(self)
        return original(self, *arguments)  # type: ignore[arg-type]

    return of
