"""How regenerated weights are distributed: by what the graph does with each tensor.

A network with arbitrary weights overflows or dies within a few layers. Weights that multiply are
scaled by their fan-in, so that activations keep their magnitude: variance ``2 / fan_in`` in front
of a rectifier (convolutions), ``1 / fan_in`` in matrix products. Normalisation scales are near
one, variances positive, everything that is added small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import onnx


@dataclass(frozen=True, slots=True)
class Fill:
    """Distribution of a tensor's values.

    Attributes:
        mean: expected value.
        spread: standard deviation; of a positive fill the half width of a uniform distribution.
        positive: whether values must stay above zero (variances).
    """

    mean: float
    spread: float
    positive: bool = False


SCALE = Fill(1.0, 0.1)
BIAS = Fill(0.0, 0.02)
VARIANCE = Fill(1.0, 0.5, positive=True)
EMBEDDING = Fill(0.0, 0.05)

_NORMALISATIONS = ("LayerNormalization", "InstanceNormalization", "GroupNormalization")


def _spread(gain: float, fan_in: int) -> Fill:
    return Fill(0.0, math.sqrt(gain / max(fan_in, 1)))


def _convolution(node: onnx.NodeProto, dims: Sequence[int]) -> Fill:
    del node
    return _spread(2.0, math.prod(dims[1:]))


def _gemm(node: onnx.NodeProto, dims: Sequence[int]) -> Fill:
    transposed = any(a.name == "transB" and a.i for a in node.attribute)
    return _spread(1.0, dims[1] if transposed else dims[0])


def _matmul(node: onnx.NodeProto, dims: Sequence[int]) -> Fill:
    del node
    return _spread(1.0, dims[-2] if len(dims) > 1 else dims[0])


def _always(fill: Fill) -> Callable[[onnx.NodeProto, Sequence[int]], Fill]:
    return lambda _node, _dims: fill


_RULES: Mapping[tuple[str, int], Callable[[onnx.NodeProto, Sequence[int]], Fill]] = {
    ("Conv", 1): _convolution,
    ("Gemm", 1): _gemm,
    ("MatMul", 0): _matmul,
    ("MatMul", 1): _matmul,
    ("Gather", 0): _always(EMBEDDING),
    ("Mul", 0): _always(SCALE),
    ("Mul", 1): _always(SCALE),
    ("BatchNormalization", 1): _always(SCALE),
    ("BatchNormalization", 4): _always(VARIANCE),
    **{(kind, 1): _always(SCALE) for kind in _NORMALISATIONS},
}


def fills(graph: onnx.GraphProto) -> dict[str, Fill]:
    """Choose a fill for every initializer, by its first consumer that has a rule."""
    dims = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    chosen: dict[str, Fill] = {}
    for node in graph.node:
        for position, name in enumerate(node.input):
            rule = _RULES.get((node.op_type, position))
            if rule is not None and name in dims and name not in chosen:
                chosen[name] = rule(node, dims[name])
    return {name: chosen.get(name, _by_shape(shape)) for name, shape in dims.items()}


def _by_shape(dims: Sequence[int]) -> Fill:
    """Of a tensor whose consumers have no rule: vectors are added, matrices may multiply."""
    wide = sum(d > 1 for d in dims) > 1
    return _spread(1.0, max(dims)) if wide else BIAS
