"""How kernels run once the layers are grouped, by number.

A *way* is a value for every knob of a sub-graph: its own, or the model's where it has none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import numpy as np

from autoturbo.cost_models.features import OVERRIDE_NAMES, Rows, own_number
from autoturbo.cost_models.numbering import Numbering, firsts
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.knobs import AUTO, SubGraphKnobs, Value
from autoturbo.schedule.merging import Flags
from autoturbo.schedule.stores import Store

FIELDS: Final = (*OVERRIDE_NAMES, "factor_scale")
"""Knobs that a way has a value of."""

SPLIT: Final = ("dim", "factor", "inner_dim", "inner_factor")
"""Those that cut a sub-graph otherwise than it was grouped."""

NAMED: Final = len(FIELDS)
"""The last column of a way: 1 if own choices that cut the sub-graph name the layer that it ends
with."""


class Ways:
    """Numbers what holds for kernels; 0 is nothing of a sub-graph's own.

    Attributes:
        values: per field, values by code, ``"auto"`` first.
        rows: codes of each way, ``(ways, fields + 1)``.
    """

    def __init__(self) -> None:
        self.values: tuple[list[Value], ...] = tuple([AUTO] for _ in FIELDS)
        self.rows = Store((len(FIELDS) + 1,))
        self._models: dict[tuple[int, ...], int] = {}
        self._model_rows = Store((len(FIELDS),))
        self._knobs: list[SubGraphKnobs] = []
        self._own: dict[SubGraphKnobs, int] = {}
        self._own_rows = Store((len(FIELDS),))
        self._cuts = Store((), np.bool_)
        self._runs = Store()
        self._over_numbers, self._over_found = Numbering(), Store()
        self._numbers = Numbering()
        self.own_number(SubGraphKnobs(""))

    def code(self, field: int, value: Value) -> int:
        """The code of a field's value."""
        known = self.values[field]
        if value not in known:
            known.append(value)
        return known.index(value)

    def model_number(self, codes: tuple[int, ...]) -> int:
        """The number of codes of all fields that the model's knobs give."""
        if codes not in self._models:
            self._models[codes] = self._model_rows.add([codes])
        return self._models[codes]

    def own_number(self, own: SubGraphKnobs) -> int:
        """The number of what is said of a sub-graph, its layer aside."""
        if own not in self._own:
            runs = -1
            if own.boundary != AUTO:  # it decides where the sub-graph ends, not how it runs
                runs = self.own_number(dataclasses.replace(own, boundary=AUTO))
            codes = [self.code(at, getattr(own, name)) for at, name in enumerate(OVERRIDE_NAMES)]
            self._own[own] = number = self._own_rows.add([[*codes, 0]])
            self._knobs.append(own)
            self._cuts.add([any(getattr(own, name) != AUTO for name in SPLIT)])
            self._runs.add([number if runs < 0 else runs])
        return self._own[own]

    def over(self, first: Ints, second: Ints) -> Ints:
        """Numbers of own values over others; each pair is found out once."""
        pairs = self._over_numbers.of_pairs(first, second)
        for at in firsts(pairs, self._over_found.count).tolist():
            own = self._knobs[second[at]].over(self._knobs[first[at]])
            self._over_found.add([self.own_number(own)])
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
        new = firsts(found, self.rows.count)
        if len(new):
            mine, theirs = self._own_rows.rows[own[new] // 2], self._model_rows.rows[models[new]]
            codes = np.where(mine > 0, mine, theirs)
            self.rows.add(np.column_stack((codes, own[new] % 2)))
        return found

    def chosen(self, fields: Sequence[int], codes: Ints) -> dict[str, Value]:
        """Values of some fields by name."""
        pairs = zip(fields, codes.tolist(), strict=False)
        return {FIELDS[field]: self.values[field][code] for field, code in pairs}

    def features(self, codes: Ints) -> Rows:
        """Knobs of ways as numbers, ``(ways, len(OVERRIDE_NAMES))``, from rows of codes."""
        tables = [
            np.asarray([own_number(name, value) for value in values], np.float32)
            for name, values in zip(OVERRIDE_NAMES, self.values, strict=False)
        ]
        return np.stack([table[codes[:, at]] for at, table in enumerate(tables)], axis=1)
