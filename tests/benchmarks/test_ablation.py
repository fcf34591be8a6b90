"""Changes of an ablation are constants."""

import dataclasses

import pytest
from ablation import CHANGES, Latencies, change_percent, changed

from autoturbo.search.constants import SEARCH, Screening


def test_a_change_is_a_record() -> None:
    assert changed("climbing off") == dataclasses.replace(SEARCH, climbing=None)
    screening = Screening(screened_trials=3)
    assert changed("screening.screened_trials 3") == dataclasses.replace(
        SEARCH, screening=screening
    )
    assert all(constants != SEARCH for constants in CHANGES.values())


@pytest.mark.parametrize(
    "name", ["rounds off", "climbing", "screening.depth 1", "nothing off", "racing.rounds 3"]
)
def test_what_changes_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        changed(name)


def test_a_change_is_compared_after_so_many_measurements_or_at_the_end() -> None:
    plain: Latencies = {("a", 0): [None, 2.0, 1.0]}
    slower: Latencies = {("a", 0): [2.0, 2.0, 2.0]}
    assert change_percent(slower, plain, 2) == 0
    assert change_percent(slower, plain, 9) == change_percent(slower, plain) == pytest.approx(100)
