"""Matrix-engine cycles beside SCALE-Sim 3.0.0: one layer on one array, row by row.

``python benchmarks/validation/scalesim.py [--reference FILE]``. Layers are imported from ONNX files
made on the fly; a convolution's rows are its output positions, its columns the filters, its depth
channels times kernel. First the array alone, as the reference has it (every fold waits, operands
keep their sides) and as the presets have it (folds overlap). Then, for rows with memory limits, the
whole layer simulated on a core with those buffers and that bandwidth.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path

from validation_tools import (
    Errors,
    chosen_reference,
    convolution,
    print_table,
    reference_rows,
)

from autoturbo.graph.operators import Graph
from autoturbo.hardware import GlobalBuffer, MatrixEngine, Target, load_target
from autoturbo.schedule.work import matrix_cycles_of
from autoturbo.simulator.single import Residence, best_kernel, product_graph

DTYPE = "int8"  # SCALE-Sim counts words; here a word is a byte
CLOCK = 1e9
FLOWS = {"os": "output_stationary", "ws": "weight_stationary", "is": "input_stationary"}


@functools.cache
def layer(kind: str, dims: str) -> Graph:
    """Return the layer of a row: ``MxNxK``, or ``HxWxRxSxCxKxstride`` for a convolution."""
    sizes = [int(part) for part in dims.split("x")]
    if kind == "gemm":
        m, n, k = sizes
        return product_graph(m, k, n)
    height, width, rows, columns, channels, filters, stride = sizes
    return convolution((height, width), (rows, columns), channels, filters, stride)


def core(row: dict[str, str], *, overlap: bool) -> Target:
    """Return a core with the row's array, and its buffers and bandwidth where it has them."""
    rows, columns = (int(part) for part in row["array"].split("x"))
    engine = MatrixEngine(
        rows, columns, FLOWS[row["dataflow"]], 1, ((DTYPE, 1.0),), 0, overlap, swap_operands=False
    )
    base = load_target("stcp920")
    words = float(row["bw_words_per_cycle"] or 1e6)
    return dataclasses.replace(
        base, clusters=1, cores=1, clock=CLOCK, matrix=engine, dram=None,
        transfer=dataclasses.replace(base.transfer, bandwidth=1e18, latency=0.0),
        dma=dataclasses.replace(base.dma, bandwidth=1e18, latency=0.0),
        lb=dataclasses.replace(
            base.lb, bandwidth=1e18,
            capacity=_kib(row["sram_ifmap_kb"]) + _kib(row["sram_ofmap_kb"]),
            weight_capacity=_kib(row["sram_filter_kb"]),
        ),
        gb=GlobalBuffer(0, 0.0, 0.0),
        ddr=dataclasses.replace(base.ddr, bandwidth=words * CLOCK, latency=0.0, efficiency=1.0),
    )  # fmt: skip


def _kib(text: str) -> int:
    return int(float(text or 65536) * 1024)


def cycles(row: dict[str, str], *, overlap: bool) -> float:
    """Return the array's cycles for the row's layer, as scheduler and simulator count them."""
    graph = layer(row["kind"], row["dims"])
    (operator,) = graph.operators
    return matrix_cycles_of(operator, core(row, overlap=overlap), DTYPE)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What comes out of a table.

    Attributes:
        waiting: Errors of rows without stalls, every fold waiting.
        overlapping: Errors of the same rows, folds overlapping.
        limited: Errors of whole layers with memory limits.
    """

    waiting: Errors
    overlapping: Errors
    limited: Errors | None


def unstalled(path: Path) -> list[dict[str, str]]:
    """Return the rows in which the array never waits for memory."""
    return [row for row in reference_rows(path) if float(row["stall_cycles"] or 0) == 0]


def limited(path: Path) -> list[dict[str, str]]:
    """Return the rows simulated with memory limits."""
    return [row for row in reference_rows(path) if row["mode"] == "USER"]


def whole(row: dict[str, str]) -> float:
    """Return the cycles of the row's layer with its loads and stores, simulated."""
    graph = layer(row["kind"], row["dims"])
    kernel, _ = best_kernel(graph, core(row, overlap=False), DTYPE, Residence())
    return kernel.seconds * CLOCK


def compare(path: Path) -> Comparison:
    """Return the errors of a table's rows."""
    rows = unstalled(path)
    truth = [float(row["total_cycles"]) for row in rows]
    alone = [cycles(row, overlap=False) / t - 1 for row, t in zip(rows, truth, strict=True)]
    other = [cycles(row, overlap=True) / t - 1 for row, t in zip(rows, truth, strict=True)]
    bound = [whole(row) / float(row["overall_cycles_incl_prefetch"]) - 1 for row in limited(path)]
    return Comparison(
        Errors(tuple(alone)), Errors(tuple(other)), Errors(tuple(bound)) if bound else None
    )


def _line(row: dict[str, str]) -> tuple[object, ...]:
    truth = float(row["total_cycles"])
    waiting, overlapping = cycles(row, overlap=False), cycles(row, overlap=True)
    return (
        row["layer"], row["array"], row["dataflow"], round(truth), round(waiting),
        f"{waiting / truth - 1:+.2%}", round(overlapping), f"{overlapping / truth - 1:+.1%}",
    )  # fmt: skip


def _limited_line(row: dict[str, str]) -> tuple[object, ...]:
    ours, theirs = whole(row), float(row["overall_cycles_incl_prefetch"])
    return (
        row["layer"], row["array"], row["dataflow"], row["bw_words_per_cycle"],
        round(float(row["total_cycles"])), round(float(row["stall_cycles"])), round(theirs),
        round(ours), f"{ours / theirs - 1:+.1%}",
    )  # fmt: skip


def main() -> None:
    """Print every row, then a line for each comparison."""
    path = chosen_reference(__doc__ or "", "scalesim_cycles.csv")
    print_table(
        ("layer", "array", "flow", "reference", "folds wait", "error", "overlap", "error"),
        map(_line, unstalled(path)),
    )
    print()
    print_table(
        ("layer", "array", "flow", "words", "cycles", "stalls", "overall", "ours", "error"),
        map(_limited_line, limited(path)),
    )
    found = compare(path)
    exact = sum(error == 0 for error in found.waiting.values)
    print(f"to the cycle: {exact} of {len(found.waiting.values)} rows without stalls")
    print(found.waiting.line("folds wait"))
    print(found.overlapping.line("folds overlap"))
    if found.limited:
        print(found.limited.line("with memory limits"))


if __name__ == "__main__":
    main()
