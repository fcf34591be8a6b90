"""Choices of many sub-graphs at once: tried together, told apart, put together.

A schedule's time is the sum of its kernels', and a kernel depends mostly on its own choices. So one
measurement can try a choice in every block of sub-graphs, and a model that learns kernels from it
tells them apart; then the best choice of each block is put together. Chance tries one of a few
hundred such choices at a time, and most of them make a schedule slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autoturbo.search.conditions import START, Genes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from autoturbo.search.quick_model import Tried
    from autoturbo.search.space import Space

FAR = 0.3
"""A place's best point that is worse than the best by this share is not worked upon."""

PLACES = 4
"""Places besides the best point's that take turns."""

ENOUGH_TRIES = 2
"""Measured points with a choice after which it is in no design: one may have had bad company."""

_PLACING = (START, "batches_per_cluster")
"""Dimensions that tell places apart."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Points that differ from one in a choice of one block, or of the model.

    Attributes:
        base: the point.
        points: ``(changes, dimensions)``.
        blocks: which block, from 1, and 0 for the model, ``(changes,)``.
        tried: measured points that had the choice, ``(changes,)``.
    """

    base: Genes
    points: Genes
    blocks: Genes
    tried: Genes

    def over(self, point: Genes, change: int) -> Genes:
        """Another point with what a change changes."""
        return np.where(self.points[change] != self.base, self.points[change], point)


def changes_of(space: Space, base: Genes, measured: Genes) -> Changes:
    """Every choice that means something at a point, besides those that it has; starts stay.

    A block that has choices already is also there with each choice in place of them all, and with
    none: what is good beside them need not be good alone.

    Args:
        space: where the point is.
        base: the point, ``(dimensions,)``.
        measured: points, ``(points, dimensions)``.
    """
    unit = space.unit_of
    at, choice = _choices(space)
    new, own = np.flatnonzero(choice != base[at]), np.flatnonzero(unit[at] > 0)
    beside, alone = (np.repeat(base[None], len(rows), axis=0) for rows in (new, own))
    alone[unit == unit[at[own]][:, None]] = 0
    beside[np.arange(len(new)), at[new]] = choice[new]
    alone[np.arange(len(own)), at[own]] = choice[own]
    points = space.normal(np.concatenate([beside, alone]))
    at, choice = (np.concatenate([x[new], x[own]]) for x in (at, choice))
    moved = points != base
    elsewhere = (moved & (unit != unit[at][:, None])).any(axis=1) & (unit[at] > 0)
    has = points[np.arange(len(at)), at] == choice
    first = np.zeros(len(at), np.bool_)
    first[space.first_of_each(points)] = True
    kept = has & ~elsewhere & first & moved.any(axis=1)
    at, choice = at[kept], choice[kept]
    return Changes(base, points[kept], unit[at], _tried(space, measured, at, choice))


def _tried(space: Space, measured: Genes, at: Genes, choice: Genes) -> Genes:
    """How many points had each of some choices."""
    start = np.cumsum(space.widths) - space.widths
    counts = np.bincount((measured + start).ravel(), minlength=int(space.widths.sum()))
    found: Genes = counts[start[at] + choice]
    return found


def _choices(space: Space) -> tuple[Genes, Genes]:
    """Every choice but a start: its dimension, and its index there."""
    own = np.flatnonzero([d.name != START for d in space.dimensions])
    at = np.repeat(own, space.widths[own])
    return at, np.concatenate([np.arange(width) for width in space.widths[own].tolist()] or [own])


def together(
    space: Space,
    history: Sequence[Tried],
    count: int,
    turn: int,
    expected: Callable[[Genes], NDArray[np.float64]],
) -> Genes:
    """The best choices of all blocks put together, then points that try one in every block.

    What is put together are the best of all blocks' choices, the model's best with them, and the
    best of those that were tried: a model is surer of these, and may be right on the others.

    Args:
        space: where to look.
        history: what was tried; something was measured.
        count: points that try at most, for each that they start from.
        turn: number of the batch, which decides what else than the best they start from.
        expected: what points give, lower is better.
    """
    measured = np.asarray([t.genes for t in history if t.score is not None], np.int64)
    best, new = list[Genes](), list[Genes]()
    for base in bases_of(space, history, turn):
        changes = changes_of(space, base, measured)
        scores = expected(np.concatenate([changes.base[None], changes.points]))
        least, scores = float(scores[0]), scores[1:]
        own = np.where(changes.blocks > 0, scores, np.inf)
        surer = np.where(changes.tried > 0, own, np.inf)
        variants = (own, scores) if new else (own, scores, surer)
        best += [composed(space, changes, each, least) for each in variants]
        new.append(designs(space, changes, scores, count))
    rounds = [made[row : row + 1] for row in range(count) for made in new]
    return np.concatenate([*best, *rounds])


def bases_of(space: Space, history: Sequence[Tried], turn: int) -> list[Genes]:
    """The best measured point, and the best one of another place that is not far behind.

    A place is a start with a number of samples at once: what is best before a place's sub-graphs
    are tuned need not be afterwards. A space without starts is one place.

    Args:
        space: where the points are.
        history: what was tried; something was measured.
        turn: which of the :data:`PLACES` best others, modulo their number.
    """
    names = [dimension.name for dimension in space.dimensions]
    placing = [names.index(name) for name in _PLACING if START in names and name in names]
    measured = sorted((t for t in history if t.score is not None), key=lambda t: t.score or 0.0)
    most = _worth(measured[0])
    best: dict[tuple[int, ...], Tried] = {}
    for tried in measured:
        if (tried.score or 0.0) <= most:
            best.setdefault(tuple(tried.genes[at] for at in placing), tried)
    first, *others = best.values()
    near = others[:PLACES]
    found = [first, near[turn % len(near)]] if near else [first]
    return [np.asarray(tried.genes, np.int64) for tried in found]


def _worth(best: Tried) -> float:
    """The highest score that is not far from the best; scores may be of either sign."""
    score = best.score or 0.0
    return score + FAR * abs(score)


def designs(space: Space, changes: Changes, scores: NDArray[np.float64], count: int) -> Genes:
    """Points with one choice changed in every block, those first that were tried least.

    Of those tried equally often the most promising first. Fewer than asked for where enough was
    tried.

    Args:
        space: where the points are.
        changes: what may be changed.
        scores: what each is expected to give, lower is better.
        count: points.
    """
    found = np.repeat(changes.base[None], count, axis=0)
    order = np.lexsort((scores, changes.tried))
    order = order[(changes.tried[order] < ENOUGH_TRIES) & (changes.blocks[order] > 0)]
    rows = 0
    for block in np.unique(changes.blocks[order]):
        own = order[changes.blocks[order] == block][:count]
        rows = max(rows, len(own))
        for row, change in enumerate(own.tolist()):
            found[row] = changes.over(found[row], change)
    return space.normal(found[:rows])


def composed(space: Space, changes: Changes, scores: NDArray[np.float64], least: float) -> Genes:
    """The best choice of every block, all put together; nothing where none is better.

    Args:
        space: where the points are.
        changes: what may be changed.
        scores: what each is expected to give, lower is better.
        least: what the point itself gives.
    """
    point, better = changes.base, np.flatnonzero(scores < least)
    for block in np.unique(changes.blocks[better]):
        own = better[changes.blocks[better] == block]
        point = changes.over(point, int(own[np.argmin(scores[own])]))
    found: Genes = space.normal(point[None])
    return found if len(better) else found[:0]
