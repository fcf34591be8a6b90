"""Recurrent layers: batch and direction are independent, time and hidden state are not.

Time goes step by step. Hidden units of one step are independent, but the next step needs them all:
no part of the output has some of them only, and the cores that share them out exchange the state.
"""

from __future__ import annotations

from autoturbo.graph.domain import (
    WHOLE_DIM,
    AccessMap,
    AxisKind,
    DimAccess,
    along,
    whole_along,
)
from autoturbo.graph.operators import Engine, Pattern, Work
from autoturbo.graph.table.build import ONNX, Domain, Rows, agree
from autoturbo.graph.table.spec import NodeView, OperatorSpec, Row


def _recurrent(gates: int, work: Work) -> Row:
    """Domain ``d, b, s, h, k``: direction, batch, time, hidden unit, input and state summed over.

    Each gate of each hidden unit is a product with the input and with the state:
    ``gates * d * b * s * h * (input + h)`` multiply-accumulates, ``gates`` per point.
    """

    def row(node: NodeView) -> OperatorSpec:
        source, state = node.shape_in(0), node.shape_in(2)
        batch_first = bool(node.integer("layout", 0))
        batch, time = source[:2] if batch_first else source[1::-1]
        hidden = state[2]
        agree(state[1] == gates * hidden, f"{gates} gates of {hidden} hidden units expected")
        domain = Domain()
        d, b = along(domain.axis("d", state[0])), along(domain.axis("b", batch))
        s, h = domain.axis("s", time, AxisKind.STEP), domain.axis("h", hidden, AxisKind.SPREAD)
        domain.reduction("k", source[2] + hidden)
        maps = _maps(batch_first, d, b, s, h)
        return domain.answer(
            node,
            *maps,
            Work(macs=gates, vector=work.vector, special=work.special),
            engine=Engine.MATRIX,
            pattern=Pattern.OPAQUE,
            parameterised=node.is_weight(1, 2),
        )

    return row


def _maps(
    batch_first: bool, d: DimAccess, b: DimAccess, s: int, h: int
) -> tuple[list[AccessMap], list[AccessMap]]:
    """Inputs ``X W R B sequence_lens initial_h initial_c P`` and outputs ``Y Y_h Y_c``.

    Rows of weights, of all gates one after another, belong to the hidden units; columns of ``R``
    meet the state, anew at every step.
    """
    step, unit, rows = along(s), along(h), whole_along(h)
    source = AccessMap((b, step, WHOLE_DIM) if batch_first else (step, b, WHOLE_DIM))
    weight, again = AccessMap((d, rows, WHOLE_DIM)), AccessMap((d, rows, whole_along(s)))
    bias = AccessMap((d, rows))
    state, series = _ordered(batch_first, d, b, unit, step)
    before, _ = _ordered(batch_first, d, b, rows, step)
    inputs = [source, weight, again, bias, AccessMap((b,)), before, state, bias]
    return inputs, [series, state, state]


def _ordered(
    batch_first: bool, d: DimAccess, b: DimAccess, unit: DimAccess, step: DimAccess
) -> tuple[AccessMap, AccessMap]:
    """Return the maps of a state and of the states of all steps."""
    if batch_first:
        return AccessMap((b, d, unit)), AccessMap((b, step, d, unit))
    return AccessMap((d, b, unit)), AccessMap((step, d, b, unit))


# Per hidden unit and step, biases folded. A sigmoid is 1 vector and 2 special, a tanh 1 special.
ROWS: Rows = {
    # Three sigmoids, two tanh; three multiplications, one addition; four gate additions.
    (ONNX, "LSTM"): _recurrent(4, Work(vector=11.0, special=8.0)),
    # Two sigmoids, one tanh; three multiplications, two additions; three gate additions.
    (ONNX, "GRU"): _recurrent(3, Work(vector=10.0, special=5.0)),
    # One tanh; one addition.
    (ONNX, "RNN"): _recurrent(1, Work(vector=1.0, special=1.0)),
}
