"""Tensors, operators and the graph they form. Knows no hardware.

What each operator of ONNX computes and reads stands in :mod:`autoturbo.graph.operator_table`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Any

from autoturbo.errors import Location, ModelError
from autoturbo.graph.domain import (
    SHOWN,
    AccessMap,
    Axis,
    AxisKind,
    Interval,
    Region,
    axes_of,
    hull,
    interval_of,
    volume,
)
from autoturbo.schema import Natural, TypedDict

MAX_RANK = 16
"""Most dimensions of a tensor: compiled code has so much room for each."""

MAX_AXES = 2 * MAX_RANK
"""Most axes of one operator, likewise; a reshape may have those of both of its tensors."""

MAX_EXTENT = 2**32 - 1
"""Most elements of one dimension: compiled code keeps numbers of parts in 32 bits."""

MAX_POINTS = 2**60
"""Most points of an operator's domain, and positions that it may address: sums stay in 64 bits."""

GRAPH_SCHEMA = 1
"""Version of the canonical form behind :attr:`Graph.hash`; part of every database key."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Narrow storage of a constant that the model dequantises.

    Attributes:
        bits: Bits of an element.
        scales: float numbers beside them.
        points: Zero points beside them, of as many bits.
        integer: The elements are 8-bit integers, which a target may compute with.
    """

    bits: int
    scales: int
    points: int
    integer: bool


@dataclass(frozen=True, slots=True)
class Origin:
    """Content of the file that a constant holds, perhaps converted or rearranged.

    Attributes:
        stored: The constant in the file.
        elements: Elements of the file's constant.
        part: Choice of its elements from that constant; empty for all of them.
        beside: Scales and zero points of the conversion.
    """

    stored: str
    elements: int
    part: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value of the graph.

    Attributes:
        name: Name in the model file.
        shape: Elements per dimension; ``()`` for a scalar.
        dtype: Element type in numpy's spelling (``"float32"``, ``"int64"``, ``"bool"``).
        constant: Depends on no real input of the model: a weight.
        integer_bytes: Bytes per element where the target computes in int8, if not those of its
            type (:mod:`autoturbo.graph.integers`): 1 of real values that are held as 8-bit ones, 0
            of scales that are part of the instructions.
        stored: How it is kept, if as narrower values that are made real where they are read.
        origin: What of the file it holds, of a constant that others may hold too.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    constant: bool = False
    integer_bytes: int | None = None
    stored: Stored | None = None
    origin: Origin | None = field(default=None, compare=False)

    @property
    def elements(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def whole(self) -> Region:
        """Return the region that covers the tensor."""
        return tuple((0, extent) for extent in self.shape)


class Engine(StrEnum):
    """The engine of a core that an operator keeps busy."""

    MATRIX = "matrix"
    VECTOR = "vector"
    MOVE = "move"
    """Rearranges data without arithmetic: transpose, gather, concatenation, padding."""
    NONE = "none"
    """Costs nothing: a reshape that only renames positions."""


class Pattern(IntEnum):
    """Operator classes of TVM v0.8's fusion pass (graphturbo.md 8.1)."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCE = 3
    OUT_ELEMENTWISE_FUSABLE = 4
    OPAQUE = 8


@dataclass(frozen=True, slots=True)
class Work:
    """Arithmetic of an operator per point of its domain.

    Attributes:
        macs: Multiply-accumulates per point of the whole domain (1 for matrix operators).
        vector: Vector operations per output point (add, multiply, compare, convert).
        special: Transcendental operations per output point (exp, erf, division, square root).
        vector_per_point: Vector operations per point of the whole domain (pooling windows, means).
        real: Vector operations per output point on real values, in the arithmetic of an operator
            that is computed in int8 otherwise.
    """

    macs: int = 0
    vector: float = 0.0
    special: float = 0.0
    vector_per_point: float = 0.0
    real: float = 0.0


NO_WORK = Work()
"""Of operators that only rename or move data."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One node of the model: an iteration domain and an access map per tensor.

    Attributes:
        name: Unique in its graph.
        kind: Operator type, with its domain in front if not ONNX's own (``com.microsoft.Gelu``).
        inputs: Indices into :attr:`Graph.tensors`, absent optional inputs left out; what the bodies
            of control flow read from outside is among them.
        outputs: Indices into :attr:`Graph.tensors`.
        axes: The iteration domain.
        input_maps: One per input.
        output_maps: One per output.
        work: Arithmetic per point.
        engine: The engine that it keeps busy.
        pattern: Its class in TVM's fusion pass.
        parameterised: Has learned parameters (convolution, matrix product by a weight,
            normalisation with scale), so that a layer holds at most one.
        attributes: Other properties that distinguish it (``(("epsilon", "1e-05"),)``), for hashes.
        opaque: Why it runs whole, not analysed: without access maps, never split; or None.
        counted: Its work is known; where it is not, figures of the graph are incomplete.
        integer: Its arithmetic where the target computes in int8, at that type's rates; None: it is
            computed in the run's type.
        unpacking: Vector operations that make weights real which are kept narrow, however many
            results there are; none in integer arithmetic.
    """

    name: str
    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    axes: tuple[Axis, ...]
    input_maps: tuple[AccessMap, ...]
    output_maps: tuple[AccessMap, ...]
    work: Work = NO_WORK
    engine: Engine = Engine.VECTOR
    pattern: Pattern = Pattern.OPAQUE
    parameterised: bool = False
    attributes: tuple[tuple[str, str], ...] = ()
    opaque: str | None = None
    counted: bool = True
    integer: Work | None = None
    unpacking: float = 0.0

    @property
    def extents(self) -> tuple[int, ...]:
        """Return the trip counts of the axes."""
        return tuple(axis.extent for axis in self.axes)

    @property
    def macs(self) -> int:
        """Return the multiply-accumulates of the operator, padding positions included."""
        return self.work.macs * self.points

    @property
    def points(self) -> int:
        """Return the number of points of the domain that are computed."""
        return math.prod(axis.extent for axis in self.axes if axis.kind is not AxisKind.GAP)

    @property
    def output_points(self) -> int:
        """Return the number of points over the axes that are not summed over."""
        return math.prod(axis.extent for axis in self.axes if axis.kind in SHOWN)

    @property
    def vector_ops(self) -> float:
        """Return the plain vector operations of the operator."""
        plain = self.work.vector * self.output_points + self.work.vector_per_point * self.points
        return plain + self.unpacking

    @property
    def special_ops(self) -> float:
        """Return the transcendental operations of the operator."""
        return self.work.special * self.output_points

    @property
    def reduces_all(self) -> bool:
        """Return whether it reduces all elements of its input: a sum, an extreme or a range.

        Parts of the input give partial results, which one further step combines.
        """
        if self.kind == "DynamicQuantizeLinear":
            return self.opaque is None
        split = any(a.kind is AxisKind.PARALLEL and a.extent > 1 for a in self.axes)
        return self.pattern is Pattern.REDUCE and not split and not self.work.macs

    @property
    def recurrent(self) -> bool:
        """Return whether each of its steps needs the one before."""
        return any(axis.kind is AxisKind.STEP for axis in self.axes)

    def input_axes(self, position: int) -> set[int]:
        """Return the axes that address an input."""
        return {axis for dim in self.input_maps[position].dims for axis, _ in dim.terms}

    @property
    def output_axes(self) -> set[int]:
        """Return the axes that address any output."""
        return {a for access in self.output_maps for dim in access.dims for a, _ in dim.terms}

    def axis_region(self, regions: Mapping[int, Region]) -> tuple[Interval, ...]:
        """Return the axis intervals needed for regions of the outputs, by output position.

        Empty regions need nothing; if all are empty, so are all intervals.
        """
        needed: list[Interval] | None = None
        for position, region in regions.items():
            if volume(region) == 0:
                continue
            axes: list[Interval] = [(0, axis.extent) for axis in self.axes]
            for access, interval in zip(self.output_maps[position].dims, region, strict=True):
                axes_of(access, interval, axes)
            needed = axes if needed is None else list(hull(tuple(needed), tuple(axes)))
        if needed is None:
            return ((0, 0),) * len(self.axes)
        return tuple(
            interval if axis.kind is AxisKind.PARALLEL else (0, axis.extent)
            for axis, interval in zip(self.axes, needed, strict=True)
        )

    def input_region(
        self, position: int, axes: tuple[Interval, ...], shape: tuple[int, ...]
    ) -> Region:
        """Return the region of an input that the axis intervals read; empty if any of them is."""
        if any(high <= low for low, high in axes):
            return ((0, 0),) * len(shape)
        return tuple(
            interval_of(access, axes, extent)
            for access, extent in zip(self.input_maps[position].dims, shape, strict=True)
        )


UncountedJson = TypedDict("UncountedJson", {"operators": dict[str, Natural], "tensor_share": float})
"""Work of a model that is in no figure, by kind of operator."""


@dataclass(frozen=True, slots=True)
class Uncounted:
    """Operators whose work is missing from all figures of work and time.

    Attributes:
        operators: Kinds whose work is not known, and how many there are of each.
        tensor_share: The part of the graph's tensors that these read or make.
    """

    operators: Mapping[str, int]
    tensor_share: float

    @property
    def sentence(self) -> str:
        """Return the uncounted operators and their share of the tensors, on one line."""
        kinds = [f"{number} {kind}" for kind, number in self.operators.items()]
        named = ", ".join(kinds[:_NAMED])
        more = f" and {len(kinds) - _NAMED} more kinds" if kinds[_NAMED:] else ""
        return (
            f"incomplete: the work of {named}{more} ({100 * self.tensor_share:.0f}% of the tensors)"
            " is not counted; MACs, latency, lower bound and speed-ups are without it"
        )

    def as_dict(self) -> UncountedJson:
        """Return the fields as JSON values."""
        return {"operators": dict(self.operators), "tensor_share": self.tensor_share}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Uncounted:
        """Return the object that :meth:`as_dict` was called on."""
        return Uncounted(dict(values["operators"]), values["tensor_share"])


_NAMED = 4
"""Kinds of operators that one line names."""


@dataclass(frozen=True)
class Graph:
    """A model as the scheduler sees it: static shapes, operators in topological order.

    Attributes:
        name: A short name for people and file names.
        tensors: All values; operators refer to them by index.
        operators: Operators in topological order.
        inputs: Indices of the real inputs (those that change from call to call).
        outputs: Indices of the outputs.
        batch: Samples that one evaluation processes.
        source: The file it came from.
        notes: Assumptions of the import, one line each, for people.
        given: Elements that were given to inputs, by name: they are not read any more.
        fixed: Why the file cannot be written for fewer samples: the name and the kind of the node
            at which it cannot, and the reason; None where it can.
        sample_dims: What :attr:`samples` has of inputs that are exceptions: the dimension, if it is
            not the first, or below 0 if the input has no samples although it begins with as many.
        agreed: The inputs agree on the batch; where they do not, it is 1 and no sample is known.
        file_places: Per operator, its place among those of the file; empty where that is its own.
    """

    name: str
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    batch: int = 1
    source: str = ""
    notes: tuple[str, ...] = field(default=(), compare=False)
    given: tuple[tuple[str, tuple[float, ...]], ...] = ()
    fixed: tuple[str, str, str] | None = field(default=None, compare=False)
    sample_dims: tuple[tuple[int, int], ...] = ()
    agreed: bool = field(default=True, compare=False)
    file_places: tuple[int, ...] = ()

    def __repr__(self) -> str:
        """Return one line: a model has thousands of tensors."""
        return f"<Graph {self.name!r}: batch {self.batch}, {len(self.operators)} operators>"

    @functools.cached_property
    def samples(self) -> dict[int, int]:
        """Return the dimension that counts samples, by input that has samples."""
        dims = dict.fromkeys(self.inputs, 0) | dict(self.sample_dims)
        return {t: dim for t, dim in dims.items() if dim >= 0 and self._counts(t, dim, self.batch)}

    @functools.cached_property
    def read(self) -> frozenset[int]:
        """Return the inputs, to look one up."""
        return frozenset(self.inputs)

    @functools.cached_property
    def returned(self) -> frozenset[int]:
        """Return the outputs, to look one up."""
        return frozenset(self.outputs)

    @property
    def known_batch(self) -> int | None:
        """Return the samples that one evaluation processes; None if inputs do not agree on it."""
        return self.batch if self.agreed else None

    def sampled(self, batch: int, dims: Mapping[int, int]) -> Graph:
        """Return the graph with samples in the given dimensions of inputs, and in no others."""
        usual = {t: 0 if self._counts(t, 0, batch) else -1 for t in self.inputs}
        exceptions = tuple(
            (t, dims.get(t, -1))
            for t in self.inputs
            if dims.get(t, -1) != usual[t] and (t in dims or batch > 1)
        )
        return replace(self, batch=batch, sample_dims=exceptions)

    def _counts(self, tensor: int, dim: int, batch: int) -> bool:
        return self.tensors[tensor].shape[dim : dim + 1] == (batch,)

    @functools.cached_property
    def producer(self) -> tuple[int, ...]:
        """Return the index of the operator that makes each tensor, -1 for inputs and weights."""
        producer_of = [-1] * len(self.tensors)
        for index, operator in enumerate(self.operators):
            for tensor in operator.outputs:
                producer_of[tensor] = index
        return tuple(producer_of)

    @functools.cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """Return the indices of the operators that read each tensor, ascending and unique."""
        readers: list[list[int]] = [[] for _ in self.tensors]
        for index, operator in enumerate(self.operators):
            for tensor in dict.fromkeys(operator.inputs):
                readers[tensor].append(index)
        return tuple(tuple(r) for r in readers)

    @functools.cached_property
    def macs(self) -> int:
        """Return the multiply-accumulates of all operators."""
        return sum(operator.macs for operator in self.operators)

    @functools.cached_property
    def opaque(self) -> tuple[Operator, ...]:
        """Return the operators that run whole, not analysed: without a row in the table."""
        return tuple(operator for operator in self.operators if operator.opaque)

    @functools.cached_property
    def uncounted(self) -> Uncounted | None:
        """Return the work that figures of the graph leave out; None if they are complete."""
        without = [operator for operator in self.operators if not operator.counted]
        if not without:
            return None
        kinds = Counter(operator.kind for operator in without)
        used = {t for operator in self.operators for t in (*operator.inputs, *operator.outputs)}
        reached = {t for operator in without for t in (*operator.inputs, *operator.outputs)}
        return Uncounted(dict(kinds.most_common()), len(reached) / max(len(used), 1))

    @functools.cached_property
    def hash(self) -> str:
        """Return the SHA-256 of shapes, dtypes, domains and accesses, without names and weights."""
        text = json.dumps(_canonical(self), separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def check_limits(graph: Graph) -> None:
    """Refuse a graph that exceeds the limits of compiled code.

    Raises:
        ModelError: Naming the tensor or the operator, and the limit.
    """  # noqa: DOC501  _beyond() makes the error
    for tensor in graph.tensors:
        if len(tensor.shape) > MAX_RANK:
            message = f"has {len(tensor.shape)} dimensions; at most {MAX_RANK} can be scheduled"
            raise _beyond(graph, tensor.name, message, "reshape it to fewer dimensions")
        if max(tensor.shape, default=0) > MAX_EXTENT:
            message = f"has a dimension of {max(tensor.shape)}; at most {MAX_EXTENT} are possible"
            raise _beyond(graph, tensor.name, message, "split the dimension in two")
    for operator in graph.operators:
        _check_operator(graph, operator)


def _check_operator(graph: Graph, operator: Operator) -> None:
    if len(operator.axes) > MAX_AXES:
        message = f"iterates over {len(operator.axes)} axes; at most {MAX_AXES} can be scheduled"
        raise _beyond(graph, operator.name, message, "reshape its inputs to fewer dimensions")
    reach = [
        abs(dim.offset) + sum(abs(step) * operator.axes[axis].extent for axis, step in dim.terms)
        for access in (*operator.input_maps, *operator.output_maps)
        for dim in access.dims
    ]
    if max(operator.points, *reach, 0) > MAX_POINTS:
        message = "its attributes make it too large: more than 2^60 points or positions"
        raise _beyond(graph, operator.name, message, "check its pads, strides and shapes")


def _beyond(graph: Graph, name: str, message: str, hint: str) -> ModelError:
    return ModelError(message, Location(graph.source or graph.name, field=name), hint)


def _canonical(graph: Graph) -> list[object]:
    return [
        GRAPH_SCHEMA,
        graph.batch,
        [[list(t.shape), t.dtype, int(t.constant), *_mark(t)] for t in graph.tensors],
        [operator_key(operator) for operator in graph.operators],
        list(graph.inputs),
        list(graph.outputs),
        *([graph.sample_dims] if graph.sample_dims else []),
    ]


def _mark(tensor: Tensor) -> list[int]:
    """Return the marks of a quantised tensor; none in float models, which keeps their hashes."""
    held = [] if tensor.integer_bytes is None else [tensor.integer_bytes]
    kept = tensor.stored
    return held if kept is None else [*held, kept.bits, kept.scales, kept.points]


def operator_key(operator: Operator) -> list[object]:
    """Return everything that distinguishes an operator, except its name, as JSON values."""
    maps = [
        [[[list(t) for t in d.terms], d.offset, int(d.whole)] for d in access.dims]
        for access in (*operator.input_maps, *operator.output_maps)
    ]
    axes = [[axis.extent, axis.kind.value] for axis in operator.axes]
    integer = [] if operator.integer is None else [_work_key(operator.integer)]
    return [
        operator.kind,
        list(operator.inputs),
        list(operator.outputs),
        axes,
        maps,
        _work_key(operator.work),
        [operator.engine.value, int(operator.pattern), int(operator.parameterised)],
        [list(pair) for pair in operator.attributes],
        *integer,
        *([operator.unpacking] if operator.unpacking else []),
    ]


def _work_key(work: Work) -> list[float]:
    key = [work.macs, work.vector, work.special, work.vector_per_point]
    return [*key, work.real] if work.real else key


_ELEMENT_BYTES = {"float64": 8, "int64": 4, "uint64": 4, "int32": 4, "uint32": 4, "int16": 2}
_COMPUTE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "bfloat8": 1, "bfloat4": 1}


def element_bytes(dtype: str, compute: str) -> int:
    """Return the bytes of one element on the device.

    Floating-point values are stored in the compute type; 64-bit integers (indices) as 32 bits, as
    accelerator compilers do; other types (int8, uint8, bool) in one byte. Block floats count as one
    byte here; :func:`autoturbo.hardware.parts.storage_ratio` has their share of the scales.
    """
    if dtype.startswith(("float", "bfloat", "double")):
        return _COMPUTE_BYTES[compute]
    return _ELEMENT_BYTES.get(dtype, 1)


def bytes_per_element(tensor: Tensor, compute: str) -> Fraction:
    """Return the bytes per element of a tensor on the device, scales and zero points included.

    Constants that are dequantised where they are read stay as they are in the file.
    """
    whole = Fraction(element_bytes(tensor.dtype, compute))
    kept = tensor.stored
    if kept is None or not tensor.elements:
        bits = _NARROW.get(tensor.dtype) if tensor.constant else None
        return whole if bits is None else Fraction(bits, 8)
    scales = kept.scales * _COMPUTE_BYTES[compute] + Fraction(kept.points * kept.bits, 8)
    narrow = Fraction(kept.bits, 8) + Fraction(scales, tensor.elements)
    return min(narrow.limit_denominator(_FINEST), whole)


_NARROW = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2, "float4_e2m1fn": 4}
"""Bits of types of which several elements are in a byte."""

_FINEST = 1024
"""Greatest denominator of bytes per element: products with sizes stay whole numbers of 64 bits."""


def tensor_bytes(tensor: Tensor, compute: str) -> int:
    """Return the bytes of a tensor on the device."""
    return math.ceil(tensor.elements * bytes_per_element(tensor, compute))
