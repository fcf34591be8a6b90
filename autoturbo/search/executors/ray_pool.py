"""Measures in a pool of Ray actors, on this machine or on a cluster.

Actors get the evaluator's recipe once and then batches of knobs; an actor that dies is replaced and
its settings are tried elsewhere, once each and one by one, so that one poison setting takes no
others with it.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoturbo.errors import ExecutorError, UsageError
from autoturbo.search.executors.base import TRIES, MakeEvaluator, Numbered, guarded, late, lost
from autoturbo.simulate.measurement import Outcome

LOCAL = "local"
"""The address that means: start a Ray of our own on this machine."""

_CONNECT_S = 3.0
"""Seconds for a cluster's port to answer."""

_HEALTH_S = 10.0
"""Seconds for a cluster to say that it is one."""

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
}
"""No usage statistics, no advice on standard error."""


class _Measures:
    """What runs in an actor."""

    def __init__(self, make_evaluator: MakeEvaluator) -> None:
        self._evaluator = make_evaluator()

    def measure(self, batch: Sequence[Numbered]) -> list[tuple[int, Outcome]]:
        """Outcomes of a few settings."""
        return [(number, guarded(self._evaluator, knobs)) for number, knobs in batch]


@dataclass(eq=False)
class _Flight:
    """A batch on its way."""

    actor: Any
    batch: tuple[Numbered, ...]
    since: float


class RayPool:
    """The executor on Ray.

    Args:
        make_evaluator: called once in each actor.
        address: of a cluster (``host:port``, ``ray://host:port``, ``auto``); None or ``"local"``
            starts one here that ends with :meth:`close`.
        jobs: actors; None for one per CPU of the cluster.
        timeout_s: seconds for one measurement, None for as long as it takes.

    Raises:
        UsageError: nothing answers at the address.
        ExecutorError: Ray does not start.
    """

    def __init__(
        self,
        make_evaluator: MakeEvaluator,
        address: str | None = None,
        jobs: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self._owner = connect(address, jobs)
        import ray

        self._ray: Any = ray
        self._recipe = ray.put(make_evaluator)
        self._jobs = jobs or max(int(self._ray.cluster_resources().get("CPU", 1)), 1)
        self._timeout = timeout_s
        self._actor = self._ray.remote(num_cpus=1, max_restarts=0)(_Measures)
        self._idle: list[Any] = []
        self._flights: dict[Any, _Flight] = {}
        self._pending: deque[tuple[Numbered, ...]] = deque()
        self._tries: dict[int, int] = {}
        self._cancelled = False
        self._known: set[Any] = set()

    def submit(self, batch: Sequence[Numbered]) -> Iterator[tuple[int, Outcome]]:
        """Outcomes as they come.

        Raises:
            ExecutorError: actors do not start.
        """
        self._pending = deque() if self._cancelled else self._portions(batch)
        self._tries = {}
        while self._pending or self._flights:
            self._launch()
            yield from self._land()

    def cancel(self) -> None:
        """Begin nothing new."""
        self._cancelled = True
        self._pending.clear()

    def close(self) -> None:
        """End the actors; Ray itself where it is ours."""
        if self._ray is None:
            return
        for actor in [*self._idle, *(f.actor for f in self._flights.values())]:
            self._ray.kill(actor)
        if self._owner:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)  # Ray's own pipes
                self._ray.shutdown()
        self._idle, self._flights, self._ray = [], {}, None

    def _portions(self, batch: Sequence[Numbered]) -> deque[tuple[Numbered, ...]]:
        """Two portions an actor: few round trips, and the slow ones are made up for."""
        size = 1 if self._timeout else max(len(batch) // (2 * self._jobs), 1)
        return deque(tuple(batch[i : i + size]) for i in range(0, len(batch), size))

    def _launch(self) -> None:
        """Give every free actor a portion."""
        while self._pending and (self._idle or len(self._flights) < self._jobs):
            actor = self._idle.pop() if self._idle else self._actor.remote(self._recipe)
            portion = self._pending.popleft()
            reference = actor.measure.remote(portion)
            self._flights[reference] = _Flight(actor, portion, time.monotonic())

    def _land(self) -> Iterator[tuple[int, Outcome]]:
        """Wait for the first portion and pass it on."""
        done, _ = self._ray.wait(list(self._flights), num_returns=1, timeout=self._patience())
        for reference in done:
            yield from self._result(reference, self._flights.pop(reference))
        for reference, flight in list(self._flights.items()):
            if self._overdue(flight):
                del self._flights[reference]
                self._ray.kill(flight.actor)
                yield flight.batch[0][0], late(self._timeout or 0.0)

    def _result(self, reference: Any, flight: _Flight) -> Iterator[tuple[int, Outcome]]:
        errors = self._ray.exceptions
        try:
            outcomes = self._ray.get(reference)
        except (errors.RayActorError, errors.WorkerCrashedError, errors.OutOfMemoryError) as error:
            yield from self._again(flight, error)
            return
        except errors.RayError as error:
            raise ExecutorError(f"Ray failed: {_line(error)}") from None
        self._idle.append(flight.actor)
        self._known.add(flight.actor)
        yield from outcomes

    def _again(self, flight: _Flight, error: Exception) -> Iterator[tuple[int, Outcome]]:
        """An actor is dead: its settings go elsewhere, one by one, once."""
        if "__init__" in str(error) or "creation task" in str(error):
            raise ExecutorError(f"an actor cannot build its evaluator: {_line(error)}")
        for task in flight.batch:
            self._tries[task[0]] = self._tries.get(task[0], 0) + 1
            if self._tries[task[0]] >= TRIES:
                yield task[0], lost(TRIES)
            else:
                self._pending.append((task,))

    def _overdue(self, flight: _Flight) -> bool:
        return self._timeout is not None and self._age(flight) > self._timeout

    def _age(self, flight: _Flight) -> float:
        """Seconds in measurement; an actor that is still starting gets time for that."""
        start = 0.0 if flight.actor in self._known else 60.0
        return time.monotonic() - flight.since - start

    def _patience(self) -> float | None:
        if self._timeout is None:
            return None
        left = min(self._timeout - self._age(flight) for flight in self._flights.values())
        return max(left, 0.0) + 0.01


def connect(address: str | None, jobs: int | None = None) -> bool:
    """Connect to Ray, or start one; True where it is ours to end.

    Raises:
        UsageError: nothing answers at the address.
        ExecutorError: Ray does not start.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    local = address in (None, "", LOCAL)
    if not local:
        _probe(str(address))
    import ray

    if ray.is_initialized():
        return False
    where: dict[str, Any] = {"address": LOCAL if local else address}
    if local:
        where |= {"num_cpus": jobs, "include_dashboard": False}
    try:
        with warnings.catch_warnings(), _same_path(local=local):
            warnings.simplefilter("ignore")
            ray.init(**where, log_to_driver=False, logging_level=logging.CRITICAL)
    except ConnectionError as error:
        raise _unreachable(str(address), _line(error)) from None
    except (OSError, RuntimeError, ValueError) as error:
        raise ExecutorError(f"Ray does not start: {_line(error)}") from None
    _hush()
    return True


def _hush() -> None:
    """Keep Ray from printing to standard output.

    Whatever ``log_to_driver`` says, it prints there when a worker dies, in the middle of what a
    script reads under ``--json``; what happened is in the outcome. No public setting stops it.
    """
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = _print_nothing


def _print_nothing(*_: object, **__: object) -> None:
    """What takes the place of Ray's own printing."""


@contextmanager
def _same_path(*, local: bool) -> Iterator[None]:
    """Workers of our own Ray import what this process imports; those of a cluster what is there."""
    before = os.environ.get("PYTHONPATH")
    if local:
        os.environ["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    try:
        yield
    finally:
        if before is not None:
            os.environ["PYTHONPATH"] = before
        elif local:
            del os.environ["PYTHONPATH"]


def _probe(address: str) -> None:
    """Refuse an address where nothing listens, long before Ray would."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"{address!r} is not a Ray address", hint="for example 10.0.0.1:6379")
    try:
        with closing(socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S)):
            pass
    except (OSError, OverflowError) as error:
        raise _unreachable(address, _line(error)) from None
    if not address.startswith("ray://"):
        _ask_health(address)


def _ask_health(address: str) -> None:
    """Ray itself would try for minutes, and write all the while, where something else listens."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        done = subprocess.run(  # noqa: S603  our interpreter, and an address already parsed
            command, capture_output=True, check=False, timeout=_HEALTH_S
        )
    except subprocess.TimeoutExpired:
        raise _unreachable(address, "what listens there is not Ray") from None
    if done.returncode:
        reason = _line(RuntimeError(done.stderr.decode("utf-8", "replace")))
        raise _unreachable(address, reason) from None


def _unreachable(address: str, reason: str) -> UsageError:
    hint = "'ray start --head' starts a cluster; without an address a local one is started"
    return UsageError(f"no Ray cluster answers at {address}: {reason}", hint=hint)


def _line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
