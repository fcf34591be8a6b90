"""The contract of measurers in a tuning run.

A measurer is what :class:`autoturbo.simulator.evaluator.Measurer` says: ``measure(schedules)``
gives an outcome for each. Every check is a function of a :class:`MeasurerCase`; all of them are in
:data:`MEASURER_CHECKS`. They measure a dozen schedules of networks of a few layers, and start one
worker process.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.hardware.target import Target
from autoturbo.simulator.measurement import REASONS, Failure, Measurement, Outcome
from autoturbo.simulator.measurers import as_measurer
from autoturbo.simulator.outcomes import checked
from autoturbo.statistics import alike
from autoturbo.testing.contract import ContractError, bounded, check_all

if TYPE_CHECKING:
    from autoturbo.schedule.schedule import Schedule
    from autoturbo.simulator.evaluator import Evaluator
    from autoturbo.simulator.measurers import Measurer

_MEMORIES = ("LB", "GB", "DDR")

_DEVIATIONS = 7.0
"""Standard deviations by which outcomes may differ: the noise of few figures is found roughly."""


@dataclass(frozen=True, slots=True)
class MeasurerCase:
    """A measurer under test, with its claims.

    Attributes:
        make: Builds one; what the entry point names.
        target: What it measures for; the preset ``stcp920`` if None.
        unmeasurable: A schedule that it cannot measure, if there is one: it must say so.
        factor: How far a latency may be from the simulator's, either way, before its unit is in
            doubt; milliseconds for seconds are a factor of 1000.
        deadline_s: Seconds after which a check is said never to end.
    """

    make: Callable[[], Measurer]
    target: Target | None = None
    unmeasurable: Callable[[], Schedule] | None = None
    factor: float = 300.0
    deadline_s: float = 120.0


def check_measurer(make: Callable[[], Measurer], **claims: Any) -> None:
    """Run every check of :data:`MEASURER_CHECKS`.

    Args:
        make: Builds a measurer.
        claims: Further attributes of :class:`MeasurerCase`.

    Raises:
        ContractError: The first thing that is wrong.
    """
    check_all(MEASURER_CHECKS, MeasurerCase(make, **claims))


@bounded("measuring several schedules")
def every_schedule_gets_its_outcome(case: MeasurerCase) -> None:
    """Check for one outcome per schedule, in order, even without schedules."""
    measurer, schedules = as_measurer(case.make()), _schedules(case)
    if len(measurer.measure([])):
        raise ContractError("no schedules give outcomes")
    together = list(measurer.measure(schedules))
    if len(together) != len(schedules):
        raise ContractError(f"{len(schedules)} schedules give {len(together)} outcomes")
    alone = [_one(measurer, schedule) for schedule in schedules]
    if not all(map(_agree, zip(together, alone, strict=True))):
        raise ContractError("schedules measured together give other outcomes than one by one")


@bounded("outcomes")
def outcomes_are_sound(case: MeasurerCase) -> None:
    """Check for measurements or failures with finite numbers, which the database can keep."""
    for schedule, outcome in _measured(case):
        of = f"{schedule.model.name} by {schedule.scheduler}"
        context = checked(outcome)
        if isinstance(context, Failure) and context is not outcome:
            raise ContractError(f"{of}: {context.message}")
        _keep(context, of)


@bounded("measuring twice")
def the_same_schedule_measures_the_same(case: MeasurerCase) -> None:
    """Check that outcomes repeat: again, after others, and by a second measurer.

    To the bit, unless the measurer's info says that it varies: then within the noise that it was
    found to have.

    Raises:
        ContractError: A schedule has two different outcomes; they are listed.
    """
    first, schedules = as_measurer(case.make()), _schedules(case)
    once = [_one(first, schedule) for schedule in schedules]
    again = [_one(first, schedule) for schedule in reversed(schedules)][::-1]
    second = as_measurer(case.make())
    anew = [_one(second, schedule) for schedule in schedules]
    for schedule, *outcomes in zip(schedules, once, again, anew, strict=True):
        if not _agree(outcomes):
            seen = ", then ".join(_latency(outcome) for outcome in outcomes)
            raise ContractError(f"{schedule.model.name} by {schedule.scheduler}: {seen}")


@bounded("units")
def figures_are_in_their_units(case: MeasurerCase) -> None:
    """Check for seconds and bytes of the whole batch on the chip, above the lower bound."""
    for schedule, outcome in _measured(case):
        if isinstance(outcome, Measurement):
            _check_units(schedule, outcome, case)


@bounded("failures")
def failures_are_values(case: MeasurerCase) -> None:
    """Check that failures are values of a known class, with a line for people."""
    measurer, schedules = as_measurer(case.make()), _schedules(case)
    if case.unmeasurable is not None:
        hard = case.unmeasurable()
        if not isinstance(_one(measurer, hard), Failure):
            raise ContractError("what is said not to be measurable is measured")
        schedules = [*schedules, hard]
    for schedule in schedules:
        outcome = _one(measurer, schedule)
        if isinstance(outcome, Failure):
            _check_failure(outcome)


@bounded("a schedule")
def schedules_are_left_alone(case: MeasurerCase) -> None:
    """Check that measuring changes no schedule, since schedules share their parts."""
    measurer = as_measurer(case.make())
    for schedule in _schedules_on.__wrapped__(_target(case)):  # that nobody has had
        before = [getattr(schedule, f.name) for f in dataclasses.fields(schedule)]
        text = schedule.text
        measurer.measure([schedule])
        after = {f.name: getattr(schedule, f.name) for f in dataclasses.fields(schedule)}
        changed = [n for (n, v), was in zip(after.items(), before, strict=True) if v is not was]
        if changed or _text(schedule) != text:
            raise ContractError(f"it changes a schedule: {', '.join(changed) or 'its text'}")


@bounded("a worker process")
def workers_measure_the_same(case: MeasurerCase) -> None:
    """Check that another process can build a measurer from ``make``, with the same numbers."""
    try:
        pickle.dumps(case.make)
    except Exception as error:
        what = "make cannot be sent to a worker; name a function of a module"
        raise ContractError(f"{what}: {error}") from error
    _compare_with_worker(case)


MEASURER_CHECKS: Sequence[Callable[[MeasurerCase], None]] = (
    every_schedule_gets_its_outcome,
    outcomes_are_sound,
    the_same_schedule_measures_the_same,
    figures_are_in_their_units,
    failures_are_values,
    schedules_are_left_alone,
    workers_measure_the_same,
)
"""Every check of a measurer."""


def _target(case: MeasurerCase) -> Target:
    return load_target("stcp920") if case.target is None else case.target


def _schedules(case: MeasurerCase) -> list[Schedule]:
    """Return schedules of small networks, by the heuristic and layer by layer."""
    return list(_schedules_on(_target(case)))


@lru_cache(maxsize=8)
def _schedules_on(target: Target) -> tuple[Schedule, ...]:
    from autoturbo.schedule.by_name import candidates
    from autoturbo.testing.contract import small_networks

    model_schedulers = [
        _evaluator(None, graph, target).model_scheduler for graph in small_networks()
    ]
    return tuple(
        next(candidates(name, b)) for b in model_schedulers for name in ("graphturbo", "tvm")
    )


def _evaluator(make: Callable[[], Measurer] | None, graph: Graph, target: Target) -> Evaluator:
    from autoturbo.simulator.evaluator import Evaluator

    return Evaluator(
        graph, target, target.default_dtype, None if make is None else as_measurer(make())
    )


def _one(measurer: Measurer, schedule: Schedule) -> Outcome:
    (outcome,) = measurer.measure([schedule])
    return outcome


def _measured(case: MeasurerCase) -> Iterator[tuple[Schedule, Outcome]]:
    measurer = as_measurer(case.make())
    return ((schedule, _one(measurer, schedule)) for schedule in _schedules(case))


def _agree(outcomes: Sequence[Outcome]) -> bool:
    """Return whether outcomes of one schedule are the same, within the noise of a measurer."""
    measured = [outcome for outcome in outcomes if isinstance(outcome, Measurement)]
    noise = max((outcome.noise or 0.0 for outcome in measured), default=0.0)
    if not noise:
        return len(set(map(repr, _shown(outcomes)))) == 1
    latencies = [outcome.latency for outcome in measured]
    return len(measured) == len(outcomes) and alike(latencies, noise, _DEVIATIONS)


def _shown(outcomes: Sequence[Outcome]) -> list[object]:
    """Return outcomes in a form to compare, in which NaN equals itself."""
    return [repr(o.as_dict()) if isinstance(o, Measurement | Failure) else o for o in outcomes]


def _latency(outcome: Outcome) -> str:
    if isinstance(outcome, Measurement):
        return f"{outcome.latency!r} s"
    return str(outcome)


def _keep(outcome: Outcome, of: str) -> None:
    """Write an outcome and read it back, as the database does."""
    try:
        text = json.dumps(outcome.as_dict(), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ContractError(f"{of}: cannot be kept as JSON: {error}") from error
    if type(outcome).from_dict(json.loads(text)).as_dict() != outcome.as_dict():
        raise ContractError(f"{of}: not the same when it is read back")


def _check_units(schedule: Schedule, outcome: Measurement, case: MeasurerCase) -> None:
    from autoturbo.simulator.evaluator import Simulator

    of = f"{schedule.model.name} by {schedule.scheduler}"
    if outcome.batch != schedule.model.known_batch:
        batch = schedule.model.known_batch
        raise ContractError(f"{of}: batch {outcome.batch}, the model has {batch} samples")
    if outcome.latency < outcome.bound.seconds:
        bound = outcome.bound.seconds
        raise ContractError(f"{of}: {outcome.latency!r} s is below its lower bound, {bound!r} s")
    for name in ("matrix_utilization", "vector_utilization"):
        if not 0 <= getattr(outcome, name) <= 1:
            raise ContractError(f"{of}: {name} is {getattr(outcome, name)!r}, not from 0 to 1")
    (simulated,) = Simulator().measure([schedule])
    if isinstance(simulated, Measurement):
        ratio = outcome.latency / simulated.latency
        if not 1 / case.factor <= ratio <= case.factor:
            hint = "is it in seconds, of the whole batch?"
            raise ContractError(f"{of}: latency is {ratio:.3g} times the simulator's; {hint}")


def _check_failure(failure: Failure) -> None:
    if failure.reason not in REASONS:
        known = ", ".join(REASONS)
        raise ContractError(f"reason {failure.reason!r} is not one of {known}")
    if len(failure.message.splitlines()) != 1:
        lines = len(failure.message.splitlines())
        raise ContractError(f"a failure's message has {lines} lines: {failure.message!r}")
    if failure.reason in _MEMORIES and not (failure.demand or 0) > (failure.capacity or 0):
        sizes = f"demand {failure.demand}, capacity {failure.capacity}"
        raise ContractError(f"{failure.reason} overflows, but not by its figures: {sizes}")


def _text(schedule: Schedule) -> str:
    from autoturbo.schedule.schedule import schedule_text

    return schedule_text(schedule)


def _compare_with_worker(case: MeasurerCase) -> None:
    from autoturbo.schedule.knobs import Knobs
    from autoturbo.search.executors import ProcessExecutor, Task, measured
    from autoturbo.testing.contract import small_networks

    target, executor = _target(case), ProcessExecutor(1, case.deadline_s)
    graphs = {graph.name: graph for graph in small_networks()}
    try:
        for name, graph in graphs.items():
            executor.introduce(name, functools.partial(_evaluator, case.make, graph, target))
        tasks = [Task(name, 0, Knobs()) for name in graphs]
        by_worker = {answer.pair: answer.outcome for answer in measured(executor, tasks)}
    finally:
        executor.close()
    for name, graph in graphs.items():
        here = checked(_evaluator(case.make, graph, target).evaluate(Knobs()))
        if not _agree((here, by_worker[name])):
            raise ContractError(f"{name}: {_latency(here)} here, {_latency(by_worker[name])} there")


__all__ = ["MEASURER_CHECKS", "REASONS", "MeasurerCase", "check_measurer"]
