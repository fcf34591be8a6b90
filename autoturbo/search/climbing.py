"""Climbing by measuring: the best candidate's single changes, first those that take a choice back.

Where a measurement is cheap, measuring neighbours finds more per CPU second than models that say
which are promising: near the best nothing predicts well, and most of a neighbour's schedule is
cached. A proposal follows from the seed and the outcomes so far, and from nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from autoturbo.search.encoding import Genes
from autoturbo.search.group_screening import first_of_places

if TYPE_CHECKING:
    from autoturbo.search.constants import Climbing
    from autoturbo.search.space import Space

Point = tuple[int, ...]
Idle = set[tuple[int, int]]
"""Dimensions with choices that changed nothing."""

_LOOKED_AT = 32
"""Of the best candidates, those that tell which choices change nothing."""


def reversions(space: Space, point: Point) -> list[Point]:
    """Return a candidate with each of its choices taken back, one at a time, in canonical form."""
    chosen = np.flatnonzero(point)
    genes = np.repeat(np.asarray(point, np.int64)[None], len(chosen), axis=0)
    genes[np.arange(len(chosen)), chosen] = 0
    return _distinct(space.normal(genes), point)


def climb(
    space: Space,
    scored: Sequence[tuple[Point, float]],
    taken: set[Point],
    count: int,
    seed: int,
    climbing: Climbing,
) -> list[Point]:
    """Return candidates to measure next: around the best, and around the best of other places.

    First what was good near a base is tried together with it, then its reversions, then its other
    neighbours in a random order, last those that made no difference to another base; once all of
    them are known, those of the next best one. The best base has half of a round, the best of other
    places (starts, and numbers of samples at once) that are not far behind have the rest: what is
    best before a place is climbed need not be afterwards.

    Args:
        space: Of the candidates.
        scored: Measured candidates with their scores, lower is better, in order.
        taken: Candidates that are known, measured or not.
        count: How many to return; fewer only where the space has no more near them.
        seed: Of the order.
        climbing: How many are climbed from.
    """
    ranked = sorted(range(len(scored)), key=lambda index: (scored[index][1], index))
    points = np.asarray([scored[index][0] for index in ranked], np.int64)
    idle = _idle(points, [scored[index][1] for index in ranked], range(len(ranked))[:_LOOKED_AT])
    first = {tuple(place.tolist()) for place in first_of_places(space, points)[: climbing.climbed]}
    most = _worth(scored[ranked[0]][1], climbing.far_share)
    heads = [i for i in ranked if scored[i][0] in first and scored[i][1] <= most]
    rest = [index for index in ranked[: climbing.climbed_from] if index not in heads]
    paths = [
        (
            p
            for at in (head, *(rest if not turn else ()))
            for p in _around(space, scored, at, seed, idle, climbing)
        )
        for turn, head in enumerate(heads)
    ]
    found: dict[Point, None] = {}
    turns = itertools.cycle([0, *range(1, len(paths)), *([0] * (len(paths) - 2))])
    spent = 0
    while len(found) < count and spent <= 2 * len(paths):
        new = next((p for p in paths[next(turns)] if p not in taken and p not in found), None)
        spent = spent + 1 if new is None else 0
        if new is not None:
            found[new] = None
    return list(found)


def _worth(best: float, far_share: float) -> float:
    """Return the highest score that is not far from the best; scores may be of either sign."""
    return best + far_share * abs(best)


def _around(
    space: Space,
    scored: Sequence[tuple[Point, float]],
    place: int,
    seed: int,
    idle: Idle,
    climbing: Climbing,
) -> Iterator[Point]:
    point = scored[place][0]
    yield from _joined(space, point, scored, climbing)
    yield from reversions(space, point)
    near = space.neighbours(point)
    near = near[np.random.default_rng([seed, place]).permutation(len(near))]
    changed = near != np.asarray(point)
    at = changed.argmax(axis=1)
    pairs = zip(at.tolist(), near[np.arange(len(near)), at].tolist(), strict=True)
    last = np.asarray([pair in idle for pair in pairs], bool) & (changed.sum(axis=1) == 1)
    yield from map(tuple, near[np.argsort(last, kind="stable")].tolist())


def _idle(points: Genes, scores: Sequence[float], bases: Sequence[int]) -> Idle:
    """Return the choices, by dimension, that made no difference to one of some bases."""
    found = set[tuple[int, int]]()
    for base in bases:
        changed = points != points[base]
        same = (changed.sum(axis=1) == 1) & (np.asarray(scores) == scores[base])
        at = changed[same].argmax(axis=1)
        found.update(zip(at.tolist(), points[same][np.arange(len(at)), at].tolist(), strict=True))
    return found


def _joined(
    space: Space, point: Point, scored: Sequence[tuple[Point, float]], climbing: Climbing
) -> list[Point]:
    """Return a candidate with the choices of others near it on top, the best of them first.

    Several neighbours of a round may each be better than their base: the best one is the new base,
    and what the others chose is likely to help it too.
    """
    base = np.asarray(point, np.int64)
    others = np.asarray([genes for genes, _ in scored], np.int64)
    apart = (others != base).sum(axis=1)
    close = np.flatnonzero((apart > 0) & (apart <= climbing.joined_apart))
    best = sorted(close.tolist(), key=lambda index: scored[index][1])[: climbing.joined]
    if not best:
        return []
    return _distinct(space.normal(np.where(others[best] > 0, others[best], base)), point)


def _distinct(genes: Genes, base: Point) -> list[Point]:
    """Return candidates without duplicates, and without a base."""
    points = dict.fromkeys(map(tuple, genes.tolist()))
    points.pop(base, None)
    return list(points)
