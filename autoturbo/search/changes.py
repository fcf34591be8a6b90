"""What may be changed at a point: one choice, or two of one block of sub-graphs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from autoturbo.schedule.knobs import Stage, knob_names
from autoturbo.search.conditions import START, Genes, dimension_name

if TYPE_CHECKING:
    from autoturbo.search.space import Space

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
