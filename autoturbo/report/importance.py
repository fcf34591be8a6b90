"""The importance of knobs in a run, values at the end of their range, and how much was tried.

Importance is judged on trials that the judging model has not seen. The trials are dealt into
:data:`FOLDS` parts; trees are trained on all parts but one, and Shapley values say how much each
choice adds to what they predict for the part left out. A knob's share is the covariance of what it
adds with what was measured, over the variance of what was measured: a knob that the trees only
believe in gets none, and the shares add up to what all knobs together account for.

Why not Optuna's evaluators: functional ANOVA and mean decrease impurity fit a forest (scikit-learn,
which we do not have) on parameters that all trials have, and say nothing of how well it fits;
PED-ANOVA looks at one parameter at a time and takes the trials for samples of the whole space. A
guided search samples near its best points, and knobs of sub-graphs mean something in part of the
space only; Shapley values ask about the points that were tried and about no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from autoturbo.cost_models.booster import Booster
from autoturbo.cost_models.features import Rows
from autoturbo.errors import KnobsError
from autoturbo.schedule.knobs import AUTO, Knob, Knobs, Value, model_knobs
from autoturbo.schema import Natural
from autoturbo.search.encoding import START
from autoturbo.search.objectives import Objective
from autoturbo.search.progress import Trial, schedules_of
from autoturbo.search.space import Space
from autoturbo.search.subgraphs import Block

FOLDS = 5
"""Parts of the trials; the usual number."""

FEWEST = 30
"""Measured trials below which nothing is said of importance: a fold has six of them then."""

EXPLAINED = 0.2
"""Share of the variance that the trees must account for, on trials that they have not seen."""

_SIGNAL = 1.5
"""Times the variance of the noise that trials must have: below it most of what differs is noise."""

_TREES = 100

Border = Literal["least", "greatest"]


@dataclass(frozen=True, slots=True)
class KnobReport:
    """One dimension of the space.

    Attributes:
        knob: Name of the knob.
        layers: Layers of the sub-graphs whose own knob it is; empty for the model's.
        start: Number of the start whose sub-graphs they are, 0 for the published heuristic.
        share: Share of the variance of the (logarithm of the) objective; None where nothing is
            said. Chance makes it a little less than 0 for a knob that does not matter.
        best: Value in the best trial; None where nothing was measured.
        as_start: Number of the start that ``"auto"`` stands for, where that sets the knob; None for
            a value of its own, and for what the published heuristic decides.
        border: Which end of the numbers offered the best value is, where the knob takes more.
        tried: Values that were tried.
        offered: Values that there are.
    """

    knob: str
    layers: tuple[str, ...]
    start: Natural
    share: float | None
    best: Value | None
    as_start: Natural | None
    border: Border | None
    tried: Natural
    offered: Natural

    @property
    def told(self) -> str:
        """Return the value in the best trial as people are told it."""
        if self.best is None:
            return "-"
        return str(self.best) if self.as_start is None else f"as start {self.as_start}"


@dataclass(frozen=True, slots=True)
class Importance:
    """The knobs' importance in a run's trials.

    Attributes:
        measured: Trials with a figure.
        failed: Trials without one.
        explained: Share of the variance that a model of the choices predicts for trials it has not
            seen, 1 less the squared error over the variance; None where none was trained. What the
            measurer's noise makes of the variance is no part of it, nor of the knobs' shares.
        obstacle: Why no importance is given, or None.
        knobs: Every dimension of the space, in its order.
    """

    measured: int
    failed: int
    explained: float | None
    obstacle: str | None
    knobs: tuple[KnobReport, ...]


def importance_of(
    space: Space,
    trials: Sequence[Trial],
    objective: Objective,
    seed: int = 0,
    most: int | None = None,
) -> Importance:
    """Return the importance of a space's knobs, judged by a run's trials.

    Trials that are no points of the space tell nothing of it: what a sweep took from neighbours.

    Args:
        space: The space that the trials were proposed from.
        trials: Trials of the run.
        objective: The objective that was sought.
        seed: Deals the trials into parts.
        most: The most trials that importance is judged by, an even share of those measured; all if
            None.
    """
    judged = [
        (point, trial)
        for trial in schedules_of(trials)
        if (point := _point(space, trial)) is not None
    ]
    genes = np.asarray([point for point, _ in judged], np.int64)
    genes = genes.reshape(len(judged), len(space.dimensions))
    scores = [objective.score(trial.outcome) for _, trial in judged]
    known = np.asarray([score is not None for score in scores], bool)
    figures = np.asarray([score for score in scores if score is not None], np.float64)
    judges = np.arange(len(figures))
    if most is not None and len(figures) > most:
        judges = np.linspace(0, len(figures) - 1, most).round().astype(np.int64)
    rows = space.features(genes[known][judges])
    noise = max((getattr(trial.outcome, "noise", None) or 0.0 for _, trial in judged), default=0.0)
    explained, shares = _judged(rows, _logarithms(figures[judges]), seed, noise)
    obstacle = _obstacle(figures, explained, noise)
    best = genes[known][int(figures.argmin())] if len(figures) else None
    knobs = [
        _report(space, index, genes, best, None if obstacle else float(shares[index]))
        for index in range(len(space.dimensions))
    ]
    return Importance(int(known.sum()), int((~known).sum()), explained, obstacle, tuple(knobs))


def _obstacle(figures: NDArray[np.float64], explained: float | None, noise: float) -> str | None:
    if len(figures) < FEWEST:
        return f"too few trials: {len(figures)} measured, at least {FEWEST} are needed"
    if explained is None:
        alike = f"the trials differ by little more than the noise of {100 * noise:.2g} %"
        return alike if noise else "all trials measured the same"
    if explained < EXPLAINED:
        predicted = f"{100 * max(explained, 0.0):.0f} %"
        return f"too few trials: they predict {predicted} of what differs between others"
    return None


def _logarithms(figures: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return signed logarithms: factors count, not seconds, and maximised figures are negative."""
    logarithms: NDArray[np.float64] = np.sign(figures) * np.log(np.abs(figures))
    return logarithms


def _point(space: Space, trial: Trial) -> tuple[int, ...] | None:
    """Return the encoding of a trial's candidate; None where it is outside the space."""
    with suppress(KnobsError):
        return space.point_of(trial.knobs)
    return None


def _judged(
    rows: Rows, labels: NDArray[np.float64], seed: int, noise: float
) -> tuple[float | None, NDArray[np.float64]]:
    """Return the explained variance of the trees, and each column's share of the variance.

    Args:
        rows: Choices of the trials, ``(trials, columns)``.
        labels: Logarithms of what was measured, ``(trials,)``.
        seed: Deals the trials into parts.
        noise: Relative standard deviation of a measurement; it is taken out of the variance.
    """
    shares = np.zeros(rows.shape[1])
    if len(labels) < FEWEST or np.ptp(labels) == 0:
        return None, shares
    of_noise = len(labels) * noise**2
    if float(((labels - labels.mean()) ** 2).sum()) < _SIGNAL * of_noise:
        return None, shares
    added, predicted = np.zeros(rows.shape), np.zeros(len(labels))
    # dealt at random: trials in a row come from one stage of the search, and are alike
    part = np.random.default_rng(seed).permutation(len(labels)) % FOLDS
    for fold in range(FOLDS):
        held = part == fold
        trees = Booster.of(rows[~held], labels[~held], trees=_TREES, seed=seed)
        added[held], predicted[held] = trees.contributions(rows[held]), trees.predict(rows[held])
    centred = labels - labels.mean()
    variance = float(centred @ centred) - of_noise
    explained = 1.0 - (float(((labels - predicted) ** 2).sum()) - of_noise) / variance
    return explained, centred @ added / variance


def _report(
    space: Space,
    index: int,
    genes: NDArray[np.int64],
    best: NDArray[np.int64] | None,
    share: float | None,
) -> KnobReport:
    dimension, (block, knob) = space.dimensions[index], _owner(space, index)
    value = None if best is None else dimension.choices[int(best[index])]
    number = _start(space, best)
    base = space.starts[number]
    decision = None if block else model_knobs().get(knob)
    return KnobReport(
        knob,
        block.layers if block else (),
        block.start if block else 0,
        share,
        value,
        number if value == AUTO and number and _sets(base, number, block, knob) else None,
        None
        if decision is None or value is None
        else _border(space, index, decision, getattr(base, knob) if value == AUTO else value),
        len(np.unique(genes[:, index])),
        len(dimension.choices),
    )


def _start(space: Space, point: NDArray[np.int64] | None) -> int:
    """Return the number of the start of an encoding, which ``"auto"`` stands for."""
    names = [d.name for d in space.dimensions]
    return 0 if point is None or START not in names else int(point[names.index(START)])


def _sets(base: Knobs, number: int, block: Block | None, knob: str) -> bool:
    """Return whether a start sets a knob, of the model or of a block's sub-graphs."""
    if block is None:
        return bool(getattr(base, knob, AUTO) != AUTO)
    own = (one for one in base.overrides if block.start == number and one.layer in block.layers)
    return any(getattr(one, knob, AUTO) != AUTO for one in own)


def _owner(space: Space, index: int) -> tuple[Block | None, str]:
    """Return the block and the knob of a dimension."""
    first = len(space.dimensions) - sum(len(block.choices) for block in space.blocks)
    if index < first:
        return None, space.dimensions[index].name
    own = [(block, name) for block in space.blocks for name in block.choices]
    return own[index - first]


def _border(space: Space, index: int, decision: Knob, value: Value) -> Border | None:
    """Return at which end of the offered numbers a value lies, where the knob takes others."""
    known = [decision.auto(space.here) if c == AUTO else c for c in space.dimensions[index].choices]
    numbers = [float(n) for n in known if isinstance(n, int | float)]
    here, limits = (
        decision.auto(space.here) if value == AUTO else value,
        decision.limits(space.here),
    )
    if limits is None or not isinstance(here, int | float) or len(set(numbers)) < 3:  # noqa: PLR2004
        return None  # of two values each one is at a border
    low, high = limits
    if here == min(numbers) and here > low:
        return "least"
    return "greatest" if here == max(numbers) and here < high else None


__all__ = ["FEWEST", "FOLDS", "Border", "Importance", "KnobReport", "importance_of"]
