"""Points of a search space: a choice index per dimension, and the one form of those that are alike.

A point is a tuple of choice indices (its *genes*), ``"auto"`` being index 0 of every dimension of a
knob; arrays of genes are what samplers work on. Settings that mean the same are one point: a value
that is what ``"auto"`` stands for is written as ``"auto"``, and so is a sub-graph's choice that
changes nothing at the model's choices (:mod:`autoturbo.search.conditions`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autoturbo.cost_models.features import KNOB_NAMES, knob_vector
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.search.conditions import START, Conditions, Genes, dimension_name
from autoturbo.search.subgraphs import Block
from autoturbo.stores import row_bytes

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

ANY = 1 << 30
"""Layers of a model that is not known: more than any has."""

ENUMERABLE = 1 << 14
"""Spaces up to this size are listed whole where points not yet tried are looked for."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One thing to choose.

    Attributes:
        name: of a knob, or of a parameter of any Optuna study.
        choices: at least two; ``"auto"`` first where it is a knob.
    """

    name: str
    choices: tuple[Any, ...]


@dataclass(frozen=True)
class Points:
    """A product of dimensions, less what means the same.

    Attributes:
        dimensions: in the order of the knobs, the model's first, then block by block.
        share: samples of the busiest cluster, which ``batches_per_cluster="auto"`` stands for.
        layers: layers of the model, the most that one sub-graph can hold.
        blocks: sub-graphs that have knobs of their own, those of the first start first.
        starts: settings that ``"auto"`` stands for; the first is the published heuristic.
        given: settings to begin with that are points of the heuristic.
    """

    dimensions: tuple[Dimension, ...]
    share: int = 1
    layers: int = ANY
    blocks: tuple[Block, ...] = ()
    starts: tuple[Knobs, ...] = (Knobs(),)
    given: tuple[Knobs, ...] = ()

    @cached_property
    def size(self) -> int:
        """Number of points; exact, however large."""
        return self.conditions.size

    @property
    def listed(self) -> bool:
        """Whether :meth:`everything` may be asked."""
        return math.prod(len(d.choices) for d in self.dimensions) <= ENUMERABLE

    @cached_property
    def conditions(self) -> Conditions:
        """What brings points into one form."""
        names, choices = [d.name for d in self.dimensions], [d.choices for d in self.dimensions]
        return Conditions(names, choices, self.blocks, self.starts)

    @cached_property
    def widths(self) -> Genes:
        """Number of choices of each dimension."""
        return np.asarray([len(d.choices) for d in self.dimensions], np.int64)

    def distributions(self, *, ordinal: bool = False) -> dict[str, BaseDistribution]:
        """The space as Optuna has it.

        Args:
            ordinal: choice indices as integers, for samplers that know no categories.
        """
        from optuna.distributions import CategoricalDistribution, IntDistribution

        if ordinal:
            return {d.name: IntDistribution(0, len(d.choices) - 1) for d in self.dimensions}
        return {d.name: CategoricalDistribution(d.choices) for d in self.dimensions}

    @cached_property
    def _owners(self) -> dict[str, tuple[Block, str]]:
        """Block and knob of each dimension that is a sub-graph's."""
        return {dimension_name(b, field): (b, field) for b in self.blocks for field in b.choices}

    def genes_of(self, params: Mapping[str, Any]) -> tuple[int, ...] | None:
        """Choice indices of parameters; None where they are not a point of the space.

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
        """Dimensions that parameters need not name."""
        return {*self._owners, START} if len(self.starts) > 1 else {*self._owners}

    @cached_property
    def _indices(self) -> list[tuple[str, dict[Any, int]]]:
        return [(d.name, {c: i for i, c in enumerate(d.choices)}) for d in self.dimensions]

    def params_of(self, genes: Iterable[int]) -> dict[str, Any]:
        """Parameters of a point."""
        pairs = zip(self.dimensions, genes, strict=True)
        return {d.name: d.choices[int(index)] for d, index in pairs}

    def normal(self, genes: Genes) -> Genes:
        """Points in their one form, ``(points, dimensions)``."""
        return self.conditions.normal(genes)

    def distinct(self, genes: Genes) -> Genes:
        """Points each once, in lexical order."""
        found: Genes = genes[self.first_of_each(genes)]
        return found

    def first_of_each(self, genes: Genes) -> Genes:
        """Where each of some points is there first, in lexical order of the points."""
        few = int(self.widths.max(initial=1)) <= 1 << 8
        # bytes, the upper one first, compare as the choices do and much faster than whole numbers
        plain = genes.astype(np.uint8 if few else ">u4")
        if not plain.size:
            return np.arange(min(len(genes), 1))
        return np.asarray(np.unique(row_bytes(plain), return_index=True)[1], np.int64)

    def everything(self) -> Genes:
        """All points in lexical order; for spaces that are :attr:`listed`."""
        shape = tuple(self.widths.tolist())
        genes = np.indices(shape).reshape(len(shape), -1).T.astype(np.int64)
        found: Genes = genes[(self.normal(genes) == genes).all(axis=1)]
        return found

    def features(self, genes: Genes, columns: Genes | None = None) -> NDArray[np.float32]:
        """Points as numbers for a cost model, ``(points, dimensions)``; see :func:`_as_number`.

        Args:
            genes: of the points.
            columns: positions of the dimensions that are wanted, where not all are.
        """
        chosen = np.arange(len(self.dimensions)) if columns is None else columns
        found: NDArray[np.float32] = self._numbers[genes[:, chosen] + self._offsets[chosen]]
        return found

    @cached_property
    def _offsets(self) -> Genes:
        """Where each dimension's choices begin in :attr:`_numbers`."""
        return np.cumsum(self.widths) - self.widths

    @cached_property
    def _numbers(self) -> NDArray[np.float32]:
        """Every choice of every dimension as a number."""
        numbers = [self._as_number(d, c) for d in self.dimensions for c in d.choices]
        return np.asarray(numbers, np.float32)

    def _as_number(self, dimension: Dimension, choice: Any) -> float:
        """A choice on an axis where order means something: knobs as the cost model has them."""
        if dimension.name in KNOB_NAMES:
            knobs = Knobs(**{dimension.name: choice})
            return float(knob_vector(knobs, self.share)[KNOB_NAMES.index(dimension.name)])
        if dimension.name in self._owners:
            block, field = self._owners[dimension.name]
            if field == "factor":
                return math.log2(block.parts if choice == AUTO else choice)
            return float(dimension.choices.index(choice))
        if isinstance(choice, int | float):
            return float(choice)
        return float(dimension.choices.index(choice))
