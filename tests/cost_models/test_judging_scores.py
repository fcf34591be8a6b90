"""Figures of rankings, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from judge import Scores, top_score

TRUE = np.asarray([1.0, 2.0, 3.0, 4.0])


def test_a_perfect_ranking() -> None:
    found = Scores.of(TRUE * 7, TRUE)
    assert (found.pairwise, found.tau, found.top1, found.top5) == (1, 1, 1, 1)
    assert found.error == pytest.approx(0)
    assert found.bias == pytest.approx(1 / 7)


@pytest.mark.full
def test_a_reversed_ranking() -> None:
    found = Scores.of(TRUE[::-1].copy(), TRUE)
    assert (found.pairwise, found.tau, found.top1) == (0, -1, 0.25)


def test_one_pair_of_six_swapped() -> None:
    found = Scores.of(np.asarray([1.0, 3.0, 2.0, 4.0]), TRUE)
    assert found.pairwise == pytest.approx(5 / 6)
    assert found.tau == pytest.approx(4 / 6)


@pytest.mark.full
def test_equal_predictions_are_half_right() -> None:
    found = Scores.of(np.ones(4), TRUE)
    assert (found.pairwise, found.tau) == (0.5, 0)


def test_pairs_that_measure_the_same_do_not_count() -> None:
    measured = np.asarray([1.0, 1.0, 2.0])
    assert Scores.of(np.asarray([5.0, 4.0, 6.0]), measured).pairwise == 1


def test_top_k_is_the_best_of_the_k_predicted_lowest() -> None:
    predicted = np.asarray([4.0, 1.0, 2.0, 3.0])
    assert top_score(predicted, TRUE, 1) == 0.5
    assert top_score(predicted, TRUE, 3) == 0.5
    assert top_score(predicted, TRUE, 4) == 1


def test_predictions_that_are_no_seconds_have_no_error() -> None:
    assert np.isnan(Scores.of(-TRUE, TRUE).error)


def test_means_are_over_pools() -> None:
    one, two = Scores.of(TRUE, TRUE), Scores.of(TRUE[::-1].copy() * 4, TRUE)
    mean = Scores.mean([one, two])
    assert mean.pairwise == 0.5
    assert mean.bias == pytest.approx(0.5)
