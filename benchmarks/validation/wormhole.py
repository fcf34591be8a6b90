"""Products on a Wormhole n150 beside times measured on the silicon.

``python benchmarks/validation/wormhole.py [--reference FILE]``. Two tables are read; the shapes of
the second were not used when the model of the machine was made. Every product is imported from an
ONNX file made on the fly, becomes one kernel by the scheduler's passes on the grid of cores that is
fastest, and is simulated on ``examples/targets/wormhole-n150.yaml``, its operands where the row has
them. Nothing is fitted. Beside it a closed form with three constants (launch, arithmetic, bytes
from DRAM), and with a fourth (operands that registers take from L1), fitted by least squares of
relative errors on a fifth of the rows. The last column is the whole schedule that the published
heuristic makes of the layer, which spreads rows over cores first. Errors of rows with
a trace are told below and from 40 us on as well: what a kernel takes besides its work matters in
short ones.

``--convert FILE`` writes tuned rows with a trace as a table for ``autoturbo targets calibrate``
(docs/calibration.md has what comes out); ``--all`` those that were not tuned as well. ``--plots``
draws simulated over measured times.

Math fidelity is the row's: how often the multipliers pass over a mantissa. Without a trace the host
dispatches every kernel, and the device waits for it where it is faster.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from validation_tools import REFERENCES, Errors, print_table, reference_rows

from autoturbo.hardware import Target, load_target
from autoturbo.hardware.parts import storage_ratio
from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement
from autoturbo.simulator.single import Grid, Residence, best_kernel, product_graph

TARGET = Path(__file__).parents[2] / "examples" / "targets" / "wormhole-n150.yaml"
DTYPES = {"BFLOAT16": "bfloat16", "BFLOAT8_B": "bfloat8", "BFLOAT4_B": "bfloat4"}
PASSES = {"LoFi": 1, "HiFi2": 2, "HiFi3": 3, "HiFi4": 4}
"""Passes of the multipliers over a mantissa (tt-metal, tech report on the matrix engine)."""

SHORT = 40e-6
"""Seconds on the silicon below which a kernel is short."""

HOST_DISPATCH = 350e-6
"""Seconds between kernels that the host dispatches one by one (tt-metal, published)."""

TABLES = (
    REFERENCES / "wormhole_gemm_silicon.csv",
    REFERENCES / "wormhole_gemm_more_shapes.csv",
)

FITTED_ON = 5
"""The closed form sees one row of five; which one moves on, because shapes repeat in fives."""


@functools.cache
def machine(dtype: str, fidelity: str, cores: int) -> Target:
    """Return the cores of the card at a fidelity: LoFi is the full rate, the file's for bfloat4."""
    target = dataclasses.replace(load_target(TARGET), cores=cores)
    rate = dict(target.matrix.rate)["bfloat4"] / PASSES[fidelity]
    matrix = dataclasses.replace(target.matrix, rate=((dtype, rate),))
    return dataclasses.replace(target, matrix=matrix)


@dataclass(frozen=True, slots=True)
class Row:
    """One measured product.

    Attributes:
        shape: M, N and K.
        dtype: Its data type.
        fidelity: Its passes, by name.
        cores: Of the grid.
        residence: Where its input and output are.
        traced: Launches come from the device.
        seconds: Measured.
    """

    shape: tuple[int, int, int]
    dtype: str
    fidelity: str
    cores: int
    residence: Residence
    traced: bool
    seconds: float

    @staticmethod
    def of(row: dict[str, str]) -> Row:
        """Return a row from a line of the table."""
        return Row(
            (int(row["m"]), int(row["n"]), int(row["k"])), DTYPES[row["dtype"]], row["fidelity"],
            _cores(row["grid"]), Residence(row["in0"] == "DRAM", row["out"] == "DRAM"),
            row["trace"] == "True", float(row["time_ns"]) * 1e-9,
        )  # fmt: skip

    @property
    def target(self) -> Target:
        """Return the card at the row's fidelity."""
        return machine(self.dtype, self.fidelity, self.cores)


def dispatched(row: Row, device: float) -> float:
    """Return a kernel's seconds with launch, ramp and barrier; by the host without a trace."""
    device += row.target.overheads.around(device)
    return device if row.traced else max(device, HOST_DISPATCH)


def simulated(row: Row) -> tuple[float, Grid]:
    """Return the seconds of a row and the grid of cores."""
    m, n, k = row.shape
    kernel, grid = best_kernel(product_graph(m, k, n), row.target, row.dtype, row.residence)
    return dispatched(row, kernel.seconds), grid


def scheduled(row: Row) -> float | None:
    """Return the seconds of the published heuristic's schedule, for rows with all in DRAM."""
    if not (row.residence.input_in_ddr and row.residence.output_in_ddr and row.traced):
        return None
    m, n, k = row.shape
    found = Evaluator(product_graph(m, k, n), row.target, row.dtype).evaluate(Knobs())
    return found.latency if isinstance(found, Measurement) else None


def closed_form(rows: list[Row], constants: int) -> list[float]:
    """Return seconds of a launch, arithmetic at peak, DRAM's bytes, operands from L1, weighed."""
    if not rows:
        return []
    terms = np.asarray([_terms(row)[:constants] for row in rows])
    truth = np.asarray([row.seconds for row in rows])
    part = [i for i in range(len(rows)) if _seen(i)]
    scaled = terms[part] / truth[part, None]
    weights = np.linalg.lstsq(scaled, np.ones(len(scaled)), rcond=None)[0]
    found: list[float] = (terms @ weights).tolist()
    return found


def _seen(index: int) -> bool:
    return index % FITTED_ON == index // FITTED_ON % FITTED_ON


def _terms(row: Row) -> tuple[float, float, float, float]:
    m, n, k = row.shape
    target = row.target
    element = storage_ratio(row.dtype) * (2 if row.dtype == "bfloat16" else 1)
    moved = n * k + m * k * row.residence.input_in_ddr + m * n * row.residence.output_in_ddr
    arithmetic = m * n * k / target.matrix_macs_per_second(row.dtype)
    taken = m * n * k * (1 / target.matrix.rows + 1 / target.matrix.columns) * element
    registers = taken / (target.cores * target.lb.bandwidth)
    return 1e-5, arithmetic, moved * element / target.ddr.bandwidth, registers


@dataclass(frozen=True, slots=True)
class Comparison:
    """What comes out of a table.

    Attributes:
        traced: Errors of rows with a trace, nothing fitted.
        short: Of these, the ones that take less than :data:`SHORT` on the silicon.
        long: The others.
        untraced: Errors of rows that the host dispatches.
        formulas: Errors of the closed form with three and with four constants on the traced rows
            that it was not fitted on.
        beside: Ours on the same rows.
    """

    traced: Errors
    short: Errors
    long: Errors
    untraced: Errors | None
    formulas: tuple[Errors, Errors]
    beside: Errors


def _cores(grid: str) -> int:
    """Return the cores of a grid as the table writes it, ``"(8, 8)"``."""
    return math.prod(int(part) for part in grid.strip("()").split(","))


def read(path: Path) -> list[Row]:
    """Return the rows of a table whose data type and fidelity are known here."""
    return [
        Row.of(row)
        for row in reference_rows(path)
        if row["dtype"] in DTYPES and row["fidelity"] in PASSES
    ]


def compare(path: Path) -> Comparison:
    """Return the errors of a table's rows."""
    rows = read(path)
    traced = [row for row in rows if row.traced]
    ours = [simulated(row)[0] / row.seconds - 1 for row in traced]
    host = [simulated(row)[0] / row.seconds - 1 for row in rows if not row.traced]
    unseen = [i for i in range(len(traced)) if not _seen(i)]

    def formula(constants: int) -> Errors:
        seconds = closed_form(traced, constants)
        return Errors(tuple(seconds[i] / traced[i].seconds - 1 for i in unseen))

    def regime(*, short: bool) -> Errors:
        pairs = zip(traced, ours, strict=True)
        return Errors(tuple(error for row, error in pairs if (row.seconds < SHORT) == short))

    return Comparison(
        Errors(tuple(ours)), regime(short=True), regime(short=False),
        Errors(tuple(host)) if host else None, (formula(3), formula(4)),
        Errors(tuple(ours[i] for i in unseen)),
    )  # fmt: skip


CONVERTED = ("m", "k", "n", "dtype", "cores", "input", "output", "rate_factor", "time_ns")


def converted(path: Path, *, untuned: bool = False) -> list[dict[str, object]]:
    """Return rows with a trace as ``autoturbo targets calibrate`` reads them.

    The target's rate of a data type is that of its full precision; fewer passes are faster by
    ``rate_factor``. Rows without a trace are times of the host.
    """
    rates = dict(load_target(TARGET).matrix.rate)
    full = {dtype: round(rates["bfloat4"] / rate) for dtype, rate in rates.items()}
    found: list[dict[str, object]] = []
    for line in reference_rows(path):
        if line["dtype"] not in DTYPES or line["fidelity"] not in PASSES:
            continue
        row, (m, n, k) = Row.of(line), Row.of(line).shape
        if row.traced and (untuned or line["mode"] == "tuned"):
            places = ["ddr" if there else "lb" for there in (
                row.residence.input_in_ddr, row.residence.output_in_ddr)]  # fmt: skip
            factor = full[row.dtype] / PASSES[row.fidelity]
            values = (m, k, n, row.dtype, row.cores, *places, f"{factor:g}", line["time_ns"])
            found.append(dict(zip(CONVERTED, values, strict=True)))
    return found


def convert(paths: Sequence[Path], to: Path, *, untuned: bool) -> None:
    """Write what :func:`converted` returns of several tables."""
    with to.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, CONVERTED, lineterminator="\n")
        writer.writeheader()
        for path in paths:
            writer.writerows(converted(path, untuned=untuned))


def plot(paths: Sequence[Path], to: Path) -> None:
    """Draw simulated over measured times of the rows with a trace of several tables."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "autoturbo", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(5.6, 4.6), layout="tight")
        axes = figure.subplots()
        ends = np.asarray([5.0, 3e5])
        axes.fill_between(ends, 0.9 * ends, 1.1 * ends, color="#dde6ef", label="within 10 %")
        axes.plot(ends, ends, color="#888", linewidth=0.8)
        for dtype, shade in zip(DTYPES.values(), ("#1f4e79", "#d9a441", "#62a578"), strict=True):
            rows = [r for path in paths for r in read(path) if r.traced and r.dtype == dtype]
            axes.plot(
                [1e6 * row.seconds for row in rows], [1e6 * simulated(row)[0] for row in rows],
                "o", color=shade, markersize=4, alpha=0.8, label=dtype,
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        axes.set_xlabel("measured on a Wormhole n150, us")
        axes.set_ylabel("simulated, us")
        axes.legend(frameon=False)
        figure.savefig(to, metadata={"Date": None} if to.suffix == ".svg" else {})


def _line(row: Row, formula: float | None) -> tuple[object, ...]:
    seconds, grid = simulated(row)
    whole = scheduled(row)
    where = "/".join("DRAM" if x else "L1" for x in (
        row.residence.input_in_ddr, row.residence.output_in_ddr))  # fmt: skip
    return (
        "x".join(map(str, row.shape)), row.dtype, row.fidelity, where,
        "trace" if row.traced else "host", f"{row.seconds * 1e6:.1f}", f"{seconds * 1e6:.1f}",
        f"{seconds / row.seconds - 1:+.1%}", f"{grid[0]}x{grid[1]}",
        f"{formula / row.seconds - 1:+.1%}" if formula else "",
        f"{whole / row.seconds - 1:+.1%}" if whole else "",
    )  # fmt: skip


def main() -> None:
    """Print every row, then a line for each comparison; or convert the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    text = "another table of the same columns"
    parser.add_argument("--reference", type=Path, help=text)
    parser.add_argument("--convert", type=Path, metavar="FILE", help="write a table to calibrate")
    parser.add_argument("--all", action="store_true", help="convert rows not tuned as well")
    text = "draw simulated over measured times: .svg, .png or .pdf"
    parser.add_argument("--plots", type=Path, metavar="FILE", help=text)
    options = parser.parse_args()
    paths = (options.reference,) if options.reference else TABLES
    if options.convert:
        convert(paths, options.convert, untuned=options.all)
        return
    if options.plots:
        plot(paths, options.plots)
        return
    for path in paths:
        show(path)


def show(path: Path) -> None:
    """Print a table's rows and its comparisons."""
    rows = read(path)
    traced = [row for row in rows if row.traced]
    formula = dict(zip(map(id, traced), closed_form(traced, 3), strict=True))
    print_table(
        ("MxNxK", "type", "passes", "in/out", "launch", "us", "ours", "error", "grid", "formula",
         "heuristic"),
        (_line(row, formula.get(id(row))) for row in rows),
    )  # fmt: skip
    found = compare(path)
    print(found.traced.line("with a trace"))
    print(found.short.line(f"below {SHORT * 1e6:g} us"))
    print(found.long.line(f"from {SHORT * 1e6:g} us on"))
    if found.untraced:
        print(found.untraced.line("dispatched by the host"))
    for constants, errors in zip((3, 4), found.formulas, strict=True):
        print(errors.line(f"closed form, {constants} fitted constants, rows not fitted on"))
    print(found.beside.line("ours, the same rows"))


if __name__ == "__main__":
    main()
