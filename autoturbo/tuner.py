"""The tuner: the only place where search, cost model, simulator and database meet.

A reader's map::

    tune / resume -> Settings (what was asked for) -> _Run (what it stands on)
        -> autoturbo.search.loop: rounds of propose, measure, record, learn
        -> _finish: hand out what passes the checks (autoturbo.search.handover), write, report
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.database import (
    BestSchedule,
    Database,
    PairKey,
    Refused,
    RunFolder,
    RunInfo,
    RunState,
    Verified,
    run_id,
)
from autoturbo.errors import (
    AutoTurboError,
    InfeasibleError,
    InterruptedRunError,
    Location,
    MeasurerError,
    RunError,
    UsageError,
)
from autoturbo.schedule.knobs import KNOBS_SCHEMA
from autoturbo.search.handover import Best, Handover, Verifier, verifier_of
from autoturbo.search.journal import Journal, now
from autoturbo.search.loop import BATCH, Loop, Search
from autoturbo.search.names import OURS
from autoturbo.search.objectives import OF_KERNELS, find_objectives
from autoturbo.search.progress import Progress, Trial
from autoturbo.search.settings import (
    EFFORTS,
    Settings,
    places_cuts,
    searched_subgraphs,
    space_of_run,
)
from autoturbo.search.space import batch_share
from autoturbo.search.stopping import Stop
from autoturbo.search.workshop import MakeWorkshop, Workshop
from autoturbo.simulate.measurement import SIMULATOR_VERSION, Failure, Measurement
from autoturbo.verify import VERIFIER_VERSION
from autoturbo.version import __version__

if TYPE_CHECKING:
    import optuna

    from autoturbo.cost_models.advisor import KernelAdvisor
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.target import Target

DATABASE = "autoturbo.db"
"""The default database, in the working folder."""


@dataclass(frozen=True, slots=True, eq=False)
class TuneResult:
    """What a run found.

    Attributes:
        run: its id, for :func:`resume`.
        model: name of the model.
        target: name of the target.
        trials: made so far.
        seed: of all chance.
        default: trial 0, the published heuristic; None where it does not fit.
        best: the best trial; trial 0 itself where nothing was better.
        baselines: other schedulers by name, those that fit.
        schedule_file: the best schedule.
        run_folder: manifest, schedule, log.
        study: every trial once, for Optuna's plots and dashboard.
        state: ``"done"`` or ``"interrupted"``.
        history: all trials by number.
        front: with several objectives the trials that none beats in all of them.
        refused: trials whose schedules failed a check: not ``best``, not in ``front``, not kept.
        stopped: why it ended.
    """

    run: str
    model: str
    target: str
    trials: int
    seed: int
    default: Measurement | None
    best: Best
    baselines: dict[str, Measurement]
    schedule_file: Path
    run_folder: Path
    study: optuna.Study
    state: RunState
    history: tuple[Trial, ...] = ()
    front: tuple[Trial, ...] = ()
    refused: tuple[Refused, ...] = ()
    stopped: Stop = Stop.TRIALS


@dataclass(frozen=True, slots=True)
class _Means:
    """How a run is carried out; none of it affects the result."""

    jobs: int
    ray: str | None
    timeout_s: float | None
    on_progress: Callable[[Progress], None] | None
    make: MakeWorkshop
    verifier: Verifier | None
    began: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """Refuse what cannot be.

        Raises:
            UsageError: fewer than one worker.
        """
        if self.jobs < (0 if self.ray is not None else 1):
            raise UsageError(f"jobs: {self.jobs} is too few", hint="at least 1")


def tune(
    graph: Graph,
    target: Target,
    *,
    dtype: str | None = None,
    trials: int | None = None,
    effort: str = "quick",
    seed: int = 0,
    jobs: int = 1,
    ray: str | None = None,
    time_budget: float | None = None,
    sampler: str = OURS,
    objective: str | Sequence[str] = "latency",
    database: str | Path | None = None,
    runs_folder: str | Path = "runs",
    model_file: str = "",
    baselines: Sequence[str] = ("tvm", "graphturbo"),
    on_progress: Callable[[Progress], None] | None = None,
    storage: str | None = None,
    timeout_s: float | None = None,
    settings: Mapping[str, Any] | None = None,
    evaluator: MakeWorkshop | None = None,
    subgraphs: int | None = None,
    transfer: bool = True,
    verify: bool = False,
    verifier: Verifier | None = None,
    patience: int | None = None,
    bound_gap: float | None = None,
) -> TuneResult:
    """Find a good schedule of a model on a target.

    Every schedule that is handed out (the best, all of a Pareto front, the database's) has its
    regions and its memory checked. One that fails is refused, and the next best that passes takes
    its place.

    Args:
        graph: the model with its batch.
        target: the accelerator.
        dtype: compute type; the target's default if None.
        trials: in total, trial 0 included; what ``effort`` says if None, and without limit where
            there is a time budget.
        effort: ``"quick"`` (64 trials), ``"standard"`` (400) or ``"thorough"`` (2000).
        seed: the same seed gives the same result, whatever ``jobs`` and ``ray``.
        jobs: worker processes; with Ray actors, 0 for all CPUs of the cluster.
        ray: address of a Ray cluster, ``"local"`` for one of our own; None for no Ray.
        time_budget: seconds with all that comes first, checked between rounds, one of which is
            always made; makes the result depend on the machine.
        sampler: one of :data:`autoturbo.search.SAMPLERS`.
        objective: ``latency``, ``throughput``, ``energy``, ``ddr-bytes``; several, as a sequence
            or with commas, give a Pareto front.
        database: where trials are kept; ``autoturbo.db`` in the working folder if None.
        runs_folder: where the run's folder is made.
        model_file: the file as the user named it, for :func:`resume`; the graph's source if empty.
        baselines: other schedulers to measure for comparison.
        on_progress: called when cuts are placed, before the first trial, and after every outcome.
        storage: an Optuna storage URL that mirrors the trials.
        timeout_s: seconds for one measurement, after which it counts as failed.
        settings: more to keep with the run (``shapes``); JSON values.
        evaluator: builds what measures; the simulator's if None.
        subgraphs: kinds of sub-graphs, the heaviest first, whose own knobs are searched; if None,
            :data:`autoturbo.search.settings.SUBGRAPHS` for our sampler and none for others.
        transfer: also start from what the database's schedules for this target decided for layers
            like this model's.
        verify: run what is handed out in ONNX Runtime as well, against the model.
        verifier: checks what is handed out; :func:`autoturbo.verify_schedule` if None.
        patience: stop after so many trials without a better one; never if None.
        bound_gap: stop once the best latency is at most this share above the lower bound (0.05).

    Raises:
        UsageError: an argument that makes no sense, or no Ray at the address.
        InfeasibleError: no setting that was tried fits the target.
        MeasurerError: the measurer failed on all settings, or gave another number for the best.
        RefusedError: no schedule passes the checks.
        ExecutorError: workers or the cluster failed.
        DatabaseError: the database cannot be used.
        InterruptedRunError: interrupted before anything was measured.
    """
    if not isinstance(objective, str):
        objective = ",".join(objective)
    asked = Settings(
        dtype=dtype or target.default_dtype,
        trials=trials,
        effort=effort,
        seed=seed,
        time_budget=time_budget,
        sampler=sampler,
        objective=objective,
        baselines=tuple(baselines),
        runs_folder=str(runs_folder),
        storage=storage,
        subgraphs=searched_subgraphs(subgraphs, sampler),
        patience=patience,
        bound_gap=bound_gap,
    )
    make = evaluator or _default_workshop()
    means = _Means(jobs, ray, timeout_s, on_progress, make, verifier)
    _check(asked, means, target)
    with Database.open(DATABASE if database is None else database) as store:
        key = pair_key(graph, target, asked.dtype)
        more = {
            **(settings or {}),
            "target_description": target.as_dict(),
            "verify": verify,
            "starts": _starts(graph, target, asked, means, store if transfer else None, key),
        }
        draft = RunInfo(
            "", key, graph.name, model_file or graph.source, graph.batch, target.name,
            _stored(asked, key, graph.batch, more), _versions(), now(),
        )  # fmt: skip
        info = _register(draft, store)
        with store.holding(info.id):
            return _carry_out(_Run(graph, target, asked, means, store, info))


def resume(
    run: str,
    *,
    database: str | Path | None = None,
    load_graph: Callable[[RunInfo], Graph],
    load_target: Callable[[RunInfo], Target] | None = None,
    jobs: int = 1,
    ray: str | None = None,
    trials: int | None = None,
    time_budget: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    timeout_s: float | None = None,
    evaluator: MakeWorkshop | None = None,
    verify: bool | None = None,
    verifier: Verifier | None = None,
    patience: int | None = None,
    bound_gap: float | None = None,
) -> TuneResult:
    """Go on with a run; the result is that of a run that was never stopped.

    Args:
        run: its id, or the start of it.
        database: where it is kept.
        load_graph: reads the model again (``model_file``, ``batch`` and ``settings`` say how).
        load_target: reads the target again; the description kept with the run if None.
        jobs: as for :func:`tune`, like all that follows.
        ray: address of a Ray cluster.
        trials: a new total; if None the run's own, or without limit where there is a time budget.
        time_budget: seconds from now; the run's own if None.
        on_progress: called after every outcome.
        timeout_s: seconds for one measurement.
        evaluator: builds what measures.
        verify: run what is handed out in ONNX Runtime as well; as at first if None.
        verifier: checks what is handed out.
        patience: as for :func:`tune`; a new limit ends all that the run had, but for the time.
        bound_gap: likewise.

    Raises:
        RunError: no such run, one that another process works on, or what it depends on has
            changed: model, target, scheduler.
        AutoTurboError: whatever :func:`tune` raises.
    """
    path = DATABASE if database is None else database
    with Database.open(path, create=False) as store:
        info = store.run(run)
        target = load_target(info) if load_target else _stored_target(info)
        graph = load_graph(info)
        asked = _stored_settings(info)
        _refuse_changed(info, pair_key(graph, target, asked.dtype))
        asked = asked.extended(trials, time_budget, patience, bound_gap)
        if verify is not None:
            info = dataclasses.replace(info, settings={**info.settings, "verify": verify})
        make = evaluator or _default_workshop()
        means = _Means(jobs, ray, timeout_s, on_progress, make, verifier)
        _check(asked, means, target)
        with store.holding(info.id):
            store.set_state(info.id, "running")
            return _carry_out(_Run(graph, target, asked, means, store, info))


def _starts(
    graph: Graph,
    target: Target,
    asked: Settings,
    means: _Means,
    store: Database | None,
    key: PairKey,
) -> list[dict[str, Any]]:
    """What the search starts from besides the heuristic, kept with the run for :func:`resume`."""
    from autoturbo.search.beginnings import beginnings, decisions_for

    wanted = places_cuts(asked.subgraphs, asked.sampler)
    if not wanted or not graph.operators:
        return []
    if means.on_progress is not None:
        means.on_progress(Progress(graph.name, target.name, 0, asked.total, phase="placing cuts"))
    known = decisions_for(store, key, graph) if store is not None else ()
    return [start.as_dict() for start in beginnings(graph, target, asked.dtype, known)]


def scheduler_version() -> str:
    """Scheduler, simulator and knob set: a measurement of another version is not reused."""
    from autoturbo.schedule.schedule import SCHEDULER_VERSION

    return f"{SCHEDULER_VERSION}.{SIMULATOR_VERSION}.{KNOBS_SCHEMA}"


def _default_workshop() -> MakeWorkshop:
    from autoturbo.simulate.evaluator import Evaluator

    return Evaluator


def _check(asked: Settings, means: _Means, target: Target) -> None:
    from autoturbo.search.samplers import check_sampler

    objectives = asked.check()
    means.check()
    check_sampler(asked.sampler, len(objectives))
    if any(o.name == "energy" for o in objectives) and target.energy is None:
        hint = "add an 'energy' section to the target"
        raise UsageError(f"target {target.name} gives no energy figures", hint=hint)


def pair_key(graph: Graph, target: Target, dtype: str) -> PairKey:
    """What a measurement of the pair holds for, by this version of the scheduler."""
    return PairKey(graph.hash, target.hash, dtype, scheduler_version())


def _versions() -> dict[str, str]:
    """Of what the proposals depend on, this package included."""
    found = {"autoturbo": __version__}
    for name in ("numpy", "optuna", "xgboost-cpu", "xgboost"):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _stored(asked: Settings, key: PairKey, batch: int, more: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run's record, from which it can be begun again."""
    keys = {name: getattr(key, name) for name in ("graph_hash", "target_hash", "scheduler_version")}
    fields = {**dataclasses.asdict(asked), "baselines": list(asked.baselines)}
    return {**more, **fields, **keys, "trials": asked.total, "batch": batch}


def _register(draft: RunInfo, store: Database) -> RunInfo:
    """Record a new run under the first id that is free."""
    base = run_id(draft.settings)
    while True:
        info = dataclasses.replace(draft, id=store.next_run_id(base))
        try:
            store.add_run(info)
        except RunError:  # another process took the id in between
            continue
        return info


def _stored_target(info: RunInfo) -> Target:
    from autoturbo.hardware.target import Target

    return Target.from_dict(info.settings["target_description"])


def _stored_settings(info: RunInfo) -> Settings:
    defaults = {"subgraphs": 0, "patience": None, "bound_gap": None}  # of earlier releases
    given = {**defaults, **info.settings}
    try:
        values = {f.name: given[f.name] for f in dataclasses.fields(Settings)}
    except KeyError as error:
        message = f"run {info.id}: its record lacks {error.args[0]!r}"
        raise RunError(message, hint="it was not made by 'tune'") from None
    return Settings(**{**values, "baselines": tuple(values["baselines"])})


def _refuse_changed(info: RunInfo, found: PairKey) -> None:
    names = {"graph_hash": "the model", "target_hash": "the target", "dtype": "the data type",
             "scheduler_version": "the scheduler's version"}  # fmt: skip
    changed = [
        f"{text} ({str(getattr(info.key, name))[:12]} then, {str(getattr(found, name))[:12]} now)"
        for name, text in names.items()
        if getattr(info.key, name) != getattr(found, name)
    ]
    if changed:
        message = f"run {info.id} cannot go on: {' and '.join(changed)} changed"
        raise RunError(message, Location(info.model_file or None), "start a new run with 'tune'")


@dataclass(eq=False)
class _Run:
    """What a run stands on."""

    graph: Graph
    target: Target
    asked: Settings
    means: _Means
    store: Database
    info: RunInfo

    def __post_init__(self) -> None:
        self.objectives = find_objectives(self.asked.objective)
        self.folder = RunFolder.create(
            self.asked.runs_folder, self.info.model, self.info.target, self.info.id
        )
        recipe = functools.partial(self.means.make, self.graph, self.target, self.asked.dtype)
        self.recipe: Callable[[], Workshop] = recipe
        self.workshop = recipe()
        self.space = space_of_run(self.info.settings, self.graph, self.target)

    def handover(self, trials: Sequence[Trial], *, numbers: bool) -> Handover:
        """What hands out the best of the run's trials."""
        return Handover(
            f"{self.info.model} on {self.info.target}", trials, self.workshop,
            self.means.verifier or verifier_of(self.graph.source, numbers=numbers),
            self.folder.log,
        )  # fmt: skip

    def write_manifest(self) -> None:
        """Everything that the run depends on."""
        values = {**self.info.as_dict(), "space": [d.name for d in self.space.dimensions]}
        values.pop("state")
        self.folder.write_manifest(values)

    def journal(self) -> Journal:
        """Where outcomes are kept, with what is there."""
        trials = self.store.trials(self.info.id)
        recorded = {t.number: Trial(t.number, t.knobs, t.outcome) for t in trials}
        return Journal(self.store, self.info.id, self.folder, recorded)

    def search(self) -> Search:
        """What is looked for."""
        asked = self.asked
        return Search(
            run=self.info.id,
            model=self.info.model,
            target=self.info.target,
            space=self.space,
            objectives=self.objectives,
            sampler=asked.sampler,
            seed=asked.seed,
            trials=asked.total,
            time_budget=asked.time_budget,
            spent_s=time.monotonic() - self.means.began,
            storage=asked.storage,
            patience=asked.patience,
            bound_gap=asked.bound_gap,
        )

    def advisor(self) -> KernelAdvisor | None:
        """The kernel model, where a sum of kernel times is what is sought."""
        from autoturbo.cost_models.advisor import KernelAdvisor, Prior
        from autoturbo.cost_models.features import target_vector
        from autoturbo.schedule.statistics import STATISTICS

        if [o.name for o in self.objectives if o.name not in OF_KERNELS]:
            return None
        vector = target_vector(self.target, self.asked.dtype)
        share, prior = batch_share(self.graph, self.target), None
        try:
            prior = Prior.of(self.workshop)
        except AutoTurboError as error:
            self.folder.log(f"the search starts without the cost model of the package: {error}")
        return KernelAdvisor(self.workshop, vector, share, STATISTICS, self.asked.seed, prior)

    def baselines(self) -> dict[str, Measurement]:
        """Other schedulers; one that fails is left out and noted in the log."""
        found = {}
        for name in self.asked.baselines:
            outcome = self.workshop.measure_scheduler(name)
            if isinstance(outcome, Measurement):
                found[name] = outcome
            else:
                self.folder.log(f"baseline {name}: {outcome.reason}: {outcome.message}")
        return found


def _carry_out(run: _Run) -> TuneResult:
    """From the first trial to the result; the run's state is told whatever happens."""
    from autoturbo.search.executors import make_executor

    try:
        run.write_manifest()
        baselines = run.baselines()
        executor = make_executor(
            run.workshop, run.recipe,
            jobs=run.means.jobs, ray=run.means.ray, timeout_s=run.means.timeout_s,
        )  # fmt: skip
        try:
            loop = Loop(run.search(), run.journal(), executor, run.advisor(), run.means.on_progress)
            loop.run()
        finally:
            executor.close()
        return _finish(run, loop, baselines)
    except BaseException as error:
        state: RunState = "failed"
        if isinstance(error, KeyboardInterrupt | InterruptedRunError):
            state = "interrupted"
        with suppress(AutoTurboError):
            run.store.set_state(run.info.id, state)
            run.folder.log(f"{state}: {type(error).__name__}: {error}")
        raise


def _finish(run: _Run, loop: Loop, baselines: dict[str, Measurement]) -> TuneResult:
    """Check what is handed out, write it, report."""
    if loop.best is None:
        raise _nothing(run, loop)
    # Whoever interrupts waits: what is handed out is run when the run is done.
    numbers = bool(run.info.settings.get("verify")) and not loop.interrupted
    handover = run.handover(loop.trials, numbers=numbers)
    try:
        best = handover.best(run.objectives)
        front = handover.front(run.objectives)
        fastest = handover.best(find_objectives("latency"), best)
    finally:
        _keep_refused(run, handover)
    file = run.folder.write_schedule(best.schedule.text)
    _keep_best(run, fastest)
    state: RunState = "interrupted" if loop.interrupted else "done"
    run.store.set_state(run.info.id, state)
    run.folder.log(f"{state} ({loop.stopped}): best #{best.trial}, {best.measurement.latency!r} s")
    default = loop.trials[0].outcome
    return TuneResult(
        run=run.info.id,
        model=run.info.model,
        target=run.info.target,
        trials=len(loop.trials),
        seed=run.asked.seed,
        default=default if isinstance(default, Measurement) else None,
        best=best,
        baselines=baselines,
        schedule_file=file,
        run_folder=run.folder.path,
        study=loop.mirror,
        state=state,
        history=tuple(loop.trials),
        front=front,
        refused=handover.refused,
        stopped=loop.stopped or Stop.INTERRUPTED,
    )


def _nothing(run: _Run, loop: Loop) -> AutoTurboError:
    """Why there is no result at all."""
    name = f"{run.info.model} on {run.info.target}"
    if loop.interrupted:
        hint = f"'autoturbo resume {run.info.id}' goes on"
        return InterruptedRunError(f"{name}: nothing was measured yet", hint=hint)
    failures = [t.outcome for t in loop.trials if isinstance(t.outcome, Failure)]
    first = next((f for f in failures if f.infeasible), failures[0])
    if not first.infeasible:
        return MeasurerError(f"{name}: all {len(failures)} trials failed: {first.message}")
    message = f"{name}: none of {len(failures)} settings fits: {first.message}"
    if first.tensors:
        message += f" (largest: {', '.join(first.tensors)})"
    return InfeasibleError(message, hint=", or ".join(first.levers) or None)


def _keep_refused(run: _Run, handover: Handover) -> None:
    """Record what failed, and take it back where an earlier run has handed it out."""
    run.store.set_refused(run.info.id, handover.refused)
    for refused in handover.refused:
        run.store.withdraw_best(run.info.key, handover.trials[refused.trial].knobs)


def _keep_best(run: _Run, best: Best) -> None:
    """The schedule of least latency goes to the database, whatever was sought."""
    from autoturbo.search.beginnings import kept_decisions

    info, when = run.info, now()
    verified = Verified(best.verified, VERIFIER_VERSION, when) if best.verified else None
    kept = BestSchedule(
        info.key, info.model, info.batch, info.target, best.knobs, best.measurement,
        best.schedule.text, info.id, best.trial, when, info.versions, verified,
        kept_decisions(best.schedule),
    )  # fmt: skip
    run.store.put_best(kept)


__all__ = [
    "BATCH",
    "DATABASE",
    "EFFORTS",
    "Best",
    "Progress",
    "Trial",
    "TuneResult",
    "Workshop",
    "resume",
    "scheduler_version",
    "tune",
]
