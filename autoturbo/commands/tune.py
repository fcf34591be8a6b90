"""Tune how models are scheduled on targets, every model with every target."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.commands.config_flags import add_flags, config_of, execution_of
from autoturbo.commands.console import Console
from autoturbo.commands.facts import model_facts, opaque_sentence, sentence
from autoturbo.commands.loading import (
    SIMULATOR,
    AnyPair,
    MachinePair,
    Pair,
    add_model_options,
    add_target_options,
    how_to_load,
    load_pairs,
)
from autoturbo.commands.outputs import add_force_option, outputs_of
from autoturbo.commands.parser import Parser
from autoturbo.commands.scheduling import require_runtime
from autoturbo.commands.space import seconds_per_trial
from autoturbo.commands.tuning import LiveLine, check_places, finish_all, starting_lines
from autoturbo.commands.values import wrong
from autoturbo.config import ExecutionConfig, TuneConfig
from autoturbo.errors import AutoTurboError
from autoturbo.outputs import Kind, Outputs
from autoturbo.report.units import clock, percent

if TYPE_CHECKING:
    from autoturbo.database import RunInfo
    from autoturbo.tuner import TuneResult

USAGE = "MODEL... [--target T ...] [options]"
EXAMPLE = "autoturbo tune examples/models/resnet50.onnx --target stcp920 --trials 500"
_LEARNING_S = 0.02
"""Seconds per trial that proposing and learning take: half of a ResNet-50 trial, profiled."""

_SAMPLES = 3
"""Settings measured to say how long a run takes."""


def add_arguments(parser: Parser) -> None:
    """Models and targets, the budget, how to search, on what, and where files go."""
    add_model_options(parser, several=True)
    add_target_options(parser, several=True)
    add_flags(parser, TuneConfig)
    add_flags(parser, ExecutionConfig)
    add = parser.add_argument
    add("-o", "--output", metavar="FILE", type=Path, help="write the best schedule there as well")
    add_force_option(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Load everything, then tune all pairs on one pool of workers."""
    began = time.monotonic()
    if options.verify:
        require_runtime("--verify")
    check_places(options)
    pairs = load_pairs(options)
    outputs = outputs_of(options).reading(*(pair.model.source for pair in pairs))
    _check_output(options.output, len(pairs), outputs)
    config, execution = config_of(TuneConfig, options), execution_of(options, began=began)
    for pair in pairs:
        _introduce(pair, config, execution, console)
    kept = {**how_to_load(options), **_place_of_copy(options.output)}
    ended = _tuned(pairs, config, execution, kept, console)
    return finish_all(ended, console, options.db, options.output, outputs)


def _tuned(
    pairs: Sequence[AnyPair],
    config: TuneConfig,
    execution: ExecutionConfig,
    kept: Mapping[str, Any],
    console: Console,
) -> list[TuneResult | AutoTurboError]:
    from autoturbo import tuner

    gc.freeze()  # what is loaded by now lives as long as the run: collecting walks the rest alone
    chosen = [tuner.Pair(p.model, p.target, p.model.source, kept) for p in pairs]
    with LiveLine(console) as line:
        told = _Beginning(pairs, console, str(execution.database))
        execution = dataclasses.replace(execution, on_progress=line, on_begin=told)
        return tuner.tune_all(chosen, config, execution)


class _Beginning:
    """Says what a run starts from, once that is known."""

    def __init__(self, pairs: Sequence[AnyPair], console: Console, database: str) -> None:
        self._console, self._database, self._several = console, database, len(pairs) > 1

    def __call__(self, info: RunInfo) -> None:
        """Say it."""
        pair = f"{info.model} @ {info.target}: " if self._several else ""
        for line in starting_lines(info, self._database, pair):
            self._console.say(line)


def _introduce(
    pair: AnyPair, config: TuneConfig, execution: ExecutionConfig, console: Console
) -> None:
    """Say what was loaded and what is assumed; then, measured and compiled, how long it takes."""
    if console.verbosity < 0:
        return
    model, target = pair.model, pair.target
    facts = model_facts(model)
    lines = [
        ("model", f"{model.source}: {sentence(facts)}"),
        ("opaque", opaque_sentence(facts)),
        ("work", "" if model.uncounted is None else model.uncounted.sentence),
        ("samples", _mixed(pair)),
        ("target", f"{target.name}: {target.description}; {pair.dtype}"),
        ("search", _search(pair, config)),
        *(("note", note) for note in model.notes),
    ]
    console.say(f"{model.name} @ {target.name}")
    for name, line in lines:
        if line:
            console.say(f"  {name:<8}{line}")
    # whatever compiles comes after all that can be said without
    expected = _expected(pair, config, execution)
    if expected:
        console.say(f"  time    {expected}")


def _mixed(pair: AnyPair) -> str:
    """Why samples cannot be told apart, and what that costs; empty where they can."""
    from autoturbo.report.lines import mixed_samples, mixed_sentence

    if isinstance(pair, MachinePair):
        return ""
    return mixed_sentence(mixed_samples(pair.model, {pair.target.name: pair.target.clusters}))


def _search(pair: AnyPair, config: TuneConfig) -> str:
    """What the search will do."""
    asked, on_machine = config.resolved(pair.target), isinstance(pair, MachinePair)
    over = " over units and cuts" if on_machine else ""
    how = f"{_early(asked)}sampler {asked.sampler}{over}, seed {asked.seed}"
    if asked.measurer != SIMULATOR:
        how += f", measured by {asked.measurer}"
    if asked.time_budget:
        return f"{clock(asked.time_budget)} of time; {how}"
    return f"{_budget(config, asked.total or 0)}; {how}"


def _expected(pair: AnyPair, config: TuneConfig, execution: ExecutionConfig) -> str:
    """How long the search takes; empty where it is not known before it is tried."""
    asked = config.resolved(pair.target)
    # a board is not tried just to say how long it takes
    if asked.time_budget or isinstance(pair, MachinePair) or asked.measurer != SIMULATOR:
        return ""
    seconds, trials = expected_seconds(pair, asked, execution)
    took = f"about {clock(seconds)}"
    return took if trials == asked.total else f"{took}: the space has {trials} settings"


def expected_seconds(
    pair: Pair, asked: TuneConfig, execution: ExecutionConfig
) -> tuple[float, int]:
    """Return about how long a search on the simulator takes, and how many trials it makes.

    Args:
        pair: the model on the target.
        asked: what is searched, with its defaults decided.
        execution: on how many workers.
    """
    from autoturbo.search.space import Space
    from autoturbo.search.starts import placing_seconds

    evaluator = pair.evaluator()
    space = Space.of(evaluator.bench, subgraphs=asked.subgraphs or 0)
    trials = min(asked.total or 0, space.size)
    measuring = seconds_per_trial(evaluator, space, _SAMPLES) / (execution.workers or 1)
    placing = placing_seconds(evaluator.bench)
    return placing + trials * (measuring + _LEARNING_S), trials


def _budget(config: TuneConfig, trials: int) -> str:
    """How many trials, and whether an effort says so."""
    return f"{trials} trials" if config.trials else f"effort {config.effort}: {trials} trials"


def _early(config: TuneConfig) -> str:
    """What may end the search before its budget is used up."""
    rules = []
    if config.patience is not None:
        rules.append(f"{config.patience} trials without a better one")
    if config.bound_gap is not None:
        rules.append(f"{percent(config.bound_gap)} above the lower bound")
    return f"or {' or '.join(rules)}; " if rules else ""


def _check_output(path: Path | None, pairs: int, outputs: Outputs) -> None:
    """Say before a long run what would fail after it.

    Raises:
        UsageError: the file cannot be written, or would be written several times.
    """
    if path is None:
        return
    if pairs > 1:
        hint = "leave it out: every run folder holds its schedule.json"
        raise wrong("-o", f"one file for {pairs} runs", hint)
    outputs.check(path, Kind.SCHEDULE)


def _place_of_copy(path: Path | None) -> dict[str, str]:
    """What a run keeps, so that resuming it writes the copy anew; not of a device or a pipe."""
    if path is None or (path.exists() and not path.is_file()):
        return {}
    return {"output": str(path.absolute())}
