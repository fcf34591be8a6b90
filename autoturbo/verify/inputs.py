"""Random inputs of a model: of the right type, within what they index."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from autoturbo.errors import Location, ModelError
from autoturbo.graph.weight_fills import fills_of
from autoturbo.graph.weight_values import Array, drawn, generator, integer_range
from autoturbo.verify.index_ranges import Extents, Range, index_ranges

LIMITS_KEY = "autoturbo.input_limits"
"""Metadata of a file: by input name, the half-open range of its integers, as JSON."""

_FLAGS = Range(0, 2)
"""Integers that index nothing are flags or masks."""

_BYTES = frozenset((TensorProto.UINT8, TensorProto.INT8))
"""Integers that stand for numbers (pixels, quantised values) unless they index something."""


@dataclass(frozen=True, slots=True)
class _Input:
    name: str
    element: int
    shape: tuple[int, ...]


def random_inputs(
    model: ModelProto,
    seed: int,
    shapes: Mapping[str, Sequence[int]] | None = None,
    parameters: Sequence[str] = (),
) -> dict[str, Array]:
    """Make one array per real input of a model.

    Floats are standard normal. Integers stay within the tables that they index, or within what
    the file's metadata says; those that index nothing, and booleans, are flags, with both values
    in every row: attention that is masked everywhere has no value.

    Args:
        model: initializers that are listed as inputs get no array.
        seed: values depend on it and on the input's name only.
        shapes: extents by input name, where the file has others or none.
        parameters: inputs that are weights left out of the file; they are drawn as weights are.

    Raises:
        ModelError: an input whose extents are not known, or that is no tensor of numbers.
    """
    inputs = _inputs(model, shapes or {})
    limits = _limits(model, {i.name: i.shape for i in inputs})
    dims = {i.name: i.shape for i in inputs if i.name in parameters}
    fills = fills_of(model.graph, dims) if dims else {}
    arrays: dict[str, Array] = {}
    for one in inputs:
        stream = generator(seed, one.name)
        if one.name in fills:
            values = drawn(stream, fills[one.name], int(np.prod(one.shape, dtype=np.int64)))
            arrays[one.name] = values.reshape(one.shape).astype(_dtype(one))
        else:
            arrays[one.name] = _array(stream, one, limits.get(one.name))
    return arrays


def _inputs(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> list[_Input]:
    stored = {tensor.name for tensor in model.graph.initializer}
    plain = [value for value in model.graph.input if value.name not in stored]
    return [_Input(v.name, _element(v), _shape(v, shapes.get(v.name))) for v in plain]


def _element(value: ValueInfoProto) -> int:
    element = value.type.tensor_type.elem_type
    if element in (TensorProto.UNDEFINED, TensorProto.STRING):
        at = Location(field=value.name)
        raise ModelError("the input is not a tensor of numbers: no values can be drawn", at)
    return int(element)


def _shape(value: ValueInfoProto, given: Sequence[int] | None) -> tuple[int, ...]:
    if given is not None:
        return tuple(given)
    dims = value.type.tensor_type.shape.dim
    if not all(dim.HasField("dim_value") for dim in dims):
        at = Location(field=value.name)
        raise ModelError("the input has no static shape", at, "give its shape")
    return tuple(dim.dim_value for dim in dims)


def _limits(model: ModelProto, extents: Extents) -> dict[str, Range]:
    """Ranges of integer inputs: the metadata's where there are any, else by what they index."""
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    named: dict[str, list[int]] = json.loads(metadata.get(LIMITS_KEY, "{}"))
    found = index_ranges(model, extents)
    return found | {name: Range(low, high) for name, (low, high) in named.items()}


def _dtype(one: _Input) -> np.dtype[np.generic]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(one.element))


def _array(stream: np.random.Generator, one: _Input, limits: Range | None) -> Array:
    whole = integer_range(one.element)
    if one.element == TensorProto.BOOL:
        return _draw(stream, _FLAGS, one.shape).astype(_dtype(one))
    if whole is None:
        return stream.standard_normal(one.shape, np.float32).astype(_dtype(one))
    if limits is None:
        limits = Range(whole[0], whole[1] + 1) if one.element in _BYTES else _FLAGS
    return _draw(stream, limits, one.shape).astype(_dtype(one))


def _draw(stream: np.random.Generator, limits: Range, shape: tuple[int, ...]) -> Array:
    values = stream.integers(limits.low, limits.high, shape)
    if limits == _FLAGS and shape and shape[-1] > 0:
        values[..., -1] = 0
        values[..., 0] = 1
    return values
