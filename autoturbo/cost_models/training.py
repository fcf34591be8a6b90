"""A data set of measurements as the arrays that cost models are trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from autoturbo.cost_models.booster import Booster
from autoturbo.cost_models.features import OVERRIDE_NAMES, Rows, override_rows, portable_rows
from autoturbo.cost_models.ratios import base_seconds
from autoturbo.cost_models.totals import Total, TotalsModel
from autoturbo.datasets.measurements.load import Measurements
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.work import Flags, Floats
from autoturbo.statistics import ASSUMED_NOISE

TREES: Final = 200
"""Trees of a model of kernels; more change the third digit of its accuracy."""

GROWN: Final[Mapping[str, Any]] = {"max_depth": 7, "eta": 0.12, "colsample_bynode": 0.3}
"""How they grow, in XGBoost's words: deep, since what a knob does depends on many ratios, and each
split from a third of the columns, since many say nearly the same."""


@dataclass(frozen=True, eq=False)
class Table:
    """Candidates and their kernels; ``owner`` is the candidate of every kernel.

    Attributes:
        rows: Columns :data:`autoturbo.cost_models.features.PORTABLE`, ``(kernels, columns)``.
        base: Seconds that predictions are relative to, ``(kernels,)``.
        launches: ``(kernels,)``.
        times: Seconds of a launch; not a number where not measured, ``(kernels,)``.
        owner: ``(kernels,)``.
        latency: Seconds; not a number for failures, ``(settings,)``.
        measured: Mask of the candidates that are no failures.
        pool: Number of the model, batch size, target and data type, ``(settings,)``.
        groups: Per kind of group, ``"model"`` or ``"target"``, names, ``(settings,)``.
    """

    rows: Rows
    base: Floats
    launches: Ints
    times: Floats
    owner: Ints
    latency: Floats
    measured: Flags
    pool: Ints
    groups: Mapping[str, NDArray[np.object_]]

    @staticmethod
    def of(data: Measurements, start: Booster | None = None) -> Table:
        """Return the table of a data set.

        Args:
            data: Measured settings. Times of kernels follow from latencies where need be.
            start: Trees for kernels of which only latencies are known; none if None.
        """
        rows, base = portable_rows(data.statistics, _own(data)), base_seconds(data.statistics)
        expected = base if start is None else base * np.exp(start.predict(rows))
        return Table(
            rows, base, data.launches, _times(data, rows, expected, start),
            data.owner, data.latency, data.measured, data.pairs,
            {name: data.settings[name] for name in ("model", "target")},
        )  # fmt: skip

    def total(self, seconds: Floats) -> Floats:
        """Return sums over launches of a figure of kernels, by candidate, ``(settings,)``."""
        sums = np.bincount(self.owner, self.launches * seconds, len(self.latency))
        return sums.astype(np.float64)

    @cached_property
    def known(self) -> Flags:
        """Return a mask of the kernels with a time that has a logarithm, ``(kernels,)``."""
        return self.measured[self.owner] & (np.nan_to_num(self.times) > 0)

    @cached_property
    def weights(self) -> Floats:
        """Return the training weights of kernels, ``(kernels,)``; 0 where the candidate failed.

        A candidate weighs as the best latency in the pool over its own, for samples are mostly bad
        and searches ask about good ones; a kernel as the root of its share of that. With the cube
        of it trees tell no more near the best, and less elsewhere.
        """
        best = np.full(int(self.pool.max(initial=-1)) + 1, np.inf)
        np.minimum.at(best, self.pool[self.measured], self.latency[self.measured])
        # Relative to the pool: models and targets differ by orders of magnitude.
        good = np.where(self.measured, best[self.pool] / self.latency, 0)
        spent = self.launches * np.nan_to_num(self.times)
        total = np.maximum(np.bincount(self.owner, spent, len(self.latency)), 1e-30)
        weights: Floats = good[self.owner] * np.sqrt(spent / total[self.owner])
        return weights


def _times(data: Measurements, rows: Rows, base: Floats, start: Booster | None) -> Floats:
    """Return seconds of a launch of each kernel, ``(kernels,)``.

    Those of a measurer that gives a latency alone are what sums over all settings of its shard say,
    times what brings each setting's own sum to its latency.

    Args:
        data: Settings and their kernels.
        rows: Features of kernels, ``(kernels, columns)``.
        base: Seconds that are expected of a launch of each kernel, ``(kernels,)``.
        start: Trees that expect them; None for nothing but what kernels take alone.
    """
    times = data.times.copy()
    untimed = data.measured & ~data.timed
    for pair in np.unique(data.pairs[untimed]).tolist():
        settings = np.flatnonzero(untimed & (data.pairs == pair))
        kernels = [slice(data.offsets[i], data.offsets[i + 1]) for i in settings.tolist()]
        spent = data.launches * base
        totals = [
            Total(rows[mine], spent[mine], float(data.latency[setting]), ASSUMED_NOISE)
            for setting, mine in zip(settings.tolist(), kernels, strict=True)
        ]
        model = TotalsModel.of(totals, start)
        for total, mine in zip(totals, kernels, strict=True):
            factors = np.exp(model.told(total.rows)[0])
            # The sum is measured, its parts are guessed: they are scaled to it.
            factors *= total.latency / float((total.seconds * factors).sum())
            times[mine] = base[mine] * factors
    return times


def _own(data: Measurements) -> Rows:
    """Return knobs of sub-graphs as numbers, ``(kernels, len(OVERRIDE_NAMES))``."""
    rows = [np.zeros((0, len(OVERRIDE_NAMES)), np.float32)]
    for setting in range(len(data)):
        plan = data.plan(setting)
        if plan is not None:
            rows.append(override_rows(data.setting(setting), plan.overrides, len(plan.values)))
    return np.concatenate(rows)
