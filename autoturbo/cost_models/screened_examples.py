"""Candidates by number as a cost model in a run sees them: what it would see of their settings."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from autoturbo.cost_models.choices import Choices
from autoturbo.cost_models.features import KNOB_NAMES, Rows, knob_vector, squash
from autoturbo.cost_models.model import Example
from autoturbo.cost_models.screened_kernels import Described
from autoturbo.cost_models.screening import Screen, Screened
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.knobs import AUTO
from autoturbo.schedule.work import Floats

MOST = 1 << 16
"""Kernels that are remembered, their knobs aside: 100 MB or so; then all is found out anew."""


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

    def of(self, genes: Ints) -> list[Example | None]:
        """Examples of candidates; None for those without a plan."""
        screened = self._screen.screened(genes)
        found = self._screen.kernels.described(screened.kernels)
        vectors = self._knobs(genes)
        rows = self._rows(found, screened, vectors)
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

    def _rows(self, found: Described, screened: Screened, vectors: Rows) -> Rows:
        """:func:`autoturbo.cost_models.features.kernel_rows` of all candidates in turn."""
        parts = (found.ratios, found.own, found.squashed, vectors, self._target[None])
        ends = np.cumsum([part.shape[1] for part in parts]).tolist()
        rows = np.empty((len(screened.owner), ends[-1]), np.float32)
        for part, end in zip(parts[:3], ends, strict=False):
            rows[:, end - part.shape[1] : end] = part
        rows[:, ends[2] : ends[3]] = vectors[screened.owner]
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
