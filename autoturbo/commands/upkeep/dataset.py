"""Collect data sets of measurements to train cost models on, and describe them."""

from __future__ import annotations

import argparse
import functools
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from autoturbo.commands.console import Console
from autoturbo.commands.flag_values import OneOf, merged, whole_number, wrong
from autoturbo.commands.loading import (
    DEFAULT_TARGET,
    add_batch_dim_option,
    add_dim_option,
    load_targets,
    model_file,
)
from autoturbo.commands.output_files import add_force_option, outputs_of
from autoturbo.commands.parser import Actions, Parser, takes
from autoturbo.graph.operators import Graph
from autoturbo.registry import SIMULATOR
from autoturbo.report.units import percent
from autoturbo.schedule.knobs import Knobs
from autoturbo.schema import DeferredType, TypedDict
from autoturbo.signals import telling

if TYPE_CHECKING:
    import numpy as np

    from autoturbo.datasets.measurements import Collection, Progress
    from autoturbo.datasets.measurements.card import DataCard, Rows
    from autoturbo.hardware import Target
    from autoturbo.search.space import Space
else:
    DataCard = Annotated[Any, DeferredType(of="autoturbo.datasets.measurements.card:DataCard")]
    Rows = Annotated[Any, DeferredType(of="autoturbo.datasets.measurements.card:Rows")]

USAGE = "collect|stats"
EXAMPLE = "autoturbo dataset stats measurements"
SETTINGS = 80
"""Settings of a pair by default: as many as a quick run measures, and some."""


def _number(flag: str, least: int, usual: int, what: str) -> Callable[[Parser], object]:
    """Return what adds a flag that takes a whole number."""
    text, kind = f"{what} (default: {usual})", whole_number(flag, least)
    return takes(flag, metavar="N", type=kind, default=usual, help=text)


class CollectLine(TypedDict):
    """Where the data set is, and what is in it."""

    folder: str
    rows: Rows
    card: DataCard


_ACTION = Actions()
add_arguments, run, LINES = _ACTION.add_arguments, _ACTION.run, _ACTION.lines


class SpaceSource:
    """Settings of a search space, as a sample draws them."""

    def __init__(self, space: Space) -> None:
        self._space = space

    @property
    def starts(self) -> list[tuple[int, ...]]:
        """Return the candidates that a search begins with, the published heuristic first."""
        from autoturbo.search.openings import placed

        heuristic = (0,) * len(self._space.dimensions)
        return [heuristic, *map(tuple, placed(self._space).tolist())]

    def random(self, rng: np.random.Generator, *, dense: bool) -> tuple[int, ...]:
        """Draw a random candidate, in canonical form."""
        return self._one(self._space.normal(self._space.random(rng, 1, dense=dense)))

    def mutant(
        self, rng: np.random.Generator, point: tuple[int, ...], rate: float
    ) -> tuple[int, ...]:
        """Return a candidate near another one, in canonical form."""
        import numpy as np

        near = self._space.mutate(rng, np.asarray([point], np.int64), rate)
        return self._one(self._space.normal(near))

    def knobs(self, point: tuple[int, ...]) -> Knobs:
        """Return the knobs of a candidate."""
        return self._space.knobs_of(point)

    def _one(self, genes: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[int, ...]:
        return tuple(genes[0].tolist())


def space_draws(graph: Graph, target: Target, dtype: str, *, subgraphs: int) -> SpaceSource:
    """Return draws of candidates from the space that a search would have, its starts among them."""
    from autoturbo.search.space import Space
    from autoturbo.search.warm_starts.starts import starts_of
    from autoturbo.simulator.evaluator import Evaluator

    evaluator = Evaluator(graph, target, dtype)
    starts = starts_of(evaluator)
    return SpaceSource(Space.of(evaluator.model_scheduler, subgraphs=subgraphs, starts=starts))


@_ACTION(
    "autoturbo dataset collect resnet18 --target goya -o measurements",
    CollectLine,
    takes("models", metavar="MODEL", nargs="+", help="ONNX file, or the name of a workload"),
    takes(
        "--batch", group="model", dest="batches", metavar="N", type=whole_number("--batch", 1),
        action="append", default=[],
        help="samples processed at once (default: the model's own); may be repeated",
    ),
    add_batch_dim_option,
    add_dim_option,
    takes(
        "--target", group="target", dest="targets", metavar="T", action="append", default=[],
        help=f"preset or target file (default: {DEFAULT_TARGET}); may be repeated",
    ),
    takes(
        "--dtype", group="target", dest="dtypes", metavar="TYPE", action="append", default=[],
        type=OneOf("--dtype", "autoturbo.hardware:DTYPES"),
        help="data type, of targets that have it (default: what suits the target); may be repeated",
    ),
    _number("--vary-targets", 0, 0, "targets to add near each one, with varied figures"),
    _number("--settings", 1, SETTINGS, "settings of each model, batch, target and data type"),
    _number("--seed", 0, 0, "seed of all random choices"),
    _number("--subgraphs", 0, 8, "heaviest sub-graphs with own knobs"),
    takes(
        "--measurer", group="where it is measured", metavar="NAME", default=SIMULATOR,
        type=OneOf("--measurer", "autoturbo.registry:MEASURERS.names"),
        help="what measures: simulator, or a plug-in's (default: simulator)",
    ),
    _number("--jobs", 1, 1, "processes that measure"),
    takes(
        "-o", "--output", group="what is kept", metavar="FOLDER", type=Path, required=True,
        help="folder of the data set; goes on with the one begun there",
    ),
    add_force_option,
    usage="MODEL... -o FOLDER [--target T...] [options]",
)  # fmt: skip
def _collect(options: argparse.Namespace, console: Console) -> int:
    """Measure samples of settings and keep them as Parquet files."""
    from autoturbo.datasets.measurements import collect, load_measurements, make_card, write_card
    from autoturbo.datasets.measurements.card import CARDS
    from autoturbo.datasets.measurements.shards import require_parquet

    require_parquet()
    from autoturbo.graph.importer.freeze import ASSUMED_BATCH

    outputs = outputs_of(options)
    outputs.check_folder(options.output, CARDS)
    collection = _collection(options)
    files = dict.fromkeys(
        part.file for part in collection.parts if ASSUMED_BATCH in part.graph.notes
    )
    for file in files:
        console.say(f"note: {file}: {ASSUMED_BATCH}")
    tell = functools.partial(_tell, console=console)
    with telling("interrupted", "the same command goes on; the shards that are done are kept"):
        collect(collection, options.output, jobs=options.jobs, on_shard=tell)
    card = make_card(load_measurements(options.output))
    write_card(options.output, card, outputs)
    console.emit(CollectLine(folder=str(options.output), rows=card["rows"], card=card))
    rows = card["rows"]
    text = f"{rows['settings']} settings, {rows['kernels']} kernels in {options.output}"
    console.answer(text)
    console.say(f"'autoturbo dataset stats {options.output}' shows what is in it")
    return 0


def _collection(options: argparse.Namespace) -> Collection:
    """Return the collection that is asked for."""
    from autoturbo.datasets.measurements import Collection, parts_of
    from autoturbo.simulator.measurers import measurer_version

    given = load_targets(options.targets or [DEFAULT_TARGET])
    targets = [(t, dtype) for t in _varied(given, options) for dtype in _dtypes(t, options.dtypes)]
    files = [model_file(name) for name in dict.fromkeys(options.models)]
    batches = tuple(dict.fromkeys(options.batches)) or (None,)
    dims = merged("--dim", options.dim)
    parts = parts_of(files, batches, targets, dims, tuple(options.batch_dim))
    recipe = {"subgraphs": options.subgraphs, "command": _command(options)}
    if options.measurer != SIMULATOR:
        recipe["measurer"] = measurer_version(options.measurer)
    draws = functools.partial(space_draws, subgraphs=options.subgraphs)
    return Collection(parts, options.settings, options.seed, draws, recipe, options.measurer)


def _varied(given: Iterable[Target], options: argparse.Namespace) -> list[Target]:
    """Return each target, and those near it."""
    from autoturbo.datasets.measurements import varied_targets

    near = ([t, *varied_targets(t, options.vary_targets, options.seed)] for t in given)
    return [target for targets in near for target in targets]


def _dtypes(target: Target, asked: list[str]) -> list[str]:
    """Return the data types asked for that a target computes in; its default if none is asked.

    Raises:
        UsageError: It computes in none of them.
    """  # noqa: DOC501  wrong() makes the error
    if not asked:
        return [target.default_dtype]
    found = [dtype for dtype in dict.fromkeys(asked) if target.supports(dtype)]
    if not found:
        message = f"{target.name} computes in none of {', '.join(asked)}"
        raise wrong("--dtype", message, f"one of {', '.join(target.dtypes)}")
    return found


def _command(options: argparse.Namespace) -> str:
    """Return the command without what does not change the result: folder, processes, paths."""
    parts = ["autoturbo", "dataset", "collect", *(Path(m).name for m in options.models)]
    given = {
        "--target": [Path(name).name for name in options.targets],
        "--batch": map(str, options.batches),
        "--dtype": options.dtypes,
        "--batch-dim": options.batch_dim,
        "--dim": [f"{name}={extent}" for name, extent in options.dim],
    }
    if options.measurer != SIMULATOR:
        given["--measurer"] = [options.measurer]
    parts += [text for flag, values in given.items() for v in values for text in (flag, v)]
    for flag in ("vary_targets", "settings", "seed", "subgraphs"):
        parts += [f"--{flag.replace('_', '-')}", str(getattr(options, flag))]
    return shlex.join(parts)


def _tell(progress: Progress, console: Console) -> None:
    seal = progress.seal
    done = f"{progress.done}/{progress.total} {progress.name}"
    if progress.made:
        console.say(f"{done}: {seal.settings} settings, {seal.kernels} kernels")
    else:
        console.detail(f"{done}: already there")


@_ACTION(
    "autoturbo dataset stats measurements",
    DataCard,
    takes("folder", metavar="FOLDER", type=Path, help="folder of the data set"),
    usage="FOLDER",
)
def _stats(options: argparse.Namespace, console: Console) -> int:
    """Show what is in a data set."""
    from autoturbo.datasets.measurements import forged, load_measurements, make_card

    with forged(options.folder):
        card = make_card(load_measurements(options.folder, partial=True))
        if not console.json:
            _print(options.folder, card, console)
    console.emit(card)
    return 0


def _print(folder: Path, card: DataCard, console: Console) -> None:
    from autoturbo.datasets.measurements.card import (
        ORIGIN_TITLES,
        knob_cells,
        origin_cells,
        pair_cells,
    )

    rows, shards, versions = card["rows"], card["shards"], card["versions"]
    there = f"{shards['there']} of {shards['all']} shards"
    console.answer(f"{folder}: {rows['settings']} settings, {rows['kernels']} kernels, {there}")
    console.answer(f"versions: {', '.join(f'{name} {v}' for name, v in versions.items())}")
    outcomes = ", ".join(f"{n} {name}" for name, n in card["outcomes"].items())
    console.answer(f"outcomes of the settings: {outcomes}")
    headers = ("model", "target", "dtype", "batch", "measured", "heuristic", "best", "median")
    pairs = (
        (model, target, dtype, batch, f"{measured}/{settings}", *latencies)
        for model, batch, target, dtype, settings, measured, _, *latencies in pair_cells(card)
    )
    title = "best and median latency over that of the heuristic, of settings measured"
    console.titled(title, headers, pairs, words=3)
    title = "latency over that of the heuristic, by where settings come from"
    console.titled(title, ("origin", *ORIGIN_TITLES), origin_cells(card))
    alike, joint = card["kernel_sums"]["alike"], card["kernel_sums"]["joint"]
    error = percent(alike["largest_relative_error"] or 0.0)
    console.answer("")
    console.answer(f"kernels add up to the latency within {error} in {alike['settings']} settings;")
    console.answer(
        f"in {joint['settings']} settings clusters share one pass and wait for each other"
    )
    if console.verbosity > 0:
        console.titled("knobs", ("knob", "settings by value"), knob_cells(card), words=2)
