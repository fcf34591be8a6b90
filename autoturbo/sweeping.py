"""What-if for architects: the latency of tuned schedules over a grid of targets.

Every point of the grid is a tuning run like any other, in the same database: a sweep that is asked
for again finds its runs there, goes on with those that were interrupted, and tunes the others.
Points start from nothing that schedules in the database decided, so that they can be compared and
do not depend on what was tuned before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.database import Database
from autoturbo.errors import AutoTurboError, InterruptedRunError
from autoturbo.hardware.grid import GridPoint, Value, axes_of, grid_of
from autoturbo.options import Changes, Options, Pair, stored_settings
from autoturbo.report.sweep import Sweep, SweepPoint
from autoturbo.search.names import OURS
from autoturbo.simulate.measurement import Measurement
from autoturbo.tuner import DATABASE, pair_key, resume_all, tune_all

if TYPE_CHECKING:
    from autoturbo.database import PairKey, RunInfo
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.target import Target
    from autoturbo.search.progress import Progress
    from autoturbo.search.settings import Settings
    from autoturbo.search.workshop import MakeWorkshop
    from autoturbo.tuner import TuneResult

SWEEP = "sweep"
"""Setting of a run that a sweep began: it started from nothing that the database knew."""

AT_ONCE = 16
"""Points that share a pool of workers: what they remember has to fit the memory."""


def sweep(
    model: Graph,
    target: Target,
    vary: Mapping[str, Iterable[Value]] | Sequence[str],
    *,
    dtype: str | None = None,
    trials: int | None = None,
    effort: str = "quick",
    seed: int = 0,
    jobs: int = 1,
    ray: str | None = None,
    sampler: str = OURS,
    database: str | Path | None = None,
    runs_folder: str | Path | None = None,
    model_file: str = "",
    settings: Mapping[str, Any] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    timeout_s: float | None = None,
    evaluator: MakeWorkshop | None = None,
    subgraphs: int | None = None,
    patience: int | None = None,
    bound_gap: float | None = None,
    round: int | None = None,  # noqa: A002  as it is called everywhere
    runtime_env: Mapping[str, Any] | None = None,
) -> Sweep:
    """Tune a model on every target of a grid.

    Args:
        model: the model with its batch.
        target: the accelerator whose fields are varied.
        vary: values by field, ``{"lb.capacity_kib": [256, 512]}``, or texts as on the command
            line, ``["lb.capacity_kib=256..4096"]``.
        dtype: compute type of all points; the target's default if None.
        trials: of each point; further arguments are those of :func:`autoturbo.tune`.
        effort: likewise.
        seed: the same seed gives the same points, whatever ``jobs`` and ``ray``.
        jobs: worker processes that all points share.
        ray: address of a Ray cluster.
        sampler: likewise.
        database: where runs are looked for and kept; None keeps nothing, as in
            :func:`autoturbo.tune`.
        runs_folder: where run folders are made, as there.
        model_file: the file as the user named it.
        settings: more to keep with the runs.
        on_progress: called after every outcome.
        timeout_s: seconds for one measurement.
        evaluator: builds what measures.
        subgraphs: kinds of sub-graphs whose own knobs are searched.
        patience: stop a point after so many trials without a better one.
        bound_gap: stop a point once it is so near to the lower bound.
        round: trials proposed at a time.
        runtime_env: Ray's ``runtime_env``.

    Raises:
        UsageError: an argument that makes no sense.
        TargetError: there is no such field, or a value is not valid for it.
        RunError: another process works on a point.
        InterruptedRunError: interrupted; everything measured is saved.
        ExecutorError: workers or the cluster failed.
        DatabaseError: the database cannot be used.
    """
    options = Options(
        trials=trials, effort=effort, seed=seed, jobs=jobs, ray=ray, runtime_env=runtime_env,
        sampler=sampler, database=database,
        runs_folder=runs_folder, baselines=(), on_progress=on_progress, timeout_s=timeout_s,
        evaluator=evaluator, subgraphs=subgraphs, transfer=False, patience=patience,
        bound_gap=bound_gap, round=round,
    ).placed()  # fmt: skip
    axes = axes_of(vary)
    dtype = dtype or target.default_dtype
    kept = {**(settings or {}), SWEEP: target.name}
    grid = [
        _Point(point, Pair(model, point.target, dtype, model_file, kept))
        for point in grid_of(target, axes)
    ]
    known = _tune(grid, options)
    with _opened(options) as store:
        points = tuple(_ended(point, store) for point in grid)
    return Sweep(model.name, target.name, dtype, axes, points, known)


@dataclass(eq=False)
class _Point:
    """A point while it is worked on, with the run that it has and why it failed."""

    point: GridPoint
    pair: Pair
    run: RunInfo | None = None
    failure: AutoTurboError | None = None

    def key(self, options: Options) -> PairKey:
        dtype = self.pair.dtype or self.pair.target.default_dtype
        return pair_key(self.pair.graph, self.pair.target, dtype, make=options.evaluator)


def _tune(grid: Sequence[_Point], options: Options) -> int:
    """Bring all points to their end; how many had been before."""
    _look_up(grid, options)
    open_points = [one for one in grid if one.run is None or one.run.state != "done"]
    for first in range(0, len(open_points), AT_ONCE):
        some = open_points[first : first + AT_ONCE]
        _go_on([one for one in some if one.run is not None], options)
        _begin([one for one in some if one.run is None], options)
    _look_up(open_points, options)
    return len(grid) - len(open_points)


def _begin(points: Sequence[_Point], options: Options) -> None:
    if points:
        _note(points, tune_all([one.pair for one in points], options))


def _go_on(points: Sequence[_Point], options: Options) -> None:
    """With runs that were interrupted, killed, or found nothing: what they measured is kept."""
    if not points:
        return
    changes = Changes(
        load_graph=lambda _: points[0].pair.graph, jobs=options.jobs, ray=options.ray,
        runtime_env=options.runtime_env, on_progress=options.on_progress,
        timeout_s=options.timeout_s, evaluator=options.evaluator,
    )  # fmt: skip
    runs = [one.run.id for one in points if one.run is not None]
    _note(points, resume_all(runs, changes, database=options.database or DATABASE, together=False))


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


def _look_up(points: Sequence[_Point], options: Options) -> None:
    """The run of each point: one that is done, else the oldest that can go on."""
    with _opened(options) as store:
        ours = [info for info in store.runs() if SWEEP in info.settings]
    for one in points:
        asked = _comparable(options.asked_of(one.pair))
        key = one.key(options)
        mine = [i for i in ours if i.key == key and _comparable(stored_settings(i)) == asked]
        one.run = next((i for i in mine if i.state == "done"), mine[0] if mine else None)


def _comparable(settings: Settings) -> Settings:
    """Without what does not affect the result."""
    return dataclasses.replace(
        settings, trials=settings.total, effort="", runs_folder="", storage=None, baselines=()
    )


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


def _opened(options: Options) -> Database:
    return Database.open(options.database or DATABASE)


__all__ = ["AT_ONCE", "SWEEP", "sweep"]
