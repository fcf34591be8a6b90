"""Single layers against ZigZag 3.9.1, an independent mapper with an analytical cost model.

Each row becomes an ONNX model of one layer, imported, scheduled by GraphTurbo's heuristics and by a
small search over two knobs, and simulated on ``examples/targets/zigzag-core.yaml`` or
``zigzag-tpu-like.yaml``. Three questions, kept apart:

- *temporal*: cycles of the array alone against the reference's ideal temporal cycles: of the layer
  as one product, and *busy*, over all tiles of our schedule;
- *replayed*: the reference's own mapping as a program for our engines, against its total. Same
  decisions, so the difference is the cost model's;
- *scheduled*: our schedule against its total. Different decisions.

A row whose total is below its DRAM bits over the port's width cannot be true: it is listed and left
out of the summary. ``python benchmarks/validation/zigzag.py [--reference FILE]``
"""

from __future__ import annotations

import math
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import onnx
from mappers import TARGETS, Errors, Program, Row, number, read_table, reference_option
from onnx import TensorProto, helper

from autoturbo.errors import AutoTurboError, Location, UsageError
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target, load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.work import matrix_cycles_of
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement

COLUMNS = (
    "hardware", "model", "layer", "op", "B", "K", "C", "OY", "OX", "FY", "FX", "G", "IY", "IX",
    "stride_y", "stride_x", "pads", "ideal_temporal_cycles", "latency_total_cycles",
    "dram_read_bits", "dram_write_bits", "temporal_mapping",
)  # fmt: skip

HEADS = (
    "temporal", "busy", "theirs", "replayed", "scheduled", "theirs", "Mbit", "theirs"
)  # fmt: skip

WHOLE = ("B", "K", "C", "OY", "OX", "FY", "FX", "G", "IY", "IX", "stride_y", "stride_x")
"""Whole figures of a row; an empty one is 1. K and C are those of one group."""

PIECES = 16
"""Parts in which a replayed layer's outputs leave, so that the last one is short."""

TARGET_OF = {"core1": "zigzag-core.yaml", "tpu": "zigzag-tpu-like.yaml"}
"""Target files by the beginning of the reference's hardware."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One row: a convolution or a product, 8-bit.

    Attributes:
        name: Model and layer.
        target: What it ran on.
        batch: Samples.
        channels: Output channels (K) and input channels (C), of all groups.
        groups: Groups of channels.
        out: Rows and columns of the output.
        window: Rows and columns of the kernel.
        image: Rows and columns of the input; 1 x 1 for a product.
        strides: Of the kernel.
        pads: Top, left, bottom, right.
        temporal: Ideal temporal cycles of the reference.
        total: Cycles of the reference, all in.
        read: Bits from DRAM.
        written: Bits to DRAM.
        mapping: Loops per operand and level, innermost first.
    """

    name: str
    target: Target
    batch: int
    channels: tuple[int, int]
    groups: int
    out: tuple[int, int]
    window: tuple[int, int]
    image: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, ...]
    temporal: float
    total: float
    read: float
    written: float
    mapping: str

    @property
    def bits_per_cycle(self) -> float:
        """Return the width of the DRAM port."""
        return self.target.ddr.bandwidth * 8 / self.target.clock

    @property
    def impossible(self) -> bool:
        """Return whether the reference's total is less than its own traffic takes."""
        return self.total < (self.read + self.written) / self.bits_per_cycle


@dataclass(frozen=True, slots=True)
class Result:
    """What we get for a row, in cycles and bits.

    Attributes:
        temporal: Of the array, the layer as one product.
        busy: Of the array, over all tiles of our schedule.
        replayed: The reference's mapping on our engines.
        scheduled: Our schedule.
        bits: From and to DRAM with our schedule.
    """

    temporal: float
    busy: float
    replayed: float
    scheduled: float
    bits: float


def layer_of(row: Row) -> Layer:
    """Return a row of the table as a layer.

    Raises:
        UsageError: Its hardware is not one of those described here, or a figure is missing.
    """
    whole = {name: int(number(row, name, "1")) for name in WHOLE}
    pads = tuple(int(p) for p in row["pads"].split()) or (0, 0, 0, 0)
    groups = whole["G"]
    return Layer(
        f"{row['model'].removesuffix('.onnx')}/{row['layer']}", _target(row["hardware"]),
        whole["B"], (whole["K"] * groups, whole["C"] * groups), groups,
        (whole["OY"], whole["OX"]), (whole["FY"], whole["FX"]), (whole["IY"], whole["IX"]),
        (whole["stride_y"], whole["stride_x"]), pads,
        number(row, "ideal_temporal_cycles"), number(row, "latency_total_cycles"),
        number(row, "dram_read_bits"), number(row, "dram_write_bits"), row["temporal_mapping"],
    )  # fmt: skip


def _target(hardware: str) -> Target:
    for beginning, file in TARGET_OF.items():
        if hardware.startswith(beginning):
            return _load(TARGETS / file)
    known = f"it must begin with one of {', '.join(TARGET_OF)}"
    raise UsageError(f"no target for {hardware!r}", Location(field="hardware"), known)


@lru_cache
def _load(path: Path) -> Target:
    return load_target(str(path))


def model_of(layer: Layer) -> Graph:
    """Import the layer as an ONNX model, through a file as any other."""
    k, c = layer.channels
    weight = helper.make_tensor_value_info("w", TensorProto.FLOAT, _weight_shape(layer))
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, (layer.batch, c, *layer.image))
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, (layer.batch, k, *layer.out))
    node = helper.make_node(
        "Conv", ["x", "w"], ["y"], name="layer", group=layer.groups, pads=list(layer.pads),
        strides=list(layer.strides), kernel_shape=list(layer.window),
    )  # fmt: skip
    random = helper.make_node("RandomNormal", [], ["w"], shape=_weight_shape(layer), name="weight")
    graph = helper.make_graph([random, node], "layer", [image], [out], value_info=[weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        onnx.save(model, str(path))
        return import_model(path)


def _weight_shape(layer: Layer) -> tuple[int, ...]:
    k, c = layer.channels
    return (k, c // layer.groups, *layer.window)


def compare(layer: Layer) -> Result:
    """Schedule, simulate and replay a layer."""
    graph = model_of(layer)
    clock = layer.target.clock
    product = next(op for op in graph.operators if op.macs)
    best = min((_measured(graph, layer, knobs) for knobs in _settings()), key=lambda m: m.latency)
    return Result(
        matrix_cycles_of(product, layer.target, "int8"), best.busy["matrix"] * clock,
        replay(layer) * clock, best.latency * clock, best.ddr_bytes * 8,
    )  # fmt: skip


def _settings() -> list[Knobs]:
    """Return the heuristics' setting, and finer tiles, which hide more of the first load."""
    return [Knobs(tile_subdivision=divisor) for divisor in (1, 4, 16)]


def _measured(graph: Graph, layer: Layer, knobs: Knobs) -> Measurement:
    outcome = Evaluator(graph, layer.target, "int8").evaluate(knobs)
    if not isinstance(outcome, Measurement):
        raise UsageError(f"{layer.name} does not fit: {outcome.message}")
    return outcome


def replay(layer: Layer) -> float:
    """Run the reference's mapping on our engines.

    Inputs and the first weights come before the first product; later weights come while earlier
    ones are used, one part ahead; outputs leave as they are finished.

    Returns:
        Seconds.
    """
    parts = weight_parts(layer)
    (k, c), positions = layer.channels, math.prod(layer.window)
    weights = math.prod(_weight_shape(layer))
    pieces = _cut(layer.batch * math.prod(layer.out), PIECES)
    depth = math.ceil(c / layer.groups / layer.target.matrix.rows) * layer.target.matrix.rows
    program, ends = Program(), [-1, -1]
    ready = program.load(max(layer.read / 8 - weights, 0.0))
    for _ in range(parts):
        done = weight = program.load(weights / parts, ends[-2])
        for rows in pieces:
            columns = k / layer.groups / parts
            done = program.product(
                rows, columns, depth * positions, ready, weight, count=layer.groups
            )
            program.store(layer.written / 8 / parts / len(pieces), done)
        ends.append(done)
    return program.run(layer.target, "int8").seconds


def _cut(extent: int, parts: int) -> list[int]:
    """Return at most ``parts`` nearly equal whole parts of an extent."""
    parts = min(parts, extent)
    return [extent // parts + (part < extent % parts) for part in range(parts)]


def weight_parts(layer: Layer) -> int:
    """Count the parts of the output channels whose weights are used one after the other.

    Returns:
        The product of the loops over output channels (K) outside all other loops of the weights'
        mapping.
    """
    parts = 1
    for loop in reversed(_loops(layer, "W")):
        if not loop.startswith("K"):
            break
        parts *= int(loop[1:])
    return parts


def _loops(layer: Layer, operand: str) -> list[str]:
    """Return the loops of an operand over all levels, innermost first."""
    for text in layer.mapping.split(";"):
        name, _, levels = text.partition(":")
        if name.strip() == operand:
            return levels.replace("|", " ").split()
    return []


def main() -> None:
    """Print a line per row, the rows left out, and the summary."""
    options = reference_option("zigzag_layers.csv", __doc__).parse_args()
    layers = [layer_of(row) for row in read_table(options.reference, COLUMNS)]
    results = {layer: compare(layer) for layer in dict.fromkeys(layers)}
    print(f"{'layer':34}" + "".join(f"{head:>11}" for head in HEADS) + "  errors")
    for layer in layers:
        print(_line(layer, results[layer]))
    possible = [layer for layer in layers if not layer.impossible]
    _print_impossible([layer for layer in layers if layer.impossible])
    for name, figures in summary([(layer, results[layer]) for layer in possible]).items():
        print(f"{name}: {figures}")


def _line(layer: Layer, found: Result) -> str:
    bits = layer.read + layer.written
    figures = (
        found.temporal, found.busy, layer.temporal, found.replayed, found.scheduled, layer.total,
        found.bits / 1e6, bits / 1e6,
    )  # fmt: skip
    pairs = (
        (found.temporal, layer.temporal), (found.busy, layer.temporal),
        (found.replayed, layer.total), (found.scheduled, layer.total), (found.bits, bits),
    )  # fmt: skip
    errors = " ".join(f"{a / b - 1:+.1%}" for a, b in pairs)
    mark = " impossible" if layer.impossible else ""
    name = f"{layer.target.name.removeprefix('zigzag-')[:4]} {layer.name}"
    return f"{name[:34]:34}" + "".join(f"{f:11,.6g}" for f in figures) + f"  {errors}{mark}"


def _print_impossible(layers: list[Layer]) -> None:
    for layer in layers:
        least = (layer.read + layer.written) / layer.bits_per_cycle
        print(f"left out: {layer.name}: {layer.total:,.0f} cycles, its traffic takes {least:,.0f}")


def summary(pairs: list[tuple[Layer, Result]]) -> dict[str, Errors]:
    """Return the errors of each question over the rows that are possible."""
    totals = [layer.total for layer, _ in pairs]
    return {
        "temporal": Errors.of([r.temporal for _, r in pairs], [x.temporal for x, _ in pairs]),
        "busy": Errors.of([r.busy for _, r in pairs], [x.temporal for x, _ in pairs]),
        "replayed": Errors.of([r.replayed for _, r in pairs], totals),
        "scheduled": Errors.of([r.scheduled for _, r in pairs], totals),
        "DRAM bits": Errors.of([r.bits for _, r in pairs], [x.read + x.written for x, _ in pairs]),
    }


if __name__ == "__main__":
    try:
        main()
    except AutoTurboError as error:
        sys.exit(f"error: {error}")
