"""Measures for the tuner's own process, by a pool."""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autoturbo.errors import ExecutorError
from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.registry import SIMULATOR
from autoturbo.search.executors.base import Executor, Task
from autoturbo.search.executors.processes import ProcessExecutor
from autoturbo.simulator.evaluator import Evaluator, MeasurerEvaluatorFactory
from autoturbo.simulator.measurement import Outcome
from autoturbo.simulator.measurers import measurer_version
from autoturbo.simulator.outcomes import TIME_IS_UP

if TYPE_CHECKING:
    from autoturbo.schedule.schedule import Schedule


@dataclass(eq=False)
class RemoteEvaluator:
    """The measurer of a pair for the tuner's own process, which leaves measuring to a pool.

    So code of others never runs beside the search: it can end or hold up a worker at most.

    Attributes:
        pair: As the pool knows it.
        executor: The pool, which does nothing else while this one measures.
    """

    pair: str
    executor: Executor | None = None
    _until: float = math.inf
    _first: float = math.inf
    _asked: int = 0
    _least_s: float = 0.0
    _took_s: list[float] = field(default_factory=list)

    @property
    def typical_s(self) -> float:
        """Return the median seconds that measurements have taken; 0 before the first."""
        return statistics.median(self._took_s) if self._took_s else 0.0

    def end_by(self, when: float, first: float | None = None) -> None:
        """End measurements under way at a time of the monotonic clock.

        How long measurements take is learned anew: those before may have had to start a worker.

        Args:
            when: The time.
            first: Another one for the first measurement.
        """
        self._until, self._least_s = when, 0.0
        self._first = when if first is None else first

    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        """Measure schedules on the workers of the pool, one by one.

        Returns:
            An outcome per schedule, in order; :data:`TIME_IS_UP` for those that would not end in
            time.

        Raises:
            ExecutorError: No worker can be had.
            PluginError: The measurer cannot be had.
        """
        return [self._measure(schedule) for schedule in schedules]

    def _measure(self, schedule: Schedule) -> Outcome:
        began, pool, until = time.monotonic(), self.executor, self._first
        self._first = self._until
        if began + self._least_s > until:
            return TIME_IS_UP
        if pool is None:
            raise ExecutorError(f"nothing measures for {self.pair} yet")
        self._asked += 1
        pool.put([Task(self.pair, -self._asked, schedule.knobs, schedule)])  # trials are from 0 on
        while pool.busy and time.monotonic() < until:
            left_s = None if until == math.inf else max(until - time.monotonic(), 0.0)
            for answer in pool.take(left_s):
                took = time.monotonic() - began
                self._least_s = min(self._least_s or took, took)
                self._took_s.append(took)
                return answer.outcome
        pool.abandon()
        return TIME_IS_UP


def evaluator_by(measurer: str, graph: Graph, target: Target, dtype: str) -> Evaluator:
    """Return the evaluator of a model with a measurer by name.

    One that is plugged in measures in a process of its own, which ends with this one.

    Args:
        measurer: Its name.
        graph: The whole model.
        target: The accelerator.
        dtype: The compute type.

    Raises:
        UsageError: There is no such measurer, or the target has no path for the compute type.
    """
    if measurer == SIMULATOR:
        return Evaluator(graph, target, dtype)
    measurer_version(measurer)  # which there must be
    pool = ProcessExecutor(1)
    pool.introduce(
        measurer, functools.partial(MeasurerEvaluatorFactory(measurer), graph, target, dtype)
    )
    return Evaluator(graph, target, dtype, RemoteEvaluator(measurer, pool), elsewhere=True)
