"""The conditional part of a search space: choices without effect.

Every candidate has a canonical form. In it choices without effect are ``"auto"``: what the start
chooses already, a sub-graph's choice that equals the model's knob, an invalid split.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoturbo.schedule.knobs import (
    AUTO,
    Knobs,
    SubGraphKnobs,
    subgraph_knobs,
)
from autoturbo.schedule.knobs.splits import SPLIT, UPON, Split, Splitting, Upon
from autoturbo.search.subgraphs import Block

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
