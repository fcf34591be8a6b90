"""Computes small constants, by ONNX's reference implementation.

Only what may decide a shape or be an index is computed: values of at most :data:`SMALL` elements,
integers of at most :data:`~autoturbo.graph.external_data.INDICES`. Everything else that depends on
no real input is a constant of known shape and unknown value.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import numpy as np
from onnx import NodeProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from autoturbo.graph.external_data import INDICES, MOST_READ, SMALL, is_stored, most_elements
from autoturbo.graph.source import domain_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from autoturbo.graph.values import Value

RANDOM = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
     "Multinomial")
)  # fmt: skip
"""Operators that give another value each time: never computed."""

_SIMPLE = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}
"""Attributes of Constant that hold plain numbers, and their element type."""

_INDICES = frozenset(("int32", "int64"))
"""Element types of which more elements are computed, in numpy's spelling."""


def small_array(tensor: TensorProto) -> np.ndarray | None:
    """The elements of a stored tensor, or None where they are many or were left behind.

    Raises:
        ValueError: the payload does not fit the extents or the element type.
    """
    if not is_stored(tensor) or math.prod(tensor.dims) > most_elements(tensor.data_type):
        return None
    return np.asarray(numpy_helper.to_array(tensor))


def constant_array(node: NodeProto) -> np.ndarray | None:
    """The value of a Constant node, or None where it is large or of a kind that is not needed."""
    for attribute in node.attribute:
        if attribute.name == "value":
            return small_array(attribute.t)
        if attribute.name in _SIMPLE:
            numbers = attribute.floats or attribute.ints
            number = attribute.f if attribute.name == "value_float" else attribute.i
            plain = list(numbers) if attribute.name.endswith("s") else number
            return np.asarray(plain, dtype=_SIMPLE[attribute.name])
    return None


class Folder:
    """Evaluates single nodes on arrays; evaluators of like nodes are kept."""

    def __init__(self, opsets: Mapping[str, int]) -> None:
        self._opsets = dict(opsets)
        self._evaluators: dict[bytes, ReferenceEvaluator] = {}
        self._left = MOST_READ

    def evaluate(self, node: NodeProto, inputs: Sequence[Value | None]) -> list[np.ndarray] | None:
        """The outputs of a node, or None where the reference cannot compute them.

        Args:
            node: the node.
            inputs: its inputs by position, each with data or absent.
        """
        plain = _plain(node, [value is not None for value in inputs])
        feeds = {f"i{k}": value.data for k, value in enumerate(inputs) if value is not None}
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                results = self._evaluator(plain).run(None, feeds)
        except Exception:  # noqa: BLE001 - an operator the reference lacks: its value stays unknown
            return None
        arrays = [np.asarray(result) for result in results]
        return arrays if self._may_keep(arrays) else None

    def _may_keep(self, arrays: Sequence[np.ndarray]) -> bool:
        """Whether results are few enough to be kept; those above the limit count together."""
        large = [array for array in arrays if array.size > SMALL]
        if any(array.dtype.name not in _INDICES or array.size > INDICES for array in large):
            return False
        self._left -= sum(array.size for array in large)
        return self._left >= 0

    def _evaluator(self, plain: NodeProto) -> ReferenceEvaluator:
        key = plain.SerializeToString(deterministic=True)
        if key not in self._evaluators:
            self._evaluators[key] = ReferenceEvaluator(plain, opsets=self._opsets)
        return self._evaluators[key]


def _plain(node: NodeProto, present: Sequence[bool]) -> NodeProto:
    """The node with positions for names, so that like nodes share an evaluator."""
    plain = NodeProto(op_type=node.op_type, domain=domain_of(node))
    plain.input.extend(f"i{k}" if given else "" for k, given in enumerate(present))
    plain.output.extend(f"o{k}" if name else "" for k, name in enumerate(node.output))
    plain.attribute.extend(node.attribute)
    return plain
