"""The tuner: the only place where search, cost model, simulator and database meet.

A reader's map::

    tune / resume -> Settings (what was asked for) -> Run (what it stands on, autoturbo.run)
        -> autoturbo.search.campaign: rounds of all pairs on one pool of workers
        -> autoturbo.search.loop: of one pair: propose, measure, record, learn
        -> result: hand out what passes the checks (autoturbo.search.handover), write, report
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.database import LIMITS, OTHER_EVALUATOR, Database, PairKey, RunInfo, run_id
from autoturbo.errors import AutoTurboError, Location, RunError, UsageError
from autoturbo.hardware.machine import Machine
from autoturbo.masking import masked
from autoturbo.options import LIMITED, Changes, Options, Pair, stored_settings, stored_target
from autoturbo.run import DATABASE, STARTS_FIRST, Means, Run, TuneResult, carry_out, resumable
from autoturbo.schedule.knobs import KNOBS_SCHEMA
from autoturbo.search.handover import Best, Verifier
from autoturbo.search.journal import now
from autoturbo.search.loop import BATCH
from autoturbo.search.names import ANNEALING, OURS
from autoturbo.search.progress import Progress, Trial
from autoturbo.search.settings import EFFORTS, Settings
from autoturbo.search.workshop import MakeWorkshop, Workshop
from autoturbo.simulate.contract import SIMULATOR
from autoturbo.simulate.measurement import SIMULATOR_VERSION
from autoturbo.version import __version__, interpreter

if TYPE_CHECKING:
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.machine import AnyTarget
    from autoturbo.search.beginnings import StartingPoint

CALL = "call"
"""Setting of a run that was begun together with others: the id of the first of them."""

PLACE = "place"
"""Setting of such a run: how many were begun before it in the call."""


def tune(
    graph: Graph,
    target: AnyTarget,
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
    runs_folder: str | Path | None = None,
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
    round: int | None = None,  # noqa: A002  as it is called everywhere
    runtime_env: Mapping[str, Any] | None = None,
    measurer: str = SIMULATOR,
) -> TuneResult:
    """Find a good schedule of a model on a target.

    Every schedule that is handed out (the best, all of a Pareto front, the database's) has its
    regions and its memory checked. One that fails is refused, and the next best that passes takes
    its place.

    Args:
        graph: the model with its batch.
        target: the accelerator, or a machine of several units.
        dtype: compute type; the target's default if None.
        trials: in total, trial 0 included; what ``effort`` says if None, and without limit where
            there is a time budget.
        effort: ``"quick"`` (64 trials), ``"standard"`` (400) or ``"thorough"`` (2000).
        seed: the same seed gives the same result, whatever ``jobs`` and ``ray``.
        jobs: worker processes; with Ray actors, 0 for all CPUs of the cluster.
        ray: address of a Ray cluster, ``"local"`` for one of our own; None for no Ray.
        time_budget: seconds with all that comes first and last; one trial is always made. Makes
            the result depend on the machine.
        sampler: one of :data:`autoturbo.search.SAMPLERS`; on a machine ours is annealing.
        objective: ``latency``, ``throughput``, ``energy``, ``ddr-bytes``; several, as a sequence
            or with commas, give a Pareto front.
        database: a file that keeps the trials, for :func:`resume`, and whose schedules a search
            may start from. None keeps nothing: the same call gives the same wherever it is made.
        runs_folder: where the run's folder is made; if None, ``runs`` in the working folder with a
            database, and a temporary folder that goes with the result without one.
        model_file: the file as the user named it, for :func:`resume`; the graph's source if empty.
        baselines: other schedulers to measure for comparison.
        on_progress: called when cuts are placed, before the first trial, and after every outcome.
        storage: an Optuna storage URL that mirrors the trials; its password is kept nowhere.
        timeout_s: seconds for one measurement, after which it counts as failed.
        settings: more to keep with the run (``shapes``); JSON values.
        evaluator: builds what measures; with ``measurer`` if None.
        subgraphs: kinds of sub-graphs, the heaviest first, whose own knobs are searched; if None,
            :data:`autoturbo.search.settings.SUBGRAPHS` for our sampler and none for others.
        transfer: also start from what the database's schedules for this target decided for layers
            like this model's.
        verify: run what is handed out in ONNX Runtime as well, against the model.
        verifier: checks what is handed out; :func:`autoturbo.verify_schedule` if None.
        patience: stop after so many trials without a better one; never if None.
        bound_gap: stop once the best latency is at most this share above the lower bound (0.05).
        round: trials proposed at a time, :data:`BATCH` if None: with more, more workers have
            something to do, and each proposal knows less.
        runtime_env: Ray's ``runtime_env`` for the workers, which brings them what they lack.
        measurer: what measures, by name: the simulator, or a plug-in's (docs/extending.md).

    Raises:
        UsageError: an argument that makes no sense, or no Ray at the address.
        InfeasibleError: no setting that was tried fits the target.
        MeasurerError: the measurer failed on all settings, or gave another number for the best.
        RefusedError: no schedule passes the checks.
        ExecutorError: workers or the cluster failed.
        DatabaseError: the database cannot be used.
        InterruptedRunError: interrupted before anything was measured.
    """
    options = Options(
        trials=trials, effort=effort, seed=seed, jobs=jobs, ray=ray, runtime_env=runtime_env,
        time_budget=time_budget, sampler=sampler, objective=objective, database=database,
        runs_folder=runs_folder, baselines=baselines, on_progress=on_progress, storage=storage,
        timeout_s=timeout_s, evaluator=evaluator, subgraphs=subgraphs, transfer=transfer,
        verify=verify, verifier=verifier, patience=patience, bound_gap=bound_gap, round=round,
        measurer=measurer,
    )  # fmt: skip
    pair = Pair(graph, target, dtype, model_file, settings or {})
    return only(tune_all([pair], options))


def tune_all(
    pairs: Sequence[Pair], options: Options | None = None
) -> list[TuneResult | AutoTurboError]:
    """Tune several pairs on one pool of workers, work going where most is expected of it.

    Each pair has the budget in trials for itself; a budget in time is that of all. The result of a
    pair is what tuning it alone gives from the same database, with any number of workers.

    Args:
        pairs: models on targets.
        options: how, for all of them.

    Returns:
        A result per pair, or why there is none: the others go on.

    Raises:
        UsageError: an argument that makes no sense, or no Ray at the address.
        ExecutorError: workers or the cluster failed.
        DatabaseError: the database cannot be used.
    """
    options = (options or Options()).placed()
    means = options.means()
    for pair in pairs:
        _check(options.asked_of(pair), means, pair.target)
    with Database.open(options.database or DATABASE) as store:
        known = store if options.transfer else None
        drafts = [_draft(pair, options, means, known) for pair in pairs]
        runs: list[Run] = []
        begun: list[str] = []
        with resumable(store, begun), ExitStack() as held:
            for pair, draft in zip(pairs, drafts, strict=True):
                info = _register(_in_call(draft, runs), store)
                begun.append(info.id)
                held.enter_context(store.holding(info.id))
                asked = options.asked_of(pair)
                runs.append(Run(pair.graph, pair.target, asked, means, store, info))
                if options.on_begin is not None:
                    options.on_begin(info)
            return carry_out(runs, means)


def _in_call(draft: RunInfo, before: Sequence[Run]) -> RunInfo:
    """A draft that says with which run it was begun, so that all can be resumed together."""
    if not before:
        return draft
    belongs = {CALL: before[0].info.id, PLACE: len(before)}
    return dataclasses.replace(draft, settings={**draft.settings, **belongs})


def _draft(pair: Pair, options: Options, means: Means, known: Database | None) -> RunInfo:
    """The record of a run to be, with what it starts from."""
    graph, target, asked = pair.graph, pair.target, options.asked_of(pair)
    key = pair_key(graph, target, asked.dtype, asked.measurer, means.make)
    start = _start(graph, target, asked, means, known, key)
    more = {
        **pair.settings,
        "target_description": target.as_dict(),
        "verify": options.verify,
        "starts": [one.knobs.as_dict() for one in start.settings],
        "origins": [one.origin for one in start.settings],
        "notes": list(start.notes),
        STARTS_FIRST: asked.time_budget is not None,
    }
    return RunInfo(
        "", key, graph.name, pair.model_file or graph.source, graph.batch, target.name,
        _stored(asked, key, graph.batch, more), _versions(), now(),
    )  # fmt: skip


def only(ended: Sequence[TuneResult | AutoTurboError]) -> TuneResult:
    """The result of a call for one pair.

    Raises:
        AutoTurboError: there is none.
    """
    (result,) = ended
    if isinstance(result, AutoTurboError):
        raise result
    return result


def resume(
    run: str,
    *,
    database: str | Path = DATABASE,
    load_graph: Callable[[RunInfo], Graph],
    load_target: Callable[[RunInfo], AnyTarget] | None = None,
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
    runtime_env: Mapping[str, Any] | None = None,
    storage: str | None = None,
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
        runtime_env: Ray's ``runtime_env`` for the workers.
        storage: the storage's URL; if None the run's own, or, where that had a password, which is
            not kept, what the environment variable ``AUTOTURBO_STORAGE`` says.

    Raises:
        RunError: no such run, one that another process works on, or what it depends on has
            changed: model, target, scheduler.
        AutoTurboError: whatever :func:`tune` raises.
    """
    changes = Changes(
        load_graph=load_graph, load_target=load_target, jobs=jobs, ray=ray,
        runtime_env=runtime_env, trials=trials, time_budget=time_budget,
        on_progress=on_progress, timeout_s=timeout_s, evaluator=evaluator, verify=verify,
        verifier=verifier, patience=patience, bound_gap=bound_gap,
        storage=storage,
    )  # fmt: skip
    return only(resume_all([run], changes, database=database, together=False))


def resume_all(
    runs: Sequence[str],
    changes: Changes,
    *,
    database: str | Path = DATABASE,
    together: bool = True,
) -> list[TuneResult | AutoTurboError]:
    """Go on with several runs on one pool of workers.

    Args:
        runs: their ids, or the starts of them.
        changes: how.
        database: where they are kept.
        together: also with the runs that were begun in one call with any of these.

    Returns:
        A result per run, or why there is none; those begun together in the order of their pairs.

    Raises:
        RunError: no such run, or what one depends on has changed.
        AutoTurboError: whatever :func:`tune_all` raises.
    """
    means = changes.means()
    with Database.open(database, create=False) as store:
        chosen = {info.id: info for info in map(store.run, runs)}
        if together:
            chosen = _with_companions(chosen, store)
        carried = [_carried(info, changes, means, store) for info in chosen.values()]
        with resumable(store, [run.info.id for run in carried]), ExitStack() as held:
            for run in carried:
                held.enter_context(store.holding(run.info.id))
            for run in carried:
                if changes.limits:
                    store.set_limits(run.info.id, run.info.settings[LIMITS])
                store.set_state(run.info.id, "running")
                if changes.on_begin is not None:
                    changes.on_begin(run.info)
            return carry_out(carried, means)


def _carried(info: RunInfo, changes: Changes, means: Means, store: Database) -> Run:
    """A run as it goes on.

    Raises:
        RunError: what it depends on has changed.
    """
    target = changes.load_target(info) if changes.load_target else stored_target(info)
    graph = changes.load_graph(info)
    asked = stored_settings(info)
    _refuse_changed(info, pair_key(graph, target, asked.dtype, asked.measurer, means.make))
    asked = dataclasses.replace(asked, storage=changes.storage_of(info))
    asked = asked.extended(changes.trials, changes.time_budget, changes.patience, changes.bound_gap)
    if changes.limits:
        limits = {name: getattr(asked, name) for name in LIMITED}
        info = dataclasses.replace(info, settings={**info.settings, LIMITS: limits})
    if changes.verify is not None:
        info = dataclasses.replace(info, settings={**info.settings, "verify": changes.verify})
    _check(asked, means, target)
    return Run(graph, target, asked, means, store, info)


def _with_companions(chosen: Mapping[str, RunInfo], store: Database) -> dict[str, RunInfo]:
    """The same and the runs of their calls, as they were begun."""
    calls = {info.settings.get(CALL, info.id) for info in chosen.values()}
    every = [store.run(info.id) for info in store.runs()]
    members = [info for info in every if info.settings.get(CALL, info.id) in calls]
    return {info.id: info for info in sorted(members, key=_place)}


def _place(info: RunInfo) -> tuple[str, int]:
    return info.settings.get(CALL, info.id), info.settings.get(PLACE, 0)


def _start(
    graph: Graph,
    target: AnyTarget,
    asked: Settings,
    means: Means,
    store: Database | None,
    key: PairKey,
) -> StartingPoint:
    """What the search starts from besides the heuristic, kept with the run for :func:`resume`."""
    from autoturbo.search.beginnings import StartingPoint, start_of_run

    if not graph.operators or isinstance(target, Machine):
        return StartingPoint()
    begin = time.monotonic()

    def show(phase: str) -> None:
        if means.on_progress is not None:
            took = time.monotonic() - begin
            standing = Progress(
                graph.name, target.name, 0, asked.total, elapsed_s=took, phase=phase
            )
            means.on_progress(standing)

    show("placing cuts")
    return start_of_run(graph, target, key, store, lambda done: show(f"placing cuts {done:.0%}"))


def scheduler_version(measurer: str = SIMULATOR) -> str:
    """Scheduler, simulator and knob set: a measurement of another version is not reused.

    Args:
        measurer: what measures; a plug-in's name and version follow those of ours.

    Raises:
        UsageError: no measurer of that name.
    """
    from autoturbo.schedule.schedule import SCHEDULER_VERSION
    from autoturbo.simulate.evaluator import measurer_version

    ours = f"{SCHEDULER_VERSION}.{SIMULATOR_VERSION}.{KNOBS_SCHEMA}"
    return ours if measurer == SIMULATOR else f"{ours}+{measurer_version(measurer)}"


def _check(asked: Settings, means: Means, target: AnyTarget) -> None:
    from autoturbo.search.samplers import check_sampler

    objectives = asked.check()
    means.check()
    if isinstance(target, Machine):
        from autoturbo.search.units.settings import check_on_machine

        check_on_machine(asked, len(objectives))
        if asked.sampler != ANNEALING:
            check_sampler(asked.sampler, len(objectives))
        return
    check_sampler(asked.sampler, len(objectives))
    if any(o.name == "energy" for o in objectives) and target.energy is None:
        hint = "add an 'energy' section to the target"
        raise UsageError(f"target {target.name} gives no energy figures", hint=hint)


def pair_key(
    graph: Graph,
    target: AnyTarget,
    dtype: str,
    measurer: str = SIMULATOR,
    make: MakeWorkshop | None = None,
) -> PairKey:
    """What a measurement of the pair holds for, by this version of the scheduler.

    Args:
        graph: the model.
        target: the accelerator.
        dtype: the compute type.
        measurer: what measures.
        make: another evaluator than ours, whose schedules are not mixed with ours.

    Raises:
        UsageError: no measurer of that name.
    """
    version = scheduler_version(measurer) + ("" if make is None else OTHER_EVALUATOR)
    return PairKey(graph.hash, target.hash, dtype, version)


def measurer_of(info: RunInfo) -> str:
    """Name of what measured a run's trials."""
    return str(info.settings.get("measurer", SIMULATOR))


def _versions() -> dict[str, str]:
    """Of what the proposals depend on, this package included, and of what it ran on."""
    found = {"autoturbo": __version__, **interpreter()}
    for name in ("numpy", "optuna", "xgboost-cpu", "xgboost"):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _stored(asked: Settings, key: PairKey, batch: int, more: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run's record, from which it can be begun again."""
    keys = {name: getattr(key, name) for name in ("graph_hash", "target_hash", "scheduler_version")}
    fields = {**dataclasses.asdict(asked), "baselines": list(asked.baselines)}
    fields["storage"] = None if asked.storage is None else masked(asked.storage)
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


__all__ = [
    "BATCH",
    "DATABASE",
    "EFFORTS",
    "Best",
    "Changes",
    "Options",
    "Pair",
    "Progress",
    "Trial",
    "TuneResult",
    "Workshop",
    "resume",
    "resume_all",
    "scheduler_version",
    "tune",
    "tune_all",
]
