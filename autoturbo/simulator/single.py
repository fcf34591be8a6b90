"""The time of one product as one kernel, on the grid of cores that is fastest.

This is how a matrix product is measured on its own: operands in DDR or in the local buffers, one
launch, and the grid that suits it. The scheduler's own passes make the kernel (part, stitching,
tiles, instructions); what is tried is how many cores share the rows and how many the columns.

Programs depend on few figures of a target, so they are kept: a fit asks for the same product on
thousands of targets that differ in rates.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph, element_bytes
from autoturbo.hardware import Target
from autoturbo.hardware.target import ENGINES, PARTS
from autoturbo.schedule.codegen.durations import rates_of
from autoturbo.schedule.codegen.instructions import Instructions, Kernel, instruct
from autoturbo.schedule.codegen.tiling import InstructionRules, TilingRules, tile_counts
from autoturbo.schedule.context import SchedulingContext, Zones, make_context
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.memory.timeline import room_to_stay
from autoturbo.schedule.partition.boxes import box_regions
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.stitch.templates import local_edges, stitch
from autoturbo.schedule.streams import IN_DDR, OUT_DDR, ROOM, STREAM_COLUMNS
from autoturbo.simulator.kernels import KernelTime, kernel_seconds, run_kernel

_KEPT = 48
"""Programs of a product that are kept."""

Grid = tuple[int, ...]
"""Cores that share the products of a batch, if there is one, the rows, and the columns."""


@dataclass(frozen=True, slots=True)
class Residence:
    """Memories of a layer's input and output; its weights are in DDR.

    Attributes:
        input_in_ddr: Whether the input is in DDR, else in the local buffers of the cores.
        output_in_ddr: Whether the output is in DDR, else in the local buffers of the cores.
    """

    input_in_ddr: bool = True
    output_in_ddr: bool = True


@functools.lru_cache(maxsize=1024)
def product_graph(m: int, k: int, n: int, batch: int = 1) -> Graph:
    """Return a product of M x K inputs with K x N weights, as an ONNX file of it is imported.

    Args:
        m: Rows of the input and of the result.
        k: Extent of the reduction.
        n: Columns of the weights and of the result.
        batch: Products of this size, each with weights of its own.
    """
    from onnx import TensorProto, helper, save

    more = [batch] if batch > 1 else []
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[*more, k, n])
    weights.data_location = TensorProto.EXTERNAL  # importing reads no weights: the file may lack
    weights.external_data.add(key="location", value="weights.bin")
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [*more, *extents])]
        for name, extents in (("x", (m, k)), ("y", (m, n)))
    )
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    body = helper.make_graph([node], "layer", inputs, outputs, [weights])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        save(helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)]), path)
        return import_model(path)


def best_kernel(
    graph: Graph, target: Target, dtype: str, residence: Residence
) -> tuple[KernelTime, Grid]:
    """Run a product as one kernel on the grid of cores that is fastest.

    Returns:
        Its time and the grid.
    """
    grids = KernelGrids(graph, dtype, residence)
    rates = rates_of(target, dtype)
    timed = [(run_kernel(program, rates), grid) for program, grid in grids.programs(target)]
    return min(timed, key=lambda pair: pair[0].seconds)


def grids_of(cores: int, dimensions: int = 2) -> tuple[Grid, ...]:
    """Return the ways to share a result among cores, those that share the first least first.

    Args:
        cores: Cores of a cluster.
        dimensions: Dimensions of the result.
    """
    if dimensions == 1:
        return ((cores,),)
    return tuple(
        (first, *rest)
        for first in range(1, cores + 1)
        if cores % first == 0
        for rest in grids_of(cores // first, dimensions - 1)
    )


@dataclass(slots=True)
class KernelGrids:
    """A product's programs by grid, kept for targets that differ in rates and latencies only.

    Attributes:
        graph: The product.
        dtype: The compute type.
        residence: Residence of the product's operands.
        dimensions: Dimensions of a grid: 3 with a batch.
    """

    graph: Graph
    dtype: str
    residence: Residence
    dimensions: int = 2
    _contexts: dict[object, SchedulingContext] = field(default_factory=dict)
    _kernels: dict[object, Kernel] = field(default_factory=dict)
    _tiles: dict[object, bytes] = field(default_factory=dict)
    _programs: dict[object, Instructions] = field(default_factory=dict)

    def seconds(
        self, target: Target, grids: Iterable[Grid] | None = None
    ) -> list[tuple[float, Grid]]:
        """Return the seconds on each grid; see :meth:`programs`."""
        rates = rates_of(target, self.dtype)
        return [(kernel_seconds(one, rates), grid) for one, grid in self.programs(target, grids)]

    def programs(
        self, target: Target, grids: Iterable[Grid] | None = None
    ) -> Iterator[tuple[Instructions, Grid]]:
        """Yield the program on each grid.

        Args:
            target: The cores; every cluster does the same.
            grids: Grids that are wanted; all that there are if None.

        Yields:
            The program and its grid.
        """
        whole = _whole_figures(target)
        if whole not in self._contexts:
            self._contexts[whole] = make_context(self.graph, target, self.dtype)
        context = dataclasses.replace(self._contexts[whole], target=target)
        rules = InstructionRules.of(context, Knobs())
        for grid in grids_of(target.cores, self.dimensions) if grids is None else grids:
            yield self._program(context, rules, grid, whole), grid

    def _program(
        self, context: SchedulingContext, rules: InstructionRules, grid: Grid, whole: object
    ) -> Instructions:
        """Return the program on a grid; rates matter to it only by how they cut tiles."""
        if (whole, grid) not in self._kernels:
            self._kernels[whole, grid] = _kernel(context, rules, grid, self.residence)
        kernel = self._kernels[whole, grid]._replace(rules=rules)
        if (whole, grid, rules) not in self._tiles:
            counts = tile_counts(
                kernel.stages, kernel.streams,
                TilingRules(*np.asarray([rules], np.int64).repeat(len(kernel.stages), axis=0).T),
                np.zeros(len(kernel.stages), np.int64), kernel.rates,
            )  # fmt: skip
            self._tiles[whole, grid, rules] = counts.tobytes()
        # Rates move with a fit, programs do only where they cut tiles otherwise.
        cut = rules._replace(least_depth=0, ddr_cost=0, link_cost=0)  # these only cut tiles
        key = whole, grid, cut, self._tiles[whole, grid, rules]
        if key not in self._programs:
            if len(self._programs) >= _KEPT:
                self._programs.clear()
            self._programs[key] = next(instruct([kernel]))
        return self._programs[key]


def _whole_figures(target: Target) -> tuple[object, ...]:
    """Return the whole numbers and words of a target, which programs depend on by themselves."""
    owners = (target, *(getattr(target, name) for name in (*ENGINES, *PARTS)))
    return tuple(
        value
        for owner in owners
        if dataclasses.is_dataclass(owner)
        for value in (getattr(owner, one.name) for one in dataclasses.fields(owner))
        if isinstance(value, int | str)
    )


def _kernel(
    context: SchedulingContext, rules: InstructionRules, grid: Grid, residence: Residence
) -> Kernel:
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
    return Kernel(template.stages, streams, local_edges(context, layers), rules, 0)
