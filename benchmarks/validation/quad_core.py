"""ResNet-18 on four cores beside Stream, an independent scheduler of multi-core machines.

The machine is ``examples/targets/quad-core.yaml``. Our schedulers and a seeded search run on it
with the array as described (K x C, kernel positions in time) and with one that unrolls pixels x
output channels, one of the choices that the later Stream has. Levels, not errors: the schedules
differ, and Stream's cost model is not ours.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from mappers import TARGETS, read_table, reference_option

import autoturbo
from autoturbo.datasets import workloads
from autoturbo.errors import AutoTurboError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target, load_target
from autoturbo.schedule.baselines import scheduler_names
from autoturbo.simulate.evaluator import Evaluator
from autoturbo.simulate.measurement import Failure, Measurement

COLUMNS = ("system", "array", "schedule", "cycles", "read_mb", "written_mb", "cpu_s")

ARRAYS = {"fixed": "channel_stationary", "free": "output_stationary"}
"""Dataflow by the reference's kind of array."""

ROUNDS = 10
"""Evaluations whose time is averaged."""

DTYPE = "int8"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Level:
    """One schedule.

    Attributes:
        array: ``"fixed"`` or ``"free"``.
        name: what scheduled it.
        cycles: of one inference.
        read: megabytes from DRAM.
        written: megabytes to DRAM.
        seconds: of processor time that scheduling took.
        kernels: instances that the schedule launches.
    """

    array: str
    name: str
    cycles: float
    read: float
    written: float
    seconds: float
    kernels: int


def model() -> Graph:
    """ResNet-18 for one image."""
    return autoturbo.load_model(workloads.get("resnet18").file, batch=1)


def machine(array: str) -> Target:
    """The four cores with one kind of array."""
    target = load_target(str(TARGETS / "quad-core.yaml"))
    matrix = dataclasses.replace(target.matrix, dataflow=ARRAYS[array])
    return dataclasses.replace(target, name=f"quad-core-{array}", matrix=matrix)


def scheduled(graph: Graph, array: str, names: tuple[str, ...]) -> Iterator[Level]:
    """What each scheduler by name reaches, a new workbench for each."""
    target = machine(array)
    for name in names:
        bench = Evaluator(graph, target, DTYPE)
        seconds, outcome = _timed(partial(bench.measure_scheduler, name))
        if isinstance(outcome, Failure):
            print(f"{array} {name}: does not fit: {outcome.message}")
        else:
            yield _level(target, array, name, outcome, seconds)


def tuned(graph: Graph, array: str, trials: int, seed: int) -> Level:
    """What a search on one core finds."""
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
    bandwidth = target.ddr.bandwidth * target.ddr.efficiency
    read = min(found.busy["dma_in"] * bandwidth, found.ddr_bytes)
    return Level(
        array, name, found.latency * target.clock, read / 1e6, (found.ddr_bytes - read) / 1e6,
        seconds, found.kernels,
    )  # fmt: skip


def main() -> None:
    """Print the published levels, ours, and what one evaluation costs."""
    parser = reference_option("stream_quad_core.csv", __doc__)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    published = read_table(options.reference, COLUMNS)
    graph = model()
    Evaluator(graph, machine("fixed"), DTYPE).measure_scheduler("graphturbo")  # compile
    print(f"{'array':6} {'schedule':28}{'cycles':>12}{'MB read':>9}{'written':>9}{'CPU s':>9}")
    for array in ARRAYS:
        theirs = [row for row in published if row["array"] == array]
        for row in theirs:
            figures = (float(row[c]) for c in ("cycles", "read_mb", "written_mb", "cpu_s"))
            _print(array, f"{row['system']} {row['schedule']}", *figures)
        least = min((float(row["cycles"]) for row in theirs), default=0.0)
        _report(graph, array, least, options.trials, options.seed)
    evaluation_cost(graph)


def _report(graph: Graph, array: str, published: float, trials: int, seed: int) -> None:
    """Our levels on one array, and a line that compares the best with the published cycles."""
    search = tuned(graph, array, trials, seed)
    levels = [*scheduled(graph, array, scheduler_names()), search]
    for level in levels:
        _print(array, level.name, level.cycles, level.read, level.written, level.seconds)
    best = min(levels, key=lambda level: level.cycles)
    print(
        f"{array}: {best.name}: {best.cycles / published - 1:+.1%} cycles against Stream's best, "
        f"{search.seconds / trials * 1e3:.1f} ms of search a trial"
        if published
        else f"{array}: nothing published"
    )


def _print(
    array: str, name: str, cycles: float, read: float, written: float, seconds: float
) -> None:
    figures = f"{cycles:12,.0f}{read:9.2f}{written:9.2f}{seconds:9.2f}"
    print(f"{array:6} {name:28}{figures}", flush=True)


def evaluation_cost(graph: Graph) -> None:
    """CPU time of one evaluation, new and repeated, against the number of kernels."""
    target = machine("fixed")
    for scale in (1, 2, 8):
        knobs = autoturbo.Knobs(factor_scale=scale, max_layers=1)
        bench = Evaluator(graph, target, DTYPE)
        cold, outcome = _timed(partial(bench.evaluate, knobs))
        warm = sum(_timed(partial(bench.evaluate, knobs))[0] for _ in range(ROUNDS)) / ROUNDS
        if isinstance(outcome, Measurement):
            count = outcome.kernels
            print(
                f"an evaluation with {count} instances: {cold * 1e3:.1f} ms new, "
                f"{warm * 1e3:.2f} ms again ({warm / count * 1e6:.0f} us each)"
            )


if __name__ == "__main__":
    try:
        main()
    except AutoTurboError as error:
        sys.exit(f"error: {error}")
