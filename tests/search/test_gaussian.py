from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from autoturbo.search.surrogates.gaussian import (
    Axes,
    GaussianProcess,
    expected_improvement,
    log_density,
)


def wave(count: int) -> tuple[Axes, NDArray[np.int64], NDArray[np.float64]]:
    """Smooth in the first dimension, another level in one category, nothing in the last."""
    axes = Axes.along([tuple(range(12)), None, tuple(range(6))], (12, 3, 6))
    rng = np.random.default_rng(0)
    genes = rng.integers(0, (12, 3, 6), (count, 3))
    values = np.sin(genes[:, 0] / 3) + 2.0 * (genes[:, 1] == 1) + 0.02 * rng.normal(size=count)
    return axes, genes, values


def test_it_predicts_what_was_not_measured_and_says_how_sure_it_is() -> None:
    axes, genes, values = wave(120)
    process = GaussianProcess.of(axes, genes[:60], values[:60])
    means, deviations = process.predict(genes[60:])
    assert np.abs(means - values[60:]).max() < 0.25
    assert (np.abs(means - values[60:]) < 4 * deviations + 0.08).all()


def test_what_does_not_matter_has_the_longest_scale() -> None:
    axes, genes, values = wave(80)
    lengths = GaussianProcess.of(axes, genes, values).scales.lengths
    assert int(np.argmax(lengths[:3])) == 2


def test_the_slopes_of_the_density_are_its_differences() -> None:
    axes, genes, values = wave(30)
    points = axes.of(genes)
    squares, state = axes.squares(points, points), np.full(len(axes.places) + 1, -1.0)
    _, slopes = log_density(squares, values - values.mean(), state, 2.0)
    for index, slope in enumerate(slopes):
        step = np.zeros(len(state))
        step[index] = 1e-5
        above, below = (
            log_density(squares, values - values.mean(), state + sign * step, 2.0)[0]
            for sign in (1, -1)
        )
        assert (above - below) / 2e-5 == pytest.approx(slope, abs=1e-4)


def test_whole_numbers_have_how_even_they_are_beside_their_ranks() -> None:
    axes = Axes.along([(16, 48, 32), (1, 2, 4), (0.5, 1.5, 2.5), None], (3, 3, 3, 3))
    assert axes.dimensions == (0, 1, 2, 3, 0)
    assert axes.places[0].tolist() == [0, 1, 0.5]
    assert axes.places[4].tolist() == pytest.approx([0.8, 0.8, 1])
    assert axes.ordered == (True, True, True, False, True)


def test_expected_improvement_falls_far_away_too() -> None:
    means = np.asarray([-1.0, 0, 1, 5, 6, 7, 40])
    found = expected_improvement(means, np.ones(7), 0.0)
    assert found[1] == pytest.approx(math.log(1 / math.sqrt(2 * math.pi)))
    assert (np.diff(found) < 0).all()
