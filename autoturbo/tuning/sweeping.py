"""Sweeps: the latency of tuned schedules over a grid of targets.

Every point of the grid is a tuning run like any other, in the same database: a sweep that is asked
for again finds its runs there, goes on with those that were interrupted, and tunes the others.
Points start from nothing that schedules in the database decided, so that they can be compared and
do not depend on what was tuned before. Then each measures what the points next to it found, in a
second run of its own, until none gets better: a schedule for a smaller buffer runs on a larger one.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.config import (
    ExecutionConfig,
    SweepConfig,
    TuneConfig,
    argument,
    called_with,
    part_of,
)
from autoturbo.database import BORROWS, CALL, LIMITS, PLACE, Database, RunState, run_id
from autoturbo.errors import AutoTurboError, InterruptedRunError, MeasurerError, RefusedError
from autoturbo.hardware.grid import GridPoint, Value, axes_of, cost_of, grid_of, neighbours
from autoturbo.report.sweep import COLUMNS, Course, Sweep, SweepPoint
from autoturbo.search.executors import Answer, Task, make_executor, measured
from autoturbo.search.journal import now
from autoturbo.search.pins import pins_of_run
from autoturbo.search.progress import Progress, Trial
from autoturbo.signals import telling
from autoturbo.simulator.measurement import (
    Measurement,
    Outcome,
    seconds_of,
)
from autoturbo.tuning.keys import pair_key, register
from autoturbo.tuning.run import DATABASE, Run, hand_out
from autoturbo.tuning.tuner import (
    MODEL_FILE,
    SETTINGS,
    Pair,
    ScratchFolder,
    placed,
    resume_all,
    tune_all,
)

if TYPE_CHECKING:
    from autoturbo.database import PairKey, RunInfo
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.grid import Axis
    from autoturbo.hardware.target import Target
    from autoturbo.schedule.knobs import Knobs
    from autoturbo.schedule.pipeline import ModelScheduler
    from autoturbo.tuning.result import TuneResult

SWEEP = "sweep"
"""Setting of a run that a sweep began: it started from nothing that the database knew."""

VARY = (
    'values by field, ``{"lb.capacity_kib": [256, 512]}``, or texts as on the command line,'
    ' ``["lb.capacity_kib=256..4096"]``'
)

COST = (
    "what a target costs, for the Pareto front: weights by field,"
    ' ``{"lb.capacity_kib": 0.3}`` or ``"lb.capacity_kib=0.3"``, or a column of the table'
)

AT_ONCE = 16
"""Points that share a pool of workers: what they remember has to fit the memory."""

PHASE = "what neighbours found"
"""Last line in the log of a run that measured candidates of other points."""

_INTERRUPTED = ("interrupted; all trials are saved", "the same command goes on from here")

TUNED = 0.9
"""Share of a time budget by which points are tuned; the rest is for what neighbours found."""


@dataclass(frozen=True, kw_only=True)
class SweepCall(ExecutionConfig, SweepConfig):
    """Arguments of :func:`sweep`: those of :func:`autoturbo.tune`, for every point."""

    model: Graph = field(kw_only=False, metadata=argument("the model with its batch"))
    target: Target = field(
        kw_only=False, metadata=argument("the accelerator whose fields are varied")
    )
    vary: Mapping[str, Iterable[Value]] | Sequence[str] = field(
        kw_only=False, metadata=argument(VARY)
    )
    cost: Mapping[str, float] | str | None = field(default=None, metadata=argument(COST))
    model_file: str = field(default="", metadata=argument(MODEL_FILE))
    settings: Mapping[str, Any] = field(default_factory=dict, metadata=argument(SETTINGS))


@called_with(SweepCall)
def sweep(call: SweepCall) -> Sweep:
    """Tune a model that is loaded on every target of a grid, as :func:`autoturbo.sweep` does.

    Returns:
        All points of the grid in order, each with its best schedule or why it has none.
    """
    model, target = call.model, call.target
    config, execution = part_of(TuneConfig, call), part_of(ExecutionConfig, call).started()
    scratch = ScratchFolder() if execution.database is None else None
    execution = placed(execution, scratch)
    axes = axes_of(call.vary)
    settings = {**call.settings, SWEEP: target.name}
    grid = [
        _Point(point, Pair(model, point.target, call.model_file, settings), config)
        for point in grid_of(target, axes)
    ]
    cost = None
    if call.cost is not None:
        cost = cost_of(call.cost, [one.target for one in grid], COLUMNS)
    with telling(*_INTERRUPTED):
        known = _tune(grid, config, execution)
        with _opened(execution) as store:
            _borrow(grid, axes, execution, store)
            points = tuple(_ended(point, store) for point in grid)
    if cost is not None:
        points = tuple(p.costing(cost, g.target) for p, g in zip(points, grid, strict=True))
    dtype = config.dtype or target.default_dtype
    return Sweep(model.name, target.name, dtype, axes, points, known, cost)


@dataclass(eq=False)
class _Point:
    """The state of a point of the grid.

    Attributes:
        run: The run that tuned it.
        failure: Why that failed.
        borrows: The run that measures what its neighbours found; None before there is any.
        bests: The fastest trial of its own (under an empty name), and of each neighbour's
            candidates by the name of its target.
        sources: Names of the targets whose candidates the trials of ``borrows`` are, by number.
        offered: Best trials of neighbours that it was given, by their targets' names.
        tried: Candidates that it was given, and those that ``run`` measured.
    """

    point: GridPoint
    pair: Pair
    config: TuneConfig
    run: RunInfo | None = None
    failure: AutoTurboError | None = None
    borrows: RunInfo | None = None
    bests: dict[str, Trial] = field(default_factory=dict)
    sources: dict[int, str] = field(default_factory=dict)
    offered: dict[str, Trial] = field(default_factory=dict)
    tried: set[Knobs] = field(default_factory=set)

    def key(self, execution: ExecutionConfig) -> PairKey:
        dtype = self.config.dtype or self.pair.target.default_dtype
        target, measurer = self.pair.target, self.config.measurer
        pins = pins_of_run(self.config.record(), self.pair.graph)
        return pair_key(self.pair.graph, target, dtype, measurer, execution.evaluator, pins)

    @property
    def target(self) -> Target:
        """Return the point's target."""
        return self.point.target

    def take(self, trial: Trial, source: str = "") -> None:
        """Take a trial of a neighbour's candidate, or of its own."""
        if _latency(trial) < _latency(self.bests.get(source)):
            self.bests[source] = trial

    def best_for(self, name: str) -> Trial | None:
        """Return the fastest trial that is no candidate of a neighbour by name."""
        trials = [trial for source, trial in self.bests.items() if source != name]
        return min(trials, key=_latency, default=None)


def _tune(grid: Sequence[_Point], config: TuneConfig, execution: ExecutionConfig) -> int:
    """Tune all points to their end, and return how many were done before."""
    _look_up(grid, execution)
    open_points = [point for point in grid if point.run is None or point.run.state != "done"]
    for first in range(0, len(open_points), AT_ONCE):
        batch = open_points[first : first + AT_ONCE]
        # Each batch ends by its share of the time, counted from the begin of the sweep.
        share = (first + len(batch)) / len(open_points)
        early = (1.0 - TUNED * share) * (
            config.time_budget or 0.0
        )  # begun so much before: less is left
        timed = dataclasses.replace(execution, began=execution.began - early)
        _go_on([point for point in batch if point.run is not None], timed)
        _begin([point for point in batch if point.run is None], config, timed)
    _look_up(open_points, execution)
    return len(grid) - len(open_points)


def untuned(
    grid: Sequence[GridPoint],
    model: Graph,
    config: TuneConfig,
    execution: ExecutionConfig,
) -> tuple[GridPoint, ...]:
    """Return the points of a grid that no earlier run has tuned to its end.

    Raises:
        DatabaseError: The database cannot be used.
    """
    if not Path(execution.database or DATABASE).is_file():
        return tuple(grid)
    plain = part_of(TuneConfig, config)  # as runs have it, whose class is compared too
    points = [_Point(one, Pair(model, one.target), plain) for one in grid]
    _look_up(points, execution)
    return tuple(p.point for p in points if p.run is None or p.run.state != "done")


def _begin(points: Sequence[_Point], config: TuneConfig, execution: ExecutionConfig) -> None:
    if points:
        _note(points, tune_all([one.pair for one in points], config, execution))


def _go_on(points: Sequence[_Point], execution: ExecutionConfig) -> None:
    """Resume runs that were interrupted, killed or without a result: their trials are kept."""
    if not points:
        return
    runs, same = [one.run.id for one in points if one.run is not None], points[0].pair.graph
    where = dataclasses.replace(execution, runs_folder=None)  # where they were begun
    ended = resume_all(runs, execution=where, load_graph=lambda _: same, together=False)
    _note(points, ended)


def _note(points: Sequence[_Point], ended: Sequence[TuneResult | AutoTurboError]) -> None:
    """Record why points failed.

    Raises:
        KeyboardInterrupt: The user has interrupted.
    """
    for one, result in zip(points, ended, strict=True):
        one.failure = result if isinstance(result, AutoTurboError) else None
    stopped = [isinstance(r, InterruptedRunError) for r in ended]
    stopped += [r.state == "interrupted" for r in ended if not isinstance(r, AutoTurboError)]
    if any(stopped):
        raise KeyboardInterrupt


def _look_up(points: Sequence[_Point], execution: ExecutionConfig) -> None:
    """Look up the run of each point: one that is done, else the oldest that can be resumed."""
    with _opened(execution) as store:
        ours = [i for i in store.runs() if SWEEP in i.settings and BORROWS not in i.settings]
    for one in points:
        asked = _comparable(one.config.resolved(one.pair.target))
        key = one.key(execution)
        mine = [i for i in ours if i.key == key and _comparable(_config_of(i)) == asked]
        # A finished one before any other; else the oldest, whose trials are kept.
        one.run = next((i for i in mine if i.state == "done"), mine[0] if mine else None)


def _config_of(info: RunInfo) -> TuneConfig:
    """Return a run's configuration; sweeps of earlier releases never transferred schedules."""
    config = TuneConfig.of_run(info)
    return config if "transfer" in info.settings else dataclasses.replace(config, transfer=False)


def _comparable(config: TuneConfig) -> TuneConfig:
    """Return the configuration without fields that do not affect the trials."""
    return dataclasses.replace(config, trials=config.total, effort="", baselines=())


def _borrow(
    grid: Sequence[_Point], axes: Sequence[Axis], execution: ExecutionConfig, store: Database
) -> None:
    """Measure the neighbours' best candidates on every target, until none improves.

    Raises:
        ExecutorError: Workers or the cluster failed.
        DatabaseError: The database cannot be used.
    """
    by_values = {one.point.values: one for one in grid}
    near = {one: [by_values[v] for v in neighbours(axes, one.point.values)] for one in grid}
    digest = run_id({"targets": [one.target.hash for one in grid]})
    belonging = [(info, info.settings.get(BORROWS) or {}) for info in store.runs()]
    begun = {its["run"]: info for info, its in belonging if its.get("grid") == digest}
    for one in grid:
        _read(one, begun, store)
    bench_of = None if execution.evaluator else functools.lru_cache(AT_ONCE)(_bench)
    for _ in range(sum(len(axis.values) for axis in axes)):  # no way through the grid is longer
        asked = [(one, _wanted(one, near[one], bench_of)) for one in grid]
        asked = [(one, found) for one, found in asked if found]
        if not asked or _is_late(grid[0].config, execution):
            break
        for first in range(0, len(asked), AT_ONCE):
            _measure(asked[first : first + AT_ONCE], digest, execution, store)
    for one in grid:
        _finish(one, execution, store)


def _is_late(config: TuneConfig, execution: ExecutionConfig) -> bool:
    """Return whether the time of a sweep is up."""
    budget = config.time_budget
    return budget is not None and time.monotonic() - execution.began > budget


def _bench(one: _Point) -> ModelScheduler:
    """Return the workbench of the model on a point's target."""
    from autoturbo.schedule.pipeline import ModelScheduler

    return ModelScheduler(one.pair.graph, one.target, one.config.dtype or one.target.default_dtype)


def _latency(trial: Trial | None) -> float:
    """Return seconds, infinite where there is no measurement."""
    return seconds_of(trial and trial.outcome)


def _read(one: _Point, begun: Mapping[str, RunInfo], store: Database) -> None:
    """Read the trials of a point's run, and of the run that borrows where there is one."""
    if one.run is None:
        return
    records = store.trials(one.run.id)
    one.tried = {record.knobs for record in records}
    for record in records:
        if record.number == one.run.best_trial:
            one.take(Trial(record.number, record.knobs, record.outcome))
    one.borrows = begun.get(one.run.id)


def _wanted(
    one: _Point, others: Sequence[_Point], bench_of: Callable[[_Point], ModelScheduler] | None
) -> dict[Knobs, str]:
    """Return the neighbours' candidates not measured on a target, with the neighbours' names.

    Args:
        one: The point with the target.
        others: The neighbours of the point.
        bench_of: What knows the model on a point's target; None where schedules are not ours, so
            that their cuts cannot be carried over.
    """
    found: dict[Knobs, str] = {}
    for other in others:
        trial, name = other.best_for(one.target.name), other.target.name
        if one.run is None or trial is None or one.offered.get(name) is trial:
            continue
        one.offered[name] = trial
        ways = [trial.knobs] if bench_of is None else _ways(one, other, trial.knobs, bench_of)
        for knobs in ways:
            if knobs not in one.tried:
                found[knobs] = name
                one.tried.add(knobs)
    return found


def _ways(
    one: _Point, other: _Point, knobs: Knobs, bench_of: Callable[[_Point], ModelScheduler]
) -> list[Knobs]:
    """Return candidates transferred to a point's target from another's.

    The first is the very schedule of the other target, on as much of this one as that has: where
    this one has more of it alone, it takes as long here, and none of this grid is slower.
    """
    from autoturbo.schedule.chip_part import ChipPart, carried, held
    from autoturbo.schedule.pipeline import build_schedule
    from autoturbo.search.warm_starts.transfer import decisions_of, moved

    made = decisions_of(build_schedule(bench_of(other), knobs))
    share = other.target.lb.capacity / one.target.lb.capacity
    used = ChipPart.of(knobs)
    replayed = carried(used, other.target, one.target).on(knobs)
    ways = moved(bench_of(one), held(used, one.target).on(knobs), made, share)
    # The replay first, since it bounds the others; each setting once.
    return list(dict.fromkeys((replayed, *ways)))


def _measure(
    asked: Sequence[tuple[_Point, Mapping[Knobs, str]]],
    digest: str,
    execution: ExecutionConfig,
    store: Database,
) -> None:
    """Measure neighbours' candidates on some points' targets; recorded ones are known."""
    tasks, points, outcomes = [], dict[str, _Point](), dict[tuple[str, int], Outcome]()
    for one, found in asked:
        info = one.borrows = one.borrows or _begun(one, digest, execution, store)
        points[info.id] = one
        outcomes |= {(info.id, trial.number): trial.outcome for trial in store.trials(info.id)}
        # Numbers follow from the order of candidates: a resumed sweep finds its trials by them.
        for number, (knobs, source) in enumerate(found.items(), 1 + len(one.sources)):
            one.sources[number] = source
            tasks.append(Task(info.id, number, knobs))
    new = [task for task in tasks if task.key not in outcomes]
    with ExitStack() as held:
        runs = [_run_of(points[name], execution, store, held) for name in {t.pair: 0 for t in new}]
        journals = {run.info.id: run.journal for run in runs}
        try:
            for answer in _answers(runs, new, execution) if new else ():
                outcomes[answer.pair, answer.number] = answer.outcome
                knobs = next(t.knobs for t in new if t.key == (answer.pair, answer.number))
                journals[answer.pair].add(Trial(answer.number, knobs, answer.outcome))
        finally:
            for journal in journals.values():
                journal.flush()
    for task in tasks:
        if task.key in outcomes:  # not where the time was up
            one = points[task.pair]
            one.take(Trial(task.number, task.knobs, outcomes[task.key]), one.sources[task.number])


def _answers(
    runs: Sequence[Run], tasks: Sequence[Task], execution: ExecutionConfig
) -> Iterator[Answer]:
    """Measure tasks on as many workers as tuning has, and yield the answers."""
    executor = make_executor(
        jobs=execution.workers, ray=execution.ray, timeout_s=execution.timeout,
        runtime_env=execution.runtime_env, resource=execution.ray_resource,
        apart=any(run.elsewhere for run in runs),
    )  # fmt: skip
    by_id, done = {run.info.id: run for run in runs}, Counter[str]()
    try:
        for run in runs:
            run.use(executor)
        for answer in measured(executor, tasks):
            run, done[answer.pair] = by_id[answer.pair], done[answer.pair] + 1
            if execution.on_progress is not None:
                total = sum(task.pair == answer.pair for task in tasks)
                known = run.info.best_latency, run.info.default_latency
                names = run.info.model, run.info.target
                execution.on_progress(Progress(*names, done[answer.pair], total, *known))
            if _is_late(run.config, execution):
                # What is under way ends: its outcome is kept for the next call.
                executor.withdraw()
            yield answer
    finally:
        executor.close()


def _begun(one: _Point, digest: str, execution: ExecutionConfig, store: Database) -> RunInfo:
    """Begin the run that borrows for a point: of the same pair, with the same trial 0."""
    base = one.run
    if base is None:
        raise ValueError("a point without a run")
    belongs = {"run": base.id, "grid": digest}
    settings = {n: v for n, v in base.settings.items() if n not in (CALL, PLACE, LIMITS)}
    none: dict[str, Any] = {"starts": [], "origins": [], "notes": [], "subgraphs": 0}
    own = {**none, "trials": None, BORROWS: belongs}
    draft = dataclasses.replace(
        base, settings={**settings, **own}, created=now(), state="running", refused=()
    )
    info = register(draft, run_id(belongs), store)
    first = next((t for t in store.trials(base.id) if t.number == 0), None)
    store.add_trials([dataclasses.replace(first, run=info.id)] if first else [])
    if execution.on_begin is not None:
        execution.on_begin(info)
    return info


def _run_of(
    one: _Point, execution: ExecutionConfig, store: Database, held: ExitStack | None = None
) -> Run:
    """Return the run that borrows for a point.

    Args:
        one: The point.
        execution: The way in which the run is carried out.
        store: The database.
        held: Gives the run back at its end; None where it is held already.

    Raises:
        ValueError: The point borrows nothing.
    """
    info = one.borrows
    if info is None:
        raise ValueError("a point that borrows nothing")
    if held is not None:
        held.enter_context(store.holding(info.id))
    return Run(one.pair.graph, one.target, TuneConfig.of_run(info), execution, store, info)


def _finish(one: _Point, execution: ExecutionConfig, store: Database) -> None:
    """Keep a point's borrowed schedule where it is better than its own, and end its run."""
    if one.borrows is None:
        return
    info = one.borrows = store.run(one.borrows.id)
    if info.state != "done":
        own = math.inf if one.run is None or one.run.best_latency is None else one.run.best_latency
        state: RunState = "done"
        if min(map(_latency, one.bests.values()), default=math.inf) < own:
            run = _run_of(one, execution, store)
            trials = [Trial(t.number, t.knobs, t.outcome) for t in store.trials(info.id)]
            with closing(make_executor(apart=run.elsewhere is not None)) as executor:
                run.use(executor)
                try:
                    hand_out(run, trials, PHASE, {}, numbers=bool(run.config.verify), state=state)
                except (RefusedError, MeasurerError) as error:
                    state, one.failure = "failed", error
        store.set_state(info.id, state)
        one.borrows = store.run(info.id)


def _ended(one: _Point, store: Database) -> SweepPoint:
    """Return the outcome of a point from its runs."""
    run, borrows, target = one.run, one.borrows, one.point.target.name
    made = 0 if run is None else run.trials
    made += 0 if borrows is None else borrows.trials - 1
    found = [i for i in (run, borrows) if i is not None and i.best_latency is not None]
    fastest = min(found, key=lambda info: info.best_latency or 0.0, default=None)
    if run is None or fastest is None:
        why = "nothing fits" if one.failure is None else one.failure.message
        return SweepPoint(one.point.values, target, run.id if run else None, made, None, None, why)
    best = next(t for t in store.trials(fastest.id) if t.number == fastest.best_trial)
    measured = fastest.handed_out.measurement if fastest.handed_out else best.outcome
    return SweepPoint(
        one.point.values, target, fastest.id, made,
        measured if isinstance(measured, Measurement) else None, run.default_latency,
        source=one.sources.get(best.number) if fastest is borrows else None,
        course=Course.of([_latency(trial) for trial in _own_trials(run, store)]),
    )  # fmt: skip


def _own_trials(run: RunInfo, store: Database) -> list[Trial]:
    """Return the trials of a point's own search, in order."""
    records = sorted(store.trials(run.id), key=lambda record: record.number)
    return [Trial(record.number, record.knobs, record.outcome) for record in records]


def _opened(execution: ExecutionConfig) -> Database:
    return Database.open(execution.database or DATABASE)


__all__ = ["AT_ONCE", "SWEEP", "sweep", "untuned"]
