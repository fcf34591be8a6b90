"""Choices of many sub-graphs at once: tried together, told apart, put together.

A schedule's time is the sum of its kernels', and a kernel depends mostly on its own choices. So one
measurement can try a choice in many blocks of sub-graphs, and a model that learns kernels from it
tells them apart; then the best choices of blocks are put together, each where it still helps.
Chance tries one of a few hundred such choices at a time, and most of them make a schedule slower.

Some choices help in twos only: parts along another dimension, and how many. A block has hundreds of
pairs of them, so the blocks that matter most are looked at with all of theirs.

What is tried first is what might be best, not what is expected to be: no model knows well
beforehand where a kernel's tensors will be, and a choice that would keep them near looks bad to one
that does not expect it. Once measured, a choice of which too much was hoped falls behind.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoturbo.cost_models.looks import Look
from autoturbo.schedule.knobs import Stage, knob_names
from autoturbo.search.constants import SEARCH
from autoturbo.search.encoding import ANY, START, Genes, dimension_name
from autoturbo.search.quick_model import idle_trials

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from autoturbo.search.quick_model import Tried
    from autoturbo.search.space import Space

    Expected = Callable[[Genes], NDArray[np.float64]]
    """What points are expected to give, lower is better."""

# What may be changed at a point: one choice, or two of one block of sub-graphs.

CUTTING: Final = (
    *knob_names("layer", "subgraph", upto=Stage.PARTITION),
    *knob_names("subgraph", after=Stage.ORDER, upto=Stage.PLACE),
)
"""Knobs that say how a sub-graph is cut, spread over cores and kept: most pairs are of these."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Points that differ from one in choices of one block, or in one of the model.

    Attributes:
        base: the point.
        points: ``(changes, dimensions)``.
        blocks: which block, from 1, and 0 for the model, ``(changes,)``.
        tried: measured points that had the choices, ``(changes,)``.
        paired: whether it is two choices, ``(changes,)``.
    """

    base: Genes
    points: Genes
    blocks: Genes
    tried: Genes
    paired: NDArray[np.bool_]

    def over(self, point: Genes, change: int) -> Genes:
        """Another point with what a change changes."""
        return np.where(self.points[change] != self.base, self.points[change], point)

    def distinct(self, kinds: Sequence[Hashable]) -> tuple[Changes, Genes]:
        """Of a block's changes one of each kind, and none that changes nothing; all the model's.

        Args:
            kinds: of the point and of each change: equal for what is the same thing to measure.

        Returns:
            What is left, tried as often as all of its kind, and which these are.
        """
        first = dict[Hashable, int]()
        tried = self.tried.copy()
        for at, (kind, block) in enumerate(zip(kinds[1:], self.blocks.tolist(), strict=True)):
            if not block:
                first[at] = at
            elif kind != kinds[0]:
                one = first.setdefault((kind, block), at)
                tried[one] += tried[at] if one != at else 0
        kept = np.fromiter(first.values(), np.int64, len(first))
        points, blocks, paired = self.points[kept], self.blocks[kept], self.paired[kept]
        return Changes(self.base, points, blocks, tried[kept], paired), kept

    def joined(self, others: Changes) -> Changes:
        """These and others of the same point."""
        columns = ("points", "blocks", "tried", "paired")
        return Changes(
            self.base, *(np.concatenate([getattr(c, n) for c in (self, others)]) for n in columns)
        )


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
    full = np.isin(unit[at], unit[(base > 0) & (unit > 0)])  # elsewhere alone is beside nothing
    new, own = np.flatnonzero(choice != base[at]), np.flatnonzero(full)
    beside, alone = (np.repeat(base[None], len(rows), axis=0) for rows in (new, own))
    alone[unit == unit[at[own]][:, None]] = 0
    beside[np.arange(len(new)), at[new]] = choice[new]
    alone[np.arange(len(own)), at[own]] = choice[own]
    points = space.normal(np.concatenate([beside, alone]))
    at, choice = (np.concatenate([x[new], x[own]]) for x in (at, choice))
    kept = _meant(space, base, points, at[:, None], choice[:, None])
    at, choice = at[kept], choice[kept]
    tried = _tried(space, measured, at, choice)
    return Changes(base, points[kept], unit[at], tried, np.zeros(len(at), np.bool_))


def pairs_of(space: Space, base: Genes, measured: Genes, blocks: Genes) -> Changes:
    """Every two choices of a block, in place of all that it has at a point.

    Args:
        space: where the point is.
        base: the point, ``(dimensions,)``.
        measured: points, ``(points, dimensions)``.
        blocks: which, from 1: of the first any two choices, of the others those of
            :data:`CUTTING`.
    """
    unit = space.unit_of
    at, choice = _choices(space)
    paired = np.isin(unit, blocks[:1]) | (np.isin(unit, blocks) & _cutting(space))
    own = (choice > 0) & paired[at]
    at, choice = at[own], choice[own]
    one, other = np.triu_indices(len(at), 1)
    together = (unit[at[one]] == unit[at[other]]) & (at[one] != at[other])
    pairs = np.column_stack((one[together], other[together]))
    has = (measured[:, at] == choice).astype(np.float32)
    both = (has.T @ has)[pairs[:, 0], pairs[:, 1]].astype(np.int64)
    ats, choices = at[pairs], choice[pairs]
    points = np.repeat(base[None], len(pairs), axis=0)
    points[unit == unit[ats[:, :1]]] = 0
    np.put_along_axis(points, ats, choices, axis=1)
    points = space.normal(points)
    kept = _meant(space, base, points, ats, choices)
    blocks = unit[ats[kept, 0]]
    return Changes(base, points[kept], blocks, both[kept], np.ones(len(blocks), np.bool_))


def _cutting(space: Space) -> NDArray[np.bool_]:
    """Which dimensions are of :data:`CUTTING`."""
    cutting = {dimension_name(block, knob) for block in space.blocks for knob in CUTTING}
    return np.asarray([dimension.name in cutting for dimension in space.dimensions])


def _meant(
    space: Space, base: Genes, points: Genes, ats: Genes, choices: Genes
) -> NDArray[np.bool_]:
    """Which points still have their choices, differ in their block alone and are the first such.

    Args:
        space: where they are.
        base: what they were made of, ``(dimensions,)``.
        points: in their one form, ``(points, dimensions)``.
        ats: dimensions of the choices, of one unit, ``(points, choices)``.
        choices: ``(points, choices)``.
    """
    own = space.unit_of[ats[:, :1]]
    moved = points != base
    elsewhere = (moved & (space.unit_of != own)).any(axis=1) & (own[:, 0] > 0)
    has = (np.take_along_axis(points, ats, axis=1) == choices).all(axis=1)
    first = np.zeros(len(ats), np.bool_)
    first[space.first_of_each(points)] = True
    found: NDArray[np.bool_] = has & ~elsewhere & first & moved.any(axis=1)
    return found


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


_PLACING = (START, "batches_per_cluster")
"""Dimensions that tell places apart."""


class _Looked(NamedTuple):
    """What may be changed at a point and what each change gives; and the point itself."""

    changes: Changes
    expected: NDArray[np.float64]
    hoped: NDArray[np.float64]
    least: float


def together(
    space: Space,
    history: Sequence[Tried],
    count: int,
    turn: int,
    look: Callable[[Genes], Look],
) -> Genes:
    """The best choices of all blocks put together, then points that try some in many blocks.

    What is put together are the best of all blocks' choices, the model's best with them, and the
    best of those that were tried: a model is surer of these, and may be right on the others.

    Args:
        space: where to look.
        history: what was tried; something was measured.
        count: points that try at most, for each that they start from.
        turn: number of the batch, which decides what else than the best they start from.
        look: at points.
    """

    def expected(points: Genes) -> NDArray[np.float64]:
        return look(points).expected

    def hoped(points: Genes) -> NDArray[np.float64]:
        return look(points).hoped

    measured = np.asarray([t.genes for t in history if t.score is not None], np.int64)
    best, new = list[Genes](), list[Genes]()
    idle = idle_trials(history, SEARCH.no_gain)
    either = len(history) >= SEARCH.alternating_trials or idle >= SEARCH.stale_trials
    every = idle >= 2 * SEARCH.stale_trials and turn // 2 % 2 == 1
    first, *others = bases_of(space, history, turn // 2 if either else turn)
    bases = [(first, False), *((other, True) for other in others)]
    if either:
        bases = bases[turn % 2 :][:1] or bases
    for base, elsewhere in bases:
        changes, scores, hopes, least = _looked_at(space, base, measured, look)
        own = _of_blocks(changes, scores)
        surer = np.where(changes.tried > 0, own, np.inf)
        variants = (own, scores) if elsewhere else (own, scores, surer)
        best.append(composed(space, changes, variants, least, expected))
        new.append(designs(space, changes, hopes, count, hoped, every=every))
    rounds = [made[row : row + 1] for row in range(count) for made in new]
    return np.concatenate([*best, *rounds])


def begun(space: Space, points: Genes, expected: Expected, count: int) -> Genes:
    """The best choices of all blocks put together, where nothing was measured yet.

    At places that are not expected to be far behind; also at the starts that are, which need not be
    with a choice for one of their blocks, and then only what is not far behind any more.

    Args:
        space: where to look.
        points: what they are put together at: one point of each place, starts as they are too.
        expected: the logarithm of what points give.
        count: places at most, beside starts.
    """

    def made_at(bases: Sequence[Genes]) -> Genes:
        found = [points[:0]]
        for base in bases:
            looked = _looked_at(space, base, points[:0], lambda p: Look.plain(p, expected(p)))
            changes, said, _, least = looked
            found.append(composed(space, changes, [_of_blocks(changes, said)], least, expected))
        return np.concatenate(found)

    scores = expected(points)
    near = np.flatnonzero(scores <= scores.min() + np.log1p(SEARCH.far_share))
    places = _first_of_places(space, points[near[np.argsort(scores[near], kind="stable")]])[:count]
    bare = np.asarray([dimension.name != START for dimension in space.dimensions])
    starts = points[(points[:, bare] == 0).all(axis=1)]
    others = _first_of_places(space, np.concatenate([places, starts]))[len(places) :]
    made, more = made_at(places), made_at(others)
    least = np.concatenate([scores, expected(made)]).min()
    return np.concatenate([made, more[expected(more) <= least + np.log1p(SEARCH.far_share)]])


def _looked_at(
    space: Space, base: Genes, measured: Genes, look: Callable[[Genes], Look]
) -> _Looked:
    """What may be changed at a point, of each kind once.

    Pairs of choices are of the blocks whose single choices make most difference.
    """
    changes = changes_of(space, base, measured)
    seen = look(np.concatenate([base[None], changes.points]))
    long = SEARCH.paired_layers < space.layers < ANY
    heaviest = _heaviest(changes, seen.expected[1:])[: 0 if long else SEARCH.paired_kinds]
    pairs = pairs_of(space, base, measured, heaviest)
    if len(pairs.points):
        changes, seen = changes.joined(pairs), seen.joined(look(pairs.points))
    changes, kept = changes.distinct(seen.kinds)
    return _Looked(changes, seen.expected[1:][kept], seen.hoped[1:][kept], float(seen.expected[0]))


def _of_blocks(changes: Changes, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The scores with those of the model's choices out of reach."""
    return np.where(changes.blocks > 0, scores, np.inf)


def _heaviest(changes: Changes, scores: NDArray[np.float64]) -> Genes:
    """The blocks whose choices are expected to make most difference first."""
    blocks = np.unique(changes.blocks[changes.blocks > 0])
    known = [scores[(changes.blocks == block) & np.isfinite(scores)] for block in blocks]
    spread = np.asarray([own.std() if len(own) else 0.0 for own in known])
    found: Genes = blocks[np.argsort(-spread, kind="stable")]
    return found


def bases_of(space: Space, history: Sequence[Tried], turn: int) -> list[Genes]:
    """The best measured point, and the best one of another place that is not far behind.

    A place is a start with a number of samples at once: what is best before a place's sub-graphs
    are tuned need not be afterwards. A space without starts is one place.

    Args:
        space: where the points are.
        history: what was tried; something was measured.
        turn: which of the ``places`` best others, modulo their number.
    """
    measured = sorted((t for t in history if t.score is not None), key=lambda t: t.score or 0.0)
    most = _worth(measured[0])
    near = [tried.genes for tried in measured if (tried.score or 0.0) <= most]
    first, *others = _first_of_places(space, np.asarray(near, np.int64))
    others = others[: SEARCH.places]
    return [first, others[turn % len(others)]] if others else [first]


def _first_of_places(space: Space, points: Genes) -> list[Genes]:
    """The first point of every place, in order."""
    names = [dimension.name for dimension in space.dimensions]
    placing = [names.index(name) for name in _PLACING if START in names and name in names]
    found: dict[tuple[int, ...], Genes] = {}
    for point in points:
        found.setdefault(tuple(point[placing].tolist()), point)
    return list(found.values())


def _worth(best: Tried) -> float:
    """The highest score that is not far from the best; scores may be of either sign."""
    score = best.score or 0.0
    return score + SEARCH.far_share * abs(score)


def designs(
    space: Space,
    changes: Changes,
    hopes: NDArray[np.float64],
    count: int,
    hoped: Expected,
    *,
    every: bool = False,
) -> Genes:
    """Points with a change in every other block, the most promising first.

    Blocks take turns, so that what depends on a neighbour shows too; one choice and two do where a
    block has both. A change that takes the room of those before it is left out. Fewer points than
    asked for where enough was tried.

    Where that has found nothing for long, neighbours may have to change together: then every block
    changes at once.

    Args:
        space: where the points are.
        changes: what may be changed.
        hopes: what each might give, lower is better.
        count: points.
        hoped: what points might give, on the scale of the hopes.
        every: whether every block changes, and not every other one.
    """
    chosen: list[list[int]] = [[] for _ in range(count)]
    order = np.argsort(hopes, kind="stable")
    order = order[(changes.tried[order] < SEARCH.screened_trials) & (changes.blocks[order] > 0)]
    blocks = np.unique(changes.blocks[order])
    each = 1 if every else min(len(blocks), 2)
    for number, block in enumerate(blocks):
        own = order[changes.blocks[order] == block]
        single, pairs = (own[changes.paired[own] == kind].tolist() for kind in (False, True))
        for turn, row in enumerate(range(number % each, count, each)[: len(own)]):
            first, second = (single, pairs) if turn % 2 == 0 else (pairs, single)
            chosen[row].append((first or second).pop(0))
    return _built_up(space, changes, chosen, np.inf, hoped, SEARCH.crowded_share)


def composed(
    space: Space,
    changes: Changes,
    variants: Sequence[NDArray[np.float64]],
    least: float,
    expected: Expected,
) -> Genes:
    """The best choices of blocks put together, the most promising first; nothing if none is better.

    Each is kept only where more is expected with it than without: two that are good alone may want
    the same room.

    Args:
        space: where the points are.
        changes: what may be changed.
        variants: for each point what every change is expected to give, lower is better; infinite
            for what is left out.
        least: what the point itself gives.
        expected: of points, on the scale of the scores.
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
    """Points with changes made one upon the other, without those that make a point worse.

    What is left of all points is asked for at once, until nothing is left out any more.

    Args:
        space: where the points are.
        changes: what may be changed.
        chosen: for each point, changes in order; where there are none there is no point.
        least: what the point without any gives.
        score: of points, lower is better.
        slack: what is worse by less is no worse.
    """
    left = dict(enumerate(some for some in chosen if some))
    points, limits = [changes.base] * len(left), [least] * len(left)
    while left:
        made = [_one_upon_the_other(changes, points[n], some) for n, some in left.items()]
        stacked = space.normal(np.concatenate(made))
        ends = np.cumsum([len(some) for some in left.values()])[:-1]
        parts, said = np.split(stacked, ends), np.split(score(stacked), ends)
        rest = {}
        for (number, some), own, scores in zip(left.items(), parts, said, strict=True):
            fits = scores < np.concatenate([[limits[number]], scores[:-1]]) + slack
            many = len(fits) if fits.all() else int(np.argmin(fits))
            if many:
                points[number], limits[number] = own[many - 1], float(scores[many - 1])
            if some[many + 1 :]:
                rest[number] = some[many + 1 :]
        left = rest
    return np.asarray(points, np.int64).reshape(-1, len(changes.base))


def _one_upon_the_other(changes: Changes, point: Genes, some: Sequence[int]) -> Genes:
    """A point with the first of some changes, with the first two, and so on."""
    made = []
    for change in some:
        point = changes.over(point, change)
        made.append(point)
    return np.asarray(made)
