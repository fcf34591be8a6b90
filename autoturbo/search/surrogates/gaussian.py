"""A Gaussian process on choices: what a few hundred noisy measurements say of all candidates.

Ordered choices are near each other where their positions are; others are alike or not. Each
coordinate has a length scale of its own, found with the share of noise by the likelihood of the
measurements (Rasmussen and Williams, 2006, chapters 2 and 5). It needs NumPy alone.
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
    """Coordinates of candidates.

    Attributes:
        dimensions: The dimension that each coordinate tells something of.
        places: Of that dimension's choices, from 0 to 1.
        ordered: Whether choices are near each other by these places; else alike or not.
    """

    dimensions: Sequence[int]
    places: Sequence[Floats]
    ordered: Sequence[bool]

    @staticmethod
    def along(values: Sequence[Sequence[float] | None], widths: Sequence[int]) -> Axes:
        """Return the coordinates of dimensions: ranks of numbers, and how even whole ones are.

        What suits hardware is seldom smooth in a size, as it goes by powers of two: so a whole
        number's second coordinate is how often two divides it, where ranks do not tell that.

        Args:
            values: The numbers that each dimension's choices are; None for others.
            widths: Numbers of choices.
        """
        rows: list[tuple[int, Floats, bool]] = []
        for index, (numbers, width) in enumerate(zip(values, widths, strict=True)):
            ranks = np.arange(width) if numbers is None else np.argsort(np.argsort(numbers))
            rows.append((index, ranks / max(width - 1, 1), numbers is not None))
        for index, numbers in enumerate(values):
            evens = None if numbers is None else _evenness(numbers)
            if evens is not None:
                rows.append((index, evens, True))
        dimensions, places, ordered = zip(*rows, strict=True)
        return Axes(dimensions, places, ordered)

    def of(self, genes: Genes) -> Floats:
        """Return candidates as coordinates, ``(points, coordinates)``."""
        pairs = zip(self.dimensions, self.places, strict=True)
        return np.stack([places[genes[:, d]] for d, places in pairs], axis=1)

    def squares(self, one: Floats, other: Floats) -> Floats:
        """Return squared distances per coordinate, ``(coordinates, points, points)``."""
        gaps = one.T[:, :, None] - other.T[:, None, :]
        apart = ~np.asarray(self.ordered)
        gaps[apart] = gaps[apart] != 0
        squared: Floats = gaps * gaps
        return squared


def _evenness(numbers: Sequence[float]) -> Floats | None:
    """Return how often two divides each number, from 0 to 1; None where ranks tell it, or none."""
    if any(number != int(number) for number in numbers):
        return None
    whole = [int(number) for number in numbers]
    times = np.asarray([(n & -n).bit_length() - 1 if n else 0 for n in whole], np.float64)
    if not (np.diff(times[np.argsort(whole)]) < 0).any():
        return None
    shares: Floats = times / times.max()
    return shares


class Scales(NamedTuple):
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
    scales: Scales
    root: Floats
    weights: Floats
    centre: float
    variance: float

    @staticmethod
    def of(
        axes: Axes, genes: Genes, values: Floats, scales: Scales | None = None
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
        return GaussianProcess(axes, points, scales, root, weights, float(values.mean()), variance)

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


def _within(squares: Floats, scales: Scales) -> Floats:
    """Return the correlations of measurements, with noise."""
    factors = np.exp(-2.0 * scales.lengths)
    correlations = _matern(np.tensordot(factors, squares, 1))[0]
    correlations[np.diag_indices(len(correlations))] += math.exp(scales.noise)
    return correlations


def _fitted(squares: Floats, values: Floats) -> Scales:
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
        density, slope = log_density(squares, values, state, middle)
        if density > best:
            best, best_state = density, state
        same = slope * before
        step = np.clip(
            np.where(same > 0, step * 1.2, np.where(same < 0, step * 0.5, step)), 1e-3, 1
        )
        before = np.where(same < 0, 0.0, slope)
        state = np.clip(state + np.sign(before) * step, low, high)
    return Scales(best_state[:-1], float(best_state[-1]))


def log_density(
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
