"""Tune how models are scheduled on targets, every model with every target."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import math
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.commands.config_flags import add_flags, config_of, execution_of
from autoturbo.commands.console import Console, LiveLine
from autoturbo.commands.flag_values import whole_number, wrong
from autoturbo.commands.loading import (
    DEFAULT_TARGET,
    SIMULATOR,
    AnyPair,
    add_model_options,
    add_target_options,
    how_to_load,
    load_pairs,
)
from autoturbo.commands.model_facts import model_facts, opaque_sentence, sentence
from autoturbo.commands.output_files import add_force_option, outputs_of
from autoturbo.commands.parser import Parser
from autoturbo.commands.scheduling import require_libraries
from autoturbo.commands.tuning.host_tuning import TunedHost, tune_on_host
from autoturbo.commands.tuning.run_end import finish, write_copy
from autoturbo.commands.tuning.run_start import check_places, tell_start
from autoturbo.commands.tuning.space import expected_seconds
from autoturbo.commands.tuning.tuned_pairs import TunedPair
from autoturbo.config import ExecutionConfig, TuneConfig
from autoturbo.files import Kind, Outputs
from autoturbo.registry import HOST
from autoturbo.report.sharing import mixed_samples, mixed_sentence
from autoturbo.report.units import clock, percent

if TYPE_CHECKING:
    from autoturbo.database import RunInfo

USAGE = "MODEL... [--target T ...] [options]"
EXAMPLE = "autoturbo tune resnet50 --target stcp920 --trials 500"

TuneLine = TunedPair | TunedHost
LINES = {"": TuneLine}


def add_arguments(parser: Parser) -> None:
    """Add models and targets, the budget, how to search, on what, and where files go."""
    add_model_options(parser, several=True)
    add_target_options(parser, several=True)
    add_flags(parser, TuneConfig)
    add_flags(parser, ExecutionConfig)
    text = "write the best schedule there as well"
    add = parser.group("what is kept").add_argument
    add("-o", "--output", metavar="FILE", type=Path, help=text)
    add_force_option(parser)
    seeds = "repeat each search with K seeds, from --seed on; the best one is handed out"
    add = parser.group("how to search").add_argument
    add("--seeds", metavar="K", type=whole_number("--seeds", 1), default=1, help=seeds)


def run(options: argparse.Namespace, console: Console) -> int:
    """Load everything, then tune all pairs on one pool of workers."""
    began = time.monotonic()
    if HOST in options.targets:
        return tune_on_host(options, console)
    from autoturbo.tuning import tuner

    require_libraries(options)
    check_places(options)
    pairs = load_pairs(options, options.models, options.targets or [DEFAULT_TARGET])
    outputs = outputs_of(options).reading(*(pair.model.source for pair in pairs))
    _check_output(options.output, len(pairs), outputs)
    config, execution = config_of(TuneConfig, options), execution_of(options, began=began)
    expected = [_introduce(pair, config, execution, console, options.seeds) for pair in pairs]
    # of one run its own line has said it, and an unknown share makes the sum unknown
    if len(expected) * options.seeds > 1 and all(expected):
        whole = options.seeds * math.fsum(expected)
        console.say(f"time: about {clock(whole)} for all {len(expected) * options.seeds} runs")
    kept = how_to_load(options)
    if options.output is not None and (options.output.is_file() or not options.output.exists()):
        kept["output"] = str(options.output.absolute())  # resuming writes the copy anew
    gc.freeze()  # what is loaded by now lives as long as the run: collecting walks the rest alone
    chosen = [tuner.Pair(p.model, p.target, p.model.source, kept) for p in pairs]

    def told(info: RunInfo) -> None:
        pair = f"{info.model} @ {info.target}: " if len(pairs) > 1 else ""
        seed = f"seed {info.settings['seed']}: " if options.seeds > 1 else ""
        tell_start(info, console, options.db, pair + seed)

    with LiveLine(console) as line:
        for pair in pairs:
            line.expect(pair.model.name, pair.target.name)
        execution = dataclasses.replace(execution, on_progress=line, on_begin=told)
        ended = tuner.tune_repeatedly(chosen, config, execution, seeds=options.seeds)
    return finish(ended, console, options.db, partial(write_copy, options.output, outputs))


def _introduce(
    pair: AnyPair, config: TuneConfig, execution: ExecutionConfig, console: Console, seeds: int
) -> float:
    """Say what was loaded and what is assumed; then, measured and compiled, how long it takes.

    Returns:
        About how many seconds a search takes; 0 where that is not known, or nothing is said.
    """
    again = f", and of the next {seeds - 1}" if seeds > 1 else ""
    if console.verbosity < 0:
        return 0.0
    model, target = pair.model, pair.target
    facts = model_facts(model)
    lines = [
        ("model", f"{model.source}: {sentence(facts)}"),
        ("whole", opaque_sentence(facts)),
        ("work", "" if model.uncounted is None else model.uncounted.sentence),
        ("samples", _mixed(pair)),
        ("target", f"{target.name}: {target.description}; {pair.dtype}"),
        ("search", _search(pair, config) + again),
        *(("note", note) for note in model.notes),
    ]
    console.say(f"{model.name} @ {target.name}")
    for name, line in lines:
        if line:
            console.say(f"  {name:<8}{line}")
    # whatever compiles comes after all that can be said without
    expected, seconds = _expected(pair, config, execution)
    if expected:
        console.say(f"  time    {expected}{' for each seed' if seeds > 1 else ''}")
    return seconds


def _mixed(pair: AnyPair) -> str:
    """Return why samples cannot be told apart, and what that costs; empty where they can."""
    if (on := pair.on_target()) is None:
        return ""
    return mixed_sentence(mixed_samples(on.model, {on.target.name: on.target.clusters}))


def _search(pair: AnyPair, config: TuneConfig) -> str:
    """Return what the search will do, in words."""
    asked = config.resolved(pair.target)
    over = "" if pair.on_target() else " over units and cuts"
    how = f"{_early(asked)}sampler {asked.sampler}{over}, seed {asked.seed}"
    if asked.measurer != SIMULATOR:
        how += f", measured by {asked.measurer}"
    if asked.time_budget:
        return f"{clock(asked.time_budget)} of time; {how}"
    effort = "" if config.trials else f"effort {config.effort}: "
    return f"{effort}{asked.total or 0} trials; {how}"


def _expected(pair: AnyPair, config: TuneConfig, execution: ExecutionConfig) -> tuple[str, float]:
    """Return how long the search takes, in words and seconds; empty and 0 where nobody knows."""
    asked, on = config.resolved(pair.target), pair.on_target()
    if asked.time_budget or on is None:
        return "", 0.0
    if asked.measurer != SIMULATOR:  # a board is not tried just to say how long it takes
        return _said(asked, execution), 0.0
    seconds, trials = expected_seconds(on, asked, execution)
    took = f"about {clock(seconds)}"
    return took if trials == asked.total else f"{took}: the space has {trials} settings", seconds


def _said(config: TuneConfig, execution: ExecutionConfig) -> str:
    """Return how long a search takes by what its measurer says; empty if it says nothing."""
    from autoturbo.simulator.measurers import declared

    info = declared(config.measurer)
    if info is None or info.cost_s is None:
        return ""
    at_once = min(execution.workers or 1, info.at_once or math.inf)
    return (
        f"about {clock((config.total or 0) * info.cost_s / at_once)} by what {config.measurer} says"
    )


def _early(config: TuneConfig) -> str:
    """Return what may end the search before its budget is used up."""
    rules = []
    if config.patience is not None:
        rules.append(f"{config.patience} trials without a better one")
    if config.bound_gap is not None:
        rules.append(f"{percent(config.bound_gap)} above the lower bound")
    return f"or {' or '.join(rules)}; " if rules else ""


def _check_output(path: Path | None, pairs: int, outputs: Outputs) -> None:
    """Say before a long run what would fail after it.

    Raises:
        UsageError: The file cannot be written, or would be written several times.
    """  # noqa: DOC501  wrong() makes the error
    if path is None:
        return
    if pairs > 1:
        hint = "leave it out: every run folder holds its schedule.json"
        raise wrong("-o", f"one file cannot hold the schedules of {pairs} runs", hint)
    outputs.check(path, Kind.SCHEDULE)
