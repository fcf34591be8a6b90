"""The command that compares samplers, on one small network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from search_quality import (
    ahead,
    best_known,
    collect,
    gaps,
    load,
    quartiles,
)

pytestmark = pytest.mark.full

PAIR = "squeezenet1_1@stcp920"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("quality") / "results.json"
    collect(found, ["squeezenet1_1"], ["stcp920"], ["cost-model", "random"], [0, 1], 20)
    return found


def test_a_run_does_not_depend_on_what_was_measured_before(file: Path, tmp_path: Path) -> None:
    again = collect(tmp_path / "a.json", ["squeezenet1_1"], ["stcp920"], ["random"], [1], 20)
    assert again["runs"][PAIR]["random/1"] == load(file)["runs"][PAIR]["random/1"]


def results() -> dict[str, Any]:
    """Two pairs by hand; in the second nothing runs at first."""
    one = {
        "cost-model/0": [4.0] * 10, "cost-model/1": [3.0] * 9 + [2.2], "cost-model/2": [2.2] * 10,
        "random/0": [4.0] * 10, "random/1": [4.0] * 10, "random/2": [4.0] * 9 + [3.0],
    }  # fmt: skip
    two = {"cost-model/0": [None] * 9 + [6.0], "random/0": [5.0] * 10}
    exact = {"a@t": {"seconds": 2.5, "freed_seconds": 2.0, "exact": True, "took_s": 1.0}}
    return {"format": 1, "runs": {"a@t": one, "b@t": two}, "exact": exact, "notes": {"gp": "torch"}}


def test_gaps_are_to_the_best_of_all_runs_and_of_the_dynamic_programme() -> None:
    found = results()
    assert best_known(found, "a@t") == 2.0
    assert best_known(found, "b@t") == 5.0
    assert gaps(found, "a@t", "cost-model", 9) == pytest.approx([1.0, 0.5, 0.1])
    assert gaps(found, "b@t", "cost-model", 9) == [float("inf")]
    assert gaps(found, "b@t", "random", 10) == [0.0]
    assert gaps(found, "a@t", "random", 11) == []
    assert ahead(found, "random", 10) == (1, 2)
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 3.0, 4.0)
    assert quartiles([7.0]) == (7.0, 7.0, 7.0)
