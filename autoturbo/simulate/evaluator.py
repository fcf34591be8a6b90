"""From knobs to measurements: the pipeline and the simulator behind one door."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakKeyDictionary

from autoturbo.errors import KnobsError, UsageError
from autoturbo.graph.operators import Graph, element_bytes
from autoturbo.hardware.target import Target
from autoturbo.schedule.allocate import live_peak_bytes
from autoturbo.schedule.baselines import candidates
from autoturbo.schedule.bind import Scope
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import Workbench, build_schedule
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.statistics import statistics_of
from autoturbo.schedule.timeline import Timeline, handed_over
from autoturbo.simulate.bound import weight_bytes
from autoturbo.simulate.contract import PlanStatistics
from autoturbo.simulate.measurement import Failure, Measurement, Outcome
from autoturbo.simulate.plan import plan_statistics
from autoturbo.simulate.sequence import KernelMemory, simulate


class Measurer(Protocol):
    """Measures schedules: the simulator, a board, an RTL model.

    Others register a factory without arguments under the entry-point group
    ``autoturbo.measurers``. An implementation answers in the order it was asked, with a
    :class:`Failure` where it could not measure.
    """

    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        """One outcome per schedule."""
        ...


@dataclass(eq=False)
class Simulator:
    """The built-in measurer; remembers kernels by signature and schedules by their timeline.

    Settings that differ may give one schedule: its timeline is the same object, and with the same
    instructions it measures the same.
    """

    memory: KernelMemory = field(default_factory=KernelMemory)
    known: WeakKeyDictionary[Timeline, dict[tuple[object, ...], Measurement]] = field(
        default_factory=WeakKeyDictionary
    )

    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        """Simulate each."""
        return [self._measure(schedule) for schedule in schedules]

    def _measure(self, schedule: Schedule) -> Measurement:
        known = self.known.setdefault(schedule.timeline, {})
        own = tuple(sorted(schedule.own_rules.items(), key=operator.itemgetter(0)))
        key = (schedule.share, schedule.rules, own, schedule.others)
        if key not in known:
            known[key] = simulate(schedule, self.memory)
        return known[key]


def find_measurer(name: str) -> Measurer:
    """A measurer by name: ``"simulator"`` or a plug-in's.

    Raises:
        UsageError: there is none of that name.
    """
    if name == "simulator":
        return Simulator()
    found = importlib.metadata.entry_points(group="autoturbo.measurers", name=name)
    for entry in found:
        measurer: Measurer = entry.load()()
        return measurer
    raise UsageError(f"no measurer is called {name!r}", hint="install the package that brings it")


class Evaluator:
    """Builds and measures schedules of one model on one target.

    Args:
        graph: the whole model.
        target: the accelerator.
        dtype: the compute type; the target must support it.
        measurer: the built-in simulator if None.

    Raises:
        UsageError: the target has no path for the compute type.
    """

    def __init__(
        self, graph: Graph, target: Target, dtype: str, measurer: Measurer | None = None
    ) -> None:
        if not target.supports(dtype):
            known = f"it has {', '.join(target.dtypes)}"
            raise UsageError(f"target {target.name} does not compute in {dtype}", hint=known)
        self.bench = Workbench(graph, target, dtype)
        self.measurer = measurer or Simulator()

    def schedule(self, knobs: Knobs) -> Schedule:
        """The schedule of a setting, with what the simulator expects of it.

        Raises:
            KnobsError: the setting does not fit the model.
        """
        schedule = build_schedule(self.bench, knobs)
        return _expecting(schedule, self.measure(schedule))

    def evaluate(self, knobs: Knobs) -> Outcome:
        """Build the schedule of a setting and measure it; a failure is a value."""
        try:
            return self.measure(build_schedule(self.bench, knobs))
        except KnobsError as error:
            return Failure("invalid", str(error))

    def measure(self, schedule: Schedule) -> Outcome:
        """Measure one schedule, or say why it does not fit."""
        failure = _cramped(schedule) or _overflow(schedule)
        return failure or self.measurer.measure([schedule])[0]

    def statistics(self, knobs: Knobs) -> PlanStatistics | None:
        """Cheap facts about a setting's kernels, for the cost model; None if it does not fit."""
        try:
            return PlanStatistics(*statistics_of(self.bench, knobs))
        except KnobsError:
            return None

    def anchored(self, knobs: Knobs) -> PlanStatistics | None:
        """The same with what kernels take alone, which is simulated where it is not yet known.

        Columns are :data:`autoturbo.simulate.plan.COLUMNS`.
        """
        try:
            return plan_statistics(self.bench, knobs)
        except KnobsError:
            return None

    def scheduler(self, name: str) -> tuple[Schedule, Outcome]:
        """The best that a scheduler by name can do, and what it measures.

        Raises:
            UsageError: no scheduler of that name.
        """
        tried = [(s, self.measure(s)) for s in candidates(name, self.bench)]
        schedule, outcome = min(tried, key=lambda pair: _latency(pair[1]))
        return _expecting(schedule, outcome), outcome

    def measure_scheduler(self, name: str) -> Outcome:
        """What the best schedule of a scheduler by name measures.

        Raises:
            UsageError: no scheduler of that name.
        """
        return self.scheduler(name)[1]


def _expecting(schedule: Schedule, outcome: Outcome) -> Schedule:
    known = outcome.as_json() if isinstance(outcome, Measurement) else None
    return dataclasses.replace(schedule, expected=known)


def _latency(outcome: Outcome) -> float:
    return outcome.latency if isinstance(outcome, Measurement) else float("inf")


def _cramped(schedule: Schedule) -> Failure | None:
    """The staging zone of LB must hold the tiles in flight, each a native tile of the array."""
    target = schedule.problem.target
    rules = max((schedule.rules, *schedule.own_rules.values()), key=lambda r: r.ahead)
    element = element_bytes("float32", schedule.problem.dtype)
    tile = (rules.native_rows + rules.native_columns) * target.matrix.depth * element
    demand, capacity = (rules.ahead + 1) * tile, rules.staging
    if demand <= capacity:
        return None
    message = (
        f"{rules.ahead + 1} tiles in flight need {demand} bytes of LB, {capacity} are set aside"
    )
    levers = ("a smaller prefetch_depth", "a smaller data type", "a target with a larger LB")
    return Failure("LB", message, demand, capacity, (), levers)


def _overflow(schedule: Schedule) -> Failure | None:
    """DDR is the last resort: what does not fit there does not run."""
    capacity = schedule.problem.target.ddr.capacity
    held = _weights_in_ddr(schedule.problem)
    demands = [held + _tensors_in_ddr(schedule, t) for t in schedule.timelines]
    demand = max(demands)
    if demand <= capacity:
        return None
    largest = tuple(_largest(schedule, schedule.timelines[demands.index(demand)]))
    return Failure(
        "DDR", f"DDR of a cluster holds {capacity} bytes, the schedule keeps {demand} there",
        demand, capacity, largest,
        ("fewer batches per cluster", "a smaller data type", "a target with more DDR"),
    )  # fmt: skip


def _tensors_in_ddr(schedule: Schedule, timeline: Timeline) -> int:
    """Most bytes of tensors at once; what is handed over has room for two passes."""
    peak = live_peak_bytes(timeline.buffers, Scope.DDR)
    if not schedule.others or schedule.share.loops == 1:
        return peak
    return peak + int(timeline.buffers.cluster_bytes[handed_over(timeline)].sum())


def _weights_in_ddr(problem: Problem) -> int:
    """Bytes of the weights that one pass reads, remembered with the problem."""
    found = problem.memory.get("weight bytes")
    if not isinstance(found, int):
        found = weight_bytes(problem.graph, problem.dtype)
        problem.memory["weight bytes"] = found
    return found


def _largest(schedule: Schedule, timeline: Timeline, count: int = 5) -> Iterable[str]:
    buffers = timeline.buffers
    order = (-buffers.cluster_bytes).argsort(kind="stable")[:count]
    tensors = schedule.problem.graph.tensors
    held = (timeline.names[i].tensor for i in order.tolist())
    return (tensors[tensor].name for tensor in held if tensor >= 0)


__all__ = ["Evaluator", "Measurer", "Simulator", "find_measurer"]
