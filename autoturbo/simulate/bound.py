"""The latency that no schedule of a model on a target can beat.

The largest of: matrix work at the chip's peak, vector work at peak, and compulsory DDR traffic
(weights, inputs and outputs once) at full bandwidth. Operators whose work goes to the vector
engine on this target (:func:`autoturbo.schedule.work.engine_code`) count there.
"""

from __future__ import annotations

from autoturbo.graph.operators import Engine, Graph, Operator, element_bytes
from autoturbo.hardware.target import Target
from autoturbo.schedule.work import MATRIX, VECTOR, engine_code
from autoturbo.simulate.measurement import LowerBound


def lower_bound(graph: Graph, target: Target, dtype: str) -> LowerBound:
    """The bound for one evaluation of the whole batch on the whole chip."""
    matrix = vector = special = 0.0
    for operator in graph.operators:
        code = engine_code(operator, target, dtype)
        if code == MATRIX:
            matrix += operator.macs
        elif code == VECTOR:
            vector += operator.macs
        vector += operator.vector_ops
        special += operator.special_ops
    cores = target.clusters * target.cores
    peak = target.matrix.macs_per_cycle(dtype) * cores * target.clock
    lanes = target.vector.elements_per_cycle(dtype) * cores * target.clock
    slow = target.vector.special_lanes * cores * target.clock
    traffic = compulsory_bytes(graph, dtype)
    return LowerBound(
        matrix_s=matrix / peak if matrix else 0.0,
        vector_s=(vector / lanes if vector else 0.0) + (special / slow if special else 0.0),
        ddr_s=traffic / target.ddr.bandwidth,
    )


def compulsory_bytes(graph: Graph, dtype: str) -> int:
    """Bytes that any schedule moves from or to DDR: used weights, inputs and outputs once."""
    written = sum(_bytes(graph, tensor, dtype) for tensor in set(graph.outputs))
    read = sum(_least_read(graph, tensor, dtype) for tensor in set(graph.inputs))
    return written + read + weight_bytes(graph, dtype)


def weight_bytes(graph: Graph, dtype: str) -> int:
    """Bytes of constants that one pass reads; a table that is looked up counts what is picked."""
    constants = (t for t, tensor in enumerate(graph.tensors) if tensor.constant)
    return sum(_least_read(graph, tensor, dtype) for tensor in constants)


def _least_read(graph: Graph, tensor: int, dtype: str) -> int:
    """Bytes of a tensor that its readers need; one that only moves data needs what it writes."""
    needs = (_needed(graph, graph.operators[r], tensor, dtype) for r in graph.consumers[tensor])
    return max(needs, default=0)


def _needed(graph: Graph, operator: Operator, tensor: int, dtype: str) -> int:
    size = _bytes(graph, tensor, dtype)
    if operator.engine not in (Engine.MOVE, Engine.NONE):
        return size
    return min(size, sum(_bytes(graph, t, dtype) for t in operator.outputs))


def _bytes(graph: Graph, tensor: int, dtype: str) -> int:
    value = graph.tensors[tensor]
    return value.elements * element_bytes(value.dtype, dtype)
