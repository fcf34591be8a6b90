"""Arithmetic of operators for compiled code, and which engine does it."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import GraphArrays, Ints, Regions
from autoturbo.graph.domain import SHOWN, AxisKind
from autoturbo.graph.integers import among_integers
from autoturbo.graph.operators import NO_WORK, Engine, Graph, Operator, Work
from autoturbo.hardware.parts import DATAFLOWS, MatrixEngine
from autoturbo.hardware.target import Target

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

NONE, MATRIX, VECTOR, MOVE = range(4)
"""Codes of :class:`autoturbo.graph.operators.Engine`."""

OTHER, COUNT, ROWS, COLUMNS, DEPTH, WINDOW, STEP = range(7)
"""Role of an axis in a matrix product: batch of products, M, N, K, K's kernel positions, and
products each of which needs the one before."""

ROLES = 7

_WHOLE_LOOP = {"trips": COUNT, "m": ROWS, "n": COLUMNS, "k": DEPTH}
"""Roles of the axes of a loop that is not written out."""

_CODES = {Engine.NONE: NONE, Engine.MATRIX: MATRIX, Engine.VECTOR: VECTOR, Engine.MOVE: MOVE}

_WEIGHT_STATIONARY, _INPUT_STATIONARY, _IDEAL, _CHANNEL_STATIONARY = range(1, 5)
"""Codes of matrix dataflows: places in :data:`DATAFLOWS`. A channel-stationary array streams like a
weight-stationary one, but its weights come to all of it at once, not row by row; that its rows take
channels only is in the depth of its products."""


class WorkArrays(NamedTuple):
    """Per operator: engine code and vector work per output point and per domain point.

    Work is counted in operations of the run's compute type (:func:`priced`).
    ``role`` and ``shown`` are per axis: its role in a matrix product, and 1 if it appears in the
    outputs. ``whole`` is what the reduction over channels is rounded up to at every kernel position
    (1: kernel positions and channels make one reduction). ``sharing`` is the number of cores that
    reduce parts of one whole (1: those that its outputs are spread over do the work).
    ``recurrent`` is 1 for operators that go step by step, and ``spread``, per axis, 1 if cores
    share it out within a part and exchange it at every step.
    """

    engine: Ints
    vector: Floats
    special: Floats
    per_point: Floats
    macs: Floats
    role: Ints
    shown: Ints
    whole: Ints
    sharing: Ints
    recurrent: Ints
    spread: Ints


@borrowing
def shown_points(g: GraphArrays, w: WorkArrays, op: int, regions: Regions) -> int:
    """Return the points of an operator's unreduced axes, inside its axis intervals.

    Args:
        g: The graph.
        w: Work of its operators.
        op: The operator.
        regions: With the axis intervals.
    """
    points = 1
    for axis in range(g.axis_start[op], g.axis_start[op + 1]):
        if w.shown[axis]:
            points *= max(regions.box_high[axis] - regions.box_low[axis], 0)
    return points


def work_arrays(graph: Graph, target: Target, dtype: str) -> WorkArrays:
    """Flatten the work of a graph's operators for one target."""
    operators = graph.operators
    costs = np.asarray([priced(op, target, dtype) for op in operators], np.float64)
    engine, macs, vector, special, per_point = costs.reshape(
        -1, len(TargetOperations._fields)
    ).T.copy()
    axes = [axis for op in operators for axis in op.axes]
    return WorkArrays(
        engine.astype(np.int64),
        vector,
        special,
        per_point,
        macs,
        role=np.asarray([role for op in operators for role in axis_roles(op)], np.int64),
        shown=np.asarray([int(axis.kind in SHOWN) for axis in axes], np.int64),
        whole=np.full(len(operators), whole_depth(target), np.int64),
        sharing=np.asarray([target.cores if op.reduces_all else 1 for op in operators], np.int64),
        recurrent=np.asarray([int(op.recurrent) for op in operators], np.int64),
        spread=np.asarray([int(axis.kind is AxisKind.SPREAD) for axis in axes], np.int64),
    )


class TargetOperations(NamedTuple):
    """An operator's arithmetic on a target, in operations of the run's compute type.

    ``engine`` is the code of the engine that does it. ``macs`` and ``per_point`` are per point of
    its domain, ``vector`` and ``special`` per output point.
    """

    engine: int
    macs: float
    vector: float
    special: float
    per_point: float


def in_integers(target: Target, dtype: str) -> bool:
    """Return whether a target computes quantised operators in int8 beside the compute type."""
    types, lanes = ("int8", dtype), target.vector.elements_per_cycle
    return all(target.supports(kind) and lanes(kind) > 0 for kind in types)


def work_of(operator: Operator, target: Target, dtype: str) -> Work:
    """Return an operator's arithmetic per point; that in int8 if it is computed so."""
    if operator.integer is None or not in_integers(target, dtype):
        return operator.work
    return among_integers(operator) if dtype == "int8" else operator.integer


def priced(operator: Operator, target: Target, dtype: str) -> TargetOperations:
    """Return the operations of an operator, as the simulator and the lower bound count them.

    Operations in int8 count as the number of operations of the compute type that take as long.
    """
    integers = in_integers(target, dtype) and operator.integer is not None
    work = work_of(operator, target, dtype)
    code = engine_code(operator, target, dtype)
    lanes = macs = 1.0
    if integers:
        lanes = target.vector.elements_per_cycle(dtype) / target.vector.elements_per_cycle("int8")
        macs = target.matrix.macs_per_cycle(dtype) / target.matrix.macs_per_cycle("int8")
    unpacking = 0.0 if integers else operator.unpacking / max(operator.output_points, 1)
    return TargetOperations(
        code, work.macs * (macs if code == MATRIX else lanes),
        work.vector * lanes + work.real + unpacking, work.special, work.vector_per_point * lanes,
    )  # fmt: skip


def axis_roles(operator: Operator) -> list[int]:
    """Return the role of each axis of a matrix operator: batch, M, N or K.

    An axis in both operands and the output is batch; in the first and the output, M; in the second
    and the output, N; not in the output, K (or a kernel position). Steps are separate products, one
    after another. The axes of a kept loop are named after their roles.
    """
    if operator.opaque:
        return [_WHOLE_LOOP.get(axis.name, OTHER) for axis in operator.axes]
    if operator.engine is not Engine.MATRIX or len(operator.inputs) < 2:  # noqa: PLR2004
        return [OTHER] * len(operator.axes)
    first, second = operator.input_axes(0), operator.input_axes(second_operand(operator))
    roles, out = [], operator.output_axes
    for index, axis in enumerate(operator.axes):
        if axis.kind is AxisKind.STEP:
            role = STEP
        elif axis.kind is AxisKind.GAP:
            role = OTHER
        elif index not in out or index not in first | second:
            role = WINDOW if axis.kind is AxisKind.WINDOW else DEPTH
        elif index in first:
            role = COUNT if index in second else ROWS
        else:
            role = COLUMNS
        roles.append(role)
    return roles


def second_operand(operator: Operator) -> int:
    """Return the input position of a product's second operand.

    Operators on quantised values have scales and zero points, of few axes, between the two.
    """
    if "QLinear" not in operator.kind:
        return 1
    return max(range(1, len(operator.inputs)), key=lambda at: len(operator.input_axes(at)))


def matrix_shape(operator: Operator, whole: int = 1) -> tuple[float, float, float, float]:
    """Return ``(count, m, n, k)`` of a matrix operator's whole domain, K as an array sees it.

    An operator with several multiply-accumulates per point (the gates of a recurrent cell, the two
    products of an attention) counts as that many products of the same shape.
    """
    shape = [1.0] * ROLES
    for role, extent in zip(axis_roles(operator), operator.extents, strict=True):
        shape[role] *= extent
    count = shape[COUNT] * shape[STEP] * operator.work.macs
    return count, shape[ROWS], shape[COLUMNS], depth_of(shape[DEPTH], shape[WINDOW], whole)


def whole_depth(target: Target) -> int:
    """Return the channels that an array reads at once per kernel position; 1 if it mixes positions.

    With im2col, or a data path like it, kernel positions and channels are one reduction that fills
    the rows. A channel-stationary array without it reads one kernel position at a time: rows that
    the channels do not fill stay idle.
    """
    matrix = target.matrix
    mixes = matrix.dataflow != "channel_stationary" or matrix.im2col
    return 1 if mixes else matrix.rows


@borrowing
def depth_of(channels: float, positions: float, whole: int) -> float:
    """Return the reduction length of a product as the array sees it."""
    return float(np.ceil(channels / whole) * whole * positions)


def engine_code(operator: Operator, target: Target, dtype: str) -> int:
    """Return the engine that does an operator's work on a target.

    A product that uses so little of the array that vector lanes are faster (a depthwise
    convolution, one output channel per product) goes to the vector engine.
    """
    code, work = _CODES[operator.engine], work_of(operator, target, dtype)
    if operator.integer is not None and in_integers(target, dtype):
        dtype = "int8"
        code = NONE if work == NO_WORK and code == VECTOR else code
    if code != MATRIX:
        return code
    lanes = target.vector.elements_per_cycle(dtype)
    if not target.matrix.macs_per_cycle(dtype) or not lanes:
        return VECTOR
    cycles = matrix_cycles_of(operator, target, dtype)
    return VECTOR if operator.macs / lanes < cycles else MATRIX


class Array(IntEnum):
    """Entries of :func:`array_of`."""

    ROWS = 0
    COLUMNS = 1
    DEPTH = 2
    DATAFLOW = 3
    FOLDS_OVERLAP = 4
    SWAP = 5


def array_of(engine: MatrixEngine) -> Floats:
    """Return a matrix engine's array for compiled code, by :class:`Array`."""
    figures = (
        engine.rows, engine.columns, engine.depth, DATAFLOWS.index(engine.dataflow),
        engine.folds_overlap, engine.swap_operands,
    )  # fmt: skip
    return np.asarray([float(x) for x in figures])


def matrix_cycles_of(operator: Operator, target: Target, dtype: str) -> float:
    """Return the cycles of one core's array for a matrix operator, without start-up."""
    shape = matrix_shape(operator, whole_depth(target))
    cycles = matrix_cycles(*shape, array_of(target.matrix))
    return float(cycles) / dict(target.matrix.rate).get(dtype, 1.0)


@borrowing
def matrix_cycles(count: float, m: float, n: float, k: float, array: Floats) -> float:
    """Return the cycles of ``count`` products M x N x K on an array (:func:`array_of`).

    A fold is what the array does with one filling: a block of M x N sums (output stationary), of
    K x N weights or of K x M inputs; partial folds take as long as whole ones, and streaming steps
    may be a fraction, the mean over tiles of unequal length. Where folds overlap (operands are
    double-buffered in the array) each takes its streaming steps, or as long as loading the next
    operands takes, a row a cycle, if they are loaded; filling and draining are paid once per
    instruction, by ``startup_cycles``. Where they do not, each fold also waits for operands and
    results to cross the array (rows + columns - 2 cycles) and, if something is loaded into it
    before, for that (rows): the closed forms of SCALE-Sim (Samajdar et al., ISPASS 2020), which
    numbers cycles from 0, so that one less is counted in all.

    With ``swap_operands`` the shorter of the product and its transposed form is taken: sums stay
    where they are, and stationary weights become stationary inputs.

    Args:
        count: How many products.
        m: Rows of the result.
        n: Columns of the result.
        k: Length of the sums.
        array: Figures of the array, by :class:`Array`.
    """
    cycles = _cycles(m, n, k, array)
    if array[Array.SWAP]:
        cycles = min(cycles, _cycles(n, m, k, array))
    whole = array[Array.FOLDS_OVERLAP] or int(array[Array.DATAFLOW]) == _IDEAL
    return float(count * cycles - (0.0 if whole else 1.0))


def least_cycles(count: float, m: float, n: float, k: float, array: Floats) -> float:
    """Return cycles that no division of products into instructions can beat, on all cores together.

    Partial folds cost whole ones, so what a dimension is padded to is no less in parts than whole.
    Where a product may run transposed, parts may lie differently: of a dimension that may lie along
    either side only the padding to what divides both counts, and to a side that is streamed in the
    other position none. What folds pay for filling and draining counts where they cannot overlap.

    Args:
        count: How many products.
        m: Rows of the result.
        n: Columns of the result.
        k: Length of the sums.
        array: Figures of the array, by :class:`Array`.
    """
    rows, columns, dataflow = array[Array.ROWS], array[Array.COLUMNS], int(array[Array.DATAFLOW])
    swaps, k = bool(array[Array.SWAP]), math.ceil(k / array[Array.DEPTH])
    if dataflow == _IDEAL:
        return float(count * m * n * k / (rows * columns))
    stationary = dataflow in (_WEIGHT_STATIONARY, _INPUT_STATIONARY, _CHANNEL_STATIONARY)
    load = rows if dataflow in (_WEIGHT_STATIONARY, _INPUT_STATIONARY) else 0.0
    if stationary:
        across, steps = (m, n) if dataflow == _INPUT_STATIONARY else (n, m)
        folds = math.ceil(k / rows) * (across / columns if swaps else math.ceil(across / columns))
    else:
        steps, side = k, math.gcd(int(rows), int(columns))
        down, across = (side, side) if swaps else (rows, columns)
        folds = math.ceil(m / down) * math.ceil(n / across) * down * across / (rows * columns)
    if array[Array.FOLDS_OVERLAP]:
        return float(count * folds * (steps if swaps else max(steps, load)))
    around = load + rows + columns - 2.0
    if around < 1.0:
        return 0.0  # a single point, and cycles are numbered from 0
    return float(count * folds * (steps + (0.0 if swaps and stationary else around - 1.0)))


@borrowing
def _cycles(m: float, n: float, k: float, array: Floats) -> float:
    """Return the cycles of all folds, for one orientation of a product.

    Args:
        m: Rows of the result.
        n: Columns of the result.
        k: Length of the sums.
        array: Figures of the array, by :class:`Array`.
    """
    rows, columns, dataflow = array[Array.ROWS], array[Array.COLUMNS], int(array[Array.DATAFLOW])
    k = np.ceil(k / array[Array.DEPTH])
    if dataflow == _IDEAL:
        return float(m * n * k / (rows * columns))
    down, across, steps, load = m, n, k, 0.0
    if dataflow == _WEIGHT_STATIONARY:
        down, across, steps, load = k, n, m, rows
    elif dataflow == _CHANNEL_STATIONARY:
        down, across, steps = k, n, m
    elif dataflow == _INPUT_STATIONARY:
        down, across, steps, load = k, m, n, rows
    fold = max(steps, load)
    if not array[Array.FOLDS_OVERLAP]:
        fold = steps + load + rows + columns - 2.0
    return float(np.ceil(down / rows) * np.ceil(across / columns) * fold)
