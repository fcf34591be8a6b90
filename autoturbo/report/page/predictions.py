"""What the cost model said of each trial before it was measured.

A run does not keep predictions: the model follows from the seed and from the outcomes known at the
time, so asking it again, round by round, gives what it said then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoturbo.cost_models.advisor import KernelAdvisor
from autoturbo.cost_models.metrics import scores_of
from autoturbo.report.page.columns import Columns, evenly
from autoturbo.search.progress import Trial
from autoturbo.simulate.measurement import Measurement

MOST_PAIRED = 1500
"""Trials whose pairs are counted and that are drawn: pairs grow with the square."""

MOST_ASKED = 2000
"""Trials that are gone through again, the first ones: asking for more takes minutes."""

FEWEST = 8
"""Predicted trials below which a correlation says nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Predicted beside measured.

    Attributes:
        points: ``trial``, ``predicted``, ``measured`` (ms) of those drawn.
        count: measured trials that were predicted.
        spearman: rank correlation over all of them; None where they are too few or all alike.
        pairwise: share of pairs in their true order, over those drawn; likewise.
        error: mean relative error after the best common factor, likewise.
    """

    points: Columns
    count: int
    spearman: float | None
    pairwise: float | None
    error: float | None


def predictions(trials: Sequence[Trial], advisor: KernelAdvisor, size: int) -> Predictions | None:
    """Go through a run's first rounds again; None where the model cannot say anything.

    Args:
        trials: by number.
        advisor: as the run began with it.
        size: trials of a round.
    """
    trials = trials[:MOST_ASKED]
    rounds = [trials[:1], *(trials[at : at + size] for at in range(1, len(trials), size))]
    said: list[float] = []
    for each in rounds:
        seconds = advisor.seconds([trial.knobs for trial in each])
        said += [float("nan")] * len(each) if seconds is None else seconds.tolist()
        for trial in each:
            advisor.observe(trial.knobs, trial.outcome)
    pairs = [
        (trial.number, guess, trial.outcome.latency)
        for trial, guess in zip(trials, said, strict=True)
        if isinstance(trial.outcome, Measurement) and np.isfinite(guess)
    ]
    return _judged(pairs) if pairs else None


def _judged(pairs: Sequence[tuple[int, float, float]]) -> Predictions:
    numbers, guessed, measured = zip(*pairs, strict=True)
    said, true = np.asarray(guessed), np.asarray(measured)
    drawn = evenly(len(pairs), MOST_PAIRED)
    shown = "" if len(drawn) == len(pairs) else f"{len(drawn)} of {len(pairs)} trials are drawn."
    points = Columns(
        {
            "trial": [numbers[at] for at in drawn],
            "predicted": [1e3 * guessed[at] for at in drawn],
            "measured": [1e3 * measured[at] for at in drawn],
        },
        shown,
    )
    known = len(pairs) >= FEWEST and np.ptp(true) > 0 and np.ptp(said) > 0
    if not known:
        return Predictions(points, len(pairs), None, None, None)
    scores = scores_of(said[drawn], true[drawn])
    return Predictions(points, len(pairs), spearman(said, true), scores.pairwise, scores.error)


def spearman(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Correlation of ranks; equal values share the mean of their ranks."""
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum()
    ranks: NDArray[np.float64] = (ends - (counts - 1) / 2)[inverse]
    return ranks
