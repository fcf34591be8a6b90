"""What is compared: objectives of the cost model, and ways to rank settings without one.

A method is given a table and which settings to learn from, and answers for all settings; whoever
asks looks only at those held out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from autoturbo.cost_models.training import Mask, Table
from autoturbo.schedule.codegen.work import Floats

Method = Callable[[Table, Mask], Floats]
"""Predictions of all settings, from what may be learned from; they grow with the latency."""

MOST_KERNELS = 60_000
"""Kernels of a training set in a comparison; more change the third digit."""

NEIGHBOURS = 8_000
"""Kernels among which the nearest one is sought."""

TREES = 150

_LEVELS = 31
"""Relevances that XGBoost's ranking knows, from 0."""

_PARAMETERS: Final[dict[str, Any]] = {
    "tree_method": "hist",
    "nthread": 1,
    "max_depth": 6,
    "eta": 0.15,
    "lambda": 1.0,
    "max_bin": 128,
    "verbosity": 0,
    "seed": 0,
}


def _kernels(objective: str, **more: Any) -> Method:
    """Factors of kernels over what they take alone, as the cost model has them."""

    def method(table: Table, learn: Mask) -> Floats:
        chosen = _sample(np.flatnonzero(table.known & learn[table.owner]), MOST_KERNELS)
        labels = np.log(table.times[chosen] / table.base[chosen])
        said, asked = np.zeros(len(table.rows)), ~learn[table.owner]
        rows = table.rows[chosen]
        said[asked] = _trained(
            rows, labels, table.rows[asked], objective, table.weights[chosen], more
        )
        return table.total(table.base * np.exp(said))

    return method


def _settings(objective: str, **more: Any) -> Method:
    """One row per setting: the logarithm of the latency over the sum of kernels alone."""

    def method(table: Table, learn: Mask) -> Floats:
        chosen = np.flatnonzero(learn)
        sums = table.total(table.base)
        labels = np.log(table.latency[chosen] / sums[chosen])
        rows = table.setting_rows
        said = _trained(rows[chosen], labels, rows, objective, None, more)
        return sums * np.exp(said)

    return method


def _ranking(objective: str) -> Method:
    """One row per setting, learned as orders of pools; the best of a pool are most relevant."""

    def method(table: Table, learn: Mask) -> Floats:
        chosen = np.flatnonzero(learn)
        chosen = chosen[np.argsort(table.pool[chosen], kind="stable")]
        pools = table.pool[chosen]
        labels = np.zeros(len(chosen))
        for pool in np.unique(pools).tolist():
            own = np.flatnonzero(pools == pool)
            place = np.argsort(np.argsort(table.latency[chosen[own]]))
            labels[own] = np.floor(_LEVELS * (1 - place / max(len(own) - 1, 1)))
        rows = table.setting_rows
        return -_trained(rows[chosen], labels, rows, objective, None, {"qid": pools})

    return method


def _trained(
    rows: Any, labels: Floats, asked: Any, objective: str, weights: Floats | None,
    more: Mapping[str, Any],
) -> Floats:  # fmt: skip
    import xgboost

    bins = _PARAMETERS["max_bin"]
    groups = {k: v for k, v in more.items() if k == "qid"}
    rest = {k: v for k, v in more.items() if k != "qid"}
    matrix = xgboost.QuantileDMatrix(
        rows, labels, weight=weights, nthread=1, max_bin=bins, **groups
    )
    params = {**_PARAMETERS, "objective": objective, **rest}
    model = xgboost.train(params, matrix, TREES)
    return np.asarray(model.inplace_predict(asked), np.float64)


def _sample(rows: Any, most: int) -> Any:
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, most, replace=False))


def nearest(table: Table, learn: Mask) -> Floats:
    """Every kernel as the one with the nearest row, relative to what it takes alone."""
    known = _sample(np.flatnonzero(table.known & learn[table.owner]), NEIGHBOURS)
    spread = table.rows[known].std(axis=0) + 1e-6
    there, factors = table.rows[known] / spread, np.log(table.times[known] / table.base[known])
    half, said = (there**2).sum(axis=1) / 2, np.zeros(len(table.rows))
    wanted = np.flatnonzero(~learn[table.owner])
    for at in range(0, len(wanted), 2048):
        some = wanted[at : at + 2048]
        said[some] = factors[(half - (table.rows[some] / spread) @ there.T).argmin(axis=1)]
    return table.total(table.base * np.exp(said))


def _of(*columns: str) -> Method:
    """The sum of some statistics over launches."""
    return lambda table, _: table.total(np.sum([table.column(c) for c in columns], axis=0))


METHODS: Final[Mapping[str, Method]] = {
    "squared": _kernels("reg:squarederror"),
    "absolute": _kernels("reg:absoluteerror"),
    "quantile": _kernels("reg:quantileerror", quantile_alpha=0.5),
    "setting": _settings("reg:squarederror"),
    "pairwise": _ranking("rank:pairwise"),
    "ndcg": _ranking("rank:ndcg"),
    "nearest": nearest,
    "alone": lambda table, _: table.total(table.base),
    "near": _of("near_s"),
    "far": _of("far_s"),
    "bound": lambda table, _: table.bound,
    "ddr bytes": _of("ddr_bytes"),
    "macs": _of("macs"),
}
"""Methods by name. The first is the one that ships. Of kernels: squared, absolute and median error
of the logarithm. Of whole settings: squared error, pairwise and NDCG ranking. Then without trees:
the nearest kernel; kernels alone with their boundary in GB where it fits there, in the local
buffers and in DDR; the model's lower bound, the same for all settings; bytes of DDR alone;
multiply-accumulates."""
