"""Random inputs of a model: of the right type, within what they index."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from onnx import (
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
    shape_inference,
)

from autoturbo.errors import Location, ModelError
from autoturbo.graph.importer.external_data import is_stored
from autoturbo.graph.importer.values import static_shape
from autoturbo.verify.weight_values import Array, drawn, fills_of, generator, integer_range

Extents = Mapping[str, tuple[int, ...]]
Given = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Range:
    """Integers from ``low`` to ``high``, the latter excluded."""

    low: int
    high: int


_VIEWS = frozenset(
    ("Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Slice",
     "Expand", "Tile", "Gather", "Split")
)  # fmt: skip
"""Operators whose outputs hold elements of their first input."""

_JOINS = frozenset(("Concat", "Where", "Max", "Min"))
"""Operators whose outputs hold elements of any of their inputs."""

_EMBEDDINGS = {"EmbedLayerNormalization": {0: 2, 1: 4}}
"""Operators of other domains that look up tables: position of the indices, of the table."""


def index_ranges(
    model: ModelProto, extents: Extents, given: Given = MappingProxyType({})
) -> dict[str, Range]:
    """Return the range of every input that indexes something, or says how long it is, by name.

    Indices are followed through conversions, views, joins and the addition of constants to the
    tables that they look up; of several tables the smallest counts.

    Args:
        model: its weights may be missing.
        extents: of the inputs, and of other values where they are known.
        given: elements of inputs that are not drawn.
    """
    trace = _IndexTrace(model, extents, given)
    for node in model.graph.node:
        trace.follow(node)
    found = {
        name: Range(max(0, -low), max(high, max(0, -low) + 1))
        for name, (low, high) in trace.found.items()
    }
    return _full_masks(model) | found | trace.lengths


_COUNTED = "ReduceSum"
"""Counts the tokens that a mask of ones and zeros keeps."""

_LENGTHS = ("GroupQueryAttention", 5)
"""Reads how many tokens each sample has, less one, and at which position."""

_QUERY, _PAST, _TOTAL = 0, 3, 6
"""Positions of what they follow from: new tokens, past ones, and how many both are."""

_ON_THE_WAY = frozenset(("Cast", "Sub", "Add", "Reshape", "Squeeze", "Unsqueeze", "Identity"))


def _full_masks(model: ModelProto) -> dict[str, Range]:
    """Return the ranges of masks that say how long samples are: ones alone."""
    makers = {name: node for node in model.graph.node for name in node.output}
    op_type, place = _LENGTHS
    readers = (node for node in model.graph.node if node.op_type == op_type)
    found = {}
    for name in {node.input[place] for node in readers if len(node.input) > place}:
        node = makers.get(name)
        while node is not None and node.op_type in _ON_THE_WAY:
            node = makers.get(node.input[0])
        while node is not None and node.op_type in (_COUNTED, "Cast"):
            found[node.input[0]] = Range(1, 2)
            node = makers.get(node.input[0])
    return found


class _IndexTrace:
    """Which inputs each value comes from, and what was added on the way.

    Attributes:
        found: per input, the smallest addend and the smallest bound after addition.
        lengths: per input that says how many tokens there are, that number alone.
    """

    def __init__(self, model: ModelProto, extents: Extents, given: Given) -> None:
        self._shapes = _shapes(model) | dict(extents)
        self._given = given
        self._known = {
            tensor.name: numpy_helper.to_array(tensor)
            for tensor in model.graph.initializer
            if is_stored(tensor)
        }
        self._origins: dict[str, dict[str, tuple[int, int]]] = {
            value.name: {value.name: (0, 0)} for value in model.graph.input
        }
        self.found: dict[str, tuple[int, int]] = {}
        self.lengths: dict[str, Range] = {}

    def follow(self, node: NodeProto) -> None:
        """Note what a node looks up, and where its outputs come from."""
        for indices, extent in self._lookups(node):
            self._bound(indices, extent)
        if node.op_type == _LENGTHS[0]:
            self._fix_lengths(node)
        self._pass_on(node)

    def _fix_lengths(self, node: NodeProto) -> None:
        """Have every sample of attention by groups hold all tokens, past ones and new ones."""
        names = [*node.input, *[""] * (1 + _TOTAL - len(node.input))]
        total = self._number(names[_TOTAL]) if names[_TOTAL] else None
        if total is None:
            sides = (names[_QUERY], 1), *([(names[_PAST], 2)] if names[_PAST] else [])
            dims = [self._shapes.get(name, ())[axis : axis + 1] for name, axis in sides]
            if not all(dims):
                return
            total = sum(extent for (extent,) in dims)
        for name, length in ((names[_LENGTHS[1]], total - 1), (names[_TOTAL], total)):
            for source, (added, _) in self._origins.get(name, {}).items():
                self.lengths[source] = Range(length - added, length - added + 1)

    def _number(self, name: str) -> int | None:
        """Return the number that a value is, where the file has it or it was given."""
        if name in self._known:
            return int(self._known[name].reshape(-1)[0])
        origins = self._origins.get(name, {}).items()
        return next((int(self._given[k][0]) + v for k, (v, _) in origins if k in self._given), None)

    def _bound(self, indices: str, extent: int) -> None:
        for name, (low, high) in self._origins.get(indices, {}).items():
            old = self.found.get(name, (low, extent - high))
            self.found[name] = (min(old[0], low), min(old[1], extent - high))

    def _pass_on(self, node: NodeProto) -> None:
        if node.op_type in _VIEWS:
            sources: Sequence[str] = node.input[:1]
        elif node.op_type in _JOINS:
            sources = node.input
        elif node.op_type in ("Add", "Sub"):
            self._add(node)
            return
        else:
            return
        origins = {k: v for name in sources for k, v in self._origins.get(name, {}).items()}
        if origins:
            self._origins.update(dict.fromkeys(node.output, origins))

    def _add(self, node: NodeProto) -> None:
        """Follow an index to which a constant is added: an offset into joined tables."""
        left, right = node.input
        if node.op_type == "Add" and left in self._known:
            left, right = right, left
        offsets = self._known.get(right)
        if offsets is None or offsets.dtype.kind != "i" or not offsets.size:
            return
        sign = 1 if node.op_type == "Add" else -1
        ends = sorted((sign * int(offsets.min()), sign * int(offsets.max())))
        self._origins[node.output[0]] = {
            name: (low + ends[0], high + ends[1])
            for name, (low, high) in self._origins.get(left, {}).items()
        }

    def _lookups(self, node: NodeProto) -> Iterator[tuple[str, int]]:
        """Yield the indices that a node reads, each with the extent of what they index."""
        dims = self._shapes.get(node.input[0]) if node.input else None
        match node.op_type:
            case "Gather" | "GatherElements" | "ScatterElements" if dims:
                yield node.input[1], dims[_axis(node)]
            case "GatherND" | "ScatterND" if dims:
                yield node.input[1], min(dims)
            case "OneHot":
                depth = self._known.get(node.input[1], np.ones(1, np.int64))
                yield node.input[0], int(depth.reshape(-1)[0])
            case kind if kind in _EMBEDDINGS:
                for indices, table in _EMBEDDINGS[kind].items():
                    rows = self._shapes.get(node.input[table])
                    if rows:
                        yield node.input[indices], rows[0]


def _axis(node: NodeProto) -> int:
    return next((int(a.i) for a in node.attribute if a.name == "axis"), 0)


def _shapes(model: ModelProto) -> dict[str, tuple[int, ...]]:
    """Return static extents by value name, as far as file and shape inference know them."""
    try:
        graph = shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception:  # noqa: BLE001 - what is declared is enough for most models
        graph = model.graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.value_info, *graph.input, *graph.output):
        extents = static_shape(value.type)
        if extents is not None:
            shapes[value.name] = extents
    return shapes


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
    given: Given = MappingProxyType({}),
) -> dict[str, Array]:
    """Make one array per real input of a model.

    Floats are standard normal. Integers stay within the tables that they index, or within what
    the file's metadata says; lengths of samples go with the extents. Integers that index nothing,
    and booleans, are flags, with both values in every row: attention that is masked everywhere has
    no value.

    Args:
        model: initializers that are listed as inputs get no array.
        seed: values depend on it and on the input's name only.
        shapes: extents by input name, where the file has others or none; of other values where
            they are known.
        parameters: inputs that are weights left out of the file; they are drawn as weights are.
        given: elements by input name that are used in place of what is drawn for them: others
            are drawn so that they go with these.

    Raises:
        ModelError: an input whose extents are not known, or that is no tensor of numbers.
    """
    inputs = _inputs(model, shapes or {})
    known = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    limits = _limits(model, known | {i.name: i.shape for i in inputs}, given)
    dims = {i.name: i.shape for i in inputs if i.name in parameters}
    fills = fills_of(model.graph, dims) if dims else {}
    arrays: dict[str, Array] = {}
    for one in inputs:
        stream = generator(seed, one.name)
        if one.name in fills:
            values = drawn(stream, fills[one.name], int(np.prod(one.shape, dtype=np.int64)))
            arrays[one.name] = values.reshape(one.shape).astype(_dtype(one))
        else:
            arrays[one.name] = _random_array(stream, one, limits.get(one.name))
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


def _limits(model: ModelProto, extents: Extents, given: Given) -> dict[str, Range]:
    """Return ranges of integer inputs: the metadata's if any, else by what they index."""
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    named: dict[str, list[int]] = json.loads(metadata.get(LIMITS_KEY, "{}"))
    found = index_ranges(model, extents, given)
    return found | {name: Range(low, high) for name, (low, high) in named.items()}


def _dtype(one: _Input) -> np.dtype[np.generic]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(one.element))


def _random_array(stream: np.random.Generator, one: _Input, limits: Range | None) -> Array:
    whole = integer_range(one.element)
    if one.element == TensorProto.BOOL:
        return _random_integers(stream, _FLAGS, one.shape).astype(_dtype(one))
    if whole is None:
        return stream.standard_normal(one.shape, np.float32).astype(_dtype(one))
    if limits is None:
        limits = Range(whole[0], whole[1] + 1) if one.element in _BYTES else _FLAGS
    return _random_integers(stream, limits, one.shape).astype(_dtype(one))


def _random_integers(stream: np.random.Generator, limits: Range, shape: tuple[int, ...]) -> Array:
    values = stream.integers(limits.low, limits.high, shape)
    if limits == _FLAGS and shape and shape[-1] > 0:
        values[..., -1] = 0
        values[..., 0] = 1
    return values
