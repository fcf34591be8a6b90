"""Look at models and schedules: simulate, verify, explain, compare and inspect."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.commands.loading import DEFAULT_TARGET, SIMULATOR, AnyPair, load_presets, paired
from autoturbo.commands.schedules.compare import Comparison
from autoturbo.commands.schedules.compare import compare as compared_on
from autoturbo.commands.schedules.inspect import Inspection, inspected
from autoturbo.commands.schedules.simulate import Simulation, simulated
from autoturbo.commands.scheduling import given_schedule, require_runtime
from autoturbo.commands.tuning.explain import Explanation, importance_in_run
from autoturbo.config import argument
from autoturbo.errors import UsageError
from autoturbo.hardware.target import Target
from autoturbo.library.calls import Extents, as_declared, called, extents_of
from autoturbo.library.given import as_model, as_target
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.schedule.schedule import Schedule
from autoturbo.tuning.result import TuneResult
from autoturbo.verifier import verify_schedule

if TYPE_CHECKING:
    from autoturbo.commands.scheduling import Setting
    from autoturbo.hardware.tuning_target import TuningTarget
    from autoturbo.library.given import Model
    from autoturbo.verifier.findings import Verification


@dataclass(frozen=True, kw_only=True)
class _ScheduleArguments(Extents):
    """A schedule of a model on a target."""

    model: Model | TuneResult = field(kw_only=False, metadata=argument("the model"))
    target: TuningTarget | str | os.PathLike[str] = field(
        default=DEFAULT_TARGET, kw_only=False, metadata=argument("the accelerator, or a machine")
    )
    knobs: Setting = field(
        default=None, kw_only=False,
        metadata=argument(
            "knobs or a mapping of them, a schedule, a file of either, or the name of a scheduler;"
            " the heuristic's schedule if None"
        ),
    )  # fmt: skip
    dtype: str | None = field(
        default=None, metadata=argument("what it computes in; the target's default if None")
    )

    def pair(self, measurer: str = SIMULATOR) -> AnyPair:
        """Return the model and the target, with the data type and what measures."""
        given: Any = self.model
        model = as_model(given, self.inputs, **extents_of(self))
        return paired(model, as_target(self.target), self.dtype, measurer, sign="")


_MEASURER = argument("what measures, by name")


@dataclass(frozen=True, kw_only=True)
class SimulateArguments(_ScheduleArguments):
    """Arguments of :func:`simulate`."""

    model: Model = field(kw_only=False, metadata=argument("the model"))
    measurer: str = field(default=SIMULATOR, metadata=_MEASURER)


@called(SimulateArguments)
def simulate(call: SimulateArguments) -> Simulation:
    """Measure one schedule of a model on a target; the simulator does it unless told otherwise.

    Returns:
        The schedule with its measurement.

    Raises:
        UsageError: An argument that makes no sense.
        ModelError: The model is not usable.
        TargetError: No such target, or it is not valid.
        ScheduleFileError: It describes no schedule of this model on this target.
        KnobsError: The knobs do not fit the model.
        InfeasibleError: The schedule does not fit the target.
        MeasurerError: Measuring failed.
    """
    pair = call.pair(call.measurer)
    evaluator = pair.evaluator()
    return simulated(pair, given_schedule(call.knobs, pair, evaluator), evaluator)


@dataclass(frozen=True, kw_only=True)
class VerifyArguments(_ScheduleArguments):
    """Arguments of :func:`verify`."""

    model: Model = field(kw_only=False, metadata=argument("the model"))
    numbers: bool | None = field(
        default=None,
        metadata=argument(
            "run the schedule beside its model in ONNX Runtime; if None where that is installed"
        ),
    )
    seed: int = field(default=0, metadata=argument("seed of the random inputs and weights"))


@called(VerifyArguments)
def verify(call: VerifyArguments) -> Verification:
    """Check that a schedule computes its model: regions, memory, and numbers in ONNX Runtime.

    Returns:
        What each check found; ``ok`` where nothing is wrong.

    Raises:
        UsageError: Numbers are asked for, and ONNX Runtime is not installed.
        AutoTurboError: Whatever :func:`simulate` raises.
    """
    if call.numbers:
        require_runtime("numbers")
    pair = call.pair()
    schedule = given_schedule(call.knobs, pair, pair.evaluator()).schedule
    runs = find_spec("onnxruntime") is not None if call.numbers is None else call.numbers
    path = pair.model.source or None
    return verify_schedule(schedule, path=path, seed=call.seed, numbers=runs)


@dataclass(frozen=True, kw_only=True)
class ExplainArguments(_ScheduleArguments):
    """Arguments of :func:`explain`."""

    model: Model | TuneResult = field(
        kw_only=False,
        metadata=argument("the model; or the result of :func:`tune`, which has all that follows"),
    )
    what_if: bool = field(default=True, metadata=argument("try changes that may help"))
    seed: int = field(
        default=0, metadata=argument("seed that deals a run's trials out to training and test")
    )


@called(ExplainArguments)
def explain(call: ExplainArguments) -> Explanation:
    """Say what bounds a schedule and what would help; of a run's best also which knobs mattered.

    Returns:
        What the latency is made of, with changes that were tried.

    Raises:
        UsageError: The schedule is on a machine of several units.
        AutoTurboError: Whatever :func:`simulate` raises.
    """
    from autoturbo.report.explanation import bounds_of

    importance = None
    if isinstance(call.model, TuneResult):
        result = call.model
        schedule = result.best.schedule
        title = f"{result.model} @ {result.target}, run {result.run}"
        if isinstance(schedule, Schedule):
            scheduler = ModelScheduler.of(schedule)
            importance = importance_in_run(result.info, result.trials, scheduler, call.seed)
    else:
        pair = call.pair()
        chosen = given_schedule(call.knobs, pair, pair.evaluator())
        schedule, title = chosen.schedule, f"{pair}, {chosen.name}"
    if not isinstance(schedule, Schedule):
        hint = "explain a schedule of one of its units"
        raise UsageError("a machine's schedule has no single bound", hint=hint)
    return Explanation(title, bounds_of(schedule, what_if=call.what_if), importance)


@dataclass(frozen=True, kw_only=True)
class CompareArguments(Extents):
    """Arguments of :func:`compare`."""

    model: Model = field(kw_only=False, metadata=argument("the model"))
    target: Target | str | os.PathLike[str] = field(
        default=DEFAULT_TARGET, kw_only=False, metadata=argument("the accelerator")
    )
    dtype: str | None = as_declared(_ScheduleArguments, "dtype")
    database: str | os.PathLike[str] | None = field(
        default=None, metadata=argument("where tuned schedules are looked up; none are if None")
    )
    measurer: str = field(default=SIMULATOR, metadata=_MEASURER)


@called(CompareArguments)
def compare(call: CompareArguments) -> Comparison:
    """Measure every scheduler's best schedule of a model on a target, beside the tuned one.

    Returns:
        The outcome of every scheduler, of DLFusion where the chip is of its kind, and of the tuned
        schedule where there is one; the fastest last.

    Raises:
        UsageError: The target does not compute in the type, or there is no such measurer.
        ModelError: The model is not usable.
        TargetError: No such target, or it is not valid.
    """
    model = as_model(call.model, call.inputs, **extents_of(call))
    pair = paired(model, as_target(call.target), call.dtype, call.measurer, sign="").on_target()
    if pair is None:
        raise UsageError("a machine has several units", hint="compare on one of its units")
    database = None if call.database is None else Path(call.database)
    return compared_on(
        model, pair.target, dtype=pair.dtype, database=database, measurer=call.measurer
    )


@dataclass(frozen=True, kw_only=True)
class InspectArguments(Extents):
    """Arguments of :func:`inspect`."""

    model: Model = field(kw_only=False, metadata=argument("the model"))
    targets: Target | str | os.PathLike[str] | Iterable[Target | str | os.PathLike[str]] | None = (
        field(
            default=None, kw_only=False,
            metadata=argument("one target or several, for lower bounds; every preset if None"),
        )
    )  # fmt: skip
    dtype: str | None = as_declared(_ScheduleArguments, "dtype")


@called(InspectArguments)
def inspect(call: InspectArguments) -> Inspection:
    """Say what a model consists of, and its lower bound on targets; nothing is scheduled.

    Returns:
        Its operators, layers, MACs and bytes, and a bound for each target.

    Raises:
        UsageError: A target does not compute in the type.
        ModelError: The model is not usable.
        TargetError: No such target, or it is not valid.
    """
    model = as_model(call.model, call.inputs, **extents_of(call))
    given: Any = call.targets
    if given is None:
        asked: list[TuningTarget] = [*load_presets()]
    else:
        one = isinstance(given, Target | str | os.PathLike)
        asked = [as_target(target) for target in ([given] if one else given)]
    targets = [target for target in asked if isinstance(target, Target)]
    if given is None and call.dtype:
        targets = [target for target in targets if target.supports(call.dtype)]
    return inspected(model, targets, call.dtype, sign="")
