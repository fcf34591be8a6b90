"""Proposes candidates of a plain study, one at a time, by a Gaussian process.

Before enough is measured, each proposal is the one farthest from all tried ones of a random few.
Then it is the one with the highest expected improvement (Jones et al., 1998) times the probability
to be feasible. Trees take turns with it (:mod:`autoturbo.search.evolution`): what is smooth the
process learns from fewer measurements, what is not the trees. Every other one of its own proposals
is looked for near the best measured candidates only, in at most two dimensions: there it knows
most, and its errors far away do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autoturbo.cost_models.booster import Booster
from autoturbo.search.constants import ChoiceModel, Draws
from autoturbo.search.encoding import Genes
from autoturbo.search.space import Space
from autoturbo.search.surrogates.gaussian import Axes, GaussianProcess, Scales, expected_improvement
from autoturbo.search.surrogates.surrogate import ScoredCandidate, levelled

_SPREAD = 64
"""Random candidates of which an opening is the farthest."""

_BASES = 5
"""Best measured candidates near which is looked."""

_POOL = 2048
"""Candidates of each kind that are looked at: random ones, single and double changes."""

_EVERYWHERE = 4
"""Every so many measurements is looked everywhere; the trees have half of the others."""

_GROWTH = 1.1
"""Times as many measurements after which hyperparameters are found anew."""

_TURNS = 2
"""Every so many measurements it is the process's turn."""

Measured = tuple[tuple[tuple[int, ...], float], ...]
"""What was measured, in the order of trials."""


def is_turn(measured: int, fewest: int, most: int) -> bool:
    """Return whether the process proposes next, or trees do.

    Args:
        measured: Trials of the study with a value.
        fewest: Such trials without which trees are not asked.
        most: Such trials above which the process is not.
    """
    return measured < fewest or (measured % _TURNS == 0 and measured <= most)


@dataclass
class ModelledProposer:
    """Proposes for one space; what it remembers saves time and changes nothing.

    Attributes:
        space: Of the candidates.
        axes: Their coordinates.
        seed: Of all chance.
        choice_model: Measured trials before it models, and trees that tell what fits.
        draws: What random candidates are like.
    """

    space: Space
    axes: Axes
    seed: int
    choice_model: ChoiceModel
    draws: Draws
    _ranked: tuple[Measured, Genes, NDArray[np.float64]] | None = field(default=None, init=False)
    _scales: tuple[Measured, Scales] | None = field(default=None, init=False)

    def propose(
        self, number: int, history: Sequence[ScoredCandidate], taken: set[tuple[int, ...]]
    ) -> tuple[int, ...] | None:
        """Return a candidate that was not tried; None where it sees none.

        Args:
            number: Of the trial.
            history: Tried candidates, in order.
            taken: Further candidates not to propose.
        """
        taken = taken | {tried.genes for tried in history}
        measured = tuple((t.genes, t.score) for t in history if t.score is not None)
        if len(measured) < self.choice_model.trials:
            rng = np.random.default_rng([self.seed, number])
            pool = self.space.random(rng, _SPREAD, self.draws)
            pool = pool[_untried(pool, taken)]
            return self._best(pool, self._remoteness(pool, taken))
        if self._ranked is None or self._ranked[0] != measured:
            genes = self._pool(measured)
            self._ranked = (measured, genes, self._promise(measured, genes))
        _, genes, promise = self._ranked
        fresh = _untried(genes, taken)
        genes, promise = genes[fresh], promise[fresh]
        if len(measured) < len(history) and len(genes):
            promise = promise + self._feasible(history, genes)
        return self._best(genes, promise)

    @staticmethod
    def _best(genes: Genes, promise: NDArray[np.float64]) -> tuple[int, ...] | None:
        return tuple(genes[int(np.argmax(promise))].tolist()) if len(genes) else None

    def _remoteness(self, genes: Genes, taken: set[tuple[int, ...]]) -> NDArray[np.float64]:
        """Return the squared distance of candidates to the nearest tried one."""
        if not taken or not len(genes):
            return np.zeros(len(genes))
        tried = self.axes.of(np.asarray(sorted(taken), np.int64))
        nearest: NDArray[np.float64] = (
            self.axes.squares(self.axes.of(genes), tried).sum(axis=0).min(axis=1)
        )
        return nearest

    def _pool(self, measured: Measured) -> Genes:
        """Return candidates to look at: changes of the best ones, or also random ones."""
        rng = np.random.default_rng([self.seed, len(measured), 1])
        order = np.argsort([score for _, score in measured], kind="stable")[:_BASES]
        bases = np.asarray([measured[i][0] for i in order.tolist()], np.int64)
        near = np.concatenate([self.space.neighbours(base.tolist()) for base in bases])
        near = near[rng.permutation(len(near))[:_POOL]]
        if len(measured) % _EVERYWHERE == 0:
            near = np.concatenate([near, self.space.random(rng, _POOL, self.draws)])
        else:
            twice = bases[rng.integers(0, len(bases), _POOL)]
            for _ in range(2):
                which = rng.integers(0, len(self.space.dimensions), len(twice))
                twice[np.arange(len(twice)), which] = rng.integers(0, self.space.widths[which])
            near = np.concatenate([near, twice])
        return np.unique(near, axis=0)

    def _promise(self, measured: Measured, genes: Genes) -> NDArray[np.float64]:
        """Return the logarithms of the expected improvements of candidates."""
        points = np.asarray([point for point, _ in measured], np.int64)
        values = levelled(np.asarray([score for _, score in measured], np.float64))
        values = (values - values.mean()) / max(float(values.std()), 1e-12)
        process = GaussianProcess.of(self.axes, points, values, self._scales_of(measured, values))
        means, deviations = process.predict(genes)
        # the noise of what was measured does not count: the best is the best mean
        return expected_improvement(means, deviations, float(process.predict(points)[0].min()))

    def _scales_of(self, measured: Measured, values: NDArray[np.float64]) -> Scales:
        """Return the hyperparameters of the first measurements, a growing number of them."""
        count = self.choice_model.trials
        while int(count * _GROWTH) + 1 <= len(measured):
            count = int(count * _GROWTH) + 1
        first = measured[:count]
        if self._scales is None or self._scales[0] != first:
            points = np.asarray([point for point, _ in first], np.int64)
            self._scales = (first, GaussianProcess.of(self.axes, points, values[:count]).scales)
        return self._scales[1]

    def _feasible(self, history: Sequence[ScoredCandidate], genes: Genes) -> NDArray[np.float64]:
        """Return logarithms of the probabilities of candidates to be feasible."""
        rows = self._features(np.asarray([tried.genes for tried in history], np.int64))
        labels = np.asarray([tried.score is not None for tried in history], np.float64)
        trees = self.choice_model.feasibility_trees
        model = Booster.of(rows, labels, objective="binary:logistic", trees=trees)
        chances = model.predict(self._features(genes))
        return np.asarray(np.log(np.clip(chances, 1e-3, 1.0)), np.float64)

    def _features(self, genes: Genes) -> NDArray[np.float32]:
        """Return candidates as trees want them."""
        return self.axes.of(genes).astype(np.float32)


def _untried(genes: Genes, taken: set[tuple[int, ...]]) -> NDArray[np.bool_]:
    """Return which candidates are not taken."""
    return np.asarray([tuple(point) not in taken for point in genes.tolist()], np.bool_)
