"""Operators of quantised models that are computed in integers.

Quantisers write each operator between conversions: DequantizeLinear, the operator, QuantizeLinear.
A device with 8-bit arithmetic does one integer operator instead. It reads 8-bit values, sums in a
wider accumulator, and scales, rounds and saturates what it writes: one multiply-add per result, of
which bias and zero points are the summand and the saturation is also a Relu or a Clip.
A chain of such operators never holds a real value.

The vector engine reads and writes 8-bit values as it does others: beside its operators conversions
are no work of their own, and what it alone reads of a product need not be scaled before. Values
that are quantised and at once made real again are only rounded where they are made. What is left
are conversions that stand alone, as at the ends of the model.
Where scales are found while the model runs, the product by them is part of the integer product that
it follows, as a bias is.

Each operator of such a chain gets its integer arithmetic, each real tensor between them its mark;
what a target makes of that is :func:`autoturbo.schedule.work.priced`'s.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from autoturbo.graph.operators import NO_WORK, Engine, Graph, Operator, Pattern, Work
from autoturbo.graph.stored import BYTES, DEQUANTISE, QUANTISE

REQUANTISE = Work(vector=1.0)
"""Of a QuantizeLinear that integer values reach: scale, round and saturate."""

CONVERT = Work(real=1.0)
"""Between 8-bit and real values: one multiply-add; what is quantised is rounded and saturated."""

_FIND_RANGE = Work(real=3.0)
"""Of a DynamicQuantizeLinear: the least and the largest value, then a conversion, whose division by
the scale is a multiplication by its reciprocal."""

_WIDE = frozenset(("int16", "uint16"))

_SATURATING = frozenset(("Relu", "Clip"))

_IN_INTEGERS = ("QLinear", "ConvInteger", "MatMulInteger")
"""How the names of operators begin that are defined on 8-bit values."""

_VECTOR: Mapping[str, float] = {
    "com.microsoft.QLinearAdd": 1.0, "com.microsoft.QLinearMul": 1.0,
    "com.microsoft.QLinearSigmoid": 1.0, "com.microsoft.QLinearLeakyRelu": 2.0,
}  # fmt: skip
"""Vector operations per result where a row counts single steps on real values: the operator's own.
"""

_PRODUCTS = ("QLinearConv", "QLinearMatMul")
_BIAS = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2, "QLinearConv": 8}
"""Inputs before the bias."""


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
    told = works or _is_wide(graph)
    readers = cores | _on_vectors(graph) if told else cores
    held = _read_as_bytes(graph, back, cores, readers)
    if told:
        works |= _conversions(graph, works, readers) | _dynamic(graph)
    if not works and not any(tensor.integer_bytes for tensor in graph.tensors):
        return graph
    scales = _scales(graph, works) if works else set()
    # Scales are part of the instructions and take no memory; 8-bit values take a byte.
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


def among_integers(operator: Operator) -> Work:
    """Return the arithmetic of a quantised operator in a run that holds all values in int8.

    No conversion is left: what a result is scaled by is counted for no operator of such a run.
    """
    work = operator.integer or NO_WORK
    if operator.kind in QUANTISE | DEQUANTISE or work == NO_WORK:
        return NO_WORK
    if operator.kind in _PRODUCTS:
        return replace(work, vector=float(_has_bias(operator)))
    return operator.work if work == _without_bias(operator) else work


def _integer_works(graph: Graph, back: set[int]) -> tuple[dict[int, Work], set[int]]:
    """Return the work of operators computed in integers, and those among them that read 8 bits."""
    works: dict[int, Work] = {}
    cores: set[int] = set()
    for index, operator in enumerate(graph.operators):
        if operator.kind in _PRODUCTS:
            scaled = float(_is_moved(graph, operator.outputs[0]))
            works[index] = replace(operator.work, vector=scaled)
        elif _in_integers(operator.kind):
            vector = _VECTOR.get(operator.kind, operator.work.vector)
            works[index] = replace(operator.work, vector=vector)
        elif operator.engine is Engine.VECTOR and _is_on_bytes(graph, operator):
            works[index] = operator.work
        elif _reads_bytes(graph, operator, back) and (ends := _ends(graph, operator)):
            cores.add(index)
            works[index] = _without_bias(operator)
            # Relus and clips before the rounding are its saturation: they cost nothing.
            works |= {i: NO_WORK for end in ends for i in end[:-1]}
            works |= {end[-1]: _requantised(graph, operator, end) for end in ends}
        elif _reads_bytes(graph, operator, back) and _is_activated(graph, operator):
            cores.add(index)
            works[index] = _without_bias(operator)
    return works, cores


def _is_activated(graph: Graph, operator: Operator) -> bool:
    """Return whether operators of the vector engine are all that reads a product, its sums."""
    readers = {index for tensor in operator.outputs for index in graph.consumers[tensor]}
    return (
        operator.engine is Engine.MATRIX
        and not operator.recurrent
        and bool(readers)
        and all(_is_on_vectors(graph.operators[index]) for index in readers)
        and not set(operator.outputs).intersection(graph.outputs)
    )


def _on_vectors(graph: Graph) -> set[int]:
    """Return the operators of the vector engine but for conversions."""
    return {index for index, operator in enumerate(graph.operators) if _is_on_vectors(operator)}


def _is_on_vectors(operator: Operator) -> bool:
    conversion = operator.kind in QUANTISE | DEQUANTISE
    return operator.engine is Engine.VECTOR and not (operator.opaque or conversion)


def _is_moved(graph: Graph, tensor: int) -> bool:
    """Return whether anything but the vector engine reads an 8-bit tensor, also as real values."""
    if tensor in graph.returned:
        return True
    readers = [graph.operators[index] for index in graph.consumers[tensor]]
    return any(
        _is_moved(graph, one.outputs[0]) if one.kind in DEQUANTISE else not _is_on_vectors(one)
        for one in readers
    )  # fmt: skip


def _is_wide(graph: Graph) -> bool:
    """Return whether activations are quantised to 16 bits: rounded reals, to most devices."""
    return any(
        one.kind in QUANTISE and graph.tensors[one.outputs[0]].dtype in _WIDE
        for one in graph.operators
    )


def _conversions(graph: Graph, works: Mapping[int, Work], readers: set[int]) -> dict[int, Work]:
    """Return the work of the conversions that no chain of integers has taken in.

    Args:
        graph: The graph.
        works: Work of the operators in integers.
        readers: Operators that read 8-bit values as they are, and write them.
    """
    found = {}
    for index, operator in enumerate(graph.operators):
        if index in works or not _converts(graph, operator):
            continue
        if operator.kind in QUANTISE:
            beside = _is_rounded_with(graph, operator, readers)
        else:
            beside = _is_read_back(graph, operator, readers)
        found[index] = NO_WORK if beside else CONVERT
    return found


def _is_rounded_with(graph: Graph, operator: Operator, readers: set[int]) -> bool:
    """Return whether an operator rounds what it makes: its values, or a product with its bias."""
    data = operator.inputs[0]
    maker = graph.producer[data]
    if maker < 0 or maker in readers:
        return maker >= 0
    alone = graph.operators[maker].engine is Engine.MATRIX and _only_reader(graph, data) is not None
    moved = _is_moved(graph, operator.outputs[0])
    return alone and (_has_bias(graph.operators[maker]) or not moved)


def _is_read_back(graph: Graph, operator: Operator, readers: set[int]) -> bool:
    """Return whether making 8-bit values real is no work: all read them as they are, or none."""
    data, made = operator.inputs[0], operator.outputs[0]
    quantised = {i for i in graph.consumers[made] if graph.operators[i].kind in QUANTISE}
    inside = (readers | quantised).intersection(graph.consumers[made])
    if inside:
        return made not in graph.returned and inside == set(graph.consumers[made])
    return _is_rounded(graph, data)


def _is_rounded(graph: Graph, tensor: int) -> bool:
    """Return whether 8-bit values are made where they are read back: they may stay real ones."""
    maker = graph.producer[tensor]
    return (
        maker >= 0
        and graph.operators[maker].engine in (Engine.VECTOR, Engine.MATRIX)
        and _only_reader(graph, tensor) is not None
    )


def _converts(graph: Graph, operator: Operator) -> bool:
    """Return whether an operator converts between real and 8-bit values by a constant scale."""
    if operator.kind not in QUANTISE | DEQUANTISE or not _alone(graph, operator):
        return False
    ends = (operator.inputs[0], operator.outputs[0])
    return graph.tensors[ends[operator.kind in QUANTISE]].dtype in BYTES | _WIDE


def _is_on_bytes(graph: Graph, operator: Operator) -> bool:
    """Return whether an operator reads and writes 8-bit values: a pool between two QLinearConv."""
    given = [graph.tensors[t] for t in operator.inputs if not graph.tensors[t].constant]
    outputs = [graph.tensors[t] for t in operator.outputs]
    return bool(given) and all(tensor.dtype in BYTES for tensor in (*given, *outputs))


def _without_bias(operator: Operator) -> Work:
    """Return an operator's work without its bias, which is added when the result is scaled."""
    work = operator.work
    if _has_bias(operator):
        return replace(work, vector=max(work.vector - 1.0, 0.0))
    return work


def _has_bias(operator: Operator) -> bool:
    return len(operator.inputs) > _BIAS.get(operator.kind, math.inf)


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
    while len(graph.consumers[tensor]) == 1 and tensor not in graph.returned:
        (reader,) = graph.consumers[tensor]
        operator = graph.operators[reader]
        # As a bound of a Clip, or twice, the tensor is not just passed on.
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
    """Return the work of a result's QuantizeLinear.

    There is none of what the vector engine makes, nor of a product that it alone reads, nor of
    values that only move at one scale.
    """
    last = graph.operators[end[-1]]
    if operator.engine is Engine.VECTOR:
        return NO_WORK
    if operator.engine is Engine.MATRIX:
        return REQUANTISE if _is_moved(graph, last.outputs[0]) else NO_WORK
    scales = [last.inputs[1:]]
    for tensor in operator.inputs:
        if not _is_real(graph.tensors[tensor].dtype):
            continue
        # Given to the model: its scale is not known here.
        if graph.producer[tensor] < 0:
            return REQUANTISE
        scales.append(graph.operators[graph.producer[tensor]].inputs[1:])
    return NO_WORK if all(a == b for a, b in pairwise(scales)) else REQUANTISE


def _read_as_bytes(graph: Graph, back: set[int], cores: set[int], readers: set[int]) -> set[int]:
    """Return the real tensors that are held as 8-bit values.

    These are dequantised tensors with a reader in integers (other readers pay for the conversion)
    or with none but vector operators, and constants without other readers.
    """
    dequantised = {
        t for t in back - set(graph.outputs)
        if not cores.isdisjoint(graph.consumers[t]) or readers.issuperset(graph.consumers[t])
    }  # fmt: skip
    constant = {
        t for t, tensor in enumerate(graph.tensors)
        if tensor.integer_bytes and graph.consumers[t] and cores.issuperset(graph.consumers[t])
    }  # fmt: skip
    return dequantised | constant


# ------------------------------------------------------------- scales found while the model runs


class Rescaling(NamedTuple):
    """The end of an integer product whose scale is found while the model runs.

    Attributes:
        cast: The operator that makes the sums real.
        scale: The tensor that multiplies the integers.
        makers: Operators that make the scale, for this product alone.
        factor: The scale, a tensor.
    """

    cast: int
    scale: int
    makers: tuple[int, ...]
    factor: int


def rescalings(graph: Graph) -> dict[int, Rescaling]:
    """Return how integer products are made real, by the operator of the product."""
    products = (i for i, one in enumerate(graph.operators) if one.kind in _SUMS)
    found = ((index, _rescaling(graph, index)) for index in products)
    return {index: end for index, end in found if end is not None}


_SUMS = frozenset(("ConvInteger", "MatMulInteger"))


def _rescaling(graph: Graph, product: int) -> Rescaling | None:
    cast = _only_reader(graph, graph.operators[product].outputs[0])
    if cast is None or graph.operators[cast].kind != "Cast":
        return None
    made = graph.operators[cast].outputs[0]
    scale = _only_reader(graph, made)
    if scale is None or graph.operators[scale].kind != "Mul":
        return None
    factors = [tensor for tensor in graph.operators[scale].inputs if tensor != made]
    if len(factors) != 1 or not _is_real(graph.tensors[made].dtype):
        return None
    ranges = {graph.producer[tensor] for tensor in graph.operators[product].inputs}
    found: set[int] = set()
    if not _from_ranges(graph, factors[0], ranges - {-1}, found):
        return None
    inside = found | {scale}
    outputs = [graph.operators[maker].outputs[0] for maker in found]
    alone = all(inside.issuperset(graph.consumers[t]) and t not in graph.returned for t in outputs)
    return Rescaling(cast, scale, tuple(sorted(found)) if alone else (), factors[0])


def _only_reader(graph: Graph, tensor: int) -> int | None:
    readers = graph.consumers[tensor]
    return readers[0] if len(readers) == 1 and tensor not in graph.returned else None


def _from_ranges(graph: Graph, tensor: int, ranges: set[int], found: set[int]) -> bool:
    """Return whether a tensor follows from scales that some operators found, and constants.

    Args:
        graph: The graph.
        tensor: The tensor.
        ranges: Operators that may be DynamicQuantizeLinear.
        found: Gets the operators between.
    """
    maker = graph.producer[tensor]
    if graph.tensors[tensor].constant:
        return True
    if maker < 0:
        return False
    operator = graph.operators[maker]
    if operator.kind == "DynamicQuantizeLinear":
        return maker in ranges and tensor != operator.outputs[0]
    if len(operator.outputs) != 1 or operator.pattern > Pattern.INJECTIVE or operator.opaque:
        return False
    # Noted before its inputs: a caller that gives up throws all of it away.
    found.add(maker)
    return all(_from_ranges(graph, one, ranges, found) for one in operator.inputs)


def _dynamic(graph: Graph) -> dict[int, Work]:
    """Return the work of dynamic quantisation: the product by the scale is the product's end."""
    works = {
        index: _FIND_RANGE for index, operator in enumerate(graph.operators)
        if operator.kind == "DynamicQuantizeLinear"
    }  # fmt: skip
    for product, end in rescalings(graph).items():
        works[product] = replace(graph.operators[product].work, vector=0.0)
        works |= {end.cast: NO_WORK, end.scale: CONVERT}
        works |= dict.fromkeys(_summands(graph, end.scale), NO_WORK)
    return works


def _summands(graph: Graph, scale: int) -> Iterator[int]:
    """Yield what is part of the multiply-add behind an operator: further scales, then a bias."""
    last: int | None = scale
    while last is not None and graph.operators[last].kind == "Mul":
        last = _only_reader(graph, graph.operators[last].outputs[0])
        if last is None or not _by_channel(graph, graph.operators[last]):
            return
        yield last


def _by_channel(graph: Graph, operator: Operator) -> bool:
    """Return whether an operator multiplies or adds a constant: one for all, or one a channel."""
    constants = [graph.tensors[t] for t in operator.inputs if graph.tensors[t].constant]
    plain = operator.kind in ("Add", "Mul") and len(constants) == 1
    return plain and sum(extent > 1 for extent in constants[0].shape) <= 1


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
