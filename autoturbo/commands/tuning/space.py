"""Show the search space of a run: its knobs, its size, how long a search takes.

The knobs of the model come first, then those that its heaviest sub-graphs have besides. A dry run:
the heuristic is measured for the time that a trial takes, and nothing is kept.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autoturbo.commands.config_flags import add_flags
from autoturbo.commands.console import Console
from autoturbo.commands.loading import (
    ModelNotes,
    Pair,
    add_model_options,
    add_target_options,
    load_pair,
    tell_notes,
)
from autoturbo.commands.parser import Parser
from autoturbo.config import EFFORTS, ExecutionConfig, TuneConfig
from autoturbo.report.units import clock, many
from autoturbo.schema import Duration, Natural, TypedDict

if TYPE_CHECKING:
    from autoturbo.hardware import Target
    from autoturbo.search.space import Space
    from autoturbo.simulator.evaluator import Evaluator

USAGE = "MODEL [--target T] [options]"
EXAMPLE = "autoturbo space resnet50 --target goya"
_ENDING_S = 1.0
"""Seconds in which a search hands out its schedule."""

_STARTS = 20
"""Trials that simulating warm starts is worth: many, of which most of the work is known."""

_PROPOSING_S = 0.05
"""Seconds of a trial besides those that finding the heuristic's samples takes. Trials of README's
workloads take about half to all of what is said so, U-Net's five times as much."""


KnobJson = TypedDict("KnobJson", {
    "knob": str, "help": str, "choices": list[str | float], "published": str,
})  # fmt: skip
"""A knob, its choices, and what the published heuristic has."""


class SubGraphKnobJson(KnobJson):
    """A knob of sub-graphs, and how many kinds of them have it."""

    kinds: Natural


KindJson = TypedDict("KindJson", {
    "layers": list[str], "knobs": dict[str, list[str | float]], "size": Natural,
})  # fmt: skip
"""Sub-graphs that have the same setting, and what it may be."""


class SpaceLine(ModelNotes):
    """The knobs that a search would try; sizes are at most so many."""

    model: str
    target: str
    knobs: list[KnobJson]
    subgraph_knobs: list[SubGraphKnobJson]
    subgraphs: list[KindJson]
    model_size: Natural
    size: Natural
    expected_s: dict[str, Duration]


LINES = {"": SpaceLine}


def add_arguments(parser: Parser) -> None:
    """Add the model and the target."""
    add_model_options(parser)
    add_target_options(parser)
    add_flags(parser, TuneConfig, "subgraphs")


def run(options: argparse.Namespace, console: Console) -> int:
    """Print the knobs and the estimate."""
    from autoturbo.config import SUBGRAPHS
    from autoturbo.search.space import Space

    pair = load_pair(options)
    notes = tell_notes(pair.model, console)
    own = SUBGRAPHS if options.subgraphs is None else options.subgraphs
    make = _evaluator_of(pair)
    space = Space.of(make().model_scheduler, subgraphs=own)
    fixed, each = _parts(make, ExecutionConfig(), warm=True)
    expected = {name: fixed + each * min(trials, space.size) for name, trials in EFFORTS.items()}
    of = space.as_json()
    line: SpaceLine = {
        "model": pair.model.name, "target": pair.target.name, "knobs": of["knobs"],
        "subgraph_knobs": of["subgraph_knobs"], "subgraphs": of["subgraphs"],
        "model_size": of["model_size"], "size": of["size"], "expected_s": expected, **notes,
    }  # fmt: skip
    console.emit(line)
    if not console.json:
        _print(pair, space, console)
        for effort, trials in EFFORTS.items():
            took = clock(expected[effort])
            console.answer(f"--effort {effort:<9} {trials:>5} trials, about {took} on one core")
    return 0


def seconds_per_trial(
    make: Callable[[], Evaluator],
    workers: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return about how many seconds a trial takes with what is climbed for it.

    It is about what it takes to find the heuristic's number of samples, nothing being known. The
    first time code is compiled and loaded, so that the second one counts.

    Args:
        make: Function that makes the evaluator anew.
        workers: Processes that measure at a time; one process proposes.
        clock: Function that returns seconds.
    """
    took = 0.0
    for _ in range(2):
        evaluator, start = make(), clock()
        evaluator.heuristic()
        took = clock() - start
    return _PROPOSING_S + took / workers


def expected_seconds(
    pair: Pair[Target], asked: TuneConfig, execution: ExecutionConfig
) -> tuple[float, int]:
    """Return about how long a search on the simulator takes, and how many trials it makes.

    Args:
        pair: The model on the target.
        asked: What is searched, with its defaults decided.
        execution: How it is carried out; the number of workers counts.
    """
    from autoturbo.search.space import Space

    make = _evaluator_of(pair)
    space = Space.of(make().model_scheduler, subgraphs=asked.subgraphs or 0)
    trials = min(asked.total or 0, space.size)
    fixed, each = _parts(make, execution, warm=asked.warm_starts)
    return fixed + trials * each, trials


def _parts(
    make: Callable[[], Evaluator], execution: ExecutionConfig, *, warm: bool
) -> tuple[float, float]:
    """Return about how many seconds a search takes besides its trials, and for each of them.

    Args:
        make: Function that makes the evaluator anew.
        execution: How it is carried out; warm starts are found by one process.
        warm: Whether it looks for warm starts.
    """
    from autoturbo.search.warm_starts.starts import placing_seconds

    workers = execution.workers or 1
    each = seconds_per_trial(make, workers)
    if not warm:
        return _ENDING_S, each
    simulated = _STARTS * workers * (each - _PROPOSING_S)
    return _ENDING_S + placing_seconds(make().model_scheduler) + simulated, each


def _evaluator_of(pair: Pair[Target]) -> Callable[[], Evaluator]:
    """Return what makes an evaluator of a pair that knows nothing yet."""
    from autoturbo.simulator.evaluator import Evaluator

    return lambda: Evaluator(pair.model, pair.target, pair.dtype)


def _print(pair: Pair[Target], space: Space, console: Console) -> None:
    from autoturbo.report.tables import definitions

    knobs, own, kinds = space.describe(), space.describe_subgraphs(), len(space.blocks)
    console.show(definitions(map(_entry, knobs)))
    if own:
        console.say()
        console.say(f"own knobs of {_kinds(space)}:")
        console.say()
        console.show(definitions(_own_entry(row, kinds) for row in own))
    sizes = space.as_json()
    console.say()
    console.answer(f"{pair}: {len(knobs)} knobs, {many(sizes['model_size'])} settings")
    if own:
        of_kinds = [kind["size"] for kind in sizes["subgraphs"]]
        between = " to ".join(dict.fromkeys(many(f(of_kinds)) for f in (min, max)))
        console.answer(f"{_kinds(space)}: {len(own)} knobs, {between} settings")
        console.answer(f"all together: at most {many(space.size)} settings")


def _kinds(space: Space) -> str:
    kinds, layers = len(space.blocks), sum(len(block.layers) for block in space.blocks)
    if kinds == layers:
        return (
            "the heaviest sub-graph" if kinds == 1 else f"each of the {kinds} heaviest sub-graphs"
        )
    return f"each of the {kinds} heaviest kinds of sub-graphs ({layers} sub-graphs)"


def _entry(row: dict[str, Any]) -> tuple[str, str, str]:
    """Return a knob, what it decides, and its values with what auto stands for."""
    values = [f"auto ({row['published']})", *(_value(v) for v in row["choices"][1:])]
    return row["knob"], row["help"], ", ".join(values)


def _own_entry(row: dict[str, Any], kinds: int) -> tuple[str, str, str]:
    name, text, values = _entry(row)
    some = row["kinds"] < kinds
    return name, text, f"{values}; in {row['kinds']} of {kinds}" if some else values


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
