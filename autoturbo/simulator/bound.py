"""The latency that no schedule of a model on a target can beat.

The largest of: matrix work at the chip's peak, vector work at peak, DDR traffic at full bandwidth
(weights, inputs and outputs once, or what a product must move that finds no room on the chip), and
the steps of a recurrence one after another. Only what the outputs depend on counts: a row
of the input that no window reaches is neither read nor computed. Operators whose work goes to the
vector engine on this target (:func:`autoturbo.schedule.work.priced`) count there, and
those of quantised models at the rates of int8 where it has them.

The tight bound is that of the machine as the target describes it: padded folds of the array in
place of multiply-accumulates, DDR at what its DMA and long transfers reach, and for the engines the
first launch, the first byte and the last barrier. Weights count once there as well: clusters may
divide the output channels of a product, so that none has to read what another does.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from autoturbo.caches import remembered
from autoturbo.graph.arrays import (
    GraphArrays,
    Ints,
    Regions,
    graph_arrays,
    propagate_in,
    region_bytes,
)
from autoturbo.graph.domain import SHOWN, AxisKind
from autoturbo.graph.operators import Engine, Graph, Operator
from autoturbo.graph.stored import stored_bytes
from autoturbo.hardware.parts import storage_ratio
from autoturbo.hardware.target import Target
from autoturbo.schedule.place.recurrence import Recurrence
from autoturbo.schedule.work import (
    COLUMNS,
    MATRIX,
    ROWS,
    STEP,
    VECTOR,
    WINDOW,
    array_of,
    axis_roles,
    in_integers,
    least_cycles,
    matrix_shape,
    priced,
    whole_depth,
)
from autoturbo.simulator.kernels import dma_bandwidth
from autoturbo.simulator.measurement import LowerBound


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """Parts of a graph that its outputs depend on.

    Attributes:
        graph: The graph.
        arrays: The same for compiled code; elements have the size of the compute type.
        found: Elements needed of every tensor.
        steps: Over all axes of all operators: steps needed.
    """

    graph: Graph
    arrays: GraphArrays
    found: Regions
    steps: Ints

    @staticmethod
    def of(graph: Graph, dtype: str, *, integers: bool = False) -> Needs:
        """Return the needed regions, from whole outputs back to the inputs."""
        arrays = graph_arrays(graph, dtype, integers=integers)
        regions = Regions.of(arrays)
        for tensor in graph.outputs:
            part = slice(arrays.dim_start[tensor], arrays.dim_start[tensor + 1])
            regions.high[part], regions.seen[tensor] = arrays.extent[part], 1
        propagate_in(arrays, np.arange(len(graph.operators), dtype=np.int64), regions)
        steps = np.maximum(regions.box_high - regions.box_low, 0)
        return Needs(graph, arrays, regions, steps)

    def bytes(self, tensor: int) -> int:
        """Return the needed bytes of a tensor."""
        if not self.found.seen[tensor]:
            return 0
        return int(region_bytes(self.arrays, tensor, self.found.low, self.found.high))

    def points(self, index: int) -> tuple[int, int]:
        """Return an operator's needed points, over all axes and over the axes not summed over."""
        first, end = self.arrays.axis_start[index], self.arrays.axis_start[index + 1]
        steps: list[int] = self.steps[first:end].tolist()
        axes = self.graph.operators[index].axes
        shown = [s for s, a in zip(steps, axes, strict=True) if a.kind in SHOWN]
        computed = [s for s, a in zip(steps, axes, strict=True) if a.kind is not AxisKind.GAP]
        return math.prod(computed), math.prod(shown)

    def operator(self, index: int) -> Operator:
        """Return an operator with no more than the needed steps of its axes."""
        operator, first = self.graph.operators[index], int(self.arrays.axis_start[index])
        steps = self.steps[first : first + len(operator.axes)].tolist()
        pairs = zip(operator.axes, steps, strict=True)
        axes = tuple(dataclasses.replace(axis, extent=extent) for axis, extent in pairs)
        return dataclasses.replace(operator, axes=axes)

    def weight_bytes(self) -> int:
        """Return the bytes of constants that one pass reads; a lookup counts what it picks."""
        constants = [t for t, tensor in enumerate(self.graph.tensors) if tensor.constant]
        element, divisor = self.arrays.element.tolist(), self.arrays.divisor.tolist()
        sizes = ((tensor, self._read(tensor)) for tensor in constants)
        return stored_bytes(self.graph, sizes, lambda t: Fraction(element[t], divisor[t]))

    def compulsory_bytes(self) -> int:
        """Return the bytes that any schedule moves to or from DDR: weights, inputs, outputs."""
        written = sum(self.bytes(tensor) for tensor in set(self.graph.outputs))
        read = sum(self._read(tensor) for tensor in set(self.graph.inputs))
        return written + read + self.weight_bytes()

    def product_bytes(self, on_chip: float, engines: Ints) -> float:
        """Return the bytes that any order of a product moves between DDR and the chip.

        These are 2 x points / sqrt(S) - 2 S elements of M x N x K points if S fit on the chip
        (Smith, Lowery, Langou, van de Geijn 2019, "A Tight I/O Lower Bound for Matrix
        Multiplication"). Only products of an input of the model with constants into an output
        count, and of these the largest: other tensors need not pass DDR.

        Args:
            on_chip: Bytes of all buffers together.
            engines: Per operator, the code of its engine.
        """
        graph, most = self.graph, 0.0
        for index, operator in enumerate(graph.operators):
            if engines[index] != MATRIX or not _plain_product(graph, operator):
                continue
            tensors = (*operator.inputs, *operator.outputs)
            size = min(self.arrays.element[t] / self.arrays.divisor[t] for t in tensors)
            room = on_chip / max(size, 1e-9)
            points, _ = self.points(index)
            most = max(most, (2.0 * points / math.sqrt(room) - 2.0 * room) * size)
        return float(most)

    def _read(self, tensor: int) -> int:
        readers = (self.graph.operators[r] for r in self.graph.consumers[tensor])
        return max((self._read_by(operator, tensor) for operator in readers), default=0)

    def _read_by(self, operator: Operator, tensor: int) -> int:
        """Return the bytes that an operator reads; a lookup reads what it writes."""
        size, arrays = self.bytes(tensor), self.arrays
        if operator.engine not in (Engine.MOVE, Engine.NONE):
            return size
        picked = sum(self.bytes(t) for t in operator.outputs)
        if arrays.divisor[tensor] > 1:
            whole = max(int(arrays.element[operator.outputs[0]]), 1)
            # The table is stored narrow, what is picked is not: it counts as stored.
            picked = picked * int(arrays.element[tensor]) // (int(arrays.divisor[tensor]) * whole)
        return min(size, picked)


@remembered(4)
def lower_bound(graph: Graph, target: Target, dtype: str) -> LowerBound:
    """Return the lower bound for one evaluation of the whole batch on the whole chip."""
    needs = Needs.of(graph, dtype, integers=in_integers(target, dtype))
    ratio = storage_ratio(dtype)
    engines = np.asarray([priced(op, target, dtype).engine for op in graph.operators], np.int64)
    product = needs.product_bytes(_on_chip(target) / ratio, engines)
    matrix_s, vector_s = target.peak_seconds(dtype, *_work(needs, target, dtype))
    recurrences = [i for i, operator in enumerate(graph.operators) if operator.recurrent]
    # Two bounds on the same bytes: compulsory ones, and those of a product in this room.
    moved = max(needs.compulsory_bytes(), product) * ratio
    steps_s = max((_steps_seconds(needs, i, target, dtype) for i in recurrences), default=0.0)
    padded_s = _padded_seconds(needs, target, dtype)
    return LowerBound(
        matrix_s=matrix_s,
        vector_s=vector_s,
        ddr_s=moved / target.ddr.bandwidth,
        uncounted=graph.uncounted,
        steps_s=steps_s,
        vector_macs=_vector_macs(needs, engines.tolist()),
        tight_s=_tight_seconds(target, moved, max(matrix_s, vector_s, steps_s, padded_s)),
    )


def _tight_seconds(target: Target, moved: float, worked_s: float) -> float:
    """Return the seconds that no schedule can beat on a target as it is described.

    Args:
        target: The accelerator.
        moved: Bytes from and to DDR, at least.
        worked_s: Seconds of the busiest engine, at least.
    """
    overheads, ddr = target.overheads, target.ddr
    # What long runs reach; the plain bound has the bandwidth that the data sheet names.
    reached = min(ddr.bandwidth * ddr.efficiency, dma_bandwidth(target) * target.clusters)
    # One kernel at least, whose first operand comes from DDR.
    head = overheads.kernel_launch + overheads.barrier + target.dma.latency + ddr.latency
    return max(moved / reached, worked_s + head if worked_s else 0.0)


def _padded_seconds(needs: Needs, target: Target, dtype: str) -> float:
    """Return the seconds of all arrays together for what the outputs need, padding included."""
    rate, array, cycles = dict(target.matrix.rate).get(dtype, 0.0), array_of(target.matrix), 0.0
    for index, operator in enumerate(needs.graph.operators):
        work = priced(operator, target, dtype)
        # The steps of a recurrence have a bound of their own.
        if work.engine != MATRIX or operator.recurrent or operator.opaque:
            continue
        needed = needs.operator(index)
        count, m, n, k = matrix_shape(needed, whole_depth(target))
        # Less than one where types are mixed and the array is faster on this one.
        scale = work.macs / max(operator.work.macs, 1)
        cycles += least_cycles(count * scale, m, n, k, array)
    cores = target.clusters * target.cores
    return cycles / (rate * target.clock * cores) if cycles else 0.0


def _on_chip(target: Target) -> int:
    """Return the bytes of all buffers of a target."""
    core = target.lb.capacity + target.lb.weight_capacity
    return target.clusters * (target.cores * core + target.gb.capacity)


def _plain_product(graph: Graph, operator: Operator) -> bool:
    """Return whether an operator multiplies an input of the model by constants into an output."""
    data, *others = operator.inputs
    roles = axis_roles(operator)
    windows = [a.extent for a, role in zip(operator.axes, roles, strict=True) if role == WINDOW]
    return (
        data in graph.read
        and bool(others)
        and all(graph.tensors[t].constant for t in others)
        and graph.returned.issuperset(operator.outputs)
        and math.prod(windows) == 1
        and not (operator.recurrent or operator.opaque)
    )


def _steps_seconds(needs: Needs, index: int, target: Target, dtype: str) -> float:
    """Return the seconds of the needed part of a recurrence, step by step.

    Args:
        needs: The parts of the graph that its outputs depend on.
        index: The recurrence, an operator.
        target: The accelerator.
        dtype: The compute type.
    """
    needed = needs.operator(index)
    if not all(axis.extent for axis in needed.axes):
        return 0.0
    return least_steps_seconds(Recurrence(needed, target, dtype))


def least_steps_seconds(recurrence: Recurrence) -> float:
    """Return a lower bound on the seconds of all steps, over all bindings of a recurrence.

    Hidden units are divided within a cluster, samples and directions over all clusters.
    """
    target, hidden = recurrence.target, recurrence.hidden
    cores = target.clusters * target.cores
    steps, directions, samples = map(recurrence.extent, (STEP, COLUMNS, ROWS))
    return steps * min(
        recurrence.step_seconds(
            max(samples * parts * own / cores, 1.0), directions / own, hidden / parts
        )
        for own in range(1, directions + 1)
        for parts in range(1, min(target.cores, hidden) + 1)
    )


def _work(needs: Needs, target: Target, dtype: str) -> tuple[float, float, float]:
    """Return the matrix engine's multiply-accumulates, and plain and special vector operations."""
    matrix = vector = special = 0.0
    for index, operator in enumerate(needs.graph.operators):
        points, shown = needs.points(index)
        work = priced(operator, target, dtype)
        if work.engine == MATRIX:
            matrix += points * work.macs
        elif work.engine == VECTOR:
            vector += points * work.macs
        vector += shown * work.vector + points * work.per_point
        special += shown * work.special
    return matrix, vector, special


def _vector_macs(needs: Needs, engines: Sequence[int]) -> int:
    """Return the needed multiply-accumulates of operators on the vector engine."""
    return sum(
        needs.points(index)[0] * operator.work.macs
        for index, operator in enumerate(needs.graph.operators)
        if engines[index] == VECTOR and operator.work.macs
    )


def compulsory_bytes(graph: Graph, dtype: str, *, integers: bool = False) -> int:
    """Return the bytes that any schedule moves to or from DDR: weights, inputs, outputs."""
    return Needs.of(graph, dtype, integers=integers).compulsory_bytes()


def weight_bytes(graph: Graph, dtype: str, *, integers: bool = False) -> int:
    """Return the bytes of constants that one pass reads; a lookup counts what it picks."""
    return Needs.of(graph, dtype, integers=integers).weight_bytes()
