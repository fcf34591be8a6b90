"""What the integer inputs of a model index, and so how large they may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, numpy_helper, shape_inference

from autoturbo.graph.external_data import is_stored
from autoturbo.graph.values import static_shape

Extents = Mapping[str, tuple[int, ...]]


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


def index_ranges(model: ModelProto, extents: Extents) -> dict[str, Range]:
    """The range of every input that indexes something, by name.

    Indices are followed through conversions, views, joins and the addition of constants to the
    tables that they look up; of several tables the smallest counts.

    Args:
        model: its weights may be missing.
        extents: of the inputs.
    """
    trace = _Trace(model, extents)
    for node in model.graph.node:
        trace.follow(node)
    found = {
        name: Range(max(0, -low), max(high, max(0, -low) + 1))
        for name, (low, high) in trace.found.items()
    }
    return _full_masks(model) | found


_COUNTED = "ReduceSum"
"""Counts the tokens that a mask of ones and zeros keeps."""

_LENGTHS = ("GroupQueryAttention", 5)
"""Reads how many tokens each sample has, and at which position."""

_ON_THE_WAY = frozenset(("Cast", "Sub", "Add", "Reshape", "Squeeze", "Unsqueeze", "Identity"))


def _full_masks(model: ModelProto) -> dict[str, Range]:
    """Masks that say how long samples are: ones, for a sample has its new tokens at least."""
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


class _Trace:
    """Which inputs each value comes from, and what was added on the way.

    Attributes:
        found: per input, the smallest addend and the smallest bound after addition.
    """

    def __init__(self, model: ModelProto, extents: Extents) -> None:
        self._shapes = _shapes(model) | dict(extents)
        self._known = {
            tensor.name: numpy_helper.to_array(tensor)
            for tensor in model.graph.initializer
            if is_stored(tensor)
        }
        self._origins: dict[str, dict[str, tuple[int, int]]] = {
            value.name: {value.name: (0, 0)} for value in model.graph.input
        }
        self.found: dict[str, tuple[int, int]] = {}

    def follow(self, node: NodeProto) -> None:
        """Note what a node looks up, and where its outputs come from."""
        for indices, extent in self._lookups(node):
            self._bound(indices, extent)
        self._pass_on(node)

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
        """Offsets into joined tables: the result is an index, the operand a constant."""
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
        """Indices that a node reads, each with the extent of what they index."""
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
    """Static extents by value name, as far as the file and shape inference know them."""
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
