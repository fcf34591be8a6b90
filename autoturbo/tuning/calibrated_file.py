"""The target files that a calibration and a comparison write, and when they are not written."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Final

from autoturbo.errors import Location, RefusedError, TargetError
from autoturbo.hardware import Target
from autoturbo.hardware.document import parse_document
from autoturbo.hardware.parts import Calibration
from autoturbo.hardware.writing import FIRST_LINE, target_text, with_section
from autoturbo.tuning.calibration import Calibrated, Fitted
from autoturbo.tuning.measured_table import MeasuredTable

USELESS: Final = 0.5
"""Median error held out beyond which the rows are not times of such a machine."""


def calibrated_target(found: Calibrated, table: MeasuredTable) -> Target:
    """Return the fitted target, with where its figures are from.

    Args:
        found: The fit and its errors.
        table: Table that the figures are fitted to.

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
    return stated_target(found, table)


def stated_target(found: Calibrated, table: MeasuredTable) -> Target:
    """Return a target with the errors that a comparison found.

    Args:
        found: The target and its errors.
        table: Table that the errors come from.
    """
    regimes = found.regimes
    known = Calibration(
        error=_short(found.after), rows=len(table.cases), table=table.name[-200:],
        sha256=table.sha256, date=dt.datetime.now(tz=dt.UTC).date().isoformat(),
        regime=regimes.limit, error_below=_short(regimes.below or 0.0),
        error_above=_short(regimes.above or 0.0), rows_below=regimes.rows_below,
    )  # fmt: skip
    made = dataclasses.replace(found.fit.target, calibration=known)
    return Target.from_dict(made.as_dict())


def _short(error: float) -> float:
    """Return an error to three digits."""
    return float(f"{error:.3g}")


def stated_text(made: Target, source: str | None) -> str:
    """Return the file of a target whose figures were not fitted, with the comments that it had.

    Args:
        made: The target, with the errors that it states.
        source: The file that it was read from; None where there is none.
    """
    if source is not None:
        text = with_section(source, "calibration", made)
        if _says(text, made):
            return text
    return target_text(made, {}, ("A target compared with measured times.",))


def _says(text: str, made: Target) -> bool:
    """Return whether a file describes a target: JSON and other layouts take no section as text."""
    try:
        return Target.from_dict(parse_document(text, "").value) == made
    except TargetError:
        return False


def calibrated_text(made: Target, found: Calibrated, table: MeasuredTable) -> str:
    """Return the file: fitted figures have their interval and what they were behind them.

    Args:
        made: The target.
        found: The fit.
        table: Table that the figures are fitted to.
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
