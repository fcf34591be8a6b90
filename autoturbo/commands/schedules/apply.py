"""Write the scheduled model as ONNX: every instance is a call of a function.

A name that ends in ``.json`` gives the schedule spelled out instead: kernels, tiles, buffers.
The schedule is the best one in the database, also of another batch (``--nearest-batch``), or of a
schedule file, a knobs file, or a scheduler.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.commands.config_flags import add_flags
from autoturbo.commands.console import Console, Dtype
from autoturbo.commands.loading import (
    ModelNotes,
    add_force_option,
    add_model_options,
    add_target_options,
    asked_inputs,
    load_any_pair,
    load_given,
    model_file,
    outputs_of,
    tell_notes,
)
from autoturbo.commands.parser import Parser, command_line, wrong
from autoturbo.commands.scheduling import (
    AdaptedJson,
    CheckName,
    ChosenSchedule,
    add_schedule_options,
    chosen_schedule,
    schedule_of_database,
)
from autoturbo.config import TuneConfig, extent_flags
from autoturbo.errors import Location, RefusedError, UsageError
from autoturbo.files import NO_OTHERS, Kind, Outputs
from autoturbo.graph.operators import Graph
from autoturbo.report.units import percent, ratio
from autoturbo.schema import Natural, TypedDict

if TYPE_CHECKING:
    from autoturbo.schedule.schedule import AnySchedule
    from autoturbo.verifier.onnx_writer.scheduled_model import Applied

USAGE = "MODEL [--db PATH | --schedule FILE | --knobs FILE | --scheduler NAME] -o FILE [options]"
EXAMPLE = "autoturbo apply resnet50 --batch 1 -o resnet50.stcp920.onnx"


_VERIFIED = ("regions", "memory")


class _Written(TypedDict, total=False):
    """What was written as functions, and how settings of another batch compare."""

    data_files: list[str]
    missing: list[str]
    functions: Natural
    instances: Natural
    nodes: Natural
    passes: Natural
    adapted: AdaptedJson


class ApplyLine(ModelNotes, _Written):
    """What was written; a kernels file (.json) has no functions."""

    model: str
    target: str
    dtype: Dtype
    scheduler: str
    file: str
    verified: list[CheckName]


def add_arguments(parser: Parser) -> None:
    """Add the model, the target, what gives the schedule, and where it goes."""
    add_model_options(parser)
    add_target_options(parser)
    what = add_schedule_options(parser, "the best in the database")
    add_flags(parser, TuneConfig, "measurer")
    text = (
        "where the database has none of this batch, adapt the settings of the nearest that it has"
    )
    what.add_argument("--nearest-batch", action="store_true", help=text)
    text = "the scheduled model (ONNX), or its kernels spelled out where it ends in .json"
    add = parser.group("what is kept").add_argument
    add("-o", "--output", metavar="FILE", type=Path, required=True, help=text)
    add_force_option(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Find the schedule, check it, write the model, say what to do with it."""
    spelled_out = options.output.suffix == ".json"
    outputs = outputs_of(options).reading(model_file(options.model))
    outputs.check(options.output, Kind.KERNELS if spelled_out else Kind.MODEL)
    pair = load_any_pair(options)
    given = options.schedule or options.knobs or options.scheduler
    if options.nearest_batch and pair.on_target() is None:
        message = f"{pair.target.name!r} is a machine of several processing units"
        raise wrong("--nearest-batch", message, "tune it at this batch")
    if given:
        chosen = chosen_schedule(options, pair)
    else:
        near = partial(_at_batch, options) if options.nearest_batch else None
        chosen = schedule_of_database(options.db, pair, near)
    console.say(f"{pair}, {pair.dtype}: {chosen.name}{how_adapted(chosen, pair.model.batch)}")
    notes, written = tell_notes(pair.model, console), _Written()
    applied = None
    if spelled_out:
        write_kernels(chosen.schedule, options.model, options.output, outputs)
    else:
        applied = apply_schedule(chosen.schedule, options.model, options.output, outputs)
        written = {
            "data_files": list(map(str, applied.data_files)), "missing": list(applied.missing),
            "functions": applied.functions, "instances": applied.instances,
            "nodes": applied.nodes, "passes": applied.passes,
        }  # fmt: skip
    if chosen.adapted is not None:
        written["adapted"] = chosen.adapted
    line: ApplyLine = {
        "model": pair.model.name, "target": pair.target.name, "dtype": pair.dtype,
        "scheduler": chosen.name, **notes, "file": str(options.output), **written,
        "verified": list(_VERIFIED),
    }  # fmt: skip
    console.emit(line)
    if applied is None:
        console.say(f"written   {options.output}")
        console.say(f"verified  {', '.join(_VERIFIED)}")
    elif not console.json:
        _print(applied, _verify(chosen, options), console)
    return 0


def _at_batch(options: argparse.Namespace, batch: int) -> Graph:
    """Return the model at another batch, with all else as the options give it."""
    return load_given(options.model, argparse.Namespace(**{**vars(options), "batch": batch}))


def how_adapted(chosen: ChosenSchedule, batch: int) -> str:
    """Return how settings of another batch compare at this one; empty for settings of its own."""
    if chosen.adapted is None:
        return ""
    latency, base = chosen.adapted["latency_s"], chosen.adapted["heuristic_s"]
    said = f", adapted to batch {batch}"
    if base is None:
        return f"{said}; the heuristic does not fit"
    if latency > base:
        slower = f"{percent(latency / base - 1)} slower than the heuristic"
        return f"{said}: {slower} in the simulator (--scheduler graphturbo takes that one)"
    return f"{said}: {ratio(base / latency)} over the heuristic in the simulator"


def _print(applied: Applied, next_command: str, console: Console) -> None:
    counts = {
        "function": applied.functions, "call": applied.instances,
        "node": applied.nodes, "pass": applied.passes,
    }  # fmt: skip
    lines = {
        "written": str(applied.file),
        "weights": ", ".join(map(str, applied.data_files)),
        "missing": _missing(applied),
        "holds": ", ".join(_counted(number, name) for name, number in counts.items()),
        "verified": ", ".join(_VERIFIED),
        "next": next_command,
    }
    for name, line in lines.items():
        if line:
            console.say(f"{name:<10}{line}")


def _missing(applied: Applied) -> str:
    """Return the weights files that the model needs beside it and has not; empty if none."""
    return f"{', '.join(applied.missing)}: put it beside the model" if applied.missing else ""


def _counted(number: int, name: str) -> str:
    plural = "es" if name.endswith("s") else "s"
    return f"{number} {name}{'' if number == 1 else plural}"


def _verify(chosen: ChosenSchedule, options: argparse.Namespace) -> str:
    """Return the command that checks the numbers of the same schedule; adapted, that tunes it."""
    if chosen.adapted is not None:
        given = {"--target": options.target, "--dtype": options.dtype}
        flags = [word for flag, one in given.items() if one is not None for word in (flag, one)]
        extents = extent_flags(**asked_inputs(options))
        return command_line(options.db, "tune", options.model, *flags, *extents)
    if chosen.run:
        return command_line(options.db, "verify", options.model, "--run", chosen.run)
    names = ("target", "dtype", "schedule", "knobs", "scheduler")
    given = {f"--{name}": getattr(options, name) for name in names}
    words = [word for flag, one in given.items() if one is not None for word in (flag, str(one))]
    extents = extent_flags(**asked_inputs(options))
    return command_line(options.db, "verify", options.model, *words, *extents)


# Writing


def apply_schedule(
    schedule: AnySchedule,
    model: str | Path,
    out: str | Path,
    outputs: Outputs = NO_OTHERS,
) -> Applied:
    """Write a model as its schedule computes it: every instance a call of a function.

    Regions and memory are checked first: a schedule that fails is not written.

    Args:
        schedule: Of the model, on a target or a machine.
        model: Its file, or the name of a workload.
        out: The ONNX file to write.
        outputs: What it may not replace besides the model.

    Returns:
        The files that were written, and how many calls, functions and nodes the model has.

    Raises:
        UsageError: ``out`` is the model itself, cannot be written, or may not be replaced.
        RefusedError: The schedule does not compute the model.
        VerifyError: The schedule cannot be written as ONNX.
        ModelError: The file is not usable.
    """
    from autoturbo.verifier.onnx_writer.partial_operator import RegionError
    from autoturbo.verifier.onnx_writer.scheduled_model import BuildError, write_scheduled_model

    source, place = model_file(model), Path(out)
    outputs.reading(source).check(place, Kind.MODEL)
    _check(schedule, model)
    try:
        return write_scheduled_model(schedule.whole, source, place, outputs)
    except (BuildError, RegionError) as error:
        raise RefusedError(f"the schedule does not compute it: {error}", Location(model)) from None


def write_kernels(
    schedule: AnySchedule,
    model: str | Path,
    out: str | Path,
    outputs: Outputs = NO_OTHERS,
) -> Path:
    """Write a schedule spelled out, for compilers without this code (docs/schedule-format.md).

    Regions and memory are checked first, as :func:`apply_schedule` does.

    Returns:
        The file that was written: ``out``.

    Raises:
        UsageError: ``out`` is the model itself, cannot be written, may not be replaced, or the
            schedule is of a machine.
        RefusedError: The schedule does not compute the model.
    """
    from autoturbo.schedule.kernels_file import kernels_text
    from autoturbo.schedule.schedule import Schedule

    if not isinstance(schedule, Schedule):
        message = "kernels are spelled out for a target, not for a machine of several units"
        raise UsageError(message, Location(out), "give a name that ends in .onnx")

    outputs = outputs.reading(model_file(model))
    outputs.check(out, Kind.KERNELS)
    _check(schedule, model)
    outputs.write(out, Kind.KERNELS, kernels_text(schedule))
    return Path(out)


def _check(schedule: AnySchedule, model: str | Path) -> None:
    """Check regions and memory; raise RefusedError where a check fails."""
    from autoturbo.verifier import verify_schedule

    findings = verify_schedule(schedule, numbers=False).findings
    if findings:
        more = f", and {len(findings) - 1} more" if findings[1:] else ""
        message = f"the schedule fails the {findings[0].check.value} check: {findings[0].message}"
        hint = "nothing was written; 'autoturbo verify' lists all that it finds"
        raise RefusedError(message + more, Location(model), hint)
