"""Rows of a table that cannot be: times in another unit, below a bound, or of one thing twice.

What is simulated with the figures that a fit begins with is off by a small factor, as machines
differ from their data sheets; units are a thousand apart. In between nothing is judged: the fit
itself says how well it fits.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from autoturbo.errors import Location, UsageError
from autoturbo.hardware import Target
from autoturbo.tuning.calibration import WITHIN
from autoturbo.tuning.measured_table import TIMES, Case, MeasuredTable

_AROUND: Final = 5.0
"""Factor around a ratio of units within which times are taken for ones in that unit."""

_RATIOS: Final = (1e3, 1e6, 1e-3, 1e-6)

_ENOUGH: Final = 3
"""Rows from which on one is compared with the others."""

_NOISE: Final = 1.5
"""Longest over shortest time of one setting that may be noise."""

_NAMES: Final = {1.0: "s", 1e-3: "ms", 1e-6: "us", 1e-9: "ns"}

Told = Callable[[str], None]


def plausible(table: MeasuredTable, target: Target, path: Path, told: Told) -> MeasuredTable:
    """Return a table without rows that repeat others.

    Args:
        table: The table as it was read.
        target: Target with the figures that a fit begins with.
        path: Path of the table, for messages.
        told: Is called with a line for each row that is counted otherwise than it may seem.

    Raises:
        UsageError: Its times are in another unit, or a row's is, or one is below what any machine
            near the target needs.
    """
    found = _Table(table, target, path)
    # The whole table first: in another unit, every row would be told of.
    found.check_unit()
    found.check_bounds()
    found.check_rows()
    found.tell_bounds(told)
    return dataclasses.replace(table, cases=tuple(found.distinct(told)))


class _Table:
    """A table beside what is simulated.

    Args:
        table: The table as it was read.
        target: Target with the figures that a fit begins with.
        path: Path of the table.
    """

    def __init__(self, table: MeasuredTable, target: Target, path: Path) -> None:
        self.cases, self.time, self.path, self.target = table.cases, table.time, path, target
        self.least = [case.least(target) for case in self.cases]
        self.ratios = [case.seconds / case.simulated(target) for case in self.cases]

    def wrong(self, line: int, message: str, hint: str) -> UsageError:
        """Return an error about the time of a row, or of all in line 1."""
        return UsageError(message, Location(self.path, line, field=self.time), hint)

    def shown(self, seconds: float) -> str:
        """Return a time in the unit of the table."""
        unit = TIMES[self.time]
        return f"{seconds / unit:.4g} {_NAMES[unit]}"

    def meant(self, ratio: float) -> str:
        """Return the unit that times are in that are so many times what they should be."""
        seconds = TIMES[self.time] / ratio
        return next((n for unit, n in _NAMES.items() if math.isclose(unit, seconds)), "")

    def check_unit(self) -> None:
        """Refuse a table whose times are in another unit than its column says."""
        median = statistics.median(self.ratios)
        ratio = _unit_apart(median)
        if ratio is None or not (unit := self.meant(ratio)):
            return
        much = f"{median:.3g}" if median > 1 else f"1/{1 / median:.3g}"
        raise self.wrong(
            1,
            f"the times are {much} of what is simulated (median of {len(self.cases)} rows):"
            f" they seem to be in {unit}",
            f"call the column latency_{unit}, or mend the target where it is so far off",
        )

    def check_bounds(self) -> None:
        """Refuse rows below the bound of any machine that a fit may find."""
        pairs = zip(self.cases, self.least, strict=True)
        # A fit may make figures so many times better, and no more.
        never = [(case, bound) for case, bound in pairs if case.seconds < bound / WITHIN]
        if never:
            (first, bound), *more = never
            raise self.wrong(
                first.line,
                f"{self.shown(first.seconds)} is below the {self.shown(bound)} that the machine"
                f" needs at the least{_also([case for case, _ in more])}",
                "give the time in the unit of its column, or leave the row out",
            )

    def tell_bounds(self, told: Told) -> None:
        """Tell of rows below the bound of the machine as described."""
        pairs = zip(self.cases, self.least, strict=True)
        if below := [case for case, bound in pairs if case.seconds < bound]:
            what = "below what the machine as described needs at the least"
            place = Location(self.path, below[0].line, field=self.time)
            told(f"{place}: {self.shown(below[0].seconds)} is {what}{_also(below[1:])}")

    def check_rows(self) -> None:
        """Refuse rows that are in another unit than the others."""
        # Of a few rows none is typical.
        if len(self.cases) < _ENOUGH:
            return
        median = statistics.median(self.ratios)
        apart = [(c, _unit_apart(r / median)) for c, r in zip(self.cases, self.ratios, strict=True)]
        strange = [(case, ratio) for case, ratio in apart if ratio is not None]
        if strange:
            (first, ratio), *more = strange
            much = f"{ratio:g} times" if ratio > 1 else f"1/{1 / ratio:g} of"
            unit = self.meant(ratio)
            seems = f": it seems to be in {unit}" if unit else ""
            raise self.wrong(
                first.line,
                f"{self.shown(first.seconds)} is about {much} what the other rows say"
                f"{seems}{_also([case for case, _ in more])}",
                "mend the row or leave it out",
            )

    def distinct(self, told: Told) -> list[Case]:
        """Return the rows, equal ones once; tell of these, and of those that contradict others."""
        first: dict[tuple[object, ...], Case] = {}
        kept: list[Case] = []
        for case in self.cases:
            earlier = first.setdefault((*case.setting, case.seconds), case)
            if earlier is case:
                kept.append(case)
            else:
                told(f"{self.path}:{case.line}: the same as line {earlier.line}: counted once")
        settings: dict[tuple[object, ...], list[Case]] = {}
        for case in kept:
            settings.setdefault(case.setting, []).append(case)
        for same in settings.values():
            low, high = (end(same, key=lambda case: case.seconds) for end in (min, max))
            if high.seconds > _NOISE * low.seconds:
                told(
                    f"{self.path}:{high.line}: {self.time}: {self.shown(high.seconds)}, but"
                    f" {self.shown(low.seconds)} in line {low.line} for the same:"
                    " measure it again, or leave one out"
                )
        return kept


def _unit_apart(ratio: float) -> float | None:
    """Return the ratio of units that a ratio of times is near; None if it is near none."""
    near = (unit for unit in _RATIOS if unit / _AROUND < ratio < unit * _AROUND)
    return next(near, None)


def _also(more: Sequence[Case]) -> str:
    lines = [str(case.line) for case in more]
    if not lines:
        return ""
    rest = f" and {len(lines) - _SHOWN} more" if lines[_SHOWN:] else ""
    some = "; so are lines" if lines[1:] else "; so is line"
    return f"{some} {', '.join(lines[:_SHOWN])}{rest}"


_SHOWN: Final = 5
"""Rows that a line names."""
