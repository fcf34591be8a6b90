"""Measurers: what they implement, and how figures that vary become measurements.

A measurer of version 1 has ``measure`` and gives outcomes; it is taken at its word that the same
schedule always measures the same. One of version 2 says what it is in ``info``, builds what it runs
(:meth:`TimedMeasurer.build`) and runs it (:meth:`TimedMeasurer.run`): it gives seconds, or readings
with more, and :class:`Timed` makes measurements of them. Repeats give a median; a reference
schedule that is measured again and again gives the noise and takes out drift; a figure that is
suspiciously fast is confirmed before anybody believes it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import math
import os
import statistics
import subprocess
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
from autoturbo.registry import MEASURERS, SIMULATOR, broken
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.bound import lower_bound
from autoturbo.simulator.measurement import RESOLUTION, Failure, Measurement, Outcome
from autoturbo.simulator.noise import Drift
from autoturbo.simulator.outcomes import outcome_of
from autoturbo.simulator.sequence import subgraph_times
from autoturbo.statistics import SUSPICIOUS

Built = TypeVar("Built")

AT_START: Final = 5
"""Measurements of the reference at first, one after another: their spread is the noise floor."""

EVERY: Final = 8
"""Measurements after which the reference is measured again."""

_TOLD_S: Final = 30.0
"""Seconds within which a measurer's class has to say what it is."""

_WAIT_S: Final = 0.01
"""Seconds after which is looked again whether a measurer is free."""


class Measurer(Protocol):
    """Measures schedules: the simulator, a board, an RTL model.

    Others register a factory without arguments under the entry-point group
    ``autoturbo.measurers``. An implementation answers in the order it was asked, with a
    :class:`Failure` where it could not measure.
    """

    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        """Return one outcome per schedule."""
        ...


REPORTS: Final = ("latency", "kernels", "bytes", "energy")
"""What a measurer may report."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of one timed run, where that is more than seconds.

    Attributes:
        seconds: Seconds of the whole batch on the chip.
        kernels: Mean seconds of one launch of each kernel, in the order of ``kernels`` in the
            kernels file (``"kernels"``); empty where it is not known.
        ddr_bytes: Moved from and to DDR over the whole batch (``"bytes"``).
        energy_j: Joules of the whole batch (``"energy"``).
    """

    seconds: float
    kernels: tuple[float, ...] = ()
    ddr_bytes: int | None = None
    energy_j: float | None = None

    def lacks(self, reports: Sequence[str]) -> str:
        """Return the first reported figure that the reading lacks; empty if there is none."""
        held = {
            "latency": True,
            "kernels": bool(self.kernels),
            "bytes": self.ddr_bytes is not None,
            "energy": self.energy_j is not None,
        }
        return next((name for name in reports if not held[name]), "")


@dataclass(frozen=True, slots=True)
class MeasurerInfo:
    """Information that a measurer of version 2 gives of itself.

    Attributes:
        deterministic: Whether the same schedule always takes as long, to the bit.
        repeats: Timed runs of one measurement, of which the median counts.
        warm_up: Runs before these that are not counted.
        build_limit_s: Seconds for a build; None for as long as it takes.
        run_limit_s: Seconds for all runs of a measurement; None for as long as they take.
        at_once: Measurements on this computer whose runs go on at the same time, whatever number of
            processes measure; others wait, builds do not. None for any number.
        reports: What each run gives, of :data:`REPORTS`; with the latency alone a run gives a
            number, else a :class:`Reading`.
        cost_s: Seconds that one measurement takes, build and runs together, about: a run says
            beforehand how long it takes. None if that is not known.
    """

    deterministic: bool = False
    repeats: int = 5
    warm_up: int = 1
    build_limit_s: float | None = None
    run_limit_s: float | None = None
    at_once: int | None = None
    reports: tuple[str, ...] = ("latency",)
    cost_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse what no measurer reports."""
        for name in self.reports:
            if name not in REPORTS:
                raise ValueError(f"a measurer reports {', '.join(REPORTS)}, not {name!r}")


CHEAP_S = 0.01
"""Seconds of a measurement up to which trying neighbours costs less than choosing among them."""


class TimedMeasurer(Protocol[Built]):
    """Version 2: builds something of a schedule and times it.

    ``schedule.model.source`` is the model's file, ``schedule.text`` the schedule as JSON,
    :func:`autoturbo.plugin.kernels_text` spells its kernels out, and
    :func:`autoturbo.apply_schedule` writes it as an ONNX model.
    """

    info: MeasurerInfo

    def build(self, schedule: Schedule) -> Built:
        """Return an object to run; an exception becomes a failure of the class ``"build"``."""
        ...

    def run(self, built: Built, repeats: int) -> Sequence[float | Reading]:
        """Return the seconds of each run of the whole batch, or what else it gave, in order."""
        ...


def info_of(measurer: object) -> MeasurerInfo | None:
    """Return a measurer's information; None for the simulator and for version 1."""
    info = getattr(measurer, "info", None)
    return info if isinstance(info, MeasurerInfo) else None


@dataclass(eq=False)
class Timed:
    """Measurements of a measurer that gives seconds.

    The first schedule that it measures is its reference. Latencies are divided by how much longer
    the reference takes by now, so those of an hour ago and those of today compare.

    Attributes:
        measurer: A measurer of version 2.
    """

    measurer: TimedMeasurer[Any]
    _reference: Any = None
    _drift: Drift = field(default_factory=Drift)
    _count: int = 0
    _least_s: float = math.inf

    @property
    def info(self) -> MeasurerInfo:
        """Return the measurer's information."""
        return self.measurer.info

    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        """Return one outcome per schedule."""
        return [self._measure(schedule) for schedule in schedules]

    def _measure(self, schedule: Schedule) -> Outcome:
        info = self.info
        built = within(info.build_limit_s, lambda: self.measurer.build(schedule), "build")
        if isinstance(built, Failure):
            return built
        # What always takes as long needs no reference.
        if not info.deterministic and (failed := self._follow(built)) is not None:
            return failed
        readings = self._readings(built)
        if isinstance(readings, Failure):
            return readings
        scale, noise = math.exp(-self._drift.slower), self._drift.noise
        latency_s = _seconds(readings) * scale
        # What looks best by far is measured again: a search would build on a lucky reading.
        if latency_s < self._least_s * (1 - SUSPICIOUS * noise) and self._count > 1:
            more = self._readings(built)
            if isinstance(more, Failure):
                return more
            readings = [*readings, *more]
            latency_s = _seconds(readings) * scale
        self._least_s = min(self._least_s, latency_s)
        samples = tuple(reading.seconds for reading in readings)
        return _reported(measurement_of(schedule, latency_s, samples, noise), schedule, readings)

    def _follow(self, built: Any) -> Failure | None:
        """Measure the reference where it is due; return why there is none."""
        self._count += 1
        if self._reference is None:
            taken = [self._readings(built) for _ in range(AT_START)]
            seconds = [
                _seconds(readings) for readings in taken if not isinstance(readings, Failure)
            ]
            if len(seconds) < 2:  # noqa: PLR2004  a spread takes two
                return next(readings for readings in taken if isinstance(readings, Failure))
            self._reference = built
            self._drift.begin([math.log(value) for value in seconds])
        elif self._count % EVERY == 0:
            self._drift.note(self._logarithm)
        return None

    def _logarithm(self) -> float | None:
        """Return the logarithm of what the reference takes now; None where that fails."""
        again = self._readings(self._reference)
        return None if isinstance(again, Failure) else math.log(_seconds(again))

    def _readings(self, built: Any) -> list[Reading] | Failure:
        """Return the readings of the timed runs, or why there are none."""
        info = self.info
        runs = info.warm_up + info.repeats
        with _turn(self.measurer, info.at_once):
            given = within(info.run_limit_s, lambda: self.measurer.run(built, runs), "raised")
        if isinstance(given, Failure):
            return given
        # The runs that warm up are among those that the measurer returned.
        readings = [r if isinstance(r, Reading) else Reading(float(r)) for r in given]
        timed = readings[info.warm_up :]
        if not timed or not all(math.isfinite(r.seconds) and r.seconds > 0 for r in timed):
            return Failure("invalid", f"the measurer returned {list(given)!r:.80} as seconds")
        if missing := next(filter(None, (r.lacks(info.reports) for r in timed)), ""):
            return Failure("invalid", f"the measurer says that it reports {missing}, and does not")
        return timed


def _seconds(readings: Sequence[Reading]) -> float:
    """Return the median of the seconds of some runs."""
    return statistics.median(reading.seconds for reading in readings)


def _reported(
    measurement: Measurement, schedule: Schedule, readings: Sequence[Reading]
) -> Measurement | Failure:
    """Return a measurement with what runs gave beside seconds: the median of each figure.

    Args:
        measurement: Measurement of the latency.
        schedule: The measured schedule.
        readings: Readings of its runs.
    """
    figures: dict[str, Any] = {}
    if moved := [r.ddr_bytes for r in readings if r.ddr_bytes is not None]:
        figures["ddr_bytes"] = round(statistics.median(moved))
    if joules := [r.energy_j for r in readings if r.energy_j is not None]:
        figures["energy"] = statistics.median(joules)
    if lists := [r.kernels for r in readings if r.kernels]:
        if {len(own) for own in lists} != {len(schedule.order)}:
            count = len(lists[0])
            message = f"the measurer returned {count} kernels, the schedule has"
            return Failure("invalid", f"{message} {len(schedule.order)}")
        scale = measurement.latency / _seconds(readings)
        own = scale * np.median(np.asarray(lists, np.float64), axis=0)
        figures["subgraph_times"] = subgraph_times(schedule, np.asarray(schedule.order), own)
    return dataclasses.replace(measurement, **figures) if figures else measurement


@contextlib.contextmanager
def _turn(measurer: object, at_once: int | None) -> Iterator[None]:
    """Wait until fewer than so many other processes run something on a measurer of this kind.

    A process that is killed gives its turn back; where the system has no locks, nobody waits.
    """
    if at_once is None:
        yield
        return
    # By class and user: processes of other runs on this computer take turns too.
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
        schedule: The measured schedule.
        latency_s: Seconds of the whole batch on the whole chip.
        samples: Seconds of every timed run.
        noise: Relative standard deviation of the latency; 0 where nothing varies.
    """
    bound = lower_bound(schedule.model, schedule.context.chip, schedule.context.dtype)
    return Measurement(
        latency=latency_s,
        batch=schedule.model.known_batch,
        ddr_bytes=0,
        gb_bytes=0,
        matrix_utilization=min(bound.matrix_s / latency_s, 1.0),
        vector_utilization=min(bound.vector_s / latency_s, 1.0),
        peak_lb_bytes=0,
        peak_gb_bytes=0,
        kernels=max(len(line.order) for line in schedule.timelines) * schedule.share.loops,
        bound=bound,
        samples=tuple(samples),
        noise=noise if noise > RESOLUTION else None,
    )


Value = TypeVar("Value")


def within(limit_s: float | None, call: Callable[[], Value], reason: str) -> Value | Failure:
    """Return the result of a call, or the failure that it raises or takes too long.

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
    # A daemon, so that a call that never returns does not keep the process.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit_s)
    step = "build" if reason == "build" else "run"
    return results[0] if results else Failure("timeout", f"the {step} took more than {limit_s:g} s")


def as_measurer(built: Any) -> Measurer:
    """Return a measurer that gives outcomes: version 1 as it is, version 2 as timed."""
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


def is_cheap(name: str) -> bool:
    """Return whether a measurement takes next to no time, by what its measurer says."""
    info = declared(name)
    if info is None:
        return name == SIMULATOR
    return info.cost_s is not None and info.cost_s <= CHEAP_S


def declared(name: str) -> MeasurerInfo | None:
    """Return the information of a measurer's class, before it is used.

    It is asked in a process of its own: code of others is never imported beside a search.

    Args:
        name: Name of the measurer.

    Returns:
        None for the simulator, for version 1, and where nothing can be learned.

    Raises:
        UsageError: There is none of that name.
    """
    MEASURERS.find(name)
    if MEASURERS.is_ours(name):
        return None
    return _declared(name, tuple(sys.path))


@functools.cache  # a process takes two seconds, and a run asks ten times
def _declared(name: str, path: tuple[str, ...]) -> MeasurerInfo | None:
    """Return the information of a measurer's class where Python finds modules at ``path``."""
    told = f"sys.path[:] = {list(path)!r}; from {__name__} import tell; tell({name!r})"
    command = [sys.executable, "-c", f"import sys; {told}"]
    try:
        done = subprocess.run(  # noqa: S603  this file's own function
            command, capture_output=True, text=True, timeout=_TOLD_S, check=True
        )
        values = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None  # whatever is wrong, the worker says so
    return None if values is None else MeasurerInfo(**{**values, "reports": (*values["reports"],)})


def tell(name: str) -> None:
    """Write what a measurer's class says of itself to standard output, as JSON."""
    info = info_of(MEASURERS.load(name))
    sys.stdout.write(json.dumps(None if info is None else dataclasses.asdict(info)) + "\n")


def asked(measurer: Measurer, schedule: Schedule) -> Outcome:
    """Return a measurer's outcome for one schedule; any error becomes a failure."""

    def ask() -> object:
        answers = measurer.measure([schedule])
        return answers[0] if len(answers) == 1 else answers

    with contextlib.redirect_stdout(sys.stderr):  # what it prints is no result of a command
        return outcome_of(ask)
