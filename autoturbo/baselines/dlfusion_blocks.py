"""Measurements of fused blocks of layers on some of a target's cores.

A block is a kernel of its own: its layers forced into one sub-graph, inputs and outputs in off-
chip memory, on a target with fewer cores; the other cores stand idle (DLFusion's model
parallelism).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from autoturbo.baselines.dlfusion import (
    STRATEGIES,
    Block,
    CoreModel,
    LayerFigures,
    Sample,
    allowed_cores,
    fit,
)
from autoturbo.graph.extract import extract
from autoturbo.graph.layers import Layer, layers_of
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.simulator.bound import lower_bound
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure, Measurement, Outcome, seconds_of

_OPSET, _IR = 17, 8


@lru_cache(maxsize=256)
def convolution(channels: int, size: int, kernel: int = 3, batch: int = 1) -> Graph:
    """Return a convolution with equal channels in and out, and padding that keeps the size.

    Args:
        channels: Channels of input and output.
        size: Rows and columns.
        kernel: Rows and columns of a filter; odd.
        batch: Samples of a batch.
    """
    import onnx
    from onnx import TensorProto, helper

    shape = [batch, channels, size, size]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    filters = [channels, channels, kernel, kernel]
    weight = helper.make_tensor_value_info("w", TensorProto.FLOAT, filters)
    values = helper.make_node(
        "ConstantOfShape", ["filters"], ["w"], "fill",
        value=helper.make_tensor("value", TensorProto.FLOAT, [1], [0.0]),
    )  # fmt: skip
    node = helper.make_node("Conv", ["x", "w"], ["y"], "convolution", pads=[kernel // 2] * 4)
    extents = helper.make_tensor("filters", TensorProto.INT64, [4], filters)
    graph = helper.make_graph(
        [values, node], "convolution", ends[:1], ends[1:], [extents], value_info=[weight]
    )
    opsets = [helper.make_opsetid("", _OPSET)]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "convolution.onnx"
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=_IR), str(file))
        return import_model(file)


CHANNELS = (16, 32, 64, 128, 256, 512)
"""Channels of synthesised layers."""

SIZES = (7, 14, 28, 56)
"""Rows and columns of synthesised layers."""


@dataclass(eq=False)
class BlockProfiles:
    """Times of one model's blocks on one target, remembered by what a block computes.

    Attributes:
        graph: The model.
        target: The target whose cores blocks have some of.
        dtype: The compute type.
        made: Schedules that were simulated so far.
    """

    graph: Graph
    target: Target
    dtype: str
    made: int = 0
    _layers: tuple[Layer, ...] = ()
    _figures: tuple[LayerFigures, ...] = ()
    _known: dict[tuple[str, int], Outcome] = field(default_factory=dict)
    _asked: dict[tuple[int, int, int], Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Split the model into layers."""
        self._layers = layers_of(self.graph)
        self._figures = tuple(_figures_of(self.graph, layer) for layer in self._layers)

    @property
    def figures(self) -> tuple[LayerFigures, ...]:
        """Return the figures of each layer."""
        return self._figures

    @property
    def cores(self) -> int:
        """Return the cores of a cluster of the target."""
        return self.target.cores

    def seconds(self, first: int, end: int, cores: int) -> float:
        """Return the seconds of a block; infinite where it does not fit."""
        return seconds_of(self.outcome(first, end, cores))

    def outcome(self, first: int, end: int, cores: int) -> Outcome:
        """Return the measurement of a block by itself, or why it does not fit."""
        key = (first, end, cores)
        if key not in self._asked:
            self._asked[key] = self._outcome(first, end, cores)
        return self._asked[key]

    def _outcome(self, first: int, end: int, cores: int) -> Outcome:
        inside = [o for layer in self._layers[first:end] for o in layer.operators]
        part = extract(self.graph, inside)
        key = (part.hash, cores)
        if key not in self._known:
            self.made += 1
            self._known[key] = fused(part, self.target, self.dtype, cores)
        return self._known[key]


def dlfusion_outcome(graph: Graph, target: Target, dtype: str) -> Outcome:
    """Return the measurement of a model in DLFusion's blocks, or why a block does not fit."""
    costs = BlockProfiles(graph, target, dtype)
    return measure_blocks(costs, STRATEGIES["dlfusion"](costs, core_model(target, dtype)))


def measure_blocks(costs: BlockProfiles, blocks: Sequence[Block]) -> Outcome:
    """Return the measurement of a model in blocks, in sequence, or why one does not fit."""
    measurements: list[Measurement] = []
    for block in blocks:
        outcome = costs.outcome(block.first, block.end, block.cores)
        if isinstance(outcome, Failure):
            return outcome
        measurements.append(outcome)
    graph, target, dtype = costs.graph, costs.target, costs.dtype
    latency = sum(measurement.latency for measurement in measurements)
    vector = sum(
        measurement.vector_utilization * measurement.latency * block.cores
        for measurement, block in zip(measurements, blocks, strict=True)
    )
    bound = lower_bound(graph, target, dtype)
    return Measurement(
        latency=bound.checked(latency, f"{graph.name} on {target.name}"),
        batch=graph.known_batch,
        ddr_bytes=sum(measurement.ddr_bytes for measurement in measurements),
        gb_bytes=sum(measurement.gb_bytes for measurement in measurements),
        matrix_utilization=bound.matrix_s / latency,
        vector_utilization=vector / target.cores / latency,
        peak_lb_bytes=max(measurement.peak_lb_bytes for measurement in measurements),
        peak_gb_bytes=max(measurement.peak_gb_bytes for measurement in measurements),
        kernels=sum(measurement.kernels for measurement in measurements),
        bound=bound,
    )


def fused_seconds(graph: Graph, target: Target, dtype: str, cores: int) -> float:
    """Return the seconds of a graph as one kernel on some cores; infinite where it does not fit."""
    return seconds_of(fused(graph, target, dtype, cores))


def fused(graph: Graph, target: Target, dtype: str, cores: int) -> Outcome:
    """Return the measurement of a graph as one kernel on some cores."""
    fewer = dataclasses.replace(target, cores=cores)
    evaluator = Evaluator(graph, fewer, dtype)
    *inner, last = layers_of(graph)
    joined = tuple(SubGraphKnobs(layer.name, boundary="merge") for layer in inner)
    # blocks hand over through off-chip memory, whatever would fit on the chip
    knobs = Knobs(output_scope="DDR", overrides=(*joined, SubGraphKnobs(last.name, boundary="cut")))
    return evaluator.evaluate(knobs)


def core_model(target: Target, dtype: str) -> CoreModel:
    """Return DLFusion's model of the best number of cores, from synthesised layers on a target."""
    allowed = allowed_cores(target.cores)
    samples = []
    for channels in CHANNELS:
        for size in SIZES:
            graph = convolution(channels, size)
            figures = LayerFigures(float(graph.macs), channels)
            for cores in allowed:
                seconds = fused_seconds(graph, target, dtype, cores)
                samples.append(Sample(figures, cores, seconds))
    # a layer that does not fit so few cores says nothing of how fast they are
    return fit([sample for sample in samples if math.isfinite(sample.seconds)], allowed)


def _figures_of(graph: Graph, layer: Layer) -> LayerFigures:
    operators = [graph.operators[i] for i in layer.operators]
    macs = sum(operator.macs for operator in operators)
    vector = sum(operator.vector_ops + operator.special_ops for operator in operators)
    shape = graph.tensors[graph.operators[layer.anchor].outputs[0]].shape
    channels = shape[1] if len(shape) > 2 else (shape[-1] if shape else 1)  # noqa: PLR2004  NCHW
    return LayerFigures(float(macs or vector or 1.0), channels)
