"""Runs as a database keeps them, for commands that look at one or go on with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from autoturbo.commands.loading import AnyPair, Pair, model_of_run
from autoturbo.commands.parser import Parser
from autoturbo.config import ExecutionConfig, ResumeConfig, argument, called_with, part_of
from autoturbo.errors import Location, RunError
from autoturbo.graph.operators import Graph

if TYPE_CHECKING:
    from autoturbo.database import Database, HandedOut, RunInfo, TrialRecord, Verified
    from autoturbo.hardware.tuning_target import TuningTarget
    from autoturbo.heterogeneous.evaluator import MachineEvaluator
    from autoturbo.simulator.evaluator import Evaluator
    from autoturbo.tuning.result import TuneResult


def origins_of(versions: Iterable[str]) -> str:
    """Return where the latencies of records come from, by the versions that made them."""
    from autoturbo.database.records import PINNED

    found = {version.split(PINNED)[0].partition("+")[2] for version in versions}
    others, ours = sorted(found - {""}), "" in found
    simulated = ["simulated"] if ours or not others else []
    measured = [f"measured by {', '.join(others)}"] if others else []
    return f"latencies are {', or '.join([*simulated, *measured])}"


class StoredRun(NamedTuple):
    """A run with its trials and its state, as a database keeps them.

    Attributes:
        info: Record of the run: what was asked for, and what was found.
        state: State of the run now.
        trials: Trials of the run by number.
        verified: The checks that its best schedule passed, where the database has it as the best.
    """

    info: RunInfo
    state: str
    trials: Sequence[TrialRecord]
    verified: Verified | None

    def trial(self, number: int | None) -> TrialRecord | None:
        """Return the trial with a number; None where there is none."""
        return next((trial for trial in self.trials if trial.number == number), None)

    @property
    def handed_out(self) -> HandedOut | None:
        """Return what the run handed out, or would by what is recorded; None where nothing fits."""
        from autoturbo.database import HandedOut
        from autoturbo.simulator.measurement import Measurement

        if self.info.handed_out is not None:
            return self.info.handed_out
        best = self.trial(self.info.best_trial)
        if best is None or not isinstance(best.outcome, Measurement):
            return None
        first = self.trial(0)
        base = None if first is None or self.info.default_latency is None else first.outcome
        base = base if isinstance(base, Measurement) else None
        return HandedOut(best.number, len(self.trials), best.outcome, base)

    def best(self) -> TrialRecord:
        """Return the trial that was handed out.

        Raises:
            RunError: No trial of the run fits the target.
        """  # noqa: DOC501  no_schedule() makes the error
        from autoturbo.database.records import no_schedule

        best = self.trial(self.info.best_trial)
        if best is None:
            raise no_schedule(self.info)
        return best

    def pair(self, verb: str) -> AnyPair:
        """Return the model and target of the run.

        Args:
            verb: Verb for what is to be done with the run, for the remedy.

        Raises:
            RunError: The model has changed, or the target is not recorded.
        """
        from autoturbo.hardware.machine_files import target_from_dict
        from autoturbo.tuning.keys import measurer_of

        info, model, hint = self.info, model_of_run(self.info), f"{verb} another run"
        if model.hash != info.key.graph_hash:
            raise RunError(f"run {info.id}: {info.model_file} has changed", hint=hint)
        description = info.settings.get("target_description")
        if description is None:
            raise RunError(f"run {info.id}: its target is not recorded", hint=hint)
        return Pair(model, target_from_dict(description), info.key.dtype, measurer_of(info))

    def evaluator(self) -> Evaluator | MachineEvaluator:
        """Return the evaluator that measured the run's trials.

        Raises:
            RunError: The version is another one now, or as :meth:`pair`.
        """
        from autoturbo.tuning.keys import measurer_of, scheduler_version

        if self.info.key.free.scheduler_version != scheduler_version(measurer_of(self.info)):
            message = f"run {self.info.id} is of another version of the scheduler"
            raise RunError(message, hint="replay it with the release that its manifest names")
        return self.pair("replay").evaluator()

    def simulating(self, verb: str) -> Evaluator:
        """Return an evaluator of a run on a target that builds its schedules and simulates them.

        Nothing is measured with it, whatever measured the run: a board may be gone.

        Args:
            verb: Verb for what is to be done with the run, for the remedy.

        Raises:
            RunError: It is on a machine, of another version of the scheduler, or as :meth:`pair`.
        """  # noqa: DOC501  not_of_machines() makes the error
        from autoturbo.simulator.evaluator import Evaluator
        from autoturbo.simulator.measurement import VERSION

        if self.info.key.scheduler_version.partition("+")[0] != VERSION:
            message = f"run {self.info.id} is of another version of the scheduler"
            raise RunError(message, hint="replay it with the release that its manifest names")
        pair = self.pair(verb)
        if (on := pair.on_target()) is None:
            raise not_of_machines(self.info)
        return Evaluator(on.model, on.target, on.dtype)


def opened(path: str | Path) -> Database:
    """Return a database opened for reading."""
    from autoturbo.database import Database

    return Database.open(path, create=False, read_only=True)


def stored_run(run: str, path: str, *, host: bool = False) -> StoredRun:
    """Return a run with its trials, its state and the checks that its best schedule passed.

    Args:
        run: Id of the run, the start of one, or the name or path of its folder.
        path: Path of the database.
        host: Whether the run may be of this computer, whose runs have no schedules.

    Raises:
        RunError: It is of this computer, and may not be.
    """
    with opened(path) as database:
        info = database.run(run)
        if info.on_host and not host:
            message = f"run {info.id} is of this computer: it has plans of batches, no schedules"
            hint = "show, report, explain, bench and resume take it"
            raise RunError(message, Location(path), hint)
        found = database.best(**dataclasses.asdict(info.key))
        best = next((b for b in found if (b.run, b.trial) == (info.id, info.best_trial)), None)
        verified = None if best is None else best.verified
        return StoredRun(info, database.state(info), database.trials(info.id), verified)


RUN_HELP = "id of a run, the start of one, or its run folder"


def add_run_argument(parser: Parser) -> None:
    """Add the run that a command is about."""
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)


def not_of_machines(info: RunInfo) -> RunError:
    """Return the error of a command that is for runs on targets alone."""
    message = f"run {info.id} is on {info.target}, a machine of several units"
    units = f"'autoturbo show {info.id}' says how units shared the work"
    return RunError(message, hint=f"{units}, and its schedule.json when every part runs")


@dataclass(frozen=True, kw_only=True)
class RunArguments:
    """A run that goes on, and what reads its model and its target."""

    run: str = field(kw_only=False, metadata=argument("its id, or the beginning of it"))
    load_graph: Callable[[RunInfo], Graph] | None = field(
        default=None, metadata=argument("reads the model again; from the run's file if None")
    )
    load_target: Callable[[RunInfo], TuningTarget] | None = field(
        default=None, metadata=argument("reads the target again; as the run keeps it if None")
    )


@dataclass(frozen=True, kw_only=True)
class ResumeCall(ExecutionConfig, ResumeConfig, RunArguments):
    """Arguments of :func:`resume`."""


@called_with(ResumeCall)
def resume(call: ResumeCall) -> TuneResult:
    """Go on with a run, as :func:`autoturbo.resume` does.

    Returns:
        The result of the whole run.
    """
    from autoturbo.tuning import tuner

    ended = tuner.resume_all(
        [call.run],
        part_of(ResumeConfig, call),
        part_of(ExecutionConfig, call),
        load_graph=call.load_graph or model_of_run,
        load_target=call.load_target,
        together=False,
    )
    return tuner.only(ended)
