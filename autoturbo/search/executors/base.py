"""What an executor is, and what becomes of evaluators that misbehave.

A protocol, so that a farm of boards or another cluster can stand in: the tuner hands over a batch
of numbered settings and takes outcomes in any order. An evaluator that raises or returns nonsense
yields a :class:`Failure` as if it had said so itself; that happens here, in one place, whichever
process the evaluator runs in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from autoturbo.schedule.knobs import Knobs
from autoturbo.simulate.contract import Evaluates
from autoturbo.simulate.measurement import Failure, Measurement, Outcome

Numbered = tuple[int, Knobs]
"""A setting and the number of its trial."""

MakeEvaluator = Callable[[], Evaluates]
"""Builds an evaluator in a worker; small enough to be sent there, once."""

TRIES = 2
"""How often a setting is tried whose worker dies: the second time it is the setting's fault."""


class Executor(Protocol):
    """Measures settings, somewhere."""

    def submit(self, batch: Sequence[Numbered]) -> Iterator[tuple[int, Outcome]]:
        """Outcomes by trial number, in any order, as they come.

        One batch at a time: the iterator of the one before must have ended.

        Raises:
            ExecutorError: no worker can be had.
        """
        ...

    def cancel(self) -> None:
        """Begin nothing new: :meth:`submit` ends after what is being measured."""
        ...

    def close(self) -> None:
        """Give back all processes; a second time does nothing."""
        ...


def guarded(evaluator: Evaluates, knobs: Knobs) -> Outcome:
    """Measure a setting; whatever goes wrong is a value.

    ``"raised"`` for an exception, ``"invalid"`` for what is no outcome or not a number above zero.
    """
    try:
        outcome = evaluator.evaluate(knobs)
    except Exception as error:  # noqa: BLE001  a measurer is foreign code, anything may come
        text = " ".join(str(error).split()) or "no message"
        return Failure("raised", f"the measurer raised {type(error).__name__}: {text}")
    return checked(outcome)


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


def lost(tries: int) -> Failure:
    """What a setting gets whose workers die."""
    return Failure("worker", f"the worker died while measuring it, {tries} times")


def late(seconds: float) -> Failure:
    """What a setting gets that takes too long."""
    return Failure("timeout", f"not measured within {seconds:g} s")
