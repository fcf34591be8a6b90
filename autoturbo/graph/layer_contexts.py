"""Labels of layers by what they compute and what lies around them, alike in unlike models.

A layer's label of radius 0 says what it computes; that of radius ``r + 1`` joins its label of
radius ``r`` with those of the layers that it reads and of the layers that read it (the colour
refinement of Weisfeiler and Leman). Samples are left out: a label is the same at any batch. Layers
of two models with one label of radius ``r`` cannot be told apart by anything within ``r`` steps.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence

from autoturbo.graph.layers import Layer
from autoturbo.graph.operators import Graph

RADII = 4
"""Labels are made up to this radius; a residual block is about as long."""

_WEIGHTS = 1024
"""Elements from which a constant says what a layer is, whatever the shape of what it reads."""


def layer_contexts(graph: Graph, layers: Sequence[Layer]) -> tuple[tuple[str, ...], ...]:
    """Labels of every layer, the most telling first.

    The first :data:`RADII` + 1 count shapes, from the largest radius to 0; the last is of radius 1
    and counts only kinds of operators and shapes of weights: it is the same for a longer sequence
    or a larger image.

    Args:
        graph: the model.
        layers: of the model, in topological order.
    """
    around = _neighbours(layers)
    exact = [[_hash(_work(graph, layer)) for layer in layers]]
    for _ in range(RADII):
        exact.append(_wider(exact[-1], around))
    loose = _wider([_hash(_kinds(graph, layer)) for layer in layers], around)
    return tuple(zip(*reversed(exact), loose, strict=True))


def _neighbours(layers: Sequence[Layer]) -> list[tuple[list[int], list[int]]]:
    """Of every layer, those that it reads, in order of its inputs, and those that read it."""
    maker = {tensor: layer.index for layer in layers for tensor in layer.outputs}
    before = [[maker[t] for t in layer.inputs if t in maker] for layer in layers]
    after: list[list[int]] = [[] for _ in layers]
    for layer, makers in zip(layers, before, strict=True):
        for index in dict.fromkeys(makers):
            after[index].append(layer.index)
    return list(zip(before, after, strict=True))


def _wider(labels: Sequence[str], around: Sequence[tuple[list[int], list[int]]]) -> list[str]:
    return [
        _hash([own, [labels[i] for i in before], sorted(labels[i] for i in after)])
        for own, (before, after) in zip(labels, around, strict=True)
    ]


def _work(graph: Graph, layer: Layer) -> list[object]:
    """What a layer computes: kinds, attributes, shapes without samples, arithmetic a sample."""
    found: list[object] = []
    for index in layer.operators:
        operator = graph.operators[index]
        shapes = [_sampled(graph, t) for t in (*operator.inputs, *operator.outputs)]
        found.append([operator.kind, [list(pair) for pair in operator.attributes], shapes])
    return found


def _sampled(graph: Graph, tensor: int) -> list[int]:
    """The shape of a tensor, of one sample where its leading extent counts samples."""
    shape = list(graph.tensors[tensor].shape)
    if shape and not graph.tensors[tensor].constant and shape[0] % graph.batch == 0:
        shape[0] //= graph.batch
    return shape


def _kinds(graph: Graph, layer: Layer) -> list[object]:
    weights = [list(graph.tensors[t].shape) for t in layer.weights]
    large = [shape for shape in weights if math.prod(shape) >= _WEIGHTS]
    return [[graph.operators[index].kind for index in layer.operators], large]


def _hash(value: object) -> str:
    """Twelve hexadecimal digits: a million layers share one by chance once in five hundred."""
    text = json.dumps(value, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
