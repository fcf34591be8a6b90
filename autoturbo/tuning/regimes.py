"""Errors of short and of long kernels, which have other causes: launches and ramps, or rates.

A row belongs to a regime by the measured seconds of a kernel; of a schedule, in the mean.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from autoturbo.tuning.measured_table import Case

REGIME: Final = 40e-6
"""Seconds of a kernel that separate short from long ones, unless the user says otherwise: on a
Wormhole n150 a launch and a ramp are a quarter of them."""

_JUDGED: Final = 2
"""Shapes of a regime that it takes to fit to one and to judge by another."""


@dataclass(frozen=True, slots=True)
class RegimeErrors:
    """Medians of absolute relative errors of short and of long kernels.

    Attributes:
        limit: Seconds of a kernel that separate them.
        below: Median of kernels that take less; None where no row does.
        above: Median of the other kernels.
        rows_below: Rows of kernels that take less.
    """

    limit: float
    below: float | None
    above: float | None
    rows_below: int

    @staticmethod
    def of(seconds: Sequence[float], cases: Sequence[Case], limit: float) -> RegimeErrors:
        """Return the errors of simulated seconds of rows."""
        found: dict[bool, list[float]] = {True: [], False: []}
        for simulated, case in zip(seconds, cases, strict=True):
            found[case.kernel_seconds < limit].append(abs(simulated / case.seconds - 1))
        below, above = (statistics.median(found[k]) if found[k] else None for k in (True, False))
        return RegimeErrors(limit, below, above, len(found[True]))

    def line(self, rows: int) -> str:
        """Return both errors in words, given the number of all rows."""
        us = f"{self.limit * 1e6:g} us"
        parts = (
            ("below", self.below, self.rows_below),
            ("from", self.above, rows - self.rows_below),
        )
        return ", ".join(
            f"{side} {us}{' on' if side == 'from' else ''}: "
            + ("no rows" if error is None else f"{error:.1%} ({count} rows)")
            for side, error, count in parts
        )


def uncovered(cases: Sequence[Case], limit: float) -> str:
    """Return in a line what a table cannot say of a regime; empty if it has shapes of both."""
    return "; ".join(_uncovered(cases, limit))


def _uncovered(cases: Sequence[Case], limit: float) -> Iterator[str]:
    us = f"{limit * 1e6:g} us"
    for name, is_below in ((f"below {us}", True), (f"of {us} and more", False)):
        shapes = {case.group for case in cases if (case.kernel_seconds < limit) == is_below}
        if not shapes:
            yield f"no row has kernels {name}, so their error is not known: measure some"
        elif len(shapes) < _JUDGED:
            yield f"rows with kernels {name} are of one shape, which no other judges: measure more"
