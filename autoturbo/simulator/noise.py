"""Drift and noise of a machine that measures, estimated from its reference schedule."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from autoturbo.statistics import OUTLYING

LATEST: Final = 64
"""Measurements of the reference after the first ones from which drift is estimated."""

WALKS: Final = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 10.0)
"""Standard deviations of the drift between two of these, over their noise, that are weighed."""


@dataclass(eq=False)
class Drift:
    """Drift and noise of a machine since the begin, by a reference that is measured again.

    The logarithms of what the reference takes are a random walk from where they began, with noise:
    how far the walk goes, next to the noise, is weighed by how well each of a few guesses explains
    them all. So a machine that does not drift is not corrected by the noise of its reference.

    Attributes:
        slower: Logarithm of how many times as long everything takes by now.
        noise: Standard deviation of a logarithm.
    """

    slower: float = 0.0
    noise: float = 0.0
    _logarithms: list[float] = field(default_factory=list)
    _at: list[int] = field(default_factory=list)

    def begin(self, logarithms: Sequence[float]) -> None:
        """Take measurements of the reference made one after another; at least two."""
        self._logarithms, self._at = list(logarithms), [0] * len(logarithms)
        self._follow()

    def note(self, measure: Callable[[], float | None]) -> None:
        """Measure the reference again; twice where it is far off, for that may be an outlier.

        Args:
            measure: Returns the logarithm of what it takes; None where that fails.
        """
        taken = measure()
        # Of two the one nearer to what is expected: a single outlier would look like drift.
        if taken is not None and self._off(taken) > OUTLYING * self.noise:
            taken = min((v for v in (taken, measure()) if v is not None), key=self._off)
        if taken is not None:
            self._logarithms.append(taken)
            self._at.append(self._at[-1] + 1)
            self._follow()

    def _off(self, taken: float) -> float:
        """Return how far a logarithm is from what is expected now."""
        first = self._logarithms[: self._at.count(0)]
        return abs(taken - statistics.median(first) - self.slower)

    def _follow(self) -> None:
        """Estimate drift and noise anew from the first measurements and the last ones."""
        first = self._at.count(0)
        logarithms = np.asarray(self._logarithms[:first] + self._logarithms[first:][-LATEST:])
        at = np.asarray(self._at[:first] + self._at[first:][-LATEST:], np.float64)
        # A walk from a common beginning has the covariance of the earlier of two times, and each
        # measurement its own noise, in units of the noise.
        ones, count = np.ones(len(at)), len(at)
        slower, noise, evidence = [], [], []
        for walk in WALKS:
            inverse = np.linalg.inv(np.eye(count) + walk**2 * np.minimum.outer(at, at))
            precision = float(ones @ inverse @ ones)
            off = logarithms - float(ones @ inverse @ logarithms) / precision
            variance = float(off @ inverse @ off) / (count - 1)
            slower.append(float(walk**2 * np.minimum(at, at[-1]) @ inverse @ off))
            noise.append(math.sqrt(variance))
            sizes = float(np.linalg.slogdet(inverse)[1]) - math.log(precision)
            evidence.append(0.5 * (sizes - (count - 1) * math.log(max(variance, 1e-30))))
        # Over the largest, or all of them would be 0 in floating point.
        weights = np.exp(np.asarray(evidence) - max(evidence))
        self.slower = float(weights @ slower / weights.sum())
        self.noise = float(weights @ noise / weights.sum())
