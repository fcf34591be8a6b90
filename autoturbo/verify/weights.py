"""Random weights, drawn once and written beside the models that refer to them.

The data file of a network need not be there: weights are made from a seed, each from a stream of
its own. Original and scheduled model name the same tensors and so read the same values.

Parameters are drawn, and so is everything whose values are not at hand. What gives the computation
its form stays as in the file: shapes, axes, indices, bounds, exponents, masks, zero points.

Scales of quantisation become powers of two. The sum of products of small integers is then exact in
float32 in whatever order it is taken, so that the rounding to the next integer cannot flip: a
schedule of a quantised network gives the original's very numbers, and one wrong element shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from autoturbo.files import atomic_writer
from autoturbo.graph.importer.external_data import is_stored, put_outside
from autoturbo.graph.importer.inputs import PARAMETERS
from autoturbo.verify.weight_values import (
    VIEWS,
    Array,
    Fill,
    Reading,
    fills_of,
    integer_range,
    pieces,
    readings,
)

_FLOATS = frozenset(
    (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE,
     TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2)
)  # fmt: skip
_MATRICES = frozenset((("MatMul", 0), ("MatMul", 1)))
_TABLE = ("Gather", 0)
"""Parameters besides those of :mod:`autoturbo.graph.importer.inputs`, by operator and position."""

_ZERO_POINTS = {
    ("DequantizeLinear", 0): 2, ("QLinearConv", 3): 5, ("QLinearMatMul", 3): 5,
    ("ConvInteger", 1): 3, ("MatMulInteger", 0): 2, ("MatMulInteger", 1): 3,
}  # fmt: skip
"""Where integers are read that stand for real numbers, and the position of their zero point."""

_SCALES: dict[str, tuple[int, ...]] = {
    "QuantizeLinear": (1,),
    "DequantizeLinear": (1,),
    "QLinearConv": (1, 4, 6),
    "QLinearMatMul": (1, 4, 6),
    "QGemm": (1, 4, 7),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), (1, 4, 6)),
    **dict.fromkeys(("QLinearAveragePool", "QLinearGlobalAveragePool"), (1, 3)),
    **dict.fromkeys(("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"), (1, 3)),
    "QLinearConcat": tuple(range(0, 96, 3)),
    "QLinearWhere": (2, 5, 7),
}
_WEIGHT_SCALES = {("DequantizeLinear", 1): 0, ("QLinearConv", 4): 3, ("QLinearMatMul", 4): 3}
"""Scales that may belong to a weight, and the position of that weight."""

_INDICES = frozenset(("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"))

_DEVIATIONS = 3.0
"""Standard deviations of a quantised weight that its range holds, as calibration leaves it."""

_ACTIVATION_SCALE = 2.0**-5
"""A quantum where the file's is not at hand: 8 bits then hold -4 to 4."""

_BIAS_STEPS = 1024.0
"""Standard deviation of a quantised bias, in products of the scales of values and weights."""


@dataclass(frozen=True, slots=True)
class ValueSource:
    """How the values of a tensor are made.

    Attributes:
        fill: their distribution; None for values that are given.
        data: the values where they are given.
    """

    fill: Fill | None = None
    data: Array | None = None


def value_sources(graph: GraphProto, tensors: Mapping[str, TensorProto]) -> dict[str, ValueSource]:
    """Return what to draw anew of the tensors stored in a graph; others are absent.

    Args:
        graph: the graph that reads them.
        tensors: by the name under which they are read; large ones without values.
    """
    return _SourceChooser(graph, tensors).value_sources()


class _SourceChooser:
    """Chooses how each tensor is drawn by the nodes that read it."""

    def __init__(self, graph: GraphProto, tensors: Mapping[str, TensorProto]) -> None:
        self._tensors = tensors
        dims = {name: tuple(tensor.dims) for name, tensor in tensors.items()}
        self._readings = readings(graph, dims)
        self._fills = fills_of(graph, dims)

    def value_sources(self) -> dict[str, ValueSource]:
        sources = {name: self._source(name) for name in self._tensors}
        return {name: source for name, source in sources.items() if source is not None}

    def _source(self, name: str) -> ValueSource | None:
        tensor, read = self._tensors[name], self._readings[name]
        if any(r.position in _SCALES.get(r.kind, ()) for r in read):
            return ValueSource(data=self._scale(name))
        if any((r.kind, r.position) in _ZERO_POINTS for r in read):
            return ValueSource(self._quantised(name))
        if tensor.data_type in _FLOATS:
            drawn = not is_stored(tensor) or _all_parameters(read)
            return ValueSource(self._fills[name]) if drawn else None
        return None if is_stored(tensor) else ValueSource(self._integers(name))

    def _scale(self, name: str) -> Array:
        """Return powers of two near the file's, or ones that give weights the wanted size.

        Activations keep their range or more, so that they do not saturate.
        """
        weight = self._weight_of(name)
        rounded = np.rint if weight is not None else np.ceil
        given = self._given(name)
        if given is None:
            quantum = _ACTIVATION_SCALE if weight is None else self._quantum(weight)
            given = np.full(tuple(self._tensors[name].dims), quantum, np.float64)
        usable = np.where(given > 0, given, _ACTIVATION_SCALE)
        return np.asarray(np.exp2(rounded(np.log2(usable))))

    def _weight_of(self, scale: str) -> str | None:
        """Return the stored tensor that a scale belongs to; None for that of an activation."""
        for reading in self._readings[scale]:
            position = _WEIGHT_SCALES.get((reading.kind, reading.position))
            if position is not None and reading.node.input[position] in self._tensors:
                return str(reading.node.input[position])
        return None

    def _given(self, name: str) -> Array | None:
        """Return the values of a stored tensor as float64; None where they are missing."""
        tensor = self._tensors.get(name)
        if tensor is None or not is_stored(tensor):
            return None
        return np.asarray(numpy_helper.to_array(tensor), np.float64)

    def _quantum(self, name: str) -> float:
        """Return the step of a quantised weight whose dequantised values spread as wanted."""
        return self._fills[name].spread / self._quantised(name).spread

    def _quantised(self, name: str) -> Fill:
        """Return the distribution of quantised numbers: bell-shaped around their zero."""
        element = self._tensors[name].data_type
        if element == TensorProto.INT32:
            return Fill(0.0, _BIAS_STEPS)
        low, high = integer_range(element) or (-128, 127)
        return Fill(self._zero_point(name), (high - low) / 2 / _DEVIATIONS)

    def _zero_point(self, name: str) -> float:
        """Return the integer that stands for zero: the file's, else the middle of the range."""
        for reading in self._readings[name]:
            position = _ZERO_POINTS.get((reading.kind, reading.position), len(reading.node.input))
            given = self._given("".join(reading.node.input[position : position + 1]))
            if given is not None:
                return float(np.rint(given.mean()))
        return self._zero(name)

    def _integers(self, name: str) -> Fill:
        """Return the distribution of missing integers: any entry of the table, else zero."""
        extents = [extent for r in self._readings[name] if (extent := self._table(r))]
        if extents:
            half = (min(extents) - 1) / 2
            return Fill(half, half, uniform=True)
        if self._tensors[name].data_type == TensorProto.BOOL:
            return Fill(0.5, 0.5, uniform=True)
        return Fill(self._zero(name), 0.0)

    def _table(self, reading: Reading) -> int | None:
        table = reading.node.input[0]
        if reading.kind not in _INDICES or reading.position != 1 or table not in self._tensors:
            return None
        dims = self._tensors[table].dims
        axis = next((a.i for a in reading.node.attribute if a.name == "axis"), 0)
        return int(min(dims) if reading.kind.endswith("ND") else dims[axis])

    def _zero(self, name: str) -> float:
        """Return what stands for zero by default: the middle of short unsigned types."""
        low, high = integer_range(self._tensors[name].data_type) or (-1, 0)
        return float((high + 1) // 2) if low == 0 and high < 1 << 16 else 0.0


def _all_parameters(read: Sequence[Reading]) -> bool:
    direct = [reading for reading in read if reading.kind not in VIEWS]
    return bool(direct) and all(map(_is_parameter, direct))


def _is_parameter(reading: Reading) -> bool:
    """Return whether parameters are read here; vectors are looked up for shapes too."""
    place = (reading.kind, reading.position)
    if place == _TABLE:
        return len(reading.dims) > 1
    return reading.position in PARAMETERS.get(reading.kind, ()) or place in _MATRICES


DATA_FILE = "weights.bin"

_INLINE = 128
"""Elements up to which a tensor stays in the model: shape inference may want to see it."""


def seeded_weights(
    model: ModelProto, folder: Path, seed: int, file: str = DATA_FILE
) -> dict[str, TensorProto]:
    """Draw the weights of a model and write them to ``folder / file``.

    Returns:
        By the name under which nodes read them: small ones whole, others references to the file;
        models that refer to it must be saved in its folder.

    Args:
        model: without local functions; loaded without its external data, which may be missing.
        folder: an existing folder.
        seed: values depend on it and on the tensor's name only.
        file: name of the data file.

    Raises:
        UsageError: the file cannot be written.
    """
    stored = stored_tensors(model.graph)
    chosen = value_sources(model.graph, stored)
    tensors: dict[str, TensorProto] = {}
    with atomic_writer(folder / file) as stream:
        for name, source in chosen.items():
            like = stored[name]
            tensor = TensorProto(name=name, data_type=like.data_type, dims=like.dims)
            _store_values(tensor, source, seed, stream, file)
            tensors[name] = tensor
    return tensors


def stored_tensors(graph: GraphProto) -> dict[str, TensorProto]:
    """Return the tensors stored in a graph, by the name under which its nodes read them."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    constants = ((node, _tensor_of(node)) for node in graph.node)
    return stored | {node.output[0]: tensor for node, tensor in constants if tensor is not None}


def _tensor_of(node: NodeProto) -> TensorProto | None:
    """Return the tensor of a Constant node; None where it holds plain numbers."""
    if node.op_type != "Constant":
        return None
    return next((a.t for a in node.attribute if a.name == "value"), None)


def _store_values(
    tensor: TensorProto, source: ValueSource, seed: int, stream: BinaryIO, file: str
) -> None:
    """Put the values of a tensor into it, or into the data file."""
    if math.prod(tensor.dims) <= _INLINE:
        tensor.raw_data = b"".join(_values(tensor, source, seed))
        return
    put_outside(tensor, _values(tensor, source, seed), stream, file)


def _values(tensor: TensorProto, source: ValueSource, seed: int) -> Iterator[bytes]:
    if source.fill is not None:
        yield from pieces(tensor, source.fill, seed)
    elif source.data is not None:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        yield bytes(numpy_helper.from_array(source.data.astype(dtype)).raw_data)


def with_weights(model: ModelProto, weights: Mapping[str, TensorProto]) -> ModelProto:
    """Return a copy of a model that reads the random weights wherever it names one.

    Constants that hold a weight become initializers, which alone can be references.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    constants = [n for n in graph.node if _tensor_of(n) and n.output[0] in weights]
    for node in constants:
        graph.initializer.append(weights[node.output[0]])
        graph.node.remove(node)
    for tensor in graph.initializer:
        drawn = weights.get(tensor.name)
        if drawn is not None:
            tensor.CopyFrom(drawn)
    return copy
