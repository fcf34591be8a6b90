"""Measurers: what they implement, and how figures that vary become measurements.

A measurer of version 1 has ``measure`` and gives outcomes; it is taken at its word that the same
schedule always measures the same. One of version 2 says what it is in ``info``, builds what it runs
(:meth:`TimedMeasurer.build`) and runs it (:meth:`TimedMeasurer.run`): it gives seconds, and
:class:`Timed` makes measurements of them. Repeats give a median; a reference schedule that is
measured again and again gives the noise and takes out drift; a figure that is suspiciously fast is
confirmed before anybody believes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from autoturbo.files import lock
from autoturbo.registry import MEASURERS, broken
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulate.bound import lower_bound
from autoturbo.simulate.measurement import Failure, Measurement, Outcome
from autoturbo.simulate.outcomes import outcome_of

Built = TypeVar("Built")

AT_START: Final = 5
"""Measurements of the reference at first, one after another: their spread is the noise floor."""

EVERY: Final = 8
"""Measurements after which the reference is measured again."""

_WAIT_S: Final = 0.01
"""Seconds after which is looked again whether a measurer is free."""

SUSPICIOUS: Final = 2.5
"""A latency is confirmed if it is so many times the noise below the lowest one so far."""


class Measurer(Protocol):
    """Measures schedules: the simulator, a board, an RTL model.

    Others register a factory without arguments under the entry-point group
    ``autoturbo.measurers``. An implementation answers in the order it was asked, with a
    :class:`Failure` where it could not measure.
    """

    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        """Return one outcome per schedule."""
        ...


@dataclass(frozen=True, slots=True)
class MeasurerInfo:
    """What a measurer of version 2 says of itself.

    Attributes:
        deterministic: Whether the same schedule always takes as long, to the bit.
        repeats: Timed runs of one measurement, of which the median counts.
        warm_up: Runs before these that are not counted.
        build_limit_s: Seconds for a build; None for as long as it takes.
        run_limit_s: Seconds for all runs of a measurement, likewise.
        at_once: Measurements on this computer whose runs go on at the same time, whatever number of
            processes measure; others wait, builds do not. None for any number.
    """

    deterministic: bool = False
    repeats: int = 5
    warm_up: int = 1
    build_limit_s: float | None = None
    run_limit_s: float | None = None
    at_once: int | None = None


class TimedMeasurer(Protocol[Built]):
    """Version 2: builds something of a schedule and times it; gives seconds and nothing else.

    ``schedule.model.source`` is the model's file, ``schedule.text`` the schedule as JSON,
    :func:`autoturbo.plugin.kernels_text` spells its kernels out, and
    :func:`autoturbo.apply_schedule` writes it as an ONNX model.
    """

    info: MeasurerInfo

    def build(self, schedule: Schedule) -> Built:
        """Return what is run; an exception becomes a failure of the class ``"build"``."""
        ...

    def run(self, built: Built, repeats: int) -> Sequence[float]:
        """Return the seconds of each run of the whole batch, in order."""
        ...


def info_of(measurer: object) -> MeasurerInfo | None:
    """Return what a measurer says of itself; None for the simulator and for version 1."""
    info = getattr(measurer, "info", None)
    return info if isinstance(info, MeasurerInfo) else None


@dataclass(eq=False)
class Timed:
    """Measurements of a measurer that gives seconds.

    The first schedule that it measures is its reference. Latencies are divided by how much longer
    the reference takes by now, so those of an hour ago and those of today compare.

    Attributes:
        measurer: Of version 2.
    """

    measurer: TimedMeasurer[Any]
    _reference: Any = None
    _references_s: list[float] = field(default_factory=list)
    _noise: float = 0.0
    _count: int = 0
    _least_s: float = math.inf

    @property
    def info(self) -> MeasurerInfo:
        """Return what the measurer says of itself."""
        return self.measurer.info

    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        """Return one outcome per schedule."""
        return [self._measure(schedule) for schedule in schedules]

    def _measure(self, schedule: Schedule) -> Outcome:
        info = self.info
        built = within(info.build_limit_s, lambda: self.measurer.build(schedule), "build")
        if isinstance(built, Failure):
            return built
        if not info.deterministic and not self._begun(built):
            return Failure("raised", "the reference cannot be measured")
        samples = self._samples(built)
        if isinstance(samples, Failure):
            return samples
        scale = self._drift()
        latency_s = statistics.median(samples) * scale
        if latency_s < self._least_s * (1 - SUSPICIOUS * self._noise) and self._count > 1:
            more = self._samples(built)
            if isinstance(more, Failure):
                return more
            samples = [*samples, *more]
            latency_s = statistics.median(samples) * scale
        self._least_s = min(self._least_s, latency_s)
        return measurement_of(schedule, latency_s, samples, self._noise)

    def _begun(self, built: Any) -> bool:
        """Measure the reference where it is due; return whether there is one."""
        self._count += 1
        if self._reference is None:
            taken = [
                s for _ in range(AT_START) if not isinstance(s := self._samples(built), Failure)
            ]
            if len(taken) < 2:  # noqa: PLR2004  a spread takes two
                return False
            medians = [statistics.median(samples) for samples in taken]
            self._reference, self._references_s = built, [statistics.median(medians)]
            self._noise = statistics.stdev(map(math.log, medians))
        elif self._count % EVERY == 0:
            again = self._samples(self._reference)
            if not isinstance(again, Failure):
                self._references_s.append(statistics.median(again))
        return True

    def _drift(self) -> float:
        """Return the factor by which the machine is slower now than at first, inverted.

        Of the last three references the median counts: one alone has noise of its own.
        """
        if len(self._references_s) < 2:  # noqa: PLR2004  nothing to compare with
            return 1.0
        return self._references_s[0] / statistics.median(self._references_s[-3:])

    def _samples(self, built: Any) -> list[float] | Failure:
        """Return the seconds of the timed runs, or why there are none."""
        info = self.info
        runs = info.warm_up + info.repeats
        with _turn(self.measurer, info.at_once):
            seconds = within(info.run_limit_s, lambda: self.measurer.run(built, runs), "raised")
        if isinstance(seconds, Failure):
            return seconds
        timed = [float(value) for value in seconds][info.warm_up :]
        if not timed or not all(math.isfinite(value) and value > 0 for value in timed):
            return Failure("invalid", f"the measurer returned {list(seconds)!r:.80} as seconds")
        return timed


@contextlib.contextmanager
def _turn(measurer: object, at_once: int | None) -> Iterator[None]:
    """Wait until fewer than so many other processes run something on a measurer of this kind.

    A process that is killed gives its turn back; where the system has no locks, nobody waits.
    """
    if at_once is None:
        yield
        return
    kind = f"{type(measurer).__module__}.{type(measurer).__qualname__}"
    user = os.getuid() if hasattr(os, "getuid") else 0
    name = f"autoturbo-{user}-{hashlib.sha256(kind.encode()).hexdigest()[:16]}"
    for slot in itertools.cycle(range(at_once)):
        with (Path(tempfile.gettempdir()) / f"{name}-{slot}.lock").open("ab") as file:
            try:
                lock(file.fileno())
            except BlockingIOError:
                time.sleep(_WAIT_S / at_once)
                continue
            yield
            return


def measurement_of(
    schedule: Schedule, latency_s: float, samples: Sequence[float] = (), noise: float = 0.0
) -> Measurement:
    """Return the measurement of a latency alone; what is not known is 0.

    Args:
        schedule: What was measured.
        latency_s: Seconds of the whole batch on the whole chip.
        samples: Seconds of every timed run.
        noise: Relative standard deviation of the latency; 0 where nothing varies.
    """
    bound = lower_bound(schedule.model, schedule.context.target, schedule.context.dtype)
    return Measurement(
        latency=latency_s,
        batch=schedule.model.batch,
        ddr_bytes=0,
        gb_bytes=0,
        matrix_utilization=min(bound.matrix_s / latency_s, 1.0),
        vector_utilization=min(bound.vector_s / latency_s, 1.0),
        peak_lb_bytes=0,
        peak_gb_bytes=0,
        kernels=len(schedule.order) * schedule.share.loops,
        bound=bound,
        samples=tuple(samples),
        noise=noise or None,
    )


Value = TypeVar("Value")


def within(limit_s: float | None, call: Callable[[], Value], reason: str) -> Value | Failure:
    """Return what a call returns, or the failure that it raises or takes too long.

    A call that takes too long goes on in a thread of its own: ``--timeout`` ends its process.

    Args:
        limit_s: Seconds; None for as long as it takes.
        call: The code of others.
        reason: Class of the failure where it raises.
    """
    results: list[Value | Failure] = []

    def work() -> None:
        try:
            results.append(call())
        except (Exception, SystemExit) as error:  # noqa: BLE001  code of others
            text = " ".join(str(error).split()) or "no message"
            results.append(Failure(reason, f"the measurer raised {type(error).__name__}: {text}"))

    if limit_s is None:
        work()
        return results[0]
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit_s)
    step = "build" if reason == "build" else "run"
    return results[0] if results else Failure("timeout", f"the {step} took more than {limit_s:g} s")


def as_measurer(built: Any) -> Measurer:
    """Return what gives outcomes: a measurer of version 1 itself, one of version 2 as timed."""
    timed = info_of(built) is not None and callable(getattr(built, "run", None))
    return Timed(built) if timed else built


def find_measurer(name: str) -> Measurer:
    """Return a measurer by name: :data:`~autoturbo.registry.SIMULATOR` or a plug-in's.

    Raises:
        UsageError: There is none of that name.
        PluginError: The plug-in cannot be had, or is no measurer.
    """  # noqa: DOC501  broken() makes the error
    built = as_measurer(MEASURERS.make(name))
    if not callable(getattr(built, "measure", None)):
        what = f"gives a value of type {type(built).__name__!r}, no measurer"
        raise broken(MEASURERS.find(name), what)
    measurer: Measurer = built
    return measurer


def measurer_version(name: str) -> str:
    """Return the version that tags measurements: empty for ours, else name and version.

    Raises:
        UsageError: There is none of that name.
    """
    if MEASURERS.is_ours(name):
        return ""
    version = MEASURERS.version(name)
    return f"{name}@{version}" if version else name


def asked(measurer: Measurer, schedule: Schedule) -> Outcome:
    """Return a measurer's outcome of one schedule; any error becomes a failure."""

    def ask() -> object:
        answers = measurer.measure([schedule])
        return answers[0] if len(answers) == 1 else answers

    with contextlib.redirect_stdout(sys.stderr):  # what it prints is no result of a command
        return outcome_of(ask)
