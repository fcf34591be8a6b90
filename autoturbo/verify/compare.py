"""Do two sets of outputs agree, up to what another order of summation explains?

A value is held to

    |candidate - reference| <= noise * (|reference - mean| + spread) + rounding * |reference|

with ``mean`` the mean of the output and ``spread`` its mean absolute deviation. Rounding errors made
anywhere in the network reach an output through the same derivatives as its inputs do, so their size
is proportional to how much the output varies, not to a constant that it stands on; the second term
is the rounding of the output itself. ``noise`` and ``rounding`` depend on the element type in which
the network computes; :data:`_NOISE` says how they were measured.

Integers that a network computes (the index of the largest score) must be equal, save for a small
share where two candidates were nearly equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from autoturbo.graph.weight_values import Array


class Precision(StrEnum):
    """What a network computes in, its coarsest type where there are several."""

    DOUBLE = "float64"
    SINGLE = "float32"
    HALF = "float16"
    BRAIN = "bfloat16"
    QUANTISED = "quantised"


_ROUNDING = {
    Precision.DOUBLE: 2.0**-50,
    Precision.SINGLE: 2.0**-21,
    Precision.HALF: 2.0**-8,
    Precision.BRAIN: 2.0**-5,
    Precision.QUANTISED: 2.0**-21,
}
"""Four units in the last place of an output: its own rounding and that of a final activation."""

_NOISE = {
    Precision.DOUBLE: 2.0**-44,
    Precision.SINGLE: 2.0**-16,
    Precision.HALF: 2.0**-5,
    Precision.BRAIN: 2.0**-2,
    Precision.QUANTISED: 2.0**-3,
}
"""Relative to how much an output varies."""

_TIES = {
    Precision.DOUBLE: 0.0,
    Precision.SINGLE: 2.0**-12,
    Precision.HALF: 2.0**-6,
    Precision.BRAIN: 2.0**-4,
    Precision.QUANTISED: 2.0**-4,
}
"""Share of computed integers that may differ: near ties are as frequent as the noise is large."""

_FEW = 16
"""Elements below which an output's own variation says little; its magnitude stands in."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What comparing one output gave.

    Attributes:
        name: of the output.
        difference: absolute difference where it is largest in relation to its tolerance; of
            integers, the share that differs.
        tolerance: what it was held to there.
        max_abs_error: largest absolute difference of any element.
        index: position of the element in question.
        remark: why the output proves nothing or cannot be compared, or None.
    """

    name: str
    difference: float
    tolerance: float
    max_abs_error: float
    index: tuple[int, ...] = ()
    remark: str | None = None

    @property
    def ok(self) -> bool:
        """The outputs agree."""
        return self.difference <= self.tolerance


def compare(
    reference: Mapping[str, Array], candidate: Mapping[str, Array], precision: Precision
) -> tuple[Comparison, ...]:
    """Compare every output of the reference with the candidate's of the same name.

    An output that is not finite or constant in the reference is compared too, and remarked upon:
    that the candidate has it as well proves little.

    Args:
        reference: outputs of the original model by name.
        candidate: of the scheduled one; an output that it lacks differs.
        precision: what the model computes in.
    """
    return tuple(
        _compare(name, wanted, candidate.get(name), precision) for name, wanted in reference.items()
    )


def _compare(name: str, wanted: Array, found: Array | None, precision: Precision) -> Comparison:
    if found is None:
        return _differs(name, "is not computed")
    if found.shape != wanted.shape:
        return _differs(name, f"has extents {list(found.shape)}, wanted {list(wanted.shape)}")
    if wanted.size == 0:
        return Comparison(name, 0.0, 0.0, 0.0, remark="has no elements")
    if wanted.dtype.kind in "iub" and precision is not Precision.QUANTISED:
        return _compare_integers(name, wanted, found, precision)
    return _compare_numbers(name, wanted.astype(np.float64), found.astype(np.float64), precision)


def _differs(name: str, remark: str) -> Comparison:
    infinity = float("inf")
    return Comparison(name, infinity, 0.0, infinity, remark=remark)


def _compare_integers(name: str, wanted: Array, found: Array, precision: Precision) -> Comparison:
    differing = wanted != found
    share, allowed = float(differing.mean()), _TIES[precision]
    errors = np.abs(wanted.astype(np.float64) - found.astype(np.float64))
    return Comparison(
        name, share, allowed, float(errors.max()), _position(differing), _remark(wanted)
    )


def _compare_numbers(name: str, wanted: Array, found: Array, precision: Precision) -> Comparison:
    finite = np.isfinite(wanted)
    if not np.array_equal(finite, np.isfinite(found)):
        at = _position(finite != np.isfinite(found))
        return Comparison(name, float("inf"), 0.0, float("inf"), at, "is not finite where it was")
    if not finite.any():
        return Comparison(name, 0.0, 0.0, 0.0, remark="is not finite anywhere")
    errors = np.abs(np.where(finite, found, 0) - np.where(finite, wanted, 0))
    bounds = tolerances(np.where(finite, wanted, 0), precision)
    at = _position(errors / np.maximum(bounds, np.finfo(np.float64).tiny))
    remark = _remark(wanted) if finite.all() else "is not finite everywhere"
    return Comparison(name, float(errors[at]), float(bounds[at]), float(errors.max()), at, remark)


def tolerances(wanted: Array, precision: Precision) -> Array:
    """The largest difference that each element of an output may have, as the module says."""
    centre = wanted.mean() if wanted.size >= _FEW else 0.0
    deviation = np.abs(wanted - centre)
    noise = _NOISE[precision] * (deviation + deviation.mean())
    return np.asarray(noise + _ROUNDING[precision] * np.abs(wanted))


def _position(values: Array) -> tuple[int, ...]:
    """Where the largest of the values is."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(values)), values.shape))


def _remark(wanted: Array) -> str | None:
    return "is constant" if wanted.size > 1 and wanted.min() == wanted.max() else None


def described(comparison: Comparison) -> str:
    """An output that differs, in words: its name, how far it is off, and where."""
    if comparison.remark is not None and not comparison.ok:
        return f"{comparison.name} {comparison.remark}"
    where = ", ".join(map(str, comparison.index))
    return (
        f"{comparison.name}: off by {comparison.difference:.3g} at [{where}],"
        f" allowed are {comparison.tolerance:.3g}"
    )
