"""What-if for architects: the latency of tuned schedules over a grid of targets.

Every point of the grid is a tuning run like any other, in the same database: a sweep that is asked
for again finds its runs there, goes on with those that were interrupted, and tunes the others.
Points start from nothing that schedules in the database decided, so that they can be compared and
do not depend on what was tuned before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autoturbo.config import (
    ExecutionConfig,
    SweepConfig,
    TuneConfig,
    argument,
    called_with,
    part_of,
)
from autoturbo.database import Database
from autoturbo.errors import AutoTurboError, InterruptedRunError
from autoturbo.hardware.grid import GridPoint, Value, axes_of, grid_of
from autoturbo.report.sweep import Sweep, SweepPoint
from autoturbo.simulate.measurement import Measurement
from autoturbo.tuner import (
    DATABASE,
    MODEL_FILE,
    SETTINGS,
    Pair,
    Scratch,
    pair_key,
    placed,
    resume_all,
    tune_all,
)

if TYPE_CHECKING:
    from autoturbo.database import PairKey, RunInfo
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.target import Target
    from autoturbo.tuner import TuneResult

SWEEP = "sweep"
"""Setting of a run that a sweep began: it started from nothing that the database knew."""

_VARY = (
    'values by field, ``{"lb.capacity_kib": [256, 512]}``, or texts as on the command line,'
    ' ``["lb.capacity_kib=256..4096"]``'
)

AT_ONCE = 16
"""Points that share a pool of workers: what they remember has to fit the memory."""


@dataclass(frozen=True, kw_only=True)
class SweepCall(ExecutionConfig, SweepConfig):
    """Arguments of :func:`sweep`: those of :func:`autoturbo.tune`, for every point."""

    model: Graph = field(kw_only=False, metadata=argument("the model with its batch"))
    target: Target = field(
        kw_only=False, metadata=argument("the accelerator whose fields are varied")
    )
    vary: Mapping[str, Iterable[Value]] | Sequence[str] = field(
        kw_only=False, metadata=argument(_VARY)
    )
    model_file: str = field(default="", metadata=argument(MODEL_FILE))
    settings: Mapping[str, Any] = field(default_factory=dict, metadata=argument(SETTINGS))


@called_with(SweepCall)
def sweep(call: SweepCall) -> Sweep:
    """Tune a model on every target of a grid.

    Limits are those of each point, but for the time budget, which points share out evenly. What is
    compared is latency, whatever the objective.

    Raises:
        UsageError: an argument that makes no sense.
        TargetError: there is no such field, or a value is not valid for it.
        RunError: another process works on a point.
        InterruptedRunError: interrupted; everything measured is saved.
        ExecutorError: workers or the cluster failed.
        DatabaseError: the database cannot be used.
    """
    model, target = call.model, call.target
    config, execution = part_of(TuneConfig, call), part_of(ExecutionConfig, call).started()
    scratch = Scratch() if execution.database is None else None
    execution = placed(execution, scratch)
    axes = axes_of(call.vary)
    kept = {**call.settings, SWEEP: target.name}
    grid = [
        _Point(point, Pair(model, point.target, call.model_file, kept), config)
        for point in grid_of(target, axes)
    ]
    known = _tune(grid, config, execution)
    with _opened(execution) as store:
        points = tuple(_ended(point, store) for point in grid)
    dtype = config.dtype or target.default_dtype
    return Sweep(model.name, target.name, dtype, axes, points, known)


@dataclass(eq=False)
class _Point:
    """A point while it is worked on, with the run that it has and why it failed."""

    point: GridPoint
    pair: Pair
    config: TuneConfig
    run: RunInfo | None = None
    failure: AutoTurboError | None = None

    def key(self, execution: ExecutionConfig) -> PairKey:
        dtype = self.config.dtype or self.pair.target.default_dtype
        target, measurer = self.pair.target, self.config.measurer
        return pair_key(self.pair.graph, target, dtype, measurer, execution.evaluator)


def _tune(grid: Sequence[_Point], config: TuneConfig, execution: ExecutionConfig) -> int:
    """Bring all points to their end; how many had been before."""
    _look_up(grid, execution)
    open_points = [one for one in grid if one.run is None or one.run.state != "done"]
    for first in range(0, len(open_points), AT_ONCE):
        some = open_points[first : first + AT_ONCE]
        share = (first + len(some)) / len(open_points)
        early = (1.0 - share) * (config.time_budget or 0.0)  # begun so much before: less is left
        timed = dataclasses.replace(execution, began=execution.began - early)
        _go_on([one for one in some if one.run is not None], timed)
        _begin([one for one in some if one.run is None], config, timed)
    _look_up(open_points, execution)
    return len(grid) - len(open_points)


def _begin(points: Sequence[_Point], config: TuneConfig, execution: ExecutionConfig) -> None:
    if points:
        _note(points, tune_all([one.pair for one in points], config, execution))


def _go_on(points: Sequence[_Point], execution: ExecutionConfig) -> None:
    """With runs that were interrupted, killed, or found nothing: what they measured is kept."""
    if not points:
        return
    runs, same = [one.run.id for one in points if one.run is not None], points[0].pair.graph
    where = dataclasses.replace(execution, runs_folder=None)  # where they were begun
    ended = resume_all(runs, execution=where, load_graph=lambda _: same, together=False)
    _note(points, ended)


def _note(points: Sequence[_Point], ended: Sequence[TuneResult | AutoTurboError]) -> None:
    """Keep why points failed.

    Raises:
        InterruptedRunError: the user has interrupted.
    """
    for one, result in zip(points, ended, strict=True):
        one.failure = result if isinstance(result, AutoTurboError) else None
    stopped = [isinstance(r, InterruptedRunError) for r in ended]
    stopped += [r.state == "interrupted" for r in ended if not isinstance(r, AutoTurboError)]
    if any(stopped):
        hint = "the same command goes on from here"
        raise InterruptedRunError("interrupted; all trials are saved", hint=hint)


def _look_up(points: Sequence[_Point], execution: ExecutionConfig) -> None:
    """The run of each point: one that is done, else the oldest that can go on."""
    with _opened(execution) as store:
        ours = [info for info in store.runs() if SWEEP in info.settings]
    for one in points:
        asked = _comparable(one.config.resolved(one.pair.target))
        key = one.key(execution)
        mine = [i for i in ours if i.key == key and _comparable(_config_of(i)) == asked]
        one.run = next((i for i in mine if i.state == "done"), mine[0] if mine else None)


def _config_of(info: RunInfo) -> TuneConfig:
    """What a sweep asked of a run; sweeps of earlier releases never began from other schedules."""
    found = TuneConfig.of_run(info)
    return found if "transfer" in info.settings else dataclasses.replace(found, transfer=False)


def _comparable(config: TuneConfig) -> TuneConfig:
    """Without what does not affect the trials."""
    return dataclasses.replace(config, trials=config.total, effort="", baselines=())


def _ended(one: _Point, store: Database) -> SweepPoint:
    """What became of a point, as its run says."""
    run, target = one.run, one.point.target.name
    if run is None or run.best_trial is None:
        why = "nothing fits" if one.failure is None else one.failure.message
        made = 0 if run is None else run.trials
        return SweepPoint(one.point.values, target, run.id if run else None, made, None, None, why)
    best = next(t.outcome for t in store.trials(run.id) if t.number == run.best_trial)
    return SweepPoint(
        one.point.values, target, run.id, run.trials,
        best if isinstance(best, Measurement) else None, run.default_latency,
    )  # fmt: skip


def _opened(execution: ExecutionConfig) -> Database:
    return Database.open(execution.database or DATABASE)


__all__ = ["AT_ONCE", "SWEEP", "sweep"]
