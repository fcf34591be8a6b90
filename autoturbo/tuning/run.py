"""A run, from its first trial to its result.

Several runs may share one pool of workers (:mod:`autoturbo.tuning.campaign`); each ends with a
result or an error of its own.
"""

from __future__ import annotations

import functools
import itertools
import math
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.config import EFFORTS, RUNS, ExecutionConfig, TuneConfig
from autoturbo.database import (
    LIMITS,
    BestSchedule,
    Database,
    HandedOut,
    RunFolder,
    RunInfo,
    RunState,
    TrialRecord,
    Verified,
)
from autoturbo.database.believing import simulated_otherwise
from autoturbo.errors import (
    AutoTurboError,
    DatabaseError,
    ExecutorError,
    InfeasibleError,
    InterruptedRunError,
    MeasurerError,
)
from autoturbo.hardware import known_error
from autoturbo.registry import ANNEALING, COST_MODEL, HEURISTIC, PROGRAM, PUBLISHED, SIMULATOR
from autoturbo.report.trials import Predictor, TrialTable
from autoturbo.schedule.chip_part import used_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.knobs.pins import Pins
from autoturbo.search.constants import SEARCH, Climbing, SearchConstants
from autoturbo.search.executors.base import guarded
from autoturbo.search.executors.remote import RemoteEvaluator
from autoturbo.search.journal import Journal, now
from autoturbo.search.loop import Search, SearchLoop
from autoturbo.search.objectives import OF_KERNELS, find_objectives
from autoturbo.search.openings import make_ranker
from autoturbo.search.pins import broken, pins_of_run
from autoturbo.search.progress import Trial, schedules_of
from autoturbo.search.selection.racing import race_measurements
from autoturbo.search.selection.verified_selection import Best, VerifiedSelection, verifier_of
from autoturbo.search.space import PART, part_of_run
from autoturbo.search.stopping import Stop
from autoturbo.simulator.contract import EvaluatorFactory, TuningEvaluator
from autoturbo.simulator.measurement import VERSION, Failure, Measurement
from autoturbo.simulator.unpublished import simulated_range
from autoturbo.tuning.campaign import Campaign
from autoturbo.tuning.result import TuneResult
from autoturbo.tuning.task import task_of
from autoturbo.verifier import VERIFIER_VERSION

if TYPE_CHECKING:
    from autoturbo.cost_models.ranker import Ranker
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.tuning_target import TuningTarget
    from autoturbo.schedule.work import Floats
    from autoturbo.search.executors import Executor
    from autoturbo.search.proposer import Proposer
    from autoturbo.simulator.evaluator import Evaluator


DATABASE = "autoturbo.db"
"""The default database, in the working folder."""

STARTS_FIRST = "starts_first"
"""Setting of a run: whether what it starts from is measured in its first round."""

MEASURED_AFTER = 1.5
"""Measurements of what is handed out, with what one may take longer; simulating is remembered."""

BASELINES = 1 / 3
"""Share of the time left that other schedulers, choosing trial 0 and timing the checks may take."""


@dataclass(eq=False)
class Run:
    """A run with its model, target, space and database.

    Attributes:
        evaluator: The simulator's, where what the run starts from was found with it.
        constants: Constants of the search.
    """

    graph: Graph
    target: TuningTarget
    config: TuneConfig
    execution: ExecutionConfig
    store: Database
    info: RunInfo
    evaluator: Evaluator | None = None
    constants: SearchConstants = SEARCH

    def __post_init__(self) -> None:
        self.objectives = find_objectives(self.config.objective)
        self.task = task_of(self.graph, self.target, self.info.key.dtype)
        root = self.info.asked.get("runs_folder", RUNS)
        self.folder = RunFolder.create(root, self.info.model, self.info.target, self.info.id)
        self.store.keep(self.info, self.folder.unsaved_file)
        make = self.execution.evaluator or _factory_of(self.config.measurer)
        recipe = functools.partial(make, self.graph, self.target, self.info.key.dtype)
        self.recipe: Callable[[], TuningEvaluator] = recipe
        elsewhere = _measured_elsewhere(self.config, self.execution)
        self.elsewhere = RemoteEvaluator(self.info.id) if elsewhere else None
        """Measures for this process with code of others; none for what the caller hands in."""
        self.tuning_evaluator = self._own_evaluator()
        self.checks_s = 0.0
        self.until = math.inf
        """When measurements for this process end, by the monotonic clock."""
        self.space = self.task.space(self.info.settings, self.evaluator or self.tuning_evaluator)
        """What is searched."""

    def _own_evaluator(self) -> TuningEvaluator:
        """Return the evaluator of this process, which builds schedules and measures."""
        if self.evaluator is not None and self.elsewhere is None and not self.execution.evaluator:
            return self.evaluator
        if self.elsewhere is None or self.task.on_machine:
            return self.recipe()
        from autoturbo.simulator.evaluator import Evaluator

        of: tuple[Any, Any, str] = (self.graph, self.target, self.info.key.dtype)
        return Evaluator(*of, self.elsewhere, elsewhere=True)

    def use(self, executor: Executor) -> None:
        """Introduce the pair to a pool that measures."""
        executor.introduce(
            self.info.id, self.recipe, None if self.elsewhere else self.tuning_evaluator
        )
        if self.elsewhere is not None:
            self.elsewhere.executor = executor

    @property
    def deadline(self) -> float:
        """Return the end of the time budget, by the monotonic clock."""
        return self.execution.began + (self.config.time_budget or math.inf)

    def end_by(self, when: float) -> None:
        """Set the time at which measurements for this process end."""
        from autoturbo.simulator.evaluator import Evaluator

        self.until = when
        if isinstance(self.tuning_evaluator, Evaluator):
            self.tuning_evaluator.until = when
        if self.elsewhere is not None:
            self.elsewhere.end_by(when, None if self.journal.recorded else self.deadline)

    def selection(self, trials: Sequence[Trial], *, numbers: bool) -> VerifiedSelection:
        """Return the checks and choice of the run's best trials."""
        return VerifiedSelection(
            f"{self.info.model} on {self.info.target}", trials, self.tuning_evaluator,
            self.execution.verifier or verifier_of(self.graph.source, numbers=numbers),
            self.folder.log, functools.partial(self._expected, trials), self.measurements_left,
            self.reference(trials[0].knobs) if trials else False,
            functools.partial(broken, self.pins) if self.pins else lambda _: "",
            self.constants.racing,
        )  # fmt: skip

    @functools.cached_property
    def pins(self) -> Pins:
        """Return the pins of the run's user."""
        return pins_of_run(self.info.settings, self.graph)

    def reference(self, heuristic: Knobs) -> bool:
        """Return whether the published heuristic is there to compare with only."""
        if not self.pins:
            return False
        return bool(self.pins.over(heuristic, self.space.here) != heuristic)

    def measurements_left(self) -> float:
        """Return how many measurements for this process there is time for, about."""
        took_s = self.elsewhere.typical_s if self.elsewhere else 0.0
        return (self.until - time.monotonic()) / took_s if took_s else math.inf

    def _expected(self, learned: Sequence[Trial], asked: Sequence[Trial]) -> Floats | None:
        """Return figures of some trials by a kernel model; None without one.

        Args:
            learned: Trials that it learns from.
            asked: Trials of which figures are returned, in proportion to the first objective.
        """
        if not self.rankers:
            return None
        ranker = self.rankers[0].by(self.rankers[0].figure)
        for trial in learned:
            ranker.observe(trial.knobs, trial.outcome)
        return ranker.smoothed([trial.knobs for trial in asked])

    def write_manifest(self) -> None:
        """Write everything that the run depends on."""
        values = {**self.info.as_dict(), "space": [d.name for d in self.space.dimensions]}
        values.pop("state")
        self.folder.write_manifest(values)

    @functools.cached_property
    def journal(self) -> Journal:
        """Return the journal of the run's outcomes, with those recorded before."""
        trials = self.store.trials(self.info.id)
        recorded = {t.number: Trial(t.number, t.knobs, t.outcome) for t in trials}
        return Journal(self.store, self.info.id, self.folder, recorded)

    def search(self, recorded: Mapping[int, Trial], pairs: int = 1) -> Search:
        """Return the search of the run.

        Args:
            recorded: Trials of an earlier part of the run.
            pairs: Runs that share the time, of which each hands something out at its end.
        """
        asked, heuristic, initial = self.config, self._heuristic(recorded), self._initial()
        given = [Knobs.from_dict(one) for one in self.info.settings.get("begin") or ()]
        climbs = self.climbs()
        if PART in self.info.settings:
            given.append(self.space.canonical(Knobs.from_dict(self.info.settings[PART])))
        first = (*given, *(initial if self.info.settings.get(STARTS_FIRST) else ()))
        return Search(
            run=self.info.id,
            model=self.info.model,
            target=self.info.target,
            space=self.space,
            objectives=self.objectives,
            sampler=asked.sampler,
            seed=asked.seed,
            trials=asked.total or (EFFORTS["quick"] if climbs else None),
            climbs=climbs,
            extended=self._ended_before(),
            time_budget=asked.time_budget,
            began=self.execution.began,
            after=0 if self.config.measurer == SIMULATOR else pairs * MEASURED_AFTER,
            race_after=pairs * self.raced_after(),
            checks_s=self.checks_s,
            cost_s=cost_of(self.config.measurer),
            starts=tuple(dict.fromkeys(knobs for knobs in first if knobs != heuristic)),
            storage=self.execution.storage,
            patience=asked.patience,
            bound_gap=asked.bound_gap,
            round=asked.round or self.constants.rounds.round_trials,
            proposer=self.proposer(),
            heuristic=heuristic,
            initial=initial,
            here=None if self.elsewhere else functools.partial(guarded, self.tuning_evaluator),
            reference=self.reference(heuristic),
            program=None if self.config.measurer == SIMULATOR else self._program(),
            constants=self.constants,
        )

    def _program(self) -> Callable[[Knobs], str | None] | None:
        """Return a function that digests a candidate's programs; None where there is none."""
        return getattr(self.tuning_evaluator, "program", None)

    def _ended_before(self) -> tuple[int, int]:
        """Return how many trials there were at an end with a smaller budget, and that budget."""
        handed, budget = self.info.handed_out, self.info.settings.get("trials")
        if LIMITS not in self.info.settings or handed is None or budget is None:
            return 0, 0
        return handed.covers, int(budget)

    def climbs(self) -> float:
        """Return how many schedules are measured by climbing after the trials."""
        if self.execution.evaluator is not None:
            return 0
        return climb_of(self.config, self.constants.climbing, on_machine=self.task.on_machine)

    def raced_after(self) -> int:
        """Return how many measurements a race takes; 0 where nobody says that they vary."""
        from autoturbo.simulator.measurers import declared

        info = declared(self.config.measurer)
        exact = info is None or info.deterministic or self.execution.evaluator is not None
        return 0 if exact else race_measurements(self.config.total or 0, self.constants.racing)

    def _heuristic(self, recorded: Mapping[int, Trial]) -> Knobs:
        """Return trial 0, the published heuristic at its best number of samples, or as recorded."""
        if 0 in recorded:
            return recorded[0].knobs
        return self.space.canonical(self.tuning_evaluator.heuristic())

    def _initial(self) -> tuple[Knobs, ...]:
        """Return the candidates of the first trials after trial 0, whatever the sampler."""
        return self.task.initial(self.space, self.objectives)

    def proposer(self) -> Proposer | None:
        """Return the proposer that replaces a sampler; None where a sampler proposes."""
        if self.config.sampler == ANNEALING:
            return self.task.proposer(self.space, self.objectives[0], self.config.seed)
        if self.config.sampler != PROGRAM:
            return None
        from autoturbo.search.proposer import ProgramProposer

        about = {"model": self.info.model, "target": self.info.target}
        given = self.objectives, self.config.seed, about, self._initial()
        return ProgramProposer(self.execution.proposer or "", self.space, *given)

    @functools.cached_property
    def rankers(self) -> tuple[Ranker, ...]:
        """Return the kernel models, one for each objective; none on a machine of several units."""
        if self.task.on_machine:
            return ()
        graph: Any = self.graph
        target: Any = self.target
        ranker = make_ranker(
            self.tuning_evaluator,
            graph,
            used_target(target, part_of_run(self.info.settings)),
            self.info.key.dtype,
            self.config.seed,
            self.folder.log,
            self.config.cost_model,
        )
        figures = [None if o.name in OF_KERNELS else o.value for o in self.objectives]
        return tuple(map(ranker.by, figures))

    def simulate(self, kept: BestSchedule | TrialRecord, _: RunInfo | None) -> str:
        """Return how simulating a kept best schedule again contradicts it; empty if not."""
        if not isinstance(kept, BestSchedule):
            return ""
        again = guarded(self.tuning_evaluator, kept.knobs)
        return simulated_otherwise(kept.measurement.latency, again)

    def probe_checks(self) -> None:
        """Time one verification, so that the time budget can reserve it."""
        if self.config.time_budget is None:
            return
        began, numbers = time.monotonic(), bool(self.config.verify)
        verify = self.execution.verifier or verifier_of(self.graph.source, numbers=numbers)
        with suppress(AutoTurboError):
            verify(self.tuning_evaluator.schedule(self.tuning_evaluator.heuristic()))
        self.checks_s = time.monotonic() - began

    def baselines(self) -> dict[str, Measurement]:
        """Return the baselines' measurements, the heuristic first; why one lacks is recorded."""
        if not self.journal.recorded:
            self.tuning_evaluator.heuristic()  # gains are stated over it: it comes first
        names, measured = self.config.baselines, dict[str, Measurement]()
        known = self.info.lacking.items()
        self.info = replace(self.info, lacking={n: why for n, why in known if n == HEURISTIC})
        for name in sorted(names, key=lambda name: name != PUBLISHED):
            outcome = self.tuning_evaluator.measure_scheduler(name)
            if name == PUBLISHED and not self.task.on_machine:
                continue  # that is trial 0, which stands in a row of its own
            if isinstance(outcome, Failure):
                self._lacks(name, outcome.message)
            elif reason := self._incomplete(name):
                self._lacks(name, reason)
            else:
                measured[name] = outcome
        return {name: measured[name] for name in names if name in measured}

    def _incomplete(self, name: str) -> str:
        """Return why not all schedules of a scheduler were measured; empty where they were."""
        lacking: Mapping[str, str] = getattr(self.tuning_evaluator, "lacking", {})
        return lacking.get(name, "")

    def _lacks(self, name: str, reason: str) -> None:
        """Record why nothing is compared with a base."""
        self.folder.log(f"no gain over {name} is stated: {reason}")
        self.info = replace(self.info, lacking={**self.info.lacking, name: reason})
        self.store.set_lacking(self.info.id, self.info.lacking)

    def loop(self, pairs: int) -> SearchLoop:
        """Return its loop, with all the time that is left to a number of runs."""
        search = self.search(self.journal.recorded, pairs)
        if reason := self._incomplete(PUBLISHED):
            self._lacks(HEURISTIC, reason)
        self.end_by(self.deadline)
        known = getattr(self.tuning_evaluator, "known_heuristic", None) if self.elsewhere else None
        if not self.journal.recorded and isinstance(known, Measurement):
            self.journal.recorded = {0: Trial(0, search.heuristic, known)}
            self.journal.add(self.journal.recorded[0])
        return SearchLoop(search, self.journal, self.rankers, self.execution.on_progress)


def climb_of(
    asked: TuneConfig, climbing: Climbing | None = SEARCH.climbing, *, on_machine: bool
) -> float:
    """Return how many schedules a run measures at most by climbing after its trials.

    Where a measurement is cheap, climbing finds more for the same work; a board is not asked.

    Args:
        asked: Configuration of the run.
        climbing: Constants of the climb; None for none.
        on_machine: The run is on a machine of several units.
    """
    from autoturbo.simulator.measurers import is_cheap

    trials, ours = asked.total, asked.sampler == COST_MODEL and not on_machine
    if climbing is None or not ours or not is_cheap(asked.measurer):
        return 0
    if trials is None:
        return math.inf
    return int(climbing.climbs * trials) if trials >= climbing.climbing_trials else 0


def cost_of(measurer: str) -> float:
    """Return the seconds of a measurement by what its measurer says; 0 if it says nothing."""
    from autoturbo.simulator.measurers import declared

    info = declared(measurer)
    return 0.0 if info is None or info.cost_s is None else info.cost_s


def _factory_of(measurer: str) -> EvaluatorFactory:
    """Return the evaluator factory of a measurer."""
    from autoturbo.heterogeneous.evaluator import evaluator_of
    from autoturbo.simulator.evaluator import MeasurerEvaluatorFactory

    return evaluator_of if measurer == SIMULATOR else MeasurerEvaluatorFactory(measurer)


def pool_of(configs: Iterable[TuneConfig], execution: ExecutionConfig) -> Executor:
    """Return the workers that measure for runs; to be had before any run is recorded.

    Raises:
        UsageError: No Ray at the address, or none that has what is asked for.
        ExecutorError: Ray does not start.
    """
    from autoturbo.search.executors import make_executor

    return make_executor(
        jobs=execution.workers, ray=execution.ray, timeout_s=execution.timeout,
        runtime_env=execution.runtime_env, resource=execution.ray_resource,
        apart=any(_measured_elsewhere(config, execution) for config in configs),
    )  # fmt: skip


def _measured_elsewhere(config: TuneConfig, execution: ExecutionConfig) -> bool:
    """Return whether code of others measures, and not what the caller hands in."""
    return config.measurer != SIMULATOR and execution.evaluator is None


def carry_out(runs: Sequence[Run], executor: Executor) -> list[TuneResult | AutoTurboError]:
    """Carry runs out from the first trial to their results, and record how each ends.

    Args:
        runs: The runs.
        executor: The workers of :func:`pool_of`; ended after the last trial where nothing more is
            measured on them.

    Returns:
        Each run's result, in order, or why it has none: others go on without it.

    Raises:
        ExecutorError: Workers or the cluster failed.
        DatabaseError: The database cannot be used.
        UsageError: A storage that cannot be used.
    """
    from autoturbo.search.executors import make_executor

    open_runs = list(runs)
    try:
        for run in runs:
            run.write_manifest()
        apart = any(run.elsewhere for run in runs)
        with ExitStack() as held:
            for run in runs:
                run.use(executor)
            baselines, loops = _begun(runs)
            campaign = Campaign(loops, executor)
            campaign.run()
            if campaign.interrupted or not apart:
                executor.close()  # after Ctrl-C it begins nothing
            if campaign.interrupted and apart:
                # Checks measure once more, which the old workers no longer begin.
                executor = held.enter_context(closing(make_executor(apart=True)))
                for run in runs:
                    run.use(executor)
            ended: list[TuneResult | AutoTurboError] = []
            for index, (run, loop) in enumerate(zip(runs, loops, strict=True)):
                # Equal shares of what is left: what one run saves is for those behind it.
                share = max(run.deadline - time.monotonic(), 0.0) / (len(runs) - index)
                run.end_by(time.monotonic() + share)
                ended.append(_ended(run, loop, baselines[index], campaign.failures.get(index)))
                open_runs.remove(run)
    except BaseException as error:
        for run in open_runs:
            _tell_state(run, error)
        raise
    return ended


def _begun(runs: Sequence[Run]) -> tuple[list[dict[str, Measurement]], list[SearchLoop]]:
    """Return the baselines and the loops of runs; baselines may use a part of the time."""
    began, baselines, loops = time.monotonic(), [], []
    for place, run in enumerate(runs, 1):
        # Each has its share of the part that baselines may take.
        run.end_by(began + BASELINES * place / len(runs) * max(run.deadline - began, 0.0))
        baselines.append(run.baselines())
        run.probe_checks()
        loops.append(run.loop(len(runs)))
    return baselines, loops


@contextmanager
def resumable(store: Database, begun: Sequence[str], execution: ExecutionConfig) -> Iterator[None]:
    """Tell a user how to resume the runs of the block if it is interrupted or loses its workers.

    Args:
        store: The database, in which an interruption is recorded.
        begun: Ids of its runs, as far as they are recorded.
        execution: The way in which the call is carried out.

    Raises:
        InterruptedRunError: In place of ``KeyboardInterrupt``, once a run is recorded.
        KeyboardInterrupt: Interrupted before a run is recorded.
        ExecutorError: Workers or the cluster failed.
    """
    try:
        yield
    except KeyboardInterrupt:
        stopped = [run for run in begun if _mark_stopped(store, run)]
        if not stopped:
            raise
        message = "interrupted; all that was measured is saved"
        hint = f"go on with {_resume_command(store, stopped)}"
        raise InterruptedRunError(message, hint=hint) from None
    except ExecutorError as error:
        if not begun:
            raise
        hint = f"go on with {_resume_command(store, begun, _ray_flags(execution))}"
        hint = f"{error.hint}, then {hint}" if error.hint else hint
        raise ExecutorError(error.message, error.at, hint) from None


def _mark_stopped(store: Database, run: str) -> bool:
    """Mark an unfinished run as interrupted, and return whether it is one."""
    with suppress(AutoTurboError):
        if store.run(run).state == "running":
            store.set_state(run, "interrupted")
        return store.run(run).state == "interrupted"
    return False


def _ray_flags(execution: ExecutionConfig) -> list[str]:
    """Return the flags with which a command measures on the same Ray again."""
    if execution.ray is None:
        return []
    flags = {"--jobs": execution.jobs, "--ray-resource": execution.ray_resource}
    given = [(name, str(value)) for name, value in flags.items() if value is not None]
    return ["--ray", execution.ray, *itertools.chain(*given)]


def _resume_command(store: Database, runs: Sequence[str], flags: Sequence[str] = ()) -> str:
    """Return the quoted command line that resumes runs."""
    words = ["autoturbo", "resume", runs[0], *(["--all"] if runs[1:] else []), *flags]
    if str(store.path) != DATABASE:
        words += ["--db", str(store.path)]
    return f"'{shlex.join(words)}'"


def _ended(
    run: Run, loop: SearchLoop, baselines: dict[str, Measurement], failure: AutoTurboError | None
) -> TuneResult | AutoTurboError:
    """Return the result of a run, or why it has none; others that share its pool go on."""
    try:
        if failure is not None:
            raise failure
        return _finish(run, loop, baselines)
    except DatabaseError:
        raise
    except AutoTurboError as error:
        _tell_state(run, error)
        return error


def _tell_state(run: Run, error: BaseException) -> None:
    state: RunState = "failed"
    if isinstance(error, KeyboardInterrupt | InterruptedRunError):
        state = "interrupted"
    with suppress(AutoTurboError):
        run.store.set_state(run.info.id, state)
        run.folder.log(f"{state}: {type(error).__name__}: {error}")


def hand_out(
    run: Run,
    trials: Sequence[Trial],
    why: str,
    baselines: Mapping[str, Measurement],
    *,
    numbers: bool,
    state: RunState,
) -> tuple[Best, tuple[Trial, ...], Path]:
    """Check the best trials and the heuristic, write them, and record them and the run's state.

    Args:
        run: The run.
        trials: All trials of the run, by number.
        why: Why the run ended, for its log.
        baselines: Other schedulers that it is compared with, the heuristic left out.
        numbers: Whether schedules are run in ONNX Runtime as well.
        state: State of the run from now on.

    Returns:
        The best trial, the Pareto front of several objectives, and the best schedule's file.

    Raises:
        RefusedError: No schedule passes.
        DatabaseError: The database cannot be written.
    """
    selection = run.selection(trials, numbers=numbers)
    try:
        best = selection.best(run.objectives)
        front = selection.front(run.objectives)
        # The database keeps the fastest schedule, whatever this run was for.
        fastest = selection.best(find_objectives("latency"), best)
        if trials and isinstance(trials[0].outcome, Measurement):
            selection.passes(trials[0])  # gains are stated over it
    finally:
        _keep_refused(run, selection)
    file = run.folder.write_schedule(best.schedule.text)
    _keep_best(run, fastest)
    run.store.hand_out(run.info.id, _handed(run, trials, best, baselines), state)
    run.folder.log(f"{state} ({why}): best #{best.trial}, {best.measurement.latency!r} s")
    return best, front, file


def _handed(
    run: Run, trials: Sequence[Trial], best: Best, baselines: Mapping[str, Measurement]
) -> HandedOut:
    """Return the record of the schedule that a run hands out."""
    info, first = run.store.run(run.info.id), trials[0].outcome
    base = best.reference or (first if isinstance(first, Measurement) else None)
    return HandedOut(
        best.trial, len(trials), best.measurement,
        None if info.refuses(0) or HEURISTIC in info.lacking else base,
        dict(baselines), best.race, best.doubt, best.varies,
        schedules=len(schedules_of(trials)),
    )  # fmt: skip


def _doubts(best: Best) -> list[str]:
    """Return a line on a best schedule whose figure is not confirmed; none where it is."""
    return [f"trial {best.trial} is as measured once: {best.doubt}"] if best.doubt else []


def _finish(run: Run, loop: SearchLoop, baselines: dict[str, Measurement]) -> TuneResult:
    """Check the best trials, write them, report."""
    if loop.best is None:
        raise _nothing(run, loop)
    # Whoever interrupts waits: what is handed out is run when the run is done.
    numbers = bool(run.config.verify) and not loop.interrupted
    state: RunState = "interrupted" if loop.interrupted else "done"
    best, front, file = hand_out(
        run, loop.trials, f"{loop.stopped}", baselines, numbers=numbers, state=state
    )
    info = run.store.run(run.info.id)
    handed = info.handed_out
    default = handed.heuristic if handed else None
    known = {**baselines, **({PUBLISHED: default} if default else {})}
    return TuneResult(
        run=run.info.id,
        model=run.info.model,
        on_machine=run.task.on_machine,
        target=run.info.target,
        measured=loop.schedules,
        seed=run.config.seed,
        objective=",".join(objective.name for objective in run.objectives),
        measurer=run.config.measurer,
        known_error=known_error(run.target, best.measurement.kernel_seconds),
        latency_range=simulated_range(best.schedule, run.config.measurer, best.measurement.latency),
        default=default,
        best=best,
        baselines={name: known[name] for name in run.config.baselines if name in known},
        info=info,
        schedule_file=file,
        run_folder=run.folder.path,
        mirror=loop.mirror,
        state=state,
        trials=TrialTable.of(
            loop.trials,
            Predictor.of(best.schedule, run.config.seed, run.info.settings.get("round")),
        ),
        front=front,
        refused=info.refused,
        stopped=loop.stopped or Stop.INTERRUPTED,
        origins=tuple(run.info.settings.get("origins", ())),
        notes=(*run.info.settings.get("notes", ()), *best.notes, *_doubts(best)),
    )


def _nothing(run: Run, loop: SearchLoop) -> AutoTurboError:
    """Return the error of a run without any result."""
    name = f"{run.info.model} on {run.info.target}"
    command = _resume_command(run.store, [run.info.id])
    if loop.interrupted:
        return InterruptedRunError(f"{name}: nothing was measured yet", hint=f"{command} goes on")
    if not loop.trials:
        message = f"{name}: no measurement has ended within {run.config.time_budget:g} s"
        return MeasurerError(message, hint=f"{command} with a longer --time-budget goes on")
    failures = [t.outcome for t in loop.trials if isinstance(t.outcome, Failure)]
    if not failures:  # what is measured for comparison need not have what is pinned
        message = f"{name}: no trial so far has what is pinned"
        return MeasurerError(message, hint=f"{command} with more --trials goes on")
    first = next((f for f in failures if f.infeasible), failures[0])
    if not first.infeasible:
        which = "its only trial" if len(failures) == 1 else f"all {len(failures)} trials"
        hint = f"{command} with more --trials goes on"
        return MeasurerError(f"{name}: {which} failed: {first.message}", hint=hint)
    message = f"{name}: none of {len(failures)} settings fits: {first.message}"
    if first.tensors:
        message += f" (largest: {', '.join(first.tensors)})"
    return InfeasibleError(message, hint=", or ".join(first.levers) or None)


def _keep_refused(run: Run, selection: VerifiedSelection) -> None:
    """Record the refused trials, and withdraw those that an earlier run has handed out."""
    run.store.set_refused(run.info.id, selection.refused)
    knobs = {trial.number: trial.knobs for trial in selection.trials}
    for refused in selection.refused:
        run.store.withdraw_best(run.info.key, knobs[refused.trial])


def _keep_best(run: Run, best: Best) -> None:
    """Store the schedule of least latency in the database, whatever the objective."""
    from autoturbo.search.warm_starts.beginning import kept_decisions

    info, when = run.info, now()
    verified = Verified(best.verified, VERIFIER_VERSION, when) if best.verified else None
    schedule = BestSchedule(
        info.key, info.model, info.batch, info.target, best.knobs, best.measurement,
        best.schedule.text, info.id, best.trial, when, info.versions, verified,
        kept_decisions(best.schedule),
    )  # fmt: skip
    simulated = info.key.free.scheduler_version == VERSION
    run.store.put_best(schedule, run.simulate if simulated else None)
