from __future__ import annotations

import math

from autoturbo.search.allocation import SearchState, expected_gain, most_promising


def test_a_search_without_a_round_comes_first() -> None:
    assert expected_gain(SearchState(())) == math.inf
    assert most_promising([SearchState((1.0,), 0.1), SearchState(()), SearchState(())]) == 1


def test_more_is_expected_where_more_is_left() -> None:
    far, near = SearchState((2.0, 2.0), 1.0), SearchState((2.0, 2.0), 1.9)
    assert expected_gain(far) > expected_gain(near) > 0
    assert expected_gain(SearchState((1.0, 1.0), 1.0)) == 0


def test_more_is_expected_where_the_last_rounds_brought_more() -> None:
    falling, still = SearchState((4.0, 3.0, 2.0), 1.0), SearchState((2.0, 2.0, 2.0), 1.0)
    assert expected_gain(falling) > expected_gain(still)
    long_ago = SearchState((4.0, *[2.0] * 5), 1.0)
    assert expected_gain(long_ago) == expected_gain(SearchState((2.0,) * 6, 1.0))


def test_less_is_expected_the_longer_a_search_has_had() -> None:
    assert expected_gain(SearchState((2.0,), 1.0)) > expected_gain(SearchState((2.0, 2.0), 1.0))


def test_the_unit_of_the_score_does_not_matter() -> None:
    seconds, weeks = SearchState((4.0, 2.0), 1.0), SearchState((4e-6, 2e-6), 1e-6)
    assert math.isclose(expected_gain(seconds), expected_gain(weeks))


def test_one_that_nothing_fits_yet_is_not_given_up() -> None:
    assert 0 < expected_gain(SearchState((None, None))) < math.inf
    assert math.isfinite(expected_gain(SearchState((None, 3.0, 2.0))))


def test_of_equals_the_first() -> None:
    assert most_promising([SearchState((2.0,), 1.0)] * 3) == 0
