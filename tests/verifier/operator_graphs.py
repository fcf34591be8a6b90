"""Random small graphs around nodes of the operator table, with what feeds and what reads them."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto, defs, helper, numpy_helper

from autoturbo.graph.importer.inputs import PARAMETERS
from autoturbo.verifier.random_values import LIMITS_KEY
from tests.graph.operator_table.operator_cases import CASES
from tests.graph.operator_table.operator_harness import Array, Case, Input
from tests.verifier.restriction_harness import run_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Shape = tuple[int, ...]
FLOAT = np.dtype(np.float32)
FLAG = np.dtype(np.bool_)

OPSETS = (11, 13, 17, 21)
"""Opsets that a graph may have besides the one of its case."""

JUMPING = frozenset(
    ("Floor", "Ceil", "Round", "Sign", "Cast", "CastLike", "Equal", "Less", "LessOrEqual",
     "Greater", "GreaterOrEqual", "ArgMax", "ArgMin", "TopK", "Hardmax", "QuantizeLinear",
     "DynamicQuantizeLinear", "Shrink", "ThresholdedRelu", "MaxPool")
)  # fmt: skip
"""Operators that make much of little: what they read must not depend on the order of a sum."""

DISTINCT = frozenset(("ScatterElements", "Scatter", "ScatterND"))
"""Operators whose indices must not repeat: which of two elements stays is not defined."""

SHAPED = frozenset(("EyeLike", "Shape", "Size"))
"""Operators that ask for extents alone: what they make is a constant."""

SPECIAL = {"Equal": ("Sign",), "IsNaN": ("Sqrt",), "IsInf": ("Relu", "Reciprocal")}
"""What makes values of which something can be told: equal ones, no numbers, infinite ones."""

_STEADY = 1.5
"""Magnitude above which drawn values are not bounded by something their operator needs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """A tensor of a graph under construction.

    Attributes:
        name: of the tensor.
        shape: its extents.
        dtype: of its elements.
        exact: no sums and no approximations have been on the way: the same bits in any schedule.
    """

    name: str
    shape: Shape
    dtype: np.dtype[Any] = FLOAT
    exact: bool = True

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


class Writer:
    """An ONNX graph under construction."""

    def __init__(self, opset: int, random: Random) -> None:
        self.opset = opset
        self.random = random
        self.nodes: list[Any] = []
        self.given: list[Any] = []
        self.stored: list[Any] = []
        self.limits: dict[str, list[int]] = {}
        self.values: dict[str, Value] = {}
        self.read: set[str] = set()
        self.stated: list[str] = []

    # ------------------------------------------------------------------------------------- values

    def input(self, shape: Shape, dtype: np.dtype[Any] = FLOAT) -> Value:
        """A real input of the graph."""
        name = f"x{len(self.given)}"
        element = helper.np_dtype_to_tensor_dtype(dtype)
        self.given.append(helper.make_tensor_value_info(name, element, shape))
        return self._known(Value(name, shape, dtype))

    def constant(self, values: Array) -> Value:
        """A stored tensor."""
        name = f"w{len(self.stored)}"
        self.stored.append(numpy_helper.from_array(np.asarray(values), name))
        return Value(name, np.asarray(values).shape, np.asarray(values).dtype)

    def ints(self, *numbers: int) -> Value:
        """A stored vector of whole numbers."""
        return self.constant(np.asarray(numbers, np.int64))

    def weight(self, *shape: int) -> Value:
        """A stored parameter."""
        drawn = np.random.default_rng(self.random.randrange(1 << 30)).normal(size=shape)
        return self.constant(drawn.astype(np.float32))

    def node(
        self, kind: str, inputs: Sequence[Value | None], *outputs: tuple[Shape, np.dtype[Any]],
        exact: bool = False, domain: str = "", **attributes: Any,
    ) -> list[Value]:  # fmt: skip
        """A node named after its kind, with outputs of known extents and types."""
        label = f"{kind.lower()}{len(self.nodes)}"
        names = [label if k == 0 else f"{label}_{k}" for k in range(len(outputs))]
        read = ["" if value is None else value.name for value in inputs]
        self.nodes.append(
            helper.make_node(kind, read, names, name=label, domain=domain, **attributes)
        )
        self.read.update(read)
        kept = exact and all(value is None or value.exact for value in inputs)
        pairs = zip(names, outputs, strict=True)
        return [self._known(Value(name, *output, kept)) for name, output in pairs]

    def one(
        self, kind: str, inputs: Sequence[Value], shape: Shape, *, exact: bool = False,
        **attributes: Any,
    ) -> Value:  # fmt: skip
        """A node with one output of floats."""
        (value,) = self.node(kind, inputs, (shape, FLOAT), exact=exact, **attributes)
        return value

    def _known(self, value: Value) -> Value:
        self.values[value.name] = value
        return value

    # ---------------------------------------------------------------------------------- operators

    def flip(self, share: float = 0.5) -> bool:
        """Whether something is done that is done in some of the graphs."""
        return self.random.random() < share

    def negated(self, x: Value) -> Value:
        return self.one("Neg", [x], x.shape, exact=True)

    def scaled(self, x: Value, factor: float, shift: float) -> Value:
        by, more = (self.constant(np.asarray(n, np.float32)) for n in (factor, shift))
        product = self.one("Mul", [x, by], x.shape, exact=True)
        return self.one("Add", [product, more], x.shape, exact=True)

    def tamed(self, x: Value) -> Value:
        """Between -1 and 1 whatever it was; rounded alike everywhere."""
        return self.one("Softsign", [x], x.shape, exact=True)

    def between(self, x: Value, low: float, high: float) -> Value:
        return self.scaled(self.tamed(x), (high - low) / 2, (high + low) / 2)

    def reshaped(self, x: Value, shape: Shape) -> Value:
        return self.one("Reshape", [x, self.ints(*shape)], shape, exact=True)

    def turned(self, x: Value, order: Sequence[int]) -> Value:
        shape = tuple(x.shape[d] for d in order)
        return self.one("Transpose", [x], shape, exact=True, perm=list(order))

    def joined(self, parts: Sequence[Value], axis: int) -> Value:
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return self.one("Concat", parts, tuple(shape), exact=True, axis=axis)

    def cut(self, x: Value, axis: int, low: int, high: int) -> Value:
        shape = (*x.shape[:axis], high - low, *x.shape[axis + 1 :])
        if self.opset < 10:
            attributes = {"starts": [low], "ends": [high], "axes": [axis]}
            return self.one("Slice", [x], shape, exact=True, **attributes)
        bounds = [self.ints(n) for n in (low, high, axis)]
        return self.one("Slice", [x, *bounds], shape, exact=True)

    def summed(self, x: Value, axis: int) -> Value:
        shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        if self.opset < 18:
            return self.one("ReduceMean", [x], shape, axes=[axis], keepdims=1)
        return self.one("ReduceMean", [x, self.ints(axis)], shape, keepdims=1)

    def softmax(self, x: Value) -> Value:
        return self.one("Softmax", [x], x.shape, axis=len(x.shape) - 1)

    def product(self, x: Value, columns: int) -> Value:
        weight = self.weight(x.shape[-1], columns)
        return self.one("MatMul", [x, weight], (*x.shape[:-1], columns))

    def conv(self, x: Value, channels: int, kernel: int) -> Value:
        spatial = len(x.shape) - 2
        weight = self.weight(channels, x.shape[1], *(kernel,) * spatial)
        shape = (x.shape[0], channels, *x.shape[2:])
        pads = [kernel // 2] * 2 * spatial
        return self.one("Conv", [x, weight], shape, pads=pads)

    def cast(self, x: Value, dtype: np.dtype[Any]) -> Value:
        element = helper.np_dtype_to_tensor_dtype(dtype)
        (value,) = self.node("Cast", [x], (x.shape, dtype), exact=True, to=element)
        return value

    # ------------------------------------------------------------------------------------- result

    def model(self) -> ModelProto:
        """The graph; its outputs are all that nobody reads, and at times something that is read."""
        made = [name for node in self.nodes for name in node.output]
        leaving = [name for name in made if name not in self.read]
        inner = [name for name in made if name in self.read]
        if inner and self.flip(0.3):
            leaving.append(self.random.choice(inner))
        graph = helper.make_graph(
            self.nodes, "operators", [v for v in self.given if v.name in self.read],
            [_info(self.values[name]) for name in leaving], self.stored,
            value_info=[_info(self.values[name]) for name in self.stated],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        if self.limits:
            helper.set_model_props(model, {LIMITS_KEY: json.dumps(self.limits)})
        return model


def _info(value: Value) -> Any:
    element = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(value.name, element, value.shape)


# ----------------------------------------------------------------------------------- what is fed


def _floats(writer: Writer, shape: Shape, depth: int = 0) -> Value:
    """Floats that some operators made from inputs of the graph."""
    if depth > 1:
        return writer.input(shape)
    makers: list[Callable[[], Value]] = [
        lambda: writer.input(shape),
        lambda: writer.negated(_floats(writer, shape, depth + 1)),
        lambda: writer.one("Abs", [_floats(writer, shape, depth + 1)], shape, exact=True),
        lambda: writer.scaled(_floats(writer, shape, depth + 1), 1.5, -0.25),
        lambda: _sum(writer, shape, depth),
        *_by_rank(writer, shape, depth),
    ]
    alike = [v for v in writer.values.values() if v.shape == shape and v.dtype == FLOAT and v.exact]
    if alike and writer.flip(0.25):
        return writer.random.choice(alike)
    return writer.random.choice(makers)()


def _sum(writer: Writer, shape: Shape, depth: int) -> Value:
    parts = [_floats(writer, shape, depth + 1), _floats(writer, shape, depth + 1)]
    return writer.one("Add", parts, shape, exact=True)


def _by_rank(writer: Writer, shape: Shape, depth: int) -> list[Callable[[], Value]]:
    """Ways to make floats that need one, two or more dimensions."""
    makers: list[Callable[[], Value]] = []
    wide = [d for d, extent in enumerate(shape) if extent > 1]
    if wide:
        makers += [lambda: _concat(writer, shape, depth), lambda: _window(writer, shape, depth)]
    if len(shape) > 1:
        makers += [lambda: _transposed(writer, shape, depth), lambda: _merged(writer, shape, depth)]
        makers += [lambda: writer.product(_floats(writer, (*shape[:-1], 3), depth + 1), shape[-1])]
    if len(shape) in (3, 4) and shape[0] > 0:
        source = (shape[0], 2, *shape[2:])
        kernel = writer.random.choice((1, 3))
        makers += 2 * [lambda: writer.conv(_floats(writer, source, depth + 1), shape[1], kernel)]
    return makers


def _concat(writer: Writer, shape: Shape, depth: int) -> Value:
    axis = writer.random.choice([d for d, extent in enumerate(shape) if extent > 1])
    at = writer.random.randrange(1, shape[axis])
    parts = [
        _floats(writer, (*shape[:axis], extent, *shape[axis + 1 :]), depth + 1)
        for extent in (at, shape[axis] - at)
    ]
    return writer.joined(parts, axis)


def _window(writer: Writer, shape: Shape, depth: int) -> Value:
    """A part of something larger."""
    axis = writer.random.randrange(len(shape))
    low, more = writer.random.randrange(3), writer.random.randrange(1, 3)
    high = low + shape[axis]
    whole = _floats(writer, (*shape[:axis], high + more, *shape[axis + 1 :]), depth + 1)
    return writer.cut(whole, axis, low, high)


def _transposed(writer: Writer, shape: Shape, depth: int) -> Value:
    order = list(range(len(shape)))
    writer.random.shuffle(order)
    source = [0] * len(shape)
    for extent, dim in zip(shape, order, strict=True):
        source[dim] = extent
    return writer.turned(_floats(writer, tuple(source), depth + 1), order)


def _merged(writer: Writer, shape: Shape, depth: int) -> Value:
    """Two neighbouring dimensions were one before."""
    at = writer.random.randrange(len(shape) - 1)
    source = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    return writer.reshaped(_floats(writer, source, depth + 1), shape)


@dataclasses.dataclass(frozen=True, eq=False)
class Placeable:
    """A case that may be placed in a graph.

    Attributes:
        case: the node with its inputs' generators.
    """

    case: Case

    @functools.cached_property
    def draws(self) -> tuple[dict[int, Array], ...]:
        """Values that the generators make, to see what they make."""
        return tuple(self.case.draw(np.random.default_rng(seed)) for seed in range(16))

    def samples(self, position: int) -> list[Array]:
        """The same at one place."""
        return [values[position] for values in self.draws]

    @functools.cached_property
    def results(self) -> tuple[tuple[Shape, np.dtype[Any]], ...]:
        """Extents and types of the outputs."""
        whole = run_whole(self.case, np.random.default_rng(0))
        return tuple((result.shape, result.dtype) for result in whole.results)

    @functools.cached_property
    def opsets(self) -> tuple[int, ...]:
        """Opsets in which the node is defined as in its own."""
        case = self.case
        since = _since(case.op, case.opset)
        alike = [o for o in OPSETS if case.domain or (since and _since(case.op, o) == since)]
        return tuple(sorted({case.opset, *alike}))

    @functools.cached_property
    def entries(self) -> tuple[int, ...]:
        """Where floats enter."""
        first = self.draws[0]
        varying = [p for p, given in enumerate(self.case.inputs) if callable(given)]
        return tuple(p for p in varying if first[p].dtype == FLOAT)


def _bounds(one: Placeable, position: int) -> tuple[float, float] | None:
    """The least and greatest value that an operator takes; None where it takes any."""
    drawn = one.samples(position)
    low, high = (float(f([f(v) for v in drawn])) for f in (np.min, np.max))
    free = (low < -_STEADY and high > _STEADY) or drawn[0].dtype != FLOAT
    return None if free else (low, high)


def _fed(writer: Writer, one: Placeable, position: int, given: Input) -> Value | None:
    """What a case's node reads at one place."""
    if given is None:
        return None
    if isinstance(given, np.ndarray):
        return writer.constant(given)
    sample = writer.random.choice(one.samples(position))
    if sample.dtype == FLOAT:
        return _fed_floats(writer, one, position, sample)
    if sample.dtype == FLAG:
        return _flags(writer, sample.shape)
    if one.case.op in DISTINCT or writer.flip(0.3):
        return writer.constant(sample)
    return _whole_numbers(writer, one, position)


def _fed_floats(writer: Writer, one: Placeable, position: int, sample: Array) -> Value:
    parameter = position in PARAMETERS.get(one.case.op, ()) or (position and len(sample.shape) < 2)
    if parameter and writer.flip():
        return writer.constant(sample)
    exact = one.case.op in JUMPING
    bounds = _bounds(one, position)
    made = _floats(writer, sample.shape, 1 if exact else 0)
    if exact and not made.exact:
        made = writer.input(sample.shape)
    for kind in SPECIAL.get(one.case.op, ()):
        made = writer.one(kind, [made], made.shape, exact=True)
    return made if bounds is None else writer.between(made, *bounds)


def _flags(writer: Writer, shape: Shape) -> Value:
    if writer.flip():
        return writer.input(shape, FLAG)
    zero = writer.constant(np.asarray(0, np.float32))
    (value,) = writer.node("Greater", [writer.input(shape), zero], (shape, FLAG), exact=True)
    return value


def _whole_numbers(writer: Writer, one: Placeable, position: int) -> Value:
    """Whole numbers within what the case draws, converted at times."""
    drawn = one.samples(position)
    dtype = drawn[0].dtype
    converted = dtype == np.int64 and writer.flip(0.3)
    source = writer.input(drawn[0].shape, np.dtype(np.int32) if converted else dtype)
    low, high = (int(f([f(v) for v in drawn])) for f in (np.min, np.max))
    writer.limits[source.name] = [low, high + 1]
    return writer.cast(source, dtype) if converted else source


# ------------------------------------------------------------------------------------ what reads


def _as_floats(writer: Writer, x: Value) -> Value:
    if x.dtype == FLOAT:
        return x
    if x.dtype == FLAG and writer.flip():
        sides = [_floats(writer, x.shape, 1), writer.constant(np.asarray(0.5, np.float32))]
        return writer.one("Where", [x, *sides], x.shape, exact=True)
    return writer.cast(x, FLOAT)


def _reader(writer: Writer, x: Value) -> Value:
    """One operator that reads floats."""
    rank, pick = len(x.shape), writer.random
    kinds: list[Callable[[], Value]] = [
        lambda: writer.negated(x),
        lambda: writer.tamed(x),
        lambda: writer.one("Add", [x, _floats(writer, x.shape, 1)], x.shape, exact=True),
    ]
    if rank and x.elements:
        axis = pick.randrange(rank)
        kinds += [
            lambda: writer.joined([x, writer.negated(x)], axis),
            lambda: writer.joined([_floats(writer, x.shape, 1), x], axis),
            lambda: writer.summed(x, axis),
            lambda: writer.softmax(writer.tamed(x)),
            lambda: writer.cut(x, axis, x.shape[axis] // 3, x.shape[axis]),
        ]
    if rank > 1 and x.elements:
        order = pick.sample(range(rank), rank)
        at = pick.randrange(rank - 1)
        kinds += [
            lambda: writer.turned(x, order),
            lambda: writer.reshaped(
                x, (*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :])
            ),
            lambda: writer.product(writer.tamed(x), 4),
        ]
    if rank in (3, 4) and x.elements:
        kinds += 2 * [lambda: writer.conv(writer.tamed(x), 3, 3)]
    return pick.choice(kinds)()


# ---------------------------------------------------------------------------------------- graphs


def _since(op: str, opset: int) -> int | None:
    """The opset that defined an operator as it is in another one; None where none did."""
    try:
        schema = defs.get_schema(op, opset, "")
    except defs.SchemaError:
        return None
    return None if schema.deprecated else int(schema.since_version)


_EXACT = frozenset(
    ("Abs", "Neg", "Relu", "Identity", "Transpose", "Concat", "Split", "Slice", "Pad", "Expand",
     "Tile", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "DepthToSpace", "SpaceToDepth", "Max",
     "Min", "Clip", "Gather", "GatherElements", "GatherND", "Where", "Trilu")
)  # fmt: skip


def _placed(writer: Writer, one: Placeable, fed: tuple[int, Value] | None = None) -> list[Value]:
    """A case's node with what it reads; one of its inputs may be there already."""
    case = one.case
    inputs = [
        fed[1] if fed is not None and fed[0] == p else _fed(writer, one, p, given)
        for p, given in enumerate(case.inputs)
    ]
    attributes: dict[str, Any] = {
        k: list(v) if isinstance(v, tuple) else v for k, v in case.attributes.items()
    }
    made = writer.node(
        case.op, inputs, *one.results, exact=case.op in _EXACT, domain=case.domain, **attributes
    )
    if case.domain or not defs.has(case.op):
        writer.stated += [value.name for value in made]
    return made


def _varied(writer: Writer, x: Value) -> Value:
    """With an input of the graph added: of constants alone there is nothing to compute."""
    return writer.one("Add", [x, writer.input(x.shape)], x.shape, exact=True)


def _followed(writer: Writer, x: Value) -> list[Value]:
    """Another node of the table behind some floats, where one fits."""
    fitting = [
        (one, p)
        for one in PLACEABLE
        if writer.opset in one.opsets and one.case.op not in SHAPED
        if x.exact or one.case.op not in JUMPING
        for p in one.entries
        if one.draws[0][p].size == x.elements
    ]  # fmt: skip
    if not fitting:
        return [_reader(writer, x)]
    same = [(one, p) for one, p in fitting if one.draws[0][p].shape == x.shape]
    one, position = writer.random.choice(same if same and writer.flip() else fitting)
    shape = one.draws[0][position].shape
    x = writer.tamed(x)
    bounds = _bounds(one, position)
    x = x if bounds is None else writer.between(x, *bounds)
    x = x if x.shape == shape else writer.reshaped(x, shape)
    return _placed(writer, one, (position, x))


def operator_graph(one: Placeable, random: Random) -> ModelProto:
    """A graph around a case's node.

    Args:
        one: the node.
        random: makes all choices.
    """
    writer = Writer(random.choice(one.opsets), random)
    values = _placed(writer, one)
    if not writer.given or one.case.op in SHAPED:
        values = [_varied(writer, _as_floats(writer, value)) for value in values]
    for _ in range(random.randrange(3)):
        value = _as_floats(writer, random.choice(values))
        values += _followed(writer, value) if value.elements and value.shape else []
    for value in [v for v in values if v.name not in writer.read or writer.flip(0.2)]:
        for _ in range(random.randrange(1, 3)):
            _reader(writer, _as_floats(writer, value))
    return writer.model()


def _defined(case: Case) -> bool:
    """Whether both ONNX Runtime and ONNX's rules for extents take a case.

    LRN with even windows is in ONNX's reference alone; GroupNormalization 18 was withdrawn.
    """
    deprecated = ("GroupNormalization", 18)
    return case.attributes.get("size") != 4 and (case.op, case.opset) != deprecated


BY_DATA = frozenset(("Compress", "NonMaxSuppression", "NonZero", "Unique"))
"""Operators whose extents depend on data: what follows them has no extents of its own."""

PLACEABLE = [Placeable(case) for case in CASES if _defined(case) and case.op not in BY_DATA]
"""Cases of all rows of the operator table."""
