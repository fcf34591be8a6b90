"""The interface that the search needs of an evaluator of candidates.

A protocol, not a base class: the tuner hands an evaluator to executors, tests hand in doubles that
fail, hang or return nonsense, and neither side imports the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autoturbo.graph.operators import Graph
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.simulator.measurement import Outcome


@dataclass(frozen=True, slots=True, eq=False)
class PlanStatistics:
    """Statistics of a candidate's kernels before a schedule is built: the cost model's input.

    Attributes:
        values: One row per sub-graph, one column per name in
            :data:`autoturbo.simulator.plan.COLUMNS`, or more; float64.
        launches: Launches of each sub-graph's kernel by one cluster over the whole batch.
        overrides: Knobs of their own that sub-graphs have, by row.
    """

    values: NDArray[np.float64]
    launches: NDArray[np.int64]
    overrides: Mapping[int, SubGraphKnobs] = field(default_factory=dict)


class CandidateEvaluator(Protocol):
    """An evaluator that measures candidates of one model on one target."""

    def evaluate(self, knobs: Knobs) -> Outcome:
        """Build the schedule and measure it; return a failure, never raise an exception."""
        ...

    def statistics(self, knobs: Knobs) -> PlanStatistics | None:
        """Return cheap statistics of the candidate's kernels; None if it has no plan."""
        ...


class Scheduled(Protocol):
    """A schedule that can be kept."""

    @property
    def text(self) -> str:
        """Return the canonical JSON."""
        ...


class TuningEvaluator(CandidateEvaluator, Protocol):
    """Methods that the tuner needs of an evaluator besides measuring."""

    def schedule(self, knobs: Knobs) -> Scheduled:
        """Return the schedule of a candidate."""
        ...

    def heuristic(self) -> Knobs:
        """Return the published heuristic at its best: trial 0 of a search."""
        ...

    def measure_scheduler(self, name: str) -> Outcome:
        """Return the measurement of the best schedule of another scheduler."""
        ...


EvaluatorFactory = Callable[[Graph, Any, str], TuningEvaluator]
"""Builds an evaluator of a model on a target or a machine.

It is sent to workers, so it is a class or a function of a module.
"""
