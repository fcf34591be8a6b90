"""Predicts the latency of settings from their kernels, and whether they are feasible.

Unit of prediction: one launch of a sub-graph's kernel. A setting's latency is put together as the
simulator does it: ``sum(launches * base * exp(prediction))``, where the base is what the kernel
takes alone (:func:`autoturbo.cost_models.ratios.base_seconds`). Trained on the logarithm of kernel
times over it: squared error there is relative error, and one fast outlier does not drown the rest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from autoturbo.cost_models.booster import Booster
from autoturbo.cost_models.features import FEATURES_SCHEMA, Rows
from autoturbo.errors import InputError, Location
from autoturbo.limits import read_json
from autoturbo.schedule.stores import row_bytes

FEWEST = 8
"""Measured settings without which the model does not predict: fewer say less than a heuristic."""

MOST_ROWS = 1 << 14
"""Rows of a training set: more cost time linearly and change little."""

COLUMNS: Final = 0.3
"""Share of the columns that a split of a tree of times may ask for. Many say nearly the same of the
few kernels there are; asking for all takes twice as long and is no better in a search."""

BINS: Final = 64
"""Of a column; twice as many are no better and take a third longer."""

CARD: Final = "card.json"
_TINY: Final = 1e-12
_TIMES: Final = "times.ubj"
_FEASIBLE: Final = "feasible.ubj"


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A setting tried.

    Attributes:
        rows: features of its kernels, ``(sub-graphs, columns)``.
        launches: of each kernel.
        setting: features of the setting as a whole.
        times: seconds of one launch of each kernel; None for a failed setting.
        base: seconds that predictions are relative to, ``(sub-graphs,)``; None for one second.
    """

    rows: Rows
    launches: NDArray[np.int64]
    setting: Rows
    times: NDArray[np.float64] | None = None
    base: NDArray[np.float64] | None = None

    @property
    def weights(self) -> NDArray[np.float64]:
        """Launches times base: what a factor predicted for each kernel is worth in seconds."""
        worth = self.launches.astype(np.float64)
        return worth if self.base is None else worth * self.base


@dataclass
class CostModel:
    """Kernel times and feasibility, learned from examples.

    Attributes:
        names: of the kernel columns.
        seed: of the trees.
        trained_on: settings in the training set, by whether they were measured.
    """

    names: tuple[str, ...]
    seed: int = 0
    trained_on: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._times = Booster("reg:squarederror", self.seed, columns=COLUMNS, bins=BINS)
        self._feasible = Booster("binary:logistic", self.seed)
        self._measured: dict[bytes, float] = {}

    @property
    def trained(self) -> bool:
        """Whether :meth:`predict` can be asked."""
        return self._times.trained

    def fit(self, examples: Sequence[Example], *, more: bool = False) -> bool:
        """Learn from examples; False where they are too few.

        A kernel weighs as much as the root of its share of its setting's time: what takes long
        matters more, and what does not is seen more often.

        Args:
            examples: in the order of their trials.
            more: grow further trees on what is there, instead of beginning anew.
        """
        measured = [e for e in examples if e.times is not None]
        if len(measured) < FEWEST:
            return False
        self._fit_times(_recent(measured), more=more)
        self._fit_feasibility(examples, len(measured))
        self.trained_on = {"measured": len(measured), "failed": len(examples) - len(measured)}
        return True

    def _fit_times(self, measured: Sequence[Example], *, more: bool) -> None:
        rows = np.concatenate([e.rows for e in measured])
        each = [e.times for e in measured if e.times is not None]
        times = np.concatenate(each)
        shares = [_shares(e.launches * own) for e, own in zip(measured, each, strict=True)]
        weights = np.sqrt(np.concatenate(shares))
        known = times > 0  # a sub-graph without work of its own has no logarithm
        bases = np.concatenate([_base(e) for e in measured])
        labels = np.log(times[known] / bases[known])
        # Fewer trees where trees are already there: between rounds little is new.
        trees = 20 if more and self.trained else 80
        rows, labels, weights = merged(rows[known], labels, weights[known] / weights.mean())
        self._times.fit(rows, labels, weights, trees=trees, more=more)
        self._measured = dict(zip(row_bytes(rows).tolist(), labels.tolist(), strict=True))

    def _fit_feasibility(self, examples: Sequence[Example], measured: int) -> None:
        if measured == len(examples):
            self._feasible = Booster("binary:logistic", self.seed)
            return
        rows = np.stack([e.setting for e in examples])
        labels = np.asarray([e.times is not None for e in examples], np.float64)
        self._feasible.fit(rows, labels, trees=40)

    def predict(self, examples: Sequence[Example]) -> NDArray[np.float64]:
        """Latency of settings in seconds, ``(settings,)``; of kernels it has seen, what they took.

        Raises:
            ValueError: it has not been trained.
        """
        if not examples:
            return np.zeros(0)
        factors = self.factors(np.concatenate([e.rows for e in examples]))
        owner = np.repeat(np.arange(len(examples)), [len(e.rows) for e in examples])
        return latencies(
            owner, factors, np.concatenate([e.weights for e in examples]), len(examples)
        )

    def factors(self, rows: Rows) -> NDArray[np.float64]:
        """Logarithms of kernels' times over their bases: the mean of those that were measured.

        Trees spread what one kernel took over its neighbours; what was seen needs no guess.
        """
        return self.told(rows)[0]

    def told(self, rows: Rows) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """:meth:`factors`, and which kernels were measured, ``(kernels,)``."""
        known = [self._measured.get(row, np.nan) for row in row_bytes(rows).tolist()]
        found = np.asarray(known, np.float64)
        seen = ~np.isnan(found)
        return np.where(seen, found, self._times.predict(rows)), seen

    @property
    def all_feasible(self) -> bool:
        """Whether :meth:`feasibility` is 1 whatever it is asked: nothing failed so far."""
        return not self._feasible.trained

    def feasibility(self, settings: Rows) -> NDArray[np.float64]:
        """Probability that settings can be measured; 1 while none failed.

        Args:
            settings: features of each, ``(settings, columns)``.
        """
        if self.all_feasible or not len(settings):
            return np.ones(len(settings))
        return self._feasible.predict(settings)

    def save(self, folder: Path, notes: dict[str, Any] | None = None) -> None:
        """Write the trees in XGBoost's own format and a card that says what they are.

        The kernels that it has seen, which :meth:`predict` does not guess, are not kept.

        Args:
            folder: made where it is missing.
            notes: more for the card: data, accuracy, versions.
        """
        folder.mkdir(parents=True, exist_ok=True)
        sums = {_TIMES: self._times.save(folder / _TIMES)}
        if self._feasible.trained:
            sums[_FEASIBLE] = self._feasible.save(folder / _FEASIBLE)
        card = {
            **(notes or {}),
            "features_schema": FEATURES_SCHEMA,
            "names": list(self.names),
            "seed": self.seed,
            "trained_on": self.trained_on,
            "feasibility": self._feasible.trained,
            "sha256": sums,
        }
        text = json.dumps(card, indent=2, sort_keys=True)
        (folder / CARD).write_text(text + "\n", encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> CostModel:
        """Read what :meth:`save` wrote.

        Raises:
            InputError: a file is missing or damaged, or its features are of another version.
        """
        card = _read_card(folder / CARD)
        names, seed, trained_on, sums = _parts_of(card, folder / CARD)
        model = CostModel(names, seed, trained_on)
        model._times.read(folder / _TIMES, sums.get(_TIMES))
        if card["feasibility"]:
            model._feasible = Booster.load(
                folder / _FEASIBLE, "binary:logistic", sums.get(_FEASIBLE)
            )
        return model


def _parts_of(
    card: dict[str, Any], path: Path
) -> tuple[tuple[str, ...], int, dict[str, Any], dict[str, Any]]:
    """Return names, seed and data that a card tells of, and the checksums of its files."""
    try:
        sums = dict(card.get("sha256", {}))
        return tuple(card["names"]), int(card["seed"]), dict(card["trained_on"]), sums
    except (TypeError, ValueError):
        raise InputError("not the card of a cost model", Location(path)) from None


def latencies(
    owner: NDArray[np.int64],
    factors: NDArray[np.float64],
    weights: NDArray[np.float64],
    count: int,
) -> NDArray[np.float64]:
    """Seconds of settings, ``(count,)``, from what is predicted for their kernels.

    Args:
        owner: setting of each kernel, ``(kernels,)``.
        factors: of :meth:`CostModel.factors`, ``(kernels,)``.
        weights: of :attr:`Example.weights`, ``(kernels,)``.
        count: settings.
    """
    return np.bincount(owner, np.exp(factors) * weights, count).astype(np.float64)


def merged(
    rows: Rows, labels: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[Rows, NDArray[np.float64], NDArray[np.float64]]:
    """Equal rows as one, with their weights' sum and the mean of their labels.

    Settings of one search have most kernels in common. Squared errors of equal rows and that of
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


def _shares(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = seconds / max(float(seconds.sum()), _TINY)
    return found


def _base(example: Example) -> NDArray[np.float64]:
    return np.ones(len(example.rows)) if example.base is None else example.base


def _recent(measured: Sequence[Example]) -> Sequence[Example]:
    """The latest that stay within :data:`MOST_ROWS`: what the search looks at now."""
    rows = 0
    for position in range(len(measured) - 1, -1, -1):
        rows += len(measured[position].rows)
        if rows > MOST_ROWS:
            return measured[position + 1 :] or measured[-1:]
    return measured


def _read_card(path: Path) -> dict[str, Any]:
    try:
        card = read_json(path)
    except (OSError, ValueError):
        raise InputError("no card of a cost model that can be read", Location(path)) from None
    if not isinstance(card, dict) or {"names", "seed", "trained_on", "feasibility"} - set(card):
        raise InputError("not the card of a cost model", Location(path))
    if card.get("features_schema") != FEATURES_SCHEMA:
        version = card.get("features_schema")
        message = f"features of version {version}, this release reads {FEATURES_SCHEMA}"
        raise InputError(message, Location(path), "train it again")
    return card
