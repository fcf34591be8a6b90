"""ResNet-18 on four cores beside Stream, an independent scheduler of multi-core machines.

The machine is ``examples/targets/quad-core.yaml``. Our schedulers and a seeded search run on it
with the array as described (K x C, kernel positions in time) and with one that unrolls pixels x
output channels, one of the choices that the later Stream has. Levels, not errors: the schedules
differ, and Stream's cost model is not ours.

O0, O1, O2 and the TVM-like schedule run a tile's steps one after another. Stream overlaps them, so
its layer by layer stands beside ours with one kernel a layer, outputs in DRAM and overlap inside a
layer. The last level per array is GraphTurbo's heuristics if the DRAM port could feed all cores
from one read.

::

    python benchmarks/validation/quad_core.py [--trials N] [--seed S] [--reference FILE]
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from mappers import FOLDER, TARGETS, Row, number, read_table, reference_option

import autoturbo
from autoturbo.datasets import workloads
from autoturbo.errors import AutoTurboError, UsageError
from autoturbo.graph.layers import Layer
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target, load_target
from autoturbo.registry import SCHEDULERS
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure, Measurement, Outcome

REFERENCE = FOLDER.parent / "peers" / "results.csv"
"""Table of the peers' schedules; Stream's are among them."""

COLUMNS = ("machine", "what", "cycles", "megabytes", "written_mb", "cpu_s", "source")

ARRAYS = {"fixed": "channel_stationary", "free": "output_stationary"}
"""Dataflow by the reference's kind of array."""

ROUNDS = 10
"""Evaluations whose time is averaged."""

DTYPE = "int8"

LAYERWISE = "one kernel a layer, overlap inside"
"""Name of the level beside Stream's layer by layer."""

CHANNELS = "the same in LB, channels over cores"
"""Name of the level whose cores share out weights instead of pixels."""

TILE_DIVISORS = (1, 4, 16)
"""Sizes of tiles, one for all layers; Stream chooses them for each."""

MULTICAST = "graphturbo, if DRAM multicast"
"""Name of the level on a machine that loads weights of all cores at once."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Level:
    """One schedule.

    Attributes:
        array: ``"fixed"`` or ``"free"``.
        name: What scheduled it.
        cycles: Of one inference.
        read: Megabytes from DRAM.
        written: Megabytes to DRAM.
        busy: Cycles in which the array of a core works.
        seconds: Of processor time that scheduling took.
        kernels: Instances that the schedule launches.
    """

    array: str
    name: str
    cycles: float
    read: float
    written: float
    busy: float
    seconds: float
    kernels: int


def model() -> Graph:
    """Return ResNet-18 for one image."""
    return autoturbo.load_model(workloads.get("resnet18").file, batch=1)


def machine(array: str, *, multicast: bool = False) -> Target:
    """Return the four cores with one kind of array."""
    target = load_target(str(TARGETS / "quad-core.yaml"))
    matrix = dataclasses.replace(target.matrix, dataflow=ARRAYS[array])
    transfer = dataclasses.replace(target.transfer, broadcast=multicast)
    return dataclasses.replace(target, name=f"quad-core-{array}", matrix=matrix, transfer=transfer)


def scheduled(graph: Graph, array: str, names: tuple[str, ...]) -> Iterator[Level]:
    """Yield what each scheduler by name reaches, a new workbench for each."""
    target = machine(array)
    for name in names:
        model_scheduler = Evaluator(graph, target, DTYPE)
        seconds, outcome = _timed(partial(model_scheduler.measure_scheduler, name))
        if isinstance(outcome, Failure):
            print(f"{array} {name}: does not fit: {outcome.message}")
        else:
            yield _level(target, array, name, outcome, seconds)


def layerwise(graph: Graph, array: str) -> Level:
    """Run each layer as one kernel with its output in DRAM, the best of some sizes of tiles."""
    settings = [
        Knobs(max_layers=1, output_scope="DDR", tile_subdivision=divisor)
        for divisor in TILE_DIVISORS
    ]
    return _best(graph, array, LAYERWISE, settings)


def channels(graph: Graph, array: str) -> Level:
    """Run each layer as one kernel; where weights outnumber inputs each core has own channels.

    Each core then loads only its weights, and every core needs all inputs.

    Returns:
        The fastest of the tile sizes.
    """
    model_scheduler = Evaluator(graph, machine(array), DTYPE).model_scheduler
    overrides = tuple(
        SubGraphKnobs(
            layer=layer.name, core_parallel_dim=len(graph.tensors[layer.outputs[0]].shape) - 1
        )
        for layer in model_scheduler.context(1).layers
        if _weights(graph, layer) > sum(graph.tensors[t].elements for t in layer.inputs)
    )
    settings = [
        Knobs(max_layers=1, tile_subdivision=divisor, overrides=overrides)
        for divisor in TILE_DIVISORS
    ]
    return _best(graph, array, CHANNELS, settings)


def _weights(graph: Graph, layer: Layer) -> int:
    """Return the elements of the constants that a layer reads."""
    read = (t for index in layer.operators for t in graph.operators[index].inputs)
    return sum(graph.tensors[t].elements for t in read if graph.tensors[t].constant)


def _best(graph: Graph, array: str, name: str, settings: Sequence[Knobs]) -> Level:
    """Return the fastest of some settings.

    Raises:
        UsageError: One does not fit.
    """
    target = machine(array)
    model_scheduler = Evaluator(graph, target, DTYPE)
    seconds, found = _timed(
        lambda: [_measured(model_scheduler.evaluate(knobs)) for knobs in settings]
    )
    return _level(target, array, name, min(found, key=lambda m: m.latency), seconds)


def published(path: Path, array: str) -> list[Row]:
    """Return Stream's rows on one array.

    Raises:
        UsageError: The table cannot be read.
    """
    name = f"quad-core-{array}"
    return [row for row in read_table(path, COLUMNS) if row["machine"] == name]


def multicast(graph: Graph, array: str) -> Level:
    """Return what GraphTurbo's heuristics reach where one read of DRAM feeds all cores.

    Raises:
        UsageError: The schedule does not fit.
    """
    target = machine(array, multicast=True)
    model_scheduler = Evaluator(graph, target, DTYPE)
    seconds, outcome = _timed(partial(model_scheduler.measure_scheduler, "graphturbo"))
    return _level(target, array, MULTICAST, _measured(outcome), seconds)


def _measured(outcome: Outcome) -> Measurement:
    if isinstance(outcome, Failure):
        raise UsageError(f"the schedule does not fit: {outcome.message}")
    return outcome


def tuned(graph: Graph, array: str, trials: int, seed: int) -> Level:
    """Return what a search on one core finds."""
    target = machine(array)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        search = partial(
            autoturbo.tune, graph, target, dtype=DTYPE, trials=trials, seed=seed, jobs=1,
            database=Path(folder) / "autoturbo.db", runs_folder=folder,
        )  # fmt: skip
        seconds, result = _timed(search)
    return _level(target, array, f"tune, {trials} trials", result.best.measurement, seconds)


def _timed(work: Callable[[], _T]) -> tuple[float, _T]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def _level(target: Target, array: str, name: str, found: Measurement, seconds: float) -> Level:
    read, written = (found.bytes[way] / 1e6 for way in ("ddr_read", "ddr_written"))
    return Level(
        array, name, found.latency * target.clock, read, written,
        found.busy["matrix"] * target.clock, seconds, found.kernels,
    )  # fmt: skip


def main() -> None:
    """Print the published levels, ours, and what one evaluation costs."""
    parser = reference_option(REFERENCE, __doc__)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    graph = model()
    Evaluator(graph, machine("fixed"), DTYPE).measure_scheduler("graphturbo")  # compile
    heads = f"{'cycles':>12}{'MB read':>9}{'written':>9}{'CPU s':>9}{'busy':>11}"
    print(f"{'array':6} {'schedule':36}{heads}")
    for array in ARRAYS:
        theirs = published(options.reference, array)
        for row in theirs:
            cycles, moved, written, seconds = (
                number(row, column) for column in ("cycles", "megabytes", "written_mb", "cpu_s")
            )
            _print(
                array, f"{row['source']} {row['what']}", cycles, moved - written, written, seconds
            )  # fmt: skip
        least = min((number(row, "cycles") for row in theirs), default=0.0)
        _report(graph, array, least, options.trials, options.seed)
    evaluation_cost(graph)


def _report(graph: Graph, array: str, theirs: float, trials: int, seed: int) -> None:
    """Print our levels on one array, and the best beside the published cycles."""
    search = tuned(graph, array, trials, seed)
    made = (layerwise(graph, array), channels(graph, array))
    levels = [*scheduled(graph, array, SCHEDULERS.names()), *made, search]
    for level in (*levels, multicast(graph, array)):
        figures = (level.cycles, level.read, level.written, level.seconds, level.busy)
        _print(array, level.name, *figures)
    best = min(levels, key=lambda level: level.cycles)
    print(
        f"{array}: {best.name}: {best.cycles / theirs - 1:+.1%} cycles against Stream's best, "
        f"{search.seconds / trials * 1e3:.1f} ms of search a trial"
        if theirs
        else f"{array}: nothing published"
    )


def _print(
    array: str,
    name: str,
    cycles: float,
    read: float,
    written: float,
    seconds: float,
    busy: float = 0.0,
) -> None:
    figures = f"{cycles:12,.0f}{read:9.2f}{written:9.2f}{seconds:9.2f}"
    print(f"{array:6} {name:36}{figures}" + (f"{busy:11,.0f}" if busy else ""), flush=True)


def evaluation_cost(graph: Graph) -> None:
    """Print CPU time of the first evaluation and of others after it, by number of kernels.

    The others have tiles of other sizes, so that their instructions are written and simulated anew;
    what was measured before is remembered and costs nothing.
    """
    target = machine("fixed")
    for scale in (1, 2, 8):
        knobs = Knobs(instance_multiplier=scale, max_layers=1)
        model_scheduler = Evaluator(graph, target, DTYPE)
        cold, outcome = _timed(partial(model_scheduler.evaluate, knobs))
        others = [dataclasses.replace(knobs, tile_subdivision=2 + n) for n in range(ROUNDS)]
        warm = sum(_timed(partial(model_scheduler.evaluate, other))[0] for other in others) / ROUNDS
        if isinstance(outcome, Measurement):
            count = outcome.kernels
            print(
                f"an evaluation with {count} instances: {cold * 1e3:.1f} ms at first, "
                f"{warm * 1e3:.2f} ms with other tiles ({warm / count * 1e6:.0f} us each)"
            )


if __name__ == "__main__":
    try:
        main()
    except AutoTurboError as error:
        sys.exit(f"error: {error}")
