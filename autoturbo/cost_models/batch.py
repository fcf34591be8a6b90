"""Features of the kernels of many candidates, each different kernel described once.

Kernels have one of two sources: candidates are planned (:mod:`autoturbo.schedule.pipeline`)
and their kernels described (:mod:`autoturbo.simulator.plan`), or an evaluator of one's own tells of
them. A latency is the sum of launches times seconds.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoturbo.caches import GrowingArray
from autoturbo.cost_models.contract import Example
from autoturbo.cost_models.features import (
    KNOB_NAMES,
    OVERRIDE_NAMES,
    UNSEEN,
    Rows,
    kernel_rows,
    knob_vector,
    own_vector,
    portable_rows,
    setting_row,
)
from autoturbo.cost_models.pretrained import Pretrained
from autoturbo.cost_models.ratios import base_seconds
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.knobs import KernelKnobs, Knobs, Value, kernel_knobs
from autoturbo.schedule.work import Flags, Floats
from autoturbo.simulator.contract import CandidateEvaluator
from autoturbo.simulator.plan import COLUMNS, PASSES, KernelStatistics, PlannedKernels

_NEAR = COLUMNS.index("near_s")
_UNSEEN = [OVERRIDE_NAMES.index(name) for name in UNSEEN]

_SEEN = 4096
"""Candidates that an evaluator of one's own told of, after which they are forgotten."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The kernels of candidates; of those that fit the model alone.

    Attributes:
        settings: Number of each candidate's knobs of the model, ``(settings,)``.
        possible: Whether each fits the model, ``(settings,)``.
        owner: Position of each kernel's candidate, ascending, ``(kernels,)``.
        kernels: Numbers of the kernels.
        own: Instances, passes and samples of a pass of each kernel, ``(kernels, 3)``.
    """

    settings: Ints
    possible: Flags
    owner: Ints
    kernels: Ints
    own: Ints

    @property
    def launches(self) -> Ints:
        """Return the launches of each kernel by one cluster."""
        launches: Ints = self.own[:, 0] * self.own[:, 1]
        return launches

    @property
    def slices(self) -> list[slice]:
        """Return the slice of each candidate's kernels."""
        ends = np.searchsorted(self.owner, np.arange(len(self.settings) + 1)).tolist()
        return [slice(a, b) for a, b in itertools.pairwise(ends)]

    def sums(self, kernels: Floats) -> Floats:
        """Return the sum over each candidate's kernels; infinite for those that do not fit."""
        sums = np.bincount(self.owner, kernels, len(self.settings))
        return np.where(self.possible, sums, np.inf)


class EvaluatorStatistics:
    """An evaluator's statistics of kernels, by number; every candidate has kernels of its own.

    It answers what :class:`autoturbo.simulator.plan.KernelStatistics` does.

    Args:
        evaluator: Measures the kernels; it is asked once about each candidate.
    """

    def __init__(self, evaluator: CandidateEvaluator) -> None:
        self._evaluator = evaluator
        self._plans: dict[str, PlannedKernels | None] = {}
        self._knobs: list[KernelKnobs] = []
        self._rows = GrowingArray((0,), np.float64)

    @property
    def full(self) -> bool:
        """Return whether it holds so many candidates that it should begin anew."""
        return len(self._plans) >= _SEEN

    def kernels_of(self, settings: Sequence[Knobs]) -> list[PlannedKernels | None]:
        """Return the kernels of candidates; None for one without a plan."""
        keys = [knobs.canonical() for knobs in settings]
        for key, knobs in zip(keys, settings, strict=True):
            if key not in self._plans:
                self._plans[key] = self._told(knobs)
        return [self._plans[key] for key in keys]

    def _told(self, knobs: Knobs) -> PlannedKernels | None:
        plan = self._evaluator.statistics(knobs)
        if plan is None:
            return None
        count, columns = plan.values.shape
        if not self._rows.count:
            self._rows = GrowingArray((columns,), np.float64)
        first = self._rows.add(plan.values)
        own = plan.overrides
        self._knobs += [kernel_knobs(knobs, own.get(index)) for index in range(count)]
        passes = np.ones((count, len(PASSES)), np.int64)
        passes[:, 0] = plan.launches
        return PlannedKernels(list(range(first, first + count)), passes, own)

    def knobs_from(self, first: int) -> list[KernelKnobs]:
        """Return the knobs of kernels, from a number on."""
        return self._knobs[first:]

    def values(self, kernels: Ints, _passes: Ints | int = 0) -> Floats:
        """Return the statistics of kernels, passes and all."""
        rows: Floats = self._rows.rows[kernels]
        return rows


class BatchFeatures:
    """The features of candidates' kernels, and predictions before they are measured.

    Args:
        known: Statistics of kernels.
        model: Trained beforehand, to predict them; None if a kernel is to take what it takes alone.
        target: Figures of :func:`autoturbo.cost_models.features.target_vector`.
        share: Samples that ``batches_per_cluster="auto"`` stands for.
    """

    def __init__(
        self,
        known: KernelStatistics | EvaluatorStatistics,
        model: Pretrained | None,
        target: Rows,
        share: int,
    ) -> None:
        self._known, self._model, self._target, self._share = known, model, target, share
        self._settings: dict[tuple[Value, ...], int] = {}
        self._knobs = GrowingArray((len(KNOB_NAMES),), np.float32)
        self._own = GrowingArray((len(OVERRIDE_NAMES),), np.float32)
        self._base, self._kinds = GrowingArray((), np.float64), GrowingArray((2,))
        self._last: tuple[Sequence[Knobs], Batch] | None = None

    @property
    def full(self) -> bool:
        """Return whether it holds so much that it should begin anew."""
        return self._known.full

    def of(self, settings: Sequence[Knobs]) -> Batch:
        """Return the kernels of candidates; those of the list asked about last are remembered."""
        # A search ranks a list and then looks at the same one: identity is enough.
        if self._last is not None and settings is self._last[0]:
            return self._last[1]
        plans = self._known.kernels_of(settings)
        # All new kernels in one call: trees cost by the call more than by the row.
        self._learn()
        planned = [plan for plan in plans if plan is not None]
        counts = [0 if plan is None else len(plan.kernels) for plan in plans]
        batch = Batch(
            np.asarray([self._setting(knobs) for knobs in settings], np.int64),
            np.asarray([plan is not None for plan in plans], np.bool_),
            np.repeat(np.arange(len(settings)), counts),
            np.asarray([number for plan in planned for number in plan.kernels], np.int64),
            np.concatenate([np.zeros((0, len(PASSES)), np.int64), *(p.passes for p in planned)]),
        )
        self._last = settings, batch
        return batch

    def _setting(self, knobs: Knobs) -> int:
        """Return the number of a candidate's knobs of the model."""
        values = tuple(getattr(knobs, name) for name in KNOB_NAMES)
        if values not in self._settings:
            self._settings[values] = self._knobs.add(knob_vector(knobs, self._share))
        return self._settings[values]

    def _learn(self) -> None:
        """Predict the kernels that are new, by the prior."""
        new = self._known.knobs_from(self._own.count)
        if not new:
            return
        first = self._own.add([own_vector(knobs) for knobs in new])
        kernels = np.arange(first, self._own.count)
        statistics = self._known.values(kernels)
        base = base_seconds(statistics)
        if self._model is not None:
            rows = portable_rows(statistics, self._own.rows[kernels])
            base *= np.exp(self._model.factors.predict(rows))
        self._base.add(base)

    def weights(self, batch: Batch) -> Floats:
        """Return the seconds that all launches of each kernel take if nothing was measured yet."""
        base: Floats = self._base.rows[batch.kernels]
        return batch.launches * base

    def seconds(self, settings: Sequence[Knobs]) -> Floats:
        """Return the latency of candidates if nothing was measured yet; infinite without a plan."""
        batch = self.of(settings)
        return batch.sums(self.weights(batch))

    def least(self, batch: Batch) -> Floats:
        """Return the seconds of each kernel, all launches, with all that crosses boundaries in LB.

        It can hardly take less.
        """
        return batch.launches * self._known.values(batch.kernels)[:, _NEAR]

    def kinds(self, batch: Batch) -> list[bytes]:
        """Return a key of what each candidate does.

        Equal where the statistics of the kernels, one after another, and their knobs of
        :data:`autoturbo.cost_models.features.UNSEEN` are.
        """
        new = np.arange(self._kinds.count, self._own.count)
        unseen = self._own.rows[new][:, _UNSEEN]
        self._kinds.add([
            _digest(row.tobytes() + own.tobytes())
            for row, own in zip(self._known.values(new), unseen, strict=True)
        ])  # fmt: skip
        rows = np.column_stack((self._kinds.rows[batch.kernels], batch.own))
        return [rows[mine].tobytes() for mine in batch.slices]

    def rows(self, batch: Batch, chosen: Ints) -> Rows:
        """Return :func:`autoturbo.cost_models.features.kernel_rows` of some kernels of a batch."""
        kernels = batch.kernels[chosen]
        statistics = self._known.values(kernels, batch.own[chosen])
        knobs = self._knobs.rows[batch.settings[batch.owner[chosen]]]
        return kernel_rows(statistics, self._own.rows[kernels], knobs, self._target)

    def base(self, batch: Batch, chosen: Ints) -> Floats:
        """Return the seconds that one launch of some kernels takes if nothing was measured yet."""
        base: Floats = self._base.rows[batch.kernels[chosen]]
        return base

    def setting_rows(self, batch: Batch) -> list[Rows]:
        """Return :func:`autoturbo.cost_models.features.setting_row` of each candidate."""
        statistics = self._known.values(batch.kernels, batch.own)
        own, launches = self._own.rows[batch.kernels], batch.launches
        return [
            setting_row(statistics[mine], launches[mine], own[mine], knobs, self._target)
            for mine, knobs in zip(batch.slices, self._knobs.rows[batch.settings], strict=True)
        ]

    def examples(self, batch: Batch) -> list[Example | None]:
        """Return examples of candidates; None for those that do not fit the model."""
        rows, launches = self.rows(batch, np.arange(len(batch.kernels))), batch.launches
        base, setting_rows = self._base.rows[batch.kernels], self.setting_rows(batch)
        return [
            Example(rows[mine], launches[mine], row, base[mine]) if possible else None
            for mine, row, possible in zip(batch.slices, setting_rows, batch.possible, strict=True)
        ]


def _digest(content: bytes) -> Ints:
    """Return a key of some bytes, the same in whatever order things were asked for."""
    return np.frombuffer(hashlib.blake2b(content, digest_size=16).digest(), np.int64)
