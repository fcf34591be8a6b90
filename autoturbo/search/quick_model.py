"""Predicts scores of points from their choices alone: cheap enough to look at thousands.

What was tried is all it knows; it is trained anew for every batch that asks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoturbo.cost_models.booster import Booster
from autoturbo.search.constants import SEARCH
from autoturbo.search.encoding import Genes

if TYPE_CHECKING:
    from autoturbo.search.encoding import Genes
    from autoturbo.search.space import Space


@dataclass(frozen=True, slots=True)
class Tried:
    """A point and what became of it.

    Attributes:
        genes: choice indices.
        score: lower is better; None for a point that failed.
    """

    genes: tuple[int, ...]
    score: float | None


class _Trees(NamedTuple):
    """What a quick model is made of.

    Attributes:
        columns: positions of the dimensions in which tried points differ; no tree asks for others.
        scores: of points that can be measured.
        feasible: None while nothing failed.
    """

    columns: Genes
    scores: Booster
    feasible: Booster | None


@dataclass(frozen=True, eq=False)
class QuickModel:
    """Predicts scores from choices alone; trained when it is first asked.

    Attributes:
        space: whose points it sees.
        history: what was tried, enough of it measured.
    """

    space: Space
    history: Sequence[Tried]

    @staticmethod
    def of(space: Space, history: Sequence[Tried]) -> QuickModel | None:
        """Of what was tried; None while that is too little."""
        measured = sum(tried.score is not None for tried in history)
        return QuickModel(space, history) if measured >= SEARCH.quick_model_trials else None

    @cached_property
    def trees(self) -> _Trees:
        """Trained on what was tried."""
        genes = np.asarray([tried.genes for tried in self.history], np.int64)
        varied = (genes != genes[0]).any(axis=0)
        columns = np.flatnonzero(varied | ~varied.any())
        rows = self.space.features(genes, columns)
        known = np.asarray([tried.score is not None for tried in self.history])
        scores = np.asarray([t.score for t in self.history if t.score is not None], np.float64)
        model, feasible = (
            Booster.of(rows[known], _levelled(scores), trees=SEARCH.quick_model_trees),
            None,
        )
        if not known.all():
            labels = known.astype(np.float64)
            feasible = Booster.of(
                rows, labels, objective="binary:logistic", trees=SEARCH.feasibility_trees
            )
        return _Trees(columns, model, feasible)

    def order(self, genes: Genes, ties: np.random.Generator | None = None) -> NDArray[np.int64]:
        """Indices from the best predicted to the worst; of equals the first, or by chance."""
        count = len(genes)
        second = np.arange(count) if ties is None else ties.permutation(count)
        return np.lexsort((second, self.predict(genes)))

    def predict(self, genes: Genes) -> NDArray[np.float64]:
        """Scores, less the logarithm of the chance to be feasible."""
        columns, scores, feasible = self.trees
        rows = self.space.features(genes, columns)
        figures = scores.predict(rows)
        if feasible is not None:
            figures = figures - np.log(np.clip(feasible.predict(rows), 1e-3, 1.0))
        return figures


def _levelled(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores on a scale that outliers do not rule: logarithms where all have one sign."""
    sign = np.sign(scores[0])
    if (sign * scores > 0).all():
        logarithms = sign * np.log(np.abs(scores))
        return np.asarray(logarithms - np.median(logarithms), np.float64)
    ranks = np.argsort(np.argsort(scores, kind="stable"), kind="stable")
    shares: NDArray[np.float64] = ranks / max(len(scores) - 1, 1)
    return shares


def idle_trials(history: Sequence[Tried], small: float = 0.0) -> int:
    """Trials since the best one; all of them where nothing was measured.

    Args:
        history: what was tried.
        small: share of the best score by which one may be worse and count as the best.
    """
    scores = np.asarray([np.inf if tried.score is None else tried.score for tried in history])
    if not np.isfinite(scores).any():
        return len(scores)
    best = scores.min()
    return len(scores) - 1 - int(np.argmax(scores <= best + small * abs(best)))
