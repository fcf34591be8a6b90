"""Predicts thousands of settings at once: what a cost model sees of them, from their plans.

Settings of a search have most kernels in common, so each different kernel, a part of a sub-graph
with the knobs that hold for it, is found out and predicted once::

    settings -> plans (autoturbo.schedule.plan_batch) -> kernels (autoturbo.simulate.plan)
             -> launches x seconds -> sum
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoturbo.cost_models.features import (
    OVERRIDE_NAMES,
    PLACING,
    Rows,
    kernel_rows,
    knob_vectors,
    own_vectors,
    portable_rows,
    setting_row,
)
from autoturbo.cost_models.model import Example
from autoturbo.cost_models.pretrained import Pretrained
from autoturbo.cost_models.ratios import base_seconds
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.interning import Memo, digests, whole_numbers
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import Workbench
from autoturbo.schedule.plan_batch import PlanTable, plan_batch
from autoturbo.schedule.settings_table import MODEL_KNOBS, model_numbers
from autoturbo.schedule.stores import Store
from autoturbo.schedule.work import Flags, Floats
from autoturbo.simulate.plan import COLUMNS, OWN_COLUMNS, PlanKernels

MOST = 1 << 16
"""Kernels that are remembered: 100 MB or so; then all is found out anew."""

_NEAR = COLUMNS.index("near_s")
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
        self._bench, self._model, self._target, self._share = bench, model, target, share
        self._known = PlanKernels(bench)
        self._settings = Memo(len(MODEL_KNOBS), (len(MODEL_KNOBS),), np.float32)
        self._knobs = Memo(len(OVERRIDE_NAMES), (len(OVERRIDE_NAMES),), np.float32)
        self._kernels = Memo(2, (2,))
        self._base, self._kinds = Store((), np.float64), Store()

    @property
    def full(self) -> bool:
        """Whether it remembers more than it should."""
        return self._known.count > MOST

    def of(self, settings: Sequence[Knobs]) -> Batch:
        """Return the kernels of settings."""
        knobs = model_numbers(settings)
        plans = plan_batch(self._bench, settings)
        own = np.column_stack((plans.instances, plans.loops, plans.samples))
        numbers = self._settings.numbers(
            whole_numbers(knobs), lambda new: knob_vectors(knobs[new], self._share)
        )
        return Batch(numbers, plans.possible, plans.owner, self._kernels_of(plans), own)

    def _kernels_of(self, plans: PlanTable) -> Ints:
        """Numbers of kernels: what is known of each, and the knobs that hold for it."""
        knobs = self._knobs.numbers(
            whole_numbers(plans.kernel_knobs), lambda new: own_vectors(plans.kernel_knobs[new])
        )[plans.runs]
        parts = self._known.parts(plans)

        def make(new: Ints) -> Ints:
            own = plans.kernel_knobs[plans.runs[new]]
            known = self._known.numbers(plans.samples[new], parts[new], own)
            statistics, rows = self._known.statistics[known], self._knobs.values[knobs[new]]
            factors = np.exp(self._model.factors.predict(portable_rows(statistics, rows)))
            self._base.add(base_seconds(statistics) * factors)
            return np.column_stack((known, knobs[new]))

        return self._kernels.numbers(np.column_stack((parts, knobs)), make)

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
        known = self._kernels.values[batch.kernels, 0]
        found: Floats = batch.launches.astype(np.float64) * self._known.statistics[known, _NEAR]
        return found

    def kinds(self, batch: Batch) -> list[bytes]:
        """Return a key of what each setting does.

        Equal where the statistics of the kernels, one after another, and their knobs of
        :data:`autoturbo.cost_models.features.PLACING` are.
        """
        known, knobs = self._kernels.values[self._kinds.count : self._kernels.count].T
        own = self._knobs.values[knobs][:, _PLACING].astype(np.float64)
        rows = np.column_stack((self._known.statistics[known], own))
        self._kinds.add(digests(whole_numbers(rows)))
        each = digests(np.column_stack((self._kinds.rows[batch.kernels], batch.own)))
        return [each[mine].tobytes() for mine in batch.slices]

    def rows(self, batch: Batch, chosen: Ints) -> Rows:
        """Return :func:`autoturbo.cost_models.features.kernel_rows` of some kernels of a batch."""
        statistics, own = self._described(batch, chosen)
        knobs = self._settings.values[batch.settings[batch.owner[chosen]]]
        return kernel_rows(statistics, own, knobs, self._target)

    def _described(self, batch: Batch, chosen: Ints) -> tuple[Floats, Rows]:
        """Statistics of kernels, and knobs that hold for them as numbers."""
        known, knobs = self._kernels.values[batch.kernels[chosen]].T
        statistics = self._known.statistics[known]
        statistics[:, OWN_COLUMNS] = batch.own[chosen]
        return statistics, self._knobs.values[knobs]

    def setting_rows(self, batch: Batch) -> list[Rows]:
        """Return :func:`autoturbo.cost_models.features.setting_row` of each setting."""
        statistics, own = self._described(batch, np.arange(len(batch.owner)))
        pairs = zip(batch.slices, self._settings.values[batch.settings], strict=True)
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
