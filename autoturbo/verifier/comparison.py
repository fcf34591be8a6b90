"""Comparison of outputs: equal up to the rounding of another order of summation.

A value is held to

    |candidate - reference| <= noise * (|reference - mean| + spread) + rounding * |reference|

with ``mean`` the mean of the output and ``spread`` its mean absolute deviation. Rounding errors
made anywhere in the network reach an output through the same derivatives as its inputs do, so their
size is proportional to how much the output varies, not to a constant that it stands on; the second
term is the rounding of the output itself. A mean or a sum of values of one sign does not cancel
what its rounding adds up to: one of more than 4,096 values may be off by their number times the
rounding of one (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 4.2),
and values that are nearly equal do so; shorter ones are within what was measured.

How much noise is natural was measured on 21 of the workloads and the small networks of the tests
with every sum of products taken in the opposite order, in relation to ``|reference - mean| +
spread``: in float32 1e-6 to 5e-6 (U-Net 9e-6, MobileNet v2 1e-5), in float16 7e-4 to 3e-3
(MobileNet v2 6e-3). One wrong row of one value in the middle of a network makes 2e-3 to 1 in
either: in float32 it stands out by orders of magnitude; in float16 a row of a large image, averaged
away behind it, may not. What a value that hardly matters to the output should be is not seen at
all: where a schedule is suspect, the values between its layers are worth comparing too.

A quantised network is all or nothing. With scales that are powers of two
(:mod:`autoturbo.verifier.random_values`) its sums are exact, and in the opposite order all networks
measured gave the very same output. Where it computes in floats (a softmax, a normalisation) a value
on the edge can still be rounded to the next integer: a small share of the output may therefore
differ by a few steps of 8 bits. With any other scales such flips are everywhere, spread, and make
differences as large as those of a wrong row.

Integers that a network computes (the index of the largest score) must be equal, save for a small
share where two candidates were nearly equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, TensorProto

from autoturbo.graph.operators import Graph, Operator
from autoturbo.verifier.weight_values import Array


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Numeric types and rounding of a network.

    Attributes:
        element: ONNX element type, the coarsest where there are several.
        quantised: Activations are rounded to integers in between.
        longest_sum: The most values that one mean or sum takes.
    """

    element: int = TensorProto.FLOAT
    quantised: bool = False
    longest_sum: int = 1


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Tolerances of an element type.

    Attributes:
        noise: Relative to how much an output varies: at least 2.5 times the measured noise.
        rounding: Relative to the output itself: two units in its last place.
        ties: Share of computed integers that may differ: near ties are as frequent as noise is
            large.
    """

    noise: float
    rounding: float
    ties: float


_BOUNDS: dict[int, _Bounds] = {
    TensorProto.BFLOAT16: _Bounds(2.0**-3, 2.0**-6, 2.0**-4),
    TensorProto.FLOAT16: _Bounds(2.0**-6, 2.0**-9, 2.0**-6),
    TensorProto.FLOAT: _Bounds(2.0**-15, 2.0**-22, 2.0**-12),
    TensorProto.DOUBLE: _Bounds(2.0**-44, 2.0**-51, 2.0**-20),
}
"""By element type, coarsest first. Of bfloat16 and float64, which few operators of ONNX Runtime
compute in, they follow from the number of digits."""

_FLIP = 2.0**-3
"""How far a flipped rounding may lie, in the unit of noise: a few of the 256 steps of a value that
spans eight times its mean absolute deviation."""

_FLIPPED = 2.0**-8
"""Share of an output that may have flipped; one wrong row of a few hundred is more."""

_FEW = 16
"""Elements below which an output's own variation says little; its magnitude stands in."""

_LONG_SUM = 4096
"""Values of a sum up to which its rounding is within what was measured."""

_UNIT = 2.0**-24
"""Rounding of one addition of float32, in which sums of narrower types are taken too."""

_SUMS = frozenset(
    ("AveragePool", "GlobalAveragePool", "ReduceL1", "ReduceMean", "ReduceSum", "ReduceSumSquare")
)

_QUANTISING = frozenset(
    ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger",
     "MatMulInteger")
)  # fmt: skip


def arithmetic_of(model: ModelProto, longest_sum: int = 1) -> Arithmetic:
    """Return the arithmetic of a model, by the types of its inputs, weights and conversions."""
    used = set(_elements(model))
    # Coarsest first: it rounds most.
    element = next((e for e in _BOUNDS if e in used), TensorProto.FLOAT)
    quantised = any(node.op_type in _QUANTISING for node in model.graph.node)
    return Arithmetic(element, quantised, longest_sum)


def longest_sum(graph: Graph) -> int:
    """Return the most values that a mean or sum of a graph adds."""
    return max(
        (_summed(graph, operator) for operator in graph.operators if operator.kind in _SUMS),
        default=1,
    )


def _summed(graph: Graph, operator: Operator) -> int:
    taken, sums = (graph.tensors[one[0]].elements for one in (operator.inputs, operator.outputs))
    return taken // max(sums, 1)


def _elements(model: ModelProto) -> Iterator[int]:
    yield from (tensor.data_type for tensor in model.graph.initializer)
    yield from (value.type.tensor_type.elem_type for value in model.graph.input)
    for node in model.graph.node:
        if node.op_type == "Cast":
            yield from (a.i for a in node.attribute if a.name == "to")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of comparing one output.

    Attributes:
        name: Name of the output.
        difference: Absolute difference where it is largest in relation to its tolerance; of
            integers, the share that differs.
        tolerance: The largest difference permitted there.
        max_abs_error: Largest absolute difference of any element.
        index: Position of the element in question.
        remark: Why the output proves nothing or cannot be compared, or None.
    """

    name: str
    difference: float
    tolerance: float
    max_abs_error: float
    index: tuple[int, ...] = ()
    remark: str | None = None

    @property
    def ok(self) -> bool:
        """Return whether the outputs agree."""
        return self.difference <= self.tolerance


@dataclass(frozen=True, slots=True)
class Scale:
    """Mean and variation of a tensor, for comparing parts of it.

    A part may vary far less than its tensor does, but not its rounding errors: those come from sums
    that all of the tensor has in common.

    Attributes:
        centre: Mean of the tensor.
        spread: Mean absolute deviation of the tensor.
        factor: Factor by which all bounds are widened.
    """

    centre: float
    spread: float
    factor: float = 1.0

    @staticmethod
    def of(values: Array) -> Scale:
        """Return the scale of a tensor; values that are not finite count as zero."""
        if values.dtype.kind not in "fiu" or not values.size:
            return Scale(0.0, 0.0)
        # In double precision, so that the judge does not round.
        known = np.where(np.isfinite(values), values, 0).astype(np.float64)
        centre = float(known.mean()) if known.size >= _FEW else 0.0
        return Scale(centre, float(np.abs(known - centre).mean()))


def compare(
    reference: Mapping[str, Array], candidate: Mapping[str, Array], arithmetic: Arithmetic
) -> tuple[Comparison, ...]:
    """Compare every output of the reference with the candidate's of the same name.

    An output that is not finite or constant in the reference is compared too, with a remark:
    equality then proves little.

    Args:
        reference: Outputs of the original model by name.
        candidate: Outputs of the scheduled model; a missing output differs.
        arithmetic: Arithmetic of the model.

    Returns:
        A comparison per output, in the order of the reference.
    """
    return tuple(
        compare_part(name, wanted, candidate.get(name), arithmetic, Scale.of(wanted))
        for name, wanted in reference.items()
    )


def compare_part(
    name: str, wanted: Array, found: Array | None, arithmetic: Arithmetic, scale: Scale
) -> Comparison:
    """Compare a part of a tensor.

    Args:
        name: Name of the tensor.
        wanted: The part, of the reference.
        found: The part of the candidate; None where it has none.
        arithmetic: Arithmetic of the model.
        scale: Scale of the whole tensor of the reference.

    Returns:
        The largest errors of the part, or a remark on why there are none to compare.
    """
    if found is None:
        return _mismatch(name, "is not computed")
    if found.shape != wanted.shape:
        return _mismatch(name, f"has extents {list(found.shape)}, wanted {list(wanted.shape)}")
    if wanted.size == 0:
        return Comparison(name, 0.0, 0.0, 0.0, remark="has no elements")
    if _compared_exactly(wanted, arithmetic):
        return _compare_exactly(name, wanted, found, _BOUNDS[arithmetic.element].ties)
    values = wanted.astype(np.float64), found.astype(np.float64)
    return _compare_numbers(name, *values, arithmetic, scale)


def _compared_exactly(values: Array, arithmetic: Arithmetic) -> bool:
    """Return whether values must be equal: positions, truth values, texts."""
    bytes_ = values.dtype.kind in "iu" and values.dtype.itemsize == 1
    return values.dtype.kind in "iubOSU" and not (arithmetic.quantised and bytes_)


def _mismatch(name: str, remark: str, at: tuple[int, ...] = ()) -> Comparison:
    infinity = float("inf")
    return Comparison(name, infinity, 0.0, infinity, at, remark)


def _compare_exactly(name: str, wanted: Array, found: Array, allowed: float) -> Comparison:
    differing = wanted != found
    numbers = wanted.dtype.kind in "iu"
    errors = np.abs(wanted.astype(np.float64) - found) if numbers else differing.astype(np.float64)
    share, largest = float(differing.mean()), float(errors.max())
    # Compared by their share: where two candidates are nearly equal either index is right.
    return Comparison(name, share, allowed, largest, _position(differing), _constant_remark(wanted))


def _compare_numbers(
    name: str, wanted: Array, found: Array, arithmetic: Arithmetic, scale: Scale
) -> Comparison:
    finite = np.isfinite(wanted)
    agree = np.where(finite, np.isfinite(found), _equal(wanted, found))
    if not agree.all():
        return _mismatch(name, "differs where one is not finite", _position(~agree))
    if not finite.any():
        return Comparison(name, 0.0, 0.0, 0.0, remark="is not finite anywhere")
    remark = _constant_remark(wanted) if finite.all() else "is not finite everywhere"
    wanted, found = np.where(finite, wanted, 0), np.where(finite, found, 0)
    errors = np.abs(found - wanted)
    bounds = _bounds(wanted, errors, arithmetic, scale)
    worst = _position(errors / np.maximum(bounds, np.finfo(np.float64).tiny))
    return Comparison(
        name,
        float(errors[worst]),
        float(bounds[worst]),
        float(errors.max()),
        worst,
        remark,
    )


def _equal(wanted: Array, found: Array) -> Array:
    """Return a mask of equal values; not-a-number equals itself."""
    return np.asarray((wanted == found) | (np.isnan(wanted) & np.isnan(found)))


def _bounds(wanted: Array, errors: Array, arithmetic: Arithmetic, scale: Scale) -> Array:
    """Return the largest permitted difference of each element.

    Args:
        wanted: Values of the reference.
        errors: Absolute differences from them.
        arithmetic: Arithmetic of the model.
        scale: Scale of the whole tensor of the reference.
    """
    bounds = tolerances(wanted, arithmetic, scale)
    # Only if few differ: flips are rare, a wrong row is not.
    if arithmetic.quantised and (errors > bounds).mean() <= _FLIPPED:
        return np.maximum(bounds, _FLIP * _variation(wanted, scale))
    return bounds


def tolerances(wanted: Array, arithmetic: Arithmetic, scale: Scale) -> Array:
    """Return the largest difference by rounding of each element, as float64."""
    bounds, count = _BOUNDS[arithmetic.element], arithmetic.longest_sum
    noise = bounds.noise * _variation(wanted, scale)
    # The bound is two units in the last place; one addition rounds by half of one.
    unit = min(bounds.rounding / 4, _UNIT)
    rounding = max(bounds.rounding, count * unit) if count > _LONG_SUM else bounds.rounding
    return np.asarray(scale.factor * (noise + rounding * np.abs(wanted)))


def _variation(wanted: Array, scale: Scale) -> Array:
    return np.asarray(np.abs(wanted - scale.centre) + scale.spread)


def _position(values: Array) -> tuple[int, ...]:
    """Return the index of the largest value."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(values)), values.shape))


def _constant_remark(wanted: Array) -> str | None:
    return "is constant" if wanted.size > 1 and wanted.min() == wanted.max() else None


def described(comparison: Comparison) -> str:
    """Return a text on an output that differs: its name, by how much, and where."""
    if comparison.remark is not None and not comparison.ok:
        return f"{comparison.name} {comparison.remark}"
    where = ", ".join(map(str, comparison.index))
    return (
        f"{comparison.name}: off by {comparison.difference:.3g} at [{where}],"
        f" allowed are {comparison.tolerance:.3g}"
    )
