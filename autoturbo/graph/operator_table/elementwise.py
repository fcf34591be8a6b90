"""Element-wise operators, broadcast included: every output element is computed by itself.

Work is counted per output element: ``vector`` for each addition, multiplication, comparison,
selection or conversion, ``special`` for each exponential, logarithm, division, root, error function
or trigonometric function.
"""

from __future__ import annotations

from collections.abc import Callable

from autoturbo.graph.domain import AccessMap, DimAccess, along, merged
from autoturbo.graph.operator_table.build import (
    MICROSOFT,
    ONNX,
    SCALAR,
    Domain,
    NodeView,
    NoRowError,
    OperatorSpec,
    Row,
    Rows,
    ValueView,
    agree,
    broadcast,
    per_channel,
    positive_axis,
)
from autoturbo.graph.operators import Engine, Pattern, Work

_UNARY: dict[str, tuple[float, float]] = {
    # (vector, special); one operation unless a comment says what the several are
    **dict.fromkeys(("Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Relu", "Not"), (1, 0)),
    **dict.fromkeys(("BitwiseNot", "IsNaN", "IsInf", "Cast"), (1, 0)),
    **dict.fromkeys(("Exp", "Log", "Sqrt", "Reciprocal", "Erf"), (0, 1)),
    **dict.fromkeys(("Sin", "Cos", "Tan", "Asin", "Acos", "Atan"), (0, 1)),
    **dict.fromkeys(("Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh"), (0, 1)),
    "LeakyRelu": (2, 0),  # multiply, select
    "ThresholdedRelu": (2, 0),  # compare, select
    "Shrink": (4, 0),  # two comparisons, add, select
    "HardSigmoid": (4, 0),  # multiply, add, two bounds
    "HardSwish": (5, 0),  # hard sigmoid, multiply
    "Elu": (3, 1),  # exp; subtract, multiply, select
    "Celu": (4, 1),  # exp; scale, subtract, multiply, select
    "Selu": (4, 1),  # exp; subtract, two multiplications, select
    "Sigmoid": (1, 2),  # exp, division; add
    "Swish": (2, 2),  # sigmoid; multiply
    "Softplus": (1, 2),  # exp, log; add
    "Softsign": (2, 1),  # division; absolute, add
    "Mish": (2, 3),  # exp, log, tanh; add, multiply
    "Gelu": (4, 1),  # error function (or tanh); scale, add, two multiplications
}

_MICROSOFT: dict[str, tuple[float, float]] = {
    "Gelu": (4, 1),  # as ONNX's
    "FastGelu": (7, 1),  # tanh; cubic polynomial (3), add a half, two multiplications, bias
    "QuickGelu": (3, 2),  # sigmoid; scale, multiply
    "BiasGelu": (5, 1),  # Gelu after one addition
    # Two operands back, the operation, the result (scaled by multiplication). Reals, unlike the
    # others: hashes of graphs tell 9.0 from 9.
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), (9.0, 0.0)),
    "QLinearSigmoid": (7.0, 2.0),  # one operand back; sigmoid (1 and 2)
    "QLinearLeakyRelu": (8.0, 0.0),  # one operand back; leaky relu (2)
}
"""Of com.microsoft: activations, those with a bias along the last dimension too, and operators on
quantised values, whose scales are scalars among the inputs."""

_BINARY: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "And", "Or", "Xor", "PRelu", "BitShift"), (1, 0)),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), (1, 0)),
    **dict.fromkeys(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), (1, 0)),
    "Where": (1, 0),
    "Clip": (2, 0),  # two bounds
    "Div": (0, 1),
    "Pow": (0, 2),  # exp of a multiple of log
    "Mod": (2, 1),  # division; multiply, subtract
}


def _elementwise(vector: float, special: float, pattern: Pattern) -> Row:
    """Return the row of an operator whose inputs all broadcast to its first output."""

    def row(node: NodeView) -> OperatorSpec:
        return _broadcasting(node, Work(vector=vector, special=special), pattern)

    return row


def _broadcasting(node: NodeView, work: Work, pattern: Pattern) -> OperatorSpec:
    agree("axis" not in node.attributes, "broadcasting by an axis attribute (opset 6 and before)")
    shape, domain = node.shape_out(), Domain()
    dims = domain.dims(shape)
    inputs = [None if v is None else broadcast(v.shape, shape, dims) for v in node.inputs]
    outputs = [AccessMap(dims)] * len(node.outputs)
    return domain.answer(node, inputs, outputs, work, pattern=pattern)


def _variadic(finish: int) -> Row:
    """Return the row of a variadic operator: one operation per further operand, plus ``finish``."""

    def row(node: NodeView) -> OperatorSpec:
        work = Work(vector=float(max(len(node.inputs) - 1 + finish, 0)))
        return _broadcasting(node, work, Pattern.BROADCAST)

    return row


def _first_input(engine: Engine, vector: float) -> Row:
    """Return the row of an operator whose further inputs have no data: a type, a rate."""

    def row(node: NodeView) -> OperatorSpec:
        shape, domain = node.shape_out(), Domain()
        agree(node.shape_in(0) == shape, "input and output shapes differ")
        access = AccessMap(domain.dims(shape))
        outputs = [access] * len(node.outputs)
        work = Work(vector=vector)
        return domain.answer(
            node, [access], outputs, work, engine=engine, pattern=Pattern.ELEMENTWISE
        )

    return row


def _batch_normalization(node: NodeView) -> OperatorSpec:
    """Describe BatchNormalization: a multiplication and an addition, with statistics folded."""
    if any(node.has_output(position) for position in range(1, len(node.outputs))):
        raise NoRowError("statistics are outputs only in training")
    shape, domain = node.shape_out(), Domain()
    agree(node.shape_in(0) == shape and len(shape) > 1, "input and output shapes differ")
    access = AccessMap(domain.dims(shape))
    statistics = [per_channel(node.value_in(i), along(1), shape[1]) for i in range(1, 5)]
    work = Work(vector=2.0)
    return domain.answer(node, [access, *statistics], [access], work, pattern=Pattern.BROADCAST)


# ---------------------------------------------------- conversions between real and quantised values


Scale = Callable[[ValueView | None], AccessMap | None]
"""How scales and zero points are addressed."""


def _linear(work: Work) -> Row:
    """Return the row of a (de)quantisation with one scale, one per channel, or one per block."""

    def row(node: NodeView) -> OperatorSpec:
        shape, domain = node.shape_in(0), Domain()
        axis = node.integer("axis", 1)
        if node.integer("block_size", 0):
            access, scale = _blocked(node, domain, positive_axis(axis, len(shape)))
        else:
            access, scale = _per_axis(shape, domain, axis)
        inputs = [access, scale(node.value_in(1)), scale(node.value_in(2))]
        return domain.answer(node, inputs, [access], work, pattern=Pattern.BROADCAST)

    return row


def _per_axis(shape: tuple[int, ...], domain: Domain, axis: int) -> tuple[AccessMap, Scale]:
    dims = domain.dims(shape)

    def scale(value: ValueView | None) -> AccessMap | None:
        if value is None or value.shape in ((), (1,)):
            return per_channel(value, DimAccess(), 1)
        dim = positive_axis(axis, len(shape))
        return per_channel(value, dims[dim], shape[dim])

    return AccessMap(dims), scale


def _blocked(node: NodeView, domain: Domain, axis: int) -> tuple[AccessMap, Scale]:
    """Return the accesses of a blocked dimension; refuse a partial last block."""
    shape, block = node.shape_in(0), node.integer("block_size", 0)
    agree(shape[axis] % block == 0, f"{shape[axis]} elements in blocks of {block}")
    blocks = shape[axis] // block
    dims = list(domain.dims([blocks if i == axis else e for i, e in enumerate(shape)]))
    scaled = AccessMap(tuple(dims))
    place = domain.axis("place", block)
    dims[axis] = merged((axis, blocks), (place, block))
    return AccessMap(tuple(dims)), lambda value: None if value is None else scaled


def _dynamic(node: NodeView) -> OperatorSpec:
    """Describe DynamicQuantizeLinear: its scale, and so each output, depends on every element.

    Returns:
        A domain that cannot be divided; minimum, maximum, round, add and saturate per element, and
        the division by the scale.
    """
    domain = Domain()
    shape = node.shape_in(0)
    access = AccessMap(tuple(along(domain.whole(f"d{i}", e)) for i, e in enumerate(shape)))
    work = Work(vector=5.0, special=1.0)
    return domain.answer(node, [access], [access, SCALAR, SCALAR], work)


ROWS: Rows = {
    **{(ONNX, op): _elementwise(*work, Pattern.ELEMENTWISE) for op, work in _UNARY.items()},
    **{(ONNX, op): _elementwise(*work, Pattern.BROADCAST) for op, work in _BINARY.items()},
    **{(MICROSOFT, op): _elementwise(*work, Pattern.BROADCAST) for op, work in _MICROSOFT.items()},
    (ONNX, "Clip"): _elementwise(*_BINARY["Clip"], Pattern.ELEMENTWISE),
    (ONNX, "Max"): _variadic(0),
    (ONNX, "Min"): _variadic(0),
    (ONNX, "Sum"): _variadic(0),
    (ONNX, "Mean"): _variadic(1),
    (ONNX, "CastLike"): _first_input(Engine.VECTOR, 1.0),
    (ONNX, "Identity"): _first_input(Engine.NONE, 0.0),
    (ONNX, "Dropout"): _first_input(Engine.NONE, 0.0),
    (ONNX, "BatchNormalization"): _batch_normalization,
    # Back to real values: subtract the zero point, multiply (2). To quantised values: round, add
    # the zero point, saturate (3), and the division by the scale.
    (ONNX, "QuantizeLinear"): _linear(Work(vector=3.0, special=1.0)),
    (ONNX, "DequantizeLinear"): _linear(Work(vector=2.0)),
    (ONNX, "DynamicQuantizeLinear"): _dynamic,
    (MICROSOFT, "QuantizeLinear"): _linear(Work(vector=3.0, special=1.0)),
    (MICROSOFT, "DequantizeLinear"): _linear(Work(vector=2.0)),
}
