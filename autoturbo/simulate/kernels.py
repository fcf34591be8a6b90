"""Level one: a kernel, engine by engine.

Engines issue their instructions in list order, each as soon as the engine is free and everything it
waits for has ended; an engine's instructions also complete in order. All cores of a cluster run the
same program, so one core's engines stand for all; the global buffer and DDR are shared by rates: GB
bandwidth is the cluster's, DDR bandwidth is the chip's divided by its clusters, all of which run
alike.

A transfer occupies its engine for its bytes and completes one latency later, so latencies of
consecutive transfers overlap, as in hardware with a request queue.

Reading and writing share a memory: a kernel takes no less than its bytes at the memory's bandwidth,
however its engines overlap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from autoturbo.graph.arrays import Ints
from autoturbo.hardware.target import Target
from autoturbo.schedule.instructions import (
    DMA_IN,
    DMA_OUT,
    ENGINES,
    MATRIX_ENGINE,
    TRANSFER,
    Amount,
    Column,
    Instructions,
)
from autoturbo.schedule.work import DATAFLOWS, Floats, matrix_cycles

PAIRS = tuple((a, b) for a in range(len(ENGINES)) for b in range(a + 1, len(ENGINES)))
"""Pairs of engines whose overlap is reported."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A kernel simulated.

    Attributes:
        seconds: from its first instruction to the end of its last.
        busy: seconds per engine, in the order of ENGINES.
        overlap: seconds per pair of engines, in the order of :data:`PAIRS`.
        ddr_bytes: moved by one cluster.
        gb_bytes: moved by one cluster.
    """

    seconds: float
    busy: tuple[float, ...]
    overlap: tuple[float, ...]
    ddr_bytes: float
    gb_bytes: float


def rates_of(target: Target, dtype: str) -> Floats:
    """A target's figures for compiled code, SI units."""
    matrix, vector, dma = target.matrix, target.vector, target.dma
    return np.asarray([
        target.clock, matrix.rows, matrix.columns, matrix.depth,
        dict(matrix.rate).get(dtype, 0.0), matrix.startup_cycles, DATAFLOWS[matrix.dataflow],
        vector.elements_per_cycle(dtype), vector.special_lanes, vector.startup_cycles,
        target.lb.bandwidth,
        target.transfer.bandwidth, target.transfer.latency,
        target.gb.bandwidth, target.gb.latency,
        dma_bandwidth(target), dma.latency + target.ddr.latency,
    ], np.float64)  # fmt: skip


def dma_bandwidth(target: Target) -> float:
    """Bytes per second that one cluster's DMA gets from DDR in one direction.

    The share of the chip's bandwidth that long transfers reach, no more than the channels move.
    """
    share = target.ddr_bandwidth_per_cluster * target.ddr.efficiency
    return min(share, target.dma.channels * target.dma.bandwidth)


def run_kernel(instructions: Instructions, rates: Floats) -> KernelTime:
    """Simulate one kernel."""
    seconds, busy, overlap, ddr, gb = _run(instructions.where, instructions.amounts, rates)
    return KernelTime(
        float(seconds), tuple(busy.tolist()), tuple(overlap.tolist()), float(ddr), float(gb)
    )


@njit(cache=True)
def _duration(engine: int, q: Floats, r: Floats) -> tuple[float, float]:
    """Seconds that an instruction occupies its engine, and its latency on top."""
    if engine in (DMA_IN, DMA_OUT):
        return q[Amount.DDR] / r[15], r[16]
    if engine == TRANSFER:
        shared = q[Amount.GB] / r[13] if q[Amount.GB] > 0 else 0.0
        own = q[Amount.CORE] / r[11]
        return max(shared, own), r[12] + (r[14] if q[Amount.GB] > 0 else 0.0)
    local = q[Amount.LOCAL] / r[10]
    if engine == MATRIX_ENGINE:
        cycles = matrix_cycles(
            q[Amount.COUNT], q[Amount.ROWS], q[Amount.COLUMNS], q[Amount.DEPTH],
            r[1], r[2], r[3], int(r[6]),
        )  # fmt: skip
        return max((cycles / r[4] + r[5]) / r[0], local), 0.0
    cycles = q[Amount.VECTOR] / r[7] + q[Amount.SPECIAL] / r[8] + r[9]
    return max(cycles / r[0], local), 0.0


@njit(cache=True)
def _run(where: Ints, amounts: Floats, rates: Floats) -> tuple[float, Floats, Floats, float, float]:
    total = len(where)
    begin, end, done = np.zeros(total), np.zeros(total), np.zeros(total)
    free, busy, completed = np.zeros(5), np.zeros(5), np.zeros(5)
    seconds, ddr, gb = 0.0, 0.0, 0.0
    for index in range(total):
        engine = where[index, Column.ENGINE]
        start = free[engine]
        for position in range(Column.AFTER, where.shape[1]):
            before = where[index, position]
            if before >= 0:
                start = max(start, done[before])
        length, latency = _duration(engine, amounts[index], rates)
        begin[index], end[index] = start, start + length
        done[index] = completed[engine] = max(end[index] + latency, completed[engine])
        free[engine] = end[index]
        busy[engine] += length
        seconds = max(seconds, done[index])
        if engine in (DMA_IN, DMA_OUT):
            ddr += amounts[index, Amount.DDR]
        gb += amounts[index, Amount.GB]
    seconds = max(seconds, ddr / rates[15], gb / rates[13] if gb else 0.0)
    return seconds, busy, _overlaps(where, begin, end), ddr, gb


@njit(cache=True)
def _overlaps(where: Ints, begin: Floats, end: Floats) -> Floats:
    """Seconds in which both engines of each pair are busy."""
    out = np.zeros(10)
    pair = 0
    for first in range(5):
        for second in range(first + 1, 5):
            out[pair] = _overlap(where, begin, end, first, second)
            pair += 1
    return out


@njit(cache=True)
def _next(where: Ints, engine: int, index: int) -> int:
    while index < len(where) and where[index, Column.ENGINE] != engine:
        index += 1
    return index


@njit(cache=True)
def _overlap(where: Ints, begin: Floats, end: Floats, first: int, second: int) -> float:
    """Merge the busy intervals of two engines; each engine's are in order."""
    total = 0.0
    i, j = _next(where, first, 0), _next(where, second, 0)
    while i < len(where) and j < len(where):
        total += max(min(end[i], end[j]) - max(begin[i], begin[j]), 0.0)
        if end[i] < end[j]:
            i = _next(where, first, i + 1)
        else:
            j = _next(where, second, j + 1)
    return total
