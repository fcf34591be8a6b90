"""What candidates of a search are chosen from, and what those of one start say, by number.

A candidate is a row of numbers of choices. Some of them decide the cuts
(:mod:`autoturbo.cost_models.screened_plans`); here are those that decide in which *way*
(:mod:`autoturbo.cost_models.ways`) kernels run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numba import njit

from autoturbo.cost_models.features import SAME_AS
from autoturbo.cost_models.numbering import RowNumbering, firsts
from autoturbo.cost_models.ways import FIELDS, SAID, Ways
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs
from autoturbo.schedule.layer_sets import Flags
from autoturbo.schedule.stores import Store

_HEURISTIC: Final = (Knobs(),)

_NOTHING: Final = SubGraphKnobs("")

_MODEL_FIELDS: Final = {SAME_AS.get(name, name): at for at, name in enumerate(FIELDS)}
"""Field of a way that a knob of the model decides."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One column of the candidates.

    Attributes:
        knob: of the model, or of sub-graphs.
        values: by number; ``"auto"`` first.
        layers: layers whose sub-graphs the knob is of; none for the model's.
        start: number of the start that has these sub-graphs; elsewhere the column means nothing.
    """

    knob: str
    values: tuple[Any, ...]
    layers: tuple[str, ...] = ()
    start: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """All columns of the candidates.

    Attributes:
        each: in order.
        starts: settings that ``"auto"`` stands for.
        column: whose number is that of the candidate's start; -1 where there is one start.
    """

    each: tuple[Choice, ...]
    starts: tuple[Knobs, ...] = _HEURISTIC
    column: int = -1

    def start_of(self, genes: Ints) -> Ints:
        """Number of each candidate's start, ``(candidates,)``."""
        return np.zeros(len(genes), np.int64) if self.column < 0 else genes[:, self.column]

    def of_model(self, knobs: Sequence[str]) -> list[int]:
        """Columns of some knobs of the model."""
        return [at for at, c in enumerate(self.each) if not c.layers and c.knob in knobs]


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Settings of a search as numbers, and as what they mean for who cannot read numbers.

    Attributes:
        choices: of the columns.
        genes: numbers of choices, ``(candidates, columns)``.
        knobs_of: the setting of a row.
    """

    choices: Choices
    genes: Ints
    knobs_of: Callable[[Ints], Knobs]

    @property
    def settings(self) -> list[Knobs]:
        """All of them."""
        return [self.knobs_of(row) for row in self.genes]


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Layers of which the same is said, and what is known of their columns.

    ``base`` are codes of what the start says of them, None for nothing; ``tables`` has for every
    column its place in :data:`autoturbo.cost_models.ways.SAID` and codes of its values; ``own`` the
    number of each row's own values.
    """

    columns: Ints
    base: Ints | None
    tables: list[tuple[int, Ints]]
    numbers: RowNumbering
    own: Store


class Said:
    """What candidates of one start say about how kernels run.

    Args:
        ways: numbers what holds for kernels.
        choices: of the candidates' columns.
        start: number of the start.
    """

    def __init__(self, ways: Ways, choices: Choices, start: int) -> None:
        self._ways, self._each, base = ways, choices.each, choices.starts[start]
        columns = choices.of_model(list(_MODEL_FIELDS))
        self._columns = np.asarray(columns, np.int64)
        self._fields = [_MODEL_FIELDS[self._each[at].knob] for at in columns]
        self._base = np.asarray([
            ways.code(at, getattr(base, SAME_AS.get(name, name), AUTO))
            for at, name in enumerate(FIELDS)
        ])  # fmt: skip
        self._tables = [
            self._model_codes(self._each[at], field)
            for at, field in zip(columns, self._fields, strict=True)
        ]
        self._models, self._model_of = RowNumbering(len(columns)), Store()
        layers = _alike(self._each, base, start)
        self._blocks = [self._block(named, own, start) for named, own in layers]
        self._block_of = {name: at for at, own in enumerate(layers.values()) for name in own}
        self._hits: dict[tuple[tuple[int, bool], ...], int] = {(): 0}
        self._hit_start, self._hit_blocks = Store(), Store((2,))
        self._hit_start.add([0, 0])

    def _block(self, layers: tuple[str, ...], base: SubGraphKnobs, start: int) -> _Block:
        mine = [at for at, c in enumerate(self._each) if c.layers and c.start == start]
        own = [at for at in mine if self._each[at].layers == layers]
        said = [self._ways.own_code(name, getattr(base, name)) for name in SAID]
        return _Block(
            np.asarray(own, np.int64), np.asarray(said, np.int64) if any(said) else None,
            [self._codes_of(self._each[at]) for at in own], RowNumbering(len(own)), Store(),
        )  # fmt: skip

    def _codes_of(self, choice: Choice) -> tuple[int, Ints]:
        """Position of a sub-graph's knob in :data:`SAID`, and codes of its values."""
        codes = [self._ways.own_code(choice.knob, value) for value in choice.values]
        return SAID.index(choice.knob), np.asarray(codes, np.int64)

    def of(self, genes: Ints) -> tuple[Ints, Ints]:
        """Numbers of candidates' choices for all sub-graphs, and for those of each block.

        ``(candidates,)`` and ``(candidates, blocks)``.
        """
        rows = genes[:, self._columns]
        models = self._models.of(rows)
        new = firsts(models, self._model_of.count, self._models.count)
        if len(new):
            self._model_of.add(self._ways.model_numbers(self._codes(rows[new])))
        own = np.zeros((len(genes), len(self._blocks)), np.int64)
        for at, block in enumerate(self._blocks):
            own[:, at] = self._own_values(block, genes[:, block.columns])
        return self._model_of.rows[models], own

    def _model_codes(self, choice: Choice, field: int) -> Ints:
        """Codes of the values of a knob of the model; of ``"auto"`` the start's."""
        start = int(self._base[field])
        codes = [start if v == AUTO else self._ways.code(field, v) for v in choice.values]
        return np.asarray(codes, np.int64)

    def _codes(self, rows: Ints) -> Ints:
        """Codes of all fields, one row each."""
        codes = np.tile(self._base, (len(rows), 1))
        for at, (field, table) in enumerate(zip(self._fields, self._tables, strict=True)):
            codes[:, field] = table[rows[:, at]]
        return codes

    def _own_values(self, block: _Block, rows: Ints) -> Ints:
        numbers = block.numbers.of(rows)
        new = rows[firsts(numbers, block.own.count, block.numbers.count)]
        if len(new):
            codes = np.zeros((len(new), len(SAID)), np.int64)
            for at, (field, table) in enumerate(block.tables):
                codes[:, field] = table[new[:, at]]
            block.own.add(self._ways.own_numbers(codes, block.base))
        found: Ints = block.own.rows[numbers]
        return found

    def blocks_in(self, layers: Sequence[str]) -> int:
        """Number of the blocks that layers of a sub-graph, in order, belong to; 0 for none."""
        found: list[tuple[int, bool]] = []
        for layer in layers:
            block = self._block_of.get(layer)
            if block is not None:
                if found and found[-1][0] == block:
                    found.pop()
                found.append((block, layer == layers[-1]))
        key = tuple(found)
        if key not in self._hits:
            self._hits[key] = len(self._hits)
            self._hit_blocks.add([list(one) for one in key])
            self._hit_start.add([self._hit_blocks.count])
        return self._hits[key]

    def joined(self, own: Ints, owner: Ints, blocks: Ints) -> Ints:
        """Numbers of sub-graphs' own values, of :meth:`autoturbo.cost_models.ways.Ways.named`.

        Args:
            own: of :meth:`of`.
            owner: per sub-graph, its candidate.
            blocks: per sub-graph, of :meth:`blocks_in`.
        """
        said, end, named = _said(own, owner, blocks, self._hit_start.rows, self._hit_blocks.rows)
        left = np.diff(end, prepend=0)
        found, more = np.zeros(len(owner), np.int64), np.flatnonzero(left)
        end, left = end[more], left[more]
        found[more] = said[end - left]
        while len(more := more[left > 1]):
            end, left = end[left > 1], left[left > 1] - 1
            found[more] = self._ways.over(found[more], said[end - left])
        return self._ways.named(found, named)


@njit(cache=True)
def _said(
    own: Ints, owner: Ints, blocks: Ints, start: Ints, each: Ints
) -> tuple[Ints, Ints, Flags]:
    """All that blocks say of sub-graphs, one after another, and where that of each ends.

    The last is whether the last of its blocks that says something names its last layer.

    Args:
        own: of :meth:`Said.of`.
        owner: per sub-graph, its candidate.
        blocks: per sub-graph, its place in ``start``.
        start: where the rows of each begin in ``each``.
        each: a block, and 1 where it names the last layer.
    """
    most = 0
    for at in range(len(owner)):
        most += start[blocks[at] + 1] - start[blocks[at]]
    said, count = np.empty(most, np.int64), 0
    end, named = np.empty(len(owner), np.int64), np.zeros(len(owner), np.bool_)
    for at in range(len(owner)):
        for row in range(start[blocks[at]], start[blocks[at] + 1]):
            value = own[owner[at], each[row, 0]]
            if value > 0:
                said[count], named[at] = value, each[row, 1] > 0
                count += 1
        end[at] = count
    return said, end, named


def _alike(
    each: Sequence[Choice], base: Knobs, start: int
) -> dict[tuple[tuple[str, ...], SubGraphKnobs], list[str]]:
    """Layers by the columns that are theirs and by what a start says of their sub-graphs."""
    said = {own.layer: dataclasses.replace(own, layer="") for own in base.overrides}
    named = dict.fromkeys(c.layers for c in each if c.layers and c.start == start)
    searched = [(layers, name) for layers in named for name in layers]
    fixed = said.keys() - {name for _, name in searched}
    found: dict[tuple[tuple[str, ...], SubGraphKnobs], list[str]] = {}
    for layers, name in [*searched, *(((), name) for name in sorted(fixed))]:
        found.setdefault((layers, said.get(name, _NOTHING)), []).append(name)
    return found
