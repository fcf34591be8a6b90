"""Factors of kernels, learned from latencies of whole schedules.

A measurer that gives a latency and nothing else says nothing of single kernels, but it says much of
all: a latency is the sum of launches times seconds, so its logarithm is almost linear in the
logarithms of kernels' factors, with the kernels' shares of the time as weights. The factors are a
Gaussian process over kernels: equal kernels have one factor, and one offset is common to all (a
machine that is twice as slow as predicted). Between these, kernels are as alike as trees say that
were trained on kernels of other models: the share of the trees in which both end in the same leaf
(Davies and Ghahramani, "The Random Forest Kernel", 2014). The trees know which features matter; a
distance of features does not, and predicts half as well again worse.

What is known of sums is conditioned on: the most likely factors are found by damped Gauss-Newton
steps, and around them the posterior is a Gaussian one (Laplace's approximation; Rasmussen and
Williams, "Gaussian Processes for Machine Learning", section 3.4, with sums in place of points).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from autoturbo.caches import row_bytes
from autoturbo.cost_models.booster import Booster
from autoturbo.cost_models.features import Rows
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.work import Flags, Floats
from autoturbo.statistics import LEAST_NOISE

OFFSET: Final = 2.0
"""Standard deviation of the offset that all logarithms have in common."""

SPREADS: Final = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Standard deviations of the factors' part that alike kernels share, of which one is chosen."""

OWNS: Final = (0.5, 0.25, 1.0)
"""Standard deviations of a kernel's own part, over the shared part's; likewise, and the first one
is taken along in choosing that."""

STEPS: Final = 12
"""Gauss-Newton steps at most; mostly four are enough."""

HALVINGS: Final = 8
"""Times that a step is halved until it makes the factors more likely."""

SMALL: Final = 1e-3
"""What a step gains, twice a logarithm of probability, below which it is the last."""

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
class _Prior:
    """Covariance of kernels' factors, as an operator.

    Attributes:
        leaves: Leaves of the kernels, ``(kernels, leaves)``, sparse; rows have length 1.
        spread: Standard deviation of the part that alike kernels share.
        own: Standard deviation of a kernel's own part.
    """

    leaves: Any
    spread: float
    own: float

    def of(self, values: Floats) -> Floats:
        """Return the covariance of the kernels, times values, ``(kernels, ...)``."""
        return self.between(self.leaves, values, values)

    def between(self, others: Any, values: Floats, own: Floats) -> Floats:
        """Return the covariance of other kernels and these, times values.

        Args:
            others: Leaves of the others, ``(others, leaves)``.
            values: ``(kernels, ...)``.
            own: The values of those of the others that are among these, else 0, ``(others, ...)``.
        """
        shared = others @ (self.leaves.T @ values)
        covariance: Floats = OFFSET**2 * values.sum(axis=0) + self.spread**2 * shared
        return covariance + self.own**2 * own

    def variances(self, shares: Any, leaves: Any) -> Floats:
        """Return variances of weighted sums of kernels' factors, ``(sums,)``.

        Args:
            shares: Weights, ``(sums, kernels)``, sparse; those of a sum add up to 1.
            leaves: Leaves of the kernels, all of them different.
        """
        alike = np.asarray(((shares @ leaves) ** 2).sum(axis=1), np.float64)
        alone = np.asarray((shares**2).sum(axis=1), np.float64)
        return OFFSET**2 + self.spread**2 * alike + self.own**2 * alone


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    """The most likely factors under a prior, and the posterior around them.

    Attributes:
        prior: The covariance that it is of.
        evidence: Logarithm of the probability of what was measured, up to a constant.
        weights: The covariance times these are the factors, ``(kernels,)``.
        shares: Share of each candidate's time by kernel, ``(candidates, kernels)``.
        covariance: Covariance of the candidates' logarithms, ``(candidates, candidates)``.
    """

    prior: _Prior
    evidence: float
    weights: Floats
    shares: Floats
    covariance: Floats


def _evidence(fit: _Fit) -> float:
    return fit.evidence


@dataclass(frozen=True, slots=True, eq=False)
class TotalsModel:
    """Factors of kernels with their uncertainty.

    Attributes:
        trees: Say how alike kernels are.
        numbers: Positions of the kernels that were launched, by features.
        fit: Fitted factors of the kernels.
    """

    trees: Booster
    numbers: dict[bytes, int]
    fit: _Fit

    @staticmethod
    def of(totals: Sequence[Total], trees: Booster | None = None) -> TotalsModel:
        """Return factors fitted to candidates; standard deviations are the most likely of a few.

        Args:
            totals: The candidates.
            trees: Say how alike kernels are; they may see the first columns of the features alone.
                If None they are grown on chance, which cuts where kernels differ at all.
        """
        # The latest: the region that the search is in now.
        recent = totals[-MOST:]
        features = np.concatenate([total.rows for total in recent])
        numbers, index, first = _distinct(features)
        owner = np.repeat(np.arange(len(recent)), [len(total.rows) for total in recent])
        seconds = np.concatenate([total.seconds for total in recent])
        if trees is None:
            # Sorted, so that trees do not depend on the order of trials.
            ordered = np.unique(features, axis=0)
            trees = Booster.of(ordered, np.random.default_rng(0).normal(size=len(ordered)))
        shape = (len(recent), len(first))
        spent = np.bincount(owner * shape[1] + index, seconds, shape[0] * shape[1])
        known = _Known(
            spent.reshape(shape).astype(np.float64),
            np.log([total.latency for total in recent]),
            np.asarray([max(total.noise, LEAST_NOISE) for total in recent]),
        )
        leaves = trees.leaves(features[first])
        shared = [known.fit(_Prior(leaves, spread, OWNS[0] * spread)) for spread in SPREADS]
        best = max(shared, key=_evidence)
        spread = best.prior.spread
        others = [known.fit(_Prior(leaves, spread, own * spread)) for own in OWNS[1:]]
        return TotalsModel(trees, numbers, max(best, *others, key=_evidence))

    def told(self, rows: Rows) -> tuple[Floats, Flags]:
        """Return expected logarithms of kernels' factors, and which kernels were launched.

        Args:
            rows: Features, ``(kernels, columns)``.
        """
        position, seen = self._positions(rows)
        own = np.where(seen, self.fit.weights[position], 0.0)
        return self.fit.prior.between(self.trees.leaves(rows), self.fit.weights, own), seen

    def deviations(self, rows: Rows, owner: Ints, seconds: Floats, count: int) -> Floats:
        """Return standard deviations of candidates' logarithms of latency, ``(candidates,)``.

        Args:
            rows: Features of all their kernels, ``(kernels, columns)``.
            owner: Candidate of each kernel, ascending.
            seconds: Expected for all launches of each kernel.
            count: Candidates.
        """
        from scipy.sparse import csr_array

        _, number, first = _distinct(rows)
        share = seconds / np.maximum(np.bincount(owner, seconds, count), 1e-30)[owner]
        shares = csr_array((share, (owner, number)), shape=(count, len(first)))
        leaves, known = self.trees.leaves(rows[first]), self.fit.shares.T
        position, seen = self._positions(rows[first])
        own = np.where(seen[:, None], known[position], 0.0)
        cross = shares @ self.fit.prior.between(leaves, known, own)
        variances = self.fit.prior.variances(shares, leaves)
        # What was measured takes away from the prior variance what it explains.
        variances -= (np.linalg.solve(self.fit.covariance, cross.T).T * cross).sum(axis=1)
        return np.sqrt(np.maximum(variances, 0.0))

    def _positions(self, rows: Rows) -> tuple[Ints, Flags]:
        """Return positions of kernels among those launched, 0 for others, and a mask."""
        found = [self.numbers.get(key, -1) for key in row_bytes(rows).tolist()]
        position = np.asarray(found, np.int64)
        return np.maximum(position, 0), position >= 0


def _distinct(rows: Rows) -> tuple[dict[bytes, int], Ints, Ints]:
    """Return the numbers of different rows by their bytes, of each row, and where each is first."""
    keys = row_bytes(rows).tolist()
    numbers = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    number = np.asarray([numbers[key] for key in keys], np.int64)
    return numbers, number, np.unique(number, return_index=True)[1]


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """Observed candidates with their kernels, as sparse rows.

    Attributes:
        spent: Predicted seconds by candidate and kernel.
        logarithms: Logarithms of the measured latencies.
        noise: Standard deviations of these.
    """

    spent: Floats
    logarithms: Floats
    noise: Floats

    def fit(self, prior: _Prior) -> _Fit:
        """Return the most likely factors, and how likely all of it is."""
        weights = factors = np.zeros(self.spent.shape[1])
        loss = self._loss(weights, factors)
        for _ in range(STEPS):
            shares, sums = self._shares(factors)
            passed = prior.of(shares.T)
            inner = shares @ passed + np.diag(self.noise**2)
            # Logarithms of sums, made linear at the present factors.
            wanted = self.logarithms - np.log(sums) + shares @ factors
            solved = np.linalg.solve(inner, wanted)
            # Factors are the covariance times the weights, so that no inverse of it is needed.
            steps = (shares.T @ solved - weights, passed @ solved - factors)
            before, (weights, factors, loss) = loss, self._along(weights, factors, loss, *steps)
            if before - loss < SMALL:
                break
        shares, _ = self._shares(factors)
        inner = shares @ prior.of(shares.T) + np.diag(self.noise**2)
        evidence = -0.5 * (loss + float(np.linalg.slogdet(inner)[1]))
        return _Fit(prior, evidence, weights, shares, inner)

    def _along(
        self, weights: Floats, factors: Floats, loss: float, turn: Floats, step: Floats
    ) -> tuple[Floats, Floats, float]:
        """Return weights, factors and loss after a step, or after the part of it that helps."""
        for halving in range(HALVINGS):
            further = weights + turn / 2**halving, factors + step / 2**halving
            less = self._loss(*further)
            if less < loss:
                return *further, less
        return weights, factors, loss

    def _loss(self, weights: Floats, factors: Floats) -> float:
        """Return the loss of factors: squared errors over noise, and their own unlikeliness."""
        error = (self.logarithms - np.log(self._shares(factors)[1])) / self.noise
        return float(error @ error + weights @ factors)

    def _shares(self, factors: Floats) -> tuple[Floats, Floats]:
        """Return shares of kernels in candidates' time, and that time."""
        took = self.spent * np.exp(factors)
        sums = took.sum(axis=1)
        return took / sums[:, None], sums
