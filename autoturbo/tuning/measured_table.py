"""Tables of measured times that a target is calibrated with: CSV, a row for each measurement.

A row is a matrix product (``m,k,n,dtype`` and more) or a schedule (``schedule,model``); its time is
in one of :data:`TIMES`. How a row is simulated is here too: a product as one kernel on the grid of
cores that is fastest, a schedule as its file says.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from autoturbo.errors import InputError, Location, UsageError, did_you_mean
from autoturbo.files import read_text
from autoturbo.graph.operators import Graph
from autoturbo.hardware import DTYPES, Target
from autoturbo.schedule.files import load_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.bound import lower_bound
from autoturbo.simulator.measurement import Measurement
from autoturbo.simulator.sequence import simulate
from autoturbo.simulator.single import Grid, KernelGrids, Residence, product_graph

TIMES: Final = {
    "latency_s": 1.0, "latency_ms": 1e-3, "latency_us": 1e-6, "latency_ns": 1e-9, "time_ns": 1e-9,
}  # fmt: skip
"""Columns that a time may be in, with their seconds."""

_PRODUCT: Final = ("m", "k", "n", "dtype")
_MORE: Final = ("batch", "cores", "input", "output", "rate_factor")
_SCHEDULE: Final = ("schedule", "model")
_MEMORIES: Final = ("ddr", "lb")
_MOST_ROWS: Final = 2000
_LARGEST: Final = 2**20
_NEAR: Final = 1.15
"""Grids that are this much slower than the best may become the best while a target is fitted."""


class Case(Protocol):
    """A measured row.

    Attributes:
        group: Key of the rows that are held out together: the shape, or the model.
        seconds: Measured.
        line: Line of the table that has it.
    """

    group: tuple[object, ...]
    seconds: float
    line: int

    @property
    def kernel_seconds(self) -> float:
        """Return the measured seconds of a kernel in the mean, launch included."""
        ...

    @property
    def setting(self) -> tuple[object, ...]:
        """Return all that was measured: rows of one setting should have about one time."""
        ...

    def least(self, target: Target) -> float:
        """Return the seconds that no schedule on a target can beat."""
        ...

    def simulated(self, target: Target, *, settled: bool = False) -> float:
        """Return its seconds on a target.

        Args:
            target: The target with the figures to try.
            settled: Keep to the choices that a call without it found good, which is faster.
        """
        ...


@dataclass(slots=True)
class ProductCase:
    """A matrix product.

    Attributes:
        group: Shape of the product: batch, M, K, N.
        seconds: Measured.
        dtype: The compute type.
        residence: Residence of its input and output.
        cores: Cores that it ran on; None for all.
        rate_factor: Times the target's rate of the data type that this row ran at.
        line: Line of the table that has it.
    """

    group: tuple[object, ...]
    seconds: float
    dtype: str
    residence: Residence
    cores: int | None
    rate_factor: float
    line: int = 0
    _kernels: KernelGrids | None = None
    _grids: tuple[Grid, ...] | None = None

    @property
    def kernel_seconds(self) -> float:
        """Return the measured seconds: a product is one kernel."""
        return self.seconds

    @property
    def setting(self) -> tuple[object, ...]:
        """Return all that was measured."""
        return (*self.group, self.dtype, self.residence, self.cores, self.rate_factor)

    def least(self, target: Target) -> float:
        """Return the seconds that no schedule on a target can beat."""
        batch, m, k, n = (int(str(extent)) for extent in self.group)
        bound = lower_bound(product_graph(m, k, n, batch), self.machine(target), self.dtype)
        at_home = self.residence.input_in_ddr and self.residence.output_in_ddr
        return bound.seconds if at_home else max(bound.matrix_s, bound.vector_s)

    def machine(self, target: Target) -> Target:
        """Return the cores that the product ran on, at the rate that it ran at."""
        clusters, cores = target.clusters, target.cores
        if self.cores is not None:
            clusters = max(self.cores // cores, 1)
            cores = min(self.cores, cores)
        matrix = target.matrix
        if self.rate_factor != 1.0:
            rate = tuple((d, r * self.rate_factor) for d, r in matrix.rate if d == self.dtype)
            matrix = dataclasses.replace(matrix, rate=rate)
        return dataclasses.replace(target, clusters=clusters, cores=cores, matrix=matrix)

    def simulated(self, target: Target, *, settled: bool = False) -> float:
        """Return its seconds with launch, ramp and barrier; clusters share its rows."""
        machine = self.machine(target)
        if self._kernels is None:
            batch, m, k, n = (int(str(extent)) for extent in self.group)
            graph = product_graph(-(-m // machine.clusters), k, n, batch)
            dimensions = 3 if batch > 1 else 2
            self._kernels = KernelGrids(graph, self.dtype, self.residence, dimensions)
        timed = self._kernels.seconds(machine, self._grids if settled else None)
        best = min(seconds for seconds, _ in timed)
        if not settled:
            # While a fit moves figures a little, the fastest grid is among the near ones.
            self._grids = tuple(grid for seconds, grid in timed if seconds <= _NEAR * best)
        return best + target.overheads.around(best)


@dataclass(slots=True)
class ScheduleCase:
    """A schedule of a model.

    Attributes:
        group: The schedule's model and samples.
        seconds: Measured.
        schedule: The schedule as its file says, on the target that it was made for.
        line: Line of the table that has it.
    """

    group: tuple[object, ...]
    seconds: float
    schedule: Schedule
    line: int = 0

    @property
    def kernel_seconds(self) -> float:
        """Return the measured seconds over the launches of a cluster."""
        return self.seconds / simulate(self.schedule).kernels

    @property
    def setting(self) -> tuple[object, ...]:
        """Return all that was measured."""
        return (*self.group, self.schedule.knobs)

    def least(self, target: Target) -> float:
        """Return the seconds that no schedule on a target can beat."""
        return self._on(target).bound.seconds

    def simulated(self, target: Target, *, settled: bool = False) -> float:
        """Return its seconds with the same decisions on another target."""
        del settled
        return self._on(target).latency

    def _on(self, target: Target) -> Measurement:
        context = dataclasses.replace(self.schedule.context, target=target, chip=target)
        return simulate(dataclasses.replace(self.schedule, context=context))


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """A table that was read.

    Attributes:
        name: Name of the file.
        sha256: Of its bytes.
        cases: Rows of the table.
        unread: Columns that say nothing here.
        time: The column of times.
    """

    name: str
    sha256: str
    cases: tuple[Case, ...]
    unread: tuple[str, ...] = ()
    time: str = ""


@dataclass(slots=True)
class _Reader:
    """Reads the rows of one table.

    Attributes:
        path: The table.
        target: The target that it was measured on.
        load: Reads the model of a schedule by its name in the table.
        columns: Columns that the table has.
    """

    path: Path
    target: Target
    load: Callable[[Path], Graph]
    columns: tuple[str, ...]
    _models: dict[Path, Graph] = field(default_factory=dict)

    def wrong(self, line: int, column: str | None, message: str, hint: str) -> UsageError:
        """Return an error at a line and a column."""
        return UsageError(message, Location(self.path, line, field=column), hint)

    def check_columns(self) -> str:
        """Return the column of times.

        Raises:
            UsageError: A column is missing, or there are two of times.
        """
        times = [name for name in TIMES if name in self.columns]
        if len(times) != 1:
            hint = f"give the measured times in one column of {', '.join(TIMES)}"
            what = "several columns of times" if times else "no column of times"
            raise self.wrong(1, None, what, hint)
        needed = _SCHEDULE if "schedule" in self.columns else _PRODUCT
        for name in needed:
            if name not in self.columns:
                hint = f"a table has {','.join(_PRODUCT)} or {','.join(_SCHEDULE)}, and a time"
                raise self.wrong(1, name, "no such column", hint)
        return times[0]

    def case(self, row: Mapping[str, str], line: int, time: str) -> Case:
        """Return a row as something to simulate."""
        seconds = self.positive(row, line, time) * TIMES[time]
        if "schedule" in self.columns:
            return self.scheduled(row, line, seconds)
        dtype, batch = row["dtype"], self.extent(row, line, "batch")
        if not self.target.supports(dtype):
            known = did_you_mean(dtype, self.target.dtypes)
            what = "is not computed in by the target" if dtype in DTYPES else "is no data type"
            raise self.wrong(line, "dtype", f"{dtype!r:.40} {what}", known)
        shape = (batch, *(self.extent(row, line, name) for name in ("m", "k", "n")))
        residence = Residence(*(self.in_ddr(row, line, name) for name in ("input", "output")))
        factor = self.positive(row, line, "rate_factor") if row.get("rate_factor") else 1.0
        return ProductCase(shape, seconds, dtype, residence, self.cores(row, line), factor, line)

    def scheduled(self, row: Mapping[str, str], line: int, seconds: float) -> ScheduleCase:
        """Return a row of a schedule, whose files are named relative to the table."""
        model = Path(row["model"])
        # Beside the table first, so that a folder can be moved whole.
        near = self.path.parent / model
        where = near if near.exists() else model
        try:
            if where not in self._models:
                self._models[where] = self.load(where)
            graph = self._models[where]
            schedule = load_schedule(self.path.parent / row["schedule"], graph, self.target)
        except InputError as error:
            hint = "name files of a model and of its schedule for this target"
            raise self.wrong(line, "schedule", str(error), hint) from None
        return ScheduleCase((graph.hash,), seconds, schedule, line)

    def positive(self, row: Mapping[str, str], line: int, column: str) -> float:
        """Return a positive finite number."""
        text = row[column]
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            message = f"{text!r:.40} is not a positive number"
            raise self.wrong(line, column, message, "mend the row or leave it out")
        return value

    def extent(self, row: Mapping[str, str], line: int, column: str) -> int:
        """Return a whole number from 1 on; a batch that is not given is 1."""
        text = row.get(column, "") or ("1" if column == "batch" else "")
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _LARGEST):
            message = f"{text!r:.40} is not an extent"
            raise self.wrong(line, column, message, f"whole numbers from 1 to {_LARGEST}")
        return int(text)

    def in_ddr(self, row: Mapping[str, str], line: int, column: str) -> bool:
        """Return whether an operand is in DDR, which it is where nothing is said."""
        text = row.get(column, "") or "ddr"
        if text not in _MEMORIES:
            hint = did_you_mean(text, _MEMORIES)
            raise self.wrong(line, column, f"{text!r:.40} is no memory", hint)
        return text == "ddr"

    def cores(self, row: Mapping[str, str], line: int) -> int | None:
        """Return the cores that a row ran on: of one cluster, or whole clusters."""
        if not row.get("cores"):
            return None
        count, each = self.extent(row, line, "cores"), self.target.cores
        most = each * self.target.clusters
        if count > most or (count > each and count % each):
            hint = f"up to {each}, or whole clusters up to {most}"
            raise self.wrong(line, "cores", f"the target has no {count} cores to share", hint)
        return count


def read_table(path: Path, target: Target, load: Callable[[Path], Graph]) -> MeasuredTable:
    """Return the rows of a table.

    Args:
        path: The table.
        target: The target that it was measured on.
        load: Reads the model of a schedule.

    Raises:
        UsageError: It cannot be read, or a row cannot be simulated, by line and column.
    """
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise UsageError(f"cannot be read: {reason}", Location(path), "name a CSV file") from None
    rows = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        columns = tuple((name or "").strip() for name in rows.fieldnames or ())
        reader = _Reader(path, target, load, columns)
        if not columns:
            raise reader.wrong(1, None, "the table is empty", "give a line of columns, then rows")
        time, cases = reader.check_columns(), list[Case]()
        rows.fieldnames = columns
        for row in rows:
            line = rows.line_num
            if None in row or None in row.values():
                hint = f"each row has {len(columns)} values, as the first line"
                raise reader.wrong(line, None, "too many or too few values", hint)
            if len(cases) == _MOST_ROWS:
                raise reader.wrong(line, None, f"more than {_MOST_ROWS} rows", "leave some out")
            plain = {name: value.strip() for name, value in row.items()}
            cases.append(reader.case(plain, line, time))
    except csv.Error as error:
        raise reader.wrong(rows.line_num, None, f"not CSV: {error}", "mend the line") from None
    if not cases:
        raise reader.wrong(1, None, "the table has no rows", "give a row for each measurement")
    known = (*TIMES, *_PRODUCT, *_MORE, *_SCHEDULE)
    unread = tuple(name for name in columns if name not in known)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return MeasuredTable(path.name, digest, tuple(cases), unread, time)
