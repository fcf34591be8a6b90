"""From what the user named to a schedule, and what stands in the way of one."""

from __future__ import annotations

import argparse
import dataclasses
import math
from argparse import _MutuallyExclusiveGroup
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

from autoturbo.commands.console import Moment
from autoturbo.commands.flag_values import OneOf, wrong
from autoturbo.commands.loading import SIMULATOR, AnyPair
from autoturbo.commands.parser import Parser
from autoturbo.commands.stored_runs import StoredRun, opened
from autoturbo.errors import (
    DatabaseError,
    InfeasibleError,
    KnobsError,
    Location,
    MeasurerError,
    ModelError,
    RefusedError,
    ScheduleFileError,
    UsageError,
    did_you_mean,
)
from autoturbo.extras import how_to_install
from autoturbo.graph.operators import Graph
from autoturbo.schedule.knobs import Knobs, knobs_of_file, load_knobs
from autoturbo.schema import DeferredType, Natural, TypedDict
from autoturbo.simulator.measurement import Failure, Measurement, Outcome, seconds_of

if TYPE_CHECKING:
    from autoturbo.database import BestFilter, BestSchedule, Database, RefusedTrial, Verified
    from autoturbo.database.misses import Miss
    from autoturbo.heterogeneous.evaluator import MachineEvaluator
    from autoturbo.schedule.schedule import AnySchedule, Schedule
    from autoturbo.simulator.evaluator import Evaluator

    Setting: TypeAlias = Knobs | Mapping[str, Any] | AnySchedule | str | PathLike[str] | None


class AdaptedJson(TypedDict):
    """A schedule made from the settings of another batch, beside the heuristic, simulated."""

    batch: Natural
    latency_s: float
    heuristic_s: float | None


class ChosenSchedule(NamedTuple):
    """A schedule, and where it is from.

    Attributes:
        name: Name of its scheduler, or ``"schedule"``, ``"knobs"``, or its run and trial.
        schedule: The schedule.
        run: Id of the run that found it, where that is known.
        adapted: Comparison with the heuristic, where its settings are those of another batch.
    """

    name: str
    schedule: AnySchedule
    run: str = ""
    adapted: AdaptedJson | None = None


def add_schedule_options(parser: Parser, default: str = "graphturbo") -> _MutuallyExclusiveGroup:
    """Add what gives the schedule: a scheduler by name, a schedule file or a knobs file.

    Returns:
        The group of these options, for further ones: only one of the group may be given.
    """
    what = parser.group("which schedule").add_mutually_exclusive_group()
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
        options: Options that :func:`add_schedule_options` adds.
        pair: The model and the target that it schedules.
        evaluator: Evaluator of the pair; a new one if None.

    Raises:
        ScheduleFileError: The schedule file does not describe a schedule of the pair.
        KnobsError: The knobs file does not fit the model or the machine.
        InfeasibleError: No schedule of the scheduler fits the target.
    """
    found = evaluator or pair.evaluator()
    if options.schedule:
        return _of_file(options.schedule, pair, found)
    if options.knobs:
        return _of_knobs(load_knobs(options.knobs), found, options.knobs)
    return _of_scheduler(options.scheduler, pair, found)


def given_schedule(
    given: Setting,
    pair: AnyPair,
    evaluator: Evaluator | MachineEvaluator,
) -> ChosenSchedule:
    """Return the schedule that a caller of the library gives, in whatever form.

    Args:
        given: Knobs or a mapping of them, a schedule, a file of either, or the name of a scheduler;
            the heuristic's if None.
        pair: The model and the target that it schedules.
        evaluator: Evaluator of the pair.

    Raises:
        ScheduleFileError: It describes no schedule of the pair.
        KnobsError: The knobs do not fit the model or the machine.
        InfeasibleError: No schedule of the scheduler fits the target.
        UsageError: It is none of these.
    """
    if given is None or (isinstance(given, str) and given in schedulers()):
        return _of_scheduler(given, pair, evaluator)
    if isinstance(given, Mapping):
        given = Knobs.from_dict(given)
    if isinstance(given, Knobs):
        return _of_knobs(given, evaluator)
    if isinstance(given, str | PathLike):
        file = Path(given)
        if not file.suffix and not file.exists():
            hint = did_you_mean(str(given), schedulers())
            raise UsageError(f"no scheduler and no file is called {str(given)!r}", hint=hint)
        knobs = knobs_of_file(file)
        return _of_file(file, pair, evaluator) if knobs is None else _of_knobs(knobs, evaluator)
    if not hasattr(given, "schedules"):
        hint = "knobs, a schedule, a file of either, or a scheduler's name"
        raise UsageError(f"{type(given).__name__} objects are no schedules", hint=hint)
    # Read again from its text, which says whether it is of this model and this target.
    again = _schedule_of(given.text, pair, "the schedule", evaluator)
    return ChosenSchedule(given.scheduler, again)


def _of_file(file: Path, pair: AnyPair, evaluator: Evaluator | MachineEvaluator) -> ChosenSchedule:
    from autoturbo.schedule.files import read_text

    return ChosenSchedule("schedule", _schedule_of(read_text(file), pair, file, evaluator))


def _of_knobs(
    knobs: Knobs, evaluator: Evaluator | MachineEvaluator, file: Path | None = None
) -> ChosenSchedule:
    from autoturbo.schedule.pipeline import build_schedule
    from autoturbo.simulator.evaluator import Evaluator

    try:
        if isinstance(evaluator, Evaluator):  # not measured twice
            return ChosenSchedule("knobs", build_schedule(evaluator.model_scheduler, knobs))
        return ChosenSchedule("knobs", evaluator.schedule(knobs))
    except KnobsError as error:
        if file is None:
            raise
        raise KnobsError(error.message, Location(file, field=error.at.field), error.hint) from None


def _of_scheduler(
    name: str | None, pair: AnyPair, evaluator: Evaluator | MachineEvaluator
) -> ChosenSchedule:
    chosen = name or _published(pair)
    schedule, outcome = evaluator.scheduler(chosen)
    required(outcome, f"{pair}: {chosen}")
    return ChosenSchedule(chosen, schedule)


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


def schedule_of_database(
    path: str, pair: AnyPair, at_batch: Callable[[int], Graph] | None = None
) -> ChosenSchedule:
    """Return the best schedule of the pair that a database has for this version of the scheduler.

    Args:
        path: Path of the database.
        pair: The model and the target that it schedules.
        at_batch: Loads the model at another batch; where there is no schedule for this one, that of
            the nearest is adapted. None for no adapting.

    Raises:
        DatabaseError: It has none, and what there is instead.
        RefusedError: The settings of the nearest batch do not suit this one.
        InfeasibleError: Adapted, they do not fit the target.
    """
    from autoturbo.tuning.keys import pair_key

    asked = dataclasses.asdict(pair_key(*pair))
    near = None
    with opened(path) as database:
        found = database.best(**asked)
        miss = None if found else _why_missed(database, pair, asked)
        if miss is not None and at_batch is not None:
            near = _of_nearest_batch(database, pair, asked, miss.batches, at_batch)
    if near is not None:
        return _adapted(near, pair)
    if miss is not None:
        raise DatabaseError(miss.text, Location(path), _instead(miss, pair, tried=bool(at_batch)))
    best = found[0]
    schedule = _schedule_of(best.schedule, pair, path)
    return ChosenSchedule(f"run {best.run}, trial {best.trial}", schedule, best.run)


def _of_nearest_batch(
    database: Database,
    pair: AnyPair,
    asked: Mapping[str, Any],
    batches: Iterable[int],
    at_batch: Callable[[int], Graph],
) -> BestSchedule | None:
    """Return the best schedule of the same model at the nearest of some batches, if any is its."""
    own = pair.model.batch
    # by factor, not by difference: 2 is as far from 1 as 128 from 64
    for batch in sorted(batches, key=lambda one: (abs(math.log(one / own)), one)):
        with suppress(ModelError):  # the model has no such batch
            graph = at_batch(batch)
            if found := database.best(**{**asked, "graph_hash": graph.hash}):
                return found[0]
    return None


def _adapted(near: BestSchedule, pair: AnyPair) -> ChosenSchedule:
    """Return the schedule that the settings of another batch give, on the whole chip if better.

    Raises:
        RefusedError: They do not suit this batch.
        InfeasibleError: What they give does not fit the target.
    """
    from autoturbo.schedule.chip_part import WHOLE
    from autoturbo.search.warm_starts.transfer import rebatched
    from autoturbo.simulator.evaluator import Evaluator

    on, batch = pair.on_target(), pair.model.batch
    assert on is not None  # noqa: S101  asked before
    evaluator = Evaluator(on.model, on.target, on.dtype)
    tried: list[tuple[Schedule, Outcome]] = []
    why = ""
    # a part of the chip that suited another batch may be too small for this one
    for knobs in dict.fromkeys((near.knobs, WHOLE.on(near.knobs))):
        try:
            schedule = evaluator.schedule(rebatched(evaluator.model_scheduler, knobs))
        except KnobsError as error:
            why = str(error)
        else:
            tried.append((schedule, evaluator.measure(schedule)))
    if not tried:
        message = f"the settings of batch {near.batch} do not suit batch {batch}: {why}"
        hint = f"--scheduler {_published(pair)} takes the heuristic's schedule instead"
        raise RefusedError(message, hint=hint)
    fastest, outcome = min(tried, key=lambda one: seconds_of(one[1]))
    measured = required(outcome, f"{pair}: the settings of batch {near.batch}")
    heuristic = evaluator.scheduler(_published(pair))[1]
    name = f"run {near.run}, trial {near.trial} at batch {near.batch}"
    base = None if isinstance(heuristic, Failure) else heuristic.latency
    adapted: AdaptedJson = {
        "batch": near.batch, "latency_s": measured.latency, "heuristic_s": base,
    }  # fmt: skip
    return ChosenSchedule(name, fastest, adapted=adapted)


def _schedule_of(
    text: str,
    pair: AnyPair,
    place: str | Path,
    evaluator: Evaluator | MachineEvaluator | None = None,
) -> AnySchedule:
    """Return what the text of a schedule file describes.

    Raises:
        ScheduleFileError: It describes no schedule of the pair, located at a place.
        TypeError: Its target is neither a target nor a machine.
    """
    from autoturbo.hardware import Target
    from autoturbo.hardware.machine import Machine
    from autoturbo.heterogeneous.evaluator import MachineEvaluator
    from autoturbo.heterogeneous.files import decided
    from autoturbo.schedule.files import schedule_of

    model, target = pair.model, pair.target
    if isinstance(target, Target):
        return schedule_of(text, model, target, place)
    evaluator = evaluator or pair.evaluator()
    if not (isinstance(evaluator, MachineEvaluator) and isinstance(target, Machine)):
        raise TypeError(target)
    return evaluator.rebuilt(decided(text, model, target, place), place)


def measured_schedule(
    text: str, pair: AnyPair, place: str | Path, evaluator: Evaluator | MachineEvaluator
) -> Outcome:
    """Return the measurement of what the text of a schedule file describes, made now.

    Args:
        text: Text of the file.
        pair: The model and the target that it schedules.
        place: Name of what the text is from, for errors.
        evaluator: Evaluator of the pair.

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


CheckName = Annotated[str, DeferredType(of="autoturbo.verifier.findings:CheckName")]
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


def _why_missed(database: Database, pair: AnyPair, asked: Mapping[str, Any]) -> Miss:
    """Explain a failed lookup by names."""
    named: BestFilter = {
        "model": pair.model.name, "target": pair.target.name, "batch": pair.model.batch,
        "dtype": pair.dtype,
    }  # fmt: skip
    return database.explain_miss(named, **asked)


def _instead(miss: Miss, pair: AnyPair, *, tried: bool) -> str:
    """Return the hint how to get a schedule where the lookup of a pair's best one failed.

    Args:
        miss: What the lookup says of there being no schedule.
        pair: The model and the target that were looked for.
        tried: Whether the nearest batch was of no use.
    """
    heuristic = f"--scheduler {_published(pair)} takes the heuristic's schedule instead"
    if others := [name for name in miss.measurers if name != pair.measurer]:
        choice = "leave --measurer out" if SIMULATOR in others else f"add --measurer {others[0]}"
        return f"{choice}, or {heuristic}"
    if miss.batches and tried:
        return f"that is of another model of this name; {heuristic}"
    if miss.batches and pair.on_target():
        return f"--nearest-batch adapts it, or {heuristic}"
    return heuristic


def require_libraries(options: argparse.Namespace) -> None:
    """Say before a run that what its flags need is not installed.

    Args:
        options: Options of a command that tunes.

    Raises:
        UsageError: ONNX Runtime or Ray is not installed.
    """
    if options.verify:
        require_runtime("--verify")
    if options.ray is not None:
        from autoturbo.search.executors.ray_session import require_ray

        require_ray()


def require_runtime(flag: str) -> None:
    """Say before a long run that its last step cannot be done.

    Raises:
        UsageError: ONNX Runtime is not installed.
    """  # noqa: DOC501  wrong() makes the error
    if find_spec("onnxruntime") is None:
        message = "needs ONNX Runtime, which is not installed"
        raise wrong(flag, message, how_to_install("verify"))


def schedulers() -> tuple[str, ...]:
    """Return the names of schedulers of targets, then of machines."""
    from autoturbo.hardware.machine_files import load_machine, machine_names
    from autoturbo.heterogeneous.evaluator import FIRST_UNIT
    from autoturbo.registry import MACHINE_SCHEDULERS, SCHEDULERS

    first = dict.fromkeys(load_machine(name).units[0].name for name in machine_names())
    ours = (*SCHEDULERS.names(), *SCHEDULERS.aliases, FIRST_UNIT, *first)
    return (*ours, *MACHINE_SCHEDULERS.names())
