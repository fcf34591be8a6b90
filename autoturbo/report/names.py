"""Layers and kernels in words: by operator and shape, with their names in the model file.

``node_Conv_293`` says nothing to a reader, and is what knobs and pins call the layer: a label has
both, as in ``Conv 3x3 64->64, 56x56 (node_Conv_293)``.
"""

from __future__ import annotations

from collections.abc import Iterable

from autoturbo.graph.operators import Graph, Operator
from autoturbo.schedule.schedule import Schedule
from autoturbo.verifier.findings import instance_name

_CONVOLUTIONS = ("Conv", "ConvTranspose")

_SPATIAL = 3
"""Dimensions from which on a tensor of a convolution has more than samples and channels."""


def operator_title(graph: Graph, operator: Operator) -> str:
    """Return an operator with its shape, samples left out: ``MatMul 128x768x3072``."""
    kind = operator.kind
    if kind in _CONVOLUTIONS and not operator.opaque:
        return f"{kind} {_convolved(graph, operator)}"
    axes = {axis.name: axis.extent for axis in operator.axes}
    if {"m", "k", "n"} <= set(axes) and not operator.opaque:
        return f"{kind} {_times(axes[name] for name in 'mkn')}"
    shape = _of_sample(graph.tensors[operator.outputs[0]].shape) if operator.outputs else ()
    return f"{kind} {_times(shape)}" if shape else kind


def _convolved(graph: Graph, operator: Operator) -> str:
    """Return the window, the channels and the result's extents of a convolution."""
    read, weights = (graph.tensors[tensor].shape for tensor in operator.inputs[:2])
    made = graph.tensors[operator.outputs[0]].shape
    channels = f"{read[1]}->{made[1]}"
    # weights hold the channels of one group: those read, or those made by a transposed convolution
    groups = (read if operator.kind == _CONVOLUTIONS[0] else made)[1] // weights[1]
    if groups > 1:
        deep = groups == read[1] == made[1]
        channels = f"{groups}, depthwise" if deep else f"{channels}, grouped"
    extents = f", {_times(made[2:])}" if len(made) >= _SPATIAL else ""
    return f"{_times(weights[2:])} {channels}{extents}"


def _of_sample(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of one sample: the first dimension is that of samples nearly everywhere."""
    return shape[1:] if len(shape) > 1 else shape


def _times(extents: Iterable[int]) -> str:
    return "x".join(map(str, extents))


def operator_label(graph: Graph, operator: Operator) -> str:
    """Return an operator with its shape and its name in the model file."""
    return f"{operator_title(graph, operator)} ({operator.name})"


def layer_title(schedule: Schedule, layer: int) -> str:
    """Return the operator of a layer that others follow, with its shape."""
    context = schedule.context
    return operator_title(context.graph, context.graph.operators[context.layers[layer].anchor])


def layer_label(schedule: Schedule, layer: int) -> str:
    """Return a layer by its operator and shape, with its name in the model file."""
    context = schedule.context
    return operator_label(context.graph, context.graph.operators[context.layers[layer].anchor])


def layer_labels(schedule: Schedule) -> dict[str, str]:
    """Return the label of each layer by its name in the model file."""
    layers = schedule.context.layers
    return {layer.name: layer_label(schedule, layer.index) for layer in layers}


def kernel_label(schedule: Schedule, instance: int) -> str:
    """Return a kernel by its last layer's operator, with the name of its instance."""
    subgraph = schedule.instances.subgraphs[int(schedule.instances.subgraph[instance])]
    return f"{layer_title(schedule, subgraph.layers[-1])} ({instance_name(schedule, instance)})"
