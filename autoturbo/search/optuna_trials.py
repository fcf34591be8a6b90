"""What the trials of an Optuna study say: common parameters, broken constraints, scores.

Surrogates learn numbers without outliers. Other people's studies have values of 1e9 where something
went wrong, which :func:`without_nonsense` finds, and constraints, which :func:`feasible_first` puts
on the scale of the scores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from autoturbo.schedule.work import Floats
from autoturbo.search.surrogates.surrogate import levelled

_SELDOM = 10
"""Trials for each change of a range, at least, where it follows from no other parameter."""

_FEWEST = 4
"""Best values, a quarter of all at least, that are taken at their word."""

_FAR = 1000.0
"""Times as far from the next better value as that is from the best: no value, but nonsense. One
objective's values seldom are, but 1e9 for *it failed* is."""


class CommonParameters(NamedTuple):
    """The parameters that trials have in common.

    Attributes:
        distributions: By name, sorted; a parameter with one value alone is none.
        obstacle: Why these are not all there is to a trial; empty where they are.
        conditional: Whether that is because some trials lack a parameter.
    """

    distributions: dict[str, BaseDistribution]
    obstacle: str = ""
    conditional: bool = False


def common_parameters(trials: Iterable[FrozenTrial]) -> CommonParameters:
    """Return the parameters of completed trials, and whether they differ too much to be modelled.

    A range that is changed now and then is the latest one. Trials that failed or were pruned do not
    count: they may have ended before they asked for everything.

    Args:
        trials: All that are completed.
    """
    ordered = sorted(trials, key=lambda trial: trial.number)
    changes = list[CommonParameters]()
    for before, trial in itertools.pairwise(ordered):
        if trial.distributions != before.distributions:
            change = _difference(before, trial)
            if change.conditional:
                return change
            changes += [change] if change.obstacle else []
    if len(changes) * _SELDOM > len(ordered):
        return changes[0]
    latest = ordered[-1].distributions if ordered else {}
    return CommonParameters(dict(sorted((n, d) for n, d in latest.items() if not d.single())))


def _difference(one: FrozenTrial, other: FrozenTrial) -> CommonParameters:
    """Return how the parameters of two trials differ; no obstacle where only fixed ones do."""
    for name in sorted({**one.distributions, **other.distributions}):
        here, there = one.distributions.get(name), other.distributions.get(name)
        if here is not None and there is not None:
            if here != there:
                what = f"the range of {name!r} is another in trial {other.number}"
                return CommonParameters({}, what)
        elif any(own is not None and not own.single() for own in (here, there)):
            lacking = other if there is None else one
            what = f"trial {lacking.number} has no {name!r}, which others have"
            return CommonParameters({}, what, conditional=True)
    return CommonParameters({})


def violation_of(trial: FrozenTrial) -> float:
    """Return the sum of what a trial's constraints are broken by; 0 where it is feasible."""
    named = getattr(trial, "constraints", None)  # of Optuna 5, those of `set_constraint` too
    stored = trial.system_attrs.get("constraints") or () if named is None else named.values()
    return math.fsum(max(value, 0.0) for value in stored)


def scores_of(
    told: Sequence[Sequence[float] | None],
    directions: Sequence[StudyDirection],
    weights: Floats | None,
) -> list[float | None]:
    """Return the scores of trials, lower is better; None for those that failed.

    Args:
        told: Values of their objectives.
        directions: Of the objectives.
        weights: Of the objectives; None for one alone.
    """
    signs = _signs(directions)
    values = [None if figures is None else signs * figures for figures in told]
    if weights is None:
        return [None if v is None else float(v[0]) for v in values]
    columns = zip(*(v for v in values if v is not None), strict=True)
    behind = [own - own.min() for own in (levelled(np.asarray(column)) for column in columns)]
    mixed = iter(weighed(np.column_stack(behind), weights).tolist() if behind else ())
    return [None if v is None else next(mixed) for v in values]


def without_nonsense(
    told: Sequence[Sequence[float] | None], directions: Sequence[StudyDirection]
) -> list[Sequence[float] | None]:
    """Return the values of trials, None for those that mean that something went wrong.

    How far such a value is from others says nothing that a surrogate should learn. That nothing
    came of the trial is what it says.

    Args:
        told: Values of their objectives; None for those that failed.
        directions: Of the objectives.
    """
    known = [values for values in told if values is not None]
    if not known:
        return list(told)
    signs = _signs(directions)
    fences = np.asarray([_fence(column) for column in (signs * np.asarray(known)).T])
    return [v if v is None or (signs * v <= fences).all() else None for v in told]


def _fence(figures: Floats) -> float:
    """Return the highest figure below the first gap that is far too wide."""
    ordered = np.sort(figures)
    first = max(_FEWEST, len(ordered) // 4) - 1
    gaps, spread = np.diff(ordered)[first:], (ordered - ordered[0])[first:-1]
    wide = np.flatnonzero((gaps > _FAR * spread) & (spread > 0))
    return float(ordered[first + wide[0]] if len(wide) else ordered[-1])


def feasible_first(
    scores: Sequence[float | None], violations: Sequence[float]
) -> list[float | None]:
    """Return scores in which trials that break constraints come last, the worst ones at the end.

    On the scale on which surrogates learn, they take as much room as all others do.

    Args:
        scores: Of trials, lower is better; None for those that failed.
        violations: What their constraints are broken by; 0 where none is.
    """
    known = np.asarray([score is not None for score in scores], np.bool_)
    broken = np.asarray(violations) > 0
    if not (known & broken).any():
        return list(scores)
    fine, broken = known & ~broken, known & broken
    levels, worst, spread = np.full(len(scores), np.nan), 0.0, 0.0
    if fine.any():
        own = levelled(np.asarray([s for s, is_fine in zip(scores, fine, strict=True) if is_fine]))
        levels[fine], worst, spread = own, float(own.max()), float(np.ptp(own))
    amounts = np.asarray(violations)[broken]
    shares = np.searchsorted(np.sort(amounts), amounts, side="right") / len(amounts)
    levels[broken] = worst + (spread or 1.0) * shares
    # one sign for all, whose logarithms are these levels
    return [math.exp(own) if math.isfinite(own) else None for own in levels.tolist()]


def _signs(directions: Sequence[StudyDirection]) -> Floats:
    """Return factors with which less of each objective is better."""
    return np.asarray([-1.0 if d == StudyDirection.MAXIMIZE else 1.0 for d in directions])


def weighed(behind: Floats, weights: Floats) -> Floats:
    """Return several objectives ``(trials, objectives)`` as one, lower is better.

    ParEGO's augmented Chebyshev norm (Knowles, 2006, equation 2, with its 0.05), on logarithms, so
    that a percent of one objective counts as much as one of another. Every candidate of a Pareto
    front is the best one for some weights, on concave parts of the front too.

    Args:
        behind: How far each is behind the best in each objective.
        weights: Of the objectives, drawn at random.
    """
    shares = weights * behind
    norm: Floats = shares.max(axis=1) + 0.05 * shares.sum(axis=1)
    return norm
