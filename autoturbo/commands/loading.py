"""Models, targets and data types: from what the user named to what is loaded."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from autoturbo.commands.config_flags import add_flags
from autoturbo.commands.console import Console, warn
from autoturbo.commands.flag_values import dimension, merged, shape, value, whole_number, wrong
from autoturbo.commands.parser import Parser, takes
from autoturbo.config import TuneConfig
from autoturbo.errors import Location, ModelError, RunError, TargetError, did_you_mean
from autoturbo.graph.operators import Graph
from autoturbo.schema import TypedDict

if TYPE_CHECKING:
    from autoturbo.database import RunInfo
    from autoturbo.hardware import Target
    from autoturbo.hardware.tuning_target import TuningTarget
    from autoturbo.heterogeneous.evaluator import MachineEvaluator
    from autoturbo.simulator.evaluator import Evaluator

DEFAULT_TARGET = "stcp920"
SIMULATOR = TuneConfig.measurer

_TargetT_co = TypeVar("_TargetT_co", bound="TuningTarget", covariant=True)


class Pair(NamedTuple, Generic[_TargetT_co]):
    """A model, the target that it is scheduled on, and the data type.

    Attributes:
        model: The graph.
        target: The accelerator, or the machine of several processing units.
        dtype: Data type that it computes in.
        measurer: Name of what measures it; machines are simulated.
    """

    model: Graph
    target: _TargetT_co
    dtype: str
    measurer: str = SIMULATOR

    def __str__(self) -> str:
        return f"{self.model.name} @ {self.target.name}"

    def on_target(self) -> Pair[Target] | None:
        """Return the pair if it is on a target; None if it is on a machine."""
        from autoturbo.hardware import Target

        target: TuningTarget = self.target
        if isinstance(target, Target):
            return Pair(self.model, target, self.dtype, self.measurer)
        return None

    def evaluator(self) -> Evaluator | MachineEvaluator:
        """Return the evaluator that measures candidates of the pair.

        Raises:
            UsageError: There is no such measurer.
        """
        from autoturbo.heterogeneous.evaluator import evaluator_of
        from autoturbo.search.executors.remote import evaluator_by

        if self.measurer != SIMULATOR and (on := self.on_target()):
            return evaluator_by(on.measurer, on.model, on.target, on.dtype)
        return evaluator_of(self.model, self.target, self.dtype)


AnyPair: TypeAlias = "Pair[TuningTarget]"


class ModelNotes(TypedDict, total=False):
    """What is said of a model besides its figures."""

    notes: list[str]


def tell_notes(graph: Graph, console: Console, *, everything: bool = False) -> ModelNotes:
    """Tell people what the import assumed, a line each.

    Args:
        graph: The model.
        console: Console where people read it.
        everything: Tell all of it, not only what its figures may be misread without.

    Returns:
        The notes as a field of a command's object; nothing where there are none.
    """
    from autoturbo.graph.importer.freeze import ASSUMED_BATCH
    from autoturbo.graph.importer.propagate import CHOSEN_BRANCH
    from autoturbo.graph.importer.samples import UNKNOWN_BATCH

    needed = (ASSUMED_BATCH, UNKNOWN_BATCH, CHOSEN_BRANCH)
    told = [note for note in graph.notes if everything or note.startswith(needed)]
    for note in told:
        console.say(f"note: {note}")
    return {"notes": told} if told else {}


def load_model(
    path: str | Path,
    *,
    batch: int | None = None,
    batch_dim: str | Sequence[str] = (),
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, Sequence[float]] | None = None,
) -> Graph:
    """Return the graph of an ONNX file, or of a workload that is part of this package.

    Args:
        path: The file, or the name of a workload; of both, the file.
        batch: Samples processed at once; None keeps the model's own, or takes 1 where the file
            leaves it open.
        batch_dim: What counts samples, where names, operators and the agreement of inputs do not
            say it: the name of a dimension, or an input and an axis (``"cache:1"``), or several.
        shapes: Extents by input name, where the batch does not say enough.
        dims: Extents by the name that the file gives a dimension, in all inputs
            (``{"seq_len": 128}``).
        values: Elements by input name, one for all or as many as the input has: what depends on
            them alone, such as the branch of an ``If``, is decided now.

    Raises:
        ModelError: The model is not usable, with the node or tensor and how to mend it.
    """
    from autoturbo.graph.onnx_import import import_model

    file = model_file(path)
    return import_model(
        file, batch=batch, batch_dim=batch_dim, shapes=shapes, dims=dims, values=values
    )


def load_given(name: str, options: argparse.Namespace) -> Graph:
    """Return a model with the batch, extents and values that options give."""
    return load_model(name, **asked_inputs(options))


def how_to_load(options: argparse.Namespace) -> dict[str, Any]:
    """Return what a run keeps, so that its model can be loaded again."""
    return kept_inputs(**asked_inputs(options))


def kept_inputs(
    batch: int | None,
    *,
    batch_dim: Sequence[str] = (),
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, Sequence[float]] | None = None,
) -> dict[str, Any]:
    """Return what a run keeps of the arguments of :func:`load_model`, as JSON values."""
    given = {
        "batch_dim": list(batch_dim),
        "shapes": {name: list(extents) for name, extents in (shapes or {}).items()},
        "dims": dict(dims or {}),
        "values": {name: list(elements) for name, elements in (values or {}).items()},
    }
    kept = {name: value for name, value in given.items() if value}
    return {"folder": str(Path.cwd()), "model_batch": batch, **kept}


def model_of_run(info: RunInfo) -> Graph:
    """Load the model of a run, found from the folder where the run was begun or from this one."""
    if not info.model_file:
        message = f"run {info.id}: the file of its model is not recorded"
        raise RunError(message, hint="give load_graph to autoturbo.resume")
    return load_model(model_path_of_run(info), **_kept_inputs(info))


def _kept_inputs(info: RunInfo) -> dict[str, Any]:
    """Return the arguments of :func:`load_model` that a run was begun with."""
    kept = info.settings
    batch = kept.get("model_batch", info.batch)
    named = {name: kept.get(name) for name in ("shapes", "dims", "values")}
    return {"batch": batch, "batch_dim": kept.get("batch_dim", ()), **named}


def asked_inputs(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of :func:`load_model` that the options of a command stand for.

    Raises:
        UsageError: An input or a dimension is given twice.
    """
    flags = {"shapes": "shape", "dims": "dim", "values": "value"}
    named = {name: merged(f"--{f}", getattr(options, f)) for name, f in flags.items()}
    return {"batch": options.batch, "batch_dim": tuple(options.batch_dim), **named}


def model_path_of_run(info: RunInfo) -> Path:
    """Return the file of a run's model, seen from the run's folder or from this one."""
    given = Path(info.model_file)
    there = Path(info.settings.get("folder", "")) / given
    return given if given.exists() or not there.exists() else there


def model_file(name: str | Path) -> Path:
    """Return the file that a name stands for.

    Raises:
        ModelError: Neither a file nor a workload has that name.
    """
    path = Path(name)
    is_path = path.suffix or str(name) != path.name
    there = os.path.exists(path)  # noqa: PTH110  Path.exists raises for a long name
    if there:
        return path
    from autoturbo.datasets import workloads

    if is_path and path.stem in workloads.names():
        hint = f"for the workload of this package give its name, {path.stem}"
        raise ModelError("no such file", Location(str(path)), hint)
    if is_path:
        return path
    if str(name) in workloads.names():
        return workloads.get(str(name)).file
    hint = did_you_mean(str(name), workloads.names())
    raise ModelError("no such file, and no workload has that name", Location(name), hint)


def add_model_options(parser: Parser, *, several: bool = False) -> None:
    """Add the model, and what fixes its shapes."""
    settings: dict[str, Any] = {"nargs": "+"} if several else {}
    text = "ONNX file, or the name of a workload"
    parser.add_argument("models" if several else "model", metavar="MODEL", help=text, **settings)
    add_shape_options(parser)


def add_shape_options(parser: Parser) -> None:
    """Add what fixes the shapes of a model."""
    batch = "samples processed at once (default: the model's own, or 1)"
    add = parser.group("model").add_argument
    add("--batch", metavar="N", type=whole_number("--batch", 1), help=batch)
    add_extent_options(parser)


add_batch_dim_option = takes(
    "--batch-dim", group="model", metavar="DIM", action="append", default=[],
    help="dimension that counts samples: its name, or INPUT:AXIS; may be repeated",
)  # fmt: skip

add_dim_option = takes(
    "--dim", group="model", metavar="NAME=N", type=dimension, action="append", default=[],
    help="extent of a named dimension in all inputs, for example seq_len=128; may be repeated",
)  # fmt: skip


def add_extent_options(parser: Parser) -> None:
    """Add what says which dimensions of a model are the batch, and fixes the others."""
    add_batch_dim_option(parser)
    add_dim_option(parser)
    add = functools.partial(parser.group("model").add_argument, action="append", default=[])
    text = "extents of one input; may be repeated"
    add("--shape", metavar="NAME=1,3,224,224", type=shape, help=text)
    text = "elements of one input, known in advance; may be repeated"
    add("--value", metavar="NAME=16000", type=value, help=text)


def add_target_options(parser: Parser, *, several: bool = False, default: str = "") -> None:
    """Add the target, and the data type."""
    here = ", or host for this computer" if several and not default else ""
    text = f"preset or target file{here} (default: {default or DEFAULT_TARGET})"
    one: dict[str, Any] = {"default": DEFAULT_TARGET, "help": text}
    many = {
        "dest": "targets", "action": "append", "default": [], "help": f"{text}; may be repeated"
    }  # fmt: skip
    parser.group("target").add_argument("--target", metavar="T", **(many if several else one))
    add_flags(parser, TuneConfig, "dtype")


def load_pair(options: argparse.Namespace) -> Pair[Target]:
    """Load the one model and target of a command."""
    target = _target(options.target)
    dtype = chosen_dtype(target, options.dtype)
    return Pair(load_given(options.model, options), target, dtype, _measurer(options))


def load_any_pair(options: argparse.Namespace) -> AnyPair:
    """Load the one model of a command, on a target or on a machine."""
    return load_pairs(options, [options.model], [options.target])[0]


def pair_of_run(options: argparse.Namespace, info: RunInfo) -> AnyPair:
    """Return the model that was named, with the run's batch, shapes, target and data type.

    Options that are given go before what the run has.

    Raises:
        RunError: The run is of something else.
    """
    from autoturbo.hardware.machine_files import find_target, target_from_dict
    from autoturbo.tuning.keys import measurer_of

    kept = info.settings
    stored = kept.get("target_description")
    target = target_from_dict(stored) if stored and not options.target else None
    target = target or find_target(options.target or DEFAULT_TARGET)
    asked, before = asked_inputs(options), _kept_inputs(info)
    chosen = {k: v or before[k] for k, v in asked.items()}
    model = load_model(options.model, **chosen)
    pair = paired(model, target, options.dtype or info.key.dtype, measurer_of(info))
    _check_run(info, pair, options.model)
    return pair


def _check_run(info: RunInfo, pair: AnyPair, file: str) -> None:
    from autoturbo.tuning.keys import pair_key, scheduler_version

    if info.key.free.scheduler_version != scheduler_version(pair.measurer):
        message = f"run {info.id} is of another version of the scheduler"
        raise RunError(message, Location(file), "tune again with this release")
    if info.key.free != pair_key(*pair):
        of = f"{info.model} at batch {info.batch} on {info.target} in {info.key.dtype}"
        now = f"{pair.model.name} at batch {pair.model.batch} on {pair.target.name} in {pair.dtype}"
        hint = f"give the model, batch, shapes and target that 'autoturbo show {info.id} -v' lists"
        raise RunError(f"run {info.id} is of {of}, not of {now}", Location(file), hint)


def load_pairs(
    options: argparse.Namespace, models: Iterable[str], targets: Iterable[str]
) -> list[AnyPair]:
    """Pair every model with every target, model by model; load all before the first is used."""
    from autoturbo.hardware.machine_files import find_target

    on = [find_target(name) for name in dict.fromkeys(targets)]
    # before the models, which take longer to load
    for target in on:
        chosen_dtype(target, options.dtype)
    of = [load_given(name, options) for name in dict.fromkeys(models)]
    measurer = _measurer(options)
    return [paired(model, target, options.dtype, measurer) for model in of for target in on]


def paired(
    model: Graph, target: TuningTarget, dtype: str | None, measurer: str, sign: str = "--"
) -> AnyPair:
    """Return a model and a target, checked with what it computes in and what measures it.

    Args:
        model: The model.
        target: The target or the machine.
        dtype: Data type that it computes in; the target's default if None.
        measurer: Name of the measurer.
        sign: Text before the name of an argument, in an error.

    Raises:
        UsageError: The target does not compute in the type, or the measurer is not for machines.
    """  # noqa: DOC501  wrong() makes the error
    from autoturbo.hardware.machine import Machine

    if isinstance(target, Machine) and measurer != SIMULATOR:
        message = f"{target.name!r} is a machine of several processing units"
        raise wrong(f"{sign}measurer", message, "these are simulated; leave it out")
    return Pair(model, target, chosen_dtype(target, dtype, sign), measurer)


def load_targets(names: Iterable[str]) -> list[Target]:
    """Load the targets of some names, each once."""
    return [_target(name) for name in dict.fromkeys(names)]


def load_presets() -> list[Target]:
    """Load every target that has a name; warn of a broken plug-in, and leave it out."""
    from autoturbo.hardware import load_target, preset_names

    found = []
    for name in preset_names():
        try:
            found.append(load_target(name))
        except TargetError as error:
            warn(f"left out: {error}")
    return found


def chosen_dtype(target: TuningTarget, dtype: str | None, sign: str = "--") -> str:
    """Return the data type asked for, or the target's default.

    Raises:
        UsageError: The target does not compute in it.
    """  # noqa: DOC501  wrong() makes the error
    if dtype is None:
        return target.default_dtype
    if not target.supports(dtype):
        from autoturbo.hardware.machine import Machine

        message = f"{target.name} does not compute in {dtype!r}"
        if isinstance(target, Machine):
            message = f"not all units of {target.name} compute in {dtype!r}"
        raise wrong(f"{sign}dtype", message, f"one of {', '.join(target.dtypes)}")
    return dtype


def _target(name: str) -> Target:
    from autoturbo.hardware import Target
    from autoturbo.hardware.machine_files import find_target

    found = find_target(name)
    if not isinstance(found, Target):
        message = f"{name!r} is a machine of several processing units"
        hint = "tune, simulate, compare, apply and verify take it, this command does not"
        raise wrong("--target", message, hint)
    return found


def _measurer(options: argparse.Namespace) -> str:
    """Return the measurer asked for; the simulator for commands without the option."""
    return getattr(options, "measurer", None) or SIMULATOR
