"""Operators that PyTorch carries out: what is neither a convolution nor a product, nor fused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from autoturbo_gpu.plan import Operator

CarryOut = Callable[[Operator, Sequence[Tensor]], Tensor]


def _unary(function: Callable[[Tensor], Tensor]) -> CarryOut:
    return lambda _, given: function(given[0])


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> CarryOut:
    return lambda _, given: function(given[0], given[1])


def _gelu(operator: Operator, given: Sequence[Tensor]) -> Tensor:
    approximate = operator.attributes.get("approximate", b"none")
    text = approximate.decode() if isinstance(approximate, bytes) else approximate
    return functional.gelu(given[0], approximate=text)


def _softmax(operator: Operator, given: Sequence[Tensor]) -> Tensor:
    return torch.softmax(given[0], operator.attributes.get("axis", -1))


def _layer_norm(operator: Operator, given: Sequence[Tensor]) -> Tensor:
    x, scale, *bias = given
    axis = operator.attributes.get("axis", -1) % x.dim()
    epsilon = operator.attributes.get("epsilon", 1e-5)
    return functional.layer_norm(x, x.shape[axis:], scale, bias[0] if bias else None, epsilon)


def _batch_norm(operator: Operator, given: Sequence[Tensor]) -> Tensor:
    x, scale, bias, mean, variance = given
    epsilon = operator.attributes.get("epsilon", 1e-5)
    return functional.batch_norm(x, mean, variance, scale, bias, eps=epsilon)


def _clip(operator: Operator, given: Sequence[Tensor]) -> Tensor:
    return given[0].clamp(operator.attributes.get("min"), operator.attributes.get("max"))


def _mean(operator: Operator, given: Sequence[Tensor]) -> Tensor:
    axes = operator.attributes.get("axes", list(range(given[0].dim())))
    return given[0].mean(dim=axes, keepdim=bool(operator.attributes.get("keepdims", 1)))


def _window(operator: Operator) -> tuple[dict[str, Any], list[int]]:
    """Return what PyTorch calls a pool's window, and its padding on all four sides."""
    given = operator.attributes
    sides = list(given["kernel_shape"])
    top, left, bottom, right = given.get("pads", (0, 0, 0, 0))
    window = {"kernel_size": sides, "stride": list(given.get("strides", (1, 1))),
              "ceil_mode": bool(given.get("ceil_mode", 0))}  # fmt: skip
    return window, [left, right, top, bottom]


def _max_pool(operator: Operator, given: Sequence[Tensor]) -> Tensor:
    window, pads = _window(operator)
    padded = functional.pad(given[0], pads, value=float("-inf")) if any(pads) else given[0]
    made: Tensor = functional.max_pool2d(padded, **window)
    return made


def _average_pool(operator: Operator, given: Sequence[Tensor]) -> Tensor:
    window, pads = _window(operator)
    x = given[0]
    if not any(pads):
        return functional.avg_pool2d(x, **window)
    sums = functional.avg_pool2d(functional.pad(x, pads), **window)
    if operator.attributes.get("count_include_pad", 0):
        return sums
    ones = functional.pad(torch.ones_like(x[:1, :1]), pads)
    return sums / functional.avg_pool2d(ones, **window)


def _convolution(operator: Operator, given: Sequence[Tensor]) -> Tensor:
    """Return a convolution that is not one of ours: in groups, dilated, of one dimension."""
    x, weight, *bias = given
    attributes = operator.attributes
    spatial = x.dim() - 2
    pads = attributes.get("pads", (0,) * (2 * spatial))
    sides = [
        side for axis in reversed(range(spatial)) for side in (pads[axis], pads[axis + spatial])
    ]
    function = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}[spatial]
    return function(
        functional.pad(x, sides), weight, bias[0] if bias else None,
        stride=tuple(attributes.get("strides", (1,) * spatial)),
        dilation=tuple(attributes.get("dilations", (1,) * spatial)),
        groups=attributes.get("group", 1),
    )  # fmt: skip


def _gemm(operator: Operator, given: Sequence[Tensor]) -> Tensor:
    a, b, *c = given
    attributes = operator.attributes
    a = a.T if attributes.get("transA") else a
    b = b.T if attributes.get("transB") else b
    product: Tensor = attributes.get("alpha", 1.0) * (a @ b)
    return product + attributes.get("beta", 1.0) * c[0] if c else product


CARRIED_OUT: dict[str, CarryOut] = {
    "Add": _binary(torch.add), "Sub": _binary(torch.sub), "Mul": _binary(torch.mul),
    "Div": _binary(torch.div), "Relu": _unary(torch.relu), "Sigmoid": _unary(torch.sigmoid),
    "Tanh": _unary(torch.tanh), "Sqrt": _unary(torch.sqrt), "Erf": _unary(torch.erf),
    "Pow": _binary(torch.pow), "Gelu": _gelu, "Softmax": _softmax,
    "LayerNormalization": _layer_norm, "MaxPool": _max_pool, "AveragePool": _average_pool,
    "GlobalAveragePool": _unary(lambda x: x.mean(dim=tuple(range(2, x.dim())), keepdim=True)),
    "Concat": lambda operator, given: torch.cat(list(given), operator.attributes["axis"]),
    "BatchNormalization": _batch_norm, "Clip": _clip, "ReduceMean": _mean, "Conv": _convolution,
    "Gemm": _gemm,
}  # fmt: skip
"""By ONNX's name of the operator."""
