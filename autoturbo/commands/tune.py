"""Tune how models are scheduled on targets, every model with every target."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.commands.facts import model_facts, opaque_sentence, sentence
from autoturbo.commands.loading import (
    SIMULATOR,
    MachinePair,
    add_measurer_option,
    add_model_options,
    add_subgraphs_option,
    add_target_options,
    how_to_load,
    load_pairs,
)
from autoturbo.commands.outputs import add_force_option, outputs_of
from autoturbo.commands.scheduling import require_runtime
from autoturbo.commands.space import seconds_per_trial
from autoturbo.commands.tuning import (
    LiveLine,
    add_machine_options,
    add_stopping_options,
    add_storage_option,
    check_places,
    finish_all,
    machine_options,
    starting_lines,
    stopping_options,
)
from autoturbo.commands.values import duration, objectives, one_of, whole_number, wrong
from autoturbo.outputs import Kind
from autoturbo.report.units import clock, percent

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from autoturbo.commands.console import Console
    from autoturbo.commands.loading import AnyPair
    from autoturbo.commands.parser import Parser
    from autoturbo.commands.tuning import MachineOptions
    from autoturbo.database import RunInfo
    from autoturbo.errors import AutoTurboError
    from autoturbo.outputs import Outputs
    from autoturbo.tuner import TuneResult

USAGE = "MODEL... [--target T ...] [options]"
EXAMPLE = "autoturbo tune examples/models/resnet50.onnx --target stcp920 --trials 500"
DEFAULT_EFFORT = "quick"
DEFAULT_SAMPLER = "cost-model"
_LEARNING_S = 0.02
"""Seconds per trial that proposing and learning take: half of a ResNet-50 trial, profiled."""

_SAMPLES = 3
"""Settings measured to say how long a run takes."""


def add_arguments(parser: Parser) -> None:
    """Models and targets, the budget, how to search, on what, and where files go."""
    add_model_options(parser, several=True)
    add_target_options(parser, several=True)
    _add_budget(parser)
    _add_search(parser)
    add_measurer_option(parser)
    add_machine_options(parser)
    add = parser.add_argument
    runs = "where run folders are made (default: runs)"
    add("--runs-folder", metavar="PATH", default="runs", help=runs)
    add("-o", "--output", metavar="FILE", type=Path, help="write the best schedule there as well")
    add_force_option(parser)
    text = "run what is handed out in ONNX Runtime as well, against the model"
    add("--verify", action="store_true", help=text)
    add_storage_option(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Load everything, then tune all pairs on one pool of workers."""
    began = time.monotonic()
    if options.verify:
        require_runtime("--verify")
    check_places(options)
    pairs = load_pairs(options)
    outputs = outputs_of(options).reading(*(pair.model.source for pair in pairs))
    _check_output(options.output, len(pairs), outputs)
    machine = machine_options(options)
    for pair in pairs:
        _introduce(pair, options, console)
    ended = _tuned(pairs, machine, options, console, began)
    return finish_all(ended, console, options.db, options.output, outputs)


def _tuned(
    pairs: Sequence[AnyPair],
    machine: MachineOptions,
    options: argparse.Namespace,
    console: Console,
    began: float,
) -> list[TuneResult | AutoTurboError]:
    from autoturbo import tuner
    from autoturbo.options import STORAGE_VARIABLE

    gc.freeze()  # what is loaded by now lives as long as the run: collecting walks the rest alone
    kept = {**how_to_load(options), **_place_of_copy(options.output)}
    chosen = [tuner.Pair(p.model, p.target, p.dtype, p.model.source, kept) for p in pairs]
    with LiveLine(console) as line:
        how = tuner.Options(
            trials=options.trials,
            effort=options.effort or DEFAULT_EFFORT,
            seed=options.seed,
            time_budget=options.time_budget,
            sampler=options.sampler or DEFAULT_SAMPLER,
            objective=_objectives(options),
            database=options.db,
            runs_folder=options.runs_folder,
            storage=options.storage or os.environ.get(STORAGE_VARIABLE) or None,
            subgraphs=options.subgraphs,
            transfer=options.transfer,
            verify=options.verify,
            on_progress=line,
            round=options.round,
            measurer=options.measurer,
            on_begin=_Beginning(pairs, console, options.db),
            began=began,
            **stopping_options(options),
            **machine,
        )
        return tuner.tune_all(chosen, how)


class _Beginning:
    """Says what a run starts from, once that is known."""

    def __init__(self, pairs: Sequence[AnyPair], console: Console, database: str) -> None:
        self._console, self._database, self._several = console, database, len(pairs) > 1

    def __call__(self, info: RunInfo) -> None:
        """Say it."""
        pair = f"{info.model} @ {info.target}: " if self._several else ""
        for line in starting_lines(info, self._database, pair):
            self._console.say(line)


def _introduce(pair: AnyPair, options: argparse.Namespace, console: Console) -> None:
    """Say what was loaded and what is assumed."""
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
        ("search", _search(pair, options)),
        *(("note", note) for note in model.notes),
    ]
    console.say(f"{model.name} @ {target.name}")
    for name, line in lines:
        if line:
            console.say(f"  {name:<8}{line}")


def _mixed(pair: AnyPair) -> str:
    """Why samples cannot be told apart, and what that costs; empty where they can."""
    from autoturbo.report.sharing import mixed_samples, mixed_sentence

    if isinstance(pair, MachinePair):
        return ""
    return mixed_sentence(mixed_samples(pair.model, {pair.target.name: pair.target.clusters}))


def _search_units(options: argparse.Namespace) -> str:
    """What the search on a machine will do."""
    from autoturbo.search.names import ANNEALING
    from autoturbo.search.units.settings import UNIT_EFFORTS

    chosen = options.sampler or DEFAULT_SAMPLER
    sampler = ANNEALING if chosen == DEFAULT_SAMPLER else chosen
    how = f"{_early(options)}sampler {sampler} over units and cuts, seed {options.seed}"
    if options.time_budget:
        return f"{clock(options.time_budget)} of time; {how}"
    effort = options.effort or DEFAULT_EFFORT
    budget = f"effort {effort}: {UNIT_EFFORTS[effort]} trials"
    return f"{f'{options.trials} trials' if options.trials else budget}; {how}"


def _search(pair: AnyPair, options: argparse.Namespace) -> str:
    """What the search will do, and how long that takes."""
    if isinstance(pair, MachinePair):
        return _search_units(options)
    from autoturbo.search.settings import EFFORTS, searched_subgraphs
    from autoturbo.search.space import Space
    from autoturbo.search.starts import placing_seconds

    sampler = options.sampler or DEFAULT_SAMPLER
    own = searched_subgraphs(options.subgraphs, sampler)
    space = Space.of(pair.model, pair.target, dtype=pair.dtype, subgraphs=own)
    how = f"{_early(options)}sampler {sampler}, seed {options.seed}"
    if pair.measurer != SIMULATOR:
        how += f", measured by {pair.measurer}"
    if options.time_budget:
        return f"{clock(options.time_budget)} of time; {how}"
    effort = options.effort or DEFAULT_EFFORT
    trials = min(options.trials or EFFORTS[effort], space.size)
    budget = f"{trials} trials" if options.trials else f"effort {effort}: {trials} trials"
    if pair.measurer != SIMULATOR:  # a board is not tried just to say how long it takes
        return f"{budget}; {how}"
    measuring = seconds_per_trial(pair, space, _SAMPLES) / (options.jobs or 1)
    placing = placing_seconds(pair.model, pair.target, pair.dtype)
    return f"{budget}, about {clock(placing + trials * (measuring + _LEARNING_S))}; {how}"


def _early(options: argparse.Namespace) -> str:
    """What may end the search before its budget is used up."""
    rules = []
    if options.patience is not None:
        rules.append(f"{options.patience} trials without a better one")
    if options.bound_gap is not None:
        rules.append(f"{percent(options.bound_gap)} above the lower bound")
    return f"or {' or '.join(rules)}; " if rules else ""


def _add_budget(parser: Parser) -> None:
    add = parser.add_argument
    efforts = "quick, standard or thorough (default: quick)"
    choose = one_of("--effort", _efforts)
    add("--effort", metavar="LEVEL", type=choose, help=efforts)
    trials = "trials of each pair in all (default: as the effort says)"
    add("--trials", metavar="N", type=whole_number("--trials", 1), help=trials)
    budget = duration("--time-budget")
    add(
        "--time-budget",
        metavar="TIME",
        type=budget,
        help="stop all after this long, for example 10m",
    )
    add_stopping_options(parser)


def _add_search(parser: Parser) -> None:
    add = parser.add_argument
    text = "cost-model, random, tpe, ... (default: cost-model)"
    choose = one_of("--sampler", _samplers)
    add("--sampler", metavar="NAME", type=choose, help=text)
    text = (
        "latency, throughput, energy or ddr-bytes; several give a Pareto front (default: latency)"
    )
    add("--objective", metavar="NAME", type=objectives, action="extend", help=text)
    text = "trials proposed at a time (default: 16); more keep more workers busy"
    add("--round", metavar="N", type=whole_number("--round", 1), help=text)
    add_subgraphs_option(parser)
    text = "start from nothing that schedules in the database decided for layers like these"
    add("--no-transfer", dest="transfer", action="store_false", help=text)
    seed = "the same seed, the same result (default: 0)"
    add("--seed", metavar="N", type=whole_number("--seed", 0), default=0, help=seed)


def _objectives(options: argparse.Namespace) -> list[str]:
    return list(dict.fromkeys(options.objective or ["latency"]))


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


def _efforts() -> tuple[str, ...]:
    from autoturbo.tuner import EFFORTS

    return tuple(EFFORTS)


def _samplers() -> tuple[str, ...]:
    from autoturbo.search.names import sampler_names

    return sampler_names()
