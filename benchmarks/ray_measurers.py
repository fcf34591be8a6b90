"""Measurers for benchmarks and tests of the cluster: they take a fixed time, and some misbehave.

What they answer follows from the setting alone. They stand in for a board behind a worker, so that
what is measured is the tuner's part and not the simulator's.
"""

from __future__ import annotations

import functools
import hashlib
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoturbo.graph.operators import Graph, Tensor
from autoturbo.hardware import load_target
from autoturbo.hardware.target import Target
from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.contract import PlanStatistics
from autoturbo.simulator.measurement import LowerBound, Measurement, Outcome

_GREED = 4 << 30
"""Bytes that a measurer may map before the system refuses, where it is made to eat memory."""


def toy_graph(name: str = "toy") -> Graph:
    """Return a model without operators: no measurer here looks at it."""
    return Graph(name, (Tensor("x", (64, 8), "float32"),), (), (0,), (0,), 64)


def toy_target(name: str = "stcp920") -> Target:
    """Return a target for the space of knobs."""
    return load_target(name)


@dataclass(frozen=True)
class Text:
    """A schedule that is its setting."""

    text: str


def lot(knobs: Knobs, sides: int) -> int:
    """Return a number below ``sides`` that follows from a setting and from nothing else."""
    digest = hashlib.sha256(knobs.canonical().encode()).digest()
    return int.from_bytes(digest[:8], "big") % sides


@dataclass
class Sleeper:
    """Answers after a fixed time.

    Attributes:
        seconds: For one measurement.
        spoils: What happens instead, by the lot of a setting out of :data:`SIDES`.
    """

    seconds: float = 0.0
    spoils: Mapping[int, str] | None = None

    def evaluate(self, knobs: Knobs) -> Outcome:
        """Return a latency between 1 and 2 ms after the sleep, or what spoils the setting."""
        if self.seconds:
            time.sleep(self.seconds)
        spoil = (self.spoils or {}).get(lot(knobs, SIDES))
        if spoil is not None and knobs != Knobs():
            found: Outcome = SPOILS[spoil]()
            return found
        return measurement(1e-3 * (1 + lot(knobs, 10**6) / 10**6))

    def statistics(self, knobs: Knobs) -> PlanStatistics | None:
        """Return None: nothing is known beforehand."""
        del knobs
        return None

    def schedule(self, knobs: Knobs) -> Text:
        """Return what is handed out: the setting's text."""
        return Text(knobs.canonical() + "\n")

    def heuristic(self) -> Knobs:
        """Return a setting without any knob."""
        return Knobs()

    def measure_scheduler(self, name: str) -> Outcome:
        """Measure another scheduler, which is as good as the heuristic."""
        del name
        return self.evaluate(Knobs())


SIDES = 24
"""Of the lot that decides which settings are spoilt."""


def measurement(latency: float) -> Measurement:
    """Return a measurement with this latency in seconds."""
    bound = LowerBound(5e-4, 1e-4, 1e-4)
    return Measurement(latency, 64, 10, 2, 0.5, 0.1, 10, 20, 1, bound)


def sleeper(
    graph: Graph,
    target: Target,
    dtype: str,
    *,
    seconds: float = 0.0,
    spoils: Mapping[int, str] | None = None,
    ballast: bytes = b"",
) -> Sleeper:
    """Return a sleeper; ``ballast`` makes what is sent to workers as large as a model."""
    del graph, target, dtype, ballast
    return Sleeper(seconds, spoils)


def making(seconds: float = 0.0, **more: Any) -> Callable[..., Sleeper]:
    """Return a recipe for :func:`sleeper`."""
    return functools.partial(sleeper, seconds=seconds, **more)


def _die() -> Outcome:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _hang() -> Outcome:
    time.sleep(3600)
    raise AssertionError


def _raise() -> Outcome:
    raise RuntimeError("the board is on fire")


def _nan() -> Outcome:
    return measurement(float("nan"))


def _negative() -> Outcome:
    return measurement(-1e-3)


def _infinite() -> Outcome:
    return measurement(float("inf"))


def _garbage() -> Any:
    return "fast"


def _eat() -> Outcome:
    """Ask for ever more memory, within a limit that keeps the machine alive."""
    resource.setrlimit(resource.RLIMIT_AS, (_mapped() + _GREED, resource.RLIM_INFINITY))
    hoard = []
    try:
        while True:
            hoard.append(np.empty(_GREED // 8, np.uint8))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _mapped() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  no path object: tight
        return int(file.read().split()[0]) * resource.getpagesize()


SPOILS: Mapping[str, Callable[[], Any]] = {
    "dies": _die,
    "hangs": _hang,
    "raises": _raise,
    "NaN": _nan,
    "negative": _negative,
    "infinite": _infinite,
    "garbage": _garbage,
    "eats memory": _eat,
}
"""What a measurer may do instead of measuring."""

CLASSES = {
    "dies": "worker",
    "hangs": "timeout",
    "raises": "raised",
    "NaN": "invalid",
    "negative": "invalid",
    "infinite": "invalid",
    "garbage": "invalid",
    "eats memory": "memory",
}
"""The class by which each is reported."""
