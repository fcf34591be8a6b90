"""Workers that are Ray actors, on this machine or on a cluster; a recipe travels to each once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from autoturbo.errors import ExecutorError, Location, UsageError
from autoturbo.search.executors.base import MakeEvaluator, Task
from autoturbo.search.executors.ray_cluster_watch import LOG
from autoturbo.search.executors.ray_session import connect, line_of, watch
from autoturbo.search.executors.worker import EvaluatorNotBuilt, WorkerEvaluators
from autoturbo.search.executors.worker_pool import START_S, Lost, Reply, Worker, WorkerPool

_OWN_RESOURCES = ("CPU", "GPU", "memory", "object_store_memory")
"""Names that Ray takes for no resource of the user's."""

SAY_S = 5.0
"""Seconds without any actor after which it is said what is waited for."""

_LOST_MACHINE = ("node has died", "node was", "its node", "ActorUnavailable", "unavailable")
"""What Ray writes where the machine was lost and not the process alone."""


class _Actor(WorkerEvaluators):
    """The worker that runs in an actor."""

    def hello(self) -> None:
        """Return once the actor runs."""

    def fetch(self, pair: str, recipe: Sequence[Any]) -> EvaluatorNotBuilt | None:
        """Build the evaluator of a pair; the reference to its recipe is fetched here."""
        import ray

        return self.prepare(pair, ray.get(recipe[0]))


@dataclass(eq=False)
class _ActorWorker(Worker):
    """An actor as the tuner sees it.

    Attributes:
        actor: Its handle.
        references: To what its orders return, in their sequence.
    """

    actor: Any
    references: deque[Any]


class _RayActors:
    """The transport to actors, with the arguments of :class:`RayExecutor`."""

    noun = "an actor"
    start_s = None  # one that finds no place may still get it

    def __init__(
        self,
        address: str | None,
        jobs: int | None,
        runtime_env: Mapping[str, Any] | None,
        resource: str | None,
    ) -> None:
        self._session = connect(address, jobs, runtime_env, resource)
        import ray

        self._ray: Any = ray
        self._errors: Any = ray.exceptions
        self._jobs, self._brings = jobs, bool(runtime_env)
        takes: Any = {"resources": {resource: 1}} if resource else {}
        self._class: Any = ray.remote(num_cpus=1, max_restarts=0, **takes)(_Actor)
        self._resource = resource or "CPU"
        self._takes = ["CPU", *([resource] if resource else [])]
        self._recipes: dict[str, Any] = {}
        self._actors = 0
        self._waited_s, self._said = 0.0, False
        with ExitStack() as failing:
            failing.callback(self._session.close)
            self.watch = watch(address)
            failing.callback(self.watch.close)
            if resource:
                self.watch.machines.check(resource)
            failing.pop_all()
        self._before = self._room()

    @property
    def width(self) -> int:
        if self._jobs is not None:
            return self._jobs
        return max(self.watch.machines.places(self._takes), 1)

    def introduce(self, pair: str, make_evaluator: MakeEvaluator) -> None:
        try:
            self._recipes[pair] = self._ray.put(make_evaluator)
        except self._errors.RayError as error:
            raise ExecutorError(f"Ray cannot keep a model: {line_of(error)}") from None
        except (TypeError, AttributeError) as error:
            raise ExecutorError(f"a pair cannot be sent to Ray: {line_of(error)}") from None

    def start(self) -> _ActorWorker:
        self._check_head()
        if not self._actors:
            self._before = self._room()
        self._actors += 1
        actor = self._class.remote()
        return _ActorWorker(actor, deque([actor.hello.remote()]))

    def prepare(self, worker: _ActorWorker, pair: str) -> None:
        worker.references.append(worker.actor.fetch.remote(pair, [self._recipes[pair]]))

    def measure(self, worker: _ActorWorker, portion: tuple[Task, ...]) -> None:
        worker.references.append(worker.actor.measure.remote(portion))

    def wait(
        self, workers: Sequence[_ActorWorker], limit_s: float
    ) -> list[tuple[_ActorWorker, Reply]]:
        self._check_head()
        began = time.monotonic()
        references = [reference for worker in workers for reference in worker.references]
        done, _ = self._ray.wait(references, num_returns=1, timeout=limit_s, fetch_local=False)
        if done and len(references) > 1:
            done, _ = self._ray.wait(
                references, num_returns=len(references), timeout=0, fetch_local=False
            )
        arrived = set(done)
        replies = [
            (worker, reply)
            for worker in workers if not arrived.isdisjoint(worker.references)
            for reply in self._replies(worker, arrived)
        ]  # fmt: skip
        if done or any(worker.ready for worker in workers):
            self._waited_s, self._said = 0.0, False
        else:
            self._check_progress(time.monotonic() - began)
        return replies

    def _replies(self, worker: _ActorWorker, arrived: Collection[Any]) -> list[Reply]:
        """Return what an actor has replied; what came before it died is no one's fault."""
        replies: list[Reply] = []
        while worker.references:
            first = worker.references[0]
            try:
                replies.append(self._ray.get(first, timeout=None if first in arrived else 0))
            except self._errors.GetTimeoutError:
                break
            except (
                self._errors.RayActorError,
                self._errors.WorkerCrashedError,
                self._errors.OutOfMemoryError,
            ) as error:
                return [*replies, _lost(error)]
            except self._errors.RayError as error:
                raise ExecutorError(f"Ray failed: {line_of(error)}") from None
            worker.references.popleft()
        return replies

    def kill(self, worker: _ActorWorker) -> None:
        self._actors -= 1
        self._ray.kill(worker.actor)  # one that is only out of reach must not go on

    def close(self) -> None:
        self.watch.close()
        self._session.close(self.watch.leaving_s)

    def _room(self) -> tuple[int, int]:
        """Return how many actors find a place in the cluster, and how many of these are free."""
        machines = self.watch.machines
        return machines.places(self._takes), machines.unused(self._takes)

    def _check_head(self) -> None:
        """Raise an error once the cluster is lost."""
        if self.watch.lost is not None:
            raise ExecutorError(self.watch.lost, hint="start Ray again")

    def _check_progress(self, waited_s: float) -> None:
        """Say what is waited for while no actor comes, and raise an error if none can start."""
        self._waited_s += waited_s
        if self._waited_s > SAY_S and not self._said:
            self._said = True
            LOG.warning("waiting for Ray: %s; 'ray status' shows more", self.waits_for())
        if self._waited_s > START_S and self.watch.machines.unused(self._takes):
            message = f"no actor of the Ray cluster has started within {START_S:g} s"
            raise ExecutorError(message, hint=f"'ray status' shows what uses its {self._resource}")

    def waits_for(self) -> str:
        (before, unused), (places, unused_now) = self._before, self._room()
        if not places:
            return "no node of the cluster has a CPU"
        # without this look back actors of our own that start would seem to be others'
        if not unused and not unused_now and places <= before:
            kind = "CPU" if self._resource == "CPU" else f"{self._resource!r}"
            return f"every {kind} of the cluster is taken ({places} in all)"
        bringing = ", which install the runtime environment" if self._brings else ""
        return f"its workers are still starting{bringing}"


def _lost(error: Exception) -> Lost:
    """Return what the end of an actor says: of its start, its memory and its machine."""
    said, line = f"{type(error).__name__} {error}", line_of(error)
    hint = None
    if "ModuleNotFound" in said or "No module named" in said:
        hint = "a machine lacks the package; '--ray-runtime-env' brings it there"
    return Lost(
        ExecutorError(f"an actor cannot start: {line}", hint=hint),
        most=1 if "creation task" in said else None,
        reason="memory" if "OutOfMemory" in said else "worker",
        excused=any(sign in said for sign in _LOST_MACHINE),
    )


class RayExecutor(WorkerPool[_ActorWorker]):
    """The executor on Ray.

    Args:
        address: Of a cluster (``host:port``, ``ray://host:port``, ``auto``); None or ``"local"``
            starts one here that ends with :meth:`close`.
        jobs: Actors; None for one per CPU of the cluster, also of machines that join later.
        timeout_s: Seconds for one measurement, None for as long as it takes.
        runtime_env: Ray's ``runtime_env`` for the actors.
        resource: A resource of the cluster of which each actor takes one, such as a board: so each
            is measured on by one actor at a time. A cluster that starts here has one per job.

    Raises:
        UsageError: Nothing answers at the address, no machine has the resource, or there is no
            library.
        ExecutorError: Ray does not start.
    """

    def __init__(
        self,
        address: str | None = None,
        jobs: int | None = None,
        timeout_s: float | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        resource: str | None = None,
    ) -> None:
        if resource in _OWN_RESOURCES:
            message = f"{resource} is a resource of Ray's own, each worker has a CPU"
            hint = "name one that 'ray start --resources' has given"
            raise UsageError(message, Location(field="--ray-resource"), hint)
        super().__init__(_RayActors(address, jobs, runtime_env, resource), timeout_s)
