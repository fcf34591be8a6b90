"""Predicts scores of candidates from their choices alone: cheap enough for thousands.

It is trained anew on the history for every round that asks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoturbo.cost_models.booster import Booster
from autoturbo.search.constants import SEARCH, ChoiceModel
from autoturbo.search.encoding import Genes

if TYPE_CHECKING:
    from autoturbo.search.space import Space


@dataclass(frozen=True, slots=True)
class ScoredCandidate:
    """A candidate and its score.

    Attributes:
        genes: Its encoding.
        score: Lower is better; None for a candidate that failed.
    """

    genes: tuple[int, ...]
    score: float | None


class _Trees(NamedTuple):
    """The trees of a model of choices.

    Attributes:
        columns: Dimensions in which tried candidates differ, the only features.
        scores: Predicts the scores of feasible candidates.
        feasible: Predicts feasibility; None while nothing failed.
    """

    columns: Genes
    scores: Booster
    feasible: Booster | None


@dataclass(frozen=True, eq=False)
class ChoiceSurrogate:
    """A surrogate model on choices alone; trained on first use.

    Attributes:
        space: Of the candidates.
        history: Tried candidates, enough of them measured.
        choice_model: How many trees it has.
    """

    space: Space
    history: Sequence[ScoredCandidate]
    choice_model: ChoiceModel

    @staticmethod
    def of(
        space: Space,
        history: Sequence[ScoredCandidate],
        choice_model: ChoiceModel = SEARCH.choice_model,
    ) -> ChoiceSurrogate | None:
        """Return the model of a history; None while too little is measured."""
        measured = sum(tried.score is not None for tried in history)
        enough = measured >= choice_model.trials
        return ChoiceSurrogate(space, history, choice_model) if enough else None

    @cached_property
    def trees(self) -> _Trees:
        """Return the trees, trained on the history."""
        genes = np.asarray([tried.genes for tried in self.history], np.int64)
        varied = (genes != genes[0]).any(axis=0)
        columns = np.flatnonzero(varied | ~varied.any())
        rows = self.space.features(genes, columns)
        known = np.asarray([tried.score is not None for tried in self.history])
        scores = np.asarray([t.score for t in self.history if t.score is not None], np.float64)
        model = Booster.of(rows[known], levelled(scores), trees=self.choice_model.trees)
        feasible = None
        if not known.all():
            labels = known.astype(np.float64)
            trees = self.choice_model.feasibility_trees
            feasible = Booster.of(rows, labels, objective="binary:logistic", trees=trees)
        return _Trees(columns, model, feasible)

    def order(self, genes: Genes, ties: np.random.Generator | None = None) -> NDArray[np.int64]:
        """Return indices from the best predicted to the worst; ties in order, or shuffled."""
        count = len(genes)
        second = np.arange(count) if ties is None else ties.permutation(count)
        return np.lexsort((second, self.predict(genes)))

    def predict(self, genes: Genes) -> NDArray[np.float64]:
        """Return predicted scores, less the logarithm of the probability to be feasible."""
        columns, scores, feasible = self.trees
        rows = self.space.features(genes, columns)
        figures = scores.predict(rows)
        if feasible is not None:
            figures = figures - np.log(np.clip(feasible.predict(rows), 1e-3, 1.0))
        return figures


def levelled(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores robust to outliers: logarithms where all have one sign, else ranks."""
    sign = np.sign(scores[0])
    if (sign * scores > 0).all():
        logarithms = sign * np.log(np.abs(scores))
        return np.asarray(logarithms - np.median(logarithms), np.float64)
    ranks = np.argsort(np.argsort(scores, kind="stable"), kind="stable")
    shares: NDArray[np.float64] = ranks / max(len(scores) - 1, 1)
    return shares


def idle_trials(history: Sequence[ScoredCandidate], small: float = 0.0) -> int:
    """Return the number of trials since the best one; all where nothing was measured.

    Args:
        history: Tried candidates.
        small: Share of the best score by which one may be worse and count as the best.
    """
    scores = np.asarray([np.inf if tried.score is None else tried.score for tried in history])
    if not np.isfinite(scores).any():
        return len(scores)
    best = scores.min()
    return len(scores) - 1 - int(np.argmax(scores <= best + small * abs(best)))
