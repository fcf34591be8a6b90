"""Fitting figures of a target to measured times.

What is minimised are logarithms of simulated over measured times, with a loss that outliers move
little, from several starts. Rates and shares are fitted as logarithms and stay within a factor of
:data:`WITHIN`; times that may be zero stay below the shortest time measured.

A field is fitted only if the rows say what it is: one that moves no row, or whose interval is too
wide to be of use, keeps its figure. The error is of rows that a fit has not seen: whole shapes are
held out in turn, and everything is done anew without them, the choice of fields included.
"""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from autoturbo.errors import Location, UsageError, did_you_mean
from autoturbo.hardware import Target
from autoturbo.hardware.fields import Figure, Rates, file_fields
from autoturbo.hardware.target import ENGINES, PARTS
from autoturbo.schedule.work import Floats
from autoturbo.statistics import CONFIDENCE, student
from autoturbo.tuning.measured_table import Case
from autoturbo.tuning.regimes import REGIME, RegimeErrors

WITHIN: Final = 8.0
"""Factor by which a rate may leave its start, up and down."""

FOLDS: Final = 5
"""Most parts that shapes are held out in."""

STARTS: Final = 3
SEED: Final = 0

_MOVES: Final = 0.02
"""A field is fitted if it moves a row by this much anywhere within its bounds."""

_WIDEST: Final = 4.0
"""Upper end of an interval over its lower end beyond which rows do not say what a field is."""

_LEAST_SPREAD: Final = 2e-3
"""Of logarithms: no table is better than this, for intervals."""

_HELD: Final = 0.01
"""Weight that holds a field at its start where the rows leave it free."""

_LOSS: Final = 0.05
"""Errors above this count in proportion, those below by their squares."""

_NOT_FITTED: Final = ("energy", "calibration")
_PREFERRED: Final = (
    "rate", "efficiency", "kernel_launch_us", "kernel_ramp_us", "bandwidth_gb_s", "lanes",
    "latency_ns",
)  # fmt: skip
"""Of fields that rows cannot tell apart, the one named first here is fitted."""

_UNKNOWN: Final = _PREFERRED.index("kernel_ramp_us")
_TIERS: Final = 3


@dataclass(frozen=True, slots=True)
class Parameter:
    """A figure of a target that may be fitted.

    Attributes:
        name: Name of the figure, as a path in the target's file.
        section: Attribute of the target that holds it.
        attribute: Attribute of the section.
        rule: Annotation of the attribute.
        dtype: Whose figure, of a figure for each data type.
    """

    name: str
    section: str
    attribute: str
    rule: Figure = field(compare=False)
    dtype: str | None = None

    @property
    def unit(self) -> str:
        """Return the unit of the file, empty for a plain number."""
        return self.rule.unit

    @property
    def may_be_zero(self) -> bool:
        """Return whether it is a time that may be zero."""
        return self.rule.low == 0

    @property
    def rank(self) -> tuple[int, int]:
        """Return its place among fields that rows cannot tell apart; the first is fitted."""
        last = self.name.split(".")[1]  # after the section, before a data type
        places = [i for i, name in enumerate(_PREFERRED) if last == name]
        return (*places, len(_PREFERRED))[0], self.section == "dma"

    @property
    def tier(self) -> int:
        """Return when it joins a fit: what no data sheet has first, latencies last."""
        if self.rank[0] <= _UNKNOWN:
            return 0
        return _TIERS - 1 if self.may_be_zero else 1

    def of(self, target: Target) -> float:
        """Return its figure in the file's unit."""
        value = getattr(getattr(target, self.section), self.attribute)
        return float(dict(value)[self.dtype] if self.dtype else self.rule.from_si(value))

    def si(self, held: Any, value: float) -> Any:
        """Return the attribute's value with this figure; ``held`` is what it is now."""
        if self.dtype:
            return tuple((d, value if d == self.dtype else r) for d, r in held)
        return value if self.rule.whole else self.rule.to_si(value)

    def rounded(self, value: float) -> float:
        """Return a figure as it is written: four digits, or a whole number."""
        return float(round(value)) if self.rule.whole else float(f"{value:.4g}")


class Interval(NamedTuple):
    """Ends of the interval that holds a figure in 95 of 100 tables."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """A field that was fitted.

    Attributes:
        field: Path of the field in the target's file.
        unit: Unit of the figures.
        before: Figure before the fit.
        after: The one that fits.
        interval: Confidence interval of ``after``.
        at_bound: It went as far from ``before`` as it may, so that the interval says little.
    """

    field: str
    unit: str
    before: float
    after: float
    interval: Interval
    at_bound: bool


@dataclass(frozen=True, slots=True)
class Untouched:
    """A field that keeps its figure, and why."""

    field: str
    reason: str


@dataclass(frozen=True, slots=True)
class Fit:
    """Figures fitted to some rows.

    Attributes:
        target: Target with the fitted figures.
        fitted: The fields.
        untouched: Fields that the rows do not identify.
    """

    target: Target
    fitted: tuple[Fitted, ...]
    untouched: tuple[Untouched, ...]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A fit to all rows, judged on rows that fits have not seen.

    Attributes:
        fit: The fit to all rows.
        before: Median of the absolute relative errors with the figures that were given.
        after: The same median, each row's error by the fit that had not seen its shape.
        shapes: Shapes that were held out, in turn.
        regimes: ``after``, of short and of long kernels.
    """

    fit: Fit
    before: float
    after: float
    shapes: int
    regimes: RegimeErrors


def parameters_of(target: Target, names: Sequence[str] = ()) -> tuple[Parameter, ...]:
    """Return figures of a target that may be fitted.

    Args:
        target: The target.
        names: Names of fields, as paths; rates, shares and latencies if empty, but no ramp of 0.

    Raises:
        UsageError: There is no such field, or it is not one that a fit can move.
    """
    known = {one.name: one for one in _parameters(target)}
    if not names:
        return tuple(o for o in known.values() if not o.rule.whole and not _is_no_ramp(o, target))
    found = []
    for name in names:
        matching = [one for key, one in known.items() if name in {key, key.rpartition(".")[0]}]
        if not matching:
            hint = did_you_mean(name, known)
            raise UsageError(
                f"{name!r:.60} is not a field to fit", Location(field="--fields"), hint
            )
        found += [one for one in matching if one not in found]
    return tuple(found)


def _is_no_ramp(parameter: Parameter, target: Target) -> bool:
    """Return whether it is the ramp of a target without one: few rows tell it from a launch."""
    return parameter.name == "overheads.kernel_ramp_us" and parameter.of(target) == 0


def _parameters(target: Target) -> list[Parameter]:
    found = []
    for section, (kind, _) in {**ENGINES, **PARTS}.items():
        held = getattr(target, section)
        if section in _NOT_FITTED or held is None or (section == "gb" and not held.capacity):
            continue
        path = f"engines[{section}]" if section in ENGINES else section
        for one in file_fields(kind):
            rule, name = one.rule, f"{path}.{one.name}"
            if not isinstance(rule, Figure) or rule.suffix in ("kib", "gib"):
                continue
            if isinstance(rule, Rates):
                dtypes = [dtype for dtype, _ in getattr(held, one.attribute)]
                found += [Parameter(f"{name}.{d}", section, one.attribute, rule, d) for d in dtypes]
            elif not rule.whole or one.name.endswith("_cycles"):
                found.append(Parameter(name, section, one.attribute, rule))
    return found


def with_values(target: Target, values: dict[Parameter, float]) -> Target:
    """Return a target with other figures, in the units of its file."""
    changed: dict[str, Any] = {}
    for parameter, value in values.items():
        section = changed.get(parameter.section, getattr(target, parameter.section))
        si = parameter.si(getattr(section, parameter.attribute), value)
        changed[parameter.section] = dataclasses.replace(section, **{parameter.attribute: si})
    return dataclasses.replace(target, **changed)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Scale on which a figure is fitted: logarithm of a rate, near zero the time itself.

    Attributes:
        parameter: The figure.
        start: The figure that the fit starts from.
        low: Least value.
        high: Greatest value.
        unit: Size that counts as small, of times that may be zero; 0 for rates.
    """

    parameter: Parameter
    start: float
    low: float
    high: float
    unit: float

    @staticmethod
    def of(parameter: Parameter, target: Target, shortest: float) -> _Scale:
        """Return the scale of a figure, where ``shortest`` is the shortest time measured."""
        start, rule = parameter.of(target), parameter.rule
        if parameter.may_be_zero:
            seconds = shortest * (target.clock if rule.whole else 1.0)
            most = seconds if rule.whole else float(rule.from_si(seconds))
            high = min(rule.high, max(most, 2 * start))
            return _Scale(parameter, start, 0.0, high, max(start, high / 100) / 4)
        low, high = max(rule.low, start / WITHIN), min(rule.high, start * WITHIN)
        return _Scale(parameter, start, low, high, 0.0)

    def inner(self, value: float) -> float:
        """Return the coordinate of a value."""
        return math.log1p(value / self.unit) if self.unit else math.log(value)

    def value(self, inner: float) -> float:
        """Return the value at a coordinate."""
        found = self.unit * math.expm1(inner) if self.unit else math.exp(inner)
        return min(max(found, self.low), self.high)

    def fitted(self, value: float, interval: Interval) -> Fitted:
        """Return a fitted value with its interval, as a table shows it."""
        near = 1e-2 * (self.inner(self.high) - self.inner(self.low))
        inner = self.inner(max(value, self.low))
        at_bound = inner < self.inner(self.low) + near or inner > self.inner(self.high) - near
        name, unit = self.parameter.name, self.parameter.unit
        return Fitted(name, unit, self.start, value, interval, at_bound)


class _Solution(NamedTuple):
    """Coordinates that fit, and the derivatives of the logarithms of times by them."""

    at: Floats
    jacobian: Floats
    spread: float
    cost: float


class _Fitter:
    """Fits figures of a target to rows.

    Args:
        target: Target with the figures to begin with.
        cases: The rows.
        starts: Number of points that fits start from.
        seed: Seed of the points.
    """

    def __init__(self, target: Target, cases: Sequence[Case], starts: int, seed: int) -> None:
        self.target, self.cases, self.starts = target, cases, starts
        self.measured = np.log([case.seconds for case in cases])
        self.shortest = min(case.seconds for case in cases)
        self.random = random.Random(seed)  # noqa: S311  no secret

    def errors(self, target: Target, *, settled: bool) -> Floats:
        """Return the logarithms of simulated over measured times."""
        times = [case.simulated(target, settled=settled) for case in self.cases]
        return np.asarray(np.log(times) - self.measured)

    def at(self, scales: Sequence[_Scale], inner: Floats) -> Target:
        """Return the target at coordinates."""
        pairs = zip(scales, inner.tolist(), strict=True)
        return with_values(self.target, {s.parameter: s.value(u) for s, u in pairs})

    def moving(self, parameters: Sequence[Parameter]) -> list[_Scale]:
        """Return the scales of figures that move a row somewhere within their bounds."""
        base = self.errors(self.target, settled=False)
        found = []
        for parameter in parameters:
            scale = _Scale.of(parameter, self.target, self.shortest)
            ends = (
                self.errors(with_values(self.target, {parameter: end}), settled=False)
                for end in (scale.low, scale.high)
            )
            if any(np.abs(end - base).max() > _MOVES for end in ends):
                found.append(scale)
        return found

    def solve(self, scales: Sequence[_Scale], begin: Floats) -> _Solution:
        """Return the best coordinates near some."""
        from scipy.optimize import least_squares

        if not scales:
            return _Solution(begin, np.zeros((len(self.cases), 0)), 1.0, math.inf)
        home = np.asarray([s.inner(s.start) for s in scales])
        low, high = (
            np.asarray([s.inner(end) for s, end in zip(scales, ends, strict=True)])
            for ends in ([s.low for s in scales], [s.high for s in scales])
        )
        span = high - low
        # Inside the bounds, as the solver asks of where it begins.
        begin = np.clip(begin, low + 1e-3 * span, high - 1e-3 * span)
        self.errors(self.at(scales, begin), settled=False)  # which grids are worth trying

        def residuals(inner: Floats) -> Floats:
            errors = self.errors(self.at(scales, inner), settled=True)
            # Pseudo-Huber: squares near zero, absolute values far out, for outliers.
            root = np.sqrt(2 * (np.sqrt(1 + (errors / _LOSS) ** 2) - 1)) * _LOSS
            # A weak pull to the figures of the file, for directions that no row says anything of.
            held = _HELD * _LOSS * (inner - home)
            return np.concatenate((np.copysign(root, errors), held))

        found = least_squares(
            residuals, begin, bounds=(low, high), diff_step=3e-3, x_scale=1.0, max_nfev=25,
            xtol=1e-4, ftol=1e-4,
        )  # fmt: skip
        return self.described(scales, np.asarray(found.x), float(found.cost))

    def described(self, scales: Sequence[_Scale], at: Floats, cost: float) -> _Solution:
        """Return a solution with its derivatives and the spread of its errors."""
        base = self.errors(self.at(scales, at), settled=False)
        columns = []
        for index, scale in enumerate(scales):
            step = np.zeros(len(at))
            # Away from the upper bound, beyond which a figure does not move.
            step[index] = 0.01 if at[index] + 0.01 < scale.inner(scale.high) else -0.01
            moved = self.errors(self.at(scales, at + step), settled=True)
            columns.append((moved - base) / step[index])
        jacobian = np.stack(columns, axis=1) if columns else np.zeros((len(base), 0))
        free = max(len(base) - len(scales), 1)
        # an outlier counts no more than the loss counts it
        counted = np.sum(2 * _LOSS**2 * (np.sqrt(1 + (base / _LOSS) ** 2) - 1))
        return _Solution(at, jacobian, max(math.sqrt(counted / free), _LEAST_SPREAD), cost)

    def fit(self, parameters: Sequence[Parameter]) -> Fit:
        """Return the fit of those fields that the rows identify."""
        scales = self.moving(parameters)
        kept = {scale.parameter for scale in scales}
        still = [Untouched(p.name, "no row depends on it") for p in parameters if p not in kept]
        moving, scales, solution = scales, [], self.solve([], np.zeros(0))
        # Published figures join later: else they would share errors of those that nobody publishes.
        for tier in range(_TIERS):
            more = [scale for scale in moving if scale.parameter.tier == tier]
            if more:
                at = [*solution.at, *(scale.inner(scale.start) for scale in more)]
                solution = self.solve([*scales, *more], np.asarray(at))
                scales, solution = self.identified([*scales, *more], still, solution)
        for _ in range(self.starts - 1 if scales else 0):
            drawn = [self.random.uniform(s.inner(s.low), s.inner(s.high)) for s in scales]
            home = np.asarray([s.inner(s.start) for s in scales])
            # Half way to a random point: whole steps lead where no chip is.
            other = self.solve(scales, (home + np.asarray(drawn)) / 2)
            solution = min(solution, other, key=lambda one: one.cost)
        scales, solution = self.identified(scales, still, solution)
        if not scales:
            return Fit(self.target, (), tuple(still))
        values = {
            s.parameter: s.parameter.rounded(s.value(u))
            for s, u in zip(scales, solution.at.tolist(), strict=True)
        }
        intervals = _intervals(scales, solution, len(self.cases))
        pairs = zip(scales, intervals, strict=True)
        fitted = tuple(scale.fitted(values[scale.parameter], one) for scale, one in pairs)
        whole = {p: int(v) if p.rule.whole else v for p, v in values.items()}
        return Fit(with_values(self.target, whole), fitted, tuple(still))

    def identified(
        self, scales: list[_Scale], still: list[Untouched], solution: _Solution
    ) -> tuple[list[_Scale], _Solution]:
        """Leave out fields that the rows do not identify, and solve again without them.

        Args:
            scales: Fields to fit.
            still: Is added to what is left out.
            solution: The solution for these figures.

        Returns:
            The fields that are left, and a solution for them.
        """
        while True:
            before = len(scales)
            while scales:
                intervals = _intervals(scales, solution, len(self.cases))
                alone = _intervals(scales, solution, len(self.cases), alone=True)
                vague = [
                    (_vagueness(s, alone[i]) > 1, s.parameter.rank, i)
                    for i, s in enumerate(scales)
                    if _vagueness(s, intervals[i]) > 1
                ]
                if not vague:
                    break
                # One at a time: without it the others may be known.
                worst = max(vague)[-1]
                reason = _why(scales[worst], alone[worst])
                still.append(Untouched(scales[worst].parameter.name, reason))
                scales = [scale for i, scale in enumerate(scales) if i != worst]
                solution = _Solution(
                    np.delete(solution.at, worst), np.delete(solution.jacobian, worst, axis=1),
                    solution.spread, solution.cost,
                )  # fmt: skip
            if not scales or len(scales) == before:
                return scales, solution
            solution = self.solve(scales, solution.at)


def _intervals(
    scales: Sequence[_Scale], solution: _Solution, rows: int, *, alone: bool = False
) -> list[Interval]:
    """Return the interval of each figure, from the derivatives at the solution.

    Args:
        scales: Scales of the figures.
        solution: The figures at the solution, on their scales.
        rows: The measured rows.
        alone: Whether all other figures count as known.
    """
    normal = solution.jacobian.T @ solution.jacobian
    if alone:
        normal = np.diag(np.diag(normal))
    values, vectors = np.linalg.eigh(normal)
    # Bounded from below: what no row moves has a very wide interval, not an infinite one.
    inverse = vectors / np.maximum(values, 1e-9) @ vectors.T
    wide = student((1 - CONFIDENCE) / 2, max(rows - len(scales), 1)) * solution.spread
    found = []
    for index, (scale, inner) in enumerate(zip(scales, solution.at.tolist(), strict=True)):
        # As far as an exponential reaches in floating point.
        half = min(wide * math.sqrt(max(inverse[index, index], 0.0)), 50.0)
        if scale.unit:
            ends = [scale.unit * math.expm1(inner + sign * half) for sign in (-1, 1)]
        else:
            ends = [math.exp(inner + sign * half) for sign in (-1, 1)]
        found.append(Interval(max(ends[0], 0.0), ends[1]))
    return found


def _vagueness(scale: _Scale, interval: Interval) -> float:
    """Return how much too wide an interval is (1 is just right).

    Rows that rule out a time's first figure say something of it, however wide the interval.
    """
    low, high = interval
    wide = math.log(high / low) / math.log(_WIDEST) if low > 0 else math.inf
    if scale.unit and not low <= scale.start <= high:
        wide = 0.0
    return wide


def _why(scale: _Scale, alone: Interval) -> str:
    if _vagueness(scale, alone) <= 1:
        return "the rows cannot tell it from other fields"
    if alone.low <= scale.low and alone.high >= scale.high:
        return "the rows hardly depend on it"
    low, high = max(alone.low, scale.low), min(alone.high, scale.high)
    return f"the rows say only that it is {low:.3g} to {high:.3g}"


def median_error(seconds: Sequence[float], cases: Sequence[Case]) -> float:
    """Return the median of the absolute relative errors of simulated times."""
    pairs = zip(seconds, cases, strict=True)
    return statistics.median(abs(found / case.seconds - 1) for found, case in pairs)


def fit(
    target: Target,
    cases: Sequence[Case],
    parameters: Sequence[Parameter],
    *,
    starts: int = STARTS,
    seed: int = SEED,
) -> Fit:
    """Return a target whose figures fit rows.

    Args:
        target: Target with the figures to begin with.
        cases: The rows.
        parameters: Figures that may change.
        starts: Number of points that fits start from.
        seed: Seed of the points.
    """
    return _Fitter(target, cases, starts, seed).fit(parameters)


def folds_of(cases: Sequence[Case], most: int = FOLDS) -> list[list[int]]:
    """Return positions of rows in parts that are held out in turn, every shape in one of them.

    Shapes are dealt out from short to long, so that no fit lacks all short kernels.
    """
    ascending = sorted(cases, key=lambda case: case.kernel_seconds)
    groups = dict.fromkeys(case.group for case in ascending)
    part = {group: index % most for index, group in enumerate(groups)}
    count = min(most, len(groups))
    return [
        [i for i, case in enumerate(cases) if part[case.group] == fold] for fold in range(count)
    ]


def calibrate(
    target: Target,
    cases: Sequence[Case],
    parameters: Sequence[Parameter],
    *,
    starts: int = STARTS,
    seed: int = SEED,
    regime: float = REGIME,
    told: Callable[[str], None] | None = None,
) -> Calibrated:
    """Return a target whose figures fit rows, and its error on shapes that fits have not seen.

    Args:
        target: Target with the figures to begin with.
        cases: The rows, of two shapes or more.
        parameters: Figures that may change.
        starts: Number of points that fits start from.
        seed: Seed of the points.
        regime: Seconds of a kernel that separate two errors.
        told: Is called with what is being done.

    Raises:
        UsageError: All rows are of one shape.
    """
    told = told or (lambda _: None)
    shapes = len({case.group for case in cases})
    if shapes < 2:  # noqa: PLR2004  one to fit, one to judge
        hint = "measure a second shape or model"
        raise UsageError("all rows are of one shape, so that none can be held out", hint=hint)
    before = median_error([case.simulated(target) for case in cases], cases)
    unseen = [0.0] * len(cases)
    folds = folds_of(cases)
    for number, fold in enumerate(folds, 1):
        told(f"fit {number} of {len(folds) + 1}: {len(cases) - len(fold)} rows")
        held = set(fold)
        rest = [case for index, case in enumerate(cases) if index not in held]
        found = fit(target, rest, parameters, starts=starts, seed=seed).target
        for index in fold:
            unseen[index] = cases[index].simulated(found)
    told(f"fit {len(folds) + 1} of {len(folds) + 1}: all {len(cases)} rows")
    final = fit(target, cases, parameters, starts=starts, seed=seed)
    regimes = RegimeErrors.of(unseen, cases, regime)
    return Calibrated(final, before, median_error(unseen, cases), shapes, regimes)


def judged(target: Target, cases: Sequence[Case], *, regime: float = REGIME) -> Calibrated:
    """Return the error of a target as it is, with no figure fitted.

    Args:
        target: Target with figures that were not fitted to the rows.
        cases: The rows.
        regime: Seconds of a kernel that separate two errors.
    """
    seconds = [case.simulated(target) for case in cases]
    error, shapes = median_error(seconds, cases), len({case.group for case in cases})
    regimes = RegimeErrors.of(seconds, cases, regime)
    return Calibrated(Fit(target, (), ()), error, error, shapes, regimes)
