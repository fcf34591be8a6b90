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
        self._over_numbers, self._over_found = Numbering(), Store()
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
                found[there] = self._several(key, own[owner[there]])
        return found

    def _several(self, blocks: Sequence[tuple[int, bool]], own: Ints) -> Ints:
        """Numbers of own values of several blocks, each in turn over those before it."""
        found, named = np.zeros(len(own), np.int64), np.zeros(len(own), np.bool_)
        for block, last in blocks:
            said = own[:, block] > 0
            found[said] = self._over(found[said], own[said, block])
            named[said] = last
        return found + ((found > 0) & named)

    def _over(self, first: Ints, second: Ints) -> Ints:
        """Numbers of own values over others; each pair is found out once."""
        pairs = self._over_numbers.of_pairs(first, second)
        for at in firsts(pairs, self._over_found.count).tolist():
            own = self._knobs[second[at] // 2].over(self._knobs[first[at] // 2])
            self._over_found.add([self._own_number(own)])
        found: Ints = self._over_found.rows[pairs]
        return found

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
