"""Show what a tuning run would try: the knobs, how many settings, how long it takes.

A dry run: a few settings are measured for the time that one takes, and nothing is kept.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from autoturbo.commands.loading import Pair, add_model_options, add_target_options, load_pair

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from autoturbo.commands.console import Console
    from autoturbo.commands.parser import Parser
    from autoturbo.search.space import Space

USAGE = "MODEL [--target T] [options]"
EXAMPLE = "autoturbo space examples/models/resnet50.onnx --target goya"
_SAMPLES = 8
"""Settings measured for the estimate."""


def add_arguments(parser: Parser) -> None:
    """The model and the target."""
    add_model_options(parser)
    add_target_options(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Print the knobs and the estimate."""
    from autoturbo.search.space import Space
    from autoturbo.tuner import EFFORTS

    pair = load_pair(options)
    space = Space.of(pair.model, pair.target)
    seconds = seconds_per_trial(pair, space)
    expected = {name: seconds * trials for name, trials in EFFORTS.items()}
    knobs = space.describe()
    names = {"model": pair.model.name, "target": pair.target.name}
    console.emit({**names, "knobs": knobs, "size": space.size, "expected_s": expected})
    if not console.json:
        _print(pair, space, console)
        times = ", ".join(_time(name, expected[name], EFFORTS[name]) for name in expected)
        console.answer(f"expected time on one core: {times}")
    return 0


def seconds_per_trial(
    pair: Pair,
    space: Space,
    samples: int = _SAMPLES,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Mean time of a measurement over a few random settings, the first one not counted."""
    import numpy as np

    evaluator = pair.evaluator()
    genes = space.random(np.random.default_rng(0), samples + 1)
    evaluator.evaluate(space.knobs_of(genes[0]))  # compiles what is not compiled yet
    start = clock()
    for setting in genes[1:]:
        evaluator.evaluate(space.knobs_of(setting))
    return (clock() - start) / samples


def _time(name: str, seconds: float, trials: int) -> str:
    from autoturbo.report.units import clock

    return f"{name} ~{clock(seconds)} ({trials} trials)"


def _print(pair: Pair, space: Space, console: Console) -> None:
    from autoturbo.report.tables import table

    rows = (
        (row["knob"], " ".join(map(str, row["choices"])), row["published"], row["help"])
        for row in space.describe()
    )
    headers = ("knob", "choices", "auto is", "what it decides")
    console.show(table(headers, rows, words=4))
    name = f"{pair.model.name} @ {pair.target.name}"
    size = f"{space.size:.3g}" if space.size >= 10**6 else str(space.size)
    console.answer(f"{name}: {len(space.dimensions)} knobs, {size} settings")
