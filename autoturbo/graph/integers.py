"""Operators of quantised models that are computed in integers.

Quantisers write each operator between conversions: DequantizeLinear, the operator, QuantizeLinear.
A device with 8-bit arithmetic does one integer operator instead. It reads 8-bit values, sums in a
wider accumulator, and scales, rounds and saturates what it writes: one multiply-add per result, of
which bias and zero points are the summand and the saturation is also a Relu or a Clip.
A chain of such operators never holds a real value.

Each operator of such a chain gets its integer arithmetic, each real tensor between them its mark;
what a target makes of that is :func:`autoturbo.schedule.codegen.work.priced`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from autoturbo.graph.operators import NO_WORK, Engine, Graph, Operator, Pattern, Work
from autoturbo.graph.stored import BYTES, DEQUANTISE, QUANTISE

REQUANTISE = Work(vector=1.0)
"""Of a QuantizeLinear that integer values reach: scale, round and saturate."""

_SATURATING = frozenset(("Relu", "Clip"))

_IN_INTEGERS = ("QLinear", "ConvInteger", "MatMulInteger")
"""How the names of operators begin that are defined on 8-bit values."""

_VECTOR: Mapping[str, float] = {
    "QLinearConv": 1.0, "QLinearMatMul": 1.0, "com.microsoft.QLinearAdd": 2.0,
    "com.microsoft.QLinearMul": 2.0, "com.microsoft.QLinearSigmoid": 2.0,
    "com.microsoft.QLinearLeakyRelu": 3.0,
}  # fmt: skip
"""Vector operations per result where a row counts single steps on real values: the operator's own,
and the multiply-add of its result."""

_WITH_BIAS = frozenset(("Conv", "ConvTranspose", "Gemm"))


def with_integers(graph: Graph) -> Graph:
    """Return a graph whose quantised operators and tensors are marked; itself if it has none.

    Args:
        graph: The graph; constants made of 8-bit values are marked in it.
    """
    back = {
        operator.outputs[0]
        for operator in graph.operators
        if operator.kind in DEQUANTISE and graph.tensors[operator.inputs[0]].dtype in BYTES
    }
    works, cores = _integer_works(graph, back)
    held = _read_as_bytes(graph, back, cores)
    for tensor in held & back:
        source = graph.producer[tensor]
        absorbed = cores.issuperset(graph.consumers[tensor])
        works[source] = NO_WORK if absorbed else graph.operators[source].work
    if not works and not any(tensor.integer_bytes for tensor in graph.tensors):
        return graph
    scales = _scales(graph, works) if works else set()
    sizes = dict.fromkeys(scales, 0) | dict.fromkeys(held, 1)
    return replace(
        graph,
        tensors=tuple(replace(x, integer_bytes=sizes.get(t)) for t, x in enumerate(graph.tensors)),
        operators=tuple(
            replace(x, integer=works.get(index)) for index, x in enumerate(graph.operators)
        ),
    )


def with_unpacking(graph: Graph) -> Graph:
    """Return a graph whose operators unpack narrow constants; the graph itself if it has none.

    An element takes two operations, as in MatMulNBits: subtract the zero point, scale. Lookups
    unpack the elements that they pick. Integer arithmetic needs no unpacking.
    """
    kept = {t for t, tensor in enumerate(graph.tensors) if tensor.stored}
    if not kept:
        return graph
    return replace(
        graph, operators=tuple(_unpacking(graph, operator, kept) for operator in graph.operators)
    )


def _unpacking(graph: Graph, operator: Operator, kept: set[int]) -> Operator:
    elements = sum(graph.tensors[t].elements for t in operator.inputs if t in kept)
    if not elements or operator.engine not in (Engine.MOVE, Engine.NONE):
        return replace(operator, unpacking=operator.unpacking + 2.0 * elements)
    work, picked = operator.work, min(elements / max(operator.output_points, 1), 1.0)
    return replace(operator, work=replace(work, vector=work.vector + 2.0 * picked))


def _integer_works(graph: Graph, back: set[int]) -> tuple[dict[int, Work], set[int]]:
    """Return the work of operators computed in integers, and those among them that read 8 bits."""
    works: dict[int, Work] = {}
    cores: set[int] = set()
    for index, operator in enumerate(graph.operators):
        if _in_integers(operator.kind):
            vector = _VECTOR.get(operator.kind, operator.work.vector)
            works[index] = replace(operator.work, vector=vector)
        elif operator.engine is Engine.VECTOR and _is_on_bytes(graph, operator):
            works[index] = operator.work
        elif _reads_bytes(graph, operator, back) and (ends := _ends(graph, operator)):
            cores.add(index)
            works[index] = _without_bias(operator)
            works |= {i: NO_WORK for end in ends for i in end[:-1]}
            works |= {end[-1]: _requantised(graph, operator, end) for end in ends}
    return works, cores


def _is_on_bytes(graph: Graph, operator: Operator) -> bool:
    """Return whether an operator reads and writes 8-bit values: a pool between two QLinearConv."""
    given = [graph.tensors[t] for t in operator.inputs if not graph.tensors[t].constant]
    outputs = [graph.tensors[t] for t in operator.outputs]
    return bool(given) and all(tensor.dtype in BYTES for tensor in (*given, *outputs))


def _without_bias(operator: Operator) -> Work:
    """Return an operator's work without its bias, which is added when the result is scaled."""
    work = operator.work
    if operator.kind in _WITH_BIAS and len(operator.inputs) > 2:  # noqa: PLR2004
        return replace(work, vector=max(work.vector - 1.0, 0.0))
    return work


def _reads_bytes(graph: Graph, operator: Operator, back: set[int]) -> bool:
    """Return whether all activations and weights of an operator are dequantised 8-bit values."""
    if operator.opaque or operator.kind in QUANTISE | DEQUANTISE:
        return False
    real = [
        (place, t) for place, t in enumerate(operator.inputs) if _is_real(graph.tensors[t].dtype)
    ]
    return any(t in back for _, t in real) and all(
        t in back or _may_be(graph, operator, place, t) for place, t in real
    )


def _is_real(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _may_be(graph: Graph, operator: Operator, place: int, index: int) -> bool:
    """Return whether an input may be a constant: 8-bit values, a bias, a scalar, a parameter."""
    tensor = graph.tensors[index]
    arithmetic = operator.engine is Engine.MATRIX or operator.pattern <= Pattern.BROADCAST
    small = place > 1 or tensor.elements == 1 or not arithmetic
    return tensor.constant and (tensor.integer_bytes == 1 or small)


def _ends(graph: Graph, operator: Operator) -> list[list[int]] | None:
    """Return, per output, the operators up to its QuantizeLinear; None if one has none."""
    ends = [_end(graph, tensor) for tensor in operator.outputs]
    return None if any(end is None for end in ends) else [end for end in ends if end]


def _end(graph: Graph, tensor: int) -> list[int] | None:
    """Return the Relus and Clips behind a tensor up to its QuantizeLinear, None if it has none."""
    end: list[int] = []
    while len(graph.consumers[tensor]) == 1 and tensor not in graph.outputs:
        (reader,) = graph.consumers[tensor]
        operator = graph.operators[reader]
        if operator.inputs[0] != tensor or operator.inputs.count(tensor) > 1:
            return None
        end.append(reader)
        if operator.kind in QUANTISE:
            return end if graph.tensors[operator.outputs[0]].dtype in BYTES else None
        if operator.kind not in _SATURATING or not _alone(graph, operator):
            return None
        tensor = operator.outputs[0]
    return None


def _alone(graph: Graph, operator: Operator) -> bool:
    """Return whether all inputs but the first are constants."""
    return all(graph.tensors[tensor].constant for tensor in operator.inputs[1:])


def _requantised(graph: Graph, operator: Operator, end: list[int]) -> Work:
    """Return the work of a result's QuantizeLinear: none if values only move at one scale."""
    scales = [graph.operators[end[-1]].inputs[1:]]
    for tensor in operator.inputs:
        if not _is_real(graph.tensors[tensor].dtype):
            continue
        if graph.producer[tensor] < 0:
            return REQUANTISE
        scales.append(graph.operators[graph.producer[tensor]].inputs[1:])
    moves = operator.engine in (Engine.MOVE, Engine.NONE) or operator.kind == "MaxPool"
    return NO_WORK if moves and all(a == b for a, b in pairwise(scales)) else REQUANTISE


def _read_as_bytes(graph: Graph, back: set[int], cores: set[int]) -> set[int]:
    """Return the real tensors that are held as 8-bit values.

    These are dequantised tensors with a reader in integers (other readers pay for the conversion),
    and constants without other readers.
    """
    dequantised = {t for t in back - set(graph.outputs) if not cores.isdisjoint(graph.consumers[t])}
    constant = {
        t for t, tensor in enumerate(graph.tensors)
        if tensor.integer_bytes and graph.consumers[t] and cores.issuperset(graph.consumers[t])
    }  # fmt: skip
    return dequantised | constant


def _scales(graph: Graph, works: Mapping[int, Work]) -> set[int]:
    """Return the scales and zero points that are part of integer operators' instructions.

    Scalar ones of the conversions at the ends of a chain are part of them too.
    """
    read = {
        t for index, operator in enumerate(graph.operators) for t in operator.inputs[1:]
        if _is_instruction(graph, operator, t, inside=index in works)
    }  # fmt: skip
    kinds = {t: {graph.operators[i].kind for i in graph.consumers[t]} for t in read}
    return {
        t for t, reader_kinds in kinds.items() if all(_has_scales(kind) for kind in reader_kinds)
    }


def _is_instruction(graph: Graph, operator: Operator, index: int, *, inside: bool) -> bool:
    """Return whether an input is a scale or zero point that is encoded in the instruction."""
    tensor = graph.tensors[index]
    small = len(tensor.shape) <= inside or tensor.elements == 1
    return _has_scales(operator.kind) and tensor.constant and small and tensor.dtype != "int32"


def _has_scales(kind: str) -> bool:
    return kind in QUANTISE | DEQUANTISE or _in_integers(kind)


def _in_integers(kind: str) -> bool:
    return kind.rpartition(".")[2].startswith(_IN_INTEGERS)
