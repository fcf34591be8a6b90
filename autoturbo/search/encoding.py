"""The conditional part of a search space: choices without effect, and exact sizes.

Every candidate has a canonical form. In it choices without effect are ``"auto"``: what the start
chooses already, a sub-graph's choice that equals the model's knob, an invalid split.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autoturbo.caches import row_bytes
from autoturbo.cost_models.features import KNOB_NAMES, knob_vector
from autoturbo.schedule.knobs import (
    AUTO,
    Knobs,
    Stage,
    SubGraphKnobs,
    Value,
    knob_names,
    knob_specs,
)
from autoturbo.search.subgraphs import RAGGED, Block

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

START = "start"
"""The dimension that chooses a start: a candidate that ``"auto"`` leaves as it is."""

Genes = NDArray[np.int64]
"""Encodings, choice indices: ``(dimensions,)`` for one, ``(points, dimensions)`` for several."""

SPLIT = knob_names("subgraph", upto=Stage.PARTITION)
"""Knobs of a sub-graph that make sense together only."""

REMEMBERED = 1 << 14
"""Forms of a block's choices that are remembered: candidates have few of them, again and again."""

_UPON = ("batches_per_cluster", "factor_policy")
"""Knobs of the model on which it depends what a split can be."""


def stands_for(name: str, value: Value) -> Value | None:
    """Return the meaning of a model's knob value; None where ``"auto"`` has no other name."""
    spec = knob_specs()[name]
    if value != AUTO:
        return value
    if spec.low is None:
        return spec.word
    try:
        return float(spec.published)
    except ValueError:
        return None


def means_nothing(field: str, value: Value, model: Value) -> bool:
    """Return whether a sub-graph's choice has no effect, given the model's knob for it."""
    if value == AUTO:
        return False
    if field == "priority":
        return model != "priority"
    return value == stands_for(field, model)


def decides(field: str) -> str | None:
    """Return the model's knob on which the effect of a sub-graph's choice depends, if any.

    Where it has one of the same name, a sub-graph's own value must differ to be one.
    """
    if field == "priority":
        return "instance_order"
    return field if field in knob_specs() else None


def effective(override: SubGraphKnobs, knobs: Knobs) -> dict[str, Any]:
    """Return the choices of an override that have an effect, with the layer."""
    return {
        name: value
        for name, value in override.as_dict().items()
        if (model := decides(name)) is None or not means_nothing(name, value, getattr(knobs, model))
    }


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
        upon = dict.fromkeys([m for f in self.fields if (m := decides(f)) is not None])
        self.model = tuple(dict.fromkeys([*_UPON, *upon]))
        """Knobs of the model that matter here."""
        self.at = tuple(where.get(name, -1) for name in self.model)
        self._meant = {
            name: (getattr(base, name), *choices.get(name, (AUTO,))[1:]) for name in self.model
        }
        self._voids = [
            (position, self.model.index(name), frozenset(
                (model_index, i) for model_index, value in enumerate(self._meant[name])
                for i, own in enumerate(self.choices[field]) if means_nothing(field, own, value)
            ))
            for position, field in enumerate(self.fields) if (name := decides(field)) is not None
        ]  # fmt: skip
        self._cuts = [
            (position, SPLIT.index(f)) for position, f in enumerate(self.fields) if f in SPLIT
        ]
        self.of = functools.lru_cache(REMEMBERED)(self._of)
        """Return the canonical form of choices, as indices, given those of :attr:`model`."""

    def _of(self, model: tuple[int, ...], own: tuple[int, ...]) -> tuple[int, ...]:
        kept, split = list(own), [0] * len(SPLIT)
        for position, knob, nothing in self._voids:
            if (model[knob], kept[position]) in nothing:
                kept[position] = 0
        for position, field in self._cuts:
            split[field] = kept[position]
        if any(split):
            reduced = self._split(dict(zip(_UPON, model, strict=False)), *split)
            for position, field in self._cuts:
                kept[position] = reduced[field]
        return tuple(kept)

    def _split(
        self, upon: Mapping[str, int], dim: int, factor: int, inner: int, parts: int
    ) -> tuple[int, int, int, int]:
        """Return a split without its invalid parts, as choice indices.

        Args:
            upon: The model's choices, by dimension.
            dim: Choice of the dimension that is cut.
            factor: Choice of its parts.
            inner: Choice of the dimension that is cut inside every part.
            parts: Choice of its parts.
        """
        dim = dim if self._is_dim(upon, dim) else 0
        factor = factor if self._fits(upon, dim, factor) else 0
        if factor == self._whole:
            return 0, factor, 0, 0
        dim = dim if self._fits(upon, dim, factor) else 0
        good = self._depth(dim) != self._value("inner_dim", inner)
        good = good and self._inner_fits(upon, inner, parts)
        return (dim, factor, inner, parts) if good else (dim, factor, 0, 0)

    @property
    def _whole(self) -> int:
        """Return the index of the factor 1; -1 where it is no choice."""
        if self.block.base.factor == 1:
            return 0
        factors = self.choices.get("factor", ())
        return factors.index(1) if 1 in factors else -1

    def _value(self, field: str, index: int) -> Value:
        return self.choices[field][index] if field in self.choices else AUTO

    def _depth(self, dim: int) -> int:
        value = self._value("dim", dim)
        return self.block.depth if value == AUTO else int(value)

    def _extent(self, depth: int, upon: Mapping[str, int]) -> int:
        """Return the extent of a dimension; 1 where it cannot be split."""
        extents = self.block.extents.get(depth)
        return 1 if extents is None else extents[upon["batches_per_cluster"]]

    def _is_dim(self, upon: Mapping[str, int], dim: int) -> bool:
        value = self._value("dim", dim)
        return value == AUTO or self._extent(int(value), upon) > 1

    def _fits(self, upon: Mapping[str, int], dim: int, factor: int) -> bool:
        value = self._value("factor", factor) if factor else self.block.base.factor
        return value in (AUTO, 1) or self._divides(upon, self._depth(dim), int(value))

    def _inner_fits(self, upon: Mapping[str, int], inner: int, parts: int) -> bool:
        depth, count = self._value("inner_dim", inner), self._value("inner_factor", parts)
        if AUTO in (depth, count):
            return False
        return count == 1 or self._divides(upon, int(depth), int(count))

    def _divides(self, upon: Mapping[str, int], depth: int, parts: int) -> bool:
        extent = self._extent(depth, upon)
        if parts > extent:
            return False
        policy = self._meant["factor_policy"][upon["factor_policy"]]
        return extent % parts == 0 or (policy == "ragged" and parts in RAGGED)

    def splits(self, samples: int, policy: int) -> int:
        """Return the number of different splits at choices of :data:`_UPON`."""
        upon = dict(zip(_UPON, (samples, policy), strict=True))
        widths = [range(len(self.choices.get(field, (AUTO,)))) for field in SPLIT]
        dims, factors, inners, parts = widths
        seconds = [i for i, p in itertools.product(inners, parts) if self._inner_fits(upon, i, p)]
        count = int(self._whole >= 0)
        for dim in dims:
            if not self._is_dim(upon, dim):
                continue
            beside = [i for i in seconds if self._value("inner_dim", i) != self._depth(dim)]
            fitting = (
                f for f in factors
                if f != self._whole and ((dim, f) == (0, 0) or self._fits(upon, dim, f))
            )  # fmt: skip
            count += sum(1 + len(beside) for _ in fitting)
        return count

    def others(self, name: str, index: int) -> int:
        """Return the number of different choices that depend on a given knob of the model."""
        model_value = self._meant[name][index]
        return math.prod(
            sum(not means_nothing(field, value, model_value) for value in self.choices[field])
            for field in self.fields
            if decides(field) == name
        )

    @property
    def free(self) -> int:
        """Return the number of different choices that depend on no other."""
        return math.prod(
            len(self.choices[f]) for f in self.fields if f not in SPLIT and decides(f) is None
        )

    @property
    def size(self) -> int:
        """Return the number of different choices of the block while the model's are ``"auto"``."""
        names = [name for name in self.model if any(decides(f) == name for f in self.fields)]
        return self.free * self.splits(0, 0) * math.prod(self.others(n, 0) for n in names)


@dataclass(frozen=True)
class _StartForm:
    """The canonical form of the candidates of one start.

    Attributes:
        blocks: The start's.
        repeats: Positions and choices of the model's that the start has made already.
        news: Choices that are none of these, by knob of the model.
    """

    blocks: tuple[_BlockForm, ...]
    repeats: frozenset[tuple[int, int]]
    news: Mapping[str, Sequence[int]]

    @property
    def model_size(self) -> int:
        """Return the number of candidates without overrides."""
        return math.prod(map(len, self.news.values()))

    @property
    def size(self) -> int:
        """Return the number of different candidates.

        A choice of a sub-graph depends on one knob of the model at most (the split on two), and no
        two groups of choices on the same: sums over each such knob, multiplied.
        """
        upon = dict.fromkeys(name for block in self.blocks for name in block.model)
        linked = [name for name in upon if name not in _UPON] if self.blocks else []
        rows = [self.news.get(name, (0,)) for name in _UPON]
        used = {*linked, *(_UPON if self.blocks else ())}
        count = math.prod(len(choices) for name, choices in self.news.items() if name not in used)
        if not self.blocks:
            return count
        count *= math.prod(block.free for block in self.blocks)
        count *= sum(
            math.prod(block.splits(*indices) for block in self.blocks)
            for indices in itertools.product(*rows)
        )
        for name in linked:
            choices = self.news.get(name, (0,))
            count *= sum(math.prod(b.others(name, i) if name in b.model else 1 for b in self.blocks)
                         for i in choices)  # fmt: skip
        return count


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
            news = {
                name: [i for i, value in enumerate(known[name])
                       if not i or not hasattr(base, name) or value != getattr(base, name)]
                for name in model
            }  # fmt: skip
            repeats = frozenset(
                (where[name], i) for name, new in news.items()
                for i in range(len(known[name])) if i not in new
            )  # fmt: skip
            start_blocks = tuple(
                _BlockForm(b, where, known, base) for b in blocks if b.start == number
            )
            self._forms.append(_StartForm(start_blocks, repeats, news))
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

    @property
    def model_size(self) -> int:
        """Return the number of candidates without a choice for a sub-graph."""
        return sum(form.model_size for form in self._forms)

    @property
    def block_sizes(self) -> list[int]:
        """Return the number of candidates of each block while the model's knobs are ``"auto"``."""
        return [block.size for form in self._forms for block in form.blocks]

    @property
    def size(self) -> int:
        """Return the exact number of different candidates."""
        return sum(form.size for form in self._forms)


# Points of a search space: encoded candidates in canonical form.
#
# A point is a tuple of choice indices (its *genes*), ``"auto"`` being index 0 of every dimension
# of a knob; arrays of genes are what samplers work on. Settings that mean the same are one point:
# a value that is what ``"auto"`` stands for is written as ``"auto"``, and so is a sub-graph's
# choice that changes nothing at the model's choices (:mod:`autoturbo.search.encoding`).

ANY = 1 << 30
"""Layers of a model that is not known: more than any has."""

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
        share: Samples of the busiest cluster, which ``batches_per_cluster="auto"`` stands for.
        layers: Layers of the model, the most that one sub-graph can hold.
        blocks: Sub-graphs that have knobs of their own, those of the first start first.
        starts: Candidates that ``"auto"`` stands for; the first is the published heuristic.
        given: Candidates to begin with that are candidates of the heuristic.
    """

    dimensions: tuple[Dimension, ...]
    share: int = 1
    layers: int = ANY
    blocks: tuple[Block, ...] = ()
    starts: tuple[Knobs, ...] = (Knobs(),)
    given: tuple[Knobs, ...] = ()

    @cached_property
    def size(self) -> int:
        """Return the exact number of candidates."""
        return self.conditions.size

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
        genes = np.indices(shape).reshape(len(shape), -1).T.astype(np.int64)
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
