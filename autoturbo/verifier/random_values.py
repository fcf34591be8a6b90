"""Random inputs and weights of a model: drawn from a seed, each from a stream of its own.

Inputs are of the right type, within what they index.

Weights are written beside the models that refer to them; the data file of a network need not be
there. Original and scheduled model name the same tensors and so read the same values. Parameters
are drawn, and so is everything whose values are not at hand. What gives the computation its form
stays as in the file: shapes, axes, indices, bounds, exponents, masks, zero points.

Scales of quantisation become powers of two. The sum of products of small integers is then exact in
float32 in whatever order it is taken, so that the rounding to the next integer cannot flip: a
schedule of a quantised network gives the original's very numbers, and one wrong element shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
    shape_inference,
)

from autoturbo.errors import Location, ModelError
from autoturbo.files import atomic_writer, parse_json
from autoturbo.graph.importer.external_data import is_stored, put_outside
from autoturbo.graph.importer.inputs import PARAMETERS
from autoturbo.graph.values import static_shape
from autoturbo.verifier.weight_values import (
    VIEWS,
    Array,
    Fill,
    Reading,
    drawn,
    fills_of,
    generator,
    integer_range,
    pieces,
    readings,
)

Extents = Mapping[str, tuple[int, ...]]
Given = Mapping[str, Sequence[float]]


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
) -> dict[str, range]:
    """Return the range of every input that is an index or a length, by name.

    Indices are followed through conversions, views, joins and the addition of constants to the
    tables that they address; of several tables the smallest counts.

    Args:
        model: The model; its weights may be missing.
        extents: Extents of the inputs, and of other values where they are known.
        given: Elements of inputs that are not drawn.
    """
    trace = _IndexTrace(model, extents, given)
    for node in model.graph.node:
        trace.follow(node)
    ranges = {
        name: range(max(0, -low), max(high, max(0, -low) + 1))
        for name, (low, high) in trace.found.items()
    }
    # Lengths last: they are exact, tables are only bounds.
    return _full_masks(model) | ranges | trace.lengths


_COUNTED = "ReduceSum"
"""Counts the tokens that a mask of ones and zeros keeps."""

_LENGTHS = ("GroupQueryAttention", 5)
"""Reads how many tokens each sample has, less one, and at which position."""

_QUERY, _PAST, _TOTAL = 0, 3, 6
"""Positions of the lengths' sources: new tokens, past ones, and the number of both."""

_ON_THE_WAY = frozenset(("Cast", "Sub", "Add", "Reshape", "Squeeze", "Unsqueeze", "Identity"))


def _full_masks(model: ModelProto) -> dict[str, range]:
    """Return the ranges of masks that give the lengths of samples: ones alone."""
    makers = {name: node for node in model.graph.node for name in node.output}
    op_type, place = _LENGTHS
    readers = (node for node in model.graph.node if node.op_type == op_type)
    ranges = {}
    for name in {node.input[place] for node in readers if len(node.input) > place}:
        node = makers.get(name)
        while node is not None and node.op_type in _ON_THE_WAY:
            node = makers.get(node.input[0])
        while node is not None and node.op_type in (_COUNTED, "Cast"):
            ranges[node.input[0]] = range(1, 2)
            node = makers.get(node.input[0])
    return ranges


class _IndexTrace:
    """Trace of each value to the inputs it comes from, with the constants added on the way.

    Attributes:
        found: Per input, the smallest addend and the smallest bound after addition.
        lengths: Per input that says how many tokens there are, that number alone.
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
        self.lengths: dict[str, range] = {}

    def follow(self, node: NodeProto) -> None:
        """Record the tables that a node addresses, and the sources of its outputs."""
        for indices, extent in self._lookups(node):
            self._bound(indices, extent)
        if node.op_type == _LENGTHS[0]:
            self._fix_lengths(node)
        self._pass_on(node)

    def _fix_lengths(self, node: NodeProto) -> None:
        """Set the lengths of a grouped attention: each sample has all past and new tokens."""
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
                self.lengths[source] = range(length - added, length - added + 1)

    def _number(self, name: str) -> int | None:
        """Return the number that a value is, if the file or the user gives it."""
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
        """Yield the indices that a node reads, each with the extent that it indexes."""
        dims = self._shapes.get(node.input[0]) if node.input else None
        match node.op_type:
            case "Gather" | "GatherElements" | "ScatterElements" if dims:
                yield node.input[1], dims[_axis(node)]
            case "GatherND" | "ScatterND" if dims:
                # All components within the shortest dimension, whichever they count along.
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
    """Return static extents by value name, as far as the file and shape inference know them."""
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

_FLAGS = range(2)
"""Integers that index nothing are flags or masks."""

_BYTES = frozenset((TensorProto.UINT8, TensorProto.INT8))
"""Integers that stand for numbers (pixels, quantised values) unless they index something."""


def random_inputs(
    model: ModelProto,
    seed: int,
    shapes: Mapping[str, Sequence[int]] | None = None,
    parameters: Sequence[str] = (),
    given: Given = MappingProxyType({}),
) -> dict[str, Array]:
    """Return one random array per real input of a model.

    Floats are standard normal. Integers stay within the tables that they index, or within the range
    in the file's metadata; lengths of samples go with the extents. Integers that index nothing, and
    booleans, are flags, with both values in every row: attention that is masked everywhere has no
    value.

    Args:
        model: Initializers that are listed as inputs get no array.
        seed: Values depend on it and on the input's name only.
        shapes: Extents by input name, where the file has others or none; of other values where they
            are known.
        parameters: Inputs that are weights left out of the file; they are drawn as weights are.
        given: Elements by input name that replace drawn ones: others are drawn so that they go with
            these.

    Raises:
        ModelError: An input whose extents are not known, or that is no tensor of numbers.
    """
    stored = {tensor.name for tensor in model.graph.initializer}
    known = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    elements: dict[str, int] = {}
    extents: dict[str, tuple[int, ...]] = {}
    for value in model.graph.input:
        if value.name not in stored:
            elements[value.name] = _element(value)
            extents[value.name] = known[value.name] if value.name in known else _shape(value)
    limits = _limits(model, known | extents, given)
    dims = {name: shape for name, shape in extents.items() if name in parameters}
    fills = fills_of(model.graph, dims) if dims else {}
    arrays: dict[str, Array] = {}
    for name, shape in extents.items():
        stream, element = generator(seed, name), elements[name]
        if name in fills:
            values = drawn(stream, fills[name], math.prod(shape)).reshape(shape)
        else:
            values = _random_array(stream, element, shape, limits.get(name))
        arrays[name] = values.astype(helper.tensor_dtype_to_np_dtype(element))
    return arrays


def _element(value: ValueInfoProto) -> int:
    element = value.type.tensor_type.elem_type
    if element in (TensorProto.UNDEFINED, TensorProto.STRING):
        place = Location(field=value.name)
        raise ModelError("the input is not a tensor of numbers: no values can be drawn", place)
    return int(element)


def _shape(value: ValueInfoProto) -> tuple[int, ...]:
    dims = value.type.tensor_type.shape.dim
    if not all(dim.HasField("dim_value") for dim in dims):
        place = Location(field=value.name)
        raise ModelError("the input has no static shape", place, "give its shape")
    return tuple(dim.dim_value for dim in dims)


def _limits(model: ModelProto, extents: Extents, given: Given) -> dict[str, range]:
    """Return the ranges of integer inputs: the metadata's if any, else by their tables."""
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    ranges = index_ranges(model, extents, given)
    try:
        named = parse_json(metadata.get(LIMITS_KEY, "{}"))
        return ranges | {name: range(low, high) for name, (low, high) in named.items()}
    except (ValueError, TypeError, AttributeError):
        hint = 'for example {"tokens": [0, 100]}; or remove it'
        raise ModelError("not ranges of inputs", Location(field=LIMITS_KEY), hint) from None


def _random_array(
    stream: np.random.Generator, element: int, shape: tuple[int, ...], limits: range | None
) -> Array:
    whole = integer_range(element)
    if element == TensorProto.BOOL:
        return _random_integers(stream, _FLAGS, shape)
    if whole is None:
        return stream.standard_normal(shape, np.float32)
    if limits is None:
        limits = range(whole[0], whole[1] + 1) if element in _BYTES else _FLAGS
    return _random_integers(stream, limits, shape)


def _random_integers(stream: np.random.Generator, limits: range, shape: tuple[int, ...]) -> Array:
    values = stream.integers(limits.start, limits.stop, shape)
    if limits == _FLAGS and shape and shape[-1] > 0:
        # Zero first: in a row of one element the flag is set.
        values[..., -1] = 0
        values[..., 0] = 1
    return values


# ---------------------------------------------------------------------------------------- weights

_FLOATS = frozenset(
    (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE,
     TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2)
)  # fmt: skip
_MATRICES = frozenset((("MatMul", 0), ("MatMul", 1)))
_TABLE = ("Gather", 0)
"""Parameters besides those of the importer (``PARAMETERS``), by operator and position."""

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
    """Source of a tensor's values: a distribution or given values.

    Attributes:
        fill: Their distribution; None for values that are given.
        data: The values where they are given.
    """

    fill: Fill | None = None
    data: Array | None = None


def value_sources(graph: GraphProto, tensors: Mapping[str, TensorProto]) -> dict[str, ValueSource]:
    """Return how to draw the tensors stored in a graph; those that stay are absent.

    Args:
        graph: The graph that reads them.
        tensors: Tensors by the name under which they are read; large ones without values.
    """
    chooser = _SourceChooser(graph, tensors)
    sources = {name: chooser.source(name) for name in tensors}
    return {name: source for name, source in sources.items() if source is not None}


class _SourceChooser:
    """Chooses how each tensor is drawn by the nodes that read it."""

    def __init__(self, graph: GraphProto, tensors: Mapping[str, TensorProto]) -> None:
        self._tensors = tensors
        dims = {name: tuple(tensor.dims) for name, tensor in tensors.items()}
        self._readings = readings(graph, dims)
        self._fills = fills_of(graph, dims)

    def source(self, name: str) -> ValueSource | None:
        """Return how the values of a tensor are drawn; None if they stay."""
        tensor, read = self._tensors[name], self._readings[name]
        if any(r.position in _SCALES.get(r.kind, ()) for r in read):
            return ValueSource(data=self._scale(name))
        if any((r.kind, r.position) in _ZERO_POINTS for r in read):
            return ValueSource(self._quantised(name))
        if tensor.data_type in _FLOATS:
            # Small constants that are no parameters (an epsilon, a mask) keep their meaning.
            anew = not is_stored(tensor) or _all_parameters(read)
            return ValueSource(self._fills[name]) if anew else None
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
        """Return the step of a quantised weight whose dequantised values have the wanted spread."""
        return self._fills[name].spread / self._quantised(name).spread

    def _quantised(self, name: str) -> Fill:
        """Return the distribution of quantised numbers: bell-shaped around their zero."""
        element = self._tensors[name].data_type
        if element == TensorProto.INT32:
            return Fill(0.0, _BIAS_STEPS)
        low, high = integer_range(element) or (-128, 127)
        return Fill(self._zero_point(name), (high - low) / 2 / _DEVIATIONS)

    def _zero_point(self, name: str) -> float:
        """Return the integer that represents zero: the file's, else the middle of the range."""
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
        return int(min(dims) if reading.kind.endswith("ND") else dims[_axis(reading.node)])

    def _zero(self, name: str) -> float:
        """Return the default zero point: the middle of short unsigned types."""
        low, high = integer_range(self._tensors[name].data_type) or (-1, 0)
        return float((high + 1) // 2) if low == 0 and high < 1 << 16 else 0.0


def _all_parameters(read: Sequence[Reading]) -> bool:
    direct = [reading for reading in read if reading.kind not in VIEWS]
    return bool(direct) and all(map(_is_parameter, direct))


def _is_parameter(reading: Reading) -> bool:
    """Return whether an input is a parameter; a vector in a lookup may be a shape."""
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
        model: Without local functions; loaded without its external data, which may be missing.
        folder: An existing folder.
        seed: Values depend on it and on the tensor's name only.
        file: Name of the data file.

    Raises:
        UsageError: The file cannot be written.
    """
    stored = stored_tensors(model.graph)
    chosen = value_sources(model.graph, stored)
    tensors: dict[str, TensorProto] = {}
    with atomic_writer(folder / file) as stream:
        for name, source in chosen.items():
            like = stored[name]
            tensor = TensorProto(name=name, data_type=like.data_type, dims=like.dims)
            if math.prod(tensor.dims) <= _INLINE:
                tensor.raw_data = b"".join(_values(tensor, source, seed))
            else:
                put_outside(tensor, _values(tensor, source, seed), stream, file)
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


def _values(tensor: TensorProto, source: ValueSource, seed: int) -> Iterator[bytes]:
    if source.fill is not None:
        yield from pieces(tensor, source.fill, seed)
    elif source.data is not None:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        yield bytes(numpy_helper.from_array(source.data.astype(dtype)).raw_data)


def with_weights(model: ModelProto, weights: Mapping[str, TensorProto]) -> ModelProto:
    """Return a copy of a model that reads the random weights in place of its own.

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
        if tensor.name in weights:
            tensor.CopyFrom(weights[tensor.name])
    return copy
