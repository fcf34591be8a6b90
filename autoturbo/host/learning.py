"""Learns what parts of a model take within a batch, from the times of whole batches.

A batch takes the sum of its parts, and something that depends on the order; a part that is joined
to the one before it takes more or less than the two apart: a linear model. What it starts from is
what parts take alone. Bayes' rule for normal distributions gives what is believed after each
measurement, and the next candidate is the best one under a draw from that belief (Thompson, "On the
likelihood that one unknown probability exceeds another", Biometrika 1933): what is uncertain is
tried as often as it may be the best. The best choice of a draw is found exactly, part by part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoturbo.schedule.host_plan import ORDERS, HostChoice
from autoturbo.statistics import ASSUMED_NOISE

Vector = NDArray[np.float64]

_APART = 0.05
"""Standard deviation of a part's time within a batch, as a share of what it takes alone."""

_ORDER = 0.05
"""That of what an order costs, as a share of the batch's time."""

_JOINED = 0.005
"""That of what it saves to join two parts, likewise; it also is what is expected of that."""

_TEMPER = 0.25
"""Times the variance of what is believed that a draw has: trials are few, and choices are many."""


@dataclass(eq=False)
class PartTimes:
    """Beliefs of the seconds of parts, with some workers and threads.

    Attributes:
        layout: The workers, and the threads of each.
        choices: Per part, the numbers of samples that were timed.
        mean: Seconds that are expected: of every part and number of samples, of every pair of
            parts that is joined, and of every order.
        covariance: Covariance of these.
        total: Seconds of a batch, about: the unit of what is small.
    """

    layout: tuple[int, int]
    choices: list[list[int]]
    mean: Vector
    covariance: NDArray[np.float64]
    total: float

    @staticmethod
    def of(layout: tuple[int, int], table: Sequence[dict[int, float]]) -> PartTimes:
        """Return the beliefs before any batch is measured.

        Args:
            layout: The workers, and the threads of each.
            table: Seconds that each part takes alone, by samples at once.
        """
        alone = np.array([seconds for row in table for seconds in row.values()])
        total = sum(min(row.values()) for row in table)
        joins, orders = len(table) - 1, len(ORDERS)
        others = total * np.array([_JOINED] * joins + [_ORDER] * orders)
        covariance = np.diag(np.concatenate([_APART * alone, others]) ** 2)
        mean = np.concatenate([alone, np.full(joins, -_JOINED * total), np.zeros(orders)])
        return PartTimes(layout, [list(row) for row in table], mean, covariance, total)

    def learn(self, choice: HostChoice, seconds: float) -> None:
        """Take note of a measured batch; one with samples that were not timed says nothing."""
        pairs = zip(choice.samples, self.choices, strict=True)
        if any(samples not in known for samples, known in pairs):
            return
        row, start = np.zeros(len(self.mean)), 0
        for samples, known in zip(choice.samples, self.choices, strict=True):
            row[start + known.index(samples)] = 1
            start += len(known)
        row[start : start + len(choice.joined)] = choice.joined
        if not all(choice.joined):  # without a cut there is no order
            row[start + len(choice.joined) + ORDERS.index(choice.order)] = 1
        reach = self.covariance @ row
        # A Kalman step: a batch is a sum of what is believed, and noise.
        gain = reach / (row @ reach + (ASSUMED_NOISE * self.total) ** 2)
        self.mean = self.mean + gain * (seconds - row @ self.mean)
        self.covariance = self.covariance - np.outer(gain, reach)

    def best(self, rng: np.random.Generator | None = None) -> tuple[HostChoice, float]:
        """Return the best choice, and the seconds of a batch.

        Args:
            rng: Source of a draw from what is believed; None for what is expected.
        """
        values = self.mean
        if rng is not None:
            spread = _TEMPER * self.covariance
            # By eigenvalues: updates leave the covariance short of positive definite by rounding.
            values = rng.multivariate_normal(self.mean, spread, method="eigh")
        table, start = [], 0
        for known in self.choices:
            table.append(dict(zip(known, values[start:].tolist(), strict=False)))
            start += len(known)
        joins = len(self.choices) - 1
        samples, joined, seconds = cheapest(table, values[start : start + joins].tolist())
        orders = values[start + joins :]
        order = int(np.argmin(orders))
        if not all(joined):
            seconds += float(orders[order])
        return HostChoice(samples, joined, ORDERS[order]), seconds


def cheapest(
    table: Sequence[dict[int, float]], joins: Sequence[float]
) -> tuple[tuple[int, ...], tuple[bool, ...], float]:
    """Return the choice that adds up to the least time, and that time.

    Args:
        table: Seconds of each part, by samples.
        joins: Seconds of joining each part but the first to the one before it, below 0 where that
            saves some.

    Returns:
        The samples of each part, whether each but the first is joined, and the seconds.
    """
    found = {samples: (seconds, [samples], list[bool]()) for samples, seconds in table[0].items()}
    for row, join in zip(table[1:], joins, strict=True):
        # A dynamic programme: cut, from whatever is best so far, or joined with the same samples.
        least = min(found.values(), key=lambda one: one[0])
        after = {}
        for samples, seconds in row.items():
            ways = [(least[0], least, False)]
            if samples in found:
                ways.append((found[samples][0] + join, found[samples], True))
            before_s, (_, chain, joined), is_joined = min(ways, key=lambda way: way[0])
            after[samples] = (before_s + seconds, [*chain, samples], [*joined, is_joined])
        found = after
    total, chain, joined = min(found.values(), key=lambda one: one[0])
    return tuple(chain), tuple(joined), total
