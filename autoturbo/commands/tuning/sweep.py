"""Tune a model over a grid of targets: what another buffer or bandwidth would bring.

Points that were tuned before are known, and those that were interrupted go on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from autoturbo.commands.config_flags import add_flags, config_of, execution_of
from autoturbo.commands.console import Console, LiveLine
from autoturbo.commands.loading import (
    SIMULATOR,
    Pair,
    add_force_option,
    add_model_options,
    add_target_options,
    how_to_load,
    load_pair,
    outputs_of,
    tell_notes,
)
from autoturbo.commands.parser import Parser, wrong
from autoturbo.commands.scheduling import require_runtime
from autoturbo.commands.tuning.space import expected_seconds
from autoturbo.commands.tuning.tune import check_places
from autoturbo.config import ExecutionConfig, SweepConfig, fields_of
from autoturbo.errors import InfeasibleError, Location, UsageError
from autoturbo.files import Kind, Outputs
from autoturbo.report.units import clock, figures_of
from autoturbo.schema import DeferredType

if TYPE_CHECKING:
    from autoturbo.hardware import Target
    from autoturbo.hardware.grid import GridPoint
    from autoturbo.report.sweep import Sweep, SweepLine
else:
    SweepLine = Annotated[Any, DeferredType(of="autoturbo.report.sweep:SweepLine")]

USAGE = "MODEL --vary FIELD=VALUES ... [--target T] [options]"
EXAMPLE = "autoturbo sweep resnet50 --vary lb.capacity_kib=256..4096 -o sweep.csv -o sweep.svg"
_TABLE = ".csv"

_LONG_S = 3600.0
"""Seconds beyond which a sweep begins only with ``--yes``."""


def add_arguments(parser: Parser) -> None:
    """Add the model, the target, what is varied, the budget of each point, and the outputs."""
    add_model_options(parser)
    add_target_options(parser)
    add = parser.add_argument
    text = "a field of the target and its values: 256..4096 doubles, 1..9:5 evenly, or 1,2,3"
    add("--vary", metavar="FIELD=VALUES", action="append", default=[], help=text)
    add_flags(parser, SweepConfig)
    add_flags(parser, ExecutionConfig)
    text = "table (.csv) or plot (.svg, .png, .pdf) to write; may be repeated"
    add("-o", "--output", metavar="FILE", type=Path, action="append", default=[], help=text)
    text = "write every target of the grid as a file into this folder"
    add("--save-targets", metavar="FOLDER", type=Path, help=text)
    text = "begin even if the sweep is expected to take more than an hour"
    add("-y", "--yes", action="store_true", help=text)
    add_force_option(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Check everything, then tune, print and write."""
    from autoturbo.hardware import known_error
    from autoturbo.hardware.grid import axes_of, grid_of
    from autoturbo.tuning.sweeping import sweep

    began = time.monotonic()
    if options.verify:
        require_runtime("--verify")
    outputs = outputs_of(options)
    _check_outputs(options.output, outputs)
    check_places(options)
    pair = load_pair(options)
    grid = grid_of(pair.target, axes_of(options.vary))
    if options.save_targets is not None:
        _save_targets(grid, options.save_targets, outputs)
    config = config_of(SweepConfig, options, dtype=pair.dtype)
    budget = f"{clock(config.time_budget)} of time" if config.time_budget else ""
    each = f"{config.total} trials each" if config.total else ""
    how = ", ".join(part for part in (each, budget) if part)
    origin = figures_of(config.resolved(pair.target).measurer, known_error(pair.target))
    told = f"{pair}, {pair.dtype}: {len(grid)} targets, {how}, seed {config.seed} ({origin})"
    console.say(told)
    notes = tell_notes(pair.model, console)
    _tell_cost(pair, len(grid), config, execution_of(options), console, agreed=options.yes)
    with LiveLine(console) as live:
        execution = execution_of(options, on_progress=live, began=began)
        found = sweep(
            pair.model,
            pair.target,
            options.vary,
            model_file=pair.model.source,
            settings=how_to_load(options),
            **fields_of(config),
            **fields_of(execution),
        )
    _write(found, options.output, outputs)
    files = [str(path) for path in options.output]
    line: SweepLine = {**found.as_json(), "files": files, **notes}
    console.emit(line)
    if not console.json:
        _print(found, options.output, console)
    _require_one(found)
    return 0


def _tell_cost(
    pair: Pair[Target],
    points: int,
    config: SweepConfig,
    execution: ExecutionConfig,
    console: Console,
    *,
    agreed: bool,
) -> None:
    """Say how long all points take, where their trials and not time limit them.

    Raises:
        UsageError: Longer than :data:`_LONG_S`, and nobody agreed to that.
    """
    asked = config.resolved(pair.target)
    if config.time_budget or asked.measurer != SIMULATOR:
        return
    seconds = points * expected_seconds(pair, asked, execution)[0]
    console.say(f"time: about {clock(seconds)}")
    if seconds > _LONG_S and not agreed:
        message = f"{points} targets are expected to take about {clock(seconds)}"
        raise UsageError(message, hint="add --yes, or give fewer values, --trials or --time-budget")


def _print(found: Sweep, files: Sequence[Path], console: Console) -> None:
    from autoturbo.report.sweep import points_table

    console.show(points_table(found))
    console.say()
    console.say(
        "*: on the Pareto front: no other target is as good in every varied field and latency"
    )
    if found.faster_lesser:
        console.say(
            "?: slower than a target that offers less: its search stopped short, give more --trials"
        )
    if found.known:
        console.say(f"{found.known} of {len(found.points)} targets were tuned by earlier runs")
    for point in found.points:
        if point.failure:
            console.say(f"{point.target}: {point.failure}")
    for path in files:
        console.say(f"wrote {path}")


def _kind_of(path: Path) -> Kind:
    """Return the kind of a table or a plot, by the name of its file."""
    suffix = path.suffix.lower()
    return Kind.TABLE if suffix == _TABLE else Kind[suffix.removeprefix(".").upper()]


def _check_outputs(paths: Sequence[Path], outputs: Outputs) -> None:
    """Say before a long run what would fail after it.

    Raises:
        UsageError: A file of no kind that is known, one that cannot be written, or no matplotlib.
    """  # noqa: DOC501  wrong() makes the error
    from autoturbo.report.sweep import FORMATS, require_matplotlib

    known = (_TABLE, *(f".{form}" for form in FORMATS))
    for path in paths:
        if path.suffix.lower() not in known:
            hint = f"end its name in one of {', '.join(known)}"
            raise wrong("-o", f"{path} is neither a table nor a plot", hint)
        if path.suffix.lower() != _TABLE:
            require_matplotlib()
        outputs.check(path, _kind_of(path))


def _write(found: Sweep, paths: Sequence[Path], outputs: Outputs) -> None:
    from autoturbo.report.sweep import plot

    for path in paths:
        suffix = path.suffix.lower()
        content = found.csv() if suffix == _TABLE else plot(found, suffix.removeprefix("."))
        outputs.write(path, _kind_of(path), content)


def _save_targets(grid: Sequence[GridPoint], folder: Path, outputs: Outputs) -> None:
    """Write each target of the grid as a file that ``--target`` takes.

    Raises:
        UsageError: The folder cannot be written.
    """
    import json

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(error.strerror or "cannot be made", Location(folder)) from None
    for point in grid:
        text = json.dumps(point.target.as_dict(), indent=2)
        outputs.write(folder / f"{point.target.name}.json", Kind.TARGET, f"{text}\n")


def _require_one(found: Sweep) -> None:
    """Raise InfeasibleError where nothing fits any target of the grid."""
    if all(point.best is None for point in found.points):
        first = found.points[0]
        message = f"no target of {len(found.points)} fits the model: {first.failure}"
        raise InfeasibleError(message, hint="vary towards larger buffers")
