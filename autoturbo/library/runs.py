"""Search for good schedules, as the library has it: tune, sweep and resume."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from autoturbo.commands import stored_runs
from autoturbo.commands.console import Console, LiveLine
from autoturbo.commands.loading import DEFAULT_TARGET, kept_inputs
from autoturbo.commands.stored_runs import RunArguments
from autoturbo.config import (
    ExecutionOptions,
    ResumeConfig,
    SweepConfig,
    TuneConfig,
    argument,
    fields_of,
    options_of,
)
from autoturbo.errors import UsageError
from autoturbo.hardware.target import Target
from autoturbo.library.calls import Extents, Texts, called, extents_of
from autoturbo.library.given import as_model, as_target
from autoturbo.registry import HOST
from autoturbo.tuning import sweeping, tuner
from autoturbo.tuning.result import TuneResult

if TYPE_CHECKING:
    from autoturbo.hardware.grid import Value
    from autoturbo.hardware.tuning_target import TuningTarget
    from autoturbo.library.given import Model
    from autoturbo.report.sweep import Sweep


@dataclass(frozen=True, kw_only=True)
class _SearchedModel(Extents):
    """The extents of a model that is not loaded yet, and what is shown meanwhile."""

    progress: bool | None = field(
        default=None,
        metadata=argument("show how it stands; if None on a terminal and in a notebook"),
    )


@dataclass(frozen=True, kw_only=True)
class TuneArguments(Texts, ExecutionOptions, TuneConfig, _SearchedModel):
    """Arguments of :func:`tune`."""

    model: Model = field(kw_only=False, metadata=argument("the model"))
    target: TuningTarget | str | os.PathLike[str] = field(
        default=DEFAULT_TARGET, kw_only=False,
        metadata=argument('the accelerator, a machine, or ``"host"``: this computer'),
    )  # fmt: skip
    seeds: int = field(default=1, metadata=argument(tuner.SEEDS))


@called(TuneArguments)
def tune(call: TuneArguments) -> TuneResult:
    """Find a good schedule of a model on a target.

    Every schedule that is handed out (the best, all of a Pareto front, the database's) has its
    regions and its memory checked. One that fails is refused, and the next best that passes takes
    its place.

    Returns:
        The best schedule and its measurement, with all trials of the run. For this computer, a
        :class:`~autoturbo.tuning.host_run.HostResult`, whose attributes have the same names.

    Raises:
        UsageError: An argument that makes no sense, or no Ray at the address.
        ModelError: The model is not usable.
        TargetError: No such target, or it is not valid.
        InfeasibleError: No candidate that was tried fits the target.
        MeasurerError: The measurer failed on all candidates, or gave another number for the best.
        RefusedError: No schedule passes the checks.
        ExecutorError: Workers or the cluster failed.
        DatabaseError: The database cannot be used.
        InterruptedRunError: Interrupted before anything was measured.
    """
    graph = as_model(call.model, call.inputs, **extents_of(call))
    target: TuningTarget | Literal["host"]
    target = "host" if call.target == HOST else as_target(call.target)
    with _showing(call) as line:
        options = _options(call, TuneConfig, line)
        return tuner.tune(graph, target, seeds=call.seeds, **_kept(call), **options)


@dataclass(frozen=True, kw_only=True)
class SweepArguments(Texts, ExecutionOptions, SweepConfig, _SearchedModel):
    """Arguments of :func:`sweep`: those of :func:`tune`, for every point."""

    model: Model = field(kw_only=False, metadata=argument("the model"))
    target: Target | str | os.PathLike[str] = field(
        kw_only=False, metadata=argument("the accelerator whose fields are varied")
    )
    vary: Mapping[str, Iterable[Value]] | Sequence[str] = field(
        kw_only=False, metadata=argument(sweeping.VARY)
    )
    cost: Mapping[str, float] | str | None = field(default=None, metadata=argument(sweeping.COST))


@called(SweepArguments)
def sweep(call: SweepArguments) -> Sweep:
    """Tune a model on every target of a grid.

    Limits are those of each point, but for the time budget, which points share out evenly. What is
    compared is latency, whatever the objective.

    Returns:
        All points of the grid in order, each with its best schedule or why it has none.

    Raises:
        UsageError: An argument that makes no sense.
        ModelError: The model is not usable.
        TargetError: There is no such target or field, or a value is not valid for it.
        RunError: Another process works on a point.
        InterruptedRunError: Interrupted; everything measured is saved.
        ExecutorError: Workers or the cluster failed.
        DatabaseError: The database cannot be used.
    """
    graph, target = as_model(call.model, call.inputs, **extents_of(call)), as_target(call.target)
    if not isinstance(target, Target):
        raise UsageError("a machine's units are no fields to vary", hint="sweep one of its units")
    with _showing(call) as line:
        options = _options(call, SweepConfig, line)
        return sweeping.sweep(graph, target, call.vary, cost=call.cost, **_kept(call), **options)


@dataclass(frozen=True, kw_only=True)
class ResumeArguments(Texts, ExecutionOptions, ResumeConfig, RunArguments):
    """Arguments of :func:`resume`; what is not given is as the run was begun."""


@called(ResumeArguments)
def resume(call: ResumeArguments) -> TuneResult:
    """Go on with a run, also after a crash; the result is that of a run that was never stopped.

    The run is looked for in ``autoturbo.db`` where no database is given. What is not given is as
    the run was begun; where any limit is, those that are not are gone, but for the time.

    Returns:
        The result of the whole run, with the trials from before it stopped.

    Raises:
        RunError: No such run, or what it depends on has changed: model, target, version.
        AutoTurboError: Whatever :func:`tune` raises.
    """
    return stored_runs.resume(**fields_of(call))


def _kept(call: TuneArguments | SweepArguments) -> dict[str, Any]:
    """Return what a run keeps of a model that was given by name, so that it can be loaded again."""
    if not isinstance(call.model, str | os.PathLike):
        return {}
    settings = kept_inputs(**extents_of(call))
    return {"model_file": os.fspath(call.model), "settings": settings}


def _options(
    call: TuneArguments | SweepArguments, config: type[TuneConfig], line: LiveLine | None
) -> dict[str, Any]:
    """Return the options of a call, which shows its progress unless it has a function for it."""
    names = (*options_of(config), *options_of(ExecutionOptions))
    options = {name: value for name, value in fields_of(call).items() if name in names}
    return options if line is None else options | {"on_progress": line}


def _showing(call: TuneArguments | SweepArguments) -> AbstractContextManager[LiveLine | None]:
    """Return a context that shows how a call stands, where that is wanted."""
    shown = call.progress
    if shown is None:
        # a notebook's standard error is no terminal, but it shows the line
        shown = sys.stderr.isatty() or "ipykernel" in sys.modules
    if not shown or call.on_progress is not None:
        return nullcontext()
    return LiveLine(Console())
