"""Judge cost models on models and targets held out whole.

::

    python cost_models/judge.py FOLDER                           # all methods on a data set
    python cost_models/judge.py FOLDER --method squared --json   # one of them, as JSON
    python cost_models/judge.py FOLDER --model MODEL             # a trained model, as it is
    python cost_models/judge.py FOLDER --card MODEL              # scores into its card

Every model, or target, is left out in turn; what is learned from the others ranks its pools. A
pool has the measured settings of one model at one batch size on one target. Figures are means over
pools; those near the best are of the settings from where a search looks on alone. What is compared
are objectives of the cost model, and ways to rank without one.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from autoturbo.commands.console import Console
from autoturbo.cost_models.booster import Booster
from autoturbo.cost_models.features import Rows
from autoturbo.cost_models.pretrained import (
    CARD,
    GuessesJson,
    Judged,
    NearJson,
    Pretrained,
    ScoresJson,
    folder_of,
    read_card,
)
from autoturbo.cost_models.training import GROWN, TREES, Table
from autoturbo.datasets.measurements import Measurements, load_measurements
from autoturbo.errors import AutoTurboError, UsageError
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.work import Flags, Floats
from autoturbo.simulator.plan import COLUMNS
from autoturbo.statistics import error_beside_factor, pairs_in_order

KINDS: Final = ("model", "target")
"""What is held out whole."""

MOST_KERNELS: Final = 200_000
"""Kernels of a training set in a comparison; more change the third digit."""

NEIGHBOURS: Final = 8_000
"""Kernels among which the nearest one is sought."""

BEST: Final = 5
"""Of the settings near the best, whose recall is told; a pool that has no more than twice as many
there says nothing."""

NEARLY: Final = 1.25
"""Times the best latency of a pool below which candidates are near it."""

_LEVELS: Final = 31
"""Relevances that XGBoost's ranking knows, from 0."""


@dataclasses.dataclass(frozen=True, eq=False)
class JudgedTable(Table):
    """A data set with what tells good rankings from bad ones.

    Attributes:
        statistics: :data:`autoturbo.simulator.plan.COLUMNS`, ``(kernels, columns)``.
        default: Mask of the candidates that are the default schedule.
        parent: What each is a neighbour of, of those near what a search begins with or near the
            best; -1 for all others, ``(settings,)``.
        bound: Seconds that no schedule is below, ``(settings,)``.
    """

    statistics: Floats
    default: Flags
    parent: Ints
    bound: Floats

    @staticmethod
    def of_data(data: Measurements) -> JudgedTable:
        """Return the table of a data set."""
        table = Table.of(data)
        fields = {field.name: getattr(table, field.name) for field in dataclasses.fields(Table)}
        default, bound = data.settings["number"] == 0, data.settings["lower_bound_s"]
        return JudgedTable(**fields, statistics=data.statistics, default=default,
                           parent=_parents(data), bound=bound)  # fmt: skip

    def setting_rows(self) -> Rows:
        """Return a row per candidate: the mean of its kernels' rows by time alone, and the sum."""
        worth = self.launches * self.base
        sums = self.total(self.base)
        share = worth / np.maximum(sums, 1e-30)[self.owner]
        columns = [np.bincount(self.owner, share * column, len(sums)) for column in self.rows.T]
        return np.stack([*columns, np.log(np.maximum(sums, 1e-30))], axis=1).astype(np.float32)


def _parents(data: Measurements) -> Ints:
    """Return the candidate that each one is a neighbour of; -1 for candidates drawn at random."""
    number, parent = (data.settings[name].astype(np.int64) for name in ("number", "parent"))
    found: Ints = np.where(parent >= 0, np.arange(len(number)) - number + parent, -1)
    return found


class Scores(NamedTuple):
    """The quality of a ranking of one pool, or means over several.

    Attributes:
        pairwise: Share of pairs of candidates that are put in their true order; half a pair where
            the predictions are equal.
        tau: Kendall's tau-b.
        top1: The best measured latency of the pool over the best among the model's best one.
        top5: Among its best five.
        top10: Among its best ten.
        error: Mean of ``|predicted / measured - 1|`` after the best common factor, which ranks do
            not depend on; not a number for predictions that are no seconds.
        bias: That factor: the geometric mean of measured over predicted.
    """

    pairwise: float
    tau: float
    top1: float
    top5: float
    top10: float
    error: float
    bias: float

    @staticmethod
    def of(predicted: Floats, measured: Floats) -> Scores:
        """Return the scores of a ranking of at least two candidates that differ.

        Args:
            predicted: Of any scale that grows with the latency, ``(settings,)``.
            measured: Seconds, ``(settings,)``.
        """
        pairwise, tau = pairs_in_order(predicted, measured)
        error, bias = error_beside_factor(predicted, measured)
        top1, top5, top10 = (top_score(predicted, measured, k) for k in (1, 5, 10))
        return Scores(pairwise, tau, top1, top5, top10, error, bias)

    def as_json(self) -> ScoresJson:
        """Return the figures with six digits; no error of predictions that are no seconds."""
        figures = (round(value, 6) for value in self)
        pairwise, tau, top1, top5, top10, error, bias = figures
        return {
            "pairwise": pairwise, "tau": tau, "top1": top1, "top5": top5, "top10": top10,
            "error": None if np.isnan(error) else error, "bias": bias,
        }  # fmt: skip

    @staticmethod
    def mean(of: Sequence[Scores]) -> Scores:
        """Return means column by column; the geometric mean of biases."""
        table = np.asarray(of)
        table[:, -1] = np.log(table[:, -1])
        means = table.mean(axis=0)
        means[-1] = np.exp(means[-1])
        return Scores(*means.tolist())


class NearScores(NamedTuple):
    """The quality of a ranking of settings that are near the best of what is known, or means.

    Attributes:
        rank: Spearman's correlation of predictions and latencies.
        recall: Share of the predicted :data:`BEST` that are no slower than as many best.
        regret: The predicted best's latency over the best's, less 1.
    """

    rank: float
    recall: float
    regret: float

    @staticmethod
    def of(predicted: Floats, measured: Floats) -> NearScores:
        """Return the scores of a ranking; equal latencies are as good as each other.

        Args:
            predicted: Of any scale that grows with the latency, ``(settings,)``.
            measured: Seconds, ``(settings,)``.
        """
        from scipy.stats import rankdata

        ranks = [rankdata(figures) - (len(measured) + 1) / 2 for figures in (predicted, measured)]
        spread = float(np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
        rank = float(ranks[0] @ ranks[1]) / spread if spread else 0.0
        order, least = np.argsort(predicted, kind="stable"), np.sort(measured)
        recall = float((measured[order[:BEST]] <= least[:BEST][-1]).mean())
        return NearScores(rank, recall, float(measured[order[0]] / least[0]) - 1.0)

    @staticmethod
    def mean(of: Sequence[NearScores]) -> NearScores:
        """Return means column by column; zeros of nothing."""
        return NearScores(*np.asarray(of).mean(axis=0).tolist()) if of else NearScores(0, 0, 0)

    def as_json(self) -> NearJson:
        """Return the figures with six digits."""
        rank, recall, regret = (round(value, 6) for value in self)
        return {"rank": rank, "recall": recall, "regret": regret}


def top_score(predicted: Floats, measured: Floats, k: int) -> float:
    """Return the best latency over the best among the ``k`` predicted lowest; 1 is perfect."""
    chosen = np.argsort(predicted, kind="stable")[:k]
    return float(measured.min() / measured[chosen].min())


class FirstGuesses(NamedTuple):
    """The best predicted candidate of each pool against the default schedule.

    Attributes:
        pools: How many.
        better: Where the guess is faster than the default schedule.
        as_good: Where it is no slower.
        speedup: Geometric mean of the default's latency over the guess's.
    """

    pools: int
    better: int
    as_good: int
    speedup: float

    def as_json(self) -> GuessesJson:
        """Return the figures with six digits."""
        return {
            "pools": self.pools, "better": self.better, "as_good": self.as_good,
            "speedup": round(self.speedup, 6),
        }  # fmt: skip

    @staticmethod
    def of(gains: Floats) -> FirstGuesses:
        """Count guesses from the default's latency over the guess's in each pool."""
        speedup = float(np.exp(np.log(gains).mean())) if len(gains) else 1.0
        return FirstGuesses(len(gains), int((gains > 1).sum()), int((gains >= 1).sum()), speedup)


class Result(NamedTuple):
    """One method with one kind of group held out.

    Attributes:
        method: Its name.
        kind: ``"model"`` or ``"target"``.
        groups: Means over the pools of each group held out.
        mean: Over all pools.
        guesses: The method's best of each pool.
        near_groups: As ``groups``, near the best.
        near: Over all pools, near the best.
    """

    method: str
    kind: str
    groups: dict[str, Scores]
    mean: Scores
    guesses: FirstGuesses
    near_groups: dict[str, NearScores]
    near: NearScores

    def as_json(self) -> dict[str, Any]:
        """Return the result as the command prints it."""
        return {
            "method": self.method, "held_out": self.kind, "mean": self.mean.as_json(),
            "near": self.near.as_json(), "first_guess": self.guesses.as_json(),
            "groups": {name: scores.as_json() for name, scores in self.groups.items()},
            "near_groups": {name: scores.as_json() for name, scores in self.near_groups.items()},
        }  # fmt: skip


def evaluate(
    table: JudgedTable, methods: Sequence[str], kinds: Sequence[str], given: Booster | None = None
) -> Iterator[Result]:
    """Yield results, one per method and kind, as they are known.

    Args:
        table: Measured candidates.
        methods: Names of :data:`METHODS`, and :data:`GIVEN`.
        kinds: Of groups that are held out.
        given: Trees of a pretrained model, which learns nothing of the table.

    Raises:
        UsageError: The data set has a single group of a kind, so that nothing is left to learn.
    """
    for kind in kinds:
        groups = list(dict.fromkeys(table.groups[kind][table.measured].tolist()))
        if len(groups) < 2 and {*methods} - {GIVEN}:  # noqa: PLR2004
            message = f"the data set has one {kind}: without it nothing is left to learn from"
            raise UsageError(message, hint=f"collect more, or hold out another kind than {kind}")
        for name in methods:
            method = METHODS[name] if given is None or name != GIVEN else _predicting(given)
            yield _result(table, name, method, kind, groups)


def accuracy(table: JudgedTable, method: str) -> dict[str, Judged]:
    """Return a method's accuracy for a card: means and first guesses by kind of group held out.

    Raises:
        UsageError: See :func:`evaluate`.
    """
    return {
        result.kind: {
            **result.mean.as_json(),
            "near": result.near.as_json(),
            "first_guess": result.guesses.as_json(),
        }
        for result in evaluate(table, [method], KINDS)
    }


def _result(
    table: JudgedTable, name_of: str, method: Method, kind: str, groups: Sequence[str]
) -> Result:
    scores_by_pool: dict[str, list[Scores]] = {}
    near_by_pool: dict[str, list[NearScores]] = {}
    gains: list[float] = []
    for name in groups:
        held = table.measured & (table.groups[kind] == name)
        predicted = method(table, table.measured & ~held)
        scores_by_pool[name], near_by_pool[name] = [], []
        for number in np.unique(table.pool[held]).tolist():
            pool = np.flatnonzero(held & (table.pool == number))
            if len(pool) > 1:
                scores_by_pool[name].append(Scores.of(predicted[pool], table.latency[pool]))
                default, guess = pool[table.default[pool]], pool[predicted[pool].argmin()]
                gains += (table.latency[default[:1]] / table.latency[guess]).tolist()
            near = _near(table, pool)
            if len(near) > 2 * BEST:
                told = _from_parents(table, predicted, near)
                near_by_pool[name].append(NearScores.of(told, table.latency[near]))
    means = {name: Scores.mean(each) for name, each in scores_by_pool.items()}
    mean = Scores.mean([scores for each in scores_by_pool.values() for scores in each])
    near_means = {name: NearScores.mean(each) for name, each in near_by_pool.items()}
    near_mean = NearScores.mean([scores for each in near_by_pool.values() for scores in each])
    guesses = FirstGuesses.of(np.asarray(gains))
    return Result(name_of, kind, means, mean, guesses, near_means, near_mean)


def _near(table: JudgedTable, pool: Ints) -> Ints:
    """Return the neighbours of candidates in a pool that are nearly as fast as its best.

    There a search decides; what is far off every model tells.
    """
    good = table.latency[pool] <= NEARLY * table.latency[pool].min()
    near: Ints = pool[good & (table.parent[pool] >= 0)]
    return near


def _from_parents(table: JudgedTable, predicted: Floats, near: Ints) -> Floats:
    """Return what neighbours take by what their parents took and how predictions of both differ.

    A search measures a candidate before it looks at its neighbours.
    """
    parent = table.parent[near]
    if (predicted[near] <= 0).any() or (predicted[parent] <= 0).any():
        return predicted[near]  # no seconds
    off = np.nan_to_num(table.latency[parent] / predicted[parent], nan=1.0)  # it may have failed
    return np.asarray(predicted[near] * off, np.float64)


Method = Callable[[JudgedTable, Flags], Floats]
"""Predictions of all candidates from those that may be learned from; they grow with the latency.
Whoever asks looks only at those held out."""


GIVEN: Final = "model"
"""Name of the method of a pretrained model that is judged as it is."""


def _predicting(trees: Booster) -> Method:
    """Return the method of trees that are trained already."""
    return lambda table, _: table.total(table.base * np.exp(trees.predict(table.rows)))


def _kernels(objective: str, **more: Any) -> Method:
    """Return the cost model's own method: factors of kernels over their time alone."""

    def method(table: JudgedTable, learn: Flags) -> Floats:
        chosen, labels = _learned(table, learn, MOST_KERNELS)
        asked, log_factors = ~learn[table.owner], np.zeros(len(table.rows))
        trees = Booster.of(
            table.rows[chosen], labels, table.weights[chosen],
            objective=objective, trees=TREES, **GROWN, **more,
        )  # fmt: skip
        log_factors[asked] = trees.predict(table.rows[asked])
        return table.total(table.base * np.exp(log_factors))

    return method


def _learned(table: JudgedTable, learn: Flags, most: int) -> tuple[Ints, Floats]:
    """Return kernels to learn from, and logarithms of their factors."""
    chosen = np.flatnonzero(table.known & learn[table.owner])
    if len(chosen) > most:
        chosen = np.sort(np.random.default_rng(0).choice(chosen, most, replace=False))
    return chosen, np.log(table.times[chosen] / table.base[chosen])


def _settings(table: JudgedTable, learn: Flags) -> Floats:
    """Predict, by one row per candidate, the latency over the sum of kernels alone."""
    sums, rows = table.total(table.base), table.setting_rows()
    labels = np.log(table.latency[learn] / sums[learn])
    return sums * np.exp(Booster.of(rows[learn], labels, trees=TREES).predict(rows))


def _ranking(objective: str) -> Method:
    """Return a method that learns orders of pools from a row per candidate; the best weigh most."""

    def method(table: JudgedTable, learn: Flags) -> Floats:
        chosen = np.flatnonzero(learn)
        chosen = chosen[np.argsort(table.pool[chosen], kind="stable")]
        pools, rows = table.pool[chosen], table.setting_rows()
        labels = np.zeros(len(chosen))
        for pool in np.unique(pools).tolist():
            members = np.flatnonzero(pools == pool)
            place = np.argsort(np.argsort(table.latency[chosen[members]]))
            labels[members] = np.floor(_LEVELS * (1 - place / max(len(members) - 1, 1)))
        trees = Booster.of(rows[chosen], labels, objective=objective, trees=TREES, groups=pools)
        return -trees.predict(rows)

    return method


def _nearest(table: JudgedTable, learn: Flags) -> Floats:
    """Predict every kernel's factor by that of the nearest row."""
    known, factors = _learned(table, learn, NEIGHBOURS)
    spread = table.rows[known].std(axis=0) + 1e-6
    known_rows = table.rows[known] / spread
    half, log_factors = (known_rows**2).sum(axis=1) / 2, np.zeros(len(table.rows))
    wanted = np.flatnonzero(~learn[table.owner])
    for first in range(0, len(wanted), 2048):
        batch = wanted[first : first + 2048]
        log_factors[batch] = factors[
            (half - (table.rows[batch] / spread) @ known_rows.T).argmin(axis=1)
        ]
    return table.total(table.base * np.exp(log_factors))


def _sum(column: str) -> Method:
    """Return a method that sums a statistic over launches."""
    return lambda table, _: table.total(table.statistics[:, COLUMNS.index(column)])


METHODS: Final[Mapping[str, Method]] = {
    "squared": _kernels("reg:squarederror"),
    "absolute": _kernels("reg:absoluteerror"),
    "quantile": _kernels("reg:quantileerror", quantile_alpha=0.5),
    "setting": _settings,
    "pairwise": _ranking("rank:pairwise"),
    "ndcg": _ranking("rank:ndcg"),
    "nearest": _nearest,
    "alone": lambda table, _: table.total(table.base),
    "near": _sum("near_s"),
    "far": _sum("far_s"),
    "bound": lambda table, _: table.bound,
    "ddr bytes": _sum("ddr_bytes"),
    "macs": _sum("macs"),
}
"""Methods by name. The first is the one that ships. Of kernels: squared, absolute and median error
of the logarithm. Of whole candidates: squared error, pairwise and NDCG ranking. Then without trees:
the nearest kernel; kernels alone with their boundary in GB where it fits there, in the local
buffers and in DDR; the model's lower bound, the same for all candidates; bytes of DDR alone;
multiply-accumulates."""


_TITLES = ("in order", "tau", "top-1", "top-5", "top-10", "error", "near: rank", "recall")

_LEGEND = (
    "in order: share of pairs of settings ranked as measured; tau: Kendall's tau-b",
    "top-n: least latency of all over the least among the n that are ranked first",
    "error: mean error of the predicted time, up to one common factor",
    "near: of the neighbours of starts and of the best: Spearman's correlation, and the share",
    "      of the five ranked first that are among the five fastest",
    "faster: groups whose setting ranked first beats the heuristic",
)


def _cells(scores: Scores, near: NearScores) -> list[str]:
    figures = (scores.pairwise, scores.tau, scores.top1, scores.top5, scores.top10)
    error = "-" if scores.error != scores.error else f"{100 * scores.error:.1f} %"
    return [*(f"{x:.3f}" for x in figures), error, f"{near.rank:.2f}", f"{near.recall:.2f}"]


def show(results: Sequence[Result], kinds: Sequence[str]) -> None:
    """Print a table per kind of group held out, and one of the first method by group."""
    console = Console()
    for kind in kinds:
        own = [result for result in results if result.kind == kind]
        cells = (
            (r.method, *_cells(r.mean, r.near), f"{r.guesses.better}/{r.guesses.pools}")
            for r in own
        )
        console.titled(f"{kind}s held out", ("method", *_TITLES, "faster"), cells)
        near = own[0].near_groups
        groups = ((name, *_cells(s, near[name])) for name, s in own[0].groups.items())
        console.titled(f"{own[0].method} by {kind} held out", (kind, *_TITLES), groups)
    print("", *_LEGEND, sep="\n")


def put_into_card(folder: Path, found: Mapping[str, Judged]) -> None:
    """Write accuracy into the card of a trained model, and how it was found."""
    card = read_card(folder / CARD)
    again = "python cost_models/judge.py measurements --card model"
    reproduce = [*(line for line in card["reproduce"] if line != again), again]
    text = json.dumps({**card, "accuracy": found, "reproduce": reproduce}, indent=2, sort_keys=True)
    (folder / CARD).write_text(text + "\n", encoding="utf-8")


def judge(arguments: Sequence[str] | None = None) -> None:
    """Judge what the command line names.

    Raises:
        UsageError: See :func:`evaluate`.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of the data set")
    parser.add_argument("--held-out", dest="kinds", action="append", choices=KINDS, default=[])
    parser.add_argument("--method", dest="methods", action="append", choices=METHODS, default=[])
    parser.add_argument("--model", help="a trained model, or 'kernels' of the package")
    parser.add_argument("--card", type=Path, metavar="MODEL", help="folder of a trained model")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args(arguments)
    table = JudgedTable.of_data(load_measurements(options.folder, partial=True))
    if options.card is not None:
        put_into_card(options.card, accuracy(table, "squared"))
        return
    given = None if options.model is None else Pretrained.load(folder_of(options.model)).factors
    methods = options.methods or ([] if given else list(METHODS))
    methods, kinds = [*methods, *([GIVEN] if given else [])], options.kinds or list(KINDS)
    results = list(evaluate(table, methods, kinds, given))
    if options.json:
        print(json.dumps({"results": [result.as_json() for result in results]}, allow_nan=False))
    else:
        show(results, kinds)


if __name__ == "__main__":
    try:
        judge()
    except AutoTurboError as error:
        sys.exit(f"error: {error}")
