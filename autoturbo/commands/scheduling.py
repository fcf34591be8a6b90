"""From what the user named to a schedule, and what stands in the way of one."""

from __future__ import annotations

import argparse
from argparse import _MutuallyExclusiveGroup
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

from autoturbo.commands.loading import AnyPair, MachinePair, Pair
from autoturbo.commands.parser import OneOf, Parser, wrong
from autoturbo.errors import DatabaseError, KnobsError, Location
from autoturbo.schedule.knobs import Knobs, load_knobs

if TYPE_CHECKING:
    from autoturbo.database import BestFilter, BestSchedule, Database, RunInfo, TrialRecord
    from autoturbo.schedule.schedule import Schedule
    from autoturbo.schedule.units.machine_schedule import MachineSchedule
    from autoturbo.simulate.evaluator import Evaluator
    from autoturbo.simulate.units.evaluator import MachineEvaluator


_Built = TypeVar("_Built")
_Kind = TypeVar("_Kind", "Schedule", "MachineSchedule")


class Chosen(NamedTuple, Generic[_Kind]):
    """A schedule, and where it is from.

    Attributes:
        name: of its scheduler, or ``"schedule"``, ``"knobs"``, or of its run and trial.
        schedule: itself.
        run: id of the run that found it, where that is known.
    """

    name: str
    schedule: _Kind
    run: str = ""


AnyChosen: TypeAlias = "Chosen[Schedule] | Chosen[MachineSchedule]"


def add_schedule_options(parser: Parser, default: str = "graphturbo") -> _MutuallyExclusiveGroup:
    """What gives the schedule: a scheduler by name, a schedule file or a knobs file.

    Gives the group, of which only one may be there, for further ones.
    """
    what = parser.add_mutually_exclusive_group()
    choose = OneOf("--scheduler", schedulers)
    text = f"graphturbo, tvm, O0, ...; on machines partition_tuner, ... (default: {default})"
    what.add_argument("--scheduler", metavar="NAME", type=choose, help=text)
    what.add_argument("--schedule", metavar="FILE", type=Path, help="schedule file (JSON)")
    what.add_argument("--knobs", metavar="FILE", type=Path, help="knobs file (JSON)")
    return what


def chosen_schedule(options: argparse.Namespace, pair: AnyPair) -> AnyChosen:
    """The schedule that the options name, on a target or on a machine; see both."""
    if isinstance(pair, MachinePair):
        return chosen_on_machine(options, pair, pair.evaluator())
    return chosen_on_target(options, pair, pair.evaluator())


def chosen_on_target(
    options: argparse.Namespace, pair: Pair, evaluator: Evaluator
) -> Chosen[Schedule]:
    """The schedule that the options name; of a scheduler by name, the best that it can do.

    Raises:
        ScheduleFileError: the schedule file does not describe a schedule of the pair.
        KnobsError: the knobs file does not fit the model.
        InfeasibleError: no schedule of the scheduler fits the target.
    """
    from autoturbo.commands.failures import required

    if options.schedule:
        from autoturbo.schedule.files import load_schedule

        return Chosen("schedule", load_schedule(options.schedule, pair.model, pair.target))
    if options.knobs:
        from autoturbo.schedule.pipeline import build_schedule

        of_knobs = partial(build_schedule, evaluator.bench)
        return Chosen("knobs", _of_knobs(options.knobs, of_knobs))
    name = options.scheduler or "graphturbo"
    schedule, outcome = evaluator.scheduler(name)
    required(outcome, f"{pair.model.name} @ {pair.target.name}: {name}")
    return Chosen(name, schedule)


def chosen_on_machine(
    options: argparse.Namespace, pair: MachinePair, evaluator: MachineEvaluator
) -> Chosen[MachineSchedule]:
    """The same on a machine of several units.

    Raises:
        ScheduleFileError: the schedule file does not describe a schedule of the pair.
        KnobsError: the knobs file does not fit the model or the machine.
        InfeasibleError: the schedule does not fit the machine's memory.
    """
    if options.schedule:
        from autoturbo.schedule.units.files import read_machine_schedule

        stored = read_machine_schedule(options.schedule, pair.model, pair.target)
        return Chosen("schedule", evaluator.rebuilt(stored, options.schedule))
    if options.knobs:
        return Chosen("knobs", _of_knobs(options.knobs, evaluator.schedule))
    name = options.scheduler or "partition_tuner"
    return Chosen(name, evaluator.scheduler(name)[0])


def schedule_of_run(info: RunInfo, trials: Iterable[TrialRecord], pair: AnyPair) -> AnyChosen:
    """The schedule of the run's best trial.

    Raises:
        RunError: no trial of the run fits the target.
    """
    from autoturbo.database.records import no_schedule

    best = next((trial for trial in trials if trial.number == info.best_trial), None)
    if best is None:
        raise no_schedule(info)
    name = f"run {info.id}, trial {best.number}"
    if isinstance(pair, MachinePair):
        return Chosen(name, pair.evaluator().schedule(best.knobs), info.id)
    return Chosen(name, pair.evaluator().schedule(best.knobs), info.id)


def schedule_of_database(path: str, pair: AnyPair) -> AnyChosen:
    """The best schedule that a database has for the pair and this version of the scheduler.

    Raises:
        DatabaseError: it has none, and what the nearest one differs in.
    """
    import dataclasses

    from autoturbo.database import Database
    from autoturbo.schedule.files import schedule_of
    from autoturbo.tuner import pair_key

    asked = dataclasses.asdict(pair_key(*pair))
    with Database.open(path, create=False, read_only=True) as database:
        found = database.best(**asked)
        why = "" if found else _why_missed(database, pair, asked)
    if not found:
        published = "partition_tuner" if isinstance(pair, MachinePair) else "graphturbo"
        hint = f"--scheduler {published} takes the heuristic's schedule instead"
        raise DatabaseError(why, Location(path), hint)
    best = found[0]
    name = f"run {best.run}, trial {best.trial}"
    if isinstance(pair, MachinePair):
        from autoturbo.schedule.units.files import decided

        stored = decided(best.schedule, pair.model, pair.target, path)
        return Chosen(name, pair.evaluator().rebuilt(stored, path), best.run)
    return Chosen(name, schedule_of(best.schedule, pair.model, pair.target, path), best.run)


def best_of_database(path: str, pair: AnyPair) -> BestSchedule | None:
    """The fastest schedule that a database has for a pair; None where there is none, or no file."""
    import dataclasses

    from autoturbo.database import Database
    from autoturbo.tuner import pair_key

    if not Path(path).exists():
        return None
    with Database.open(path, create=False, read_only=True) as database:
        found = database.best(**dataclasses.asdict(pair_key(*pair)))
    return min(found, key=lambda best: best.measurement.latency, default=None)


def _why_missed(database: Database, pair: AnyPair, asked: Mapping[str, str]) -> str:
    """By names, where they tell; a model or target of the same name may be another one."""
    named: BestFilter = {
        "model": pair.model.name, "target": pair.target.name, "batch": pair.model.batch,
        "dtype": pair.dtype, "scheduler_version": asked["scheduler_version"],
    }  # fmt: skip
    return database.explain_miss(**(asked if database.best(**named) else named))


def require_runtime(flag: str) -> None:
    """Say before a long run that its last step cannot be done.

    Raises:
        UsageError: ONNX Runtime is not installed.
    """
    if find_spec("onnxruntime") is None:
        hint = "install it with: pip install 'autoturbo[verify]'"
        raise wrong(flag, "needs ONNX Runtime, which is not installed", hint)


def _of_knobs(path: Path, build: Callable[[Knobs], _Built]) -> _Built:
    """Of a setting; one that does not fit the model is the file's error."""
    knobs = load_knobs(path)
    try:
        return build(knobs)
    except KnobsError as error:
        at = Location(path, field=error.at.field)
        raise KnobsError(error.message, at, error.hint) from None


def schedulers() -> tuple[str, ...]:
    """Return the names of schedulers of targets, then of machines."""
    from autoturbo.hardware.machine_file import load_machine, machine_names
    from autoturbo.schedule.baselines import ALIASES, scheduler_names
    from autoturbo.schedule.baselines.partition_tuner import SCHEDULERS
    from autoturbo.simulate.units.evaluator import FIRST_UNIT

    first = dict.fromkeys(load_machine(name).units[0].name for name in machine_names())
    return (*scheduler_names(), *ALIASES, FIRST_UNIT, *first, *SCHEDULERS)
