"""The course of a search: its trials in order, their cost, and the Pareto front.

Also what the cost model predicted of each trial before it was measured. A run does not keep
predictions: the model follows from the seed and from the outcomes known at the time, so asking it
again, round by round, gives what it said then.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoturbo.cost_models.ranker import Ranker
from autoturbo.report.filling import Chart, Columns, evenly
from autoturbo.report.importance import Importance, KnobReport
from autoturbo.search.objectives import Objective
from autoturbo.search.progress import Trial
from autoturbo.simulator.measurement import Failure, Measurement
from autoturbo.statistics import error_beside_factor, pairs_in_order

MOST_POINTS = 2000
"""Trials that are drawn; of more, an even share and all that count."""

UNITS = {
    "latency": ("latency in ms", 1e3),
    "throughput": ("samples per second", 1.0),
    "energy": ("energy in mJ", 1e3),
    "ddr-bytes": ("DDR traffic in MB", 1e-6),
}
"""Title of an axis and factor from SI units, by objective."""

GAINS = {
    "latency": "times as fast as the heuristic",
    "throughput": "times as fast as the heuristic",
    "energy": "times less energy than the heuristic",
    "ddr-bytes": "times less DDR traffic than the heuristic",
}
"""Title of an axis of gains over the heuristic, by objective."""


@dataclass(frozen=True, slots=True, eq=False)
class Convergence:
    """The course of a search: its trials in order.

    Attributes:
        title: What is drawn: gains over the heuristic, or figures where it does not fit.
        points: ``trial``, ``value`` of those drawn, ``at``: where, no farther than the edge;
            ``from``, ``to``: two standard deviations of its noise either way.
        best: ``trial``, ``value``: the best so far, a line of steps.
        bound: ``value`` that no schedule can beat; empty for objectives that have no bound.
        beyond: How many of the measured trials are drawn at the edge.
        improvements: How often a better one was found.
        failures: Failed trials by reason.
    """

    title: str
    points: Columns
    best: Columns
    bound: Columns
    beyond: int
    improvements: int
    failures: Counter[str]


def convergence(
    trials: Sequence[Trial], objective: Objective, base: Measurement | None = None
) -> Convergence:
    """Return how the search went by one objective.

    Args:
        trials: Trials of the run by number.
        objective: The objective that was sought.
        base: What the heuristic measures; None where it does not fit.
    """
    title, shown = _scale(objective, base)
    scored = [(t.number, s) for t in trials if (s := objective.score(t.outcome)) is not None]
    better: list[int] = []
    for at, (_, score) in enumerate(scored):
        if not better or score < scored[better[-1]][1]:
            better.append(at)
    chosen = sorted({*better, *evenly(len(scored), MOST_POINTS)})
    edge = _edge([score for _, score in scored])
    drawn = [(number, shown(s), shown(min(s, edge))) for number, s in (scored[i] for i in chosen)]
    line = [(scored[at][0], shown(scored[at][1])) for at in better]
    if line:
        line.append((trials[-1].number, line[-1][1]))
    note = "every best so far, and an even share"
    left_out = _thinned(len(chosen), len(scored), "measured ", note)
    return Convergence(
        title, Columns.of("trial value at from to", _with_noise(trials, drawn), left_out),
        Columns.of("trial value", line), _bound(trials, objective, shown),
        sum(score > edge for _, score in scored), len(better),
        Counter(t.outcome.reason for t in trials if isinstance(t.outcome, Failure)),
    )  # fmt: skip


def _scale(objective: Objective, base: Measurement | None) -> tuple[str, Callable[[float], float]]:
    """Return the title of an axis, and what it shows of a score: of less time, more speed."""
    of_base = None if base is None else objective.score(base)
    if of_base:
        more = objective.direction != "minimize"
        return GAINS[objective.name], lambda s: s / of_base if more else of_base / s
    title, factor = UNITS[objective.name]
    sign = factor if objective.direction == "minimize" else -factor
    return title, lambda score: sign * score


def _bound(
    trials: Sequence[Trial], objective: Objective, shown: Callable[[float], float]
) -> Columns:
    """Return what no schedule can beat, as the axis shows it."""
    known = next((t.outcome for t in trials if isinstance(t.outcome, Measurement)), None)
    if known is None or objective.name not in ("latency", "throughput"):
        return Columns({"value": []})
    least = objective.score(dataclasses.replace(known, latency=known.bound.seconds))
    return Columns({"value": [] if least is None else [shown(least)]})


def _with_noise(
    trials: Sequence[Trial], drawn: Iterable[tuple[int, float, float]]
) -> Iterator[tuple[int, float, float, float, float]]:
    """Give the points that are drawn, with the ends of the noise of each figure that varies."""
    noises = {
        trial.number: trial.outcome.noise or 0.0
        for trial in trials
        if isinstance(trial.outcome, Measurement)
    }
    for number, value, at in drawn:
        # two standard deviations, about 95 % of measurements
        off = 2 * noises.get(number, 0.0)
        yield number, value, at, at * (1 - off), at * (1 + off)


def _edge(scores: Sequence[float]) -> float:
    """Return half above the first measured trial, or the worst where that is nearer.

    A search tries candidates that take twenty times as long; with all of them in view, its
    gain cannot be seen.
    """
    if not scores:
        return 0.0
    return min(max(scores), scores[0] + 0.5 * abs(scores[0]))


def _thinned(shown: int, total: int, of: str = "", which: str = "") -> str:
    """Return which trials are drawn; empty where all are."""
    if shown == total:
        return ""
    return f"{shown} of {total} {of}trials are drawn{which and f': {which}'}."


def convergence_chart(found: Convergence) -> Chart:
    """Return a chart of trials in order, the best so far, and the bound."""
    data = {"points": found.points, "best": found.best, "bound": found.bound}
    return Chart("convergence", data, {"title": found.title})


@dataclass(frozen=True, slots=True, eq=False)
class Front:
    """The trials by two objectives, with the Pareto front.

    Attributes:
        objectives: Objectives of the two axes.
        points: ``trial``, ``x``, ``y`` of the drawn trials that another one beats.
        members: The same of the trials that none beats, by ``x``.
    """

    objectives: tuple[Objective, Objective]
    points: Columns
    members: Columns


def front(trials: Sequence[Trial], sought: tuple[Objective, Objective]) -> Front:
    """Return the front of two objectives."""
    scored = [
        (trial.number, x, y)
        for trial in trials
        if (x := sought[0].score(trial.outcome)) is not None
        and (y := sought[1].score(trial.outcome)) is not None
    ]
    values = np.asarray([row[1:] for row in scored], np.float64).reshape(-1, 2)
    front_rows = unbeaten(values)
    rest = sorted(set(range(len(scored))) - set(front_rows))
    drawn = [rest[at] for at in evenly(len(rest), MOST_POINTS)]
    signs = [UNITS[o.name][1] * (1.0 if o.direction == "minimize" else -1.0) for o in sought]
    shown = [(number, signs[0] * x, signs[1] * y) for number, x, y in scored]
    note = _thinned(
        len(drawn) + len(front_rows), len(scored), "", "the whole Pareto front, and an even share"
    )
    return Front(
        sought, Columns.of("trial x y", [shown[at] for at in drawn], note),
        Columns.of("trial x y", [shown[at] for at in front_rows]),
    )  # fmt: skip


def front_chart(found: Front) -> Chart:
    """Return a chart of trials by two objectives, and those that nothing beats."""
    given: dict[str, Any] = {}
    for side, objective in zip("xy", found.objectives, strict=True):
        values = [*found.points.values[side], *found.members.values[side]]
        wide = bool(values) and min(values) > 0 and max(values) > 3 * min(values)
        given[f"{side}_title"] = UNITS[objective.name][0]
        given[f"{side}_scale"] = {"type": "log", "nice": False, "padding": 8} if wide else {
            "zero": False, "padding": 8
        }  # fmt: skip
    titles = {"trial": "trial", "x": given["x_title"], "y": given["y_title"]}
    given["tooltip"] = [
        {"field": name, "title": title, "type": "quantitative", "format": ",.4~g"}
        for name, title in titles.items()
    ]
    return Chart("front", {"points": found.points, "front": found.members}, given)


def unbeaten(values: NDArray[np.float64]) -> list[int]:
    """Return rows of ``(points, 2)`` that no other beats, lower being better, by column 0."""
    rows: list[int] = []
    least = np.inf
    # by both figures: a point is beaten if one before it has no larger second figure
    for index in np.lexsort((np.arange(len(values)), values[:, 1], values[:, 0])).tolist():
        if values[index, 1] < least:
            least = float(values[index, 1])
            rows.append(index)
    return rows


MOST_PAIRED = 1500
"""Trials whose pairs are counted and that are drawn: pairs grow with the square."""

MOST_ASKED = 2000
"""Trials that are gone through again, the first ones: asking for more takes minutes."""

SHOWN_KNOBS = 15
"""Knobs in the chart; all are in the table."""

_LEAST = 5e-4
"""Share of a knob that has no bar."""

FEWEST = 8
"""Predicted trials below which a correlation says nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Predicted and measured latencies.

    Attributes:
        points: ``trial``, ``predicted``, ``measured`` (ms) of those drawn.
        count: Measured trials that were predicted.
        spearman: Rank correlation over all of them; None where they are too few or all alike.
        pairwise: Share of pairs in their true order, over those drawn; likewise.
        error: Mean relative error after the best common factor, likewise.
    """

    points: Columns
    count: int
    spearman: float | None
    pairwise: float | None
    error: float | None


def predictions(trials: Sequence[Trial], ranker: Ranker, size: int) -> Predictions | None:
    """Predict a run's first rounds again.

    Args:
        trials: Trials of the run by number.
        ranker: The cost model as the run began with it.
        size: Trials of a round.

    Returns:
        Predicted and measured latencies; None where the model predicts nothing that was measured.
    """
    trials = trials[:MOST_ASKED]
    predicted = predicted_seconds(trials, ranker, size)
    pairs = [
        (trial.number, guess, trial.outcome.latency)
        for trial, guess in zip(trials, predicted, strict=True)
        if isinstance(trial.outcome, Measurement) and np.isfinite(guess)
    ]
    return judged_predictions(pairs) if pairs else None


def predicted_seconds(trials: Sequence[Trial], ranker: Ranker, size: int) -> list[float]:
    """Return what a cost model predicts of trials, each round before its outcomes are known.

    Args:
        trials: Trials of the run by number.
        ranker: The cost model as the run began with it.
        size: Trials of a round.

    Returns:
        Seconds by trial; NaN where it cannot say any.
    """
    rounds = [trials[:1], *(trials[at : at + size] for at in range(1, len(trials), size))]
    predicted: list[float] = []
    for each in rounds:
        seconds = ranker.seconds([trial.knobs for trial in each])
        predicted += [float("nan")] * len(each) if seconds is None else seconds.tolist()
        for trial in each:
            ranker.observe(trial.knobs, trial.outcome)
    return predicted


def judged_predictions(pairs: Sequence[tuple[int, float, float]]) -> Predictions:
    """Return how well predictions fit measurements: trials with both, in seconds."""
    numbers, guessed, measured = zip(*pairs, strict=True)
    predicted, true = np.asarray(guessed), np.asarray(measured)
    drawn = evenly(len(pairs), MOST_PAIRED)
    shown = ((numbers[at], 1e3 * guessed[at], 1e3 * measured[at]) for at in drawn)
    note = _thinned(len(drawn), len(pairs))
    points = Columns.of("trial predicted measured", shown, note)
    known = len(pairs) >= FEWEST and np.ptp(true) > 0 and np.ptp(predicted) > 0
    if not known:
        return Predictions(points, len(pairs), None, None, None)
    in_order, _ = pairs_in_order(predicted[drawn], true[drawn])
    error, _ = error_beside_factor(predicted[drawn], true[drawn])
    return Predictions(points, len(pairs), spearman(predicted, true), in_order, error)


def prediction_chart(found: Predictions) -> Chart:
    """Return a chart of predicted against measured latency, with the line of equality."""
    values = [*found.points.values["predicted"], *found.points.values["measured"]]
    low, high = min(values), max(values)
    ends = [low * 0.97, high * 1.03]
    scale = {"domain": ends, "nice": False, "zero": False}
    if high > 3 * low:
        scale["type"] = "log"
    same = Columns({"predicted": ends, "measured": ends})
    return Chart("predicted", {"points": found.points, "same": same}, {"scale": scale})


def spearman(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the correlation of ranks; equal values share the mean of their ranks."""
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum()
    ranks: NDArray[np.float64] = (ends - (counts - 1) / 2)[inverse]
    return ranks


def owner_title(knob: KnobReport, labels: Mapping[str, str]) -> str:
    """Return the sub-graphs whose own a knob is, by the first one's layer; empty for the model's.

    Args:
        knob: The knob.
        labels: Labels of layers by their names; a layer without one is called by its name.
    """
    if not knob.layers:
        return ""
    more = f" +{len(knob.layers) - 1}" if len(knob.layers) > 1 else ""
    start = f", start {knob.start}" if knob.start else ""
    return f"{labels.get(knob.layers[0], knob.layers[0])}{more}{start}"


def ranked(found: Importance) -> list[KnobReport]:
    """Return knobs, those with the largest shares first."""
    return sorted(found.knobs, key=lambda knob: -(knob.share or 0.0))


def importance_chart(found: Importance, labels: Mapping[str, str]) -> Chart:
    """Return a chart of each knob's share of the variance between trials."""
    rows = (
        ("|".join(filter(None, (knob.knob, owner_title(knob, labels)))), knob.share,
         "at its border" if knob.border else "inside", f"{knob.tried} of {knob.offered} values")
        for knob in ranked(found)[:SHOWN_KNOBS]
        if (knob.share or 0.0) > _LEAST
    )  # fmt: skip
    return Chart("knobs", {"rows": Columns.of("knob share kind tried", rows)})
