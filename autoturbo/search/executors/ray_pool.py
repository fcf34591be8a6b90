"""Measures in a pool of Ray actors, on this machine or on a cluster.

Every actor holds the evaluators of the pairs that it measured last; a recipe travels once to each
machine. An actor has one portion of candidates to measure and, where that takes no time, a second.
Candidates are given only to actors that have answered: one that finds no free CPU, because a
machine has gone, holds up nothing. An actor that dies is replaced and its candidates are tried
elsewhere, at once and each alone with an actor: answers under way are lost with an actor, so that
of all that it had any may have killed it, and only one that was alone has done it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from autoturbo.errors import ExecutorError, Location, UsageError
from autoturbo.search.executors.base import (
    Answer,
    MakeEvaluator,
    Pace,
    PairCache,
    RetryPolicy,
    Task,
    is_overdue,
    until_overdue,
)
from autoturbo.search.executors.processes import (
    START_S,
    STILLBORN,
    EvaluatorNotBuilt,
    WorkerEvaluators,
)
from autoturbo.search.executors.ray_session import connect, line_of, watch
from autoturbo.search.executors.ray_watch import LOG
from autoturbo.simulator.contract import CandidateEvaluator
from autoturbo.simulator.outcomes import late

_LOOK_S = 1.0
"""Seconds between looks at whether actors are overdue, the cluster has grown or its head died."""

_OWN_RESOURCES = ("CPU", "GPU", "memory", "object_store_memory")
"""Names that Ray takes for no resource of the user's."""

_SAY_S = 5.0
"""Seconds without any actor after which it is said what is waited for."""

_LOST_MACHINE = ("node has died", "node was", "its node", "ActorUnavailable", "unavailable")
"""What Ray writes where the machine was lost and not the process alone."""


class _Actor:
    """The worker that runs in an actor."""

    def __init__(self) -> None:
        self._bench = WorkerEvaluators()

    def hello(self) -> None:
        """Return once the actor runs."""

    def prepare(self, pair: str, recipe: Sequence[Any]) -> EvaluatorNotBuilt | None:
        """Build the evaluator of a pair; the reference to its recipe is fetched here."""
        import ray

        return self._bench.prepare(pair, ray.get(recipe[0]))

    def measure(self, portion: Sequence[Task]) -> list[Answer]:
        """Return the answers to a few tasks of prepared pairs."""
        return [self._bench.measure(task) for task in portion]


@dataclass(eq=False)
class _Worker:
    """An actor as the tuner sees it: orders in the sequence in which they are carried out."""

    actor: Any
    since: float = field(default_factory=time.monotonic)
    ready: bool = False
    orders: deque[Any] = field(default_factory=deque)
    held: PairCache[None] = field(default_factory=PairCache)


@dataclass(eq=False)
class _Order:
    """An order to an actor: a portion of tasks, or to start, or to build an evaluator.

    Attributes:
        alone: Whether the actor had nothing else to do and gets nothing more before it answers.
    """

    worker: _Worker
    portion: tuple[Task, ...] = ()
    alone: bool = False


class RayExecutor:
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
        self._session = connect(address, jobs, runtime_env, resource)
        import ray

        self._ray: Any = ray
        self._errors: Any = ray.exceptions
        self._all, self._jobs = jobs is None, jobs or 1
        self._timeout, self._brings = timeout_s, bool(runtime_env)
        takes: Any = {"resources": {resource: 1}} if resource else {}
        self._class = ray.remote(num_cpus=1, max_restarts=0, **takes)(_Actor)
        self._resource = resource or "CPU"
        self._takes = ["CPU", *([resource] if resource else [])]
        self._recipes: dict[str, Any] = {}
        self._workers: list[_Worker] = []
        self._orders: dict[Any, _Order] = {}
        self._pending: deque[Task] = deque()
        self._alone: deque[Task] = deque()
        self._retries, self._pace = RetryPolicy(), Pace()
        self._stillborn = 0
        self._progressed, self._before, self._said = time.monotonic(), (0, 0), False
        self._began = self._cancelled = False
        with ExitStack() as failing:
            failing.callback(self._session.close)
            self._watch = watch(address)
            failing.callback(self._watch.close)
            if resource:
                self._watch.machines.check(resource)
            failing.pop_all()
        self._count()

    @property
    def width(self) -> int:
        """Return the number of actors that there are to be."""
        return self._jobs

    @property
    def busy(self) -> bool:
        """Return whether a task waits or is being measured."""
        waiting = (self._pending or self._alone) and not self._cancelled
        return bool(waiting) or any(order.portion for order in self._orders.values())

    def introduce(
        self, pair: str, make_evaluator: MakeEvaluator, here: CandidateEvaluator | None = None
    ) -> None:
        """Put the recipe where actors can fetch it.

        Raises:
            ExecutorError: Ray cannot take it.
        """
        del here
        try:
            self._recipes[pair] = self._ray.put(make_evaluator)
        except self._errors.RayError as error:
            raise ExecutorError(f"Ray cannot keep a model: {line_of(error)}") from None
        except (TypeError, AttributeError) as error:
            raise ExecutorError(f"a pair cannot be sent to Ray: {line_of(error)}") from None

    def put(self, tasks: Sequence[Task]) -> None:
        """Queue tasks, and assign them to the actors that are ready."""
        if not self._cancelled:
            if not self.busy:
                self._progressed = time.monotonic()
            self._pending.extend(tasks)
            self._hire()
            self._launch()

    def take(self, patience: float | None = None) -> list[Answer]:
        """Return the answers that have come, or wait for the first ones.

        Raises:
            ExecutorError: Actors do not start.
        """
        end = None if patience is None else time.monotonic() + patience
        answers: list[Answer] = []
        while self.busy and not answers:
            self._hire()
            self._launch()
            left_s = None if end is None else end - time.monotonic()
            if left_s is not None and left_s <= 0:
                break
            answers = self._land(left_s)
        self._launch()
        return answers

    def withdraw(self) -> None:
        """Drop the tasks that have not begun.

        Raises:
            ExecutorError: No actor was there for any task.
        """
        dropped = bool(self._pending or self._alone)
        self._drop()
        if dropped and not self._began and not self._cancelled:
            message = f"nothing was measured: the time is up, and {self._waits_for()}"
            raise ExecutorError(message)

    def _drop(self) -> None:
        self._pending.clear()
        self._alone.clear()

    def abandon(self) -> None:
        """Drop all tasks: actors that measure are ended.

        Raises:
            ExecutorError: No actor was there for any task.
        """
        self.withdraw()
        for worker in list(self._workers):
            if any(self._orders[order].portion for order in worker.orders):
                self._end(worker)

    def cancel(self) -> None:
        """Begin no more tasks."""
        self._cancelled = True

    def close(self) -> None:
        """End the actors; Ray itself where it is ours."""
        if self._ray is None:
            return
        for worker in self._workers:
            self._ray.kill(worker.actor)
        self._watch.close()
        self._session.close(self._watch.leaving_s)
        self._workers, self._orders, self._ray = [], {}, None
        self._drop()

    def _count(self) -> None:
        """Follow the size of the cluster, where it decides on the number of actors."""
        if self._all:
            self._jobs = max(self._watch.machines.places(self._takes), 1)
        if not self._workers:
            self._before = self._room()

    def _room(self) -> tuple[int, int]:
        """Return how many actors find a place in the cluster, and how many of these are free."""
        machines = self._watch.machines
        return machines.places(self._takes), machines.unused(self._takes)

    def _check_head(self) -> None:
        """Raise an error once the cluster is lost."""
        if self._watch.lost is not None:
            raise ExecutorError(self._watch.lost, hint="start Ray again")

    def _hire(self) -> None:
        """Start actors until there are enough, and drop those that find no place."""
        self._check_head()
        self._count()
        while len(self._workers) < self._jobs:
            worker = _Worker(self._class.remote())
            self._workers.append(worker)
            self._order(worker, worker.actor.hello.remote())
        for worker in [w for w in self._workers if not w.ready][: len(self._workers) - self._jobs]:
            self._end(worker)

    def _order(
        self,
        worker: _Worker,
        reference: Any,
        portion: tuple[Task, ...] = (),
        *,
        alone: bool = False,
    ) -> None:
        if not worker.orders:
            worker.since = time.monotonic()
        worker.orders.append(reference)
        self._orders[reference] = _Order(worker, portion, alone)

    def _launch(self) -> None:
        """Give every ready actor its next portion; those with fewer come first.

        A candidate that has lost an actor goes to one with nothing else to do, which gets no more.
        """
        if self._cancelled:
            return
        for worker in self._workers:
            if worker.ready and not worker.orders and self._alone:
                self._give_alone(worker)
        for depth in range(1, (1 if self._alone else self._pace.depth) + 1):
            for worker in self._workers:
                more = worker.ready and len(worker.orders) < depth and self._pending
                if more and not any(self._orders[order].alone for order in worker.orders):
                    self._give(worker, self._portion())

    def _give_alone(self, worker: _Worker) -> None:
        """Measure a task alone; its pair's evaluator is built first, which is no task's fault."""
        if self._prepare(worker, self._alone[0].pair):
            return
        task = self._alone.popleft()
        self._order(worker, worker.actor.measure.remote((task,)), (task,), alone=True)

    def _portion(self) -> tuple[Task, ...]:
        """Return the next tasks of one pair; a single one while the pair is timed."""
        fair = len(self._pending) // (2 * max(len(self._workers), 1))
        size = 1 if self._timeout else max(min(self._pace.portion, fair), 1)
        portion = [self._pending.popleft()]
        while self._pending and len(portion) < size and self._pending[0].pair == portion[0].pair:
            portion.append(self._pending.popleft())
        return tuple(portion)

    def _give(self, worker: _Worker, portion: tuple[Task, ...]) -> None:
        self._prepare(worker, portion[0].pair)
        self._order(worker, worker.actor.measure.remote(portion), portion)

    def _prepare(self, worker: _Worker, pair: str) -> bool:
        """Let an actor build a pair's evaluator; return False where it holds it."""
        lacks = worker.held.lacks(pair)
        if lacks:
            self._order(worker, worker.actor.prepare.remote(pair, [self._recipes[pair]]))
        return lacks

    def _land(self, patience: float | None) -> list[Answer]:
        """Wait for the first finished order, and return the answers of all finished ones."""
        references = list(self._orders)
        wait = [limit for limit in (patience, self._until_overdue()) if limit is not None]
        limit = min([*wait, _LOOK_S])
        done, _ = self._ray.wait(references, num_returns=1, timeout=limit, fetch_local=False)
        if done and len(references) > 1:
            done, _ = self._ray.wait(
                references, num_returns=len(references), timeout=0, fetch_local=False
            )
        answers: list[Answer] = []
        for reference in done:
            if reference in self._orders:
                answers += self._result(reference)
        for worker in list(self._workers):
            if self._overdue(worker):
                answers += self._dismiss(worker)
        self._check_progress(bool(done))
        return answers

    def _check_progress(self, progressed: bool) -> None:
        """Say what is waited for while no actor comes, and raise an error if none can start."""
        now = time.monotonic()
        if any(worker.ready for worker in self._workers):
            self._began, self._said = True, False
            progressed = True
        if progressed:
            self._progressed = now
            return
        waited = now - self._progressed
        if waited > _SAY_S and not self._said:
            self._said = True
            LOG.warning("waiting for Ray: %s; 'ray status' shows more", self._waits_for())
        if waited > START_S and self._watch.machines.unused(self._takes):
            message = f"no actor of the Ray cluster has started within {START_S:g} s"
            raise ExecutorError(message, hint=f"'ray status' shows what uses its {self._resource}")

    def _waits_for(self) -> str:
        """Return why there is no actor yet."""
        (before, unused), (places, unused_now) = self._before, self._room()
        if not places:
            return "no node of the cluster has a CPU"
        # without this look back actors of our own that start would seem to be others'
        if not unused and not unused_now and places <= before:
            kind = "CPU" if self._resource == "CPU" else f"{self._resource!r}"
            return f"every {kind} of the cluster is taken ({places} in all)"
        bringing = ", which install the runtime environment" if self._brings else ""
        return f"its workers are still starting{bringing}"

    def _result(self, reference: Any) -> list[Answer]:
        order = self._orders[reference]
        try:
            value = self._ray.get(reference)
        except (self._errors.RayActorError, self._errors.WorkerCrashedError) as error:
            return self._bury(order.worker, error)
        except self._errors.OutOfMemoryError as error:
            return self._bury(order.worker, error, "memory")
        except self._errors.RayError as error:
            raise ExecutorError(f"Ray failed: {line_of(error)}") from None
        if isinstance(value, EvaluatorNotBuilt):
            raise value.raised_by("an actor")
        del self._orders[reference]
        worker = order.worker
        worker.orders.remove(reference)
        before, worker.since = worker.since, time.monotonic()
        worker.ready = True
        if not order.portion:
            return []
        self._pace.note((worker.since - before) / len(order.portion))
        return self._accept(value)

    def _accept(self, answers: list[Answer]) -> list[Answer]:
        """Record answers: their candidates kill no actor, and actors do start."""
        self._stillborn = 0
        for answer in answers:
            self._retries.acquit(answer)
        return answers

    def _remove(self, worker: _Worker) -> list[_Order]:
        """Remove an actor and return its orders, in the sequence in which they were given."""
        self._workers.remove(worker)
        return [self._orders.pop(reference) for reference in worker.orders]

    def _bury(self, worker: _Worker, error: Exception, reason: str = "worker") -> list[Answer]:
        """Remove a dead actor: its tasks go elsewhere at once, each alone."""
        answers = self._arrived(worker)
        orders = self._remove(worker)
        guilty = not any(sign in f"{type(error).__name__} {error}" for sign in _LOST_MACHINE)
        if guilty and "OutOfMemory" in str(error):
            reason = "memory"
        if orders and not orders[0].portion and guilty:
            self._count_stillborn(error)
        self._ray.kill(worker.actor)  # one that is only out of reach must not go on
        again: list[Task] = []
        for order in orders:
            for task in order.portion:
                verdict = self._retries.verdict(task, reason, guilty=guilty and order.alone)
                if verdict is None:
                    again.append(task)
                else:
                    answers.append(verdict)
        if not self._cancelled:
            self._alone.extendleft(reversed(again))
        return answers

    def _arrived(self, worker: _Worker) -> list[Answer]:
        """Return the answers that came before an actor died: they are no one's fault."""
        answers: list[Answer] = []
        for reference in list(worker.orders):
            try:
                value = self._ray.get(reference, timeout=0)
            except self._errors.RayError:  # lost, or not there yet
                break
            order = self._orders.pop(reference)
            worker.orders.remove(reference)
            answers += self._accept(value) if order.portion else []
        return answers

    def _count_stillborn(self, error: Exception) -> None:
        """Count actors that die at their start: some may be killed from outside, but not all."""
        self._stillborn += 1
        if self._stillborn < STILLBORN and "creation task" not in str(error):
            return
        hint = None
        if "ModuleNotFound" in str(error) or "No module named" in str(error):
            hint = "a machine lacks the package; '--ray-runtime-env' brings it there"
        raise ExecutorError(f"an actor cannot start: {line_of(error)}", hint=hint)

    def _end(self, worker: _Worker) -> list[_Order]:
        orders = self._remove(worker)
        self._ray.kill(worker.actor)
        return orders

    def _dismiss(self, worker: _Worker) -> list[Answer]:
        """End and replace an actor that takes too long."""
        first, *others = self._end(worker)
        if not self._cancelled:
            self._pending.extendleft(reversed([task for order in others for task in order.portion]))
        if not first.portion:
            raise ExecutorError(f"an actor has not built its evaluator within {START_S:g} s")
        return [
            Answer(task.pair, task.number, late(self._timeout or 0.0)) for task in first.portion
        ]

    def _limit(self, worker: _Worker) -> float | None:
        """Return the seconds that an actor may take for its order; None without limit."""
        if not worker.ready or not worker.orders:
            return None  # one that finds no place may still get it
        return self._timeout if self._orders[worker.orders[0]].portion else START_S

    def _overdue(self, worker: _Worker) -> bool:
        return is_overdue(worker.since, self._limit(worker))

    def _until_overdue(self) -> float | None:
        return until_overdue((w.since, self._limit(w)) for w in self._workers)
