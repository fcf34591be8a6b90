"""What 'tune' and 'resume' do on this computer."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.commands.config_flags import config_of, execution_of
from autoturbo.commands.console import Console, LiveLine
from autoturbo.commands.flag_values import wrong
from autoturbo.commands.loading import (
    how_to_load,
    load_given,
    model_file,
    model_of_run,
    model_path_of_run,
)
from autoturbo.commands.output_files import outputs_of
from autoturbo.commands.parser import command_line
from autoturbo.commands.tuning.host_answers import HostLine, compared_json, print_answer
from autoturbo.config import ExecutionConfig, ResumeConfig, TuneConfig, flag_of, options_of
from autoturbo.files import Kind
from autoturbo.registry import HOST
from autoturbo.schema import Natural

if TYPE_CHECKING:
    from autoturbo.database import RunInfo
    from autoturbo.tuning.host_run import HostResult


class TunedHost(HostLine):
    """What 'tune --target host' found; 'gains' are those of the chosen plan over each other one."""

    run: str
    trials: Natural
    best_trial: Natural
    seed: Natural
    verified: list[str]
    notes: list[str]


def tune_on_host(options: argparse.Namespace, console: Console) -> int:
    """Return the status of ``tune --target host``, carried out for every model.

    Raises:
        InterruptedRunError: In place of ``KeyboardInterrupt``.
    """
    from autoturbo.tuning import tuner

    began = time.monotonic()
    _check(options)
    outputs = outputs_of(options).reading(*map(model_file, options.models))
    if options.output is not None:
        outputs.check(options.output, Kind.SCHEDULE)
    config, models = config_of(TuneConfig, options), list(dict.fromkeys(options.models))
    if config.time_budget is not None:  # that of all
        config = dataclasses.replace(config, time_budget=config.time_budget / len(models))
    for name in models:
        graph = load_given(name, options)
        _introduce(f"{graph.name} @ host", f"{graph.source}, {graph.batch} samples", console)
        with LiveLine(console) as line:
            execution = execution_of(
                options, began=began, on_progress=line, on_begin=_telling(console, options.db)
            )
            kept = how_to_load(options)
            if options.output is not None:  # resuming writes the copy anew
                kept["output"] = str(options.output.absolute())
            result = tuner.tune_here(graph, str(graph.source), kept, config, execution)
        began = time.monotonic()  # of the next model
        if options.output is not None:
            outputs.write(options.output, Kind.SCHEDULE, result.best.schedule.text)
        _finish(result, console)
    return 0


def resume_on_host(info: RunInfo, options: argparse.Namespace, console: Console) -> int:
    """Return the status of ``resume`` of a run on this computer."""
    from autoturbo.tuning import tuner

    outputs, kept = outputs_of(options).reading(model_path_of_run(info)), info.settings
    copy = options.output or (Path(kept["output"]) if kept.get("output") else None)
    if copy is not None:
        outputs.check(copy, Kind.SCHEDULE)
    _introduce(f"{info.model} @ host", f"{info.model_file}, {info.batch} samples", console)
    with LiveLine(console) as line:
        execution = config_of(
            ExecutionConfig, options, on_progress=line, on_begin=_telling(console, options.db)
        )
        (result,) = tuner.resume_all(
            [info.id], config_of(ResumeConfig, options), execution, load_graph=model_of_run,
            together=False,
        )  # fmt: skip
    found: Any = result
    if copy is not None:
        outputs.write(copy, Kind.SCHEDULE, found.best.schedule.text)
    _finish(found, console)
    return 0


def _telling(console: Console, database: str) -> Callable[[RunInfo], None]:
    """Return what says under which id a run goes on, before anything is measured."""

    def told(info: RunInfo) -> None:
        console.say(f"  run     {info.id}; '{command_line(database, 'resume', info.id)}' goes on")

    return told


def _check(options: argparse.Namespace) -> None:
    """Refuse options that mean nothing on this computer.

    Raises:
        UsageError: One is given, or other targets, or several models for one file.
    """  # noqa: DOC501  wrong() makes the error
    from autoturbo.tuning.host_run import ALLOWED

    if set(options.targets) != {HOST}:
        hint = "tune for the others by a command of their own"
        raise wrong("--target", "'host' is measured, and goes with no other target", hint)
    if options.output is not None and len(set(options.models)) > 1:
        raise wrong("--output", "several models would be written to one file", "leave it out")
    if options.seeds > 1:
        raise wrong("--seeds", "means nothing for --target host", "leave it out")
    for config in (TuneConfig, ExecutionConfig):
        for name, declared in options_of(config).items():
            flag = flag_of(declared)
            if flag and name not in ALLOWED and getattr(options, name, None) is not None:
                raise wrong(flag, "means nothing for --target host", "leave it out")


def _introduce(title: str, model: str, console: Console) -> None:
    """Say what is tuned on what."""
    from autoturbo.host.cpu import this_cpu
    from autoturbo.host.runner import runtime_version
    from autoturbo.report.host import described

    console.say(title)
    console.say(f"  model   {model}")
    console.say(f"  target  {described(this_cpu())}")
    console.say(f"  search  measured by {runtime_version()} on this computer: leave it idle")


def _finish(result: HostResult, console: Console) -> None:
    """Print the result."""
    line: TunedHost = {
        **compared_json(result.answer), "schedule_file": str(result.schedule_file),
        "run": result.run, "trials": result.measured, "best_trial": result.best.trial,
        "seed": result.seed, "verified": [*result.best.verified], "notes": [*result.notes],
    }  # fmt: skip
    console.emit(line)
    print_answer(result.answer, console)
    for note in result.notes:
        console.say(f"{'note':<13}{note}")
    rows = {
        "verified": ", ".join(result.best.verified),
        "schedule": str(result.schedule_file),
        "next": f"autoturbo report {result.run}",
    }
    for name, value in rows.items():
        console.say(f"{name:<13}{value}")
    console.say()
