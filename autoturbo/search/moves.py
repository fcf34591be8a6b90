"""Moves between points of a search space, by chance: draws, mutants, children.

Sub-graphs' dimensions are many and each matters little: points drawn at random and mutants leave
most of them at ``"auto"``, and children have all of a sub-graph's choices from one parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from autoturbo.schedule.knobs import knob_names
from autoturbo.search.conditions import START, Genes, dimension_name
from autoturbo.search.points import Points

OWN_MOVES = 0.25
"""Share of mutants whose one certain change is a sub-graph's and not the model's."""

RELAPSE = 0.85
"""Chance that a sub-graph's choice, when it changes, goes back to ``"auto"``."""

OWN_CHOICES = 2.0
"""Choices that a block has at random where it has any, on average."""


class Moves(Points):
    """Points, and how to get from some to others."""

    def random(self, rng: np.random.Generator, count: int, *, dense: bool = False) -> Genes:
        """Points drawn at random, repetitions possible: the model's choices uniformly.

        Args:
            rng: where chance comes from.
            count: how many.
            dense: sub-graphs' choices uniformly too, instead of one block's or none.
        """
        genes = rng.integers(0, self.widths, (count, len(self.dimensions)))
        if not self.blocks:
            return genes
        if not dense:
            beside = np.bincount([b.start for b in self.blocks])[[b.start for b in self.blocks]]
            chosen = rng.random((count, len(self.blocks) + 1)) < 1 / np.maximum([1, *beside], 2)
            chosen[:, 0] = True
            rate = np.where(self.unit_of > 0, OWN_CHOICES / self._unit_size, 1.0)
            genes *= chosen[:, self.unit_of] & (rng.random(genes.shape) < rate)
        return self.normal(genes)

    def mutate(self, rng: np.random.Generator, genes: Genes, rate: float = 0.0) -> Genes:
        """Copies of points with at least one choice changed each.

        Args:
            rng: where chance comes from.
            genes: ``(points, dimensions)``.
            rate: chance of each further dimension of the model to change, and of each further
                block to change in one dimension.
        """
        points, dimensions = genes.shape
        if not dimensions:
            return genes.copy()
        change = rng.random(genes.shape) < np.where(self.unit_of > 0, rate / self._unit_size, rate)
        model = int((self.unit_of == 0).sum())
        certain = np.asarray(rng.integers(0, model, points), np.int64)
        change[np.arange(points), self._first(rng, certain, genes, model)] = True
        shift = rng.integers(1, np.maximum(self.widths, 2), genes.shape)
        moved = np.where(change, (genes + shift) % self.widths, genes)
        if not self.blocks:
            return moved
        return self._settled(rng, genes, moved, certain)

    def _first(self, rng: np.random.Generator, certain: Genes, genes: Genes, model: int) -> Genes:
        """The dimension of each mutant that is sure to move, one of its start's."""
        if not self.blocks:
            return certain
        first = model + np.searchsorted(self._start_at[model:], np.arange(len(self.starts) + 1))
        at = genes[:, self._start] if self._start is not None else np.zeros(len(genes), np.int64)
        at = np.where(first[at] < first[at + 1], at, 0)
        own = rng.integers(first[at], first[at + 1])
        return np.where(rng.random(len(certain)) < OWN_MOVES, own, certain)

    def _settled(
        self, rng: np.random.Generator, genes: Genes, moved: Genes, certain: Genes
    ) -> Genes:
        """Mutants in their one form, none of them its parent: there the model's choice moves."""
        relapse = (genes > 0) & (moved != genes) & (self.unit_of > 0)
        moved = np.where(relapse & (rng.random(genes.shape) < RELAPSE), 0, moved)
        one, other = self._partners
        drawn = rng.integers(1, self.widths[other][:, None], (len(other), len(genes)))
        alone = (moved[:, one] > 0) & (moved[:, other] == 0) & (genes[:, one] == 0)
        point, pair = np.nonzero(alone)  # never both ways round
        moved[point, other[pair]] = drawn[pair, point]
        moved = self.normal(moved)
        same = np.flatnonzero((moved == genes).all(axis=1))
        at = certain[same]
        step = rng.integers(1, np.maximum(self.widths[at], 2))
        moved[same, at] = (moved[same, at] + step) % self.widths[at]
        moved[same] = self.normal(moved[same])
        return moved

    def cross(self, rng: np.random.Generator, first: Genes, second: Genes) -> Genes:
        """Children that have each of the model's choices, and each block's, from one parent."""
        model = int((self.unit_of == 0).sum())
        unit = np.where(self.unit_of > 0, model + self.unit_of - 1, np.arange(len(self.unit_of)))
        coins = rng.random((len(first), model + len(self.blocks))) < 0.5  # noqa: PLR2004  fair
        return self.normal(np.where(coins[:, unit], first, second))

    def neighbours(self, genes: Sequence[int]) -> Genes:
        """All points that differ from one in one choice, and in what that makes meaningless."""
        found = [
            (*genes[:index], other, *genes[index + 1 :])
            for index, dimension in enumerate(self.dimensions)
            for other in range(len(dimension.choices))
            if other != genes[index]
        ]
        near = self.normal(np.asarray(found, np.int64).reshape(len(found), len(self.dimensions)))
        points = dict.fromkeys(map(tuple, near.tolist()))
        points.pop(tuple(int(g) for g in genes), None)
        return np.asarray(list(points), np.int64).reshape(len(points), len(self.dimensions))

    @cached_property
    def unit_of(self) -> Genes:
        """Per dimension, 0 for the model's and the number of the block, from 1, for the others."""
        units = [np.full(len(b.choices), i) for i, b in enumerate(self.blocks, 1)]
        model = np.zeros(len(self.dimensions) - sum(map(len, units)))
        return np.concatenate([model, *units]).astype(np.int64)

    @cached_property
    def _unit_size(self) -> Genes:
        """Per dimension, the number of dimensions of its unit."""
        found: Genes = np.bincount(self.unit_of)[self.unit_of]
        return found

    @cached_property
    def _start(self) -> int | None:
        """Position of the dimension that chooses the start, if there is a choice."""
        names = [d.name for d in self.dimensions]
        return names.index(START) if len(self.starts) > 1 else None

    @cached_property
    def _start_at(self) -> Genes:
        """Per dimension, the start that it belongs to; 0 for the model's."""
        starts = np.asarray([0, *(b.start for b in self.blocks)], np.int64)
        found: Genes = starts[self.unit_of]
        return found

    @cached_property
    def _partners(self) -> tuple[Genes, Genes]:
        """Positions of the second axis and of its parts, which mean nothing alone; and back."""
        names = [d.name for d in self.dimensions]
        both = knob_names("subgraph", group="inner")
        having = [block for block in self.blocks if set(both) <= set(block.choices)]
        pairs = [[names.index(dimension_name(block, field)) for field in both] for block in having]
        found = np.asarray(pairs, np.int64).reshape(-1, 2)
        return found.ravel(), found[:, ::-1].ravel()
