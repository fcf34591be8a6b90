"""From what the user named to a schedule, and what stands in the way of one."""

from __future__ import annotations

import argparse
import dataclasses
from argparse import _MutuallyExclusiveGroup
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from autoturbo.commands.console import Moment
from autoturbo.commands.loading import AnyPair, StoredRun, opened
from autoturbo.commands.parser import OneOf, Parser, wrong
from autoturbo.errors import (
    DatabaseError,
    InfeasibleError,
    KnobsError,
    Location,
    MeasurerError,
    ScheduleFileError,
)
from autoturbo.schedule.knobs import load_knobs
from autoturbo.schema import DeferredType, Natural, TypedDict
from autoturbo.simulate.measurement import Failure, Measurement, Outcome

if TYPE_CHECKING:
    from autoturbo.database import BestFilter, BestSchedule, Database, RefusedTrial, Verified
    from autoturbo.heterogeneous.evaluator import MachineEvaluator
    from autoturbo.schedule.schedule import AnySchedule
    from autoturbo.simulate.evaluator import Evaluator


class ChosenSchedule(NamedTuple):
    """A schedule, and where it is from.

    Attributes:
        name: Of its scheduler, or ``"schedule"``, ``"knobs"``, or of its run and trial.
        schedule: Itself.
        run: Id of the run that found it, where that is known.
    """

    name: str
    schedule: AnySchedule
    run: str = ""


def add_schedule_options(parser: Parser, default: str = "graphturbo") -> _MutuallyExclusiveGroup:
    """Add what gives the schedule: a scheduler by name, a schedule file or a knobs file.

    Returns:
        The group of these options, for further ones: only one of the group may be given.
    """
    what = parser.add_mutually_exclusive_group()
    choose = OneOf("--scheduler", "autoturbo.commands.scheduling:schedulers")
    text = f"graphturbo, tvm, O0, ...; on machines partition_tuner, ... (default: {default})"
    what.add_argument("--scheduler", metavar="NAME", type=choose, help=text)
    what.add_argument("--schedule", metavar="FILE", type=Path, help="schedule file (JSON)")
    what.add_argument("--knobs", metavar="FILE", type=Path, help="knobs file (JSON)")
    return what


def chosen_schedule(
    options: argparse.Namespace,
    pair: AnyPair,
    evaluator: Evaluator | MachineEvaluator | None = None,
) -> ChosenSchedule:
    """Return the schedule that the options name; of a scheduler by name, its best one.

    Args:
        options: Of :func:`add_schedule_options`.
        pair: What it schedules.
        evaluator: Of the pair; one of its own if None.

    Raises:
        ScheduleFileError: The schedule file does not describe a schedule of the pair.
        KnobsError: The knobs file does not fit the model or the machine.
        InfeasibleError: No schedule of the scheduler fits the target.
    """
    from autoturbo.schedule.files import read_text
    from autoturbo.schedule.pipeline import build_schedule
    from autoturbo.simulate.evaluator import Evaluator

    found = evaluator or pair.evaluator()
    if options.schedule:
        text = read_text(options.schedule)
        return ChosenSchedule("schedule", _schedule_of(text, pair, options.schedule, found))
    if options.knobs:
        knobs = load_knobs(options.knobs)
        try:
            if isinstance(found, Evaluator):  # not measured twice
                return ChosenSchedule("knobs", build_schedule(found.model_scheduler, knobs))
            return ChosenSchedule("knobs", found.schedule(knobs))
        except KnobsError as error:
            at = Location(options.knobs, field=error.at.field)
            raise KnobsError(error.message, at, error.hint) from None
    name = options.scheduler or _published(pair)
    schedule, outcome = found.scheduler(name)
    required(outcome, f"{pair}: {name}")
    return ChosenSchedule(name, schedule)


def required(outcome: Outcome, of: str) -> Measurement:
    """Return the measurement of an outcome, for a command that needs one.

    Raises:
        InfeasibleError: The schedule does not fit, with demand, capacity and what would help.
        MeasurerError: Measuring itself failed.
    """
    if not isinstance(outcome, Failure):
        return outcome
    kind = InfeasibleError if outcome.infeasible else MeasurerError
    message = outcome.message
    if outcome.tensors:
        message += f" (largest tensors: {', '.join(outcome.tensors)})"
    hint = f"what would help: {'; '.join(outcome.levers)}" if outcome.levers else None
    raise kind(message, Location(field=of), hint)


def schedule_of_run(run: StoredRun, pair: AnyPair) -> ChosenSchedule:
    """Return the schedule of the run's best trial, built anew.

    Raises:
        RunError: No trial of the run fits the target.
    """
    best, info = run.best(), run.info
    name = f"run {info.id}, trial {best.number}"
    return ChosenSchedule(name, pair.evaluator().schedule(best.knobs), info.id)


def schedule_of_database(path: str, pair: AnyPair) -> ChosenSchedule:
    """Return the best schedule of the pair that a database has for this version of the scheduler.

    Raises:
        DatabaseError: It has none, and what the nearest one differs in.
    """
    from autoturbo.tuning.keys import pair_key

    asked = dataclasses.asdict(pair_key(*pair))
    with opened(path) as database:
        found = database.best(**asked)
        why = "" if found else _why_missed(database, pair, asked)
    if not found:
        hint = f"--scheduler {_published(pair)} takes the heuristic's schedule instead"
        raise DatabaseError(why, Location(path), hint)
    best = found[0]
    schedule = _schedule_of(best.schedule, pair, path)
    return ChosenSchedule(f"run {best.run}, trial {best.trial}", schedule, best.run)


def _schedule_of(
    text: str,
    pair: AnyPair,
    place: str | Path,
    evaluator: Evaluator | MachineEvaluator | None = None,
) -> AnySchedule:
    """Return what the text of a schedule file describes.

    Raises:
        ScheduleFileError: It describes no schedule of the pair, located at a place.
    """
    from autoturbo.hardware.machine import Machine
    from autoturbo.heterogeneous.evaluator import MachineEvaluator
    from autoturbo.heterogeneous.files import decided
    from autoturbo.schedule.files import schedule_of

    model, target = pair.model, pair.target
    if not isinstance(target, Machine):
        return schedule_of(text, model, target, place)
    if not isinstance(evaluator, MachineEvaluator):
        evaluator = MachineEvaluator(model, target, pair.dtype)
    return evaluator.rebuilt(decided(text, model, target, place), place)


def measured_schedule(
    text: str, pair: AnyPair, place: str | Path, evaluator: Evaluator | MachineEvaluator
) -> Outcome:
    """Return the measurement of what the text of a schedule file describes, made now.

    Args:
        text: The file's.
        pair: What it schedules.
        place: Where the text is from, for errors.
        evaluator: Of the pair.

    Returns:
        The outcome; a failure where the text describes no schedule of the pair.
    """
    from autoturbo.heterogeneous.evaluator import MachineEvaluator
    from autoturbo.heterogeneous.files import decided
    from autoturbo.schedule.files import schedule_of

    try:
        if isinstance(evaluator, MachineEvaluator):
            machine = evaluator.profiles.machine
            return evaluator.measure(decided(text, pair.model, machine, place).assignment)
        return evaluator.measure(
            schedule_of(text, pair.model, evaluator.model_scheduler.target, place)
        )
    except (ScheduleFileError, InfeasibleError, KnobsError) as error:
        return Failure("invalid", str(error))


def _published(pair: AnyPair) -> str:
    """Return the heuristic's name on a target or a machine."""
    return "graphturbo" if pair.on_target() else "partition_tuner"


CheckName = Annotated[str, DeferredType(of="autoturbo.verify.findings:CheckName")]
"""The name of a check of schedules."""

VerifiedJson = TypedDict("VerifiedJson", {
    "checks": list[CheckName], "verifier": str, "created": Moment,
})  # fmt: skip
"""Which checks found nothing wrong with a schedule, and when."""

RefusedJson = TypedDict("RefusedJson", {"trial": Natural, "verifier": str, "failures": list[str]})
"""A trial that is not handed out, and what checks found."""


def verified_json(found: Verified | None) -> VerifiedJson | None:
    """Return what checks said of a schedule as commands print it."""
    if found is None:
        return None
    checks = [check.value for check in found.checks]
    return {"checks": checks, "verifier": found.verifier, "created": found.created}


def refused_json(refused: Iterable[RefusedTrial]) -> list[RefusedJson]:
    """Return trials that are not handed out as commands print them."""
    return [
        {"trial": one.trial, "verifier": one.verifier, "failures": list(one.failures)}
        for one in refused
    ]


def best_of_database(path: str | Path, pair: AnyPair) -> BestSchedule | None:
    """Look up the fastest schedule of a pair in a database; None if there is none, or no file."""
    from autoturbo.tuning.keys import pair_key

    if not Path(path).exists():
        return None
    with opened(path) as database:
        found = database.best(**dataclasses.asdict(pair_key(*pair)))
    return min(found, key=lambda best: best.measurement.latency, default=None)


def why_no_best(path: str | Path, pair: AnyPair) -> str:
    """Return why :func:`best_of_database` gives none."""
    from autoturbo.tuning.keys import pair_key

    if Path(path).exists():
        with opened(path) as database:
            for reason in database.doubted(**dataclasses.asdict(pair_key(*pair))):
                return f"the tuned schedule is not believed: {reason}"
    return "no tuned schedule in the database"


def _why_missed(database: Database, pair: AnyPair, asked: Mapping[str, str]) -> str:
    """Explain a failed lookup by names, where they tell; equal names may stand for other things."""
    named: BestFilter = {
        "model": pair.model.name, "target": pair.target.name, "batch": pair.model.batch,
        "dtype": pair.dtype, "scheduler_version": asked["scheduler_version"],
    }  # fmt: skip
    return database.explain_miss(**(asked if database.best(**named) else named))


def require_runtime(flag: str) -> None:
    """Say before a long run that its last step cannot be done.

    Raises:
        UsageError: ONNX Runtime is not installed.
    """  # noqa: DOC501  wrong() makes the error
    if find_spec("onnxruntime") is None:
        hint = "install it with: pip install 'autoturbo[verify]'"
        raise wrong(flag, "needs ONNX Runtime, which is not installed", hint)


def schedulers() -> tuple[str, ...]:
    """Return the names of schedulers of targets, then of machines."""
    from autoturbo.hardware.machine import load_machine, machine_names
    from autoturbo.heterogeneous.evaluator import FIRST_UNIT
    from autoturbo.registry import MACHINE_SCHEDULERS, SCHEDULERS

    first = dict.fromkeys(load_machine(name).units[0].name for name in machine_names())
    ours = (*SCHEDULERS.names(), *SCHEDULERS.aliases, FIRST_UNIT, *first)
    return (*ours, *MACHINE_SCHEDULERS.names())
