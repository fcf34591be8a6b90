"""The latency that no assignment of a model to a machine's units can beat.

Of each kind of work the larger of two: all of it at the rates of all units together, which counts
only where every unit does it on the same engine, and what only the first unit takes at that unit's
rate. And compulsory traffic at the full bandwidth of the shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from autoturbo.graph.extract import extract
from autoturbo.graph.layers import Layer
from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine import Machine
from autoturbo.schedule.codegen.work import engine_code
from autoturbo.simulate.bound import lower_bound
from autoturbo.simulate.measurement import LowerBound


def machine_bound(
    graph: Graph,
    machine: Machine,
    dtype: str,
    layers: Sequence[Layer],
    units: Sequence[Sequence[int]],
) -> LowerBound:
    """The bound for one evaluation of the whole batch.

    Args:
        graph: the model.
        machine: what it runs on.
        dtype: the compute type of all units.
        layers: of the model.
        units: per layer, the units that can run it.
    """
    alone = [lower_bound(graph, unit.target, dtype) for unit in machine.units]
    first = LowerBound(0.0, 0.0, 0.0)
    bound = [i for layer, may in zip(layers, units, strict=True) if len(may) == 1
             for i in layer.operators]  # fmt: skip
    if bound:
        first = lower_bound(extract(graph, bound), machine.units[0].target, dtype)
    shared = _same_engines(graph, machine, dtype)
    return LowerBound(
        matrix_s=max(first.matrix_s, _together([b.matrix_s for b in alone]) if shared else 0.0),
        vector_s=max(first.vector_s, _together([b.vector_s for b in alone]) if shared else 0.0),
        ddr_s=min(b.ddr_s for b in alone),
        uncounted=graph.uncounted,
    )


def _same_engines(graph: Graph, machine: Machine, dtype: str) -> bool:
    """Whether every operator is the same engine's on all units."""
    targets = {unit.kind: unit.target for unit in machine.units}.values()
    return all(
        len({engine_code(operator, target, dtype) for target in targets}) == 1
        for operator in graph.operators
    )


def _together(seconds: Sequence[float]) -> float:
    """Of work that units do by themselves in so many seconds each, shared out as is best."""
    if not all(seconds):
        return 0.0
    return 1.0 / sum(1.0 / one for one in seconds)
