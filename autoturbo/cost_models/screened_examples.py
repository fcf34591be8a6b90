"""Candidates by number as a cost model in a run sees them: what it would see of their settings."""

from __future__ import annotations

import dataclasses
import itertools
from typing import NamedTuple

import numpy as np

from autoturbo.cost_models.choices import Choices
from autoturbo.cost_models.features import KNOB_NAMES, Rows, knob_vector, squash
from autoturbo.cost_models.model import Example
from autoturbo.cost_models.numbering import Numbering, RowNumbering, firsts, joined_digests
from autoturbo.cost_models.screened_kernels import Described
from autoturbo.cost_models.screening import Screen
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.knobs import AUTO
from autoturbo.schedule.layer_sets import Flags
from autoturbo.schedule.stores import Store
from autoturbo.schedule.work import Floats

MOST = 1 << 16
"""Kernels that are remembered, their knobs aside: 100 MB or so; then all is found out anew."""


class Numbered(NamedTuple):
    """The feature rows of candidates by number: those of a search have most in common.

    Attributes:
        owner: per sub-graph, its candidate.
        rows: per sub-graph, the number of its row, of :meth:`ScreenedExamples.rows`.
        weights: per sub-graph, of :attr:`autoturbo.cost_models.model.Example.weights`.
        possible: per candidate, whether it has a plan.
    """

    owner: Ints
    rows: Ints
    weights: Floats
    possible: Flags


class ScreenedExamples:
    """Examples of candidates, the same as those of their settings to the last bit.

    Args:
        screen: of the model on the target.
        choices: of the candidates' columns.
        target: of :func:`autoturbo.cost_models.features.target_vector`.
        share: samples that ``batches_per_cluster="auto"`` stands for.

    Attributes:
        choices: of the candidates' columns.
    """

    def __init__(self, screen: Screen, choices: Choices, target: Rows, share: int) -> None:
        self._screen, self.choices, self._target = screen, choices, target
        self._vectors = np.stack([knob_vector(start, share) for start in choices.starts])
        columns = choices.of_model(KNOB_NAMES)
        self._tables = [(at, *_table(choices, at, share)) for at in columns]
        self._columns = columns
        self._vector_numbers = RowNumbering(1 + len(columns))
        self._vector_rows = Store((self._vectors.shape[1],), np.float32)
        self._row_numbers, self._sources = Numbering(), Store((2,))

    @property
    def full(self) -> bool:
        """Whether it remembers more than it should."""
        return self._screen.kernels.known > MOST

    def seconds(self, genes: Ints) -> Floats:
        """What candidates take if nothing was measured yet; infinite for those without a plan."""
        owner, kernels, possible = self._screen.screened(genes)
        weights = self._screen.kernels.weights(kernels)
        found = np.full(len(genes), np.inf)
        for at, mine in enumerate(_slices(owner, len(genes))):
            if possible[at]:
                found[at] = weights[mine].sum()
        return found

    def numbered(self, genes: Ints) -> Numbered:
        """The rows of candidates' kernels by number, each kernel under each model's knobs once."""
        owner, kernels, possible = self._screen.screened(genes)
        vectors = self._vector_numbers_of(genes)[owner]
        rows = self._row_numbers.of_pairs(kernels, vectors)
        new = firsts(rows, self._sources.count, self._row_numbers.count)
        self._sources.add(np.column_stack((kernels[new], vectors[new])))
        return Numbered(owner, rows, self._screen.kernels.weights(kernels), possible)

    def rows(self, numbers: Ints) -> Rows:
        """Feature rows of :func:`autoturbo.cost_models.features.kernel_rows` by number."""
        kernels, vectors = self._sources.rows[numbers].T
        return self._rows(self._screen.kernels.described(kernels), self._vector_rows.rows[vectors])

    def least(self, numbers: Ints) -> Floats:
        """Seconds of kernels with all that crosses boundaries in LB, by number of their rows."""
        return self._screen.kernels.least(self._sources.rows[numbers, 0])

    def kinds(self, numbered: Numbered, count: int) -> list[int]:
        """What candidates do: equal where their kernels are of equal kinds, one after another.

        Args:
            numbered: of :meth:`numbered`.
            count: candidates.
        """
        kinds = self._screen.kernels.kinds(self._sources.rows[numbered.rows, 0])
        found: list[int] = joined_digests(kinds, numbered.owner, count).tolist()
        return found

    def settings(self, genes: Ints) -> Rows:
        """:func:`autoturbo.cost_models.features.setting_row` of candidates that have a plan."""
        screened = self._screen.screened(genes)
        found = self._screen.kernels.described(screened.kernels)
        each = _slices(screened.owner, len(genes))
        return self._settings(found, each, self._knobs(genes))[screened.possible]

    def of(self, genes: Ints) -> list[Example | None]:
        """Examples of candidates; None for those without a plan."""
        screened = self._screen.screened(genes)
        found = self._screen.kernels.described(screened.kernels)
        vectors = self._knobs(genes)
        rows = self._rows(found, vectors[screened.owner])
        each = _slices(screened.owner, len(genes))
        settings = self._settings(found, each, vectors)
        return [
            Example(rows[mine], found.launches[mine], setting, base=found.base[mine]) if there
            else None
            for mine, setting, there in zip(each, settings, screened.possible.tolist(), strict=True)
        ]  # fmt: skip

    def _knobs(self, genes: Ints) -> Rows:
        """:func:`autoturbo.cost_models.features.knob_vector` of every candidate."""
        starts = self.choices.start_of(genes)
        found: Rows = self._vectors[starts]
        for at, place, table in self._tables:
            found[:, place] = table[starts, genes[:, at]]
        return found

    def _vector_numbers_of(self, genes: Ints) -> Ints:
        """Numbers of what candidates' knobs of the model look like."""
        starts = self.choices.start_of(genes)
        numbers = self._vector_numbers.of(np.column_stack((starts, genes[:, self._columns])))
        new = firsts(numbers, self._vector_rows.count, self._vector_numbers.count)
        self._vector_rows.add(self._knobs(genes[new]))
        return numbers

    def _rows(self, found: Described, vectors: Rows) -> Rows:
        """:func:`autoturbo.cost_models.features.kernel_rows` of kernels.

        Args:
            found: what is known of them.
            vectors: their candidates' knobs, ``(kernels, knobs)``.
        """
        parts = (found.ratios, found.own, found.squashed, vectors, self._target[None])
        ends = np.cumsum([part.shape[1] for part in parts]).tolist()
        rows = np.empty((len(vectors), ends[-1]), np.float32)
        for part, end in zip(parts[:3], ends, strict=False):
            rows[:, end - part.shape[1] : end] = part
        rows[:, ends[2] : ends[3]] = vectors
        rows[:, ends[3] :] = self._target
        return rows

    def _settings(self, found: Described, each: list[slice], vectors: Rows) -> Rows:
        """:func:`autoturbo.cost_models.features.setting_row` of every candidate."""
        width, own = found.statistics.shape[1], found.own.shape[1]
        sums, means = np.zeros((len(each), 2 * width)), np.zeros((len(each), own), np.float32)
        for at, mine in enumerate(each):
            if mine.stop > mine.start:
                statistics = found.statistics[mine]
                sums[at, :width] = found.launches[mine] @ statistics
                sums[at, width:] = statistics.max(axis=0)
                means[at] = found.own[mine].mean(axis=0)
        same = np.broadcast_to(self._target, (len(each), len(self._target)))
        return np.concatenate([squash(sums), means, vectors, same], axis=1, dtype=np.float32)


def _slices(owner: Ints, count: int) -> list[slice]:
    """Where each candidate's sub-graphs are."""
    ends = np.searchsorted(owner, np.arange(count + 1)).tolist()
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


def _table(choices: Choices, column: int, share: int) -> tuple[int, Rows]:
    """Place of a column's knob in a vector of knobs, and its numbers by start and choice."""
    choice = choices.each[column]
    place = KNOB_NAMES.index(choice.knob)
    found = [
        [
            knob_vector(
                start if value == AUTO else dataclasses.replace(start, **{choice.knob: value}),
                share,
            )[place]
            for value in choice.values
        ]
        for start in choices.starts
    ]
    return place, np.asarray(found, np.float32)
