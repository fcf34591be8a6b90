"""Proposes rounds of candidates: evolution guided by cost models.

A reader's map::

    nothing yet -> openings: the heuristic at every batch, starts, splits over clusters; where the
                   kernel model has a prior, half of them are its best predictions, among these
                   compositions of the best choices of all blocks of sub-graphs
    history     -> group screening: a choice or two changed in many blocks at once, the most
                   promising first, and compositions, as the kernel model predicts
                -> parents (best measured) -> mutants -> batch: best predicted + exploration

The kernel model predicts. Where there is none, or while it cannot tell yet, a surrogate on choices
alone does, which takes microseconds a candidate.

A proposal follows from seed, first trial number and history, and from nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoturbo.cost_models.predictions import Prediction
from autoturbo.search.constants import SEARCH, Draws, Screening, SearchConstants
from autoturbo.search.encoding import Genes
from autoturbo.search.group_screening import begun, together
from autoturbo.search.openings import openings, placed, single_changes
from autoturbo.search.space import Space
from autoturbo.search.surrogates.surrogate import ChoiceSurrogate, ScoredCandidate

Rank = Callable[[Genes], NDArray[np.float64] | None]
"""Predicts scores by the kernel model, lower is better; None where it cannot tell yet."""

Expected = Callable[[Genes], NDArray[np.float64]]
"""Predicts scores by the kernel model, or by another where that cannot tell."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Predictions of the kernel model.

    Attributes:
        rank: Predicts scores.
        look: Predicts in more detail; None where it cannot tell.
    """

    rank: Rank
    look: Callable[[Genes], Prediction | None] = lambda _: None


def propose(  # noqa: PLR0913  all that a proposal follows from
    space: Space,
    rng: np.random.Generator,
    history: Sequence[ScoredCandidate],
    taken: set[tuple[int, ...]],
    *,
    count: int,
    advice: Advice | None = None,
    shuffled: bool = False,
    constants: SearchConstants = SEARCH,
) -> list[tuple[int, ...]]:
    """Return a round of candidates that were not tried before, the most promising first.

    Args:
        space: Where to look.
        rng: Where chance comes from.
        history: Tried candidates, in order.
        taken: Further candidates not to propose.
        count: How many; fewer where the space has no more.
        advice: Of the kernel model.
        shuffled: Ties between predictions are broken at random, not by order (small choices first,
            which among knobs means near the published heuristic).
        constants: Of mutants, the model of choices, group screening and draws.
    """
    taken = taken | {tried.genes for tried in history}
    fresh = _UntriedCandidates(space, rng, taken, constants.draws, shuffled)
    evolution, screening = constants.evolution, constants.screening
    parents = _parents(history, evolution.parents, space)
    chosen: list[tuple[int, ...]] = []
    rank = None if advice is None else advice.rank
    model = ChoiceSurrogate.of(space, history, constants.choice_model)
    if model is not None:
        expected = _expecting(rank, model.predict)
        if screening is not None:
            chosen = _screened(fresh, history, count, expected, advice, screening)
        fresh.taken.update(chosen)
        wanted = count - int(rng.binomial(count, evolution.explored_share)) - len(chosen)
        chosen += promising_mutants(fresh, parents, expected, wanted, evolution.mutants)
    else:
        chosen = _begun(fresh, count, rank, evolution.opening_mutants, screening)
    fresh.taken.update(chosen)
    mutants = _mutants(fresh, parents, 8 * count)
    chosen += fresh.unique(mutants)[: count - len(chosen)]
    fresh.taken.update(chosen)
    return chosen + fresh.any(count - len(chosen))


def promising_mutants(
    fresh: _UntriedCandidates, parents: Genes, expected: Expected, count: int, mutants: int
) -> list[tuple[int, ...]]:
    """Return the most promising mutants of some candidates.

    Args:
        fresh: Candidates that may be taken.
        parents: Candidates, ``(points, dimensions)``.
        expected: Predicts all of the mutants.
        count: The most to return.
        mutants: How many to make.
    """
    if count <= 0:
        return []
    pool = np.concatenate([parents, _mutants(fresh, parents, mutants)])
    ties = fresh.rng.permutation(len(pool)) if fresh.shuffled else np.arange(len(pool))
    return fresh.unique(pool[np.lexsort((ties, expected(pool)))])[:count]


def _parents(history: Sequence[ScoredCandidate], count: int, space: Space) -> Genes:
    """Return the best measured candidates; the published heuristic where there are none."""
    measured = [tried for tried in history if tried.score is not None]
    best = sorted(measured, key=lambda tried: tried.score or 0.0)[:count]
    if not best:
        return np.zeros((1, len(space.dimensions)), np.int64)
    return np.asarray([tried.genes for tried in best], np.int64)


def _begun(
    fresh: _UntriedCandidates,
    count: int,
    rank: Rank | None,
    opening_mutants: int,
    screening: Screening | None,
) -> list[tuple[int, ...]]:
    """Return the first candidates of a search; the kernel model's best come before openings.

    Args:
        fresh: Candidates that may be taken.
        count: The most to return.
        rank: Predicts candidates; None for no kernel model.
        opening_mutants: Mutants of the openings that it sees.
        screening: Where choices are composed; None for no compositions.
    """
    space, rng = fresh.space, fresh.rng
    opened = fresh.unique(openings(space))
    if rank is None or not opened or rank(np.asarray(opened, np.int64)) is None:
        return opened[:count]
    heuristic = np.zeros((1, len(space.dimensions)), np.int64)
    parents = np.concatenate([heuristic, np.asarray(opened, np.int64)])
    picked = parents[rng.integers(0, len(parents), opening_mutants)]
    mutants = space.mutate(rng, picked, draws=fresh.draws)
    single = single_changes(space, heuristic[0])
    pool = fresh.unique(np.concatenate([parents[1:], single, mutants]))
    composed = [] if screening is None else _composed(fresh, parents, rank, screening)
    scores = rank(np.asarray(pool, np.int64)) if pool else None
    best = _unlike(pool, scores, count // 2 - len(composed))
    starts = fresh.unique(placed(space))[: count // 4]
    return list(dict.fromkeys([*starts, *composed, *best, *opened]))[:count]


def _composed(
    fresh: _UntriedCandidates, points: Genes, rank: Rank, screening: Screening
) -> list[tuple[int, ...]]:
    """Return compositions of the blocks' best predicted choices.

    Args:
        fresh: Candidates that may be taken.
        points: Bases of the compositions, ``(points, dimensions)``.
        rank: Predicts choices; where it cannot tell, all are alike.
        screening: How far behind the best a start's may be.
    """
    if not fresh.space.blocks:
        return []
    expected = _expecting(rank, lambda genes: np.zeros(len(genes)))
    return fresh.unique(begun(fresh.space, points, expected, screening))


def _unlike(
    pool: list[tuple[int, ...]], scores: NDArray[np.float64] | None, count: int
) -> list[tuple[int, ...]]:
    """Return the best candidates, one per predicted score."""
    if scores is None:
        return []
    kinds: dict[float, tuple[int, ...]] = {}
    for index in np.argsort(scores, kind="stable").tolist():
        kinds.setdefault(round(float(scores[index]), 3), pool[index])
    return list(kinds.values())[:count]


def _screened(
    fresh: _UntriedCandidates,
    history: Sequence[ScoredCandidate],
    count: int,
    expected: Expected,
    advice: Advice | None,
    screening: Screening,
) -> list[tuple[int, ...]]:
    """Return a part of a round that changes choices of many blocks at once.

    Args:
        fresh: Candidates that may be taken.
        history: What was tried.
        count: Trials of the round, of which these are a share.
        expected: Predicts scores.
        advice: Predictions of the kernel model, None for none.
        screening: How large that part is, and what it changes.
    """
    room, turn = int(count * screening.screened_share), len(history) // count
    if not room or not fresh.space.blocks:
        return []

    def look(points: Genes) -> Prediction:
        detailed = None if advice is None else advice.look(points)
        return Prediction.plain(points, expected(points)) if detailed is None else detailed

    return fresh.unique(together(fresh.space, history, room, turn, look, screening))[:room]


def _mutants(fresh: _UntriedCandidates, parents: Genes, count: int) -> Genes:
    """Return shuffled mutants, taken or not, half of them with a single mutation.

    Args:
        fresh: The space and all chance.
        parents: Candidates, ``(points, dimensions)``.
        count: How many to make.
    """
    space, rng, draws = fresh.space, fresh.rng, fresh.draws
    picked = _picked(rng, parents, count)
    near = space.mutate(rng, picked[: count // 2], draws=draws)
    far = space.mutate(rng, picked[count // 2 :], rate=0.15, draws=draws)
    mixed = np.concatenate([near, far])
    return mixed[rng.permutation(len(mixed))]


def _picked(rng: np.random.Generator, parents: Genes, count: int) -> Genes:
    """Return parents drawn at random, earlier ones more often."""
    weights = 1.0 / np.arange(1, len(parents) + 1)
    picked: Genes = parents[rng.choice(len(parents), count, p=weights / weights.sum())]
    return picked


def _expecting(rank: Rank | None, otherwise: Expected) -> Expected:
    """Return what predicts by the kernel model, or by another where that has no answer."""

    def expected(genes: Genes) -> NDArray[np.float64]:
        known = None if rank is None else rank(genes)
        return otherwise(genes) if known is None else known

    return expected


@dataclass
class _UntriedCandidates:
    """Candidates that are not taken."""

    space: Space
    rng: np.random.Generator
    taken: set[tuple[int, ...]]
    draws: Draws
    shuffled: bool = False

    def unique(self, genes: Genes) -> list[tuple[int, ...]]:
        """Return the candidates that are not taken, without duplicates, in order."""
        distinct = dict.fromkeys(map(tuple, genes.tolist()))
        return [point for point in distinct if point not in self.taken]

    def any(self, count: int) -> list[tuple[int, ...]]:
        """Return random candidates not taken; fewer than asked for where the space has no more."""
        return fresh_points(self.space, self.rng, self.taken, count, self.draws)


def fresh_points(
    space: Space,
    rng: np.random.Generator,
    taken: set[tuple[int, ...]],
    count: int,
    draws: Draws = SEARCH.draws,
) -> list[tuple[int, ...]]:
    """Return random candidates not taken; fewer than asked for only where the space has no more.

    Args:
        space: Of the candidates.
        rng: All chance.
        taken: Candidates that are not to be returned.
        count: How many to return.
        draws: When drawing gives up.
    """
    count = min(count, space.size - len(taken))
    if count <= 0:
        return []
    fresh = _UntriedCandidates(space, rng, taken, draws)
    if space.listed:
        left = fresh.unique(space.everything())
        return [left[i] for i in rng.permutation(len(left))[:count]]
    drawn: dict[tuple[int, ...], None] = {}
    rounds = fruitless = 0
    while len(drawn) < count and fruitless < draws.fruitless_draws:
        batch = space.random(rng, 4 * count, draws, dense=rounds >= draws.sparse_draws)
        known = len(drawn)
        drawn.update(dict.fromkeys(fresh.unique(batch)))
        rounds, fruitless = rounds + 1, 0 if len(drawn) > known else fruitless + 1
    return list(drawn)[:count]
