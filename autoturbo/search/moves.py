"""Moves between points of a search space, by chance: draws and mutants; neighbours.

Sub-graphs' dimensions are many and each matters little: points drawn at random and mutants leave
most of them at ``"auto"``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache

import numpy as np

from autoturbo.schedule.knobs import knob_names
from autoturbo.search.constants import SEARCH, Draws
from autoturbo.search.encoding import START, Genes, dimension_name
from autoturbo.search.points import ProductSpace

_BASES = 16
"""Candidates whose neighbours are kept: a climb asks for those of few, again and again."""


class Moves(ProductSpace):
    """Candidates, and the moves from some to others."""

    def random(
        self,
        rng: np.random.Generator,
        count: int,
        draws: Draws = SEARCH.draws,
        *,
        dense: bool = False,
    ) -> Genes:
        """Return candidates drawn at random, with repetitions: the model's choices uniformly.

        Args:
            rng: Where chance comes from.
            count: How many.
            draws: How many choices are made for sub-graphs.
            dense: Sub-graphs' choices uniformly too, instead of one block's or none.
        """
        genes = rng.integers(0, self.widths, (count, len(self.dimensions)))
        if not self.blocks:
            return genes
        if not dense:
            beside = np.bincount([b.start for b in self.blocks])[[b.start for b in self.blocks]]
            chosen = rng.random((count, len(self.blocks) + 1)) < 1 / np.maximum([1, *beside], 2)
            chosen[:, 0] = True
            rate = np.where(self.unit_of > 0, draws.subgraph_choices / self._unit_size, 1.0)
            genes *= chosen[:, self.unit_of] & (rng.random(genes.shape) < rate)
        return self.normal(genes)

    def mutate(
        self,
        rng: np.random.Generator,
        genes: Genes,
        rate: float = 0.0,
        draws: Draws = SEARCH.draws,
    ) -> Genes:
        """Return copies of candidates with at least one choice changed each.

        Args:
            rng: Where chance comes from.
            genes: ``(points, dimensions)``.
            rate: Chance of each further dimension of the model to change, and of each further
                block to change in one dimension.
            draws: How sub-graphs' choices change.
        """
        points, dimensions = genes.shape
        if not dimensions:
            return genes.copy()
        change = rng.random(genes.shape) < np.where(self.unit_of > 0, rate / self._unit_size, rate)
        model = int((self.unit_of == 0).sum())
        certain = np.asarray(rng.integers(0, model, points), np.int64)
        first = self._first(rng, certain, genes, model, draws.subgraph_moves)
        change[np.arange(points), first] = True
        shift = rng.integers(1, np.maximum(self.widths, 2), genes.shape)
        moved = np.where(change, (genes + shift) % self.widths, genes)
        if not self.blocks:
            return moved
        return self._settled(rng, genes, moved, certain, draws.subgraph_reverts)

    def _first(
        self, rng: np.random.Generator, certain: Genes, genes: Genes, model: int, moves: float
    ) -> Genes:
        """Return the dimension that each mutant is sure to change, one of its start's.

        Args:
            rng: All chance.
            certain: Per mutant, a dimension of the model's knobs, drawn before.
            genes: The parents, ``(points, dimensions)``.
            model: How many dimensions are the model's; they come first.
            moves: Share of mutants for which it is a sub-graph's.
        """
        if not self.blocks:
            return certain
        first = model + np.searchsorted(self._start_at[model:], np.arange(len(self.starts) + 1))
        start = genes[:, self._start] if self._start is not None else np.zeros(len(genes), np.int64)
        start = np.where(first[start] < first[start + 1], start, 0)
        subgraph = rng.integers(first[start], first[start + 1])
        return np.where(rng.random(len(certain)) < moves, subgraph, certain)

    def _settled(
        self,
        rng: np.random.Generator,
        genes: Genes,
        moved: Genes,
        certain: Genes,
        reverts: float,
    ) -> Genes:
        """Return mutants in canonical form; one equal to its parent mutates the model's knobs.

        Args:
            rng: All chance.
            genes: The parents, ``(points, dimensions)``.
            moved: Their mutants, likewise.
            certain: Per mutant, the dimension that changes where nothing else did.
            reverts: Chance that a sub-graph's choice that changes is taken back.
        """
        relapse = (genes > 0) & (moved != genes) & (self.unit_of > 0)
        moved = np.where(relapse & (rng.random(genes.shape) < reverts), 0, moved)
        owners, partners = self._partners
        drawn = rng.integers(1, self.widths[partners][:, None], (len(partners), len(genes)))
        alone = (moved[:, owners] > 0) & (moved[:, partners] == 0) & (genes[:, owners] == 0)
        point, pair = np.nonzero(alone)  # never both ways round
        moved[point, partners[pair]] = drawn[pair, point]
        moved = self.normal(moved)
        same = np.flatnonzero((moved == genes).all(axis=1))
        position = certain[same]
        step = rng.integers(1, np.maximum(self.widths[position], 2))
        moved[same, position] = (moved[same, position] + step) % self.widths[position]
        moved[same] = self.normal(moved[same])
        return moved

    def neighbours(self, genes: Sequence[int]) -> Genes:
        """Return all candidates that differ from one in a single choice, in canonical form."""
        return self._near(tuple(int(gene) for gene in genes))

    @cached_property
    def _near(self) -> Callable[[tuple[int, ...]], Genes]:
        return lru_cache(maxsize=_BASES)(self._changed)

    def _changed(self, genes: tuple[int, ...]) -> Genes:
        changed = [
            (*genes[:index], choice, *genes[index + 1 :])
            for index, dimension in enumerate(self.dimensions)
            for choice in range(len(dimension.choices))
            if choice != genes[index]
        ]
        near = self.normal(
            np.asarray(changed, np.int64).reshape(len(changed), len(self.dimensions))
        )
        points = dict.fromkeys(map(tuple, near.tolist()))
        points.pop(genes, None)
        return np.asarray(list(points), np.int64).reshape(len(points), len(self.dimensions))

    @cached_property
    def unit_of(self) -> Genes:
        """Return the number of each dimension's block, from 1; 0 for the model's dimensions."""
        units = [np.full(len(b.choices), i) for i, b in enumerate(self.blocks, 1)]
        model = np.zeros(len(self.dimensions) - sum(map(len, units)))
        return np.concatenate([model, *units]).astype(np.int64)

    @cached_property
    def _unit_size(self) -> Genes:
        """Return, per dimension, the number of dimensions of its block or of the model."""
        sizes: Genes = np.bincount(self.unit_of)[self.unit_of]
        return sizes

    @cached_property
    def _start(self) -> int | None:
        """Return the position of the dimension that chooses the start, if there is a choice."""
        names = [d.name for d in self.dimensions]
        return names.index(START) if len(self.starts) > 1 else None

    @cached_property
    def _start_at(self) -> Genes:
        """Return the start that each dimension belongs to; 0 for the model's."""
        starts = np.asarray([0, *(b.start for b in self.blocks)], np.int64)
        start_at: Genes = starts[self.unit_of]
        return start_at

    @cached_property
    def _partners(self) -> tuple[Genes, Genes]:
        """Return the positions of the second axis and its parts, each with its partner."""
        names = [d.name for d in self.dimensions]
        fields = knob_names("subgraph", group="inner")
        having = [block for block in self.blocks if set(fields) <= set(block.choices)]
        pairs = [
            [names.index(dimension_name(block, field)) for field in fields] for block in having
        ]
        positions = np.asarray(pairs, np.int64).reshape(-1, 2)
        return positions.ravel(), positions[:, ::-1].ravel()
