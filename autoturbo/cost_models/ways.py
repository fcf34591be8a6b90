"""How kernels run once the layers are grouped, by number.

A *way* is a value for every knob of a sub-graph: its own, or the model's where it has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from autoturbo.cost_models.features import OVERRIDE_NAMES, Rows, own_number
from autoturbo.cost_models.numbering import Numbering, RowNumbering, firsts
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.knobs import AUTO, SubGraphKnobs, Value
from autoturbo.schedule.layer_sets import Flags
from autoturbo.schedule.stores import Store

FIELDS: Final = (*OVERRIDE_NAMES, "factor_scale")
"""Knobs that a way has a value of."""

SPLIT: Final = ("dim", "factor", "inner_dim", "inner_factor")
"""Those that cut a sub-graph otherwise than it was grouped."""

NAMED: Final = len(FIELDS)
"""The last column of a way: 1 if own choices that cut the sub-graph name the layer that it ends
with."""


SAID: Final = (*OVERRIDE_NAMES, "boundary")
"""Knobs that sub-graphs have values of."""

_BOUNDARY: Final = len(OVERRIDE_NAMES)
_SPLIT: Final = [SAID.index(name) for name in SPLIT]
_FORMED: Final = [*_SPLIT, SAID.index("priority")]
"""Those that :class:`autoturbo.schedule.knobs.SubGraphKnobs` brings into one form."""


class Ways:
    """Numbers what holds for kernels; 0 is nothing of a sub-graph's own.

    Attributes:
        values: per field, values by code, ``"auto"`` first.
        rows: codes of each way, ``(ways, fields + 1)``.
    """

    def __init__(self) -> None:
        self.values: tuple[list[Value], ...] = tuple([AUTO] for _ in FIELDS)
        self.rows = Store((len(FIELDS) + 1,))
        self._models, self._model_rows = RowNumbering(len(FIELDS)), Store((len(FIELDS),))
        self._said: tuple[list[Value], ...] = (*self.values[: len(OVERRIDE_NAMES)], [AUTO])
        self._own, self._own_rows = RowNumbering(len(SAID)), Store((len(SAID),))
        self._forms, self._formed = RowNumbering(len(_FORMED)), Store((len(_FORMED),))
        self._cuts = Store((), np.bool_)
        self._runs = Store()
        self._over_numbers, self._over_found = Numbering(), Store()
        self._numbers = Numbering()
        self.own_numbers(np.zeros((1, len(SAID)), np.int64))

    def code(self, field: int, value: Value) -> int:
        """The code of a field's value."""
        return _code(self.values[field], value)

    def model_numbers(self, codes: Ints) -> Ints:
        """Numbers of rows of codes of all fields that the model's knobs give."""
        numbers = self._models.of(codes)
        new = firsts(numbers, self._model_rows.count, self._models.count)
        self._model_rows.add(codes[new])
        return numbers

    def own_code(self, name: str, value: Value) -> int:
        """The code of a value that a sub-graph has of its own, by the knob's name."""
        return _code(self._said[SAID.index(name)], value)

    def own_numbers(self, codes: Ints, base: Ints | None = None) -> Ints:
        """The numbers of what is said of sub-graphs, ``(rows,)``.

        Args:
            codes: of :meth:`own_code`, one column for each of :data:`SAID`.
            base: the same of what holds where they say nothing, one row in its one form.
        """
        rows = self._normal(codes)
        if base is not None:
            rows = self._normal(np.where(rows > 0, rows, base))
        runs = rows.copy()
        runs[:, _BOUNDARY] = 0  # it decides where the sub-graph ends, not how it runs
        without = self._entered(runs, None)
        return self._entered(rows, without) if (rows != runs).any() else without

    def _entered(self, rows: Ints, runs: Ints | None) -> Ints:
        """Numbers of rows; new ones run as some numbers say, or as they are."""
        numbers = self._own.of(rows)
        new = firsts(numbers, self._own_rows.count, self._own.count)
        if len(new):
            self._own_rows.add(rows[new])
            self._cuts.add(np.any(rows[new][:, _SPLIT] > 0, axis=1, keepdims=True))
            self._runs.add((numbers if runs is None else runs)[new])
        return numbers

    def _normal(self, codes: Ints) -> Ints:
        """What is said in its one form; that of each split is asked for once."""
        numbers = self._forms.of(codes[:, _FORMED])
        new = firsts(numbers, self._formed.count, self._forms.count)
        if len(new):
            self._formed.add([self._form(row) for row in codes[new][:, _FORMED].tolist()])
        found = codes.copy()
        found[:, _FORMED] = self._formed.rows[numbers]
        return found

    def _form(self, codes: Sequence[int]) -> list[int]:
        pairs = zip(_FORMED, codes, strict=True)
        said: dict[str, Any] = {SAID[at]: self._said[at][code] for at, code in pairs}
        own = SubGraphKnobs("", **said)
        return [self.own_code(name, getattr(own, name)) for name in said]

    def over(self, first: Ints, second: Ints) -> Ints:
        """Numbers of own values over others; each pair is found out once."""
        pairs = self._over_numbers.of_pairs(first, second)
        new = firsts(pairs, self._over_found.count, self._over_numbers.count)
        if len(new):
            mine, theirs = (self._own_rows.rows[own[new]] for own in (second, first))
            self._over_found.add(self.own_numbers(np.where(mine > 0, mine, theirs)))
        found: Ints = self._over_found.rows[pairs]
        return found

    def named(self, own: Ints, last: Flags) -> Ints:
        """Own values with what matters of the layer that they name.

        Even where it does not matter: only a split that is impossible is another thing where the
        layer named makes the output.

        Args:
            own: numbers of own values.
            last: whether that layer makes the output.
        """
        found: Ints = 2 * self._runs.rows[own] + (self._cuts.rows[own] & last)
        return found

    def numbers(self, models: Ints, own: Ints) -> Ints:
        """Numbers of the ways of choices of the model and own values, of :meth:`named`."""
        found = self._numbers.of_pairs(models, own)
        new = firsts(found, self.rows.count, self._numbers.count)
        if len(new):
            mine, theirs = self._own_rows.rows[own[new] // 2], self._model_rows.rows[models[new]]
            codes = np.where(mine > 0, mine, theirs)  # named ones say nothing of boundaries
            self.rows.add(np.column_stack((codes, own[new] % 2)))
        return found

    def chosen(self, fields: Sequence[int], codes: Ints) -> dict[str, Value]:
        """Values of some fields by name."""
        pairs = zip(fields, codes.tolist(), strict=False)
        return {FIELDS[field]: self.values[field][code] for field, code in pairs}

    def features(self, codes: Ints) -> Rows:
        """Knobs of ways as numbers, ``(ways, len(OVERRIDE_NAMES))``, from rows of codes."""
        return np.stack([self.feature(name, codes) for name in OVERRIDE_NAMES], axis=1)

    def feature(self, name: str, codes: Ints) -> Rows:
        """A column of :meth:`features`, ``(ways,)``."""
        at = OVERRIDE_NAMES.index(name)
        table = np.asarray([own_number(name, value) for value in self.values[at]], np.float32)
        found: Rows = table[codes[:, at]]
        return found


def _code(known: list[Value], value: Value) -> int:
    """Where a value is among the known ones, which it joins."""
    if value not in known:
        known.append(value)
    return known.index(value)
