"""Outcomes of misbehaving measurers: any error becomes a failure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from numbers import Real
from typing import Any

import numpy as np

from autoturbo.simulator.measurement import ROUNDING, Failure, Measurement, Outcome
from autoturbo.statistics import OUTLYING

TIME_IS_UP = Failure("timeout", "its part of the time budget is over")
"""Outcome of a schedule that is not waited for; it is recognised by identity."""


def outcome_of(measure: Callable[[], object]) -> Outcome:
    """Return the outcome of a call that measures; any error becomes a failure.

    The reason is ``"raised"`` for an exception, ``"memory"`` if memory ran out, ``"invalid"`` for a
    value that is no outcome or not a number above zero.
    """
    try:
        outcome = measure()
    except MemoryError:
        return Failure("memory", "the measurer ran out of memory")
    except (Exception, SystemExit) as error:  # noqa: BLE001  it is foreign code, anything may come
        return Failure("raised", f"the measurer raised {type(error).__name__}: {_text(error)}")
    return checked(outcome)


def tried(measure: Callable[[], Outcome]) -> Outcome:
    """Return the outcome of a call that measures, called once more where its measurer failed."""
    outcome = measure()
    return measure() if isinstance(outcome, Failure) and outcome.may_pass else outcome


def _text(error: BaseException) -> str:
    """Return an exception's message on one line, even if its ``__str__`` raises."""
    try:
        return " ".join(str(error).split()) or "no message"
    except Exception:  # noqa: BLE001  it is foreign code as well
        return "a message that cannot be read"


def late(seconds: float) -> Failure:
    """Return the failure of a candidate that takes too long."""
    return Failure("timeout", f"not measured within {seconds:g} s")


def checked(outcome: object, bound_s: float = 0.0) -> Outcome:
    """Return an outcome with plain numbers in it, or the failure of an invalid one.

    Args:
        outcome: The value that a measurer returned.
        bound_s: Seconds that no schedule of the model on the target can beat, besides what the
            measurement itself says.
    """
    if isinstance(outcome, Failure):
        return outcome
    if not isinstance(outcome, Measurement):
        return Failure("invalid", f"the measurer returned {type(outcome).__name__}")
    wrong = next((n for n, figure in _figures(outcome) if not _sane(figure)), "")
    if not wrong and not outcome.latency:
        wrong = "latency"
    if wrong:
        figure = dict(_figures(outcome))[wrong]
        message = f"the measurer returned {figure!r} as {wrong}"
        kind = "" if isinstance(figure, Real) else ", which is not a number"
        return Failure("invalid", message + kind)
    least = max(bound_s, outcome.bound.seconds)
    # As far below as noise may put a measurement; further down the measurer is wrong.
    if outcome.latency < least * (1 - ROUNDING - OUTLYING * (outcome.noise or 0.0)):
        message = f"the measurer returned a latency of {float(outcome.latency)!r} s"
        return Failure("invalid", f"{message}, below the lower bound of {least:.6g} s")
    values = {f.name: getattr(outcome, f.name) for f in dataclasses.fields(outcome)}
    plain = {name: own for name, value in values.items() if (own := _plain(value)) is not value}
    return dataclasses.replace(outcome, **plain) if plain else outcome


def _plain(value: Any) -> Any:
    """Return a value with Python's numbers in place of NumPy's, which JSON does not know."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping) and any(isinstance(item, np.generic) for item in value.values()):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple) and any(isinstance(item, np.generic) for item in value):
        return tuple(map(_plain, value))
    return value


def _figures(outcome: Measurement) -> Iterator[tuple[str, object]]:
    yield "latency", outcome.latency
    yield "ddr_bytes", outcome.ddr_bytes
    yield "gb_bytes", outcome.gb_bytes
    if outcome.energy is not None:
        yield "energy", outcome.energy
    for seconds in outcome.subgraph_times:
        yield "subgraph_times", seconds


def _sane(figure: object) -> bool:
    # True is a number to Python.
    if isinstance(figure, bool) or not isinstance(figure, Real):
        return False
    return math.isfinite(figure) and float(figure) >= 0
