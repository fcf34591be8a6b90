"""A Gaussian process on choices: what a few hundred noisy measurements say of all candidates.

Ordered choices are near each other where their positions are; others are alike or not. Each
dimension has a length scale of its own, found with the share of noise by the likelihood of the
measurements (Rasmussen and Williams, 2006, chapters 2 and 5). It is all of NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoturbo.search.encoding import Genes

Floats = NDArray[np.float64]

_STEPS = 40
"""Of the ascent of the likelihood; more change no length scale by a tenth."""

_SHORT, _LONG = math.log(0.02), math.log(50.0)
"""Bounds of length scales, in widths of a dimension."""

_QUIET, _LOUD = math.log(1e-4), math.log(1.0)
"""Bounds of the noise's variance, in variances of the signal."""

_WIDE = math.sqrt(3.0)
"""Deviation of the prior of the logarithms of length scales, whose middle grows with the number of
dimensions (Hvarfner et al., ICML 2024, section 4)."""


@dataclass(frozen=True, eq=False)
class Axes:
    """How far apart the choices of each dimension are.

    Attributes:
        places: Of each dimension's choices, from 0 to 1.
        ordered: Whether the choices of each dimension are near each other by their places.
    """

    places: Sequence[Floats]
    ordered: Sequence[bool]

    def of(self, genes: Genes) -> Floats:
        """Return candidates as coordinates, ``(points, coordinates)``."""
        return np.stack([p[genes[:, i]] for i, p in enumerate(self.places)], axis=1)

    def squares(self, one: Floats, other: Floats) -> Floats:
        """Return squared distances per dimension, ``(dimensions, points, points)``."""
        gaps = one.T[:, :, None] - other.T[:, None, :]
        apart = ~np.asarray(self.ordered)
        gaps[apart] = gaps[apart] != 0
        squared: Floats = gaps * gaps
        return squared


class _Scales(NamedTuple):
    """Hyperparameters: length scales, and the noise's variance over the signal's."""

    lengths: Floats
    noise: float


def _matern(distances: Floats) -> tuple[Floats, Floats]:
    """Return Matern's 5/2 correlation of scaled squared distances, and its slope along them."""
    root = np.sqrt(5.0 * distances)
    decay = np.exp(-root)
    return (1.0 + root + root * root / 3.0) * decay, -5.0 / 6.0 * (1.0 + root) * decay


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """A process conditioned on measurements.

    Attributes:
        axes: Of the candidates.
        points: Coordinates of what was measured.
        scales: Hyperparameters.
        root: The Cholesky factor's inverse, of the correlations with noise.
        weights: Of the measurements in a mean.
        centre: Mean of the values.
        variance: Of the signal.
    """

    axes: Axes
    points: Floats
    scales: _Scales
    root: Floats
    weights: Floats
    centre: float
    variance: float

    @staticmethod
    def of(
        axes: Axes, genes: Genes, values: Floats, scales: _Scales | None = None
    ) -> GaussianProcess:
        """Return the process of some measurements.

        Args:
            axes: Of the candidates.
            genes: Measured candidates.
            values: What was measured, about normally distributed.
            scales: Hyperparameters, as those of fewer measurements; None finds them.
        """
        points = axes.of(genes)
        squares = axes.squares(points, points)
        centred = values - values.mean()
        scales = scales or _fitted(squares, centred)
        within = _within(squares, scales)
        root = np.linalg.inv(np.linalg.cholesky(within))
        weights = root.T @ (root @ centred)
        variance = max(float(centred @ weights) / len(values), 1e-12)
        return GaussianProcess(
            axes, points, scales, root, weights, float(values.mean()), variance
        )

    def predict(self, genes: Genes) -> tuple[Floats, Floats]:
        """Return means and deviations of the true values of candidates."""
        scaled = 1.0 / np.exp(self.scales.lengths)
        here, there = self.axes.of(genes), self.points
        distances = np.zeros((len(here), len(there)))
        for i, factor in enumerate(scaled.tolist()):
            gaps = here[:, i, None] - there[None, :, i]
            gaps = gaps * factor if self.axes.ordered[i] else (gaps != 0) * factor
            distances += gaps * gaps
        between = _matern(distances)[0]
        means = self.centre + between @ self.weights
        explained = np.square(between @ self.root.T).sum(axis=1)
        return means, np.sqrt(self.variance * np.maximum(1.0 - explained, 1e-10))


def _within(squares: Floats, scales: _Scales) -> Floats:
    """Return the correlations of measurements, with noise."""
    factors = np.exp(-2.0 * scales.lengths)
    correlations = _matern(np.tensordot(factors, squares, 1))[0]
    correlations[np.diag_indices(len(correlations))] += math.exp(scales.noise)
    return correlations


def _fitted(squares: Floats, values: Floats) -> _Scales:
    """Return the hyperparameters of the highest posterior density that an ascent finds.

    The steps follow the signs of the slopes alone (Rprop), which needs no line search.
    """
    count = len(squares)
    middle = math.sqrt(2.0) + math.log(count) / 2.0
    state = np.append(np.full(count, math.log(0.5)), math.log(0.01))
    low, high = (np.append(np.full(count, a), b) for a, b in ((_SHORT, _QUIET), (_LONG, _LOUD)))
    best, best_state = -math.inf, state
    step, before = np.full(count + 1, 0.2), np.zeros(count + 1)
    for _ in range(_STEPS):
        density, slope = _density(squares, values, state, middle)
        if density > best:
            best, best_state = density, state
        same = slope * before
        step = np.clip(np.where(same > 0, step * 1.2, np.where(same < 0, step * 0.5, step)), 1e-3, 1)
        before = np.where(same < 0, 0.0, slope)
        state = np.clip(state + np.sign(before) * step, low, high)
    return _Scales(best_state[:-1], float(best_state[-1]))


def _density(
    squares: Floats, values: Floats, state: Floats, middle: float
) -> tuple[float, Floats]:
    """Return the logarithm of the posterior density but for a constant, and its slopes.

    The signal's variance is the most likely one given the rest.
    """
    count, lengths, noise = len(values), state[:-1], math.exp(state[-1])
    factors = np.exp(-2.0 * lengths)
    correlations, slopes = _matern(np.tensordot(factors, squares, 1))
    correlations[np.diag_indices(count)] += noise
    factor = np.linalg.cholesky(correlations)
    inverse = np.linalg.inv(factor)
    inverse = inverse.T @ inverse
    weights = inverse @ values
    variance = max(float(values @ weights) / count, 1e-12)
    density = -0.5 * count * math.log(variance) - float(np.log(np.diag(factor)).sum())
    pull = 0.5 * (np.outer(weights, weights) / variance - inverse)
    along = np.tensordot(squares, pull * slopes, 2) * factors * -2.0
    noisy = noise * float(np.trace(pull))
    off = (lengths - middle) / _WIDE
    loud = (state[-1] - math.log(1e-2)) / 2.0
    density -= 0.5 * float(off @ off) + 0.5 * loud * loud
    return density, np.append(along - off / _WIDE, noisy - loud / 2.0)


def expected_improvement(means: Floats, deviations: Floats, best: float) -> Floats:
    """Return the logarithm of the expected improvement on a value, lower values being better."""
    gains = (best - means) / deviations
    near = np.maximum(gains, -6.0)
    bells = np.exp(-0.5 * near * near) / math.sqrt(2.0 * math.pi)
    below = np.asarray([0.5 * math.erfc(-g / math.sqrt(2.0)) for g in near.tolist()])
    expected = np.log(np.maximum(bells + near * below, 1e-300))
    # far below, it falls as a normal density over the square of the distance
    far = np.minimum(gains, -6.0)
    tail = -0.5 * (far * far - 36.0) - 2.0 * np.log(far / -6.0)
    shaped: Floats = np.log(deviations) + expected + tail
    return shaped
