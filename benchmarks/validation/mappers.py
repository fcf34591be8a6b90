"""What the comparisons with mappers share: tables, error figures, programs written by hand."""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from autoturbo.errors import Location, UsageError
from autoturbo.hardware import Target
from autoturbo.schedule.codegen.durations import rates_of
from autoturbo.schedule.codegen.instructions import (
    DMA_IN,
    DMA_OUT,
    INSTRUCTION_COLUMNS,
    MATRIX_ENGINE,
    TRANSFER,
    Column,
    Instructions,
)
from autoturbo.schedule.codegen.tiling import AMOUNT_COLUMNS, Amount
from autoturbo.simulator.kernels import KernelTime, run_kernel

FOLDER = Path(__file__).parent
REFERENCES = FOLDER / "references"
TARGETS = FOLDER.parents[1] / "examples" / "targets"

Row = dict[str, str]


def reference_option(name: str | Path, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with ``--reference``, by default a file of ``references``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--reference", type=Path, default=REFERENCES / name, help="a table of the same columns"
    )
    return parser


def read_table(path: Path, columns: Iterable[str]) -> list[Row]:
    """Return the rows of a CSV file that has at least these columns.

    Raises:
        UsageError: The file cannot be read, is empty or lacks a column.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise UsageError(f"cannot read: {reason}", Location(path)) from None
    missing = sorted(set(columns) - set(rows[0] if rows else ()))
    if missing:
        raise UsageError("not a table of this kind", Location(path, field=missing[0]))
    return rows


def number(row: Row, column: str, default: str = "") -> float:
    """Return a figure of a row; ``default`` stands for an empty cell.

    Raises:
        UsageError: It is no number.
    """
    try:
        return float(row[column] or default)
    except ValueError:
        raise UsageError(f"{row[column]!r} is no number", Location(field=column)) from None


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors of our figures against a reference's.

    Attributes:
        mean: Mean of their absolute values.
        median: Median of their absolute values.
        worst: The largest absolute value.
        bias: Median of the signed values.
        rank: Spearman's rank correlation of the figures.
        rows: How many there are.
    """

    mean: float
    median: float
    worst: float
    bias: float
    rank: float
    rows: int

    @staticmethod
    def of(ours: Sequence[float], theirs: Sequence[float]) -> Errors:
        """Compare two lists of positive figures; neither may be empty."""
        signed = [a / b - 1.0 for a, b in zip(ours, theirs, strict=True)]
        absolute = [abs(error) for error in signed]
        return Errors(
            statistics.fmean(absolute), statistics.median(absolute), max(absolute),
            statistics.median(signed), rank_correlation(ours, theirs), len(signed),
        )  # fmt: skip

    def __str__(self) -> str:
        return (
            f"mean {self.mean:.1%}, median {self.median:.1%}, worst {self.worst:.1%}, "
            f"bias {self.bias:+.1%}, rank {self.rank:.3f}, {self.rows} rows"
        )


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's correlation of the ranks, ties sharing their mean rank; 1 for one point."""
    if len(first) < 2:  # noqa: PLR2004  a correlation needs two points
        return 1.0
    a, b = _ranks(first), _ranks(second)
    if not a.std() or not b.std():
        return 1.0 if np.array_equal(a, b) else 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    figures = np.asarray(values, np.float64)
    below = (figures[:, None] > figures[None, :]).sum(axis=1)
    same = (figures[:, None] == figures[None, :]).sum(axis=1)
    return np.asarray(below + (same - 1) / 2.0, np.float64)


@dataclass
class Program:
    """A kernel written instruction by instruction, for the engines of the simulator.

    ``after`` is what an instruction waits for (-1 for nothing); the value of each method is the
    position to wait for.
    """

    where: list[list[int]] = field(default_factory=list)
    amounts: list[list[float]] = field(default_factory=list)

    def load(self, size: float, *after: int) -> int:
        """Add the load of bytes from DDR into LB; return its position."""
        return self._emit(DMA_IN, after, {Amount.DDR: size})

    def store(self, size: float, *after: int) -> int:
        """Add the store of bytes from LB to DDR; return its position."""
        return self._emit(DMA_OUT, after, {Amount.DDR: size})

    def transfer(self, size: float, *after: int) -> int:
        """Add a transfer of bytes between GB and LB; return its position."""
        return self._emit(TRANSFER, after, {Amount.GB: size, Amount.CORE: size})

    def product(
        self, rows: float, columns: float, depth: float, *after: int, count: float = 1.0
    ) -> int:
        """Add ``count`` products of ``rows`` x ``columns`` x ``depth`` on the matrix engine."""
        shape = {Amount.ROWS: rows, Amount.COLUMNS: columns, Amount.DEPTH: depth}
        return self._emit(MATRIX_ENGINE, after, {Amount.COUNT: count, **shape})

    def _emit(self, engine: int, after: Sequence[int], figures: dict[Amount, float]) -> int:
        where, amounts = [-1] * INSTRUCTION_COLUMNS, [0.0] * AMOUNT_COLUMNS
        where[Column.ENGINE], where[Column.LAYER] = engine, 0
        where[Column.TILE] = len(self.where)
        waits = [position for position in after if position >= 0]
        where[Column.AFTER : Column.AFTER + len(waits)] = waits
        for column, value in figures.items():
            amounts[column] = value
        self.where.append(where)
        self.amounts.append(amounts)
        return len(self.where) - 1

    def run(self, target: Target, dtype: str) -> KernelTime:
        """Simulate the program; return the time of the kernel."""
        table = Instructions(np.asarray(self.where, np.int64), np.asarray(self.amounts, np.float64))
        return run_kernel(table, rates_of(target, dtype))
