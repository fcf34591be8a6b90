"""The tuner: the only place where search, cost model, simulator and database meet.

A reader's map::

    tune / resume -> TuneConfig, ExecutionConfig (autoturbo.config) -> Run (autoturbo.tuning.run)
        -> autoturbo.tuning.campaign: rounds of all pairs on one pool of workers
        -> autoturbo.search.loop: of one pair: propose, measure, record, learn
        -> result: hand out what passes the checks (verified_selection), write, report
"""

from __future__ import annotations

import dataclasses
import gc
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autoturbo.compiled import CompileProgress, watched_compiling
from autoturbo.config import (
    PINNING,
    RUNS,
    ExecutionConfig,
    ResumeConfig,
    TuneConfig,
    argument,
    called_with,
    part_of,
)
from autoturbo.database import BORROWS, CALL, LIMITS, PLACE, Database, PairKey, RunInfo, run_id
from autoturbo.errors import AutoTurboError, Location, RunError, UsageError
from autoturbo.passwords import masked
from autoturbo.registry import HOST, PROGRAM, SIMULATOR, TASKS
from autoturbo.report.live_lines import compiling_line
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.journal import now
from autoturbo.search.objectives import OF_KERNELS, REPORTED, find_objectives
from autoturbo.search.pins import pins_of_run
from autoturbo.search.progress import Progress
from autoturbo.search.space import PART
from autoturbo.tuning.keys import (
    SESSION,
    hashes,
    pair_key,
    refuse_changed,
    register,
    session_of,
    storage_of,
    stored_target,
    versions_here,
)
from autoturbo.tuning.result import TuneResult, best_of
from autoturbo.tuning.run import DATABASE, STARTS_FIRST, Run, carry_out, pool_of, resumable

if TYPE_CHECKING:
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.tuning_target import TuningTarget
    from autoturbo.search.warm_starts.beginning import WarmStarts
    from autoturbo.simulator.evaluator import Evaluator
    from autoturbo.tuning.host_run import HostResult

MODEL_FILE = "the file as the user named it, for whoever resumes; the graph's source if empty"
SETTINGS = "more to keep with the run (``shapes``); JSON values"
SEEDS = (
    "searches with as many seeds, from ``seed`` on, each a run of its own; the best is returned, "
    "and its ``repeats`` says what all of them found"
)


class ScratchFolder:
    """A temporary folder, removed with its last user.

    Attributes:
        path: The folder.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="autoturbo-"))
        weakref.finalize(self, _remove, self.path, os.getpid())


def _remove(path: Path, process: int) -> None:
    """Remove a folder in the process that made it; forked ones leave it alone."""
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """A model and its target.

    Attributes:
        graph: The model with its batch.
        target: The accelerator, or a machine of several units.
        model_file: The file as the user named it, for whoever resumes; the graph's source if empty.
        settings: More to keep with the run; JSON values.
        seed: Seed of its search; the configuration's if None.
    """

    graph: Graph
    target: TuningTarget
    model_file: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None

    def configured(self, config: TuneConfig) -> TuneConfig:
        """Return the configuration with the pair's own seed."""
        return config if self.seed is None else dataclasses.replace(config, seed=self.seed)


@dataclass(frozen=True, kw_only=True)
class TuneCall(ExecutionConfig, TuneConfig):
    """Arguments of :func:`tune`."""

    graph: Graph = field(kw_only=False, metadata=argument("the model with its batch"))
    target: TuningTarget | Literal["host"] = field(
        kw_only=False,
        metadata=argument(
            'the accelerator, a machine of several units, or ``"host"``: this computer'
        ),
    )
    model_file: str = field(default="", metadata=argument(MODEL_FILE))
    settings: Mapping[str, Any] = field(default_factory=dict, metadata=argument(SETTINGS))
    seeds: int = field(default=1, metadata=argument(SEEDS))


@called_with(TuneCall)
def tune(call: TuneCall) -> TuneResult:
    """Find a good schedule of a model that is loaded, as :func:`autoturbo.tune` does.

    Returns:
        The best schedule and its measurement, with all trials of the run.
    """
    if isinstance(call.target, str):
        here: TuneResult = _here(call)
        return here
    pair = Pair(call.graph, call.target, call.model_file, call.settings)
    parts = part_of(TuneConfig, call), part_of(ExecutionConfig, call)
    ended = tune_repeatedly([pair], *parts, seeds=call.seeds)
    return only([min(ended, key=_is_done)])


def _is_done(ended: TuneResult | AutoTurboError) -> bool:
    """Return whether a search has come to its end."""
    return isinstance(ended, AutoTurboError) or ended.state == "done"


def tune_repeatedly(
    pairs: Sequence[Pair], config: TuneConfig, execution: ExecutionConfig, *, seeds: int
) -> list[TuneResult | AutoTurboError]:
    """Tune pairs with several seeds each, from the configuration's on, and hand out the best.

    All searches are begun from the same database, on one pool of workers; a budget in trials is
    each one's, a budget in time that of all.

    Args:
        pairs: Models on targets.
        config: Configuration that decides the results.
        execution: The way in which the call is carried out.
        seeds: Number of seeds; each is a run of its own.

    Returns:
        What :func:`autoturbo.tuning.result.best_of` gives for each pair.

    Raises:
        UsageError: Fewer than one seed.
        AutoTurboError: Whatever :func:`tune_all` raises.
    """
    if seeds < 1:
        raise UsageError(f"seeds: {seeds} is too few", hint="at least 1")
    each = range(config.seed, config.seed + seeds)
    ended = tune_all(
        [dataclasses.replace(pair, seed=seed) for pair in pairs for seed in each], config, execution
    )
    starts = range(0, len(ended), seeds)
    return [one for start in starts for one in best_of(ended[start : start + seeds])]


def _here(call: TuneCall) -> Any:
    """Tune for this computer.

    Returns:
        A HostResult; to type checkers it is what all other targets give.

    Raises:
        UsageError: The target is another name.
    """
    if call.target != HOST:
        hint = "give what load_target returns, or 'host' for this computer"
        raise UsageError(f"{call.target!r} is not a target", Location(field="target"), hint)
    if call.seeds != 1:
        raise UsageError("several seeds mean nothing for this computer", hint="leave them out")
    parts = part_of(TuneConfig, call), part_of(ExecutionConfig, call)
    return tune_here(call.graph, call.model_file, call.settings, *parts)


def tune_here(
    graph: Graph,
    model_file: str,
    settings: Mapping[str, Any],
    config: TuneConfig,
    execution: ExecutionConfig,
) -> HostResult:
    """Find the plan under which batches of a model run fastest on this computer.

    Args:
        graph: The model with its batch.
        model_file: The file as the user named it.
        settings: Options by which the file was read, and more to keep with the run.
        config: Limits and options of the search.
        execution: Places that things are written to, and listeners.

    Returns:
        The plan that is handed out, with all trials of the run.

    Raises:
        AutoTurboError: Whatever :func:`autoturbo.tuning.host_run.tune_on_host` raises.
    """
    from autoturbo.tuning.host_run import tune_on_host

    execution = execution.started()
    scratch = ScratchFolder() if execution.database is None else None
    execution = placed(execution, scratch)
    with Database.open(execution.database or DATABASE) as store:
        found = tune_on_host(graph, model_file, settings, config, execution, store)
    return dataclasses.replace(found, scratch=scratch)


def tune_all(
    pairs: Sequence[Pair],
    config: TuneConfig | None = None,
    execution: ExecutionConfig | None = None,
) -> list[TuneResult | AutoTurboError]:
    """Tune several pairs on one pool of workers; the most promising pair gets the next round.

    Each pair has the budget in trials for itself; a budget in time is that of all. The result of a
    pair is what tuning it alone gives from the same database, with any number of workers.

    Args:
        pairs: Models on targets.
        config: Configuration that decides the results.
        execution: The way in which the call is carried out.

    Returns:
        A result per pair, or why there is none: the others go on.

    Raises:
        UsageError: An argument that makes no sense, or no Ray at the address.
        ExecutorError: Workers or the cluster failed.
        DatabaseError: The database cannot be used.
    """
    config, execution = config or TuneConfig(), (execution or ExecutionConfig()).started()
    asked = [pair.configured(config).resolved(pair.target) for pair in pairs]
    for pair, one in zip(pairs, asked, strict=True):
        _check(one, execution, pair.target)
        _check_batch(pair.graph, config)
    scratch = ScratchFolder() if execution.database is None else None
    execution = placed(execution, scratch)
    _check_storage(execution)
    first = ((pair.graph.name, pair.target.name) for pair in pairs)
    with (
        _collecting_rarely(),
        _told_of_compiling(execution, *first) as execution,
        closing(pool_of(asked, execution)) as executor,
        Database.open(execution.database or DATABASE) as store,
    ):
        known = store if config.transfer else None
        drafts = [_draft(pair, pair.configured(config), execution, known) for pair in pairs]
        runs: list[Run] = []
        begun: list[str] = []
        with resumable(store, begun, execution), ExitStack() as held:
            for pair, one, (draft, evaluator) in zip(pairs, asked, drafts, strict=True):
                own = _base_id(pair, pair.configured(config), draft)
                info = register(_in_call(draft, runs), own, store)
                begun.append(info.id)
                held.enter_context(store.holding(info.id))
                runs.append(Run(pair.graph, pair.target, one, execution, store, info, evaluator))
                if execution.on_begin is not None:
                    execution.on_begin(info)
            ended = settled(carry_out(runs, executor), store)
    if scratch is None:
        return ended
    return [
        dataclasses.replace(one, scratch=scratch) if isinstance(one, TuneResult) else one
        for one in ended
    ]


def settled(
    ended: Sequence[TuneResult | AutoTurboError], store: Database
) -> list[TuneResult | AutoTurboError]:
    """Return results that say what the database could not take by the end."""
    store.settle()
    return [
        dataclasses.replace(one, unsaved=store.unsaved(one.run))
        if isinstance(one, TuneResult)
        else one
        for one in ended
    ]


@contextmanager
def _collecting_rarely() -> Iterator[None]:
    """Collect cyclic garbage rarely: in large runs it takes a fifth of the time else."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 20, before[2])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _told_of_compiling(
    execution: ExecutionConfig, *pairs: tuple[str, str]
) -> Iterator[ExecutionConfig]:
    """Yield the configuration, with an ``on_progress`` that also reports compiling.

    Args:
        execution: The way in which a call is carried out.
        pairs: Names of models and targets; the first is told of before there is any progress.
    """
    on_progress = execution.on_progress
    if on_progress is None or not pairs:
        yield execution
        return
    last = Progress(*pairs[0], 0, None)
    at = time.monotonic()

    def keep(progress: Progress) -> None:
        nonlocal last, at
        last, at = progress, time.monotonic()
        on_progress(progress)

    def tell() -> None:
        if compiling.running and compiling.total:
            elapsed = last.elapsed_s + time.monotonic() - at
            done, total = compiling.functions, compiling.total
            phase = compiling_line(done, total, compiling.left_s, kept=compiling.kept)
            on_progress(
                dataclasses.replace(
                    last, elapsed_s=elapsed, phase=phase, compiled=done, to_compile=total
                )
            )

    with watched_compiling(CompileProgress(tell)) as compiling:
        yield dataclasses.replace(execution, on_progress=keep)


def placed(execution: ExecutionConfig, scratch: ScratchFolder | None) -> ExecutionConfig:
    """Return the configuration with a place for all that is written.

    Args:
        execution: The way in which a call is carried out.
        scratch: Holds what is kept nowhere, where there is no database: nothing in the working
            folder is read, and nothing written but the run folders where they are asked for.
    """
    if scratch is None:
        return dataclasses.replace(execution, runs_folder=execution.runs_folder or RUNS)
    runs = execution.runs_folder or scratch.path / RUNS
    database = scratch.path / "autoturbo.db"
    return dataclasses.replace(execution, database=database, runs_folder=runs)


def _in_call(draft: RunInfo, before: Sequence[Run]) -> RunInfo:
    """Return a draft that names the first run of its call, so that all are resumed together."""
    if not before:
        return draft
    belongs = {CALL: before[0].info.id, PLACE: len(before)}
    return dataclasses.replace(draft, settings={**draft.settings, **belongs})


def _draft(
    pair: Pair, config: TuneConfig, execution: ExecutionConfig, known: Database | None
) -> tuple[RunInfo, Evaluator | None]:
    """Return the record of a new run with its warm starts, and the evaluator that found them."""
    graph, target, asked = pair.graph, pair.target, config.resolved(pair.target)
    key = _key_of(pair, asked, execution)
    start, evaluator = _start(graph, target, asked, execution, known, key)
    storage = execution.storage
    settings = {
        **pair.settings,
        "target_description": target.as_dict(),
        "starts": [one.knobs.as_dict() for one in start.settings],
        "origins": [one.origin for one in start.settings],
        "notes": list(start.notes),
        **({} if start.fitted is None else {PART: start.fitted.as_dict()}),
        STARTS_FIRST: asked.time_budget is not None,
        **asked.record(),
        **({} if execution.evaluator else session_of(asked.measurer)),
        "runs_folder": str(execution.runs_folder),
        "storage": None if storage is None else masked(storage),
        **hashes(key),
        "config_hash": asked.hash,
        "batch": graph.batch,
    }
    info = RunInfo(
        "", key, graph.name, pair.model_file or graph.source, graph.batch, target.name,
        settings, versions_here(), now(),
    )  # fmt: skip
    return info, evaluator


def _key_of(pair: Pair, asked: TuneConfig, execution: ExecutionConfig) -> PairKey:
    dtype = asked.dtype or pair.target.default_dtype
    pins = pins_of_run(asked.record(), pair.graph)
    return pair_key(pair.graph, pair.target, dtype, asked.measurer, execution.evaluator, pins)


def _base_id(pair: Pair, config: TuneConfig, draft: RunInfo) -> str:
    """Return the id of the first run of a pair with a configuration.

    It follows from what is run, never from the place of a file; where measurements vary also from
    the session.
    """
    shapes, batch = pair.settings.get("shapes"), pair.graph.batch
    asked, session = config.identity(pair.target), draft.settings.get(SESSION)
    if asked.get("cost_model") is not None:
        from autoturbo.cost_models.pretrained import content_of

        asked["cost_model"] = content_of(asked["cost_model"])
    more = {"batch": batch, "shapes": shapes, SESSION: session}
    return run_id({**hashes(draft.key), **asked, **more})


def only(ended: Sequence[TuneResult | AutoTurboError]) -> TuneResult:
    """Return the result of a call for one pair.

    Raises:
        AutoTurboError: There is none.
    """
    (result,) = ended
    if isinstance(result, AutoTurboError):
        raise result
    return result


def resume_all(
    runs: Sequence[str],
    config: ResumeConfig | None = None,
    execution: ExecutionConfig | None = None,
    *,
    load_graph: Callable[[RunInfo], Graph],
    load_target: Callable[[RunInfo], TuningTarget] | None = None,
    together: bool = True,
) -> list[TuneResult | AutoTurboError]:
    """Resume several runs on one pool of workers.

    Args:
        runs: Their ids, or the starts of them.
        config: Changes of the configuration; None for nothing.
        execution: How the runs are carried out; :data:`DATABASE` where it names no database.
        load_graph: Reads a model again (``model_file``, ``batch`` and ``settings`` say how).
        load_target: Reads a target again; the description kept with the run if None.
        together: Whether to resume the runs too that were begun in one call with any of these.

    Returns:
        A result per run, or why there is none; those begun together in the order of their pairs.

    Raises:
        RunError: No such run, one that another process works on, or what one depends on has
            changed: model, target, scheduler.
        AutoTurboError: Whatever :func:`tune_all` raises.
    """
    config, execution = config or ResumeConfig(), (execution or ExecutionConfig()).started()
    where = execution.database or DATABASE
    _check_storage(execution)
    with Database.open(where, create=False) as store, ExitStack() as held:
        chosen = {info.id: info for info in map(store.run, runs)}
        if together:
            chosen = _with_companions(chosen, store)
        if here := [info for info in chosen.values() if info.on_host]:
            return _resumed_here(here, config, execution, store, load_graph)
        names = ((info.model, info.target) for info in chosen.values())
        held.enter_context(_collecting_rarely())
        execution = held.enter_context(_told_of_compiling(execution, *names))
        carried = []
        for info in chosen.values():
            target = load_target(info) if load_target else stored_target(info)
            carried.append(_carried(info, load_graph(info), target, config, execution, store))
        executor = held.enter_context(closing(pool_of([run.config for run in carried], execution)))
        with resumable(store, [run.info.id for run in carried], execution), held:
            for run in carried:
                # All are held before any is begun: another process may work on one of them.
                held.enter_context(store.holding(run.info.id))
                store.take_unsaved(run.folder.unsaved_file)
            for run in carried:
                if LIMITS in run.info.settings:
                    store.set_limits(run.info.id, run.info.settings[LIMITS])
                store.set_state(run.info.id, "running")
                if execution.on_begin is not None:
                    execution.on_begin(run.info)
            return settled(carry_out(carried, executor), store)


def _resumed_here(
    infos: Sequence[RunInfo],
    config: ResumeConfig,
    execution: ExecutionConfig,
    store: Database,
    load_graph: Callable[[RunInfo], Graph],
) -> list[Any]:
    """Resume runs on this computer, one after another."""
    from autoturbo.tuning.host_run import resume_on_host

    return [resume_on_host(info, load_graph(info), config, execution, store) for info in infos]


def _carried(
    info: RunInfo,
    graph: Graph,
    target: TuningTarget,
    config: ResumeConfig,
    execution: ExecutionConfig,
    store: Database,
) -> Run:
    """Return a resumed run.

    Raises:
        RunError: What it depends on has changed.
    """
    if BORROWS in info.settings:
        message = f"run {info.id} measured what other points of a sweep found"
        raise RunError(message, hint="the same sweep goes on with it")
    before = TuneConfig.of_run(info)
    dtype = before.dtype or target.default_dtype
    pins = pins_of_run(before.record(), graph)
    refuse_changed(info, pair_key(graph, target, dtype, before.measurer, execution.evaluator, pins))
    refuse_other_pins(info, before, config)
    asked = before.extended(config)
    execution = dataclasses.replace(execution, storage=storage_of(info, execution.storage))
    changed: dict[str, Any] = {} if asked.limits == before.limits else asked.limits
    if execution.runs_folder is not None:
        changed["runs_folder"] = str(execution.runs_folder)
    settings = {**info.settings, "verify": bool(asked.verify)}
    if changed:
        settings[LIMITS] = {**info.settings.get(LIMITS, {}), **changed}
    _check(asked, execution, target)
    return Run(graph, target, asked, execution, store, dataclasses.replace(info, settings=settings))


def refuse_other_pins(info: RunInfo, before: TuneConfig, asked: ResumeConfig) -> None:
    """Refuse to go on with a run under other constraints than those that it began with.

    Raises:
        RunError: What is fixed, allowed, kept or cut is something else.
    """
    given = {n: value for n in PINNING if (value := getattr(asked, n)) is not None}
    begun, other = before.record(), dataclasses.replace(before, **given).record()
    changed = [n for n in PINNING if other[n] != begun[n]]
    if changed:
        message = f"run {info.id} began with other constraints ({', '.join(changed)})"
        raise RunError(message, hint="start a new run with 'tune'")


def _with_companions(chosen: Mapping[str, RunInfo], store: Database) -> dict[str, RunInfo]:
    """Return the runs with the other runs of their calls, in the order in which they were begun."""
    calls = {info.settings.get(CALL, info.id) for info in chosen.values()}
    every = [store.run(info.id) for info in store.runs()]
    members = [info for info in every if info.settings.get(CALL, info.id) in calls]
    return {info.id: info for info in sorted(members, key=_place)}


def _place(info: RunInfo) -> tuple[str, int]:
    return info.settings.get(CALL, info.id), info.settings.get(PLACE, 0)


def _start(
    graph: Graph,
    target: TuningTarget,
    asked: TuneConfig,
    execution: ExecutionConfig,
    store: Database | None,
    key: PairKey,
) -> tuple[WarmStarts, Evaluator | None]:
    """Return the warm starts, kept with the run for :func:`resume`, and their evaluator.

    The evaluator knows by then how much of the model is scheduled.
    """
    from autoturbo.search.space import Space
    from autoturbo.search.warm_starts.beginning import WarmStarts, begun_with, start_of_run
    from autoturbo.simulator.evaluator import Evaluator

    if not graph.operators or TASKS.load(type(target).__name__).on_machine:
        return WarmStarts(), None
    begin = time.monotonic()

    def show(phase: str) -> None:
        if execution.on_progress is not None:
            took = time.monotonic() - begin
            standing = Progress(
                graph.name, target.name, 0, asked.total, elapsed_s=took, phase=phase
            )
            execution.on_progress(standing)

    on: Any = target
    evaluator = Evaluator(graph, on, key.dtype)
    pins = pins_of_run(asked.record(), graph)
    if pins:
        Space.of(evaluator.model_scheduler, pins=pins)  # or refused, before anything is searched
    begun = begun_with(evaluator, [Knobs.from_dict(one) for one in asked.record()["begin"] or ()])
    if not asked.warm_starts:
        return begun, evaluator
    show("planning")
    objectives = find_objectives(asked.objective)
    # what a board takes is not what decides here, and what needs least energy is another part
    fit = asked.measurer == SIMULATOR and execution.evaluator is None and not pins
    fit = fit and all(objective.name in OF_KERNELS for objective in objectives)
    found = start_of_run(
        evaluator, key, store, lambda done: show(f"planning {100 * done:.0f} %"), fit=fit
    )
    return dataclasses.replace(found, settings=(*begun.settings, *found.settings)), evaluator


def _check_storage(execution: ExecutionConfig) -> None:
    """Refuse a storage that Optuna cannot use, before any work."""
    from autoturbo.search.study import check_storage

    if execution.storage is not None:
        check_storage(execution.storage, execution.database or DATABASE)


def _check(asked: TuneConfig, execution: ExecutionConfig, target: TuningTarget) -> None:
    """Refuse arguments that contradict each other."""
    from autoturbo.search.proposer import words_of

    asked.check()
    execution.check()
    if asked.sampler == PROGRAM and execution.proposer is None:
        raise UsageError("sampler 'program' has no program", hint="add --proposer 'COMMAND'")
    if asked.cost_model is not None:
        from autoturbo.cost_models.pretrained import content_of

        content_of(asked.cost_model)
    if execution.proposer is not None:
        words_of(execution.proposer)
        if asked.sampler != PROGRAM:
            raise UsageError("no sampler asks the proposer", hint=f"add --sampler {PROGRAM}")
    objectives = [objective.name for objective in find_objectives(asked.objective)]
    measured = [name for name in objectives if _is_reported(asked.measurer, name)]
    TASKS.load(type(target).__name__).check(target, asked.sampler, objectives, measured)


def _check_batch(graph: Graph, asked: TuneConfig) -> None:
    """Refuse to seek samples per second where nobody knows the samples.

    Raises:
        UsageError: The inputs of the model do not agree on a batch.
    """
    names = [objective.name for objective in find_objectives(asked.objective)]
    if "throughput" in names and not graph.agreed:
        message = f"{graph.name}: no samples/s, its inputs do not agree on a batch"
        raise UsageError(message, hint="state it with --batch-dim, or seek the latency")


def _is_reported(measurer: str, objective: str) -> bool:
    """Return whether a measurer says that it reports what an objective needs beside a latency.

    Raises:
        UsageError: It says that it does not.
    """
    from autoturbo.simulator.measurers import declared

    info = declared(measurer)
    if info is None or objective in OF_KERNELS:
        return False
    if REPORTED[objective] not in info.reports:
        hint = f"it reports {', '.join(info.reports)}"
        raise UsageError(f"the measurer {measurer} does not report {objective}", hint=hint)
    return True
