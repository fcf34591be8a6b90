"""Predicts the time of kernels and the feasibility of candidates, from those tried in a run.

Unit of prediction: one launch of a sub-graph's kernel. A candidate's latency is put together as the
simulator does it: ``sum(launches * base * exp(factor))``, where the base is what the kernel takes
alone (:func:`autoturbo.cost_models.ratios.base_seconds`). Trained on the logarithm of kernel times
over it: squared error there is relative error, and one fast outlier does not drown the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from autoturbo.caches import row_bytes
from autoturbo.cost_models.booster import Booster
from autoturbo.cost_models.contract import Example, KernelModel, Kernels, MakeModel, ModelStart
from autoturbo.cost_models.features import Rows, alone
from autoturbo.cost_models.totals import Total, TotalsModel
from autoturbo.schedule.work import Floats

FEWEST: Final = 8
"""Measured candidates without which there is no model: fewer say less than a heuristic."""

MOST_ROWS: Final = 1 << 14
"""Rows of a training set: more cost time linearly and change little."""

COLUMNS: Final = 0.3
"""Share of the columns that a split of a tree of times may ask for. Many say nearly the same of the
few kernels there are; asking for all takes twice as long and is no better in a search."""

BINS: Final = 64
"""Of a column; twice as many are no better and take a third longer."""

TREES: Final = 40
"""Trees over each of the three units: half as many as elsewhere, and twice as bold (:data:`RATE`):
together they take as long to grow as one kind did, and rank as well as with twice as many."""

RATE: Final = 0.3
"""Share of an error that a tree corrects."""

_NOTHING: Final = ModelStart()


class KernelTrees:
    """Our model of kernels: trees, or what latencies alone say of them.

    Attributes:
        sums: Model learned from latencies alone; None where kernels were measured.
    """

    sums: TotalsModel | None = None

    def __init__(self, start: ModelStart = _NOTHING) -> None:
        self._start = start
        self._measured: Mapping[bytes, float] = {}

    def fit(self, examples: Sequence[Example]) -> None:
        """Learn from examples.

        A kernel weighs as much as the root of its share of its candidate's time: what takes long
        matters more, and what does not is seen more often. Trees are grown of times over the
        estimate, and of those over what a kernel takes alone, near and far: a new kernel of which
        one says little is seldom one of which all do. Where latencies alone are known, the
        pretrained model's trees say which kernels are alike.
        """
        totals = [
            Total(e.rows, e.launches * e.base, e.latency, e.noise)
            for e in examples
            if e.latency is not None
        ]
        if totals:
            self.sums = TotalsModel.of(totals, self._start.trees)
            return
        measured = _recent([e for e in examples if e.times is not None])
        rows, labels, weights, units = _kernels(measured)
        # The same rows for all units: only labels differ.
        learned = [merged(rows, labels - unit, weights) for unit in units]
        self._trees = [
            Booster.of(
                *own, trees=TREES, seed=self._start.seed,
                eta=RATE, colsample_bynode=COLUMNS, max_bin=BINS,
            ) for own in learned
        ]  # fmt: skip
        rows, labels, _ = learned[0]
        self._measured = dict(zip(row_bytes(rows).tolist(), labels.tolist(), strict=True))

    def predict(self, kernels: Kernels) -> tuple[Floats, Floats]:
        """Return logarithms of kernels' times over their bases, and which of them were measured.

        Trees spread what one kernel took over its neighbours; what was seen needs no guess: it is
        the mean of what was measured. How far trees are off is not known.
        """
        if self.sums is not None:
            logarithms, seen = self.sums.told(kernels.rows)
            return logarithms, np.where(seen, 0.0, np.nan)
        known = [self._measured.get(row, np.nan) for row in row_bytes(kernels.rows).tolist()]
        times_s = np.asarray(known, np.float64)
        seen = ~np.isnan(times_s)
        units = _units(*kernels)
        pairs = zip(self._trees, units, strict=True)
        guessed = np.mean([trees.predict(kernels.rows) + unit for trees, unit in pairs], axis=0)
        return np.where(seen, times_s, guessed), np.where(seen, 0.0, np.nan)


@dataclass(frozen=True, eq=False)
class CostModel:
    """Kernel times and feasibility, learned from examples.

    Attributes:
        times: Predicts factors of kernels.
        feasible: Trees that predict feasibility; None while nothing failed.
    """

    times: KernelModel
    feasible: Booster | None

    @staticmethod
    def of(
        examples: Sequence[Example], start: ModelStart = _NOTHING, make: MakeModel = KernelTrees
    ) -> CostModel:
        """Learn from examples.

        Args:
            examples: Examples in the order of their trials, :data:`FEWEST` or more measured.
            start: The seed, and trees that the examples' bases are of.
            make: Makes the model of kernels.

        Returns:
            The model. It predicts times of kernels, and where an example was not feasible also
            which settings are.
        """
        known, feasible = np.asarray([e.measured for e in examples], np.float64), None
        # Without a failure there is nothing to tell apart.
        if not known.all():
            rows, seed = np.stack([e.setting for e in examples]), start.seed
            feasible = Booster.of(rows, known, objective="binary:logistic", trees=40, seed=seed)
        times = make(start)
        times.fit(examples)
        return CostModel(times, feasible)

    @property
    def sums(self) -> TotalsModel | None:
        """Return the model of sums with their deviations; None where kernels were measured."""
        sums: TotalsModel | None = getattr(self.times, "sums", None)
        return sums

    def feasibility(self, settings: Rows) -> Floats:
        """Return the probability that candidates can be measured; 1 while none failed.

        Args:
            settings: Features of each, ``(settings, columns)``.
        """
        return np.ones(len(settings)) if self.feasible is None else self.feasible.predict(settings)


def _kernels(measured: Sequence[Example]) -> tuple[Rows, Floats, Floats, Floats]:
    """Return rows, labels and weights of all kernels, and :func:`_units`."""
    each = [e.times for e in measured if e.times is not None]
    spent = [e.launches * own for e, own in zip(measured, each, strict=True)]
    weights = np.sqrt(np.concatenate([own / max(float(own.sum()), 1e-12) for own in spent]))
    times, rows = np.concatenate(each), np.concatenate([e.rows for e in measured])
    base = np.concatenate([e.base for e in measured])
    known = times > 0  # a sub-graph without work of its own has no logarithm
    rows, base, weights = rows[known], base[known], weights[known] / weights.mean()
    return rows, np.log(times[known] / base), weights, _units(rows, base)


def _units(rows: Rows, base: Floats) -> Floats:
    """Return the units that trees predict times in, logarithms over the base, ``(units, kernels)``.

    The base itself is the first.
    """
    return np.concatenate([np.zeros((1, len(base))), alone(rows) - np.log(base)])


def merged(rows: Rows, labels: Floats, weights: Floats) -> tuple[Rows, Floats, Floats]:
    """Return equal rows as one, with their weights' sum and the mean of their labels.

    Candidates of one search have most kernels in common. Squared errors of equal rows and that of
    their mean differ by a constant, so the trees are the same up to rounding.

    Args:
        rows: ``(n, columns)``.
        labels: ``(n,)``.
        weights: ``(n,)``, above zero.
    """
    if not rows.size:
        return rows, labels, weights
    _, first, number = np.unique(row_bytes(rows), return_index=True, return_inverse=True)
    total = np.bincount(number, weights).astype(np.float64)
    means = np.bincount(number, weights * labels) / total
    order = np.argsort(first)  # as they came, so that nothing depends on how bytes compare
    return rows[first[order]], means[order], total[order]


def _recent(measured: Sequence[Example]) -> Sequence[Example]:
    """Return the latest examples within :data:`MOST_ROWS`: the region that the search is in now."""
    rows = 0
    for position in range(len(measured) - 1, -1, -1):
        rows += len(measured[position].rows)
        if rows > MOST_ROWS:
            return measured[position + 1 :] or measured[-1:]
    return measured
