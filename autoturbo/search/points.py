"""Points of a search space: encoded candidates in canonical form.

A point is a tuple of choice indices (its *genes*), ``"auto"`` being index 0 of every dimension
of a knob; arrays of genes are what samplers work on. Settings that mean the same are one point:
a value that is what ``"auto"`` stands for is written as ``"auto"``, and so is a sub-graph's
choice that changes nothing at the model's choices (:mod:`autoturbo.search.encoding`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autoturbo.caches import row_bytes
from autoturbo.schedule.knobs import AUTO, NOWHERE, Here, Knobs, model_knobs
from autoturbo.schedule.knobs.splits import FACTOR
from autoturbo.search.encoding import START, Conditions, Genes, dimension_name
from autoturbo.search.subgraphs import Block

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

ENUMERABLE = 1 << 14
"""Spaces up to this size are listed whole where candidates not yet tried are looked for."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension of the space.

    Attributes:
        name: Of a knob, or of a parameter of any Optuna study.
        choices: At least two; ``"auto"`` first where it is a knob.
    """

    name: str
    choices: tuple[Any, ...]


@dataclass(frozen=True)
class ProductSpace:
    """A product of dimensions without equivalent candidates.

    Attributes:
        dimensions: In the order of the knobs, the model's first, then block by block.
        here: The model and the target.
        blocks: Sub-graphs that have knobs of their own, those of the first start first.
        starts: Candidates that ``"auto"`` stands for; the first is the published heuristic.
        given: Candidates to begin with that are candidates of the heuristic.
    """

    dimensions: tuple[Dimension, ...]
    here: Here = NOWHERE
    blocks: tuple[Block, ...] = ()
    starts: tuple[Knobs, ...] = (Knobs(),)
    given: tuple[Knobs, ...] = ()

    @cached_property
    def size(self) -> int:
        """Return the number of candidates: exact where it is :attr:`listed`, else at most."""
        if self.listed:
            return len(self.everything())
        owned = {name: block.start for name, (block, _) in self._owners.items()}
        model, own = 1, [1] * len(self.starts)
        for d in self.dimensions:
            if d.name in owned:
                own[owned[d.name]] *= len(d.choices)
            elif d.name != START:
                model *= len(d.choices)
        return model * sum(own)

    @property
    def listed(self) -> bool:
        """Return whether the space is small enough for :meth:`everything`."""
        return math.prod(len(d.choices) for d in self.dimensions) <= ENUMERABLE

    @cached_property
    def conditions(self) -> Conditions:
        """Return the rules of the canonical form."""
        names, choices = [d.name for d in self.dimensions], [d.choices for d in self.dimensions]
        return Conditions(names, choices, self.blocks, self.starts)

    @cached_property
    def widths(self) -> Genes:
        """Return the number of choices of each dimension."""
        return np.asarray([len(d.choices) for d in self.dimensions], np.int64)

    def distributions(self, *, ordinal: bool = False) -> dict[str, BaseDistribution]:
        """Return the space as Optuna distributions by name.

        Args:
            ordinal: Choice indices as integers, for samplers that know no categories.
        """
        from optuna.distributions import CategoricalDistribution, IntDistribution

        if ordinal:
            return {d.name: IntDistribution(0, len(d.choices) - 1) for d in self.dimensions}
        return {d.name: CategoricalDistribution(d.choices) for d in self.dimensions}

    @cached_property
    def _owners(self) -> dict[str, tuple[Block, str]]:
        """Return the block and knob of each dimension that belongs to a sub-graph."""
        return {dimension_name(b, field): (b, field) for b in self.blocks for field in b.choices}

    def genes_of(self, params: Mapping[str, Any]) -> tuple[int, ...] | None:
        """Return the encoding of parameters; None where they are outside the space.

        A sub-graph's knob that is not among them is ``"auto"``.
        """
        try:
            return tuple(
                table[params[name]] if name in params or name not in self._optional else 0
                for name, table in self._indices
            )
        except (KeyError, TypeError):
            return None

    @cached_property
    def _optional(self) -> set[str]:
        """Return the dimensions that parameters need not name."""
        return {*self._owners, START} if len(self.starts) > 1 else {*self._owners}

    @cached_property
    def _indices(self) -> list[tuple[str, dict[Any, int]]]:
        return [(d.name, {c: i for i, c in enumerate(d.choices)}) for d in self.dimensions]

    def params_of(self, genes: Iterable[int]) -> dict[str, Any]:
        """Return the parameters of an encoding."""
        pairs = zip(self.dimensions, genes, strict=True)
        return {d.name: d.choices[int(index)] for d, index in pairs}

    def normal(self, genes: Genes) -> Genes:
        """Return candidates in canonical form, ``(points, dimensions)``."""
        return self.conditions.normal(genes)

    def distinct(self, genes: Genes) -> Genes:
        """Return candidates without duplicates, in lexical order."""
        distinct: Genes = genes[self.first_of_each(genes)]
        return distinct

    def first_of_each(self, genes: Genes) -> Genes:
        """Return the index of the first occurrence of each candidate, in lexical order."""
        few = int(self.widths.max(initial=1)) <= 1 << 8
        # bytes, the upper one first, compare as the choices do and much faster than whole numbers
        plain = genes.astype(np.uint8 if few else ">u4")
        if not plain.size:
            return np.arange(min(len(genes), 1))
        return np.asarray(np.unique(row_bytes(plain), return_index=True)[1], np.int64)

    def everything(self) -> Genes:
        """Return all candidates in lexical order; for spaces that are :attr:`listed`."""
        shape = tuple(self.widths.tolist())
        genes = np.indices(shape).reshape(len(shape), math.prod(shape)).T.astype(np.int64)
        canonical: Genes = genes[(self.normal(genes) == genes).all(axis=1)]
        return canonical

    def features(self, genes: Genes, columns: Genes | None = None) -> NDArray[np.float32]:
        """Return candidates as features of a cost model, ``(points, dimensions)``.

        Args:
            genes: Encodings.
            columns: Positions of the dimensions that are wanted, where not all are.
        """
        chosen = np.arange(len(self.dimensions)) if columns is None else columns
        features: NDArray[np.float32] = self._numbers[genes[:, chosen] + self._offsets[chosen]]
        return features

    @cached_property
    def _offsets(self) -> Genes:
        """Return the offset of each dimension's choices in :attr:`_numbers`."""
        return np.cumsum(self.widths) - self.widths

    @cached_property
    def _numbers(self) -> NDArray[np.float32]:
        """Return every choice of every dimension as a number."""
        numbers = [self._as_number(d, c) for d in self.dimensions for c in d.choices]
        return np.asarray(numbers, np.float32)

    def _as_number(self, dimension: Dimension, choice: Any) -> float:
        """Return a choice as an ordered number; knobs as the cost model encodes them."""
        if (decision := model_knobs().get(dimension.name)) is not None:
            return decision.number(choice, self.here)
        if dimension.name in self._owners:
            block, field = self._owners[dimension.name]
            if field == FACTOR:
                return math.log2(block.parts if choice == AUTO else choice)
            return float(dimension.choices.index(choice))
        if isinstance(choice, int | float):
            return float(choice)
        return float(dimension.choices.index(choice))
