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

import numpy as np

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

LATEST: Final = 64
"""Measurements of the reference after the first ones from which drift is estimated."""

WALKS: Final = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 10.0)
"""Standard deviations of the drift between two of these, over their noise, that are weighed."""

OUTLYING: Final = 4.0
"""Such a measurement is made again if it is so many times the noise off."""

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
class Drift:
    """How much slower a machine is than at first, and how noisy, by a reference measured again.

    The logarithms of what the reference takes are a random walk from where they began, with noise:
    how far the walk goes, next to the noise, is weighed by how well each of a few guesses explains
    them all. So a machine that does not drift is not corrected by the noise of its reference.

    Attributes:
        slower: Logarithm of how many times as long everything takes by now.
        noise: Standard deviation of a logarithm.
    """

    slower: float = 0.0
    noise: float = 0.0
    _logarithms: list[float] = field(default_factory=list)
    _at: list[int] = field(default_factory=list)

    def begin(self, logarithms: Sequence[float]) -> None:
        """Take measurements of the reference made one after another; at least two."""
        self._logarithms, self._at = list(logarithms), [0] * len(logarithms)
        self._follow()

    def note(self, measure: Callable[[], float | None]) -> None:
        """Measure the reference again; twice where it is far off, for that may be an outlier.

        Args:
            measure: Returns the logarithm of what it takes; None where that fails.
        """
        taken = measure()
        if taken is not None and self._off(taken) > OUTLYING * self.noise:
            taken = min((v for v in (taken, measure()) if v is not None), key=self._off)
        if taken is not None:
            self._logarithms.append(taken)
            self._at.append(self._at[-1] + 1)
            self._follow()

    def _off(self, taken: float) -> float:
        """Return how far a logarithm is from what is expected now."""
        first = self._logarithms[: self._at.count(0)]
        return abs(taken - statistics.median(first) - self.slower)

    def _follow(self) -> None:
        """Estimate drift and noise anew from the first measurements and the last ones."""
        first = self._at.count(0)
        logarithms = np.asarray(self._logarithms[:first] + self._logarithms[first:][-LATEST:])
        at = np.asarray(self._at[:first] + self._at[first:][-LATEST:], np.float64)
        ones, count = np.ones(len(at)), len(at)
        slower, noise, evidence = [], [], []
        for walk in WALKS:
            inverse = np.linalg.inv(np.eye(count) + walk**2 * np.minimum.outer(at, at))
            precision = float(ones @ inverse @ ones)
            off = logarithms - float(ones @ inverse @ logarithms) / precision
            variance = float(off @ inverse @ off) / (count - 1)
            slower.append(float(walk**2 * np.minimum(at, at[-1]) @ inverse @ off))
            noise.append(math.sqrt(variance))
            sizes = float(np.linalg.slogdet(inverse)[1]) - math.log(precision)
            evidence.append(0.5 * (sizes - (count - 1) * math.log(max(variance, 1e-30))))
        weights = np.exp(np.asarray(evidence) - max(evidence))
        self.slower = float(weights @ slower / weights.sum())
        self.noise = float(weights @ noise / weights.sum())


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
    _drift: Drift = field(default_factory=Drift)
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
        scale, noise = math.exp(-self._drift.slower), self._drift.noise
        latency_s = statistics.median(samples) * scale
        if latency_s < self._least_s * (1 - SUSPICIOUS * noise) and self._count > 1:
            more = self._samples(built)
            if isinstance(more, Failure):
                return more
            samples = [*samples, *more]
            latency_s = statistics.median(samples) * scale
        self._least_s = min(self._least_s, latency_s)
        return measurement_of(schedule, latency_s, samples, noise)

    def _begun(self, built: Any) -> bool:
        """Measure the reference where it is due; return whether there is one."""
        self._count += 1
        if self._reference is None:
            taken = [
                s for _ in range(AT_START) if not isinstance(s := self._samples(built), Failure)
            ]
            if len(taken) < 2:  # noqa: PLR2004  a spread takes two
                return False
            self._reference = built
            self._drift.begin([math.log(statistics.median(samples)) for samples in taken])
        elif self._count % EVERY == 0:
            self._drift.note(self._logarithm)
        return True

    def _logarithm(self) -> float | None:
        """Return the logarithm of what the reference takes now; None where that fails."""
        again = self._samples(self._reference)
        return None if isinstance(again, Failure) else math.log(statistics.median(again))

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
