"""Recurrent layers: batch and direction are independent, time and hidden state are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoturbo.graph.domain import WHOLE_DIM, AccessMap, AxisKind, DimAccess, along
from autoturbo.graph.operators import Engine, Pattern, Work
from autoturbo.graph.table.build import (
    ONNX,
    Domain,
    Rows,
    agree,
    answer,
    has_output,
    integer,
    is_weight,
    shape_in,
)

if TYPE_CHECKING:
    from autoturbo.graph.table.spec import NodeView, OperatorSpec, Row


def _recurrent(gates: int, work: Work) -> Row:
    """Domain ``d, b, s, h, k``: direction, batch, time, hidden unit, input and state summed over.

    Each gate of each hidden unit is a product with the input and with the state:
    ``gates * d * b * s * h * (input + h)`` multiply-accumulates, ``gates`` per point.
    """

    def row(node: NodeView) -> OperatorSpec:
        source, state = shape_in(node, 0), shape_in(node, 2)
        batch_first = bool(integer(node, "layout", 0))
        batch, time = source[:2] if batch_first else source[1::-1]
        hidden = state[2]
        agree(state[1] == gates * hidden, f"{gates} gates of {hidden} hidden units expected")
        domain = Domain()
        d, b = along(domain.axis("d", state[0])), along(domain.axis("b", batch))
        # Time shows in the first output only: without it, it is summed over.
        kind = AxisKind.WHOLE if has_output(node, 0) else AxisKind.REDUCTION
        s = along(domain.axis("s", time, kind))
        h = along(domain.whole("h", hidden))
        domain.reduction("k", source[2] + hidden)
        maps = _maps(batch_first, d, b, s, h)
        return answer(
            node,
            domain,
            *maps,
            Work(macs=gates, vector=work.vector, special=work.special),
            engine=Engine.MATRIX,
            pattern=Pattern.OPAQUE,
            parameterised=is_weight(node, 1, 2),
        )

    return row


def _maps(
    batch_first: bool, d: DimAccess, b: DimAccess, s: DimAccess, h: DimAccess
) -> tuple[list[AccessMap], list[AccessMap]]:
    """Inputs ``X W R B sequence_lens initial_h initial_c P`` and outputs ``Y Y_h Y_c``."""
    source = AccessMap((b, s, WHOLE_DIM) if batch_first else (s, b, WHOLE_DIM))
    weight, bias = AccessMap((d, WHOLE_DIM, WHOLE_DIM)), AccessMap((d, WHOLE_DIM))
    state = AccessMap((b, d, h) if batch_first else (d, b, h))
    series = AccessMap((b, s, d, h) if batch_first else (s, d, b, h))
    inputs = [source, weight, weight, bias, AccessMap((b,)), state, state, bias]
    return inputs, [series, state, state]


# Per hidden unit and step, biases folded. A sigmoid is 1 vector and 2 special, a tanh 1 special.
ROWS: Rows = {
    # Three sigmoids, two tanh; three multiplications, one addition; four gate additions.
    (ONNX, "LSTM"): _recurrent(4, Work(vector=11.0, special=8.0)),
    # Two sigmoids, one tanh; three multiplications, two additions; three gate additions.
    (ONNX, "GRU"): _recurrent(3, Work(vector=10.0, special=5.0)),
    # One tanh; one addition.
    (ONNX, "RNN"): _recurrent(1, Work(vector=1.0, special=1.0)),
}
