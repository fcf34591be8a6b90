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
from autoturbo.commands.flag_values import wrong
from autoturbo.commands.loading import (
    ModelNotes,
    add_model_options,
    add_target_options,
    asked_inputs,
    load_any_pair,
    load_given,
    model_file,
    tell_notes,
)
from autoturbo.commands.output_files import add_force_option, outputs_of
from autoturbo.commands.parser import Parser, command_line
from autoturbo.commands.schedules.writing import apply_schedule, write_kernels
from autoturbo.commands.scheduling import (
    AdaptedJson,
    CheckName,
    ChosenSchedule,
    add_schedule_options,
    chosen_schedule,
    schedule_of_database,
)
from autoturbo.config import TuneConfig, extent_flags
from autoturbo.files import Kind
from autoturbo.graph.operators import Graph
from autoturbo.report.units import percent, ratio
from autoturbo.schema import Natural, TypedDict

if TYPE_CHECKING:
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


LINES = {"": ApplyLine}


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
