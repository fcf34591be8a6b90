"""What becomes of measurers that misbehave: whatever they do, there is an outcome."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator

from autoturbo.simulate.measurement import Failure, Measurement, Outcome


def outcome_of(measure: Callable[[], object]) -> Outcome:
    """What measuring gives; whatever goes wrong is a value.

    ``"raised"`` for an exception, ``"memory"`` where there is not enough of it, ``"invalid"`` for
    what is no outcome or not a number above zero.
    """
    try:
        outcome = measure()
    except MemoryError:
        return Failure("memory", "the measurer ran out of memory")
    except Exception as error:  # noqa: BLE001  a measurer is foreign code, anything may come
        text = " ".join(str(error).split()) or "no message"
        return Failure("raised", f"the measurer raised {type(error).__name__}: {text}")
    return checked(outcome)


def outcome_within(seconds: float, measure: Callable[[], object]) -> Outcome:
    """The same, or that it takes too long; it is then left to itself, in a thread of its own."""
    found: list[Outcome] = []
    thread = threading.Thread(target=lambda: found.append(outcome_of(measure)), daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else late(seconds)


def late(seconds: float) -> Failure:
    """What a setting gets that takes too long."""
    return Failure("timeout", f"not measured within {seconds:g} s")


def checked(outcome: object) -> Outcome:
    """An outcome as it is, or why it is none."""
    if isinstance(outcome, Failure):
        return outcome
    if not isinstance(outcome, Measurement):
        return Failure("invalid", f"the measurer returned {type(outcome).__name__}")
    try:
        bad = next((name for name, figure in _figures(outcome) if not _sane(figure)), None)
    except TypeError:
        return Failure("invalid", "the measurer returned something that is not a number")
    if bad is not None or not outcome.is_valid():
        name = bad or "latency"
        return Failure(
            "invalid", f"the measurer returned {getattr(outcome, name, None)!r} as {name}"
        )
    return outcome


def _figures(outcome: Measurement) -> Iterator[tuple[str, float]]:
    yield "latency", outcome.latency
    yield "ddr_bytes", outcome.ddr_bytes
    yield "gb_bytes", outcome.gb_bytes
    if outcome.energy is not None:
        yield "energy", outcome.energy
    for seconds in outcome.subgraph_times:
        yield "subgraph_times", seconds


def _sane(figure: float) -> bool:
    return math.isfinite(figure) and figure >= 0
