"""Normalisations that ONNX Runtime cannot run inside of a function, in simpler operators.

In a function it takes the definition of MeanVarianceNormalization, whose constants it refuses, and
crashes on SimplifiedLayerNormalization.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper

from autoturbo.verify.body import Body
from autoturbo.verify.regional.task import Task

_AXES_INPUT = 18
"""Opset from which ReduceMean has its axes as an input."""

_DEVIATION_FLOOR = 1e-9
"""Added to the standard deviation by the definition of MeanVarianceNormalization."""


def write(task: Task, inputs: Sequence[str], outputs: Sequence[str]) -> bool:
    """Spell a node out; False where it may stay as it is.

    Args:
        task: whose node.
        inputs: names by ONNX position.
        outputs: names by ONNX position, ``""`` where absent.
    """
    spell, data = _SPELT.get(task.operator.kind), next(iter(task.node.inputs), None)
    if spell is None or data is None:
        return False
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(data.element))
    spell(_Writer(task.body, dtype, len(data.shape), task.attributes), inputs, outputs)
    return True


@dataclass(frozen=True, slots=True, eq=False)
class _Writer:
    """Nodes in a body, with numbers of the type that the data have.

    Attributes:
        body: where they go.
        dtype: of the data.
        rank: of the data.
        attributes: of the node that is spelt out.
    """

    body: Body
    dtype: np.dtype[Any]
    rank: int
    attributes: Mapping[str, Any]

    def one(self, kind: str, *inputs: str, to: str = "") -> str:
        return self.body.node(kind, inputs, (to,) if to else 1)[0]

    def number(self, value: float) -> str:
        return self.body.constant(np.asarray(value, self.dtype))

    def mean(self, name: str, axes: Sequence[int]) -> str:
        if self.body.opset < _AXES_INPUT:
            return self.body.node("ReduceMean", (name,), 1, axes=list(axes))[0]
        return self.one("ReduceMean", name, self.body.integers(axes, "axes"))


def _mean_variance(w: _Writer, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    axes = w.attributes.get("axes", (0, 2, 3))
    centred = w.one("Sub", inputs[0], w.mean(inputs[0], axes))
    deviation = w.one("Sqrt", w.mean(w.one("Mul", centred, centred), axes))
    w.one("Div", centred, w.one("Add", deviation, w.number(_DEVIATION_FLOOR)), to=outputs[0])


def _root_mean_square(w: _Writer, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    axes = range(int(w.attributes.get("axis", -1)) % w.rank, w.rank)
    epsilon = w.number(float(w.attributes.get("epsilon", 1e-5)))
    square = w.mean(w.one("Mul", inputs[0], inputs[0]), axes)
    further = outputs[1] if len(outputs) > 1 else ""
    inverse = w.one("Reciprocal", w.one("Sqrt", w.one("Add", square, epsilon)), to=further)
    w.one("Mul", w.one("Mul", inputs[0], inverse), inputs[1], to=outputs[0])


_SPELT: Mapping[str, Callable[[_Writer, Sequence[str], Sequence[str]], None]] = {
    "MeanVarianceNormalization": _mean_variance,
    "SimplifiedLayerNormalization": _root_mean_square,
}
