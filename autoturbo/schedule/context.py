"""One model at one batch size on one target: the input of every pass of the scheduler.

Built once per (graph, target, data type, batches per cluster) and shared by all settings of the
knobs, it holds what does not depend on them: layers, flat arrays and the order of loops. What
passes remember of it stands with them (:func:`autoturbo.caches.remembered`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autoturbo.graph.arrays import GraphArrays, Ints, graph_arrays
from autoturbo.graph.batch import trace_batch
from autoturbo.graph.domain import AxisKind
from autoturbo.graph.layers import Layer, layers_of
from autoturbo.graph.operators import Engine, Graph, Operator, Work
from autoturbo.hardware.target import Target
from autoturbo.schedule.work import (
    WorkArrays,
    in_integers,
    second_operand,
    work_arrays,
    work_of,
)

BATCH = "batch"
"""Clusters divide samples: as published."""

SPLITS = (BATCH, "spatial", "channel", "pipeline", "either", "branches")
"""Division among clusters: samples, rows or channels of every output, sub-graphs."""


STAGING_SHARE = 16
"""One sixteenth of LB is the staging zone: 64 KiB of 1 MiB holds two tiles of 32 KiB, enough to
hide one transfer behind another, and leaves the 8/4/2/1 splits of ResNet-50 as they are."""


@dataclass(frozen=True, slots=True)
class Zones:
    """Capacities of the buffers that the allocator may use, in bytes.

    Attributes:
        lb: Per core.
        gb: Per cluster.
        lb_staging: Per core, at the top of LB.
        gb_staging: Per cluster, at the top of GB.
    """

    lb: int
    gb: int
    lb_staging: int
    gb_staging: int

    @staticmethod
    def of(target: Target) -> Zones:
        """Divide a target's buffers."""
        staging = target.lb.capacity // STAGING_SHARE
        wanted = target.cores * (target.lb.weight_capacity + staging)
        shared = min(wanted, target.gb.capacity // 2)
        return Zones(target.lb.capacity - staging, target.gb.capacity - shared, staging, shared)


class LayerArrays(NamedTuple):
    """Layers for compiled code; ``x_start[i]:x_start[i+1]`` are layer ``i``'s entries of ``x``.

    ``work`` is the weight of one domain point per operator when recomputation is judged: its
    multiply-accumulates and vector operations; ``recurrent`` is 1 for operators that go step by
    step.
    """

    op_start: Ints
    op: Ints
    in_start: Ints
    in_tensor: Ints
    out_start: Ints
    out_tensor: Ints
    in_place: Ints
    work: Ints
    recurrent: Ints


@dataclass(frozen=True, eq=False)
class SchedulingContext:
    """A model for one number of samples on one target: the input of all passes.

    Attributes:
        graph: The model for ``graph.batch`` samples, which a cluster processes at once.
        target: The accelerator, as far as the schedule uses it.
        dtype: The compute type.
        arrays: The graph for compiled code.
        work: Its operators' arithmetic for compiled code.
        layers: Its layers in topological order.
        layer_arrays: The layers for compiled code.
        loop_order: Per tensor, its dimensions from the outermost loop to the innermost: samples,
            rows, columns, then channels, whatever the file's layout of images (the paper's is
            NHWC).
        producer: Per tensor, the layer that makes it, -1 for inputs and weights.
        consumers: Per tensor, the layers that read it.
        chip: All of the accelerator, of which ``target`` is what the schedule uses.
        alike: Clusters that compute the same for samples of their own.
    """

    graph: Graph
    target: Target
    dtype: str
    arrays: GraphArrays
    work: WorkArrays
    layers: tuple[Layer, ...]
    layer_arrays: LayerArrays
    loop_order: tuple[tuple[int, ...], ...]
    producer: tuple[int, ...]
    consumers: tuple[tuple[int, ...], ...]
    chip: Target
    alike: int = 1

    @property
    def own_weights(self) -> float:
        """Return the share of a weight's bytes in DDR that is read for one cluster alone."""
        return 1.0 / self.alike if self.target.ddr.multicast else 1.0

    @functools.cached_property
    def layer_index(self) -> dict[str, int]:
        """Return the index of each layer by name."""
        return {layer.name: layer.index for layer in self.layers}

    @property
    def cluster_lb_bytes(self) -> int:
        """Return the bytes of a cluster's LB that buffers can have: all but the staging zones.

        An instance always runs on all cores. A part that needs more would be split too coarsely:
        some of its tensors never find a place.
        """
        return self.target.cores * Zones.of(self.target).lb


def make_context(
    graph: Graph,
    target: Target,
    dtype: str,
    layers: tuple[Layer, ...] | None = None,
    chip: Target | None = None,
    alike: int = 1,
) -> SchedulingContext:
    """Return a context: a graph prepared for scheduling on a target.

    Args:
        graph: The model for the samples that a cluster processes at once.
        target: The accelerator.
        dtype: The compute type.
        layers: Layers other than those of :func:`layers_of` (the baselines').
        chip: What ``target`` is a part of; itself if None.
        alike: Clusters that compute the same for samples of their own.
    """
    layers = layers_of(graph) if layers is None else layers
    integers = in_integers(target, dtype)
    maker = {tensor: layer.index for layer in layers for tensor in layer.outputs}
    readers: list[list[int]] = [[] for _ in graph.tensors]
    for layer in layers:
        for tensor in layer.inputs:
            readers[tensor].append(layer.index)
    return SchedulingContext(
        graph, target, dtype, graph_arrays(graph, dtype, integers=integers),
        work_arrays(graph, target, dtype), layers, _layer_arrays(graph, layers, target, dtype),
        loop_orders(graph), tuple(maker.get(tensor, -1) for tensor in range(len(graph.tensors))),
        tuple(map(tuple, readers)), chip or target, alike,
    )  # fmt: skip


def _layer_arrays(
    graph: Graph, layers: tuple[Layer, ...], target: Target, dtype: str
) -> LayerArrays:
    def flat(groups: list[tuple[int, ...]]) -> tuple[Ints, Ints]:
        return ints(np.cumsum([0, *map(len, groups)])), ints([x for g in groups for x in g])

    ints, operators = functools.partial(np.asarray, dtype=np.int64), graph.operators
    return LayerArrays(
        *flat([layer.operators for layer in layers]),
        *flat([layer.inputs for layer in layers]),
        *flat([layer.outputs for layer in layers]),
        in_place=ints([layer.in_place for layer in layers]),
        work=ints([_point_work(work_of(one, target, dtype)) for one in operators]),
        recurrent=ints([operator.recurrent for operator in operators]),
    )


def _point_work(work: Work) -> int:
    """Return the cost of a domain point in vector-lane operations."""
    if work.macs:
        return work.macs
    plain = work.vector + work.vector_per_point + work.real
    return round(32 * plain) + 128 * round(work.special)


def loop_orders(graph: Graph) -> tuple[tuple[int, ...], ...]:
    """Return the dimensions of every tensor from outermost to innermost loop, channels last."""
    channel = [len(t.shape) - 1 for t in graph.tensors]
    for tensor in graph.inputs:
        if len(graph.tensors[tensor].shape) >= 4 and _is_image(graph, tensor):  # noqa: PLR2004
            channel[tensor] = 1  # NCHW, NCDHW
    for operator in graph.operators:
        axis = _channel_axis(graph, operator, channel)
        for tensor, access in zip(operator.outputs, operator.output_maps, strict=True):
            dims = [
                d
                for d, dim_access in enumerate(access.dims)
                if any(a == axis for a, _ in dim_access.terms)
            ]
            channel[tensor] = dims[0] if dims else len(graph.tensors[tensor].shape) - 1
    samples = _samples_behind(graph)
    return tuple(
        _loop_order(len(tensor.shape), samples.get(index, 0), last)
        for index, (tensor, last) in enumerate(zip(graph.tensors, channel, strict=True))
    )


def _loop_order(rank: int, first: int, last: int) -> tuple[int, ...]:
    """Return the dimensions of a tensor in order, but for the outermost and the innermost."""
    outer = [first] if rank and first != last else []
    inner = [last] if rank else []
    return (*outer, *(dim for dim in range(rank) if dim not in (*outer, *inner)), *inner)


def _samples_behind(graph: Graph) -> dict[int, int]:
    """Return the dimension with the samples of each tensor, where inputs have it behind others.

    Recurrences go through time in front of the samples.
    """
    recurrent = any(operator.recurrent for operator in graph.operators)
    if recurrent or not any(graph.samples.values()):
        return {}
    trace = trace_batch(graph)
    return {} if trace.obstacle else {tensor: dim for tensor, (dim, _) in trace.tensors.items()}


def _is_image(graph: Graph, tensor: int) -> bool:
    """Return whether an input has channels after its samples: not only products read it.

    Inputs of products without windows alone (the keys and values of earlier positions) have heads
    there, and lie in memory as in the file.
    """
    windows = products = False
    waiting, seen = [tensor], {tensor}
    while waiting:
        for reader in graph.consumers[waiting.pop()]:
            operator = graph.operators[reader]
            if any(axis.kind is AxisKind.WINDOW for axis in operator.axes):
                windows = True
            elif operator.engine is Engine.MATRIX:
                products = True
            else:
                waiting += [t for t in operator.outputs if t not in seen]
                seen.update(operator.outputs)
    return windows or not products


def _channel_axis(graph: Graph, operator: Operator, channel: list[int]) -> int | None:
    """Return the axis of an operator along which its output has channels.

    If it splits channels (heads, and positions in them), that is the innermost part: neighbours in
    memory stay neighbours.
    """
    if operator.engine is Engine.MATRIX and len(operator.inputs) > 1:
        # the axis that only the second operand and the output have: output channels, columns
        second = operator.input_axes(second_operand(operator))
        channel_axes = (second - operator.input_axes(0)) & operator.output_axes
        return max(channel_axes, default=None)
    for tensor, access in zip(operator.inputs, operator.input_maps, strict=True):
        if graph.tensors[tensor].constant or not access.dims:
            continue
        terms = access.dims[channel[tensor]].terms if channel[tensor] < len(access.dims) else ()
        return min(terms, key=lambda term: abs(term[1]))[0] if terms else None
    return None


def outer_axis(operator: Operator, output: int, dim: int, *, cores: bool = False) -> int | None:
    """Return the axis that splits an output dimension into contiguous parts; None if none may.

    In a merged dimension that is the outermost axis with more than one step; it must be parallel,
    and the reach of the other axes must not overlap with the next step (transposed convolution).

    Args:
        operator: The operator.
        output: Position of the output.
        dim: Its dimension.
        cores: Allow also an axis that only the cores of a part may divide.
    """
    access = operator.output_maps[output].dims[dim]
    terms = sorted(access.terms, key=lambda term: -abs(term[1]))
    steps = [(axis, c) for axis, c in terms if operator.axes[axis].extent > 1]
    if not steps:
        return None
    (axis, stride), *inner = steps
    reach = sum(abs(c) * (operator.axes[a].extent - 1) for a, c in inner)
    kind = operator.axes[axis].kind
    parallel = kind is AxisKind.PARALLEL or (cores and kind is AxisKind.SPREAD)
    return axis if parallel and reach < abs(stride) else None
