"""How near samplers come to the optimum of kernels that others measured exhaustively.

A table has every configuration of a tuning space that its restrictions allow: columns of
parameters, ``status`` (``correct``, or why it failed), ``ms_0``, ``ms_1`` and so on for repeats. A
measurement draws one of the repeats; a seed draws the same ones for every sampler. A search hands
out the configuration with the lowest time that it measured, and is judged by the true time of that
one, the median of its repeats, over that of the optimum. A proposal that the table lacks breaks a
restriction and costs nothing; one that fails, or that was measured before, costs a measurement.

Samplers see parameters as categories in ascending order, as a user writes them. Local search goes
to the first better neighbour (another value of one parameter); where none is better it starts anew.
``gp`` needs torch, and is passed over with a note where that is missing.

::

    PYTHONPATH=benchmarks python search/tuning_spaces.py --seeds 20
    PYTHONPATH=benchmarks python search/tuning_spaces.py --samplers cost-model --spaces my.csv.gz
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import optuna
from bench_tools import print_table
from numpy.typing import NDArray

from autoturbo.errors import UsageError
from autoturbo.registry import COST_MODEL
from autoturbo.search.samplers import make_sampler

FOLDER = Path(__file__).with_name("tuning_spaces")
"""The tables that the repository keeps."""

CHECKPOINTS = (25, 50, 100, 200)
"""Measurements after which is judged what a search would hand out."""

LOCAL = "local"
SAMPLERS = (COST_MODEL, "tpe", "gp", "random", LOCAL)

FREE = 50
"""Proposals that break restrictions, for each measurement of a search, after which it is over."""

Point = tuple[int, ...]
"""A configuration: the position of each parameter's value among its values."""


@dataclass(frozen=True, eq=False)
class TuningSpace:
    """A kernel's configurations, all measured.

    Attributes:
        name: Of the kernel and the device.
        parameters: By name, their values in ascending order.
        rows: The row of each configuration that no restriction forbids.
        times: Repeats of each row, ``(rows, repeats)``; not a number where it failed.
    """

    name: str
    parameters: dict[str, tuple[float, ...]]
    rows: dict[Point, int]
    times: NDArray[np.float64]

    @staticmethod
    def load(file: Path) -> TuningSpace:
        """Read a table.

        Args:
            file: CSV, gzipped where its name ends so.

        Returns:
            Its space.

        Raises:
            UsageError: It has no such columns, or nothing in it ran.
        """
        raw = file.read_bytes()
        text = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode()
        lines = list(csv.DictReader(text.splitlines()))
        columns = list(lines[0]) if lines else []
        repeats = [name for name in columns if name.startswith("ms_")]
        if "status" not in columns or not repeats:
            raise UsageError(f"{file} has no columns 'status' and 'ms_0'")
        names = columns[: columns.index("status")]
        values = {name: tuple(sorted({_number(x[name]) for x in lines})) for name in names}
        points = [tuple(values[n].index(_number(line[n])) for n in names) for line in lines]
        ran = [line["status"] == "correct" for line in lines]
        if not any(ran):
            raise UsageError(f"nothing in {file} ran")
        times = [
            [float(line[r]) if ok else math.nan for r in repeats]
            for line, ok in zip(lines, ran, strict=True)
        ]
        rows = {point: row for row, point in enumerate(points)}
        return TuningSpace(file.name.split(".")[0], values, rows, np.asarray(times))

    @cached_property
    def truth(self) -> NDArray[np.float64]:
        """Return the true time of each row, the median of its repeats."""
        return np.median(self.times, axis=1)

    def drawn(self, seed: int) -> NDArray[np.float64]:
        """Return what a measurement of each row says under a seed: one of its repeats."""
        rng = np.random.default_rng([seed, len(self.times)])
        chosen = rng.integers(0, self.times.shape[1], len(self.times))
        return self.times[np.arange(len(self.times)), chosen]


class Searcher(Protocol):
    """Proposes a configuration at a time."""

    def ask(self) -> Point:
        """Return the next proposal."""

    def tell(self, point: Point, time: float | None) -> None:
        """Learn what the last proposal takes; None where it failed or is forbidden."""


class StudySearcher:
    """An Optuna sampler by ask and tell, with categories of numbers."""

    def __init__(self, space: TuningSpace, sampler: optuna.samplers.BaseSampler) -> None:
        self.space = space
        self.study = optuna.create_study(sampler=sampler)
        self.trial: optuna.Trial | None = None

    def ask(self) -> Point:
        """Return the configuration of a new trial."""
        self.trial = self.study.ask()
        return tuple(
            values.index(self.trial.suggest_categorical(name, values))
            for name, values in self.space.parameters.items()
        )

    def tell(self, point: Point, time: float | None) -> None:
        """End the trial, as pruned where nothing was measured."""
        del point
        if self.trial is not None and time is None:
            self.study.tell(self.trial, state=optuna.trial.TrialState.PRUNED)
        elif self.trial is not None:
            self.study.tell(self.trial, time)


class LocalSearcher:
    """Greedy descent to the first better neighbour, from random starts."""

    def __init__(self, space: TuningSpace, seed: int) -> None:
        self.widths = [len(values) for values in space.parameters.values()]
        self.rng = np.random.default_rng(seed)
        self.best = math.inf
        self.left: Iterator[Point] = iter(())

    def ask(self) -> Point:
        """Return the next neighbour of the best point, or a start where there are no more."""
        point = next(self.left, None)
        if point is None:
            self.best = math.inf
            point = tuple(int(self.rng.integers(width)) for width in self.widths)
        return point

    def tell(self, point: Point, time: float | None) -> None:
        """Go to a point that is better than the one whose neighbours are tried."""
        if time is not None and time < self.best:
            self.best, self.left = time, iter(self._neighbours(point))

    def _neighbours(self, point: Point) -> list[Point]:
        """Return the points that differ in one parameter, in random order."""
        near = [
            (*point[:i], value, *point[i + 1 :])
            for i, width in enumerate(self.widths)
            for value in range(width)
            if value != point[i]
        ]
        return [near[i] for i in self.rng.permutation(len(near)).tolist()]


def searcher(space: TuningSpace, sampler: str, seed: int) -> Searcher:
    """Return a searcher by name.

    Args:
        space: What it searches.
        sampler: ``local``, or a sampler of :func:`autoturbo.search.make_sampler`.
        seed: Of all its chance.

    Returns:
        It, at its start.
    """
    if sampler == LOCAL:
        return LocalSearcher(space, seed)
    return StudySearcher(space, make_sampler(sampler, seed).sampler)


def curve(space: TuningSpace, search: Searcher, seed: int, trials: int) -> list[float]:
    """Return the true time of what a search would hand out after each measurement, over the best.

    Args:
        space: What is searched.
        search: Proposes.
        seed: Of the repeats that measurements draw.
        trials: Measurements.

    Returns:
        A ratio for each measurement: that of the worst configuration until one has run.
    """
    drawn, optimum = space.drawn(seed), float(np.nanmin(space.truth))
    best, held, ratios = math.inf, float(np.nanmax(space.truth)) / optimum, list[float]()
    free = FREE * trials
    while len(ratios) < trials and free:
        point = search.ask()
        row = space.rows.get(point)
        time = None if row is None or math.isnan(drawn[row]) else float(drawn[row])
        search.tell(point, time)
        if row is None:
            free -= 1
            continue
        if time is not None and time < best:
            best, held = time, float(space.truth[row]) / optimum
        ratios.append(held)
    return ratios + [held] * (trials - len(ratios))


def over_optimum(ratios: Sequence[Sequence[float]], count: int) -> float:
    """Return the percentage over the optimum after some measurements, the geometric mean of runs.

    Args:
        ratios: Curves of runs.
        count: Measurements.

    Returns:
        0 where all runs would hand out an optimum.
    """
    logarithms = [math.log(run[count - 1]) for run in ratios]
    return 100 * math.expm1(math.fsum(logarithms) / len(logarithms))


def compare(
    spaces: Sequence[TuningSpace], samplers: Sequence[str], seeds: int, checkpoints: Sequence[int]
) -> Iterator[tuple[str, ...]]:
    """Search every space with every sampler and seed.

    Args:
        spaces: To search.
        samplers: By name.
        seeds: How many, from 0.
        checkpoints: Measurements after which is judged, ascending.

    Yields:
        A row of the table: space, sampler, percentages over the optimum.

    Raises:
        UsageError: A sampler is unknown.
    """
    for space, sampler in itertools.product(spaces, samplers):
        try:
            runs = [
                curve(space, searcher(space, sampler, seed), seed, checkpoints[-1])
                for seed in range(seeds)
            ]
        except UsageError as error:
            if "needs" not in str(error):
                raise
            yield (space.name, sampler, *["-"] * len(checkpoints))
            continue
        yield (space.name, sampler, *(f"{over_optimum(runs, c):.1f}" for c in checkpoints))


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="seeds 0 to N - 1")
    parser.add_argument("--samplers", default=",".join(SAMPLERS), help="comma-separated")
    parser.add_argument("--trials", type=int, default=CHECKPOINTS[-1], help="measurements at most")
    parser.add_argument(
        "--spaces", type=Path, nargs="+", default=sorted(FOLDER.glob("*.csv.gz")), metavar="FILE"
    )
    options = parser.parse_args(arguments)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    checkpoints = [c for c in CHECKPOINTS if c < options.trials] + [options.trials]
    spaces = [TuningSpace.load(file) for file in options.spaces]
    rows = compare(spaces, options.samplers.split(","), options.seeds, checkpoints)
    first, *others = checkpoints
    print("% over the optimum, geometric mean over seeds; - where a package is missing")
    print_table(("space", "sampler", f"after {first}", *map(str, others)), rows)


def _number(text: str) -> float:
    """Return a value of a table, a whole number where it is one."""
    return int(text) if text.lstrip("-").isdigit() else float(text)


if __name__ == "__main__":
    main()
