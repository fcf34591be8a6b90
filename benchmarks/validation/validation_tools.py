"""What the comparisons share: reference tables, layers imported from ONNX, kernels of one layer."""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, save

from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph, element_bytes
from autoturbo.hardware import Target
from autoturbo.schedule.codegen.instructions import Instructions, Kernel, instruct
from autoturbo.schedule.codegen.stages import Stage
from autoturbo.schedule.codegen.stitch import local_edges, stitch
from autoturbo.schedule.codegen.tiling import InstructionRules
from autoturbo.schedule.context import SchedulingContext, make_problem
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.memory.allocate import Zones
from autoturbo.schedule.memory.timeline import IN_DDR, OUT_DDR, ROOM, STREAM_COLUMNS, room_to_stay
from autoturbo.schedule.place.instances import box_regions
from autoturbo.simulate.kernels import KernelTime, rates_of, run_kernel

REFERENCES = Path(__file__).parent / "references"


def reference_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a reference table."""
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def chosen_reference(doc: str, name: str) -> Path:
    """Return the table that the command line names, or the copy in the repository."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    text = "another table of the same columns"
    parser.add_argument("--reference", type=Path, default=REFERENCES / name, help=text)
    chosen: Path = parser.parse_args().reference
    return chosen


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors of some rows: ours over the reference's, less one.

    Attributes:
        values: Signed, one per row.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Return the mean of the absolute errors."""
        return statistics.fmean(map(abs, self.values))

    @property
    def median(self) -> float:
        """Return the median of the absolute errors."""
        return statistics.median(map(abs, self.values))

    @property
    def worst(self) -> float:
        """Return the largest absolute error."""
        return max(map(abs, self.values))

    def line(self, name: str) -> str:
        """Return a summary for people."""
        if not self.values:
            return f"{name}: no rows"
        return (
            f"{name}: {len(self.values)} rows, absolute error mean {self.mean:.1%}, "
            f"median {self.median:.1%}, worst {self.worst:.1%}, "
            f"signed mean {statistics.fmean(self.values):+.1%}"
        )


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table with its numbers to the right."""
    lines = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        print("  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)).rstrip())


# Layers


def gemm(m: int, n: int, k: int) -> Graph:
    """Return a product of an M x K input with K x N weights, imported from ONNX."""
    return _layer(helper.make_node("MatMul", ["x", "w"], ["y"]), (m, k), (k, n), (m, n))


def convolution(
    size: tuple[int, int], kernel: tuple[int, int], channels: int, filters: int, stride: int
) -> Graph:
    """Return a convolution of one sample whose last windows may reach over the edge, from ONNX."""
    out = [-(-(s - f) // stride) + 1 for s, f in zip(size, kernel, strict=True)]
    over = [(o - 1) * stride + f - s for o, s, f in zip(out, size, kernel, strict=True)]
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[stride, stride], pads=[0, 0, *over])
    return _layer(node, (1, channels, *size), (filters, channels, *kernel), (1, filters, *out))


def _layer(node: NodeProto, x: Sequence[int], w: Sequence[int], y: Sequence[int]) -> Graph:
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=w)
    weights.data_location = TensorProto.EXTERNAL  # importing reads no weights: the file may lack
    weights.external_data.add(key="location", value="weights.bin")
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(x))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(y))]
    body = helper.make_graph([node], "layer", inputs, outputs, [weights])
    return _imported(helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)]))


def _imported(model: ModelProto) -> Graph:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        save(model, path)
        return import_model(path)


# Kernels


@dataclass(frozen=True, slots=True)
class Residence:
    """Where a layer's input and output are kept; its weights are in DDR.

    Attributes:
        input_in_ddr: Else in the local buffers of the cores.
        output_in_ddr: Likewise.
    """

    input_in_ddr: bool = True
    output_in_ddr: bool = True


def best_kernel(
    graph: Graph, target: Target, dtype: str, residence: Residence
) -> tuple[KernelTime, tuple[int, int]]:
    """Run a product as one kernel on the grid of cores that is fastest.

    The scheduler's own passes make the kernel (part, stitching, tiles, instructions); what is tried
    is how many cores share the rows and how many the columns.

    Returns:
        Its time and the grid: cores that share the rows, cores that share the columns.
    """
    context = make_problem(graph, target, dtype)
    cores = target.cores
    grids = [(down, cores // down) for down in range(1, cores + 1) if cores % down == 0]
    timed = [
        (run_kernel(_program(context, grid, residence), rates_of(target, dtype)), grid)
        for grid in grids
    ]
    return min(timed, key=lambda pair: pair[0].seconds)


def _program(
    context: SchedulingContext, grid: tuple[int, int], residence: Residence
) -> Instructions:
    layers = tuple(layer.index for layer in context.layers)
    template = stitch(context, layers, box_regions(context, layers), grid)
    streams = np.zeros((len(layers), STREAM_COLUMNS), np.int64)
    for tensors, column, moved in (
        (context.graph.inputs, IN_DDR, residence.input_in_ddr),
        (context.graph.outputs, OUT_DDR, residence.output_in_ddr),
    ):
        shapes = (context.graph.tensors[tensor] for tensor in tensors)
        size = sum(t.elements * element_bytes(t.dtype, context.dtype) for t in shapes)
        streams[0, column] = size if moved else 0
    zones, stage = Zones.of(context.target), template.stages[0]
    there = stage[Stage.READ] - stage[Stage.EXCHANGED]  # of its inputs, in a core's own buffer
    free = zones.lb - (0 if residence.input_in_ddr else int(there))
    free -= 0 if residence.output_in_ddr else int(stage[Stage.WRITTEN])
    streams[0, ROOM] = room_to_stay(np.asarray(free), zones)
    rules = InstructionRules.of(context, Knobs())
    edges = local_edges(context, layers)
    return next(instruct([Kernel(template.stages, streams, edges, rules, 0)]))
