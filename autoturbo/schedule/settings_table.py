"""Settings as columns of numbers: one row per setting, and a list of what is said of sub-graphs.

A knob's value is a number: -1 for ``"auto"``, words by their position, numbers as they are. Tables
are made from settings (:meth:`SettingsTable.of`) or from the choices of a search
(:meth:`Choices.table`), thousands at once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.interning import Interner
from autoturbo.schedule.knobs import (
    AUTO,
    Knobs,
    SubGraphKnobs,
    Value,
    knob_specs,
    subgraph_knob_specs,
)
from autoturbo.schedule.work import Floats

MODEL_KNOBS: Final = tuple(knob_specs())
"""Columns of :attr:`SettingsTable.knobs`."""

KERNEL_KNOBS: Final = tuple(name for name in subgraph_knob_specs() if name != "boundary")
"""Knobs of a sub-graph that say how its kernel is cut and run: columns of :func:`own_numbers`."""

SAME_AS: Final = {"scope": "output_scope"}
"""The model's knob that a sub-graph's overrides, where it has another name."""

UNSAID: Final = -1.0
"""The number of ``"auto"``."""

NOTHING: Final = SubGraphKnobs("")
"""An override that leaves all to the model's knobs."""

_TWINS: Final = {SAME_AS.get(name, name): name for name in KERNEL_KNOBS}

MODEL_COLUMNS: Final = [
    MODEL_KNOBS.index(knob) if (knob := SAME_AS.get(name, name)) in MODEL_KNOBS else -1
    for name in KERNEL_KNOBS
]
"""Column of the model's knob that each of :data:`KERNEL_KNOBS` overrides, -1 for none."""


def number_of_value(knob: str, value: Value) -> float:
    """Return the number of a value of a model's or a sub-graph's knob."""
    words = _words(knob)
    if value == AUTO:
        return UNSAID
    return float(value if words is None else words.index(str(value)))


def value_of_number(knob: str, number: float) -> Any:
    """Return the value of a knob that has a number."""
    words = _words(knob)
    if number == UNSAID:
        return AUTO
    if words is not None:
        return words[int(number)]
    return int(number) if number.is_integer() else number


@functools.cache
def _words(knob: str) -> tuple[str, ...] | None:
    """What a knob of words takes; that of a sub-graph where it overrides the model's."""
    twin = _TWINS.get(knob, knob)
    spec = subgraph_knob_specs()[twin] if twin in subgraph_knob_specs() else knob_specs()[knob]
    return spec.words if spec.low is None else None


def own_numbers(overrides: Iterable[SubGraphKnobs]) -> Floats:
    """Return the values of :data:`KERNEL_KNOBS` that overrides set, one row each."""
    rows = [[number_of_value(n, getattr(own, n)) for n in KERNEL_KNOBS] for own in overrides]
    return np.asarray(rows, np.float64).reshape(len(rows), len(KERNEL_KNOBS))


def mapped(knob: str, numbers: Floats, make: Callable[[Any], Any]) -> NDArray[Any]:
    """Return what follows from a knob's values, ``(len(numbers), ...)``, made once of each value.

    Args:
        knob: whose values.
        numbers: of the values.
        make: from a value, what is wanted.
    """
    different, which = np.unique(numbers, return_inverse=True)
    return np.asarray([make(value_of_number(knob, n)) for n in different.tolist()])[which]


@dataclass(frozen=True, slots=True, eq=False)
class SettingsTable:
    """Settings as columns.

    Attributes:
        knobs: numbers of values of :data:`MODEL_KNOBS`, ``(settings, knobs)``.
        setting: setting of each override, ascending, ``(overrides,)``.
        layer: position in ``layers`` of the layer that an override names.
        own: position in ``owns`` of what it says.
        layers: names.
        owns: overrides without their layers' names, each different; the first is
            :data:`NOTHING`.
    """

    knobs: Floats
    setting: Ints
    layer: Ints
    own: Ints
    layers: tuple[str, ...]
    owns: tuple[SubGraphKnobs, ...]

    @staticmethod
    def of(settings: Sequence[Knobs]) -> SettingsTable:
        """Return the table of some settings."""
        layers, owns = dict[str, int](), {NOTHING: 0}
        knobs = [[number_of_value(n, getattr(k, n)) for n in MODEL_KNOBS] for k in settings]
        said = [
            (
                at,
                layers.setdefault(own.layer, len(layers)),
                owns.setdefault(dataclasses.replace(own, layer=""), len(owns)),
            )
            for at, one in enumerate(settings)
            for own in one.overrides
        ]
        setting, layer, own = np.asarray(said, np.int64).reshape(-1, 3).T
        rows = np.asarray(knobs, np.float64).reshape(len(settings), len(MODEL_KNOBS))
        return SettingsTable(rows, setting, layer, own, tuple(layers), tuple(owns))


@dataclass(frozen=True, slots=True)
class Choice:
    """One column of the candidates of a search.

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


class _Block(NamedTuple):
    """Layers with the same columns, of which a start says the same."""

    columns: list[int]
    layers: Ints
    base: SubGraphKnobs


@dataclass(frozen=True, eq=False)
class Choices:
    """All columns of the candidates.

    Attributes:
        each: in order.
        starts: settings that ``"auto"`` stands for.
        column: whose number is that of the candidate's start; -1 where there is one start.
    """

    each: tuple[Choice, ...]
    starts: tuple[Knobs, ...] = (Knobs(),)
    column: int = -1

    def table(self, genes: Ints) -> SettingsTable:
        """Return the settings of candidates.

        Args:
            genes: numbers of choices, ``(candidates, columns)``.
        """
        starts = np.zeros(len(genes), np.int64) if self.column < 0 else genes[:, self.column]
        owns = {NOTHING: 0}
        found = [np.zeros((0, 3), np.int64)]
        for number in np.flatnonzero(np.bincount(starts)).tolist():
            mine = np.flatnonzero(starts == number)
            found += [self._said(b, mine, genes[mine], owns) for b in self._blocks[number]]
        said = np.concatenate(found)
        setting, layer, own = said[np.argsort(said[:, 0], kind="stable")].T
        knobs = self._knobs(genes, starts)
        return SettingsTable(knobs, setting, layer, own, self._layers, tuple(owns))

    def _knobs(self, genes: Ints, starts: Ints) -> Floats:
        """Numbers of the model's knobs; ``"auto"`` is what the start says."""
        rows = SettingsTable.of(self.starts).knobs
        found: Floats = rows[starts]
        for at, choice in enumerate(self.each):
            if not choice.layers and choice.knob in MODEL_KNOBS:
                place = MODEL_KNOBS.index(choice.knob)
                numbers = np.asarray([number_of_value(choice.knob, v) for v in choice.values])
                says = np.asarray([v != AUTO for v in choice.values])[genes[:, at]]
                found[says, place] = numbers[genes[says, at]]
        return found

    def _said(self, block: _Block, mine: Ints, genes: Ints, owns: dict[SubGraphKnobs, int]) -> Ints:
        """Setting, layer and number of each override of some layers."""
        rows = genes[:, block.columns]
        numbers, first = Interner(len(block.columns)).of(rows)
        said = [self._own(block, row) for row in rows[first].tolist()]
        own = np.asarray([owns.setdefault(one, len(owns)) for one in said], np.int64)[numbers]
        there = np.flatnonzero(own)
        setting, layer = (x.ravel() for x in np.meshgrid(mine[there], block.layers, indexing="ij"))
        return np.column_stack((setting, layer, np.repeat(own[there], len(block.layers))))

    def _own(self, block: _Block, row: Sequence[int]) -> SubGraphKnobs:
        """What a row of choices says of a block, over what the start says."""
        pairs = ((self.each[at], gene) for at, gene in zip(block.columns, row, strict=True))
        chosen = {choice.knob: choice.values[gene] for choice, gene in pairs}
        return SubGraphKnobs("", **chosen).over(block.base)

    @functools.cached_property
    def _layers(self) -> tuple[str, ...]:
        """Layers that choices or starts name."""
        said = (own.layer for start in self.starts for own in start.overrides)
        return tuple(dict.fromkeys([*said, *(layer for c in self.each for layer in c.layers)]))

    @functools.cached_property
    def _blocks(self) -> list[list[_Block]]:
        """Blocks of each start."""
        return [self._blocks_of(number) for number in range(len(self.starts))]

    def _blocks_of(self, start: int) -> list[_Block]:
        base = {o.layer: dataclasses.replace(o, layer="") for o in self.starts[start].overrides}
        columns: dict[str, list[int]] = {layer: [] for layer in base}
        for at, choice in enumerate(self.each):
            for layer in choice.layers if choice.start == start else ():
                columns.setdefault(layer, []).append(at)
        found: dict[tuple[tuple[int, ...], SubGraphKnobs], list[int]] = {}
        for layer, own in columns.items():
            key = tuple(own), base.get(layer, NOTHING)
            found.setdefault(key, []).append(self._layers.index(layer))
        return [
            _Block(list(own), np.asarray(layers, np.int64), said)
            for (own, said), layers in found.items()
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Points of a search, as numbers of choices and as settings.

    Attributes:
        choices: of the columns.
        genes: numbers of choices, ``(candidates, columns)``.
        knobs_of: the setting of a row.
    """

    choices: Choices
    genes: Ints
    knobs_of: Callable[[Ints], Knobs]

    def __len__(self) -> int:
        """How many points."""
        return len(self.genes)

    @property
    def table(self) -> SettingsTable:
        """The settings as columns."""
        return self.choices.table(self.genes)

    @property
    def settings(self) -> list[Knobs]:
        """The settings one by one."""
        return [self.knobs_of(row) for row in self.genes]
