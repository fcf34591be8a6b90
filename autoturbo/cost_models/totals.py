"""Factors of kernels, learned from latencies of whole schedules.

A measurer that gives a latency and nothing else says nothing of single kernels, but it says much of
all: a latency is the sum of launches times seconds, so its logarithm is almost linear in the
logarithms of kernels' factors, with the kernels' shares of the time as weights. The factors are a
Gaussian process over the kernels' features: equal kernels have one factor, alike kernels similar
ones, and one offset is common to all (a machine that is twice as slow as predicted). What is known
of sums is then conditioned on exactly; the posterior gives every kernel's factor and how uncertain
a sum of others is (Rasmussen and Williams, "Gaussian Processes for Machine Learning", section 2.2,
with sums in place of points).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from autoturbo.caches import row_bytes
from autoturbo.cost_models.features import Rows
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.work import Flags, Floats

OFFSET: Final = 2.0
"""Standard deviation of the offset that all logarithms have in common."""

SPREADS: Final = (0.1, 0.2, 0.4)
"""Standard deviations of the factors' part that alike kernels share, of which one is chosen."""

LENGTHS: Final = (1.0, 2.0, 4.0)
"""Distances of features, in standard deviations, at which kernels are still alike; likewise."""

OWN: Final = 0.5
"""Standard deviation of a kernel's own part, over the shared part's."""

LEAST_NOISE: Final = 0.003
"""Standard deviation of a latency's logarithm that no measurer undercuts."""

STEPS: Final = 3
"""Linearisations of the logarithm of a sum."""

MOST_KERNELS: Final = 4000
"""Distinct kernels of these: how alike they are is a dense matrix, too."""

MOST: Final = 400
"""Candidates that are learned from, the latest: their covariance is solved densely."""


@dataclass(frozen=True, slots=True, eq=False)
class Total:
    """A candidate whose latency is known.

    Attributes:
        rows: Features of its kernels, ``(kernels, columns)``.
        seconds: Predicted for all launches of each kernel, ``(kernels,)``.
        latency: Measured, seconds.
        noise: Relative standard deviation of it.
    """

    rows: Rows
    seconds: Floats
    latency: float
    noise: float


@dataclass(frozen=True, slots=True, eq=False)
class TotalsModel:
    """Factors of kernels with their uncertainty.

    Attributes:
        centre: Mean of the features that vary, ``(columns,)``.
        scale: Their standard deviations times the chosen length; infinite for those that do not
            vary.
        spread: Standard deviation of the shared part of a factor's logarithm.
        rows: Scaled features of the distinct kernels that were launched, ``(kernels, columns)``.
        numbers: Position in these by features.
        shares: Share of each candidate's time by distinct kernel, ``(candidates, kernels)``.
        inverse: Inverse of the candidates' covariance, ``(candidates, candidates)``.
        weights: That inverse times what the candidates' logarithms were off, ``(candidates,)``.
    """

    centre: Floats
    scale: Floats
    spread: float
    rows: Floats
    numbers: dict[bytes, int]
    shares: Floats
    inverse: Floats
    weights: Floats

    @staticmethod
    def of(totals: Sequence[Total]) -> TotalsModel:
        """Learn from measured candidates; length and spread are the most likely of a few."""
        recent = _latest(totals)
        features = np.concatenate([total.rows for total in recent])
        keys = row_bytes(features).tolist()
        numbers = {key: index for index, key in enumerate(dict.fromkeys(keys))}
        index = np.asarray([numbers[key] for key in keys], np.int64)
        _, first = np.unique(index, return_index=True)
        distinct = features[first].astype(np.float64)
        owner = np.repeat(np.arange(len(recent)), [len(total.rows) for total in recent])
        seconds = np.concatenate([total.seconds for total in recent])
        shape = (len(recent), len(distinct))
        spent = np.bincount(owner * shape[1] + index, seconds, shape[0] * shape[1]).reshape(shape)
        known = _Known(
            spent.astype(np.float64),
            np.log([total.latency for total in recent]),
            np.asarray([max(total.noise, LEAST_NOISE) for total in recent]),
        )
        centre, deviation = distinct.mean(axis=0), distinct.std(axis=0)
        root = np.sqrt(max(int((deviation > 0).sum()), 1))
        best: tuple[float, float, Floats, Floats] | None = None
        for length in LENGTHS:
            scale = np.where(deviation > 0, deviation * length * root, np.inf)
            scaled = (distinct - centre) / scale
            alike = _alike(scaled, scaled)
            for spread in SPREADS:
                likelihood = _conditioned(known, alike, spread, 1)[0]
                if best is None or likelihood > best[0]:
                    best = likelihood, spread, scale, alike
        assert best is not None  # noqa: S101  there are lengths and spreads
        _, spread, scale, alike = best
        _, shares, inverse, weights = _conditioned(known, alike, spread, STEPS)
        scaled = (distinct - centre) / scale
        return TotalsModel(centre, scale, spread, scaled, numbers, shares, inverse, weights)

    def told(self, rows: Rows) -> tuple[Floats, Flags]:
        """Return expected logarithms of kernels' factors, and which kernels were launched.

        Args:
            rows: Features, ``(kernels, columns)``.
        """
        between, seen = self._between(rows)
        return np.asarray(between @ (self.shares.T @ self.weights), np.float64), seen

    def deviations(self, rows: Rows, owner: Ints, seconds: Floats, count: int) -> Floats:
        """Return standard deviations of candidates' logarithms of latency, ``(candidates,)``.

        Args:
            rows: Features of all their kernels, ``(kernels, columns)``.
            owner: Candidate of each kernel, ascending.
            seconds: Expected for all launches of each kernel.
            count: Candidates.
        """
        _, first, number = np.unique(row_bytes(rows), return_index=True, return_inverse=True)
        scaled = (rows[first].astype(np.float64) - self.centre) / self.scale
        known = self._between(rows[first])[0] @ self.shares.T
        bounds, variances = np.searchsorted(owner, np.arange(count + 1)), np.zeros(count)
        for candidate in np.flatnonzero(np.diff(bounds)).tolist():
            mine = slice(bounds[candidate], bounds[candidate + 1])
            kernels, inverse = np.unique(number[mine], return_inverse=True)
            share = np.bincount(inverse, seconds[mine]) / max(float(seconds[mine].sum()), 1e-30)
            own = _covariance(_alike(scaled[kernels], scaled[kernels]), self.spread)
            own[np.diag_indices(len(kernels))] += (OWN * self.spread) ** 2
            cross = share @ known[kernels]
            variances[candidate] = share @ own @ share - cross @ self.inverse @ cross
        return np.sqrt(np.maximum(variances, 0.0))

    def _between(self, rows: Rows) -> tuple[Floats, Flags]:
        """Return the covariance of kernels and those launched, and which of them were launched."""
        scaled = (rows.astype(np.float64) - self.centre) / self.scale
        between = _covariance(_alike(scaled, self.rows), self.spread)
        known = np.asarray([self.numbers.get(key, -1) for key in row_bytes(rows).tolist()])
        seen = known >= 0
        between[np.flatnonzero(seen), known[seen]] += (OWN * self.spread) ** 2
        return between, seen


def _alike(some: Floats, others: Floats) -> Floats:
    """Return how alike kernels are, 0 to 1, ``(some, others)``."""
    squares = (some**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2 * some @ others.T
    return np.asarray(np.exp(-0.5 * np.maximum(squares, 0.0)), np.float64)


def _covariance(alike: Floats, spread: float) -> Floats:
    return OFFSET**2 + spread**2 * alike


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """What is known of the candidates that are learned from.

    Attributes:
        spent: Predicted seconds by candidate and kernel.
        logarithms: Of the measured latencies.
        noise: Standard deviations of these.
    """

    spent: Floats
    logarithms: Floats
    noise: Floats


def _latest(totals: Sequence[Total]) -> Sequence[Total]:
    """Return the latest candidates within :data:`MOST` and :data:`MOST_KERNELS`."""
    seen: set[bytes] = set()
    for place, total in enumerate(reversed(totals)):
        seen.update(row_bytes(total.rows).tolist())
        if place == MOST or (len(seen) > MOST_KERNELS and place):
            return totals[len(totals) - place :]
    return totals


def _conditioned(
    known: _Known, alike: Floats, spread: float, steps: int
) -> tuple[float, Floats, Floats, Floats]:
    """Return the evidence, shares, the inverse covariance of the candidates, and its weights.

    Args:
        known: Of the candidates.
        alike: How alike their kernels are, ``(kernels, kernels)``.
        spread: Standard deviation of the shared part of factors.
        steps: Linearisations of the logarithm of a sum.
    """
    factors = np.zeros(len(alike))
    for _ in range(steps):
        took = known.spent * np.exp(factors)
        sums = took.sum(axis=1)
        shares = took / sums[:, None]
        wanted = known.logarithms - np.log(sums) + shares @ factors
        passed = OFFSET**2 + spread**2 * (alike @ shares.T) + (OWN * spread) ** 2 * shares.T
        inner = shares @ passed + np.diag(known.noise**2)
        inverse = np.linalg.inv(inner)
        weights = inverse @ wanted
        factors = passed @ weights
    sign, determinant = np.linalg.slogdet(inner)
    likelihood = -0.5 * float(wanted @ weights) - 0.5 * float(determinant if sign > 0 else np.inf)
    return likelihood, shares, inverse, weights
