"""Group screening: choices of many sub-graphs measured at once, told apart, composed.

A schedule's time is the sum of its kernels', and a kernel depends mostly on its own choices. So one
measurement can try a choice in many blocks of sub-graphs, and a model that learns kernels from it
tells them apart; then the best choices of blocks are composed, each where it still helps.
Chance tries one of a few hundred such choices at a time, and most of them make a schedule slower.

Choices are tried by an optimistic prediction: no model knows well beforehand where a kernel's
tensors will be, and a choice that keeps them near looks bad to a model that does not expect it.
Once measured, a choice with too optimistic a prediction falls behind.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoturbo.cost_models.predictions import Prediction
from autoturbo.schedule.knobs import SAMPLES
from autoturbo.search.encoding import START, Genes
from autoturbo.search.surrogates.surrogate import idle_trials

if TYPE_CHECKING:
    from collections.abc import Callable

    from autoturbo.search.constants import Screening
    from autoturbo.search.space import Space
    from autoturbo.search.surrogates.surrogate import ScoredCandidate

    Expected = Callable[[Genes], NDArray[np.float64]]
    """Predicts the scores of candidates, lower is better."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Candidates that differ from a base in choices of one block, or in one choice of the model.

    Attributes:
        base: The candidate that they change.
        points: ``(changes, dimensions)``.
        blocks: Number of the block, from 1; 0 for the model, ``(changes,)``.
        tried: Number of measured candidates that had the choices, ``(changes,)``.
    """

    base: Genes
    points: Genes
    blocks: Genes
    tried: Genes

    def over(self, point: Genes, change: int) -> Genes:
        """Return another candidate with a change applied to it."""
        return np.where(self.points[change] != self.base, self.points[change], point)

    def distinct(self, kinds: Sequence[Hashable]) -> tuple[Changes, Genes]:
        """Return a block's changes without duplicates and no-ops, and all of the model's.

        Args:
            kinds: Of the base and of each change; equal kinds measure the same.

        Returns:
            The remaining changes, tried as often as all of their kind, and their indices.
        """
        first = dict[Hashable, int]()
        tried = self.tried.copy()
        for index, (kind, block) in enumerate(zip(kinds[1:], self.blocks.tolist(), strict=True)):
            if not block:
                first[index] = index
            elif kind != kinds[0]:
                kept_index = first.setdefault((kind, block), index)
                tried[kept_index] += tried[index] if kept_index != index else 0
        kept = np.fromiter(first.values(), np.int64, len(first))
        return Changes(self.base, self.points[kept], self.blocks[kept], tried[kept]), kept


def changes_of(space: Space, base: Genes, measured: Genes) -> Changes:
    """Return every effective single change of a candidate; its start stays.

    A block that has choices already is also tried with each choice in place of them all, and with
    none: what is good beside them need not be good alone.

    Args:
        space: Of the candidate.
        base: The candidate, ``(dimensions,)``.
        measured: Candidates, ``(points, dimensions)``.
    """
    unit = space.unit_of
    position, choice = _choices(space)
    # in a block without choices there is nothing to replace
    full = np.isin(unit[position], unit[(base > 0) & (unit > 0)])
    added, replaced = np.flatnonzero(choice != base[position]), np.flatnonzero(full)
    beside, alone = (np.repeat(base[None], len(rows), axis=0) for rows in (added, replaced))
    alone[unit == unit[position[replaced]][:, None]] = 0
    beside[np.arange(len(added)), position[added]] = choice[added]
    alone[np.arange(len(replaced)), position[replaced]] = choice[replaced]
    points = space.normal(np.concatenate([beside, alone]))
    position, choice = (np.concatenate([x[added], x[replaced]]) for x in (position, choice))
    kept = _meant(space, base, points, position[:, None], choice[:, None])
    position, choice = position[kept], choice[kept]
    tried = _tried(space, measured, position, choice)
    return Changes(base, points[kept], unit[position], tried)


def _meant(
    space: Space, base: Genes, points: Genes, ats: Genes, choices: Genes
) -> NDArray[np.bool_]:
    """Return a mask of the effective changes: choices kept, one block changed, no duplicates.

    Args:
        space: Of the candidates.
        base: The candidate that was changed, ``(dimensions,)``.
        points: In canonical form, ``(points, dimensions)``.
        ats: Dimensions of the choices, of one unit, ``(points, choices)``.
        choices: ``(points, choices)``.
    """
    unit = space.unit_of[ats[:, :1]]
    moved = points != base
    elsewhere = (moved & (space.unit_of != unit)).any(axis=1) & (unit[:, 0] > 0)
    has = (np.take_along_axis(points, ats, axis=1) == choices).all(axis=1)
    first = np.zeros(len(ats), np.bool_)
    first[space.first_of_each(points)] = True
    effective: NDArray[np.bool_] = has & ~elsewhere & first & moved.any(axis=1)
    return effective


def _tried(space: Space, measured: Genes, at: Genes, choice: Genes) -> Genes:
    """Return how many measured candidates had each choice.

    Args:
        space: Of the candidates.
        measured: Candidates, ``(points, dimensions)``.
        at: Dimensions.
        choice: A choice in each of them.
    """
    start = np.cumsum(space.widths) - space.widths
    counts = np.bincount((measured + start).ravel(), minlength=int(space.widths.sum()))
    tried: Genes = counts[start[at] + choice]
    return tried


def _choices(space: Space) -> tuple[Genes, Genes]:
    """Return the dimension and the index of every choice except starts."""
    free = np.flatnonzero([d.name != START for d in space.dimensions])
    position = np.repeat(free, space.widths[free])
    return position, np.concatenate(
        [np.arange(width) for width in space.widths[free].tolist()] or [free]
    )


_PLACING = (START, SAMPLES)
"""Dimensions that tell places apart."""


class _PredictedChanges(NamedTuple):
    """The changes of a candidate with their predictions, and the prediction of the candidate."""

    changes: Changes
    expected: NDArray[np.float64]
    optimistic: NDArray[np.float64]
    least: float


def together(
    space: Space,
    history: Sequence[ScoredCandidate],
    count: int,
    turn: int,
    look: Callable[[Genes], Prediction],
    screening: Screening,
) -> Genes:
    """Return compositions of the blocks' best choices, then group-screening candidates.

    Compositions are of the best choices of all blocks, of these with the model's best choice, and
    of the best measured choices: the model is surer of those, and may be right on the others.

    Args:
        space: Where to look.
        history: What was tried; something was measured.
        count: Screening candidates, at most.
        turn: Number of the round.
        look: Predicts candidates.
        screening: What is tried, and when every block changes.
    """

    def expected(points: Genes) -> NDArray[np.float64]:
        return look(points).expected

    def optimistic(points: Genes) -> NDArray[np.float64]:
        return look(points).optimistic

    scored = [(t.score, t.genes) for t in history if t.score is not None]
    measured = np.asarray([genes for _, genes in scored], np.int64)
    base = measured[int(np.argmin([score for score, _ in scored]))]
    idle = idle_trials(history, screening.no_gain)
    every = idle >= screening.stale_trials and turn // 2 % 2 == 1
    changes, scores, hopes, least = _looked_at(space, base, measured, look)
    of_blocks = _of_blocks(changes, scores)
    surer = np.where(changes.tried > 0, of_blocks, np.inf)
    best = composed(space, changes, (of_blocks, scores, surer), least, expected)
    new = designs(space, changes, hopes, count, optimistic, screening, every=every)
    return np.concatenate([best, new])


def begun(space: Space, points: Genes, expected: Expected, screening: Screening) -> Genes:
    """Return compositions of the blocks' best predicted choices, for a search without measurements.

    They are composed at what is predicted to be best, and at the starts; of these, only the ones
    that catch up are returned.

    Args:
        space: Where to look.
        points: Bases of the compositions, the bare starts among them.
        expected: Predicts the logarithm of scores.
        screening: How far behind the best a composition at another start may be.
    """

    def made_at(bases: Sequence[Genes]) -> Genes:
        compositions = [points[:0]]
        for base in bases:
            looked = _looked_at(space, base, points[:0], lambda p: Prediction.plain(p, expected(p)))
            changes, scores_of_changes, _, least = looked
            compositions.append(
                composed(space, changes, [_of_blocks(changes, scores_of_changes)], least, expected)
            )
        return np.concatenate(compositions)

    scores = expected(points)
    best = points[int(np.argmin(scores))]
    bare = np.asarray([dimension.name != START for dimension in space.dimensions])
    starts = points[(points[:, bare] == 0).all(axis=1)]
    _, *others = first_of_places(space, np.concatenate([best[None], starts]))
    near_made, other_made = made_at([best]), made_at(others)
    least = np.concatenate([scores, expected(near_made)]).min()
    catching_up = expected(other_made) <= least + np.log1p(screening.far_share)
    return np.concatenate([near_made, other_made[catching_up]])


def _looked_at(
    space: Space, base: Genes, measured: Genes, look: Callable[[Genes], Prediction]
) -> _PredictedChanges:
    """Return the distinct changes of a candidate, with the predictions for each.

    Args:
        space: Of the candidate.
        base: The candidate, ``(dimensions,)``.
        measured: Candidates, ``(points, dimensions)``.
        look: Predicts candidates.
    """
    changes = changes_of(space, base, measured)
    seen = look(np.concatenate([base[None], changes.points]))
    changes, kept = changes.distinct(seen.kinds)
    return _PredictedChanges(
        changes, seen.expected[1:][kept], seen.optimistic[1:][kept], float(seen.expected[0])
    )


def _of_blocks(changes: Changes, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the scores, with infinity for the model's choices."""
    return np.where(changes.blocks > 0, scores, np.inf)


def first_of_places(space: Space, points: Genes) -> list[Genes]:
    """Return the first candidate of every place, in order.

    A place is a start with a number of samples at once. A space without starts is one place.
    """
    names = [dimension.name for dimension in space.dimensions]
    placing = [names.index(name) for name in _PLACING if START in names and name in names]
    first: dict[tuple[int, ...], Genes] = {}
    for point in points:
        first.setdefault(tuple(point[placing].tolist()), point)
    return list(first.values())


def designs(
    space: Space,
    changes: Changes,
    hopes: NDArray[np.float64],
    count: int,
    optimistic: Expected,
    screening: Screening,
    *,
    every: bool = False,
) -> Genes:
    """Return group-screening candidates: each changes every other block, the most promising first.

    Blocks take turns, so that what depends on a neighbour shows too. A change that crowds out those
    before it is left out.
    Fewer candidates than asked for are returned where enough was tried.

    After a long time without a gain, neighbours may have to change together: then every block
    changes at once.

    Args:
        space: Of the candidates.
        changes: Of the base.
        hopes: Optimistic prediction per change, lower is better.
        count: Candidates.
        optimistic: Optimistic prediction of candidates, on the same scale.
        screening: How often a choice is tried, and what is too crowded.
        every: Whether every block changes, and not every other one.
    """
    chosen: list[list[int]] = [[] for _ in range(count)]
    order = np.argsort(hopes, kind="stable")
    untried = changes.tried[order] < screening.screened_trials
    order = order[untried & (changes.blocks[order] > 0)]
    blocks = np.unique(changes.blocks[order])
    each = 1 if every else min(len(blocks), 2)
    for number, block in enumerate(blocks):
        block_changes = order[changes.blocks[order] == block]
        for row, change in zip(range(number % each, count, each), block_changes, strict=False):
            chosen[row].append(int(change))
    return _built_up(space, changes, chosen, np.inf, optimistic, screening.crowded_share)


def composed(
    space: Space,
    changes: Changes,
    variants: Sequence[NDArray[np.float64]],
    least: float,
    expected: Expected,
) -> Genes:
    """Return compositions of the best choices of blocks; none if nothing improves on the base.

    A choice is kept only where the prediction is better with it: two that are good alone may want
    the same room.

    Args:
        space: Of the candidates.
        changes: Of the base.
        variants: Per candidate the predicted score of every change, lower is better; infinite for
            changes that are left out.
        least: Predicted score of the base.
        expected: Predicts candidates, on the scale of the scores.
    """
    chosen = []
    for scores in variants:
        better = np.flatnonzero(scores < least)
        best = better[np.argsort(scores[better], kind="stable")]
        _, firsts = np.unique(changes.blocks[best], return_index=True)
        chosen.append(best[np.sort(firsts)].tolist())
    return _built_up(space, changes, chosen, least, expected)


def _built_up(
    space: Space,
    changes: Changes,
    chosen: Sequence[Sequence[int]],
    least: float,
    score: Expected,
    slack: float = 0.0,
) -> Genes:
    """Return candidates with changes applied one by one, without those that make them worse.

    The remaining changes of all candidates are scored in one batch, until none is left out any
    more.

    Args:
        space: Of the candidates.
        changes: Of the base.
        chosen: Changes per candidate, in order; without any there is no candidate.
        least: Score of the base.
        score: Of candidates, lower is better.
        slack: Tolerated loss per change.
    """
    left = dict(enumerate(pending for pending in chosen if pending))
    points, limits = [changes.base] * len(left), [least] * len(left)
    while left:
        stacks = [_one_upon_the_other(changes, points[n], pending) for n, pending in left.items()]
        stacked = space.normal(np.concatenate(stacks))
        ends = np.cumsum([len(pending) for pending in left.values()])[:-1]
        parts, scored = np.split(stacked, ends), np.split(score(stacked), ends)
        rest = {}
        for (number, pending), stack, scores in zip(left.items(), parts, scored, strict=True):
            fits = scores < np.concatenate([[limits[number]], scores[:-1]]) + slack
            many = len(fits) if fits.all() else int(np.argmin(fits))
            if many:
                points[number], limits[number] = stack[many - 1], float(scores[many - 1])
            if pending[many + 1 :]:
                rest[number] = pending[many + 1 :]
        left = rest
    return np.asarray(points, np.int64).reshape(-1, len(changes.base))


def _one_upon_the_other(changes: Changes, point: Genes, ordered: Sequence[int]) -> Genes:
    """Return a candidate with the first of ordered changes, with the first two, and so on."""
    stack = []
    for change in ordered:
        point = changes.over(point, change)
        stack.append(point)
    return np.asarray(stack)
