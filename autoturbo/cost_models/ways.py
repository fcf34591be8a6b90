"""Choices that say how kernels run once the layers are grouped, by number.

A *way* is a value for every knob of a sub-graph: its own, or the model's where it has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from autoturbo.cost_models.features import OVERRIDE_NAMES, SAME_AS, Rows, own_number
from autoturbo.cost_models.numbering import Numbering, RowNumbering, firsts
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.knobs import AUTO, SubGraphKnobs, Value
from autoturbo.schedule.stores import Store

FIELDS: Final = (*OVERRIDE_NAMES, "factor_scale")
"""Knobs that a way has a value of."""

NAMED: Final = len(FIELDS)
"""The last column of a way: 1 if the sub-graph's own choices name the layer that it ends with."""

_MODEL_FIELDS: Final = {SAME_AS.get(name, name): at for at, name in enumerate(FIELDS)}
"""Column that a knob of the model is in."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One dimension of the candidates.

    Attributes:
        knob: of the model, or of sub-graphs.
        values: by number; ``"auto"`` first.
        layers: layers whose sub-graphs the knob is of; none for the model's.
    """

    knob: str
    values: tuple[Any, ...]
    layers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Columns of the sub-graphs that have some layers, and what is known of their rows.

    ``locals`` has the number of each row's own values.
    """

    columns: Ints
    numbers: RowNumbering
    locals: Store


class Ways:
    """Numbers what holds for kernels.

    Own values have numbers too: 0 for none, and odd where they name the sub-graph's last layer.

    Args:
        choices: of the candidates' columns.

    Attributes:
        values: per field, values by code, ``"auto"`` first.
        rows: codes of each way, ``(ways, fields + 1)``.
    """

    def __init__(self, choices: Sequence[Choice]) -> None:
        self.values: tuple[list[Value], ...] = tuple([AUTO] for _ in FIELDS)
        self.rows = Store((len(FIELDS) + 1,))
        self._choices = choices
        model = [a for a, c in enumerate(choices) if not c.layers and c.knob in _MODEL_FIELDS]
        self._columns = np.asarray(model, np.int64)
        self._fields = np.asarray([_MODEL_FIELDS[choices[a].knob] for a in model], np.int64)
        self._models = _row_numbers(choices, model)
        self._model_rows = Store((len(FIELDS),))
        self._own_rows = Store((len(FIELDS),))
        self._knobs: list[SubGraphKnobs] = []
        self._own: dict[SubGraphKnobs, int] = {}
        self._own_number(SubGraphKnobs(""))
        layers = dict.fromkeys(c.layers for c in choices if c.layers)
        self._blocks = [self._block(own) for own in layers]
        self._block_of = {name: at for at, own in enumerate(layers) for name in own}
        self._hits: dict[tuple[tuple[int, bool], ...], int] = {(): 0}
        self._laid_over: dict[tuple[object, ...], int] = {}
        self._single = Store((2,))
        self._single.add([[-1, 0]])
        self._numbers = Numbering()

    def _block(self, layers: tuple[str, ...]) -> _Block:
        own = [at for at, c in enumerate(self._choices) if c.layers == layers and c.knob in FIELDS]
        return _Block(np.asarray(own, np.int64), _row_numbers(self._choices, own), Store())

    def _code(self, field: int, value: Value) -> int:
        known = self.values[field]
        if value not in known:
            known.append(value)
        return known.index(value)

    def features(self, ways: Ints) -> Rows:
        """Knobs of ways as numbers, ``(ways, len(OVERRIDE_NAMES))``."""
        codes = self.rows.rows[ways]
        tables = [
            np.asarray([own_number(name, value) for value in values], np.float32)
            for name, values in zip(OVERRIDE_NAMES, self.values, strict=False)
        ]
        return np.stack([table[codes[:, at]] for at, table in enumerate(tables)], axis=1)

    def of(self, genes: Ints) -> tuple[Ints, Ints]:
        """Numbers of candidates' choices for all sub-graphs, and for those of each block.

        ``(candidates,)`` and ``(candidates, blocks)``.
        """
        rows = genes[:, self._columns]
        models = self._models.of(rows)
        for row in rows[firsts(models, self._model_rows.count)].tolist():
            codes = [0] * len(FIELDS)
            for column, field, gene in zip(self._columns, self._fields, row, strict=True):
                codes[field] = self._code(field, self._choices[column].values[gene])
            self._model_rows.add([codes])
        own = np.zeros((len(genes), len(self._blocks)), np.int64)
        for at, block in enumerate(self._blocks):
            own[:, at] = self._own_values(block, genes[:, block.columns])
        return models, own

    def _own_values(self, block: _Block, rows: Ints) -> Ints:
        numbers = block.numbers.of(rows)
        for row in rows[firsts(numbers, block.locals.count)].tolist():
            chosen = {
                self._choices[at].knob: self._choices[at].values[gene]
                for at, gene in zip(block.columns.tolist(), row, strict=True)
            }
            block.locals.add([self._own_number(SubGraphKnobs("", **chosen))])
        found: Ints = block.locals.rows[numbers]
        return found

    def _own_number(self, own: SubGraphKnobs) -> int:
        if own not in self._own:
            codes = [self._code(at, getattr(own, name)) for at, name in enumerate(OVERRIDE_NAMES)]
            self._own[own] = 2 * self._own_rows.add([[*codes, 0]])
            self._knobs.append(own)
        return self._own[own]

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
            self._hits[key] = self._single.add([list(key[0]) if len(key) == 1 else [-1, 0]])
        return self._hits[key]

    def joined(self, own: Ints, owner: Ints, blocks: Ints) -> Ints:
        """Numbers of sub-graphs' own values.

        Args:
            own: of :meth:`of`.
            owner: per sub-graph, its candidate.
            blocks: per sub-graph, of :meth:`blocks_in`.
        """
        single: Ints = self._single.rows[blocks]
        found = own[owner, single[:, 0]]
        found += (found > 0) & (single[:, 1] > 0)
        found[blocks == 0] = 0
        for key, number in self._hits.items():
            if len(key) > 1 and len(there := np.flatnonzero(blocks == number)):
                table = own[np.ix_(owner[there], np.asarray([block for block, _ in key]))]
                kinds, which = np.unique(table, axis=0, return_inverse=True)
                over = [self._over(key, numbers) for numbers in kinds.tolist()]
                found[there] = np.asarray(over, np.int64)[which.reshape(-1)]
        return found

    def _over(self, blocks: tuple[tuple[int, bool], ...], numbers: Sequence[int]) -> int:
        """Number of own values of several blocks, each in turn over those before it; remembered."""
        key = (blocks, tuple(numbers))
        if key not in self._laid_over:
            self._laid_over[key] = self._lay_over(blocks, numbers)
        return self._laid_over[key]

    def _lay_over(self, blocks: tuple[tuple[int, bool], ...], numbers: Sequence[int]) -> int:
        own, named = SubGraphKnobs(""), False
        for (_, last), number in zip(blocks, numbers, strict=True):
            if number:
                own, named = self._knobs[number // 2].over(own), last
        number = self._own_number(own)
        return number + (number > 0 and named)

    def numbers(self, models: Ints, own: Ints) -> Ints:
        """Numbers of the ways of some choices of the model and own values."""
        found = self._numbers.of_pairs(models, own)
        new = firsts(found, self.rows.count)
        if len(new):
            mine, theirs = self._own_rows.rows[own[new] // 2], self._model_rows.rows[models[new]]
            codes = np.where(mine > 0, mine, theirs)
            self.rows.add(np.column_stack((codes, own[new] % 2)))
        return found


def _row_numbers(choices: Sequence[Choice], columns: Sequence[int]) -> RowNumbering:
    return RowNumbering(np.asarray([len(choices[at].values) for at in columns], np.int64))
