"""The conditional part of a search space: choices without effect.

Every candidate has a canonical form. In it choices without effect are ``"auto"``: what the start
chooses already, a sub-graph's choice that equals the model's knob, an invalid split.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autoturbo.caches import row_bytes
from autoturbo.schedule.knobs import (
    AUTO,
    NOWHERE,
    Here,
    Knobs,
    SubGraphKnobs,
    model_knobs,
    subgraph_knobs,
)
from autoturbo.schedule.knobs.splits import FACTOR, SPLIT, UPON, Split, Splitting, Upon
from autoturbo.search.subgraphs import Block

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

START = "start"
"""The dimension that chooses a start: a candidate that ``"auto"`` leaves as it is."""

Genes = NDArray[np.int64]
"""Encodings, choice indices: ``(dimensions,)`` for one, ``(points, dimensions)`` for several."""

REMEMBERED = 1 << 14
"""Forms of a block's choices that are remembered: candidates have few of them, again and again."""


def effective(override: SubGraphKnobs, knobs: Knobs) -> dict[str, Any]:
    """Return the choices of an override that have an effect, with the layer."""
    decisions = subgraph_knobs()
    chosen: dict[str, Any] = {"layer": override.layer}
    for name, value in override.as_dict().items():
        upon = decisions[name].upon if name in decisions else None
        if upon is None or not decisions[name].idle(value, getattr(knobs, upon)):
            chosen[name] = value
    return chosen


def dimension_name(block: Block, field: str) -> str:
    """Return ``subgraph:LAYER:KNOB``, or ``subgraph@START:...`` where it is not the heuristic's."""
    at = f"@{block.start}" if block.start else ""
    return f"subgraph{at}:{block.layers[0]}:{field}"


class _BlockForm:
    """The canonical form of a block's choices, given the model's.

    Args:
        block: Knobs of alike sub-graphs.
        where: Positions of the dimensions, by name.
        choices: Of the dimensions, by name, ``"auto"`` first.
        base: The start that it belongs to.
    """

    def __init__(
        self,
        block: Block,
        where: Mapping[str, int],
        choices: Mapping[str, tuple[Any, ...]],
        base: Knobs,
    ) -> None:
        self.block = block
        self.fields = tuple(block.choices)
        names = [dimension_name(block, field) for field in self.fields]
        self.first = where[names[0]] if names else 0
        self.end = self.first + len(names)
        self.choices = {f: choices[name] for f, name in zip(self.fields, names, strict=True)}
        decisions = subgraph_knobs()
        upon = {f: name for f in self.fields if (name := decisions[f].upon) is not None}
        self.model = tuple(dict.fromkeys([*UPON, *upon.values()]))
        """Knobs of the model that matter here."""
        self.at = tuple(where.get(name, -1) for name in self.model)
        self._meant = {
            name: (getattr(base, name), *choices.get(name, (AUTO,))[1:]) for name in self.model
        }
        self._voids = [
            (self.fields.index(field), self.model.index(name), frozenset(
                (model_index, i) for model_index, value in enumerate(self._meant[name])
                for i, own in enumerate(self.choices[field]) if decisions[field].idle(own, value)
            ))
            for field, name in upon.items()
        ]  # fmt: skip
        self._cuts = [
            (position, SPLIT.index(f)) for position, f in enumerate(self.fields) if f in SPLIT
        ]
        self._splitting = Splitting(block.extents, block.depth, block.base)
        self.of = functools.lru_cache(REMEMBERED)(self._of)
        """Return the canonical form of choices, as indices, given those of :attr:`model`."""

    def _of(self, model: tuple[int, ...], own: tuple[int, ...]) -> tuple[int, ...]:
        kept = list(own)
        for position, knob, nothing in self._voids:
            if (model[knob], kept[position]) in nothing:
                kept[position] = 0
        if any(kept[position] for position, _ in self._cuts):
            asked = dict.fromkeys(range(len(SPLIT)), AUTO)
            asked |= {cut: self.choices[self.fields[p]][kept[p]] for p, cut in self._cuts}
            possible = self._splitting.possible(self._upon(model), Split(*asked.values()))
            for position, cut in self._cuts:
                kept[position] *= possible[cut] != AUTO
        return tuple(kept)

    def _upon(self, model: tuple[int, ...]) -> Upon:
        """Return what a split depends on at some choices of the model's."""
        samples, policy, *_ = model
        return Upon(samples, self._meant[UPON[1]][policy])


@dataclass(frozen=True)
class _StartForm:
    """The canonical form of the candidates of one start.

    Attributes:
        blocks: The start's.
        repeats: Positions and choices of the model's that the start has made already.
    """

    blocks: tuple[_BlockForm, ...]
    repeats: frozenset[tuple[int, int]]


class Conditions:
    """The rules that give every candidate of a space its canonical form.

    Args:
        names: Of the dimensions.
        choices: Of the dimensions, ``"auto"`` first in those of knobs.
        blocks: Knobs of sub-graphs; their dimensions are named by :func:`dimension_name`.
        starts: The candidates that ``"auto"`` stands for, the first without :data:`START`.
    """

    def __init__(
        self,
        names: Sequence[str],
        choices: Sequence[tuple[Any, ...]],
        blocks: Sequence[Block],
        starts: Sequence[Knobs],
    ) -> None:
        where, known = {n: i for i, n in enumerate(names)}, dict(zip(names, choices, strict=True))
        named = {dimension_name(block, field) for block in blocks for field in block.choices}
        self._start = where.get(START, -1)
        model = [name for name in names if name not in named and name != START]
        self._forms = list[_StartForm]()
        for number, base in enumerate(starts):
            repeats = frozenset(
                (where[name], i) for name in model for i, value in enumerate(known[name])
                if i and hasattr(base, name) and value == getattr(base, name)
            )  # fmt: skip
            start_blocks = tuple(
                _BlockForm(b, where, known, base) for b in blocks if b.start == number
            )
            self._forms.append(_StartForm(start_blocks, repeats))
        every = [block for form in self._forms for block in form.blocks if block.fields]
        self._blocks = sorted(every, key=operator.attrgetter("first"))

    def normal(self, genes: Genes) -> Genes:
        """Return candidates in canonical form, ``(points, dimensions)``."""
        if not self._blocks and not any(form.repeats for form in self._forms):
            return genes
        canonical = genes.copy()
        start = (
            canonical[:, self._start] if self._start >= 0 else np.zeros(len(canonical), np.int64)
        )
        for number, start_form in enumerate(self._forms):
            for position, index in start_form.repeats:
                canonical[(start == number) & (canonical[:, position] == index), position] = 0
        if not self._blocks:
            return canonical
        first = [block.first for block in self._blocks]
        chosen = np.logical_or.reduceat(canonical > 0, first, axis=1)
        of_start = np.asarray([block.block.start for block in self._blocks]) == start[:, None]
        widths = [block.end - block.first for block in self._blocks]
        canonical[:, first[0] :] *= np.repeat(of_start, widths, axis=1)
        rows = canonical.tolist()
        for number, position in np.argwhere(chosen & of_start).tolist():
            row, block = rows[number], self._blocks[position]
            choices = tuple(row[block.first : block.end])
            form = block.of(tuple([row[i] if i >= 0 else 0 for i in block.at]), choices)
            if form != choices:
                canonical[number, block.first : block.end] = form
        return canonical


# Points of a search space: encoded candidates in canonical form.
#
# A point is a tuple of choice indices (its *genes*), ``"auto"`` being index 0 of every dimension
# of a knob; arrays of genes are what samplers work on. Settings that mean the same are one point:
# a value that is what ``"auto"`` stands for is written as ``"auto"``, and so is a sub-graph's
# choice that changes nothing at the model's choices (:mod:`autoturbo.search.encoding`).

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
