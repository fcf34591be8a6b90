"""Which units can run a layer."""

from __future__ import annotations

from autoturbo.graph.layers import Layer
from autoturbo.graph.operators import Engine, Graph, Operator
from autoturbo.hardware.machine import Machine, OperatorRule, Unit

_CONVOLUTION_RANK = 3
"""Dimensions of the smallest convolution's tensors: samples, channels, one of space."""


def takes(unit: Unit, graph: Graph, layer: Layer) -> bool:
    """Whether a unit can run a layer."""
    return not unit.takes or any(_fits(rule, graph, layer) for rule in unit.takes)


def units_of(
    machine: Machine, graph: Graph, layers: tuple[Layer, ...]
) -> tuple[tuple[int, ...], ...]:
    """Per layer the units that can run it, by index, in the machine's order."""
    return tuple(
        tuple(index for index, unit in enumerate(machine.units) if takes(unit, graph, layer))
        for layer in layers
    )


def _fits(rule: OperatorRule, graph: Graph, layer: Layer) -> bool:
    anchor = graph.operators[layer.anchor]
    others = (graph.operators[i] for i in layer.operators if i != layer.anchor)
    if anchor.kind not in rule.kinds or anchor.opaque:
        return False
    if any(other.engine is not Engine.NONE and other.kind not in rule.fused for other in others):
        return False
    read, made, groups = channels(graph, anchor)
    whole = read % rule.channels_multiple == 0 and made % rule.channels_multiple == 0
    return whole and (rule.grouped or groups == 1)


def channels(graph: Graph, operator: Operator) -> tuple[int, int, int]:
    """Input channels, output channels and groups of an operator with weights.

    A product's are its inner and its last extent; what has no second operand has none: 1, 1, 1.
    """
    if len(operator.inputs) < 2:  # noqa: PLR2004  data and weights
        return 1, 1, 1
    data, weight = (graph.tensors[t].shape for t in operator.inputs[:2])
    made = graph.tensors[operator.outputs[0]].shape
    if operator.engine is not Engine.MATRIX or not weight or not data or not made:
        return 1, 1, 1
    if len(weight) >= _CONVOLUTION_RANK and len(data) == len(weight):
        read = data[1]
        return read, made[1], max(read // max(weight[1], 1), 1)
    return data[-1], made[-1], 1
