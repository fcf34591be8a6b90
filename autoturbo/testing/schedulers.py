"""The contract of schedulers: schedules that compute their model.

Every check is a function of a :class:`SchedulerCase`; all of them are in :data:`SCHEDULER_CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoturbo.errors import AutoTurboError
from autoturbo.hardware.presets import load_target
from autoturbo.testing.contract import ContractError, bounded, check_all, small_networks

if TYPE_CHECKING:
    from autoturbo.hardware.target import Target
    from autoturbo.schedule.pipeline import ModelScheduler
    from autoturbo.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True)
class SchedulerCase:
    """A scheduler under test, with its claims.

    Attributes:
        make: Yields schedules of the model and the target of a model scheduler.
        target: That it schedules for; ``stcp920`` if None.
        deadline_s: Seconds after which a check is said never to end.
    """

    make: Callable[[ModelScheduler], Iterable[Schedule]]
    target: Target | None = None
    deadline_s: float = 120.0


def check_scheduler(make: Callable[[ModelScheduler], Iterable[Schedule]], **claims: Any) -> None:
    """Run every check of :data:`SCHEDULER_CHECKS`.

    Args:
        make: What is tried.
        claims: Further attributes of :class:`SchedulerCase`.

    Raises:
        ContractError: The first thing that is wrong.
    """
    check_all(SCHEDULER_CHECKS, SchedulerCase(make, **claims))


@bounded("the schedules")
def every_network_gets_schedules(case: SchedulerCase) -> None:
    """Check for at least one schedule per small network, of that network on that target."""
    from autoturbo.schedule.schedule import Schedule

    for model_scheduler in _benches(case):
        schedules = list(case.make(model_scheduler))
        if not schedules:
            raise ContractError(f"no schedule of {model_scheduler.model.name}")
        for schedule in schedules:
            if not isinstance(schedule, Schedule):
                raise ContractError(
                    f"yields a value of type {type(schedule).__name__!r}, no Schedule"
                )
            subject = (schedule.model.hash, schedule.context.chip.hash, schedule.context.dtype)
            if subject != (
                model_scheduler.model.hash,
                model_scheduler.target.hash,
                model_scheduler.dtype,
            ):
                raise ContractError(f"{model_scheduler.model.name}: a schedule of something else")


@bounded("a model")
def the_same_model_gives_the_same_schedules(case: SchedulerCase) -> None:
    """Check that schedules repeat, of the same scheduler of a model and of a new one."""
    again = [[one.text for one in case.make(model_scheduler)] for model_scheduler in _benches(case)]
    for model_scheduler, texts in zip(_benches(case), again, strict=True):
        first, second = ([one.text for one in case.make(model_scheduler)] for _ in range(2))
        if not first == second == texts:
            raise ContractError(f"{model_scheduler.model.name}: not the same schedules each time")


@bounded("the model")
def schedules_compute_their_model(case: SchedulerCase) -> None:
    """Check that regions tile every tensor and memory is safe, as ``autoturbo verify`` does."""
    from autoturbo.verifier import verify_schedule

    for schedule in _schedules(case):
        for finding in verify_schedule(schedule, numbers=False).findings:
            what = f"{finding.check.value}: {finding.message}"
            raise ContractError(f"{schedule.model.name} by {schedule.scheduler}: {what}")


@bounded("a schedule file")
def schedules_are_read_back(case: SchedulerCase) -> None:
    """Check that a schedule file's decisions give the same schedule."""
    from autoturbo.schedule.files import schedule_of

    for schedule in _schedules(case):
        try:
            read = schedule_of(schedule.text, schedule.model, schedule.context.chip, "its file")
        except AutoTurboError as error:
            raise ContractError(f"{schedule.model.name}: {error}") from error
        if read.text != schedule.text:
            raise ContractError(f"{schedule.model.name}: its file gives another schedule")


@bounded("the simulator")
def one_of_them_can_be_measured(case: SchedulerCase) -> None:
    """Check that a schedule of each network runs, and that none beats the lower bound."""
    from autoturbo.simulator.evaluator import Simulator
    from autoturbo.simulator.measurement import Measurement

    for model_scheduler in _benches(case):
        outcomes = Simulator().measure(list(case.make(model_scheduler)))
        if not any(isinstance(outcome, Measurement) for outcome in outcomes):
            raise ContractError(
                f"{model_scheduler.model.name}: none of its schedules can be simulated"
            )


SCHEDULER_CHECKS: Sequence[Callable[[SchedulerCase], None]] = (
    every_network_gets_schedules,
    the_same_model_gives_the_same_schedules,
    schedules_compute_their_model,
    schedules_are_read_back,
    one_of_them_can_be_measured,
)
"""Every check of a scheduler."""


def _benches(case: SchedulerCase) -> Iterator[ModelScheduler]:
    """Yield new schedulers of small networks."""
    from autoturbo.schedule.pipeline import ModelScheduler

    target = case.target or load_target("stcp920")
    for graph in small_networks():
        yield ModelScheduler(graph, target, target.default_dtype)


def _schedules(case: SchedulerCase) -> Iterator[Schedule]:
    return (
        schedule for model_scheduler in _benches(case) for schedule in case.make(model_scheduler)
    )
