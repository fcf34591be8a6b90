"""Tune a model over a grid of targets: what another buffer or bandwidth would bring.

Points that were tuned before are known, and those that were interrupted go on.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from autoturbo.commands.config_flags import add_flags, config_of, execution_of
from autoturbo.commands.console import Console, LiveLine
from autoturbo.commands.flag_values import wrong
from autoturbo.commands.loading import (
    SIMULATOR,
    Pair,
    add_model_options,
    add_target_options,
    how_to_load,
    load_pair,
    tell_notes,
)
from autoturbo.commands.output_files import add_force_option, outputs_of
from autoturbo.commands.parser import Parser
from autoturbo.commands.scheduling import require_libraries
from autoturbo.commands.tuning.run_start import check_places
from autoturbo.commands.tuning.space import expected_seconds
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
LINES = {"": SweepLine}
_TABLE, _PAGE = ".csv", ".html"

LONG_S = 3600.0
"""Seconds beyond which a sweep begins only with ``--yes``."""


def add_arguments(parser: Parser) -> None:
    """Add the model, the target, what is varied, the budget of each point, and the outputs."""
    add_model_options(parser)
    add_target_options(parser)
    add = parser.group("target").add_argument
    text = "a field of the target and its values: 256..4096 doubles, 1..9:5 evenly, or 1,2,3"
    add("--vary", metavar="FIELD=VALUES", action="append", default=[], help=text)
    text = (
        "what a target costs, for the Pareto front: FIELD=WEIGHT,... or a column such as energy_j"
    )
    add("--cost", metavar="COST", help=text)
    add_flags(parser, SweepConfig)
    add_flags(parser, ExecutionConfig)
    text = "table (.csv), page (.html) or plot (.svg, .png, .pdf) to write; may be repeated"
    add = parser.group("what is kept").add_argument
    add("-o", "--output", metavar="FILE", type=Path, action="append", default=[], help=text)
    text = "write every target of the grid as a file into this folder"
    add("--save-targets", metavar="FOLDER", type=Path, help=text)
    text = "begin even if the sweep is expected to take more than an hour"
    parser.group("how long").add_argument("-y", "--yes", action="store_true", help=text)
    add_force_option(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Check everything, then tune, print and write."""
    from autoturbo.hardware import known_error
    from autoturbo.hardware.grid import axes_of, cost_of, grid_of
    from autoturbo.report.sweep import COLUMNS
    from autoturbo.tuning.sweeping import sweep

    began = time.monotonic()
    require_libraries(options)
    outputs = outputs_of(options)
    _check_outputs(options.output, outputs)
    check_places(options)
    pair = load_pair(options)
    grid = grid_of(pair.target, axes_of(options.vary))
    if options.cost is not None:
        cost_of(options.cost, [point.target for point in grid], COLUMNS)
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
    _tell_time(pair, grid, config, execution_of(options), console, agreed=options.yes)
    with LiveLine(console) as live:
        execution = execution_of(options, on_progress=live, began=began)
        found = sweep(
            pair.model,
            pair.target,
            options.vary,
            cost=options.cost,
            model_file=pair.model.source,
            settings=how_to_load(options),
            **fields_of(config),
            **fields_of(execution),
        )
    _write(found, options.output, outputs, origin)
    files = [str(path) for path in options.output]
    line: SweepLine = {**found.as_json(), "files": files, **notes}
    console.emit(line)
    if not console.json:
        _print(found, options.output, console)
    _require_one(found)
    return 0


def _tell_time(
    pair: Pair[Target],
    grid: Sequence[GridPoint],
    config: SweepConfig,
    execution: ExecutionConfig,
    console: Console,
    *,
    agreed: bool,
) -> None:
    """Say how long points not tuned yet take, where their trials and not time limit them.

    The first and the last of them stand for all: the target itself need not be like any.

    Raises:
        UsageError: Longer than :data:`LONG_S`, and nobody agreed to that.
        DatabaseError: The database cannot be used.
    """
    from autoturbo.tuning.sweeping import untuned

    asked = config.resolved(pair.target)
    # limits of time say it themselves, and what boards take is not known here
    if config.time_budget or asked.measurer != SIMULATOR:
        return
    left = untuned(grid, pair.model, config, execution)
    ends = dict.fromkeys((left[0].target, left[-1].target)) if left else {}
    found = [expected_seconds(pair._replace(target=end), asked, execution)[0] for end in ends]
    seconds = len(left) * math.fsum(found) / max(len(found), 1)
    console.say(f"time: about {clock(seconds)}")
    if seconds > LONG_S and not agreed:
        message = f"{len(left)} targets are expected to take about {clock(seconds)}"
        raise UsageError(message, hint="add --yes, or give fewer values, --trials or --time-budget")


def _print(found: Sweep, files: Sequence[Path], console: Console) -> None:
    from autoturbo.report.sweep import front_sentences, points_table

    console.show(points_table(found))
    console.say()
    for sentence in front_sentences(found):
        console.say(sentence)
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
    """Return the kind of a table, a page or a plot, by the name of its file."""
    suffix = path.suffix.lower()
    known = {_TABLE: Kind.TABLE, _PAGE: Kind.REPORT}
    return known.get(suffix) or Kind[suffix.removeprefix(".").upper()]


def _check_outputs(paths: Sequence[Path], outputs: Outputs) -> None:
    """Say before a long run what would fail after it.

    Raises:
        UsageError: A file of no kind that is known, one that cannot be written, or nothing that
            draws it.
    """  # noqa: DOC501  wrong() makes the error
    from autoturbo.report.filling import library
    from autoturbo.report.sweep import FORMATS, require_matplotlib

    known = (_TABLE, _PAGE, *(f".{form}" for form in FORMATS))
    for path in paths:
        if path.suffix.lower() not in known:
            hint = f"end its name in one of {', '.join(known)}"
            raise wrong("-o", f"{path} is no table, page or plot", hint)
        if path.suffix.lower() == _PAGE:
            library()
        elif path.suffix.lower() != _TABLE:
            require_matplotlib()
        outputs.check(path, _kind_of(path))


def _write(found: Sweep, paths: Sequence[Path], outputs: Outputs, origin: str) -> None:
    for path in paths:
        outputs.write(path, _kind_of(path), _content(found, path.suffix.lower(), origin))


def _content(found: Sweep, suffix: str, origin: str) -> str | bytes:
    """Return a sweep as a file whose name ends so."""
    from autoturbo.report.sweep import plot

    if suffix == _TABLE:
        return found.csv()
    if suffix == _PAGE:
        from autoturbo.report.sweep_page import sweep_page

        return sweep_page(found, origin)
    return plot(found, suffix.removeprefix("."))


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
