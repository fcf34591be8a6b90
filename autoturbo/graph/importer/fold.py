"""Computes small constants, by ONNX's reference implementation.

Only what may decide a shape or be an index is computed: values of at most :data:`SMALL` elements,
integers of at most :data:`~autoturbo.graph.importer.external_data.INDICES`. Everything else that
depends on no real input is a constant of known shape and unknown value.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from onnx import (
    NodeProto,
    TensorProto,
    ValueInfoProto,
    defs,
    helper,
    numpy_helper,
    version_converter,
)
from onnx.reference import ReferenceEvaluator

from autoturbo.graph.importer.external_data import (
    INDICES,
    MOST_READ,
    SMALL,
    is_stored,
    most_elements,
)
from autoturbo.graph.source import domain_of, one_line

if TYPE_CHECKING:
    from autoturbo.graph.values import Value

RANDOM = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
     "Multinomial")
)  # fmt: skip
"""Operators that give another value each time: never computed."""

_ONE_AXIS_SINCE_13 = frozenset(("Softmax", "LogSoftmax", "Hardmax"))
"""Operators that before opset 13 took all dimensions from their axis on for one."""

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
    """Return the elements of a stored tensor, or None if they are many or were skipped.

    Raises:
        ValueError: The payload does not fit the extents or the element type.
    """
    if not is_stored(tensor) or math.prod(tensor.dims) > most_elements(tensor.data_type):
        return None
    if tensor.data_type not in TensorProto.DataType.values():
        raise ValueError(f"element type {tensor.data_type} is none of ONNX's")
    return np.asarray(numpy_helper.to_array(tensor))


def constant_array(node: NodeProto) -> np.ndarray | None:
    """Return the value of a Constant node, or None if it is large or of an unused kind."""
    for attribute in node.attribute:
        if attribute.name == "value":
            return small_array(attribute.t)
        if attribute.name in _SIMPLE:
            numbers = attribute.floats or attribute.ints
            number = attribute.f if attribute.name == "value_float" else attribute.i
            plain = list(numbers) if attribute.name.endswith("s") else number
            return np.asarray(plain, dtype=_SIMPLE[attribute.name])
    return None


TOO_LARGE = "more elements than are computed"
"""Why a large constant is not computed."""


class FoldError(Exception):
    """A constant was not computed; the message says why."""


class Folder:
    """Computes single nodes on arrays; evaluators of like nodes are kept.

    ONNX's reference implementation follows the newest definition of an operator. Where it does not
    know an older one, the node is computed as ONNX's version converter spells it today.
    """

    def __init__(self, opsets: Mapping[str, int]) -> None:
        self._opsets = dict(opsets)
        self._version = self._opsets.get("", 1)
        self._evaluators: dict[bytes, ReferenceEvaluator] = {}
        self._left = MOST_READ

    def evaluate(self, node: NodeProto, inputs: Sequence[Value | None]) -> list[np.ndarray]:
        """Return the outputs of a node.

        Args:
            node: The node.
            inputs: Its inputs by position, each with data or absent.

        Raises:
            FoldError: The node cannot be computed, or its outputs are large.
        """
        plain = _plain(node, [value is not None for value in inputs])
        given = {f"i{k}": value for k, value in enumerate(inputs) if value is not None}
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                arrays = self._run(plain, given)
        except Exception as error:  # noqa: BLE001 - each implementation raises what it likes
            raise FoldError(f"{type(error).__name__}: {one_line(error)}") from None
        if not self._may_keep(arrays):
            raise FoldError(TOO_LARGE)
        # The reference divides nothing by nothing, runtimes give the sum.
        empty = node.op_type == "ReduceMean" and inputs[0] is not None and inputs[0].empty
        return [np.zeros_like(array) for array in arrays] if empty else arrays

    def _run(self, plain: NodeProto, given: Mapping[str, Value]) -> list[np.ndarray]:
        """Run a node as it is written; if that fails, at the newest opset."""
        feeds = {name: value.data for name, value in given.items()}
        if self._means_otherwise(plain):
            return _outputs(self._newest(plain, given), feeds)
        try:
            return _outputs(self._evaluator(plain), feeds)
        except Exception:
            # ONNX converts its own operators alone, and only upwards.
            if plain.domain or self._version >= defs.onnx_opset_version():
                raise
            with contextlib.suppress(Exception):  # what is told is why it failed as it is written
                return _outputs(self._newest(plain, given), feeds)
            raise

    def _means_otherwise(self, plain: NodeProto) -> bool:
        """Return whether the reference implementation computes the node unlike its opset."""
        if plain.op_type in _ONE_AXIS_SINCE_13:
            return not plain.domain and self._version < 13  # noqa: PLR2004 - ONNX's version
        return not plain.domain and any(item.name == "broadcast" for item in plain.attribute)

    def _may_keep(self, arrays: Sequence[np.ndarray]) -> bool:
        """Return whether results are small enough to keep; those above the limit share a budget."""
        large = [array for array in arrays if array.size > SMALL]
        if any(array.dtype.name not in _INDICES or array.size > INDICES for array in large):
            return False
        # Counted down even when it is too little: what comes later is left out too.
        self._left -= sum(array.size for array in large)
        return self._left >= 0

    def _evaluator(self, plain: NodeProto) -> ReferenceEvaluator:
        # Building an evaluator takes longer than running it; networks repeat the same small nodes.
        key = plain.SerializeToString(deterministic=True)
        if key not in self._evaluators:
            self._evaluators[key] = ReferenceEvaluator(plain, opsets=self._opsets)
        return self._evaluators[key]

    def _newest(self, plain: NodeProto, given: Mapping[str, Value]) -> ReferenceEvaluator:
        """Return an evaluator of the standard operators at the newest opset."""
        inputs = [helper.make_value_info(name, value.type) for name, value in given.items()]
        outputs = [ValueInfoProto(name=name) for name in plain.output if name]
        graph = helper.make_graph([plain], "node", inputs, outputs)
        key = graph.SerializeToString(deterministic=True)
        if key not in self._evaluators:
            opset = helper.make_opsetid("", self._version)
            model = helper.make_model(graph, opset_imports=[opset])
            newest = version_converter.convert_version(model, defs.onnx_opset_version())
            self._evaluators[key] = ReferenceEvaluator(newest)
        return self._evaluators[key]


def _outputs(
    evaluator: ReferenceEvaluator, feeds: Mapping[str, np.ndarray | None]
) -> list[np.ndarray]:
    return [np.asarray(result) for result in evaluator.run(None, dict(feeds))]


def _plain(node: NodeProto, present: Sequence[bool]) -> NodeProto:
    """Return the node with positions for names, so that equal nodes share an evaluator."""
    plain = NodeProto(op_type=node.op_type, domain=domain_of(node))
    plain.input.extend(f"i{k}" if given else "" for k, given in enumerate(present))
    plain.output.extend(f"o{k}" if name else "" for k, name in enumerate(node.output))
    plain.attribute.extend(node.attribute)
    return plain
