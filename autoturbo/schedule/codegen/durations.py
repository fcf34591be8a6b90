"""Seconds that an engine takes for an instruction of some amount.

The simulator issues instructions with them, and tiles are chosen by them
(:mod:`autoturbo.schedule.codegen.tile_costs`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

import numpy as np

from autoturbo.compiled import arithmetic, borrowing
from autoturbo.hardware.dram import Memory, memory_of, run_seconds
from autoturbo.hardware.parts import storage_ratio
from autoturbo.hardware.target import Target
from autoturbo.schedule.work import Floats, array_of, matrix_cycles

Numbers = TypeVar("Numbers", float, Floats)
"""A number, in compiled code, or a column of them."""


class Rate(IntEnum):
    """Entries of :func:`rates_of` before those of :class:`autoturbo.hardware.dram.Memory`."""

    CLOCK = 0
    MACS = 1
    MATRIX_STARTUP = 2
    LANES = 3
    SPECIAL_LANES = 4
    VECTOR_STARTUP = 5
    LB = 6
    TRANSFER = 7
    TRANSFER_LATENCY = 8
    GB = 9
    GB_LATENCY = 10
    DMA = 11
    DMA_LATENCY = 12
    CLUSTERS = 13
    CORES = 14
    STORED = 15
    BARRIER = 16
    MULTICAST = 17
    ARRAY = 18
    MEMORY = 24


def rates_of(target: Target, dtype: str) -> Floats:
    """Return a target's figures for compiled code, in SI units, by :class:`Rate`.

    Those of the matrix array begin at ``ARRAY``, those of off-chip memory at ``MEMORY``.
    """
    matrix, vector, dma = target.matrix, target.vector, target.dma
    figures = (
        target.clock, dict(matrix.rate).get(dtype, 0.0), matrix.startup_cycles,
        vector.elements_per_cycle(dtype), vector.special_lanes, vector.startup_cycles,
        target.lb.bandwidth, target.transfer.bandwidth, target.transfer.latency,
        target.gb.bandwidth, target.gb.latency,
        dma.channels * dma.bandwidth, dma.latency + target.ddr.latency,
        target.clusters, target.cores, storage_ratio(dtype), target.overheads.barrier,
        target.ddr.multicast,
    )  # fmt: skip
    return np.concatenate((np.asarray(figures, np.float64), array_of(matrix), memory_of(target)))


@arithmetic
def own_share(alike: Numbers, r: Floats) -> Numbers:
    """Return the share of bytes in DDR that is read for one cluster alone.

    Args:
        alike: Clusters that need them at once, by :attr:`Amount.ALIKE`.
        r: Rates of :func:`rates_of`.
    """
    if r[Rate.MULTICAST] > 0:
        least: Numbers = np.maximum(alike, 1.0)
        return 1.0 / least
    return 1.0 + 0.0 * alike


@borrowing
def _bus_seconds(size: float, run: float, own: Floats | float, r: Floats) -> float:
    """Return the seconds of a cluster's DMA for bytes in runs of a length, all clusters alike.

    A run of length 0 stands for one that never ends. ``own`` is the share that is read for one
    cluster alone.
    """
    # All clusters are at the bus at once, each with its share; a cluster's DMA may be slower still.
    chip = size / r[Rate.MEMORY + Memory.PEAK]
    if size > 0 and run > 0:
        chip = size / run * run_seconds(run, r[Rate.MEMORY :])
    return float(max(own * r[Rate.CLUSTERS] * chip, size / r[Rate.DMA]))


@borrowing
def ddr_seconds(
    size: float, run: float, core: float, own: Floats | float, r: Floats
) -> tuple[float, float]:
    """Return the seconds that bytes to or from DDR occupy a DMA engine, and their latency.

    Args:
        size: Bytes that the cluster moves.
        run: Bytes of them that are consecutive.
        core: Bytes that go over one core's link, where there is no global buffer between.
        own: Share of the bytes that is read for this cluster alone.
        r: Rates of :func:`rates_of`.
    """
    stored = r[Rate.STORED]
    link = core * stored / r[Rate.TRANSFER]
    memory = _bus_seconds(size * stored, run * stored, own, r)
    return max(memory, link), r[Rate.DMA_LATENCY]


@borrowing
def transfer_seconds(shared: float, core: float, steps: float, r: Floats) -> tuple[float, float]:
    """Return the seconds that bytes to or from GB or other cores occupy a core's link, and latency.

    Args:
        shared: Bytes that the cluster moves at its global buffer.
        core: Bytes that go over one core's link.
        steps: Steps of a recurrence, each of which begins when all cores have made the one before;
            0 where there is none.
        r: Rates of :func:`rates_of`.
    """
    stored = r[Rate.STORED]
    at_gb = shared * stored / r[Rate.GB] if shared > 0 else 0.0
    latency = r[Rate.TRANSFER_LATENCY] + (r[Rate.GB_LATENCY] if shared > 0 else 0.0)
    if steps > 0:
        latency = steps * (latency + r[Rate.BARRIER])
    return max(at_gb, core * stored / r[Rate.TRANSFER]), latency


@borrowing
def matrix_seconds(
    count: float, m: float, n: float, k: float, local: float, steps: float, r: Floats
) -> float:
    """Return the seconds that products occupy the matrix engine of a core.

    Args:
        count: Number of products.
        m: Rows of the result.
        n: Columns of the result.
        k: Length of the sums.
        local: Bytes of LB that the products access.
        steps: Times that the engine starts.
        r: Rates of :func:`rates_of`.
    """
    cycles = matrix_cycles(count, m, n, k, r[Rate.ARRAY :])
    cycles = cycles / r[Rate.MACS] + steps * r[Rate.MATRIX_STARTUP]
    return float(max(cycles / r[Rate.CLOCK], local * r[Rate.STORED] / r[Rate.LB]))


@borrowing
def vector_seconds(plain: float, special: float, local: float, steps: float, r: Floats) -> float:
    """Return the seconds that operations occupy the vector engine of a core.

    Args:
        plain: Operations of its lanes.
        special: Operations of its special lanes.
        local: Bytes of LB that the operations access.
        steps: Times that the engine starts.
        r: Rates of :func:`rates_of`.
    """
    cycles = plain / r[Rate.LANES] + special / r[Rate.SPECIAL_LANES]
    seconds = (cycles + steps * r[Rate.VECTOR_STARTUP]) / r[Rate.CLOCK]
    return float(max(seconds, local * r[Rate.STORED] / r[Rate.LB]))
