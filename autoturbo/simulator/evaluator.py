"""From knobs to measurements: the pipeline and the simulator behind one door."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from autoturbo.caches import remembered
from autoturbo.errors import KnobsError, UsageError
from autoturbo.graph.operators import Graph, element_bytes
from autoturbo.hardware.target import Target
from autoturbo.registry import PUBLISHED, SCHEDULERS
from autoturbo.schedule.by_name import candidates
from autoturbo.schedule.codegen.tiling import InstructionRules
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.memory.allocate import live_peak_bytes
from autoturbo.schedule.memory.timeline import Timeline, handed_over
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.work import in_integers
from autoturbo.simulator.bound import lower_bound, weight_bytes
from autoturbo.simulator.contract import PlanStatistics
from autoturbo.simulator.measurement import (
    Failure,
    Measurement,
    Outcome,
    seconds_of,
)
from autoturbo.simulator.measurers import Measurer, asked, find_measurer
from autoturbo.simulator.outcomes import TIME_IS_UP, checked, tried
from autoturbo.simulator.plan import KernelStatistics
from autoturbo.simulator.sequence import KernelMemory, simulate


@dataclass(eq=False)
class Simulator:
    """The built-in measurer; remembers kernels by signature and schedules by their timeline.

    Different candidates may give one schedule: its timeline is the same object, and with the same
    instructions it measures the same.
    """

    memory: KernelMemory = field(default_factory=KernelMemory)
    known: WeakKeyDictionary[Timeline, dict[tuple[object, ...], Measurement]] = field(
        default_factory=WeakKeyDictionary
    )

    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        """Return the simulated measurement of each schedule."""
        return [self._measure(schedule) for schedule in schedules]

    def _measure(self, schedule: Schedule) -> Measurement:
        known = self.known.setdefault(schedule.timeline, {})
        own_rules = tuple(sorted(schedule.own_rules.items(), key=operator.itemgetter(0)))
        # Not the knobs: many settings make the same schedule.
        key = (schedule.share, schedule.rules, own_rules, schedule.timelines[1:])
        if key not in known:
            known[key] = simulate(schedule, self.memory)
        return known[key]


@dataclass(frozen=True, slots=True)
class MeasurerEvaluatorFactory:
    """Builds evaluators with a measurer by name; can be sent to workers.

    Attributes:
        measurer: Name of the measurer.
    """

    measurer: str

    def __call__(self, graph: Graph, target: Target, dtype: str) -> Evaluator:
        """Return the evaluator of a model on a target."""
        return Evaluator(graph, target, dtype, find_measurer(self.measurer))


class Evaluator:
    """Builds and measures schedules of one model on one target.

    Args:
        graph: The whole model.
        target: The accelerator.
        dtype: The compute type; the target must support it.
        measurer: The built-in simulator if None.
        elsewhere: Whether the measurer hands on what another process has measured and checked:
            what it raises is no measurement, and schedules are not measured to say what they
            expect, which takes its time there.

    Raises:
        UsageError: The target has no path for the compute type.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        dtype: str,
        measurer: Measurer | None = None,
        *,
        elsewhere: bool = False,
    ) -> None:
        if not target.supports(dtype):
            known = f"it has {', '.join(target.dtypes)}"
            raise UsageError(f"target {target.name} does not compute in {dtype}", hint=known)
        self.model_scheduler = ModelScheduler(graph, target, dtype)
        self._kernels = KernelStatistics(self.model_scheduler)
        self.measurer = measurer or Simulator()
        self._elsewhere = elsewhere
        self._heuristic: tuple[Schedule, Outcome] | None = None
        self.until = math.inf
        """By the monotonic clock, when schedulers by name have to be done with all they try."""
        self.lacking: dict[str, str] = {}
        """Why not all schedules of a named scheduler were measured, its best one perhaps among
        them: nothing is better than it for sure."""

    def schedule(self, knobs: Knobs) -> Schedule:
        """Return the schedule of a candidate, with its expected measurement if it is measured here.

        Raises:
            KnobsError: The candidate does not fit the model.
        """
        schedule = build_schedule(self.model_scheduler, knobs)
        return schedule if self._elsewhere else _expecting(schedule, self.measure(schedule))

    def evaluate(self, knobs: Knobs) -> Outcome:
        """Build the schedule of a candidate and measure it; return a failure instead of raising."""
        try:
            return self.measure(build_schedule(self.model_scheduler, knobs))
        except KnobsError as error:
            return Failure("invalid", str(error))

    def measure(self, schedule: Schedule) -> Outcome:
        """Measure one schedule, or return why it does not fit."""
        failure = _cramped(schedule) or _overflow(schedule)
        if failure is not None:
            return failure
        if self._elsewhere or isinstance(self.measurer, Simulator):
            return self.measurer.measure([schedule])[0]
        bound = lower_bound(
            self.model_scheduler.model, self.model_scheduler.target, self.model_scheduler.dtype
        )
        outcome = checked(asked(self.measurer, schedule), bound.seconds)
        if isinstance(outcome, Failure):
            return outcome
        return dataclasses.replace(outcome, program=schedule.digest)

    def program(self, knobs: Knobs) -> str | None:
        """Return the digest of a candidate's programs without measuring; None if it is invalid."""
        try:
            return build_schedule(self.model_scheduler, knobs).digest
        except KnobsError:
            return None

    def statistics(self, knobs: Knobs) -> PlanStatistics | None:
        """Return the statistics of a candidate's kernels without building it; None if invalid.

        Columns are :data:`autoturbo.simulator.plan.COLUMNS`.
        """
        if self._kernels.full:
            self._kernels = KernelStatistics(self.model_scheduler)
        return self._kernels.of_plan(knobs)

    def scheduler(self, name: str) -> tuple[Schedule, Outcome]:
        """Return the best schedule of a named scheduler and its measurement.

        Raises:
            UsageError: No scheduler of that name.
        """
        schedule, outcome = self._named(name)
        return _expecting(schedule, outcome), outcome

    def _named(self, name: str) -> tuple[Schedule, Outcome]:
        published = SCHEDULERS.find(name).name == PUBLISHED
        return self._published() if published else self._best_of(name)

    def _published(self) -> tuple[Schedule, Outcome]:
        """Return the heuristic at its best, measured once: a baseline, and trial 0 of a search."""
        if self._heuristic is None:
            self._heuristic = self._best_of(PUBLISHED, partly=True)
        return self._heuristic

    def _best_of(self, name: str, *, partly: bool = False) -> tuple[Schedule, Outcome]:
        """Return the best of a scheduler's schedules, or a timeout once :attr:`until` is over.

        Args:
            name: Name of the scheduler.
            partly: Return the best schedule measured until then, of at least one, instead of a
                timeout.
        """
        # All are kept, failures too: what was not measured is told of.
        found: list[tuple[Schedule, Outcome]] = []
        for schedule in candidates(name, self.model_scheduler):
            over = time.monotonic() > self.until and (found or not partly)
            outcome = TIME_IS_UP if over else tried(functools.partial(self.measure, schedule))
            found.append((schedule, outcome))
            if outcome is TIME_IS_UP:
                break
        self._note_lacking(name, [outcome for _, outcome in found])
        # The best of some would understate the scheduler.
        if found[-1][1] is TIME_IS_UP and not partly:
            return found[-1]
        # A failure counts as infinite; of equals the first, which is the scheduler's own order.
        return min(found, key=lambda pair: seconds_of(pair[1]))

    def _note_lacking(self, name: str, outcomes: Sequence[Outcome]) -> None:
        """Record why a scheduler's best is not known for sure, if it is not."""
        failed = [o for o in outcomes if isinstance(o, Failure) and not o.infeasible]
        if not failed:
            self.lacking.pop(name, None)
            return
        which = f"{len(failed)} of {len(outcomes)} schedules were not measured"
        if len(outcomes) == 1:
            which = "it was not measured"
        self.lacking[name] = f"{which}: {failed[0].message}"

    @property
    def known_heuristic(self) -> Outcome | None:
        """Return the outcome of the published heuristic, or None if it has not been tried."""
        return None if self._heuristic is None else self._heuristic[1]

    def heuristic(self) -> Knobs:
        """Return the published heuristic at its own best batches per cluster.

        The paper chooses them by measuring as well, for all systems that it compares.
        """
        schedule, _ = self._published()
        whole = schedule.share.batches == self.model_scheduler.share().samples
        return Knobs() if whole else Knobs(batches_per_cluster=schedule.share.batches)

    def measure_scheduler(self, name: str) -> Outcome:
        """Return the outcome of the best schedule of a named scheduler.

        It is ``"timeout"`` if :attr:`until` is over before all its schedules are measured: the best
        of some would understate the scheduler.

        Raises:
            UsageError: No scheduler of that name.
        """
        return self._named(name)[1]


def _expecting(schedule: Schedule, outcome: Outcome) -> Schedule:
    known = outcome.as_json() if isinstance(outcome, Measurement) else None
    return dataclasses.replace(schedule, expected=known)


def _cramped(schedule: Schedule) -> Failure | None:
    # More tiles in flight need more room; all kernels of a schedule have the same zone.
    rules = max((schedule.rules, *schedule.own_rules.values()), key=lambda r: r.ahead)
    return tiles_overflow(schedule.context, rules)


def tiles_overflow(context: SchedulingContext, rules: InstructionRules) -> Failure | None:
    """Return why the staging zone of LB cannot hold the tiles in flight; None if it can.

    Each is a native tile of the array.
    """
    element = element_bytes("float32", context.dtype)
    tile = (rules.native_rows + rules.native_columns) * context.target.matrix.depth * element
    demand, capacity = (rules.ahead + 1) * tile, rules.staging
    if demand <= capacity:
        return None
    message = (
        f"{rules.ahead + 1} tiles in flight need {demand} bytes of LB, {capacity} are set aside"
    )
    levers = ("a smaller prefetch_depth", "a smaller data type", "a target with a larger LB")
    return Failure("LB", message, demand, capacity, (), levers)


def _overflow(schedule: Schedule) -> Failure | None:
    """Return the failure of a schedule that exceeds DDR, the last resort; None if it fits."""
    capacity = schedule.context.target.ddr.capacity
    held = _weights_in_ddr(schedule.context)
    demands = [held + _tensors_in_ddr(schedule, t) for t in schedule.timelines]
    demand = max(demands)
    if demand <= capacity:
        return None
    largest = tuple(dict.fromkeys(_largest(schedule, schedule.timelines[demands.index(demand)])))
    return Failure(
        "DDR", f"DDR of a cluster holds {capacity} bytes, the schedule keeps {demand} there",
        demand, capacity, largest,
        ("fewer batches per cluster", "a smaller data type", "a target with more DDR"),
    )  # fmt: skip


def _tensors_in_ddr(schedule: Schedule, timeline: Timeline) -> int:
    """Return the most bytes of tensors at once; those handed over have room for two passes."""
    peak = live_peak_bytes(timeline.buffers, Scope.DDR)
    if len(schedule.timelines) == 1 or schedule.share.loops == 1:
        return peak
    # Clusters may be in different passes, so what they hand over is there twice.
    return peak + int(timeline.buffers.cluster_bytes[handed_over(timeline)].sum())


@remembered(1)
def _weights_in_ddr(context: SchedulingContext) -> int:
    """Return the bytes of the weights that one pass reads; cached with the context."""
    integers = in_integers(context.target, context.dtype)
    return weight_bytes(context.graph, context.dtype, integers=integers)


def _largest(schedule: Schedule, timeline: Timeline, count: int = 5) -> Iterable[str]:
    buffers = timeline.buffers
    order = (-buffers.cluster_bytes).argsort(kind="stable")[:count]
    tensors = schedule.context.graph.tensors
    return (tensors[tensor].name for tensor in timeline.tensor[order].tolist() if tensor >= 0)
