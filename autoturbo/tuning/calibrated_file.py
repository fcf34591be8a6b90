"""The target file that a calibration writes, and when it is not written."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Final

from autoturbo.errors import Location, RefusedError
from autoturbo.hardware import Target
from autoturbo.hardware.parts import Calibration
from autoturbo.hardware.writing import FIRST_LINE, target_text
from autoturbo.tuning.calibration import Calibrated, Fitted
from autoturbo.tuning.measured_table import MeasuredTable

USELESS: Final = 0.5
"""Median error held out beyond which the rows are not times of such a machine."""


def calibrated_target(found: Calibrated, table: MeasuredTable) -> Target:
    """Return the fitted target, with where its figures are from.

    Args:
        found: The fit and its errors.
        table: That it is from.

    Raises:
        RefusedError: It is no better on rows held out, or of no use.
    """
    at, after = Location(table.name), found.after
    if not found.fit.fitted:
        hint = "measure shapes that other parts of the machine bound, or name --fields"
        raise RefusedError("not written: the rows identify no field", at, hint)
    errors = f"{found.before:.1%} before, {after:.1%} after"
    if after > found.before:
        hint = "measure more shapes, or name fewer --fields"
        raise RefusedError(f"not written: worse on shapes held out, {errors}", at, hint)
    if after > USELESS:
        message = f"not written: of no use on shapes held out, {errors}"
        raise RefusedError(message, at, "are these times of this machine, in this unit?")
    known = Calibration(
        error=float(f"{after:.3g}"), rows=len(table.cases), table=table.name[-200:],
        sha256=table.sha256, date=dt.datetime.now(tz=dt.UTC).date().isoformat(),
    )  # fmt: skip
    made = dataclasses.replace(found.fit.target, calibration=known)
    return Target.from_dict(made.as_dict())


def calibrated_text(made: Target, found: Calibrated, table: MeasuredTable) -> str:
    """Return the file: fitted figures have their interval and what they were behind them.

    Args:
        made: The target.
        found: The fit.
        table: That it is from.
    """
    heading = (
        FIRST_LINE.removeprefix("# "),
        f"Fitted figures name their 95 % interval; {table.name} has the times.",
    )
    return target_text(made, {one.field: _note(one) for one in found.fit.fitted}, heading)


def _note(one: Fitted) -> str:
    low, high = one.interval
    bound = ", at its bound" if one.at_bound else ""
    return f"fitted, {low:.3g} to {high:.3g}{bound}; was {one.before:.6g}"
