"""What fused blocks of layers take on some of a target's cores.

A block is a kernel of its own: its layers forced into one sub-graph, inputs and outputs in off-chip
memory, on a target with fewer cores; the other cores stand idle (DLFusion's model parallelism).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

from autoturbo.graph.extract import extract
from autoturbo.graph.layers import Layer, layers_of
from autoturbo.graph.operators import Graph
from autoturbo.graph.synthetic import convolution
from autoturbo.hardware.target import Target
from autoturbo.schedule.baselines.dlfusion import CoreModel, Sample, allowed_cores, fit
from autoturbo.schedule.baselines.dlfusion.blocks import LayerFigures
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.simulate.evaluator import Evaluator
from autoturbo.simulate.measurement import Measurement

CHANNELS = (16, 32, 64, 128, 256, 512)
"""Of synthesised layers."""

SIZES = (7, 14, 28, 56)
"""Rows and columns of synthesised layers."""


@dataclass(eq=False)
class BlockProfiles:
    """Times of one model's blocks on one target, remembered by what a block computes.

    Attributes:
        graph: the model.
        target: whose cores are shared out.
        dtype: the compute type.
        made: schedules that were simulated so far.
    """

    graph: Graph
    target: Target
    dtype: str
    made: int = 0
    _layers: tuple[Layer, ...] = ()
    _figures: tuple[LayerFigures, ...] = ()
    _known: dict[tuple[str, int], float] = field(default_factory=dict)
    _asked: dict[tuple[int, int, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Cut the model into layers."""
        self._layers = layers_of(self.graph)
        self._figures = tuple(_figures_of(self.graph, layer) for layer in self._layers)

    @property
    def figures(self) -> tuple[LayerFigures, ...]:
        """Per layer."""
        return self._figures

    @property
    def cores(self) -> int:
        """Of a cluster of the target."""
        return self.target.cores

    def seconds(self, first: int, end: int, cores: int) -> float:
        """Of a block; infinite where it does not fit."""
        key = (first, end, cores)
        if key not in self._asked:
            self._asked[key] = self._seconds(first, end, cores)
        return self._asked[key]

    def _seconds(self, first: int, end: int, cores: int) -> float:
        inside = [o for layer in self._layers[first:end] for o in layer.operators]
        part = extract(self.graph, inside)
        key = (part.hash, cores)
        if key not in self._known:
            self.made += 1
            self._known[key] = fused_seconds(part, self.target, self.dtype, cores)
        return self._known[key]


def fused_seconds(graph: Graph, target: Target, dtype: str, cores: int) -> float:
    """Seconds of a graph as one kernel on some cores; infinite where it does not fit."""
    fewer = dataclasses.replace(target, cores=cores)
    evaluator = Evaluator(graph, fewer, dtype)
    *inner, last = layers_of(graph)
    joined = tuple(SubGraphKnobs(layer.name, boundary="merge") for layer in inner)
    knobs = Knobs(output_scope="DDR", overrides=(*joined, SubGraphKnobs(last.name, boundary="cut")))
    outcome = evaluator.evaluate(knobs)
    return outcome.latency if isinstance(outcome, Measurement) else math.inf


def core_model(target: Target, dtype: str) -> CoreModel:
    """DLFusion's model of the best number of cores, from synthesised layers on a target."""
    allowed = allowed_cores(target.cores)
    samples = []
    for channels in CHANNELS:
        for size in SIZES:
            graph = convolution(channels, size)
            figures = LayerFigures(float(graph.macs), channels)
            for cores in allowed:
                seconds = fused_seconds(graph, target, dtype, cores)
                samples.append(Sample(figures, cores, seconds))
    return fit([one for one in samples if math.isfinite(one.seconds)], allowed)


def _figures_of(graph: Graph, layer: Layer) -> LayerFigures:
    operators = [graph.operators[i] for i in layer.operators]
    macs = sum(operator.macs for operator in operators)
    vector = sum(operator.vector_ops + operator.special_ops for operator in operators)
    shape = graph.tensors[graph.operators[layer.anchor].outputs[0]].shape
    channels = shape[1] if len(shape) > 2 else (shape[-1] if shape else 1)  # noqa: PLR2004  NCHW
    return LayerFigures(float(macs or vector or 1.0), channels)
