"""Tune how models are scheduled on targets, every model with every target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.commands.loading import Pair, add_model_options, add_target_options, load_pairs
from autoturbo.commands.tuning import (
    LiveLine,
    add_machine_options,
    finish,
    introduce,
    machine_options,
)
from autoturbo.commands.values import duration, objectives, one_of, whole_number, wrong

if TYPE_CHECKING:
    import argparse

    from autoturbo.commands.console import Console
    from autoturbo.commands.parser import Parser
    from autoturbo.tuner import TuneResult

USAGE = "MODEL... [--target T ...] [options]"
EXAMPLE = "autoturbo tune examples/models/resnet50.onnx --target stcp920 --trials 500"


def add_arguments(parser: Parser) -> None:
    """Models and targets, the budget, how to search, on what, and where files go."""
    add_model_options(parser, several=True)
    add_target_options(parser, several=True)
    _add_budget(parser)
    _add_search(parser)
    add_machine_options(parser)
    add = parser.add_argument
    runs = "where run folders are made (default: runs)"
    add("--runs-folder", metavar="PATH", default="runs", help=runs)
    add("-o", "--output", metavar="FILE", type=Path, help="write the best schedule there as well")
    add("--storage", metavar="URL", help="mirror the Optuna study, for optuna-dashboard")


def run(options: argparse.Namespace, console: Console) -> int:
    """Load everything, then tune pair by pair."""
    pairs = load_pairs(options)
    _check_output(options.output, len(pairs))
    for pair in pairs:
        introduce(pair, options, console)
        result = _tune(pair, options, console)
        extra = _write(result, options.output)
        finish(result, console, options.db, extra)
    return 0


def _tune(pair: Pair, options: argparse.Namespace, console: Console) -> TuneResult:
    from autoturbo.tuner import tune

    with LiveLine(console) as line:
        return tune(
            pair.model,
            pair.target,
            dtype=pair.dtype,
            trials=options.trials,
            effort=options.effort,
            seed=options.seed,
            time_budget=options.time_budget,
            sampler=options.sampler,
            objective=_objective(options),
            database=options.db,
            runs_folder=options.runs_folder,
            model_file=pair.model.source,
            storage=options.storage,
            on_progress=line,
            **machine_options(options),
        )


def _add_budget(parser: Parser) -> None:
    add = parser.add_argument
    efforts = "quick, standard or thorough (default: quick)"
    choose = one_of("--effort", _efforts)
    add("--effort", metavar="LEVEL", type=choose, default="quick", help=efforts)
    trials = "trials in all (default: as the effort says)"
    add("--trials", metavar="N", type=whole_number("--trials", 1), help=trials)
    budget = duration("--time-budget")
    add("--time-budget", metavar="TIME", type=budget, help="stop after this long, for example 10m")


def _add_search(parser: Parser) -> None:
    add = parser.add_argument
    text = "cost-model, random, tpe, ... (default: cost-model)"
    choose = one_of("--sampler", _samplers)
    add("--sampler", metavar="NAME", type=choose, default="cost-model", help=text)
    text = "latency, throughput, energy or ddr-bytes (default: latency)"
    add("--objective", metavar="NAME", type=objectives, action="extend", help=text)
    seed = "the same seed, the same result (default: 0)"
    add("--seed", metavar="N", type=whole_number("--seed", 0), default=0, help=seed)


def _objective(options: argparse.Namespace) -> str:
    names = list(dict.fromkeys(options.objective or ["latency"]))
    if len(names) > 1:
        raise wrong("--objective", "several objectives are given", "give one of them")
    return names[0]


def _check_output(path: Path | None, pairs: int) -> None:
    """Say before a long run what would fail after it."""
    from autoturbo.atomic import check_writable

    if path is None:
        return
    if pairs > 1:
        hint = "leave it out: every run folder holds its schedule.json"
        raise wrong("-o", f"one file for {pairs} runs", hint)
    check_writable(path)


def _write(result: TuneResult, path: Path | None) -> list[Path]:
    from autoturbo.atomic import atomic_write

    if path is None:
        return []
    atomic_write(path, result.best.schedule.text)
    return [path]


def _efforts() -> tuple[str, ...]:
    from autoturbo.tuner import EFFORTS

    return tuple(EFFORTS)


def _samplers() -> tuple[str, ...]:
    from autoturbo.search import SAMPLERS

    return tuple(SAMPLERS)
