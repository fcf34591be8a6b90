"""The functions of the library: models and targets as users have them, options as one says them.

A model is a path, the name of a workload, an ONNX model (:class:`onnx.ModelProto`, its bytes, an
open file), a ``torch.nn.Module`` with example inputs, or what :func:`autoturbo.load_model` gives. A
target is a name, a path, or what :func:`autoturbo.load_target` gives. Durations and shares may be
texts as on the command line. What is given is brought into the form of the functions of the same
names inside, which do the work.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from functools import cache, wraps
from importlib.util import find_spec
from inspect import signature
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, ParamSpec, Protocol, TypeVar

from autoturbo.commands import loading
from autoturbo.commands.console import Console, LiveLine
from autoturbo.commands.loading import (
    DEFAULT_TARGET,
    SIMULATOR,
    AnyPair,
    RunArguments,
    kept_inputs,
    load_model,
    load_presets,
    paired,
)
from autoturbo.commands.parser import duration, percentage
from autoturbo.commands.schedules.compare import Comparison
from autoturbo.commands.schedules.compare import compare as compared_on
from autoturbo.commands.schedules.inspect import Inspection, inspected
from autoturbo.commands.schedules.simulate import Simulation, simulated
from autoturbo.commands.scheduling import given_schedule, require_runtime
from autoturbo.commands.tuning.explain import Explanation, importance_in_run
from autoturbo.config import (
    ExecutionOptions,
    ResumeConfig,
    SweepConfig,
    TuneConfig,
    argument,
    called_with,
    fields_of,
    option_of,
    options_of,
)
from autoturbo.errors import ModelError, UsageError, did_you_mean
from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine_files import find_target
from autoturbo.hardware.target import Target
from autoturbo.registry import HOST
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.schedule.schedule import Schedule
from autoturbo.tuning import sweeping, tuner
from autoturbo.tuning.result import TuneResult
from autoturbo.verifier import verify_schedule

if TYPE_CHECKING:
    from typing import TypeAlias

    from onnx import ModelProto

    from autoturbo.commands.scheduling import Setting
    from autoturbo.hardware.grid import Value
    from autoturbo.hardware.machine import AnyTarget, Machine
    from autoturbo.report.sweep import Sweep
    from autoturbo.verifier.findings import Verification

    class Module(Protocol):
        """A network of PyTorch, which is not imported unless one is given."""

        def state_dict(self) -> Mapping[str, Any]:
            """Return its parameters."""
            ...

    Model: TypeAlias = Graph | str | os.PathLike[str] | bytes | BinaryIO | ModelProto | Module

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

RENAMED = {"timeout_s": "timeout", "graph": "model"}
"""Arguments by the names that they had before."""


@cache
def _folder() -> Path:
    """Return a folder for models that are no files, which goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix="autoturbo-models-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def as_model(model: Model, inputs: object = None, **extents: Any) -> Graph:
    """Return the graph of a model.

    Args:
        model: The model.
        inputs: Example inputs of a ``torch.nn.Module``, as ``torch.onnx.export`` takes them.
        extents: Arguments of :func:`autoturbo.load_model`: ``batch``, ``shapes`` and others.

    Raises:
        ModelError: It is not usable.
        UsageError: It is none of these, or has its extents already.
    """
    given = {name: value for name, value in extents.items() if value}
    if isinstance(model, Graph):
        if given:
            hint = "give them to load_model"
            raise UsageError(f"{min(given)}: the model has its extents already", hint=hint)
        return model
    if isinstance(model, str | os.PathLike):
        return load_model(os.fspath(model), **given)
    torch = sys.modules.get("torch")  # nobody has a module of it who has not imported it
    if torch is not None and isinstance(model, torch.nn.Module):
        return load_model(_exported(torch, model, inputs), **given)
    name, content = _content(model)
    file = _folder() / hashlib.sha256(content).hexdigest()[:16] / f"{name}.onnx"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
    return load_model(file, **given)


def _content(model: Any) -> tuple[str, bytes]:
    """Return the name and the bytes of an ONNX model that is no file."""
    if isinstance(model, bytes):
        return "model", model
    if hasattr(model, "SerializeToString"):
        return _plain(model.graph.name) or "model", bytes(model.SerializeToString())
    if hasattr(model, "read"):
        content = model.read()
        if isinstance(content, bytes):
            return _plain(Path(str(getattr(model, "name", ""))).stem) or "model", content
        raise UsageError("the model's file is open as text", hint="open it with 'rb'")
    hint = "a path, a workload's name, an ONNX model, its bytes, a file, or a torch.nn.Module"
    raise UsageError(f"{type(model).__name__} objects are no models", hint=hint)


def _plain(name: str) -> str:
    """Return a name as a file may have it."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)[:64]


def _exported(torch: Any, module: Any, inputs: object) -> Path:
    """Return the ONNX file of a network of PyTorch, beside which its weights may lie."""
    if inputs is None:
        hint = "inputs=(torch.zeros(1, 3, 224, 224),)"
        raise UsageError("a torch.nn.Module needs example inputs", hint=hint)
    file = Path(tempfile.mkdtemp(dir=_folder())) / f"{_plain(type(module).__name__).lower()}.onnx"
    try:
        torch.onnx.export(
            module.eval(), inputs if isinstance(inputs, tuple) else (inputs,), str(file)
        )
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        message = f"torch.onnx.export: {type(error).__name__}: {said}"
        raise ModelError(message, hint="export it yourself, and give the file") from error
    return file


def as_target(target: Target | Machine | str | os.PathLike[str]) -> AnyTarget:
    """Return a target by its name or file; one that is loaded as it is.

    Raises:
        TargetError: Nothing has that name, or it is not valid.
    """
    return find_target(target) if isinstance(target, str | os.PathLike) else target


def _read(call: type, function: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments under their names, with texts of durations and shares read.

    Raises:
        UsageError: No argument has a name, or a text or a number is not what it takes.
    """
    options, read = options_of(call), dict[str, Any]()
    for said, told in given.items():
        name, value = said if said in options else RENAMED.get(said, said), told
        if name not in options:
            hint = did_you_mean(said, options)
            raise UsageError(f"{function} has no argument {said!r}", hint=hint)
        kind = option_of(options[name]).kind
        if kind == "count" and value is not None and not isinstance(value, Integral):
            raise UsageError(f"{name}: {value!r} is not a whole number")
        if isinstance(told, str) and kind in ("seconds", "share"):
            value = duration(name)(told) if kind == "seconds" else percentage(name)(told)
        read[name] = value
    return read


def _as_declared(config: type, name: str) -> Any:
    """Return a field with the default and the option of one that a class declares."""
    declared = {one.name: one for one in fields(config)}[name]
    return field(default=declared.default, metadata=declared.metadata)


def called(call: Callable[P, C]) -> Callable[[Callable[[C], R]], Callable[P, R]]:
    """Return a decorator that makes a function of the library of one of a call's fields."""

    def decorate(function: Callable[[C], R]) -> Callable[P, R]:
        inner = called_with(call)(function)
        options: Any = call

        @wraps(inner)
        def public(*args: P.args, **kwargs: P.kwargs) -> R:
            read: Any = _read(options, function.__name__, kwargs)
            return inner(*args, **read)

        public.__signature__ = signature(inner)  # type: ignore[attr-defined]
        return public

    return decorate


@dataclass(frozen=True, kw_only=True)
class _Texts:
    """Options that may be texts, as on the command line."""

    time_budget: float | str | None = _as_declared(ResumeConfig, "time_budget")
    bound_gap: float | str | None = _as_declared(ResumeConfig, "bound_gap")
    timeout: float | str | None = _as_declared(ExecutionOptions, "timeout")


@dataclass(frozen=True, kw_only=True)
class _Extents:
    """The extents of a model that is not loaded yet."""

    batch: int | None = field(
        default=None,
        metadata=argument("samples processed at once, of a model that is not loaded yet"),
    )
    shapes: Mapping[str, Sequence[int]] | None = field(
        default=None, metadata=argument("extents by input name, of such a model")
    )
    dims: Mapping[str, int] | None = field(
        default=None, metadata=argument("extents of named dimensions, of such a model")
    )
    inputs: object = field(
        default=None, metadata=argument("example inputs, of a ``torch.nn.Module``")
    )


@dataclass(frozen=True, kw_only=True)
class _SearchedModel(_Extents):
    """The extents of a model that is not loaded yet, and what is shown meanwhile."""

    progress: bool | None = field(
        default=None,
        metadata=argument("show how it stands; if None on a terminal and in a notebook"),
    )


@dataclass(frozen=True, kw_only=True)
class TuneArguments(_Texts, ExecutionOptions, TuneConfig, _SearchedModel):
    """Arguments of :func:`tune`."""

    model: Model = field(kw_only=False, metadata=argument("the model"))
    target: AnyTarget | str | os.PathLike[str] = field(
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
    graph = as_model(call.model, call.inputs, **_extents(call))
    target: AnyTarget | Literal["host"]
    target = "host" if call.target == HOST else as_target(call.target)
    with _showing(call) as line:
        options = _options(call, TuneConfig, line)
        return tuner.tune(graph, target, seeds=call.seeds, **_kept(call), **options)


@dataclass(frozen=True, kw_only=True)
class SweepArguments(_Texts, ExecutionOptions, SweepConfig, _SearchedModel):
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
    graph, target = as_model(call.model, call.inputs, **_extents(call)), as_target(call.target)
    if not isinstance(target, Target):
        raise UsageError("a machine's units are no fields to vary", hint="sweep one of its units")
    with _showing(call) as line:
        options = _options(call, SweepConfig, line)
        return sweeping.sweep(graph, target, call.vary, cost=call.cost, **_kept(call), **options)


@dataclass(frozen=True, kw_only=True)
class ResumeArguments(_Texts, ExecutionOptions, ResumeConfig, RunArguments):
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
    return loading.resume(**fields_of(call))


# Models and schedules looked at


@dataclass(frozen=True, kw_only=True)
class _ScheduleArguments(_Extents):
    """A schedule of a model on a target."""

    model: Model | TuneResult = field(kw_only=False, metadata=argument("the model"))
    target: AnyTarget | str | os.PathLike[str] = field(
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
        model = as_model(given, self.inputs, **_extents(self))
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
class CompareArguments(_Extents):
    """Arguments of :func:`compare`."""

    model: Model = field(kw_only=False, metadata=argument("the model"))
    target: Target | str | os.PathLike[str] = field(
        default=DEFAULT_TARGET, kw_only=False, metadata=argument("the accelerator")
    )
    dtype: str | None = _as_declared(_ScheduleArguments, "dtype")
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
    model = as_model(call.model, call.inputs, **_extents(call))
    pair = paired(model, as_target(call.target), call.dtype, call.measurer, sign="").on_target()
    if pair is None:
        raise UsageError("a machine has several units", hint="compare on one of its units")
    database = None if call.database is None else Path(call.database)
    return compared_on(
        model, pair.target, dtype=pair.dtype, database=database, measurer=call.measurer
    )


@dataclass(frozen=True, kw_only=True)
class InspectArguments(_Extents):
    """Arguments of :func:`inspect`."""

    model: Model = field(kw_only=False, metadata=argument("the model"))
    targets: Target | str | os.PathLike[str] | Iterable[Target | str | os.PathLike[str]] | None = (
        field(
            default=None, kw_only=False,
            metadata=argument("one target or several, for lower bounds; every preset if None"),
        )
    )  # fmt: skip
    dtype: str | None = _as_declared(_ScheduleArguments, "dtype")


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
    model = as_model(call.model, call.inputs, **_extents(call))
    given: Any = call.targets
    if given is None:
        asked: list[AnyTarget] = [*load_presets()]
    else:
        one = isinstance(given, Target | str | os.PathLike)
        asked = [as_target(target) for target in ([given] if one else given)]
    targets = [target for target in asked if isinstance(target, Target)]
    if given is None and call.dtype:
        targets = [target for target in targets if target.supports(call.dtype)]
    return inspected(model, targets, call.dtype, sign="")


def _extents(call: _Extents) -> dict[str, Any]:
    return {"batch": call.batch, "shapes": call.shapes, "dims": call.dims}


def _kept(call: TuneArguments | SweepArguments) -> dict[str, Any]:
    """Return what a run keeps of a model that was given by name, so that it can be loaded again."""
    if not isinstance(call.model, str | os.PathLike):
        return {}
    settings = kept_inputs(**_extents(call))
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
        shown = sys.stderr.isatty() or "ipykernel" in sys.modules
    if not shown or call.on_progress is not None:
        return nullcontext()
    return LiveLine(Console())
