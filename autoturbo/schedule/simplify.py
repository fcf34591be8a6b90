"""Normalisations written out: Relay's ``SimplifyInference``, which runs before operator fusion.

A layer, group or instance normalisation becomes a mean, a variance and element-wise arithmetic
(graphturbo.md, section 8.1), so that fusion makes three kernels of it: neither reduction fuses
onward. The exporters of the paper's front-ends (TensorFlow 1.13, PyTorch 1.8) wrote them out too.
Batch normalisations need nothing: they are element-wise operators here already.
"""

from __future__ import annotations

import dataclasses

from autoturbo.graph.domain import AccessMap, AxisKind, along
from autoturbo.graph.operators import Graph, Operator, Pattern, Tensor, Work

WRITTEN_OUT = frozenset(("LayerNormalization", "GroupNormalization", "InstanceNormalization"))
"""Kinds that are taken apart, if they have one output and an access map for each input."""


def simplified(graph: Graph) -> Graph:
    """Return the network with its normalisations expanded; the graph itself if it has none."""
    tensors, operators = list(graph.tensors), []
    for operator in graph.operators:
        operators.extend(_written_out(operator, tensors))
    if len(operators) == len(graph.operators):
        return graph
    return dataclasses.replace(
        graph, tensors=tuple(tensors), operators=tuple(operators), file_places=()
    )


def _written_out(operator: Operator, tensors: list[Tensor]) -> list[Operator]:
    """Return the operators of a normalisation; two tensors are added for the statistics."""
    if operator.kind not in WRITTEN_OUT or operator.opaque or len(operator.outputs) != 1:
        return [operator]
    data, access = operator.inputs[0], operator.input_maps[0]
    kept = [a for a, axis in enumerate(operator.axes) if axis.kind is not AxisKind.WHOLE]
    statistic = AccessMap(tuple(along(axis) for axis in kept))
    mean, variance = len(tensors), len(tensors) + 1
    shape = tuple(operator.axes[axis].extent for axis in kept)
    for name in ("mean", "variance"):
        label = f"{tensors[operator.outputs[0]].name} {name}"
        tensors.append(Tensor(label, shape, tensors[data].dtype))
    return [
        _reduction(operator, "Mean", (data,), (access,), mean, statistic),
        _reduction(
            operator, "Variance", (data, mean), (access, statistic), variance, statistic
        ),
        _rest(operator, (data, mean, variance), (access, statistic, statistic)),
    ]  # fmt: skip


def _reduction(
    operator: Operator,
    kind: str,
    inputs: tuple[int, ...],
    maps: tuple[AccessMap, ...],
    output: int,
    statistic: AccessMap,
) -> Operator:
    """Return a sum over the normalised axes, scaled once per result.

    An addition per element; for the variance also a subtraction and a multiplication.

    Args:
        operator: The normalisation.
        kind: Of the sum, which is named after it.
        inputs: Tensors that are read; with two, the second is the mean.
        maps: How each is addressed.
        output: The tensor that is made.
        statistic: How it is addressed.
    """
    axes = tuple(
        dataclasses.replace(axis, kind=AxisKind.REDUCTION) if axis.kind is AxisKind.WHOLE else axis
        for axis in operator.axes
    )
    per_element = 1.0 if len(inputs) == 1 else 3.0
    return dataclasses.replace(
        operator, name=f"{operator.name} {kind}", kind=kind, inputs=inputs, outputs=(output,),
        axes=axes, input_maps=maps, output_maps=(statistic,),
        work=Work(vector=1.0, vector_per_point=per_element), pattern=Pattern.REDUCE,
        parameterised=False, attributes=(), integer=None,
    )  # fmt: skip


def _rest(operator: Operator, inputs: tuple[int, ...], maps: tuple[AccessMap, ...]) -> Operator:
    """Return ``(x - mean) * 1 / sqrt(variance + epsilon) * scale + shift``, as one operator.

    Subtraction, two multiplications and an addition per element, a root and a division per
    statistic.
    """
    axes = tuple(dataclasses.replace(axis, kind=AxisKind.PARALLEL) for axis in operator.axes)
    rows = 1
    for axis in operator.axes:
        rows *= axis.extent if axis.kind is not AxisKind.WHOLE else 1
    work = Work(vector=4.0, special=2.0 * rows / max(operator.points, 1))
    return dataclasses.replace(
        operator, name=f"{operator.name} Normalize", kind="Normalize",
        inputs=(*inputs, *operator.inputs[1:]), axes=axes,
        input_maps=(*maps, *operator.input_maps[1:]), work=work, pattern=Pattern.BROADCAST,
        integer=None,
    )  # fmt: skip
