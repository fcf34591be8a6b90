"""Features of the kernels of many settings, each different kernel computed and predicted once.

Settings are planned (:mod:`autoturbo.schedule.pipeline`), their kernels are described
(:mod:`autoturbo.simulate.plan`), and a latency is the sum of launches times seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoturbo.cost_models.features import (
    KNOB_NAMES,
    OVERRIDE_NAMES,
    PLACING,
    Rows,
    kernel_rows,
    knob_vector,
    own_vector,
    portable_rows,
    setting_row,
)
from autoturbo.cost_models.model import Example
from autoturbo.cost_models.pretrained import Pretrained
from autoturbo.cost_models.ratios import base_seconds
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.work import Flags, Floats
from autoturbo.schedule.knobs import Knobs, Value
from autoturbo.schedule.pipeline import Workbench
from autoturbo.schedule.stores import Store
from autoturbo.simulate.plan import COLUMNS, PASSES, KernelStatistics

_NEAR = COLUMNS.index("near_s")
_PASSES = [COLUMNS.index(name) for name in PASSES]
_PLACING = [OVERRIDE_NAMES.index(name) for name in PLACING]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The kernels of settings; of those that fit the model alone.

    Attributes:
        settings: number of each setting's knobs of the model, ``(settings,)``.
        possible: whether each fits the model, ``(settings,)``.
        owner: position of each kernel's setting, ascending, ``(kernels,)``.
        kernels: numbers of the kernels.
        own: instances, passes and samples of a pass of each kernel, ``(kernels, 3)``.
    """

    settings: Ints
    possible: Flags
    owner: Ints
    kernels: Ints
    own: Ints

    @property
    def launches(self) -> Ints:
        """Launches of each kernel by one cluster."""
        found: Ints = self.own[:, 0] * self.own[:, 1]
        return found

    @property
    def slices(self) -> list[slice]:
        """Where each setting's kernels are."""
        ends = np.searchsorted(self.owner, np.arange(len(self.settings) + 1)).tolist()
        return [slice(a, b) for a, b in itertools.pairwise(ends)]

    def sums(self, kernels: Floats) -> Floats:
        """Return the sum over each setting's kernels; infinite for those that do not fit."""
        sums = np.bincount(self.owner, kernels, len(self.settings))
        return np.where(self.possible, sums, np.inf)


class BatchFeatures:
    """What is known of the kernels of settings before they are measured, and features.

    Args:
        bench: the model on the target.
        model: trained beforehand.
        target: of :func:`autoturbo.cost_models.features.target_vector`.
        share: samples that ``batches_per_cluster="auto"`` stands for.
    """

    def __init__(self, bench: Workbench, model: Pretrained, target: Rows, share: int) -> None:
        self._model, self._target, self._share = model, target, share
        self._known = KernelStatistics(bench)
        self._settings: dict[tuple[Value, ...], int] = {}
        self._knobs = Store((len(KNOB_NAMES),), np.float32)
        self._own_knobs = Store((len(OVERRIDE_NAMES),), np.float32)
        self._own, self._base, self._kinds = Store(), Store((), np.float64), Store()
        self._kind_numbers: dict[tuple[bytes, bytes], int] = {}

    @property
    def full(self) -> bool:
        """Whether it holds so many kernels that it should begin anew."""
        return self._known.full

    def of(self, settings: Sequence[Knobs]) -> Batch:
        """Return the kernels of settings."""
        plans = self._known.kernels_of(settings)
        self._learn()
        there = [plan for plan in plans if plan is not None]
        counts = [0 if plan is None else len(plan.kernels) for plan in plans]
        return Batch(
            np.asarray([self._setting(knobs) for knobs in settings], np.int64),
            np.asarray([plan is not None for plan in plans], np.bool_),
            np.repeat(np.arange(len(settings)), counts),
            np.asarray([number for plan in there for number in plan.kernels], np.int64),
            np.concatenate([np.zeros((0, len(PASSES)), np.int64), *(p.passes for p in there)]),
        )

    def _setting(self, knobs: Knobs) -> int:
        """Return the number of a setting's knobs of the model."""
        values = tuple(getattr(knobs, name) for name in KNOB_NAMES)
        if values not in self._settings:
            self._settings[values] = self._knobs.add(knob_vector(knobs, self._share))
        return self._settings[values]

    def _learn(self) -> None:
        """Predict the kernels that are new, as if nothing had been measured."""
        first, known = self._own.count, self._known
        new = list(itertools.islice(known.kernels, first, None))
        if not new:
            return
        for values in itertools.islice(known.knobs, self._own_knobs.count, None):
            self._own_knobs.add(own_vector(values))
        self._own.add([own for _, own in new])
        statistics, knobs = self._described(np.arange(first, first + len(new)))
        factors = np.exp(self._model.factors.predict(portable_rows(statistics, knobs)))
        self._base.add(base_seconds(statistics) * factors)

    def _described(self, kernels: Ints) -> tuple[Floats, Rows]:
        """Return statistics of kernels, and the knobs that hold for them as numbers."""
        return self._known.values(kernels), self._own_knobs.rows[self._own.rows[kernels]]

    def weights(self, batch: Batch) -> Floats:
        """Return the seconds that all launches of each kernel take if nothing was measured yet."""
        found: Floats = batch.launches.astype(np.float64) * self._base.rows[batch.kernels]
        return found

    def seconds(self, settings: Sequence[Knobs]) -> Floats:
        """Return the latency of settings if nothing was measured yet; infinite without a plan."""
        batch = self.of(settings)
        return batch.sums(self.weights(batch))

    def least(self, batch: Batch) -> Floats:
        """Return the seconds of each kernel, all launches, with all that crosses boundaries in LB.

        It can hardly take less.
        """
        near = self._known.values(batch.kernels)[:, _NEAR]
        found: Floats = batch.launches.astype(np.float64) * near
        return found

    def kinds(self, batch: Batch) -> list[bytes]:
        """Return a key of what each setting does.

        Equal where the statistics of the kernels, one after another, and their knobs of
        :data:`autoturbo.cost_models.features.PLACING` are.
        """
        statistics, knobs = self._described(np.arange(self._kinds.count, self._own.count))
        numbers = self._kind_numbers
        self._kinds.add([
            numbers.setdefault((row.tobytes(), own.tobytes()), len(numbers))
            for row, own in zip(statistics, knobs[:, _PLACING], strict=True)
        ])  # fmt: skip
        rows = np.column_stack((self._kinds.rows[batch.kernels], batch.own))
        return [rows[mine].tobytes() for mine in batch.slices]

    def rows(self, batch: Batch, chosen: Ints) -> Rows:
        """Return :func:`autoturbo.cost_models.features.kernel_rows` of some kernels of a batch."""
        statistics, own = self._launched(batch, chosen)
        knobs = self._knobs.rows[batch.settings[batch.owner[chosen]]]
        return kernel_rows(statistics, own, knobs, self._target)

    def _launched(self, batch: Batch, chosen: Ints) -> tuple[Floats, Rows]:
        """Return :meth:`_described` of some kernels of a batch, with their passes."""
        statistics, own = self._described(batch.kernels[chosen])
        statistics[:, _PASSES] = batch.own[chosen]
        return statistics, own

    def setting_rows(self, batch: Batch) -> list[Rows]:
        """Return :func:`autoturbo.cost_models.features.setting_row` of each setting."""
        statistics, own = self._launched(batch, np.arange(len(batch.owner)))
        pairs = zip(batch.slices, self._knobs.rows[batch.settings], strict=True)
        launches = batch.launches
        return [
            setting_row(statistics[mine], launches[mine], own[mine], knobs, self._target)
            for mine, knobs in pairs
        ]

    def examples(self, batch: Batch) -> list[Example | None]:
        """Return examples of settings; None for those that do not fit the model."""
        rows, launches = self.rows(batch, np.arange(len(batch.owner))), batch.launches
        base, each = self._base.rows[batch.kernels], self.setting_rows(batch)
        return [
            Example(rows[mine], launches[mine], row, base=base[mine]) if possible else None
            for mine, row, possible in zip(batch.slices, each, batch.possible, strict=True)
        ]
