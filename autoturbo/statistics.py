"""Noise and intervals: what may be said of figures that vary.

Figures are compared as logarithms: a ratio of two times is a difference there, and noise in percent
is a standard deviation. Of two things that are measured in turn, only the differences within each
round count: drift hits both alike.

There are two intervals. Student's is that of a mean, says something from three rounds on, and is
what group-sequential tests are made for: races drop candidates by it. That of signed ranks takes
six rounds, and a few disturbed ones move it little: computers on which other programs run are
judged by it.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CONFIDENCE: Final = 0.95
"""At which a gain is stated where measurements vary."""

FEWEST_PAIRS: Final = 3
"""Rounds without which Student's interval says nothing of a difference."""

FEWEST_RANKS: Final = math.ceil(math.log2(2 / (1 - CONFIDENCE)))
"""Rounds without which signed ranks say nothing, however clear each of them is."""

OUTLYING: Final = 4.0
"""Standard deviations of noise by which a figure that is no outlier may be off."""

SUSPICIOUS: Final = 2.5
"""Standard deviations below the lowest figure so far beyond which one has to be confirmed."""

ASSUMED_NOISE: Final = 0.02
"""Relative standard deviation of a measured time of which no noise is known."""

LEAST_NOISE: Final = 0.003
"""Relative standard deviation of a measured time that no measurer undercuts."""


def differences(longer: Sequence[float], shorter: Sequence[float]) -> list[float]:
    """Return how much longer one thing takes than another, as logarithms, by round.

    Args:
        longer: Logarithms of its seconds; NaN where measuring failed.
        shorter: Likewise of the other; whichever dropped out early has fewer.
    """
    pairs = zip(longer, shorter, strict=False)
    return [a - b for a, b in pairs if math.isfinite(a) and math.isfinite(b)]


def mean_interval(
    differences: Sequence[float], missed: float = 1 - CONFIDENCE
) -> tuple[float, float, float]:
    """Return the lower end, the mean and the upper end of a mean difference's interval.

    Args:
        differences: By round; the interval is infinite with fewer than three.
        missed: Probability that the interval misses the mean.
    """
    count = len(differences)
    if count < FEWEST_PAIRS:
        mean = statistics.fmean(differences) if differences else 0.0
        return -math.inf, mean, math.inf
    mean = statistics.fmean(differences)
    error = statistics.stdev(differences) / math.sqrt(count)
    half = student(missed / 2, count - 1) * error
    return mean - half, mean, mean + half


def student(tail: float, freedom: int) -> float:
    """Return the quantile of Student's t.

    Args:
        tail: Probability above the quantile.
        freedom: Degrees of freedom.
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1 - tail))


def likeliest_shown(
    mean: float, error: float, level: float, look: int = 1, looks: int = 1
) -> float:
    """Return the likeliest mean difference, given that only those that show are stated.

    Of many small differences, those show that noise made larger: what is stated is too high in the
    mean (the winner's curse). So the likelihood of a mean is divided by the probability that it
    shows at all, which is that of a truncated normal distribution, and its maximum is taken (Zhong
    and Prentice, "Bias-reduced estimators and confidence intervals for odds ratios in genome-wide
    association studies", Biostatistics 9(4), 2008). Where it would be negative, it is 0.

    Args:
        mean: The difference as it was measured; it showed.
        error: Its standard error.
        level: Standard errors above zero from which a difference shows, at every look.
        look: At which it showed, from 1.
        looks: At most, each after as many more rounds; the last one is that which shows, or at
            which the difference is not above zero.
    """
    import numpy as np

    if error <= 0:
        return max(mean, 0.0)
    # Drift from look to look, in standard deviations of what is added between two of them. All that
    # are possible are compared: of several looks, the likelihood may have two maxima.
    unit = error * math.sqrt(look)
    low, high = 0.0, max(mean, 0.0) / unit
    for _ in range(_REFINEMENTS):
        drifts = np.linspace(low, high, _DRIFTS)
        fits = look * drifts * (mean / unit - drifts / 2)
        likeliest = int(np.argmax(fits - np.log(_shown(drifts, level, looks))))
        low, high = drifts[max(likeliest - 1, 0)], drifts[min(likeliest + 1, _DRIFTS - 1)]
    return float(drifts[likeliest]) * unit


_DRIFTS: Final = 33
"""Means whose likelihoods are compared at a time."""

_REFINEMENTS: Final = 5
"""How often: each time about the likeliest of the last."""

_NODES: Final = 16
"""Of a quadrature over what does not show yet at a look."""


def _shown(drifts: NDArray[np.float64], level: float, looks: int) -> NDArray[np.float64]:
    """Return the probabilities that a difference shows at any look, by drift.

    From look to look, the density of a sum that has not shown and is above zero (Armitage,
    McPherson and Rowe, "Repeated significance tests on accumulating data", Journal of the Royal
    Statistical Society A 132, 1969).
    """
    import numpy as np
    from scipy.special import ndtr

    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    sums, mass = np.zeros(1), np.ones((len(drifts), 1))
    shown: NDArray[np.float64] = ndtr(drifts - level)
    for look in range(1, looks):
        bar = level * math.sqrt(look)
        ahead = bar / 2 * (nodes + 1)
        steps = ahead - sums[:, None] - drifts[:, None, None]
        density = np.exp(-(steps**2) / 2) / math.sqrt(2 * math.pi)
        sums, mass = ahead, (mass[:, :, None] * density).sum(1) * weights * bar / 2
        shows = ndtr(sums + drifts[:, None] - level * math.sqrt(look + 1))
        shown += (mass * shows).sum(1)
    return np.maximum(shown, np.finfo(float).tiny)


def pooled_deviation(groups: Iterable[Sequence[float]]) -> float:
    """Return the relative standard deviation of figures of one thing; 0 where none is repeated.

    Args:
        groups: Figures above zero, those of one thing in each group.
    """
    squares, freedom = 0.0, 0
    for group in groups:
        logarithms = [math.log(value) for value in group]
        if len(logarithms) > 1:
            squares += statistics.variance(logarithms) * (len(logarithms) - 1)
            freedom += len(logarithms) - 1
    return math.sqrt(squares / freedom) if freedom else 0.0


def alike(figures: Sequence[float], noise: float, deviations: float = OUTLYING) -> bool:
    """Return whether figures of one thing differ by no more than noise explains.

    Args:
        figures: Above zero.
        noise: Relative standard deviation of each; 0 where they have to be equal.
        deviations: Of the difference of two figures, that it may be away from none.
    """
    apart = math.log(max(figures) / min(figures))
    return apart <= deviations * math.sqrt(2) * noise


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times as fast one thing is as another, and its interval.

    Attributes:
        ratio: Of most rounds.
        low: Lower end of the interval at :attr:`confidence`.
        high: Upper end; infinite where too little was measured for one.
        confidence: That the interval holds the ratio.
    """

    ratio: float
    low: float
    high: float
    confidence: float = CONFIDENCE

    @staticmethod
    def of(slower: Sequence[float], faster: Sequence[float]) -> Gain:
        """Return the gain from the seconds of two things, by round.

        The estimate is Hodges' and Lehmann's, the interval that of Wilcoxon's signed ranks
        (Hollander and Wolfe, "Nonparametric Statistical Methods", chapter 3): the median of all
        means of two rounds, and the ranks of these that have the confidence.
        """
        rounds = [math.log(a / b) for a, b in zip(slower, faster, strict=True)]
        pairs = itertools.combinations_with_replacement(rounds, 2)
        means = sorted((a + b) / 2 for a, b in pairs)
        ratio = math.exp(statistics.median(means))
        if len(rounds) < FEWEST_RANKS:
            return Gain(ratio, 0.0, math.inf)
        out = _ranks_left_out(len(rounds))
        return Gain(ratio, math.exp(means[out]), math.exp(means[-1 - out]))

    @property
    def demonstrated(self) -> bool:
        """Return whether it is a gain at the stated confidence."""
        return self.low > 1


@functools.cache
def _ranks_left_out(rounds: int) -> int:
    """Return how many ranks at either end the interval of signed ranks leaves out."""
    ways = [1]  # by sum, to choose some of the ranks 1, 2, ...
    for rank in range(1, rounds + 1):
        longer = [*ways, *([0] * rank)]
        ways = [n + (longer[i - rank] if i >= rank else 0) for i, n in enumerate(longer)]
    tail, out = (1 - CONFIDENCE) / 2 * 2**rounds, 0
    while sum(ways[: out + 1]) <= tail:
        out += 1
    return max(out - 1, 0)


def pairs_in_order(
    predicted: NDArray[np.float64], measured: NDArray[np.float64]
) -> tuple[float, float]:
    """Return the share of pairs that a prediction puts in their true order, and Kendall's tau-b.

    Pairs that measure the same do not count; of those that are predicted alike, half do.
    """
    import numpy as np

    first, second = np.triu_indices(len(measured), 1)
    true = np.sign(measured[first] - measured[second])
    predicted_order = np.sign(predicted[first] - predicted[second])
    same = float((true * predicted_order).sum())
    differ, told = float((true != 0).sum()), float((predicted_order != 0).sum())
    if not differ:
        return 1.0, 1.0
    return (same + differ) / (2 * differ), same / np.sqrt(differ * told) if told else 0.0


def error_beside_factor(
    predicted: NDArray[np.float64], measured: NDArray[np.float64]
) -> tuple[float, float]:
    """Return the mean relative error that the best common factor leaves, and the factor.

    Predictions that are no seconds have no error: not a number, and a factor of 1.
    """
    import numpy as np

    if (predicted <= 0).any():
        return float("nan"), 1.0
    factor = float(np.exp(np.log(measured / predicted).mean()))
    return float(np.abs(predicted * factor / measured - 1).mean()), factor
