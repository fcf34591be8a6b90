"""Write a model with its schedule as ONNX: every instance a call of a function.

A name that ends in ``.json`` gives the schedule spelled out instead: kernels, tiles, buffers.
The schedule is the best one in the database, or of a schedule file, a knobs file, or a scheduler.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.commands.config_flags import add_flags
from autoturbo.commands.console import Console
from autoturbo.commands.facts import assumed, notes_field, say_notes
from autoturbo.commands.loading import (
    AnyPair,
    add_model_options,
    add_target_options,
    asked_inputs,
    load_any_pair,
    model_file,
)
from autoturbo.commands.outputs import add_force_option, outputs_of
from autoturbo.commands.parser import DEFAULT_DATABASE, Parser
from autoturbo.commands.scheduling import (
    AnyChosen,
    add_schedule_options,
    chosen_schedule,
    schedule_of_database,
)
from autoturbo.config import TuneConfig, extent_flags
from autoturbo.outputs import Kind

if TYPE_CHECKING:
    from autoturbo.verify.onnx_writer.scheduled_file import Applied

USAGE = "MODEL [--db PATH | --schedule FILE | --knobs FILE | --scheduler NAME] -o FILE [options]"
EXAMPLE = "autoturbo apply examples/models/resnet50.onnx --batch 1 -o resnet50.stcp920.onnx"


_VERIFIED = ("regions", "memory")


def add_arguments(parser: Parser) -> None:
    """The model, the target, what gives the schedule, and where it goes."""
    add_model_options(parser)
    add_target_options(parser)
    add_flags(parser, TuneConfig, "measurer")
    add_schedule_options(parser, "the best in the database")
    text = "the scheduled model (ONNX), or its kernels spelled out where it ends in .json"
    add = parser.add_argument
    add("-o", "--output", metavar="FILE", type=Path, required=True, help=text)
    add_force_option(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Find the schedule, check it, write the model, say what to do with it."""
    from autoturbo.commands.applying import apply_schedule, write_kernels

    spelled_out = options.output.suffix == ".json"
    outputs = outputs_of(options).reading(model_file(options.model))
    outputs.check(options.output, Kind.KERNELS if spelled_out else Kind.MODEL)
    pair = load_any_pair(options)
    chosen = _chosen(options, pair)
    console.say(f"{pair.model.name} @ {pair.target.name}, {pair.dtype}: {chosen.name}")
    say_notes(assumed(pair.model), console)
    if spelled_out:
        file = write_kernels(chosen.schedule, options.model, options.output, outputs)
        console.emit({**_of_pair(pair, chosen), "file": str(file), "verified": _VERIFIED})
        console.say(f"written   {file}")
        console.say(f"verified  {', '.join(_VERIFIED)}")
        return 0
    applied = apply_schedule(chosen.schedule, options.model, options.output, outputs)
    console.emit(_as_json(pair, chosen, applied))
    if not console.json:
        _print(applied, _verify(chosen, options), console)
    return 0


def _chosen(options: argparse.Namespace, pair: AnyPair) -> AnyChosen:
    if options.schedule or options.knobs or options.scheduler:
        return chosen_schedule(options, pair)
    return schedule_of_database(options.db, pair)


def _of_pair(pair: AnyPair, chosen: AnyChosen) -> dict[str, Any]:
    return {
        "model": pair.model.name,
        "target": pair.target.name,
        "dtype": pair.dtype,
        "scheduler": chosen.name,
        **notes_field(assumed(pair.model)),
    }


def _as_json(pair: AnyPair, chosen: AnyChosen, applied: Applied) -> dict[str, Any]:
    return {
        **_of_pair(pair, chosen),
        "file": str(applied.file),
        "data_files": [str(file) for file in applied.data_files],
        "missing": list(applied.missing),
        "functions": applied.functions,
        "instances": applied.instances,
        "nodes": applied.nodes,
        "passes": applied.passes,
        "verified": _VERIFIED,
    }


def _print(applied: Applied, next_command: str, console: Console) -> None:
    counts = {
        "function": applied.functions, "call": applied.instances,
        "node": applied.nodes, "pass": applied.passes,
    }  # fmt: skip
    lines = {
        "written": str(applied.file),
        "weights": ", ".join(map(str, applied.data_files)),
        "missing": ", ".join(applied.missing),
        "holds": ", ".join(_counted(number, name) for name, number in counts.items()),
        "verified": ", ".join(_VERIFIED),
        "next:": next_command,
    }
    for name, line in lines.items():
        if line:
            console.say(f"{name:<10}{line}")


def _counted(number: int, name: str) -> str:
    plural = "es" if name.endswith("s") else "s"
    return f"{number} {name}{'' if number == 1 else plural}"


def _verify(chosen: AnyChosen, options: argparse.Namespace) -> str:
    """The command that checks the numbers of the same schedule."""
    if chosen.run:
        return _command([options.model, "--run", chosen.run], options)
    flags = {
        "--target": options.target, "--dtype": options.dtype,
        "--schedule": options.schedule, "--knobs": options.knobs, "--scheduler": options.scheduler,
    }  # fmt: skip
    words: list[str] = [options.model]
    for name, value in flags.items():
        words += [] if value is None else [name, str(value)]
    words += extent_flags(**asked_inputs(options))
    return _command(words, options)


def _command(words: list[str], options: argparse.Namespace) -> str:
    database = [] if options.db == DEFAULT_DATABASE else ["--db", options.db]
    return shlex.join(["autoturbo", "verify", *words, *database])
