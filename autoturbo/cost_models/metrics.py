"""How good a ranking of a pool of settings is: what searches need of a cost model.

A pool has the measured settings of one model at one batch size on one target. All functions take
``(settings,)`` arrays: predictions, of any scale that grows with the latency, and measured seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from autoturbo.schedule.codegen.work import Floats

TOPS: Final = (1, 5, 10)
"""How many of a model's best are looked at."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Figures of one pool, or means over several.

    Attributes:
        pairwise: share of pairs of settings that are put in their true order; half a pair where
            the predictions are equal.
        tau: Kendall's tau-b.
        top1: the best measured latency of the pool over the best among the model's best one.
        top5: among its best five.
        top10: among its best ten.
        error: mean of ``|predicted / measured - 1|`` after the best common factor, which ranks do
            not depend on; not a number for predictions that are no seconds.
        bias: that factor: the geometric mean of measured over predicted.
    """

    pairwise: float
    tau: float
    top1: float
    top5: float
    top10: float
    error: float
    bias: float

    @staticmethod
    def mean(of: list[Scores]) -> Scores:
        """Column by column; the geometric mean of biases."""
        names = [f.name for f in fields(Scores)]
        table = np.asarray([[getattr(s, name) for name in names] for s in of])
        table[:, -1] = np.log(table[:, -1])
        means = table.mean(axis=0)
        means[-1] = np.exp(means[-1])
        return Scores(*means.tolist())

    def as_dict(self) -> dict[str, float]:
        """For JSON, six digits."""
        return {f.name: round(float(getattr(self, f.name)), 6) for f in fields(self)}


def scores_of(predicted: Floats, measured: Floats) -> Scores:
    """All figures of one pool of at least two settings that differ."""
    agree, tau = _order(predicted, measured)
    top1, top5, top10 = (top_score(predicted, measured, k) for k in TOPS)
    factor, error = _error(predicted, measured)
    return Scores(agree, tau, top1, top5, top10, error, factor)


def top_score(predicted: Floats, measured: Floats, k: int) -> float:
    """The best latency of the pool over the best among the ``k`` predicted lowest; 1 is perfect."""
    chosen = np.argsort(predicted, kind="stable")[:k]
    return float(measured.min() / measured[chosen].min())


def _order(predicted: Floats, measured: Floats) -> tuple[float, float]:
    """Share of ordered pairs, and Kendall's tau-b."""
    first, second = np.triu_indices(len(measured), 1)
    true = np.sign(measured[first] - measured[second])
    said = np.sign(predicted[first] - predicted[second])
    same = float((true * said).sum())
    differ, told = float((true != 0).sum()), float((said != 0).sum())
    if not differ:
        return 1.0, 1.0
    return (same + differ) / (2 * differ), same / np.sqrt(differ * told) if told else 0.0


def _error(predicted: Floats, measured: Floats) -> tuple[float, float]:
    """The common factor and the mean error that is left."""
    if (predicted <= 0).any():
        return 1.0, float("nan")
    factor = float(np.exp(np.log(measured / predicted).mean()))
    return factor, float(np.abs(predicted * factor / measured - 1).mean())
